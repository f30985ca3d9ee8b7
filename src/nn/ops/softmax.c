/* softmax.c - probabilities over the channels of each pixel. */
#include "nn/op.h"

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    layer->shape = lk__op_input_shape(graph, layer, 0);
    return LK_OK;
}

static void forward(const lk_op_call *call)
{
    lk_tensor y = call->y;
    call->k->softmax_forward(call->dev, &call->x[0], &y);
}

static void backward(const lk_op_call *call)
{
    lk_tensor dx = call->dx[0];
    if (dx.data)
        call->k->softmax_grad_input(call->dev, &call->y, &call->dy, &dx);
}

static const lk_op softmax_op = {
    .name = "softmax",
    .flags = LK_OP_READS_Y,
    .infer = infer,
    .forward = forward,
    .backward = backward,
};

lk_node lk_softmax(lk_graph *graph, lk_node x)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = &softmax_op}, NULL, &x, 1);
}
