/* loss.c - the losses that end a graph. Their gradient is scaled by one over
 * the global batch, so a sum over samples is already the mean. */
#include "nn/op.h"

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    lk_shape x = lk__input_shape(graph, layer, 0);
    if (x.h != 1 || x.w != 1)
        return lk__fail(LK_STATUS_USAGE, "layer %d: a loss works on vectors; put lk_flatten before it", layer->index);
    layer->shape = x;
    return LK_OK;
}

static lk_loss_desc describe(const lk_call *call)
{
    return (lk_loss_desc){.labels = call->wave->labels, .smoothing = call->wave->smoothing};
}

static void forward_cross_entropy(const lk_call *call)
{
    lk_loss_desc desc = describe(call);
    call->k->cross_entropy_forward(call->dev, &desc, &call->x[0], call->wave->loss, call->wave->place);
}

static void backward_cross_entropy(const lk_call *call)
{
    lk_loss_desc desc = describe(call);
    lk_tensor dx = call->dx[0];
    if (dx.data)
        call->k->cross_entropy_grad_input(call->dev, &desc, &call->x[0], call->wave->grad_scale, &dx);
}

/* Of log-probabilities; of scores the log-softmax before it is done here as well. */
static void forward_nll(const lk_call *call)
{
    lk_loss_desc desc = describe(call);
    if (call->scores)
        forward_cross_entropy(call);
    else
        call->k->nll_forward(call->dev, &desc, &call->x[0], call->wave->loss, call->wave->place);
}

static void backward_nll(const lk_call *call)
{
    lk_loss_desc desc = describe(call);
    lk_tensor dx = call->dx[0];
    if (call->scores)
        backward_cross_entropy(call);
    else if (dx.data)
        call->k->nll_grad_input(call->dev, &desc, &call->x[0], call->wave->grad_scale, &dx);
}

const lk_op lk__op_nll_loss = {
    .name = "nll_loss",
    .flags = LK_OP_READS_X,
    .infer = infer,
    .forward = forward_nll,
    .backward = backward_nll,
    .is_loss = true,
};

const lk_op lk__op_cross_entropy = {
    .name = "cross_entropy",
    .flags = LK_OP_READS_X,
    .infer = infer,
    .forward = forward_cross_entropy,
    .backward = backward_cross_entropy,
    .is_loss = true,
};
