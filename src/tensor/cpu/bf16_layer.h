/* bf16_layer.h - convolutions and linear layers as products of bf16 matrices (bf16.h).
 *
 * Rows of the first matrix are windows of images that were rounded to bf16 before. A linear layer has images of one
 * pixel. Depthwise convolutions are not here: they stay in fp32. */
#ifndef LK_TENSOR_CPU_BF16_LAYER_H
#define LK_TENSOR_CPU_BF16_LAYER_H

#include "tensor/cpu/conv2d.h"
#include "tensor/cpu/division.h"
#include "tensor/cpu/vec.h"

/* Windows along one axis. Tap k of window o is at coordinate first + o * step + k * gap. */
typedef struct lk_bf16_axis {
    size_t count; /* windows */
    ptrdiff_t first;
    size_t step;
    size_t taps, gap;
} lk_bf16_axis;

/* Row (sample, y, x) of a matrix is the window (y, x) of an image: for each tap of y and each of x the channels [first,
 * first + channels). Outside of the image there are zeros. */
typedef struct lk_bf16_windows {
    const uint16_t *images; // shape, (n, h, w, c)
    lk_shape shape;
    size_t first, channels;
    lk_bf16_axis y, x;
} lk_bf16_windows;

static inline size_t lk__bf16_windows_rows(const lk_bf16_windows *windows)
{
    return windows->shape.n * windows->y.count * windows->x.count;
}

/* Elements of a row. */
static inline size_t lk__bf16_windows_depth(const lk_bf16_windows *windows)
{
    return windows->y.taps * windows->x.taps * windows->channels;
}

/* The windows that a convolution's outputs read; images and channels are not set. */
static inline lk_bf16_windows lk__bf16_windows_conv(const lk_conv2d_desc *conv, lk_shape x, lk_shape y)
{
    const lk_window *h = &conv->h, *w = &conv->w;
    return (lk_bf16_windows){.shape = x,
                             .y = {y.h, -(ptrdiff_t)h->pad, h->stride, h->kernel, h->dilation},
                             .x = {y.w, -(ptrdiff_t)w->pad, w->stride, w->kernel, w->dilation}};
}

/* Windows of images of one pixel: a row is a sample. */
static inline lk_bf16_windows lk__bf16_windows_linear(size_t n, size_t features)
{
    return (lk_bf16_windows){
        .shape = {n, features, 1, 1}, .channels = features, .y = {1, 0, 1, 1, 1}, .x = {1, 0, 1, 1, 1}};
}

/* The function that multiplies; NULL if the device computes in fp32. */
static inline lk_bf16_multiply *lk__bf16_of(lk_device *dev)
{
    return ((lk_cpu_device *)dev)->bf16;
}

/* x rounded as bf16.h says, in the lower 16 bits of each lane; a NaN becomes 0x7fc0. */
static inline v_u32 lk__bf16_bits(v_f32 x)
{
    v_u32 bits = v_bits(x), odd = vu_and(vu_shr16(bits), vu_set1(1));
    v_u32 near = vu_and(vu_add(vu_add(bits, vu_set1(0x7fff)), odd), vu_set1(0xffff0000u));
    v_f32 size = v_from_bits(vu_and(near, vu_set1(0x7fffffff)));
    v_f32 rounded = v_select(v_le(size, v_set1(LK_BF16_GONE)), v_zero(), v_from_bits(near));
    v_f32 result = v_select(v_le(x, x), rounded, v_from_bits(vu_set1(0x7fc00000)));
    return vu_shr16(v_bits(result));
}

/* Rounds an array. */
#define lk__bf16_round LK_KERNEL(bf16_round)
void lk__bf16_round(lk_device *dev, const float *from, size_t count, uint16_t *to);
/* Writes elements [begin, end) of rows [row, row + rows), which are to_row elements apart. */
#define lk__bf16_window_rows LK_KERNEL(bf16_window_rows)
void lk__bf16_window_rows(const lk_bf16_windows *windows, size_t row, size_t rows, size_t begin, size_t end,
                          uint16_t *to, size_t to_row);

/* The second matrix: weights, which are f32. The factor of channel k of tap (i, j) and of column col is
 * data[i * tap_y + j * tap_x + k * channel + col * column]. */
typedef struct lk_bf16_weights {
    const float *data;
    ptrdiff_t tap_y, tap_x;
    size_t channel, column;
    size_t group; /* floats from one group of channels to the next */
} lk_bf16_weights;

/* Outputs: for every group of channels, rows of windows times weights, plus the bias. */
typedef struct lk_bf16_layer {
    size_t groups;
    lk_bf16_windows windows; /* of the first group; the channels of the next one follow. Images are not set */
    const float *input;      // windows.shape
    lk_bf16_weights weights;
    size_t cols;       /* of a group */
    const float *bias; // (groups, cols) or NULL
    bool relu;
    const float *mask; /* NULL, or in the layout of output: the result is 0 where mask <= 0 */
    float *output;     /* row (sample, y, x) of a group is at sample * out_n + y * out_y + x * out_x + group * cols */
    size_t out_n, out_y, out_x;
} lk_bf16_layer;

/* Scratch floats for windows of this number and depth, if there are so many columns and groups. */
#define lk__bf16_layer_floats LK_KERNEL(bf16_layer_floats)
size_t lk__bf16_layer_floats(const lk_bf16_windows *windows, size_t cols, size_t groups, size_t threads);
/* rounded: scratch has the rounded input of an earlier call with the same input. */
#define lk__bf16_layer_run LK_KERNEL(bf16_layer_run)
void lk__bf16_layer_run(lk_device *dev, const lk_bf16_layer *layer, bool rounded, void *scratch);

/* The gradient of weights (groups, cols of dy, channels, taps), folded over shards. */
typedef struct lk_bf16_gradient {
    size_t groups;
    lk_bf16_windows windows; /* of the first group, as in lk_bf16_layer */
    const float *input;      // windows.shape
    const float *dy;         // (rows of windows, groups, cols)
    size_t cols;             /* of a group */
    const lk_division *division;
} lk_bf16_gradient;

#define lk__bf16_gradient_floats LK_KERNEL(bf16_gradient_floats)
size_t lk__bf16_gradient_floats(const lk_bf16_windows *windows, size_t cols, size_t groups,
                                const lk_division *division);
#define lk__bf16_gradient_run LK_KERNEL(bf16_gradient_run)
void lk__bf16_gradient_run(lk_device *dev, const lk_bf16_gradient *gradient, void *scratch);

/* The convolution: the slots of kernels.h, and scratch floats of forward pass and input gradient, and of dw. */
#define lk__bf16_conv_floats LK_KERNEL(bf16_conv_floats)
size_t lk__bf16_conv_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads);
#define lk__bf16_conv_weight_floats LK_KERNEL(bf16_conv_weight_floats)
size_t lk__bf16_conv_weight_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, const lk_division *division);
#define lk__bf16_conv_forward LK_KERNEL(bf16_conv_forward)
__typeof__(*((const lk_kernels *)0)->conv2d_forward) lk__bf16_conv_forward;
#define lk__bf16_conv_grad_input LK_KERNEL(bf16_conv_grad_input)
__typeof__(*((const lk_kernels *)0)->conv2d_grad_input) lk__bf16_conv_grad_input;
/* dw only. */
#define lk__bf16_conv_grad_weight LK_KERNEL(bf16_conv_grad_weight)
void lk__bf16_conv_grad_weight(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const lk_tensor *dy,
                               const lk_division *division, void *scratch);

#endif
