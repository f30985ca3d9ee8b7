/* conv2d_depthwise_3x3.h - depthwise convolutions of 3x3 windows with padding 1 and stride 1 or 2, and the input
 * gradients of those with stride 1.
 *
 * One vector of channels passes through the rows of a band before the next one, so that its nine taps stay in
 * registers. The order of each sum is that of conv2d_depthwise.c: taps inside the image, row by row. */
#ifndef LK_TENSOR_CPU_CONV2D_DEPTHWISE_3X3_H
#define LK_TENSOR_CPU_CONV2D_DEPTHWISE_3X3_H

#include "base/pool.h"
#include "tensor/cpu/conv2d.h"

typedef struct lk_depthwise_pass {
    lk_shape src, dst;
    size_t stride;
    const float *input; // (n, h, w, c) of src
    const float *taps;  // (3, 3, lanes)
    size_t lanes;       /* c rounded up to V */
    const float *start; // (lanes) the first term of each sum
    const float *mask;  // (n, h, w, c) of dst, or NULL: the result is 0 where mask <= 0
    float *output;      // (n, h, w, c) of dst
    bool relu;
} lk_depthwise_pass;

/* Whether such a pass computes the forward pass of a convolution; with stride 1 also the gradient of the input, from dy
 * with the taps in reverse. */
static inline bool lk__depthwise_pass_fits(const lk_conv2d_desc *conv, lk_shape x)
{
    const lk_window *h = &conv->h, *w = &conv->w;
    return h->kernel == 3 && w->kernel == 3 && h->pad == 1 && w->pad == 1 && h->dilation == 1 && w->dilation == 1 &&
           h->stride == w->stride && h->stride <= 2 && x.h > 1 && x.w > 1;
}

#define lk__depthwise_pass_run LK_KERNEL(depthwise_pass_run)
void lk__depthwise_pass_run(lk_pool *pool, const lk_depthwise_pass *pass);

#endif
