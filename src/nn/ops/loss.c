/* loss.c - losses of labels. Training writes their gradient in the forward pass. It is scaled by one
 * over the global batch, so the sum over samples is the gradient of the mean. */
#include "nn/op.h"

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__op_input_shape(graph, layer, 0);
    if (x.h != 1 || x.w != 1)
        return lk__fail(LK_STATUS_USAGE, "layer %d: %s works on vectors; put lk_flatten before it", layer->index,
                        layer->op->name);
    layer->shape = x;
    return LK_OK;
}

/* The kernel of either loss. */
typedef void (*loss_fn)(lk_device *, const lk_loss_desc *, const lk_tensor *, float *, int32_t *, lk_tensor *);

static void run_loss(const lk_op_call *call, loss_fn loss)
{
    const lk_op_wave *wave = call->wave;
    lk_loss_desc desc = {.labels = wave->labels, .smoothing = wave->smoothing, .scale = wave->grad_scale};
    desc.weights = wave->weights;
    lk_tensor dx = call->dx[0];
    loss(call->dev, &desc, &call->x[0], wave->loss, wave->label_rank, wave->train && dx.data ? &dx : NULL);
}

static void forward_cross_entropy(const lk_op_call *call)
{
    if (call->class_weights)
        lk__op_run_target_loss(call, LK_LOSS_KIND_SOFT, NULL);
    else
        run_loss(call, call->k->cross_entropy);
}

/* From log-probabilities. From scores, the log-softmax before the loss is computed here too. */
static void forward_nll(const lk_op_call *call)
{
    if (call->class_weights)
        lk__op_run_target_loss(call, call->scores ? LK_LOSS_KIND_SOFT : LK_LOSS_KIND_SOFT_LOGS, NULL);
    else
        run_loss(call, call->scores ? call->k->cross_entropy : call->k->nll);
}

const lk_op lk__op_nll_loss = {
    .name = "nll_loss",
    .infer = infer,
    .forward = forward_nll,
    .is_loss = true,
    .smooths = true,
    .weighs = true,
};

const lk_op lk__op_cross_entropy = {
    .name = "cross_entropy",
    .infer = infer,
    .forward = forward_cross_entropy,
    .is_loss = true,
    .smooths = true,
    .weighs = true,
};

lk_node lk_nll_loss(lk_graph *graph, lk_node x)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = &lk__op_nll_loss}, NULL, &x, 1);
}

lk_node lk_cross_entropy(lk_graph *graph, lk_node x)
{
    return lk__graph_add_layer(graph, (lk_layer){.op = &lk__op_cross_entropy}, NULL, &x, 1);
}
