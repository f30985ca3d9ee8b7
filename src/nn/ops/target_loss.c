/* target_loss.c - losses of float targets, and weights of classes. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "nn/op.h"

static size_t as_x(const lk_layer *layer)
{
    return lk__shape_sample(layer->shape);
}

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    layer->shape = lk__op_input_shape(graph, layer, 0);
    return LK_OK;
}

static lk_status infer_vector(const lk_graph *graph, lk_layer *layer)
{
    LK_TRY(infer(graph, layer));
    if (layer->shape.h != 1 || layer->shape.w != 1)
        return lk__fail(LK_STATUS_USAGE, "layer %d: %s works on vectors; put lk_flatten before it", layer->index,
                        layer->op->name);
    return LK_OK;
}

static lk_status infer_huber(const lk_graph *graph, lk_layer *layer)
{
    double delta = layer->attr.number;
    if (!((float)delta > 0 && isfinite((float)delta))) /* kernels use a float */
        return lk__fail(LK_STATUS_USAGE, "layer %d: `delta` %g of huber_loss must be above 0", layer->index, delta);
    return infer(graph, layer);
}

static lk_status infer_smooth_l1(const lk_graph *graph, lk_layer *layer)
{
    double beta = layer->attr.number;
    if (!(beta >= 0 && isfinite((float)beta)))
        return lk__fail(LK_STATUS_USAGE, "layer %d: `beta` %g of smooth_l1_loss must not be below 0", layer->index,
                        beta);
    return infer(graph, layer);
}

void lk__op_run_target_loss(const lk_op_call *call, lk_loss_kind kind, const lk_loss_def *own)
{
    const lk_op_wave *wave = call->wave;
    const lk_layer *layer = call->layer;
    lk_loss_desc desc = {.labels = layer->op->targets ? NULL : wave->labels,
                         .smoothing = wave->smoothing,
                         .scale = wave->grad_scale,
                         .weights = wave->weights,
                         .kind = kind,
                         .parameter = (float)layer->attr.number,
                         .target_floats = layer->op->targets ? layer->op->targets(layer) : 0,
                         .targets = wave->targets,
                         .class_weights = call->class_weights,
                         .own = own};
    lk_loss_results results = {.loss = wave->loss, .label_rank = wave->label_rank, .error = wave->error};
    lk_tensor dx = call->dx[0];
    call->k->target_loss(call->dev, &desc, &call->x[0], &results, wave->train && dx.data ? &dx : NULL, call->scratch);
}

#define FORWARD(name, kind)                                      \
    static void forward_##name(const lk_op_call *call)           \
    {                                                            \
        lk__op_run_target_loss(call, LK_LOSS_KIND_##kind, NULL); \
    }
FORWARD(mse, MSE)
FORWARD(l1, L1)
FORWARD(huber, HUBER)
FORWARD(smooth_l1, SMOOTH_L1)
FORWARD(bce, BCE)
FORWARD(soft, SOFT)
#undef FORWARD

#define ROW(text, check, run) .name = text, .infer = check, .forward = run, .is_loss = true, .targets = as_x

const lk_op lk__op_mse_loss = {ROW("mse_loss", infer, forward_mse)};
const lk_op lk__op_l1_loss = {ROW("l1_loss", infer, forward_l1)};
static const lk_op huber_loss_op = {ROW("huber_loss", infer_huber, forward_huber)};
static const lk_op smooth_l1_loss_op = {ROW("smooth_l1_loss", infer_smooth_l1, forward_smooth_l1)};
const lk_op lk__op_bce_with_logits_loss = {ROW("bce_with_logits_loss", infer, forward_bce), .weighs = true};
const lk_op lk__op_soft_cross_entropy = {ROW("soft_cross_entropy", infer_vector, forward_soft), .smooths = true,
                                         .weighs = true};
#undef ROW

static lk_node add_loss(lk_graph *graph, lk_node x, const lk_op *op, double number)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = op, .attr.number = number}, NULL, &x, 1);
}

lk_node lk_mse_loss(lk_graph *graph, lk_node x)
{
    return add_loss(graph, x, &lk__op_mse_loss, 0);
}

lk_node lk_l1_loss(lk_graph *graph, lk_node x)
{
    return add_loss(graph, x, &lk__op_l1_loss, 0);
}

lk_node lk_huber_loss(lk_graph *graph, lk_node x, double delta)
{
    return add_loss(graph, x, &huber_loss_op, delta);
}

lk_node lk_smooth_l1_loss(lk_graph *graph, lk_node x, double beta)
{
    return add_loss(graph, x, &smooth_l1_loss_op, beta);
}

lk_node lk_bce_with_logits_loss(lk_graph *graph, lk_node x)
{
    return add_loss(graph, x, &lk__op_bce_with_logits_loss, 0);
}

lk_node lk_soft_cross_entropy(lk_graph *graph, lk_node x)
{
    return add_loss(graph, x, &lk__op_soft_cross_entropy, 0);
}

static lk_status check_weights(const float *weights, size_t classes)
{
    bool some = false;
    for (size_t k = 0; k < classes; k++) {
        if (!(weights[k] >= 0 && isfinite(weights[k])))
            return lk__fail(LK_STATUS_USAGE,
                            "lk_weigh_classes: the weight of class %zu is %g; weights are numbers not "
                            "below 0",
                            k, (double)weights[k]);
        some = some || weights[k] > 0;
    }
    return some ? LK_OK
                : lk__fail(LK_STATUS_USAGE, "lk_weigh_classes: all %zu weights are 0; give one above 0", classes);
}

static lk_status weigh(lk_graph *graph, lk_node loss, const float *weights, size_t classes)
{
    LK_TRY(LK_GIVEN(weights));
    LK_TRY(lk__graph_check_node(graph, loss, "lk_weigh_classes: loss"));
    const lk_layer *layer = &graph->layers[loss.index];
    if (!layer->op->weighs)
        return lk__fail(
            LK_STATUS_USAGE,
            "lk_weigh_classes: layer %d (%s) is no loss with classes; give the node of cross_entropy, nll_loss, "
            "soft_cross_entropy or bce_with_logits_loss",
            layer->index, layer->op->name);
    if (graph->class_weights)
        return lk__fail(LK_STATUS_USAGE, "lk_weigh_classes: the classes of this loss have weights; call it once");
    if (classes != layer->shape.c)
        return lk__fail(LK_STATUS_USAGE, "lk_weigh_classes: %zu weights for the %zu classes of layer %d (%s)", classes,
                        layer->shape.c, layer->index, layer->op->name);
    LK_TRY(check_weights(weights, classes));
    LK_TRY(LK_ALLOC(classes, "class weights", &graph->class_weights));
    memcpy(graph->class_weights, weights, classes * sizeof *weights);
    graph->classes = classes;
    return LK_OK;
}

lk_node lk_weigh_classes(lk_graph *graph, lk_node loss, const float *weights, size_t classes)
{
    if (!graph || graph->status != LK_OK)
        return (lk_node){.index = -1};
    lk_status status = weigh(graph, loss, weights, classes);
    return status == LK_OK ? loss : lk__graph_reject(graph, status);
}
