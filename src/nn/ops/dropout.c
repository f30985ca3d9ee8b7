/* dropout.c - sets random elements or whole channels to zero in training. Backward draws the mask again from
 * its address; the mask is not stored. */
#include "base/rng.h"
#include "nn/op.h"

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    double p = layer->attr.number;
    if (!(p >= 0 && (float)p < 1)) /* kernels use a float */
        return lk__fail(LK_STATUS_USAGE, "layer %d: dropout probability %g is not in [0,1)", layer->index, p);
    layer->shape = lk__op_input_shape(graph, layer, 0);
    layer->in_place = true;
    if (lk__shape_sample(layer->shape) > LK_RNG_MAX_ELEMENT)
        return lk__fail(LK_STATUS_USAGE, "layer %d: dropout over %zu elements a sample is not addressable",
                        layer->index, lk__shape_sample(layer->shape));
    return LK_OK;
}

const lk_dropout_desc *lk__op_dropout_draws(const lk_op_call *call, const lk_layer *dropout, lk_dropout_desc *desc)
{
    if (!dropout || !call->wave->train || dropout->attr.number <= 0)
        return NULL;
    *desc = (lk_dropout_desc){.p = (float)dropout->attr.number,
                              .seed = call->wave->seed,
                              .layer = (uint32_t)dropout->index,
                              .step = call->wave->step,
                              .ids = call->wave->ids,
                              .channels = dropout->attr.by_channel};
    return desc;
}

/* Both passes: the gradient is the same function. */
static void drop(const lk_op_call *call, const lk_tensor *from, lk_tensor to)
{
    lk_dropout_desc desc;
    if (lk__op_dropout_draws(call, call->layer, &desc))
        call->k->dropout(call->dev, &desc, from, &to);
    else if (to.data != from->data)
        call->k->copy(call->dev, from, &to);
}

static void forward(const lk_op_call *call)
{
    drop(call, &call->x[0], call->y);
}

static void backward(const lk_op_call *call)
{
    if (call->dx[0].data)
        drop(call, &call->dy, call->dx[0]);
}

const lk_op lk__op_dropout = {
    .name = "dropout",
    .infer = infer,
    .forward = forward,
    .backward = backward,
};

const lk_op lk__op_dropout2d = {
    .name = "dropout2d",
    .infer = infer,
    .forward = forward,
    .backward = backward,
};

lk_node lk_dropout(lk_graph *graph, lk_node x, double p)
{
    lk_layer layer = {.op = &lk__op_dropout};
    layer.attr.number = p;
    return lk__graph_add_layer(graph, layer, NULL, &x, 1);
}

lk_node lk_dropout2d(lk_graph *graph, lk_node x, double p)
{
    lk_layer layer = {.op = &lk__op_dropout2d};
    layer.attr.number = p;
    layer.attr.by_channel = true;
    return lk__graph_add_layer(graph, layer, NULL, &x, 1);
}
