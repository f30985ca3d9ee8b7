/* linear.c - a fully connected layer. That of a sequence is computed by the kernels of convolutions (conv2d.c). */
#include "nn/op.h"

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__op_input_shape(graph, layer, 0);
    size_t out = layer->attr.out;
    if (!out)
        return lk__fail(LK_STATUS_USAGE, "linear layer '%s' needs at least one output", layer->name);
    if (x.h != 1 || x.w != 1)
        return lk__fail(LK_STATUS_USAGE, "linear layer '%s' got %zux%zux%zu; put lk_flatten before it", layer->name,
                        x.c, x.h, x.w);
    layer->shape = (lk_shape){.n = 1, .c = out, .h = 1, .w = 1};
    layer->params[0] = (lk_op_slot){
        .suffix = "weight", .ndim = 2, .dims = {out, x.c}, .fan_in = x.c, .weight = {.out = out, .in = x.c}};
    layer->params[1] = (lk_op_slot){.suffix = "bias", .ndim = 1, .dims = {out}, .fan_in = x.c};
    layer->param_count = 2;
    return LK_OK;
}

static size_t scratch(lk_device *dev, const lk_layer *layer, lk_shape x, lk_shape y)
{
    (void)layer;
    return dev->kernels->linear_scratch(dev, x, y);
}

static void forward(const lk_op_call *call)
{
    lk_tensor y = call->y;
    lk_dropout_desc desc;
    call->k->linear_forward(call->dev, &call->x[0], call->value[0], call->value[1], call->relu,
                            lk__op_dropout_draws(call, call->dropout, &desc), &y, call->scratch);
}

static void grad_input(const lk_op_call *call)
{
    lk_tensor dx = call->dx[0];
    lk_dropout_desc desc;
    call->k->linear_grad_input(call->dev, &call->dy, call->value[0], call->mask ? &call->x[0] : NULL,
                               lk__op_dropout_draws(call, call->masked_dropout, &desc), &dx, call->scratch);
}

static void backward(const lk_op_call *call)
{
    if (call->grad[0].slot0)
        call->k->linear_grad_weight(call->dev, &call->x[0], &call->dy, &call->wave->leaves, call->grad[0],
                                    call->grad[1], call->scratch);
    if (call->dx[0].data)
        grad_input(call);
}

static double macs(const lk_layer *layer, lk_shape x)
{
    return (double)x.c * (double)layer->shape.c;
}

const lk_op lk__op_linear = {
    .name = "linear",
    .flags = LK_OP_READS_X | LK_OP_FUSES_RELU | LK_OP_FUSES_DROPOUT | LK_OP_MASKS_DX | LK_OP_MASKS_DROPOUT |
             LK_OP_HAS_WEIGHTS | LK_OP_SKIPS_GRADS,
    .infer = infer,
    .scratch = scratch,
    .forward = forward,
    .backward = backward,
    .macs = macs,
};

/* Whether a node has height 1 and several pixels. A mistake in the arguments is found when the layer is added. */
static bool is_sequence(const lk_graph *graph, lk_node x)
{
    if (!graph || x.graph != graph->id || x.index < 0 || x.index >= graph->count)
        return false;
    lk_shape shape = graph->layers[x.index].shape;
    return shape.h == 1 && shape.w > 1;
}

lk_node lk_linear(lk_graph *graph, lk_node x, const char *name, size_t out)
{
    lk_layer layer = {.op = is_sequence(graph, x) ? &lk__op_linear_sequence : &lk__op_linear};
    layer.attr.out = out;
    return lk__graph_add_layer(graph, layer, name, &x, 1);
}
