/* conv_transpose2d.c - transposed convolution: the gradient of a convolution with respect to its input, as a layer of
 * its own. Its forward pass is that convolution's grad_input, its grad_input is that convolution's forward pass, and in
 * the gradient of the weights x and dy have exchanged their places.
 *
 * saved: leaves (shards, c) and stack (LK_TREE_MAX_DEPTH, c) of the bias' gradient */
#include "nn/op.h"
#include "nn/windows.h"

enum { MAX_SIDE = 1 << 16 };

static lk_status check_sizes(const lk_layer *layer, lk_shape x)
{
    const lk_conv2d_desc *conv = &layer->attr.conv;
    LK_TRY(lk__op_check_conv("transposed convolution", layer, x.c));
    if (x.h > MAX_SIDE || x.w > MAX_SIDE)
        return lk__fail(LK_STATUS_USAGE,
                        "transposed convolution '%s': the sides of its input, %zux%zu, can be at most %d", layer->name,
                        x.h, x.w, MAX_SIDE);
    if (layer->attr.out_pad[0] >= conv->h.stride || layer->attr.out_pad[1] >= conv->w.stride)
        return lk__fail(LK_STATUS_USAGE,
                        "transposed convolution '%s': output padding %zux%zu (height x width) must be below its stride "
                        "%zux%zu, along each axis",
                        layer->name, layer->attr.out_pad[0], layer->attr.out_pad[1], conv->h.stride, conv->w.stride);
    return LK_OK;
}

/* The side of the output along one axis; 0 if the padding leaves nothing. */
static size_t side_of(const lk_window *window, size_t out_pad, size_t x)
{
    size_t whole = (x - 1) * window->stride + lk__window_extent(window) + out_pad;
    return whole > 2 * window->pad ? whole - 2 * window->pad : 0;
}

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__op_input_shape(graph, layer, 0);
    const lk_conv2d_desc *conv = &layer->attr.conv;
    LK_TRY(check_sizes(layer, x));
    layer->shape = (lk_shape){.n = 1,
                              .c = layer->attr.out,
                              .h = side_of(&conv->h, layer->attr.out_pad[0], x.h),
                              .w = side_of(&conv->w, layer->attr.out_pad[1], x.w)};
    if (!layer->shape.h || !layer->shape.w)
        return lk__fail(LK_STATUS_USAGE,
                        "transposed convolution '%s': padding %zux%zu (height x width) leaves nothing of its output",
                        layer->name, conv->h.pad, conv->w.pad);
    size_t out = layer->attr.out / conv->groups, taps = lk__conv2d_desc_taps(conv);
    layer->params[0] = (lk_op_slot){.suffix = "weight",
                                    .ndim = 4,
                                    .dims = {x.c, out, conv->h.kernel, conv->w.kernel},
                                    .fan_in = out * taps,
                                    .weight = {.out = x.c, .in = out, .taps = taps, .groups = conv->groups}};
    layer->params[1] = (lk_op_slot){.suffix = "bias", .ndim = 1, .dims = {layer->attr.out}, .fan_in = out * taps};
    layer->param_count = layer->attr.no_bias ? 1 : 2;
    return LK_OK;
}

static size_t saved(lk_device *dev, const lk_layer *layer, size_t n, int shards)
{
    (void)dev;
    (void)n;
    return layer->attr.no_bias ? 0 : ((size_t)shards + LK_TREE_MAX_DEPTH) * layer->shape.c;
}

static size_t scratch(lk_device *dev, const lk_layer *layer, lk_shape x, lk_shape y)
{
    return dev->kernels->conv2d_scratch(dev, &layer->attr.conv, y, x);
}

static void forward(const lk_op_call *call)
{
    lk_tensor y = call->y;
    call->k->conv2d_grad_input(call->dev, &call->layer->attr.conv, &call->x[0], call->value[0], NULL, &y,
                               call->scratch);
    if (!call->layer->attr.no_bias)
        call->k->bias_add(call->dev, call->param[1], &y);
}

static void grad_input(const lk_op_call *call)
{
    lk_tensor dx = call->dx[0];
    call->k->conv2d_forward(call->dev, &call->layer->attr.conv, &call->dy, call->value[0], NULL, false, &dx,
                            call->scratch);
}

static void backward(const lk_op_call *call)
{
    size_t c = call->layer->shape.c;
    float *leaves = call->saved;
    if (call->grad[0].slot0)
        call->k->conv2d_grad_weight(call->dev, &call->layer->attr.conv, &call->dy, &call->x[0], &call->wave->leaves,
                                    call->grad[0], (lk_partials){0}, call->scratch);
    if (call->grad[1].slot0) {
        call->k->bias_sums(call->dev, &call->dy, &call->wave->leaves, leaves);
        lk__op_fold_leaves(call, c, leaves, c, leaves + c * (size_t)call->shards, call->grad[1]);
    }
    if (call->dx[0].data)
        grad_input(call);
}

static double macs(const lk_layer *layer, lk_shape x)
{
    const lk_conv2d_desc *conv = &layer->attr.conv;
    return (double)lk__shape_sample(x) * (double)(layer->attr.out / conv->groups * lk__conv2d_desc_taps(conv));
}

static const lk_op conv_transpose2d_op = {
    .name = "conv_transpose2d",
    .flags = LK_OP_READS_X | LK_OP_HAS_WEIGHTS | LK_OP_SKIPS_GRADS,
    .infer = infer,
    .saved = saved,
    .scratch = scratch,
    .forward = forward,
    .backward = backward,
    .macs = macs,
};

lk_node lk_conv_transpose2d(lk_graph *graph, lk_node x, const char *name, lk_conv_transpose2d_opts opts)
{
    lk_layer layer = {.op = &conv_transpose2d_op};
    layer.attr.out = opts.out;
    layer.attr.no_bias = opts.no_bias;
    layer.attr.out_pad[0] = lk__op_pad_of(opts.out_pad, 0);
    layer.attr.out_pad[1] = lk__op_pad_of(opts.out_pad, opts.out_pad_w);
    layer.attr.conv.groups = opts.groups ? opts.groups : 1;
    lk_op_windows windows = LK_OP_WINDOWS(opts, 1);
    lk__op_set_windows(&windows, &layer.attr.conv.h, &layer.attr.conv.w);
    lk__graph_check_clear(graph, LK_CLEAR(&opts, "lk_conv_transpose2d_opts"));
    return lk__graph_add_layer(graph, layer, name, &x, 1);
}
