/* flatten.c - from (c, h, w) to a vector in PyTorch's element order. */
#include "nn/op.h"

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__op_input_shape(graph, layer, 0);
    layer->shape = (lk_shape){.n = 1, .c = lk__shape_sample(x), .h = 1, .w = 1};
    layer->in_place = x.h * x.w == 1; /* a vector already */
    return LK_OK;
}

static void forward(const lk_op_call *call)
{
    lk_tensor y = call->y;
    if (y.data != call->x[0].data)
        call->k->flatten_forward(call->dev, &call->x[0], &y);
}

static void backward(const lk_op_call *call)
{
    lk_tensor dx = call->dx[0];
    if (dx.data && dx.data != call->dy.data)
        call->k->flatten_grad_input(call->dev, &call->dy, &dx);
}

const lk_op lk__op_flatten = {
    .name = "flatten",
    .infer = infer,
    .forward = forward,
    .backward = backward,
};

lk_node lk_flatten(lk_graph *graph, lk_node x)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = &lk__op_flatten}, NULL, &x, 1);
}
