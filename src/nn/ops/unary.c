/* unary.c - functions of one element: sigmoid, tanh, SiLU, GELU. The gradients of sigmoid and tanh are computed from
 * their results, so these two work in place; the others keep their input. */
#include "nn/op.h"

static const lk_op rows[LK_UNARY_COUNT];

static lk_unary function_of(const lk_layer *layer)
{
    return (lk_unary)(layer->op - rows);
}

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    layer->shape = lk__op_input_shape(graph, layer, 0);
    layer->in_place = layer->op->flags & LK_OP_READS_Y;
    return LK_OK;
}

static void forward(const lk_op_call *call)
{
    lk_tensor y = call->y;
    call->k->unary_forward(call->dev, function_of(call->layer), &call->x[0], &y);
}

static void backward(const lk_op_call *call)
{
    lk_tensor dx = call->dx[0];
    const lk_tensor *v = call->layer->op->flags & LK_OP_READS_Y ? &call->y : &call->x[0];
    if (dx.data)
        call->k->unary_grad_input(call->dev, function_of(call->layer), v, &call->dy, &dx);
}

#define ROW(text, reads)                                                                       \
    {                                                                                          \
        .name = text, .flags = reads, .infer = infer, .forward = forward, .backward = backward \
    }
static const lk_op rows[LK_UNARY_COUNT] = {
    [LK_UNARY_SIGMOID] = ROW("sigmoid", LK_OP_READS_Y),     [LK_UNARY_TANH] = ROW("tanh", LK_OP_READS_Y),
    [LK_UNARY_SILU] = ROW("silu", LK_OP_READS_X),           [LK_UNARY_GELU] = ROW("gelu", LK_OP_READS_X),
    [LK_UNARY_GELU_TANH] = ROW("gelu_tanh", LK_OP_READS_X),
};
#undef ROW

static lk_node add_function(lk_graph *graph, lk_node x, lk_unary f)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = &rows[f]}, NULL, &x, 1);
}

lk_node lk_sigmoid(lk_graph *graph, lk_node x)
{
    return add_function(graph, x, LK_UNARY_SIGMOID);
}

lk_node lk_tanh(lk_graph *graph, lk_node x)
{
    return add_function(graph, x, LK_UNARY_TANH);
}

lk_node lk_silu(lk_graph *graph, lk_node x)
{
    return add_function(graph, x, LK_UNARY_SILU);
}

lk_node lk_gelu(lk_graph *graph, lk_node x)
{
    return add_function(graph, x, LK_UNARY_GELU);
}

lk_node lk_gelu_tanh(lk_graph *graph, lk_node x)
{
    return add_function(graph, x, LK_UNARY_GELU_TANH);
}
