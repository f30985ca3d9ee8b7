/* mul.c - the product of two tensors, element by element, for gates. */
#include "nn/op.h"

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    return lk__op_infer_equal(graph, layer, "multiplies");
}

static void forward(const lk_op_call *call)
{
    lk_tensor y = call->y;
    call->k->mul(call->dev, &call->x[0], &call->x[1], &y);
}

static void backward(const lk_op_call *call)
{
    for (int i = 0; i < 2; i++) {
        lk_tensor dx = call->dx[i];
        if (dx.data)
            call->k->mul(call->dev, &call->dy, &call->x[1 - i], &dx);
    }
}

static const lk_op mul_op = {
    .name = "mul",
    .flags = LK_OP_READS_X,
    .infer = infer,
    .forward = forward,
    .backward = backward,
};

lk_node lk_mul(lk_graph *graph, lk_node a, lk_node b)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = &mul_op}, NULL, (lk_node[]){a, b}, 2);
}
