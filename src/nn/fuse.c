/* fuse.c - chooses which layers compute parts of other layers, and which share memory. */
#include "nn/fuse.h"

#include "nn/frozen.h"

/* The choices made so far. */
typedef struct fusing {
    const lk_graph *graph;
    const lk_device_type *type;
    int first, last;
    const bool *kept;
    const unsigned *frozen; /* or NULL */
    bool input_grads;
    lk_fuse_choice *of;
} fusing;

static const lk_layer *layer_at(const fusing *f, int index)
{
    return &f->graph->layers[index];
}

/* Counts in the whole graph: a stage must know whether parameters come before it. */
static void count_consumers(fusing *f)
{
    for (int i = 0; i < f->graph->count; i++) {
        const lk_layer *layer = layer_at(f, i);
        f->of[i].needs_grad = lk__frozen_trains(f->frozen, layer) || (i == 0 && f->input_grads);
        for (int j = 0; j < layer->input_count; j++) {
            f->of[layer->inputs[j]].consumers++;
            f->of[i].needs_grad |= f->of[layer->inputs[j]].needs_grad;
        }
    }
}

/* Whether the block of this layer's value also has the value of a kept layer, itself or one before it. */
static bool holds_kept(const fusing *f, int index)
{
    for (int i = f->first - 1; f->kept && i <= index; i++)
        if (f->kept[i] && f->of[i].value == f->of[index].value)
            return true;
    return false;
}

/* A layer may overwrite its input if nothing else reads it: it has no other consumer, the backward pass of the
 * layer that made it does not read it, it is not kept, and that layer belongs to the plan. */
static bool may_overwrite(const fusing *f, const lk_layer *layer)
{
    if (!layer->in_place)
        return false;
    const lk_layer *maker = layer_at(f, layer->inputs[0]);
    return maker->index >= f->first && f->of[maker->index].consumers == 1 && !(maker->op->flags & LK_OP_READS_Y) &&
           !holds_kept(f, maker->index);
}

/* Whether the elements of the layer's input are already in flatten's order: pixels of one channel, with no pads. */
static bool is_flat(const fusing *f, const lk_layer *layer)
{
    return lk__op_input_shape(f->graph, layer, 0).c == 1 && (!f->type->pitch || f->type->pitch(1) == 1);
}

/* Chooses in the whole graph: a stage may begin after a view. */
static void choose_views(fusing *f)
{
    for (int i = 0; i < f->graph->count; i++) {
        const lk_layer *layer = layer_at(f, i);
        bool flat_view = lk__graph_flat_view(f->graph, layer) && (f->type->flat_views || is_flat(f, layer));
        f->of[i].view = flat_view || (f->type->loss_views && lk__graph_loss_view(f->graph, layer));
    }
}

/* The consumer of a layer whose backward runs last; -1 if it is not in the plan. */
static int last_in_backward(const fusing *f, int index)
{
    for (int i = index + 1; i < f->last; i++) {
        for (int j = 0; j < layer_at(f, i)->input_count; j++) {
            if (layer_at(f, i)->inputs[j] == index)
                return i;
        }
    }
    return -1;
}

/* Whether this layer of the plan has exactly one consumer, and is not kept. */
static bool only_used_once(const fusing *f, int index)
{
    return index >= f->first && f->of[index].consumers == 1 && !holds_kept(f, index);
}

/* An addition is computed by one of its input layers, if that layer can, at the time of the addition: then the
 * other input is complete. If the other input is pad_channels, its unpadded input is added directly. */
static void choose_addition(fusing *f, const lk_layer *add)
{
    int by = add->inputs[0], other = add->inputs[1];
    if (!only_used_once(f, by) || !(layer_at(f, by)->op->flags & LK_OP_FUSES_ADD)) {
        by = add->inputs[1];
        other = add->inputs[0];
    }
    if (!only_used_once(f, by) || !(layer_at(f, by)->op->flags & LK_OP_FUSES_ADD))
        return;
    if (layer_at(f, other)->op == &lk__op_pad_channels && only_used_once(f, other)) {
        int padded = layer_at(f, other)->inputs[0];
        f->of[other].forward = -1;
        f->of[other].value = f->of[padded].value;
        other = padded;
    }
    f->of[by].forward = -1;
    f->of[by].other = other;
    f->of[add->index].forward = by;
    f->of[add->index].value = by;
}

