/* conv2d_planar.h - convolutions that compute few channels: the lanes of a vector are neighbouring pixels.
 *
 * Lanes of lk__gemm are channels, so that 6 channels leave 10 of 16 lanes unused. Here a box of the image is copied
 * into planes, and a vector has one term of the sums of V neighbouring pixels; it is multiplied by the weight of each
 * channel. Sums have the order of lk__gemm. */
#ifndef LK_TENSOR_CPU_CONV2D_PLANAR_H
#define LK_TENSOR_CPU_CONV2D_PLANAR_H

#include "tensor/cpu/conv2d.h"
#include "tensor/cpu/gemm.h"

/* Channels that are computed, at most, and floats that may be read behind a box. */
enum { LK_PLANAR_COLS = V / 2, LK_PLANAR_SLACK = V };

/* Whether to compute `cols` channels of rows of nx pixels, which are neighbours in the box, like this: it must save a
 * third of the products. */
static inline bool lk__planar_fits(size_t nx, size_t cols)
{
    return cols <= LK_PLANAR_COLS && 3 * lk__size_round_up(cols, 2) * lk__size_divide_up(nx, V) <= 2 * nx;
}

/* Copies a box to buffer, which has room for LK_PLANAR_SLACK floats behind it: (h, channels, w). The window's row is
 * that of all channels. */
#define lk__planar_box LK_KERNEL(planar_box)
lk_box_window lk__planar_box(const float *image, lk_shape shape, lk_box box, float *buffer);

/* Sets where the terms of a sum are, in floats after its first one, for lk__planar_gemm. Windows are those of gemm with
 * `channels` channels; its rows are in a box of `width` columns. */
#define lk__planar_offsets LK_KERNEL(planar_offsets)
void lk__planar_offsets(const lk_gemm *gemm, size_t channels, size_t width, uint32_t *offsets);

/* As lk__gemm, but term t of row (y, x) of A is at a + y*a_y + x + offsets[t]. */
#define lk__planar_gemm LK_KERNEL(planar_gemm)
void lk__planar_gemm(const lk_gemm *gemm, const uint32_t *offsets);

#endif
