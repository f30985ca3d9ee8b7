/* groupnorm.c - group normalisation, and layer normalisation, which is that of each pixel with one group. A sample's
 * result does not depend on other samples.
 *
 * saved: leaves (shards, 2, c), stack (LK_TREE_MAX_DEPTH, c), moments (sets, 2) */
#include "nn/op.h"

static const float epsilon = 1e-5f;

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__op_input_shape(graph, layer, 0);
    layer->shape = x;
    layer->params[0] = (lk_op_slot){.suffix = "weight", .ndim = 1, .dims = {x.c}, .fill = LK_OP_FILL_ONE};
    layer->params[1] = (lk_op_slot){.suffix = "bias", .ndim = 1, .dims = {x.c}, .fill = LK_OP_FILL_ZERO};
    layer->param_count = 2;
    return LK_OK;
}

static lk_status infer_groups(const lk_graph *graph, lk_layer *layer)
{
    size_t channels = lk__op_input_shape(graph, layer, 0).c, groups = layer->attr.out;
    if (!groups || channels % groups)
        return lk__fail(LK_STATUS_USAGE, "groupnorm '%s': %zu groups do not divide its %zu channels", layer->name,
                        groups, channels);
    return infer(graph, layer);
}

static const lk_op layernorm_op;

static lk_groupnorm_desc desc_of(const lk_layer *layer)
{
    bool by_pixel = layer->op == &layernorm_op;
    return (lk_groupnorm_desc){.groups = by_pixel ? 1 : layer->attr.out, .by_pixel = by_pixel, .eps = epsilon};
}

static size_t saved(lk_device *dev, const lk_layer *layer, size_t n, int shards)
{
    (void)dev;
    lk_groupnorm_desc desc = desc_of(layer);
    lk_shape shape = layer->shape;
    shape.n = n;
    return (2 * (size_t)shards + LK_TREE_MAX_DEPTH) * layer->shape.c + 2 * lk__groupnorm_desc_sets(&desc, shape);
}

static float *stack_of(const lk_op_call *call)
{
    return (float *)call->saved + 2 * call->layer->shape.c * (size_t)call->shards;
}

static float *moments_of(const lk_op_call *call)
{
    return stack_of(call) + LK_TREE_MAX_DEPTH * call->layer->shape.c;
}

static void forward(const lk_op_call *call)
{
    lk_tensor y = call->y;
    lk_groupnorm_desc desc = desc_of(call->layer);
    desc.gamma = call->param[0];
    desc.beta = call->param[1];
    call->k->groupnorm_forward(call->dev, &desc, &call->x[0], moments_of(call), &y);
}

static void backward(const lk_op_call *call)
{
    const lk_shards *shards = &call->wave->leaves;
    size_t c = call->layer->shape.c;
    float *leaves = call->saved;
    lk_tensor dx = call->dx[0];
    lk_groupnorm_desc desc = desc_of(call->layer);
    desc.gamma = call->param[0];
    desc.beta = call->param[1];
    if (call->grad[0].slot0 || call->grad[1].slot0)
        call->k->groupnorm_grad_weight(call->dev, &desc, &call->x[0], &call->dy, moments_of(call), shards, leaves);
    for (int slot = 0; slot < 2; slot++)
        if (call->grad[slot].slot0)
            lk__op_fold_leaves(call, c, leaves + c * (size_t)slot, 2 * c, stack_of(call), call->grad[slot]);
    if (dx.data)
        call->k->groupnorm_grad_input(call->dev, &desc, &call->x[0], &call->dy, moments_of(call), &dx);
}

static const lk_op groupnorm_op = {
    .name = "groupnorm",
    .flags = LK_OP_READS_X | LK_OP_SKIPS_GRADS,
    .infer = infer_groups,
    .saved = saved,
    .forward = forward,
    .backward = backward,
};

static const lk_op layernorm_op = {
    .name = "layernorm",
    .flags = LK_OP_READS_X | LK_OP_SKIPS_GRADS,
    .infer = infer,
    .saved = saved,
    .forward = forward,
    .backward = backward,
};

lk_node lk_groupnorm(lk_graph *graph, lk_node x, const char *name, size_t groups)
{
    lk_layer layer = {.op = &groupnorm_op};
    layer.attr.out = groups;
    return lk__graph_add_layer(graph, layer, name, &x, 1);
}

lk_node lk_layernorm(lk_graph *graph, lk_node x, const char *name)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = &layernorm_op}, name, &x, 1);
}
