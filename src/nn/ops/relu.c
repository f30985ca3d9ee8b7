/* relu.c - max(x, 0), and min(max(x, 0), 6).
 *
 * The forward pass of a ReLU is computed by the layer before it, if that layer can. ReLU6 is never fused with
 * other layers. */
#include "nn/op.h"

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    layer->shape = lk__op_input_shape(graph, layer, 0);
    layer->in_place = true;
    return LK_OK;
}

static void forward(const lk_op_call *call)
{
    lk_tensor y = call->y;
    call->k->relu_forward(call->dev, &call->x[0], &y);
}

static void backward(const lk_op_call *call)
{
    lk_tensor dx = call->dx[0];
    if (dx.data)
        call->k->relu_grad_input(call->dev, &call->y, &call->dy, &dx);
}

static void forward6(const lk_op_call *call)
{
    lk_tensor y = call->y;
    call->k->relu6_forward(call->dev, &call->x[0], &y);
}

static void backward6(const lk_op_call *call)
{
    lk_tensor dx = call->dx[0];
    if (dx.data)
        call->k->relu6_grad_input(call->dev, &call->y, &call->dy, &dx);
}

static const lk_op relu_op = {
    .name = "relu",
    .flags = LK_OP_READS_Y | LK_OP_IS_RELU,
    .infer = infer,
    .forward = forward,
    .backward = backward,
};

static const lk_op relu6_op = {
    .name = "relu6",
    .flags = LK_OP_READS_Y,
    .infer = infer,
    .forward = forward6,
    .backward = backward6,
};

lk_node lk_relu(lk_graph *graph, lk_node x)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = &relu_op}, NULL, &x, 1);
}

lk_node lk_relu6(lk_graph *graph, lk_node x)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = &relu6_op}, NULL, &x, 1);
}
