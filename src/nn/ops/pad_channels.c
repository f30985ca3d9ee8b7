/* pad_channels.c - appends channels of zeros to x, for shortcuts around layers that widen. The gradient of the
 * appended channels is dropped. */
#include "nn/op.h"

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__op_input_shape(graph, layer, 0);
    if (layer->attr.out < x.c)
        return lk__fail(LK_STATUS_USAGE, "layer %d: %zu channels cannot be padded to %zu; ask for at least %zu",
                        layer->index, x.c, layer->attr.out, x.c);
    layer->shape = x;
    layer->shape.c = layer->attr.out;
    return LK_OK;
}

static void forward(const lk_op_call *call)
{
    lk_tensor y = call->y;
    call->k->fit_channels(call->dev, &call->x[0], &y);
}

static void backward(const lk_op_call *call)
{
    lk_tensor dx = call->dx[0];
    if (dx.data)
        call->k->fit_channels(call->dev, &call->dy, &dx);
}

const lk_op lk__op_pad_channels = {
    .name = "pad_channels",
    .infer = infer,
    .forward = forward,
    .backward = backward,
};

lk_node lk_pad_channels(lk_graph *graph, lk_node x, size_t channels)
{
    lk_layer layer = {.op = &lk__op_pad_channels};
    layer.attr.out = channels;
    return lk__graph_add_layer(graph, layer, NULL, &x, 1);
}
