/* pack.h - copies of matrices in the panel order that lk__gemm reads. */
#ifndef LK_TENSOR_CPU_PACK_H
#define LK_TENSOR_CPU_PACK_H

#include "tensor/cpu/gemm.h"

/* Packs the transpose of a (cols, len) matrix, `stride` floats from row to row,
 * into one panel. Rows are (len / taps, taps) and leave as (taps, len / taps):
 * element e becomes panel row (e % taps) * (len / taps) + e / taps. */
#define lk__pack_transposed LK_KERNEL(pack_transposed)
void lk__pack_transposed(const float *src, size_t stride, size_t cols, size_t len, size_t taps, size_t width,
                         float *panel);

/* Packs a (len, cols) matrix, `stride` floats from row to row, into all its
 * panels. Rows are read in one go, as they may lie far apart. */
#define lk__pack_rows LK_KERNEL(pack_rows)
void lk__pack_rows(const float *src, size_t stride, size_t cols, size_t len, float *panels);

#endif
