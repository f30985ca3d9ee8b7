/* relu.c - ReLU, max(x, 0); ReLU6, min(max(x, 0), 6); and leaky ReLU, x or slope * x.
 *
 * Both passes of a ReLU or ReLU6 are computed by other layers, if those can (fuse.h). A leaky ReLU is never fused. */
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

static lk_status infer_leaky(const lk_graph *graph, lk_layer *layer)
{
    double slope = layer->attr.number;
    if (!(slope >= 0 && (float)slope < 1)) /* kernels use a float */
        return lk__fail(LK_STATUS_USAGE, "layer %d: slope %g of leaky ReLU is not in [0,1)", layer->index, slope);
    return infer(graph, layer);
}

static void forward_leaky(const lk_op_call *call)
{
    lk_tensor y = call->y;
    call->k->leaky_relu_forward(call->dev, &call->x[0], (float)call->layer->attr.number, &y);
}

static void backward_leaky(const lk_op_call *call)
{
    lk_tensor dx = call->dx[0];
    if (dx.data)
        call->k->leaky_relu_grad_input(call->dev, &call->y, &call->dy, (float)call->layer->attr.number, &dx);
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
    .flags = LK_OP_READS_Y | LK_OP_IS_RELU6,
    .infer = infer,
    .forward = forward6,
    .backward = backward6,
};

static const lk_op leaky_relu_op = {
    .name = "leaky_relu",
    .flags = LK_OP_READS_Y,
    .infer = infer_leaky,
    .forward = forward_leaky,
    .backward = backward_leaky,
};

lk_node lk_relu(lk_graph *graph, lk_node x)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = &relu_op}, NULL, &x, 1);
}

lk_node lk_relu6(lk_graph *graph, lk_node x)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = &relu6_op}, NULL, &x, 1);
}

lk_node lk_leaky_relu(lk_graph *graph, lk_node x, double slope)
{
    lk_layer layer = {.op = &leaky_relu_op};
    layer.attr.number = slope;
    return lk__graph_add_layer(graph, layer, NULL, &x, 1);
}
