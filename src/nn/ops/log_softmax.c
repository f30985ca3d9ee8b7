/* log_softmax.c - log-probabilities over the channels. */
#include "nn/op.h"

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__op_input_shape(graph, layer, 0);
    if (x.h != 1 || x.w != 1)
        return lk__fail(LK_STATUS_USAGE, "layer %d: log_softmax works on vectors; put lk_flatten before it",
                        layer->index);
    layer->shape = x;
    return LK_OK;
}

static void forward(const lk_op_call *call)
{
    lk_tensor y = call->y;
    call->k->log_softmax_forward(call->dev, &call->x[0], &y);
}

static void backward(const lk_op_call *call)
{
    lk_tensor dx = call->dx[0];
    if (dx.data)
        call->k->log_softmax_grad_input(call->dev, &call->y, &call->dy, &dx);
}

const lk_op lk__op_log_softmax = {
    .name = "log_softmax",
    .flags = LK_OP_READS_Y,
    .infer = infer,
    .forward = forward,
    .backward = backward,
};

lk_node lk_log_softmax(lk_graph *graph, lk_node x)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = &lk__op_log_softmax}, NULL, &x, 1);
}
