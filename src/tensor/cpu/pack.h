/* pack.h - copies matrices into the panel order that lk__gemm reads. */
#ifndef LK_TENSOR_CPU_PACK_H
#define LK_TENSOR_CPU_PACK_H

#include "tensor/cpu/gemm.h"

/* Packs the transpose of a (cols, len) matrix, with `stride` floats from row to row, into one panel. A row (len
 * / taps, taps) becomes (taps, len / taps): element e goes to panel row (e % taps) * (len / taps) + e / taps. */
#define lk__pack_transposed LK_KERNEL(pack_transposed)
void lk__pack_transposed(const float *src, size_t stride, size_t cols, size_t len, size_t taps, size_t width,
                         float *panel);

/* Packs a (len, cols) matrix, with `stride` floats from row to row, into all its panels. Each row is read
 * completely before the next one, since rows may be far apart. */
#define lk__pack_rows LK_KERNEL(pack_rows)
void lk__pack_rows(const float *src, size_t stride, size_t cols, size_t len, float *panels);

#endif