/* A ReLU that `maker`, the layer before it, can apply. If maker is an addition, another layer may compute both. */
static void choose_relu(fusing *f, const lk_layer *layer, int maker)
{
    unsigned can = layer_at(f, maker)->op->flags;
    bool six = layer->op->flags & LK_OP_IS_RELU6 && can & LK_OP_FUSES_RELU6;
    if (!six && !(layer->op->flags & LK_OP_IS_RELU && can & LK_OP_FUSES_RELU))
        return;
    f->of[f->of[maker].forward].relu = true;
    f->of[f->of[maker].forward].six = six;
    f->of[layer->index].forward = -1;
}

static bool is_dropout(const lk_layer *layer)
{
    return layer->op == &lk__op_dropout || layer->op == &lk__op_dropout2d;
}

/* A dropout that `maker` can apply, if no other layer computes maker. */
static void choose_dropout(fusing *f, const lk_layer *layer, int maker)
{
    unsigned can = layer_at(f, maker)->op->flags;
    if (!is_dropout(layer) || !(can & LK_OP_FUSES_DROPOUT) || f->of[maker].forward != maker)
        return;
    f->of[maker].dropout = layer->index;
    f->of[layer->index].forward = -1;
    f->of[layer->index].backward_elsewhere = can & LK_OP_FUSES_DROPOUT_GRAD;
}

/* The batch normalisation that can compute this max pooling of its result, or of the result of a ReLU that it applies;
 * -1: none. It does not add its dx to another gradient. */
static int pools_after(const fusing *f, const lk_layer *layer)
{
    if (layer->op != &lk__op_maxpool2d || !f->type->pools || !f->type->pools(&layer->attr.pool))
        return -1;
    int maker = layer->inputs[0];
    if (!only_used_once(f, maker))
        return -1;
    if (layer_at(f, maker)->op->flags & LK_OP_IS_RELU && f->of[maker].forward < 0)
        maker = layer_at(f, maker)->inputs[0];
    const lk_layer *by = layer_at(f, maker);
    return only_used_once(f, maker) && by->op->flags & LK_OP_FUSES_POOL && f->of[maker].forward == maker &&
                   f->of[by->inputs[0]].consumers == 1
               ? maker
               : -1;
}

/* A pooling is computed by the layer `by` at the time of the pooling. */
static void choose_pool(fusing *f, const lk_layer *pool, int by)
{
    f->of[by].forward = -1;
    f->of[by].pool = f->of[pool->inputs[0]].pool = pool->index;
    f->of[pool->index].forward = by;
    f->of[pool->index].value = by;
    f->of[pool->index].backward_elsewhere = true;
}

static void choose_overwriting(fusing *f, const lk_layer *layer)
{
    int maker = layer->inputs[0];
    f->of[layer->index].value = f->of[maker].value;
    choose_relu(f, layer, maker);
    choose_dropout(f, layer, maker);
}

/* Whether this is a dropout behind a ReLU that the layer before applies, and the layer after the dropout can compute
 * the gradients of both. It needs no value but the dropout's, so the ReLU's is overwritten. */
static bool drops_relu(const fusing *f, const lk_layer *layer)
{
    int relu = layer->inputs[0], next = last_in_backward(f, layer->index);
    if (!is_dropout(layer) || next < 0 || !only_used_once(f, layer->index) || !only_used_once(f, relu))
        return false;
    int maker = f->of[relu].value;
    bool applied = layer_at(f, relu)->op->flags & LK_OP_IS_RELU && maker == layer_at(f, relu)->inputs[0] &&
                   f->of[maker].relu && f->of[relu].forward < 0;
    return applied && layer_at(f, maker)->op->flags & LK_OP_FUSES_DROPOUT &&
           layer_at(f, next)->op->flags & LK_OP_MASKS_DROPOUT;
}

static void choose_values(fusing *f)
{
    for (int i = f->first - 1; i < f->last; i++) {
        const lk_layer *layer = layer_at(f, i);
        lk_fuse_choice *this = &f->of[i];
        this->value = this->forward = i;
        this->other = this->pool = this->dropout = this->masked_dropout = this->rest = this->signs = -1;
        if (i < f->first)
            continue;
        if (this->view) {
            this->value = f->of[layer->inputs[0]].value;
            this->forward = -1;
        } else if (may_overwrite(f, layer)) {
            choose_overwriting(f, layer);
        } else if (drops_relu(f, layer)) {
            this->value = f->of[layer->inputs[0]].value;
            choose_dropout(f, layer, this->value);
        } else if (layer->op == &lk__op_add) {
            choose_addition(f, layer);
        } else if (pools_after(f, layer) >= 0) {
            choose_pool(f, layer, pools_after(f, layer));
        }
    }
}

