/* windows.h - the windows of convolutions and pools, along both axes: made of a builder's options, and checked. */
#ifndef LK_NN_WINDOWS_H
#define LK_NN_WINDOWS_H

#include "nn/graph.h"

/* The options of the builders, which have the same names. */
typedef struct lk_op_windows {
    size_t kernel, stride, pad, dilation; /* 0: stride as kernel, dilation 1 */
    size_t kernel_w, stride_w, pad_w,
        dilation_w; /* 0: as the options without _w; stride_w as kernel_w without a stride */
} lk_op_windows;

/* The windows of the options `from` of a builder; a stride of 0 is `otherwise`. */
#define LK_OP_WINDOWS(from, otherwise)                                                                                \
    {                                                                                                                 \
        .kernel = (from).kernel, .stride = (from).stride ? (from).stride : (size_t)(otherwise), .pad = (from).pad,    \
        .dilation = (from).dilation, .kernel_w = (from).kernel_w, .stride_w = (from).stride_w, .pad_w = (from).pad_w, \
        .dilation_w = (from).dilation_w,                                                                              \
    }

void lk__op_set_windows(const lk_op_windows *opts, lk_window *h, lk_window *w);

/* The padding of the width: pad_w, or `pad` if that is 0; LK_ZERO_PAD is 0. */
size_t lk__op_pad_of(size_t pad, size_t pad_w);

/* Whether kernels can count with these sizes: at most 2^16 pixels. */
bool lk__op_window_fits(const lk_window *window);

/* Whole windows along an input of x pixels; 0 if not even one fits. */
size_t lk__op_count_windows(const lk_window *window, size_t x);

/* Checks the description of a convolution and its output channels; its input has `in` channels. `kind` begins the
 * sentence of a mistake: "convolution". */
lk_status lk__op_check_conv(const char *kind, const lk_layer *layer, size_t in) LK_CHECKED;

#endif
