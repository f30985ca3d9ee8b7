/* conv2d.h - shared by the sources of the convolution: boxes, which are parts of an image and may extend beyond
 * it, and bands of rows, on which tasks work.
 *
 * Groups of channels are convolved one after the other like separate convolutions; only the output strides
 * differ. If every group has one input and one output channel, the depthwise kernels process all channels
 * together. */
#ifndef LK_TENSOR_CPU_CONV2D_H
#define LK_TENSOR_CPU_CONV2D_H

#include "base/mem.h"
#include "tensor/cpu/sums.h"
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
    return (lk_box){.y = (ptrdiff_t)(y0 * conv->h.stride) - (ptrdiff_t)conv->h.pad,
                    .x = -(ptrdiff_t)conv->w.pad,
                    .h = (y1 - y0 - 1) * conv->h.stride + lk__window_extent(&conv->h),
                    .w = (y.w - 1) * conv->w.stride + lk__window_extent(&conv->w)};
}

/* A box with the channels of one group only; every group has `channels` channels. */
static inline lk_box lk__box_group(lk_box box, size_t group, size_t channels)
{
    box.first = group * channels;
    box.channels = channels;
    return box;
}

/* What a block of a weight gradient's sums reads has about this number of floats at most, so that it stays in cache. */
enum { LK_CONV_BLOCK_FLOATS = 64 * 1024 };

/* The blocks of a weight gradient's sums if a group has `in` and `out` channels. */
static inline lk_sum_rows lk__conv_sum_rows(const lk_conv2d_desc *conv, lk_shape y, size_t in, size_t out)
{
    size_t row = lk__conv_box(conv, y, 0, 1).w * in * conv->h.stride + y.w * out;
    return lk__sum_rows(y.h, y.w, LK_CONV_BLOCK_FLOATS / row);
}

/* Whether it is a 1x1 convolution with stride 1 and without padding, which treats all pixels alike. */
static inline bool lk__conv_pointwise(const lk_conv2d_desc *conv)
{
    const lk_window *h = &conv->h, *w = &conv->w;
    return h->kernel * w->kernel == 1 && h->stride * w->stride == 1 && h->pad + w->pad == 0;
}

/* The pixels of all samples as one column of one image, if the convolution is pointwise. Other images are returned as
 * they are. */
static inline lk_shape lk__conv_column(const lk_conv2d_desc *conv, lk_shape image)
{
    return lk__conv_pointwise(conv) ? (lk_shape){.n = 1, .c = image.c, .h = image.n * image.h * image.w, .w = 1}
                                    : image;
}

/* Whether boxes of lk__conv_box can extend beyond the image. */
static inline bool lk__conv_pads(const lk_conv2d_desc *conv)
{
    return conv->h.pad > 0 || conv->w.pad > 0;
}

/* The taps along one axis that read an input pixel (conv2d_grad_input.c). With window o and tap k, the pixel's padded
 * coordinate is o * stride + k * dilation. So the taps of a pixel are `period` taps apart, and their windows `gap`
 * windows. Pixels whose padded coordinates are equal modulo the stride form a phase: they have the same taps. */
typedef struct lk_taps {
    size_t first, count; /* the lowest tap, and the number of taps; count 0: no window reads these pixels */
    size_t period, gap;
    size_t before; /* taps of all phases whose first tap is lower */
    size_t back;   /* the lowest window is that number before window (padded coordinate) / stride, rounded down */
} lk_taps;

/* The phase of tap k, which is below the kernel size. */
static inline lk_taps lk__taps_with(const lk_window *window, size_t k)
{
    size_t divisor = lk__size_gcd(window->stride, window->dilation), period = window->stride / divisor;
    lk_taps taps = {.first = k % period, .period = period, .gap = window->dilation / divisor};
    taps.count = (window->kernel - taps.first + period - 1) / period;
    taps.before = taps.first * (window->kernel / period) + lk__size_min(taps.first, window->kernel % period);
    taps.back = (taps.first + (taps.count - 1) * period) * window->dilation / window->stride;
    return taps;
}

/* The phase of an input coordinate. */
static inline lk_taps lk__taps_at(const lk_window *window, size_t at)
{
    size_t most = lk__size_min(window->kernel, window->stride), r = (at + window->pad) % window->stride;
    for (size_t k = 0; k < most; k++) {
        if (k * window->dilation % window->stride == r)
            return lk__taps_with(window, k);
    }
    return (lk_taps){.gap = 1};
}

/* Taps of all phases before a phase of both axes. */
static inline size_t lk__taps_before(const lk_conv2d_desc *conv, lk_taps y, lk_taps x)
{
    return y.before * conv->w.kernel + y.count * x.before;
}

/* The place of a tap among those of its phase, in falling order along one axis: rising order of windows. */
static inline size_t lk__taps_place(lk_taps taps, size_t k)
{
    return taps.count - 1 - k / taps.period;
}

/* Scratch floats of each operation. */
#define lk__conv_forward_floats LK_KERNEL(conv_forward_floats)
size_t lk__conv_forward_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads);
#define lk__conv_input_floats LK_KERNEL(conv_input_floats)
size_t lk__conv_input_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads);
#define lk__conv_weight_floats LK_KERNEL(conv_weight_floats)
size_t lk__conv_weight_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads, bool bf16);

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