/* Whether the layer is a pooling that the layer before it computes. */
static bool is_pooled_before(const fusing *f, int index)
{
    return index >= f->first && f->of[index].forward >= 0 && f->of[f->of[index].forward].pool == index;
}

/* Whether the layer's backward does not change dy. */
static bool only_reads(const fusing *f, int index)
{
    const lk_layer *layer = layer_at(f, index);
    return !layer->in_place && !(layer->op->flags & LK_OP_PASSES_GRAD) && !f->of[index].view;
}

/* Whether the gradient of `input` may use the memory of layer's dy although `reader` reads dy too: all layers
 * that add to this gradient must run their backward after the reader's. */
static bool may_share(const fusing *f, const lk_layer *layer, int input, int reader)
{
    if (!f->of[input].needs_grad || (input > reader && !only_reads(f, input)))
        return false;
    for (int i = reader + 1; i < f->graph->count; i++) {
        for (int j = 0; j < layer_at(f, i)->input_count; j++) {
            if (layer_at(f, i)->inputs[j] == input && i != layer->index)
                return false;
        }
    }
    return true;
}

/* Gives the memory of layer's dy to the gradient of input `owner`, and also to the gradients of the other
 * inputs that do not disturb it. The layer that computes a pooling reads the pooling's gradient. */
static void share_grad(fusing *f, const lk_layer *layer, int owner)
{
    f->of[owner].grad = f->of[layer->index].grad;
    if (owner < f->first || !only_reads(f, owner))
        return;
    int reader = is_pooled_before(f, owner) ? f->of[owner].forward : owner;
    for (int j = 0; j < layer->input_count; j++) {
        int input = layer->inputs[j];
        if (input != owner && may_share(f, layer, input, reader))
            f->of[input].grad = f->of[layer->index].grad;
    }
}

/* The gradient of an input uses the memory of its layer's dy if backward works in place or passes dy on unchanged. For
 * a pooling that its input computes there is no other gradient. */
static void choose_grads(fusing *f)
{
    for (int i = f->first - 1; i < f->last; i++)
        f->of[i].grad = i;
    for (int i = f->last - 1; i >= f->first; i--) {
        const lk_layer *layer = layer_at(f, i);
        if (only_reads(f, i) && !is_pooled_before(f, i))
            continue;
        for (int j = 0; j < layer->input_count; j++) {
            int input = layer->inputs[j];
            if (f->of[input].consumers == 1 && f->of[input].needs_grad) {
                share_grad(f, layer, input);
                break;
            }
        }
    }
}

/* Whether the layer applies the gradient of the ReLU or ReLU6 that it has applied. It needs no value but its own
 * input, so it does not do that if it adds another layer's value. */
static bool takes_relu_grad(const fusing *f, const lk_layer *layer)
{
    const lk_fuse_choice *this = &f->of[layer->index];
    return layer->op->flags & LK_OP_FUSES_RELU_GRAD && this->relu && this->other < 0;
}

/* The layer after a dropout computes the dropout's gradient and that of the ReLU before it. */
static void choose_dropout_grad(fusing *f, const lk_layer *relu, int dropout)
{
    int next = last_in_backward(f, dropout);
    f->of[relu->index].backward_elsewhere = f->of[dropout].backward_elsewhere = f->of[next].mask = true;
    f->of[next].masked_dropout = dropout;
}

/* The gradient of an in-place ReLU is computed by the layer before it, if that layer can. Otherwise the last consumer
 * of a ReLU computes it, if it can set dx to zero where its x is <= 0: in dx if it is the only consumer, otherwise in
 * the sum of the gradients of all consumers. */
