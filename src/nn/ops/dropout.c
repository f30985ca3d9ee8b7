/* dropout.c - zeroes elements, or whole channels, at random in training; the mask
 * is drawn anew in backward from its address instead of being kept. */
#include "base/rng.h"
#include "nn/op.h"

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    double p = layer->attr.p;
    if (!(p >= 0 && (float)p < 1)) /* kernels use a float */
        return lk__fail(LK_STATUS_USAGE, "layer %d: dropout probability %g is not in [0,1)", layer->index, p);
    layer->shape = lk__input_shape(graph, layer, 0);
    layer->in_place = true;
    if (lk__shape_sample(layer->shape) > LK_RNG_MAX_ELEMENT)
        return lk__fail(LK_STATUS_USAGE, "layer %d: dropout over %zu elements a sample is not addressable",
                        layer->index, lk__shape_sample(layer->shape));
    return LK_OK;
}

static lk_dropout_desc address(const lk_call *call)
{
    return (lk_dropout_desc){.p = (float)call->layer->attr.p,
                             .seed = call->wave->seed,
                             .layer = (uint32_t)call->layer->index,
                             .step = call->wave->step,
                             .ids = call->wave->ids,
                             .channels = call->layer->attr.by_channel};
}

static void forward(const lk_call *call)
{
    lk_tensor y = call->y;
    if (call->wave->train && call->layer->attr.p > 0) {
        lk_dropout_desc dropout = address(call);
        call->k->dropout(call->dev, &dropout, &call->x[0], &y);
    } else if (y.data != call->x[0].data) {
        call->k->copy(call->dev, &call->x[0], &y);
    }
}

static void backward(const lk_call *call)
{
    lk_tensor dx = call->dx[0];
    if (!dx.data)
        return;
    if (call->layer->attr.p > 0) {
        lk_dropout_desc dropout = address(call);
        call->k->dropout(call->dev, &dropout, &call->dy, &dx);
    } else if (dx.data != call->dy.data) {
        call->k->copy(call->dev, &call->dy, &dx);
    }
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
