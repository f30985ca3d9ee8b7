/* conv2d.h - shared by the sources of the convolution: boxes, which are parts of an image and may extend beyond
 * it, and bands of rows, on which tasks work.
 *
 * Groups of channels are convolved one after the other like separate convolutions; only the output strides
 * differ. If every group has one input and one output channel, the depthwise kernels process all channels
 * together. */
#ifndef LK_TENSOR_CPU_CONV2D_H
#define LK_TENSOR_CPU_CONV2D_H

#include "base/mem.h"
#include "tensor/cpu/vec.h"
#include "tensor/kernels.h"

/* A part of an image, in the image's coordinates. Positions outside the image are zeros. Its channels are
 * [first, first + channels), which all exist. */
typedef struct lk_box {
    ptrdiff_t y, x;
    size_t h, w;
    size_t first, channels;
} lk_box;

typedef struct lk_box_window {
    const float *data; // (h, w, channels)
    size_t row;        /* floats from row to row */
} lk_box_window;

#define lk__box_inside LK_KERNEL(box_inside)
bool lk__box_inside(lk_shape image, lk_box box);

/* A view of the box if the box lies inside the image, has all its channels, and `lanes` divides their number.
 * Otherwise a copy in buffer: channels are rounded up to a multiple of lanes, and everything outside the image
 * is zero. */
#define lk__box_view LK_KERNEL(box_view)
lk_box_window lk__box_view(const float *image, lk_shape shape, lk_box box, size_t lanes, float *buffer);

/* Rows of a band if `rows` rows are divided evenly into at least `wanted` bands that each fit into `budget`
 * floats. At least 1. */
static inline size_t lk__box_band_rows(size_t rows, size_t row_floats, size_t budget, size_t wanted)
{
    size_t fit = lk__size_max(budget / row_floats, 1);
    size_t bands = lk__size_min(lk__size_max((rows + fit - 1) / fit, wanted), rows);
    return (rows + bands - 1) / bands;
}

/* The box of x that output rows [y0, y1) read: all columns; channels are not set. */
static inline lk_box lk__conv_box(const lk_conv2d_desc *conv, lk_shape y, size_t y0, size_t y1)
{
    ptrdiff_t pad = (ptrdiff_t)conv->pad;
    return (lk_box){.y = (ptrdiff_t)(y0 * conv->stride) - pad,
                    .x = -pad,
                    .h = (y1 - y0 - 1) * conv->stride + conv->kernel,
                    .w = (y.w - 1) * conv->stride + conv->kernel};
}

/* A box with the channels of one group only; every group has `channels` channels. */
static inline lk_box lk__box_group(lk_box box, size_t group, size_t channels)
{
    box.first = group * channels;
    box.channels = channels;
    return box;
}

/* Taps of the kernel, in one dimension, that read an input pixel whose padded coordinate is r modulo the
 * stride. */
static inline size_t lk__taps_of(const lk_conv2d_desc *conv, size_t r)
{
    return r < conv->kernel ? (conv->kernel - r + conv->stride - 1) / conv->stride : 0;
}

/* Taps of all phases (conv2d_grad_input.c) before phase (ry, rx). */
static inline size_t lk__taps_before(const lk_conv2d_desc *conv, size_t ry, size_t rx)
{
    size_t taps = 0;
    for (size_t r = 0; r < ry; r++)
        taps += lk__taps_of(conv, r) * conv->kernel;
    for (size_t r = 0; r < rx; r++)
        taps += lk__taps_of(conv, ry) * lk__taps_of(conv, r);
    return taps;
}

/* Scratch floats of each operation. */
#define lk__conv_forward_floats LK_KERNEL(conv_forward_floats)
size_t lk__conv_forward_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads);
#define lk__conv_input_floats LK_KERNEL(conv_input_floats)
size_t lk__conv_input_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads);
#define lk__conv_weight_floats LK_KERNEL(conv_weight_floats)
size_t lk__conv_weight_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads);

/* Whether every group has one input and one output channel, so that the depthwise kernels apply. */
static inline bool lk__depthwise_fits(const lk_conv2d_desc *conv, lk_shape x, lk_shape y)
{
    return conv->groups > 1 && x.c == conv->groups && y.c == conv->groups;
}

#define lk__depthwise_floats LK_KERNEL(depthwise_floats)
size_t lk__depthwise_floats(const lk_conv2d_desc *conv, lk_shape x);
#define lk__depthwise_forward LK_KERNEL(depthwise_forward)
__typeof__(*((const lk_kernels *)0)->conv2d_forward) lk__depthwise_forward;
#define lk__depthwise_grad_input LK_KERNEL(depthwise_grad_input)
__typeof__(*((const lk_kernels *)0)->conv2d_grad_input) lk__depthwise_grad_input;
#define lk__depthwise_weight_floats LK_KERNEL(depthwise_weight_floats)
size_t lk__depthwise_weight_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads);
#define lk__depthwise_grad_weight LK_KERNEL(depthwise_grad_weight)
__typeof__(*((const lk_kernels *)0)->conv2d_grad_weight) lk__depthwise_grad_weight;

#endif
