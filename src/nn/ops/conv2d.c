/* conv2d.c - 2-D convolution with a square kernel. */
#include "nn/op.h"

enum { MAX_SIDE = 1 << 16 };

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__input_shape(graph, layer, 0);
    const lk_conv2d_desc *conv = &layer->attr.conv;
    size_t out = layer->attr.out;
    if (!out || !conv->kernel)
        return lk__fail(LK_STATUS_USAGE, "convolution '%s' needs output channels and a kernel size", layer->name);
    if (conv->kernel > MAX_SIDE || conv->stride > MAX_SIDE)
        return lk__fail(LK_STATUS_USAGE, "convolution '%s': kernel size and stride can be at most %d", layer->name,
                        MAX_SIDE);
    if (conv->pad >= conv->kernel)
        return lk__fail(LK_STATUS_USAGE, "convolution '%s': padding %zu must be below its kernel size %zu", layer->name,
                        conv->pad, conv->kernel);
    if (x.h + 2 * conv->pad < conv->kernel || x.w + 2 * conv->pad < conv->kernel)
        return lk__fail(LK_STATUS_USAGE, "convolution '%s': kernel %zu is larger than its padded input %zux%zu",
                        layer->name, conv->kernel, x.h + 2 * conv->pad, x.w + 2 * conv->pad);
    layer->shape = (lk_shape){.n = 1,
                              .c = out,
                              .h = (x.h + 2 * conv->pad - conv->kernel) / conv->stride + 1,
                              .w = (x.w + 2 * conv->pad - conv->kernel) / conv->stride + 1};
    size_t fan_in = x.c * conv->kernel * conv->kernel;
    layer->params[0] = (lk_slot_def){"weight", 4, {out, x.c, conv->kernel, conv->kernel}, LK_FILL_FAN, fan_in};
    layer->params[1] = (lk_slot_def){"bias", 1, {out}, LK_FILL_FAN, fan_in};
    layer->param_count = layer->attr.no_bias ? 1 : 2;
    return LK_OK;
}

static size_t scratch(lk_device *dev, const lk_layer *layer, lk_shape x, lk_shape y)
{
    return dev->kernels->conv2d_scratch(dev, &layer->attr.conv, x, y);
}

static void forward(const lk_call *call)
{
    lk_tensor y = call->y;
    call->k->conv2d_forward(call->dev, &call->layer->attr.conv, &call->x[0], call->param[0], call->param[1], call->relu,
                            &y, call->scratch);
}

static void backward(const lk_call *call)
{
    const lk_conv2d_desc *conv = &call->layer->attr.conv;
    call->k->conv2d_grad_weight(call->dev, conv, &call->x[0], &call->dy, &call->wave->leaves, call->grad[0],
                                call->grad[1], call->scratch);
    if (call->dx[0].data) {
        lk_tensor dx = call->dx[0];
        call->k->conv2d_grad_input(call->dev, conv, &call->dy, call->param[0], call->mask ? &call->x[0] : NULL, &dx,
                                   call->scratch);
    }
}

const lk_op lk__op_conv2d = {
    .name = "conv2d",
    .flags = LK_OP_READS_X | LK_OP_FUSES_RELU | LK_OP_MASKS_DX,
    .infer = infer,
    .scratch = scratch,
    .forward = forward,
    .backward = backward,
};
