/* add.c - the sum of two tensors, for residual connections. */
#include "nn/op.h"

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    return lk__op_infer_equal(graph, layer, "adds");
}

static void forward(const lk_op_call *call)
{
    lk_tensor y = call->y;
    call->k->add(call->dev, &call->x[0], &call->x[1], call->relu, &y);
}

static void backward(const lk_op_call *call)
{
    for (int i = 0; i < 2; i++) {
        lk_tensor dx = call->dx[i];
        if (dx.data && dx.data != call->dy.data)
            call->k->copy(call->dev, &call->dy, &dx);
    }
}

const lk_op lk__op_add = {
    .name = "add",
    .flags = LK_OP_FUSES_RELU | LK_OP_PASSES_GRAD,
    .infer = infer,
    .forward = forward,
    .backward = backward,
};

lk_node lk_add(lk_graph *graph, lk_node a, lk_node b)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = &lk__op_add}, NULL, (lk_node[]){a, b}, 2);
}
