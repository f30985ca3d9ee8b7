/* relu.c - max(x, 0). Where its input's layer can do it, the plan leaves the
 * forward pass to that layer. */
#include "nn/op.h"

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    layer->shape = lk__input_shape(graph, layer, 0);
    layer->in_place = true;
    return LK_OK;
}

static void forward(const lk_call *call)
{
    lk_tensor y = call->y;
    call->k->relu_forward(call->dev, &call->x[0], &y);
}

static void backward(const lk_call *call)
{
    lk_tensor dx = call->dx[0];
    if (dx.data)
        call->k->relu_grad_input(call->dev, &call->y, &call->dy, &dx);
}

const lk_op lk__op_relu = {
    .name = "relu",
    .flags = LK_OP_READS_Y | LK_OP_IS_RELU,
    .infer = infer,
    .forward = forward,
    .backward = backward,
};
