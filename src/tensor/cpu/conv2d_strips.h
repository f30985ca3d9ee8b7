/* conv2d_strips.h - strips of an image, in which the whole window of a pixel is one run of floats.
 *
 * The strip of an output row has for each column of the padded image the kh pixels that the row's windows read of it,
 * one below the other, and then a 1, whose products with dy are the terms of the bias. The window of an output pixel is
 * kw neighbouring columns. So few input channels fill vectors, and neighbouring windows share their floats. */
#ifndef LK_TENSOR_CPU_CONV2D_STRIPS_H
#define LK_TENSOR_CPU_CONV2D_STRIPS_H

#include "tensor/cpu/conv2d.h"

/* Floats of a column if a group has `in` channels. */
static inline size_t lk__strip_column(const lk_conv2d_desc *conv, size_t in)
{
    return conv->h.kernel * in + 1;
}

/* Whether windows are runs of a strip. */
static inline bool lk__strip_fits(const lk_conv2d_desc *conv)
{
    return conv->h.dilation == 1 && conv->w.dilation == 1;
}

/* Copies the strips of output rows [y0, y1) to buffer, and `slack` zeros behind them. box: lk__conv_box of the rows,
 * with the channels to copy. */
#define lk__strip_copy LK_KERNEL(strip_copy)
lk_box_window lk__strip_copy(const float *image, lk_shape shape, const lk_conv2d_desc *conv, lk_box box, size_t slack,
                             float *buffer);

#endif
