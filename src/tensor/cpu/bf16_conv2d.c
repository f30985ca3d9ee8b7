/* bf16_conv2d.c - the convolution's passes as products in bf16; conv2d_grad_input.c explains the phases of the input
 * gradient. */
#include "tensor/cpu/bf16_layer.h"
#include "tensor/cpu/decls.h"

/* The windows of dy for pixels at, at + stride, ... of x along one axis, which has `size` pixels. */
static lk_bf16_axis phase_axis(const lk_window *window, size_t size, size_t at)
{
    lk_taps taps = lk__taps_at(window, at);
    return (lk_bf16_axis){
        .count = (size - at + window->stride - 1) / window->stride,
        .first = (ptrdiff_t)((at + window->pad) / window->stride) - (ptrdiff_t)taps.back,
        .step = 1,
        .taps = taps.count,
        .gap = taps.gap,
    };
}

size_t lk__bf16_conv_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads)
{
    size_t groups = conv->groups, in = x.c / groups, out = y.c / groups;
    lk_bf16_windows forward = lk__bf16_windows_conv(conv, x, y), back = lk__bf16_windows_conv(conv, y, x);
    forward.channels = in;
    back.channels = out; /* all taps, and all pixels of x: no phase has more */
    return lk__size_max(lk__bf16_layer_floats(&forward, out, groups, threads),
                        lk__bf16_layer_floats(&back, in, groups, threads));
}

size_t lk__bf16_conv_weight_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, const lk_division *division)
{
    lk_bf16_windows windows = lk__bf16_windows_conv(conv, x, y);
    windows.channels = x.c / conv->groups;
    return lk__bf16_gradient_floats(&windows, y.c / conv->groups, conv->groups, division);
}

void lk__bf16_conv_forward(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const void *w, const void *b,
                           bool relu, lk_tensor *y, void *scratch)
{
    size_t groups = conv->groups, in = x->shape.c / groups, out = y->shape.c / groups;
    size_t taps = lk__conv2d_desc_taps(conv);
    lk_bf16_layer layer = {
        .groups = groups,
        .windows = lk__bf16_windows_conv(conv, x->shape, y->shape),
        .input = lk__tensor_f32(x),
        .weights = {w, (ptrdiff_t)conv->w.kernel, 1, taps, in * taps, out * in * taps},
        .cols = out,
        .bias = b,
        .relu = relu,
        .output = lk__tensor_f32(y),
        .out_n = lk__shape_sample(y->shape),
        .out_y = y->shape.w * y->shape.c,
        .out_x = y->shape.c,
    };
    layer.windows.channels = in;
    lk__bf16_layer_run(dev, &layer, false, scratch);
}

void lk__bf16_conv_grad_input(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *dy, const void *w,
                              const lk_tensor *mask, lk_tensor *dx, void *scratch)
{
    const lk_window *height = &conv->h, *width = &conv->w;
    lk_shape x = dx->shape;
    size_t groups = conv->groups, in = x.c / groups, out = dy->shape.c / groups;
    size_t taps = lk__conv2d_desc_taps(conv), kernel = width->kernel;
    lk_bf16_layer layer = {
        .groups = groups,
        .windows = {.shape = dy->shape, .channels = out},
        .input = lk__tensor_f32(dy),
        .weights = {.channel = in * taps, .column = taps, .group = out * in * taps},
        .cols = in,
        .out_n = lk__shape_sample(x),
        .out_y = height->stride * x.w * x.c,
        .out_x = width->stride * x.c,
    };
    bool rounded = false;
    for (size_t at_y = 0; at_y < lk__size_min(height->stride, x.h); at_y++) {
        for (size_t at_x = 0; at_x < lk__size_min(width->stride, x.w); at_x++, rounded = true) {
            lk_taps taps_y = lk__taps_at(height, at_y), taps_x = lk__taps_at(width, at_x);
            size_t first = (at_y * x.w + at_x) * x.c;
            /* Windows rise as taps fall. */
            size_t last = taps_y.count && taps_x.count ? (taps_y.first + (taps_y.count - 1) * taps_y.period) * kernel +
                                                             taps_x.first + (taps_x.count - 1) * taps_x.period
                                                       : 0;
            layer.windows.y = phase_axis(height, x.h, at_y);
            layer.windows.x = phase_axis(width, x.w, at_x);
            layer.weights.data = (const float *)w + last;
            layer.weights.tap_y = -(ptrdiff_t)(taps_y.period * kernel);
            layer.weights.tap_x = -(ptrdiff_t)taps_x.period;
            layer.output = lk__tensor_f32(dx) + first;
            layer.mask = mask ? lk__tensor_f32(mask) + first : NULL;
            lk__bf16_layer_run(dev, &layer, rounded, scratch);
        }
    }
}

void lk__bf16_conv_grad_weight(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const lk_tensor *dy,
                               const lk_division *division, void *scratch)
{
    lk_bf16_gradient gradient = {
        .groups = conv->groups,
        .windows = lk__bf16_windows_conv(conv, x->shape, dy->shape),
        .input = lk__tensor_f32(x),
        .dy = lk__tensor_f32(dy),
        .cols = dy->shape.c / conv->groups,
        .division = division,
    };
    gradient.windows.channels = x->shape.c / conv->groups;
    lk__bf16_gradient_run(dev, &gradient, scratch);
}
