/* conv2d.c - 2-D convolution, optionally in groups of channels; and a linear layer for each vector
 * of a sequence, which is a convolution with a kernel of one pixel. */
#include "nn/op.h"
#include "nn/windows.h"

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__op_input_shape(graph, layer, 0);
    const lk_conv2d_desc *conv = &layer->attr.conv;
    size_t out = layer->attr.out;
    LK_TRY(lk__op_check_conv("convolution", layer, x.c));
    layer->shape = (lk_shape){
        .n = 1, .c = out, .h = lk__op_count_windows(&conv->h, x.h), .w = lk__op_count_windows(&conv->w, x.w)};
    if (!layer->shape.h || !layer->shape.w)
        return lk__fail(LK_STATUS_USAGE,
                        "convolution '%s': kernel %zux%zu (height x width), which spans %zux%zu pixels, is larger than "
                        "its padded input %zux%zu",
                        layer->name, conv->h.kernel, conv->w.kernel, lk__window_extent(&conv->h),
                        lk__window_extent(&conv->w), x.h + 2 * conv->h.pad, x.w + 2 * conv->w.pad);
    size_t in = x.c / conv->groups, taps = lk__conv2d_desc_taps(conv);
    layer->params[0] = (lk_op_slot){.suffix = "weight",
                                    .ndim = 4,
                                    .dims = {out, in, conv->h.kernel, conv->w.kernel},
                                    .fan_in = in * taps,
                                    .weight = {.out = out, .in = in, .taps = taps, .groups = conv->groups}};
    layer->params[1] = (lk_op_slot){.suffix = "bias", .ndim = 1, .dims = {out}, .fan_in = in * taps};
    layer->param_count = layer->attr.no_bias ? 1 : 2;
    return LK_OK;
}

static size_t scratch(lk_device *dev, const lk_layer *layer, lk_shape x, lk_shape y)
{
    return dev->kernels->conv2d_scratch(dev, &layer->attr.conv, x, y);
}

static void forward(const lk_op_call *call)
{
    lk_tensor y = call->y;
    call->k->conv2d_forward(call->dev, &call->layer->attr.conv, &call->x[0], call->value[0], call->value[1], call->relu,
                            &y, call->scratch);
}

static void grad_input(const lk_op_call *call)
{
    lk_tensor dx = call->dx[0];
    call->k->conv2d_grad_input(call->dev, &call->layer->attr.conv, &call->dy, call->value[0],
                               call->mask ? &call->x[0] : NULL, &dx, call->scratch);
}

static void backward(const lk_op_call *call)
{
    const lk_conv2d_desc *conv = &call->layer->attr.conv;
    if (call->grad[0].slot0)
        call->k->conv2d_grad_weight(call->dev, conv, &call->x[0], &call->dy, &call->wave->leaves, call->grad[0],
                                    call->grad[1], call->scratch);
    if (call->dx[0].data)
        grad_input(call);
}

static double macs(const lk_layer *layer, lk_shape x)
{
    const lk_conv2d_desc *conv = &layer->attr.conv;
    return (double)lk__shape_sample(layer->shape) * (double)(x.c / conv->groups * lk__conv2d_desc_taps(conv));
}

const lk_op lk__op_conv2d = {
    .name = "conv2d",
    .flags = LK_OP_READS_X | LK_OP_FUSES_RELU | LK_OP_MASKS_DX | LK_OP_HAS_WEIGHTS | LK_OP_SKIPS_GRADS,
    .infer = infer,
    .scratch = scratch,
    .forward = forward,
    .backward = backward,
    .macs = macs,
};

/* The parameters have the keys and shapes of a linear layer. */
static lk_status infer_sequence(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__op_input_shape(graph, layer, 0);
    size_t out = layer->attr.out;
    if (!out)
        return lk__fail(LK_STATUS_USAGE, "linear layer '%s' needs at least one output", layer->name);
    layer->attr.conv = (lk_conv2d_desc){LK_WINDOW_SQUARE(1, 1, 0), .groups = 1};
    layer->shape = (lk_shape){.n = 1, .c = out, .h = x.h, .w = x.w};
    layer->params[0] = (lk_op_slot){.suffix = "weight",
                                    .ndim = 2,
                                    .dims = {out, x.c},
                                    .fan_in = x.c,
                                    .weight = {.out = out, .in = x.c, .taps = 1, .groups = 1}};
    layer->params[1] = (lk_op_slot){.suffix = "bias", .ndim = 1, .dims = {out}, .fan_in = x.c};
    layer->param_count = 2;
    return LK_OK;
}

const lk_op lk__op_linear_sequence = {
    .name = "linear",
    .flags = LK_OP_READS_X | LK_OP_FUSES_RELU | LK_OP_MASKS_DX | LK_OP_HAS_WEIGHTS | LK_OP_SKIPS_GRADS,
    .infer = infer_sequence,
    .scratch = scratch,
    .forward = forward,
    .backward = backward,
    .macs = macs,
};

lk_node lk_conv2d(lk_graph *graph, lk_node x, const char *name, lk_conv2d_opts opts)
{
    lk_layer layer = {.op = &lk__op_conv2d};
    layer.attr.out = opts.out;
    layer.attr.no_bias = opts.no_bias;
    layer.attr.conv.groups = opts.groups ? opts.groups : 1;
    lk_op_windows windows = LK_OP_WINDOWS(opts, 1);
    lk__op_set_windows(&windows, &layer.attr.conv.h, &layer.attr.conv.w);
    lk__graph_check_clear(graph, LK_CLEAR(&opts, "lk_conv2d_opts"));
    return lk__graph_add_layer(graph, layer, name, &x, 1);
}