static void choose_relu_grad(fusing *f, const lk_layer *relu)
{
    lk_fuse_choice *this = &f->of[relu->index];
    int maker = relu->inputs[0], consumer = last_in_backward(f, relu->index);
    unsigned can = consumer >= 0 && relu->op->flags & LK_OP_IS_RELU ? layer_at(f, consumer)->op->flags : 0;
    bool only = this->consumers == 1;
    if (!this->needs_grad || f->of[maker].grad != this->grad)
        return;
    if (takes_relu_grad(f, layer_at(f, maker)))
        this->backward_elsewhere = f->of[maker].relu_grad = true;
    else if (consumer >= 0 && f->of[maker].dropout == consumer)
        choose_dropout_grad(f, relu, consumer);
    else if (can & LK_OP_MASKS_DX && only)
        this->backward_elsewhere = f->of[consumer].mask = true;
    else if (can & LK_OP_MASKS_DX && can & LK_OP_READS_X)
        this->backward_elsewhere = f->of[consumer].mask_sum = true;
}

static void choose_relu_grads(fusing *f)
{
    for (int i = f->first; i < f->last; i++) {
        if (layer_at(f, i)->op->flags & (LK_OP_IS_RELU | LK_OP_IS_RELU6))
            choose_relu_grad(f, layer_at(f, i));
    }
}

/* Whether the layer's backward does nothing. */
static bool is_idle(const fusing *f, int index)
{
    const lk_layer *layer = layer_at(f, index);
    const lk_fuse_choice *this = &f->of[index];
    if (!this->needs_grad || this->backward_elsewhere || this->view)
        return true;
    bool shared = layer->op->flags & LK_OP_PASSES_GRAD;
    for (int j = 0; j < layer->input_count; j++) {
        const lk_fuse_choice *input = &f->of[layer->inputs[j]];
        shared = shared && (!input->needs_grad || input->grad == this->grad);
    }
    return shared;
}

/* The layer whose forward computes the addition before this ReLU, and the ReLU, and can write the signs of the result;
 * -1: none. */
static int signs_maker(const fusing *f, const lk_layer *relu)
{
    int maker = relu->inputs[0], by = maker >= f->first ? f->of[maker].forward : -1;
    if (!f->type->signs || by < f->first || f->of[by].other < 0 || !f->of[by].relu || f->of[by].six ||
        f->of[relu->index].value != by || !(layer_at(f, by)->op->flags & LK_OP_ADDS_DY))
        return -1;
    size_t c = relu->shape.c, pitch = f->type->pitch ? f->type->pitch(c) : c;
    return layer_at(f, f->of[by].other)->shape.c == c && pitch % 8 == 0 ? by : -1;
}

/* Whether the layer's dx is the last one that is added to its input's gradient, and not by the layer itself. */
static bool adds_last(const fusing *f, const lk_layer *layer)
{
    if (layer->input_count != 1 || !only_reads(f, layer->index) || layer->op->flags & LK_OP_ADDS_DX)
        return false;
    int input = layer->inputs[0];
    return f->of[input].needs_grad && f->of[input].consumers > 1 && last_in_backward(f, input) == layer->index;
}

/* The last addition to a gradient, with the mask of a ReLU or without one, is left to the layer whose backward runs
 * next, if that layer sums over this gradient and can complete it: both take one pass over it together. */
static void choose_sum(fusing *f, const lk_layer *last)
{
    const lk_layer *value = layer_at(f, last->inputs[0]);
    bool masked = f->of[last->index].mask_sum;
    int next = last->index - 1;
    while (next >= f->first && is_idle(f, next))
        next--;
    if (next < f->first || !(layer_at(f, next)->op->flags & LK_OP_ADDS_DY))
        return;
    lk_shape dy = layer_at(f, next)->shape, sum = value->shape;
    if (f->of[next].grad != f->of[value->index].grad || f->of[next].pool >= 0 || (masked && f->of[next].relu_grad) ||
        dy.c != sum.c || dy.h != sum.h || dy.w != sum.w)
        return;
    f->of[next].rest = last->index;
    f->of[next].signs = masked ? signs_maker(f, value) : -1;
    f->of[last->index].sum_elsewhere = true;
}

static void choose_sums(fusing *f)
{
    for (int i = f->first; i < f->last; i++) {
        if (adds_last(f, layer_at(f, i)))
            choose_sum(f, layer_at(f, i));
    }
}

void lk__fuse(const lk_fuse_opts *opts, lk_fuse_choice *choices)
{
    fusing f = {.graph = opts->graph,
                .type = opts->type,
                .first = opts->first,
                .last = opts->last,
                .kept = opts->kept,
                .frozen = opts->frozen,
                .input_grads = opts->input_grads,
                .of = choices};
    count_consumers(&f);
    choose_views(&f);
    choose_values(&f);
    choose_grads(&f);
    choose_relu_grads(&f);
    choose_sums(&f);
}
