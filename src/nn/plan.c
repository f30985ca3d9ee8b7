/* plan.c - compiling a graph and running the calls.
 *
 * Time, for lifetimes: layer i of L runs forward at i and backward at 2L-1-i. */
#include "nn/plan.h"

#include <string.h>

#include "base/mem.h"
#include "nn/place.h"

/* The largest activation, in bytes. */
static const size_t MAX_BLOCK = (size_t)1 << 46;

/* What compilation knows of one layer. Tables of layers are indexed alike. */
typedef struct layer_plan {
    int consumers;
    int value;                /* layer whose block holds y */
    int grad;                 /* layer whose block holds dy */
    bool needs_grad;          /* a parameter is in it or before it */
    bool relu;                /* applies the ReLU that follows */
    bool skipped;             /* forward is done by the layer before */
    bool mask;                /* takes the gradient of the ReLU before it */
    bool passes;              /* backward is done by the layer after */
    bool adds[LK_MAX_INPUTS]; /* dx goes to a temporary and is added */
    /* Blocks in the placed list, or -1. */
    int value_block, grad_block, saved_block;
    int temp_block[LK_MAX_INPUTS];
} layer_plan;

struct lk_plan {
    const lk_graph *graph;
    lk_params *params;
    lk_device *dev;
    lk_plan_opts opts;
    layer_plan *layers;
    lk_call *calls;                   /* (layers) templates; n is set per wave */
    lk_tensor (*sums)[LK_MAX_INPUTS]; /* (layers) where a temporary dx is added */
    lk_block *blocks;
    size_t block_count;
    size_t arena_bytes, carried_floats, scratch_bytes;
    char *arena;    /* device */
    float *carried; /* device */
    void *scratch;  /* device */
};

static int backward_time(const lk_plan *plan, int layer)
{
    return 2 * plan->graph->count - 1 - layer;
}

static const lk_layer *layer_at(const lk_plan *plan, int index)
{
    return &plan->graph->layers[index];
}

bool lk__graph_has_sums(const lk_graph *graph)
{
    for (int i = 0; i < graph->count; i++) {
        if (graph->layers[i].op->forward_sums)
            return true;
    }
    return false;
}

static void count_consumers(lk_plan *plan)
{
    for (int i = 0; i < plan->graph->count; i++) {
        const lk_layer *layer = layer_at(plan, i);
        plan->layers[i].needs_grad = layer->param_count > 0;
        for (int j = 0; j < layer->input_count; j++) {
            plan->layers[layer->inputs[j]].consumers++;
            plan->layers[i].needs_grad |= plan->layers[layer->inputs[j]].needs_grad;
        }
    }
}

/* A layer may overwrite its input when nobody else reads it: no other
 * consumer, and not the backward pass of the layer that made it. */
static bool may_overwrite(const lk_plan *plan, const lk_layer *layer)
{
    if (!layer->in_place)
        return false;
    const lk_layer *maker = layer_at(plan, layer->inputs[0]);
    return maker->input_count > 0 && plan->layers[maker->index].consumers == 1 && !(maker->op->flags & LK_OP_READS_Y);
}

static void choose_values(lk_plan *plan)
{
    for (int i = 0; i < plan->graph->count; i++) {
        const lk_layer *layer = layer_at(plan, i);
        layer_plan *this = &plan->layers[i];
        this->value = i;
        if (!may_overwrite(plan, layer))
            continue;
        layer_plan *maker = &plan->layers[layer->inputs[0]];
        this->value = maker->value;
        unsigned before = layer_at(plan, layer->inputs[0])->op->flags;
        if (layer->op->flags & LK_OP_IS_RELU && before & LK_OP_FUSES_RELU) {
            maker->relu = true;
            this->skipped = true;
        }
    }
}

/* Gradients of inputs share their layer's dy where backward works in place, or
 * hands dy on as it is: then one input's. */
static void choose_grads(lk_plan *plan)
{
    for (int i = 0; i < plan->graph->count; i++)
        plan->layers[i].grad = i;
    for (int i = plan->graph->count - 1; i >= 0; i--) {
        const lk_layer *layer = layer_at(plan, i);
        if (!layer->in_place && !(layer->op->flags & LK_OP_PASSES_GRAD))
            continue;
        for (int j = 0; j < layer->input_count; j++) {
            layer_plan *input = &plan->layers[layer->inputs[j]];
            if (input->consumers == 1 && input->needs_grad) {
                input->grad = plan->layers[i].grad;
                break;
            }
        }
    }
}

/* A ReLU that works in place leaves its gradient to its only consumer where that
 * one can zero dx by its x. */
static void choose_masks(lk_plan *plan)
{
    for (int i = 1; i < plan->graph->count; i++) {
        const lk_layer *layer = layer_at(plan, i), *before = layer_at(plan, layer->inputs[0]);
        layer_plan *relu = &plan->layers[before->index];
        if (!(layer->op->flags & LK_OP_MASKS_DX) || !(before->op->flags & LK_OP_IS_RELU) || relu->consumers != 1)
            continue;
        if (relu->needs_grad && plan->layers[before->inputs[0]].grad == relu->grad)
            relu->passes = plan->layers[i].mask = true;
    }
}

static int add_block(lk_plan *plan, size_t bytes, int first, int last)
{
    plan->blocks[plan->block_count] = (lk_block){.bytes = bytes, .first = first, .last = last};
    return (int)plan->block_count++;
}

static void extend(lk_plan *plan, int block, int first, int last)
{
    lk_block *b = &plan->blocks[block];
    b->first = first < b->first ? first : b->first;
    b->last = last > b->last ? last : b->last;
}

static size_t value_bytes(const lk_plan *plan, int layer)
{
    return plan->opts.capacity * lk__shape_sample(layer_at(plan, layer)->shape) * sizeof(float);
}

static void add_value_blocks(lk_plan *plan)
{
    for (int i = 0; i < plan->graph->count; i++) {
        const lk_layer *layer = layer_at(plan, i);
        layer_plan *this = &plan->layers[i];
        if (layer->op->is_loss)
            this->value_block = -1;
        else if (this->value == i)
            this->value_block = add_block(plan, value_bytes(plan, i), i, i);
        else
            this->value_block = plan->layers[this->value].value_block;
        if (layer->op->flags & LK_OP_READS_Y && !this->passes)
            extend(plan, this->value_block, i, backward_time(plan, i));
        for (int j = 0; j < layer->input_count; j++)
            extend(plan, plan->layers[layer->inputs[j]].value_block, i,
                   layer->op->flags & LK_OP_READS_X ? backward_time(plan, i) : i);
        if (layer->op->saved)
            this->saved_block =
                add_block(plan, layer->op->saved(layer, plan->opts.capacity, plan->opts.shards) * sizeof(float), i,
                          backward_time(plan, i));
    }
}

/* Walks backward; the first layer to write an input's gradient writes it
 * directly, later ones add to it. */
static void add_grad_blocks(lk_plan *plan, bool *written)
{
    for (int i = plan->graph->count - 1; i >= 0; i--) {
        const lk_layer *layer = layer_at(plan, i);
        layer_plan *this = &plan->layers[i];
        int now = backward_time(plan, i);
        if (!this->needs_grad || layer->input_count == 0)
            continue;
        for (int j = 0; j < layer->input_count; j++) {
            int index = layer->inputs[j];
            layer_plan *input = &plan->layers[index];
            if (!input->needs_grad)
                continue;
            if (input->grad != index)
                input->grad_block = this->grad_block;
            else if (!written[index])
                input->grad_block = add_block(plan, value_bytes(plan, index), now, now);
            else
                this->adds[j] = true;
            if (this->adds[j])
                this->temp_block[j] = add_block(plan, value_bytes(plan, index), now, now);
            written[index] = true;
            extend(plan, input->grad_block, now, backward_time(plan, index));
        }
    }
}

static lk_status place_memory(lk_plan *plan)
{
    size_t layers = (size_t)plan->graph->count;
    bool *written;
    LK_TRY(LK_ALLOC(layers * (2 * LK_MAX_INPUTS + 2), "memory plan", &plan->blocks));
    LK_TRY(LK_ALLOC(layers, "memory plan", &written));
    for (size_t i = 0; i < layers; i++) {
        layer_plan *this = &plan->layers[i];
        this->value_block = this->grad_block = this->saved_block = -1;
        for (int j = 0; j < LK_MAX_INPUTS; j++)
            this->temp_block[j] = -1;
    }
    add_value_blocks(plan);
    add_grad_blocks(plan, written);
    lk__free(written);
    return lk__place(plan->blocks, plan->block_count, &plan->arena_bytes);
}

static void size_scratch(lk_plan *plan)
{
    for (int i = 0; i < plan->graph->count; i++) {
        const lk_layer *layer = layer_at(plan, i);
        if (layer->op->carried)
            plan->carried_floats += lk__round_up(layer->op->carried(layer, plan->opts.slots), LK_ALIGN / sizeof(float));
        if (!layer->op->scratch)
            continue;
        lk_shape x = layer_at(plan, layer->inputs[0])->shape;
        lk_shape y = layer->shape;
        x.n = y.n = plan->opts.capacity;
        plan->scratch_bytes = lk__max_size(plan->scratch_bytes, layer->op->scratch(plan->dev, layer, x, y));
    }
}

static lk_tensor tensor_in(const lk_plan *plan, int block, int layer)
{
    lk_tensor tensor = {.dtype = LK_DTYPE_F32, .shape = layer_at(plan, layer)->shape};
    if (block >= 0)
        tensor.data = plan->arena + plan->blocks[block].offset;
    return tensor;
}

static void bind_params(const lk_plan *plan, const lk_layer *layer, lk_call *call)
{
    lk_params *params = plan->params;
    for (int slot = 0; slot < layer->param_count; slot++) {
        size_t offset = params->param_offset[layer->index][slot];
        call->param[slot] = params->params + offset;
        call->grad[slot] = (lk_partials){params->grads + offset, params->count};
    }
    for (int slot = 0; slot < layer->buffer_count; slot++)
        call->buffer[slot] = params->buffers + params->buffer_offset[layer->index][slot];
}

static void bind_calls(lk_plan *plan)
{
    float *carried = plan->carried;
    for (int i = 0; i < plan->graph->count; i++) {
        const lk_layer *layer = layer_at(plan, i);
        const layer_plan *this = &plan->layers[i];
        lk_call *call = &plan->calls[i];
        *call = (lk_call){
            .dev = plan->dev, .k = plan->dev->kernels, .layer = layer, .relu = this->relu, .mask = this->mask};
        call->shards = plan->opts.shards;
        call->scratch = plan->scratch;
        call->y = tensor_in(plan, this->value_block, i);
        call->dy = tensor_in(plan, this->grad_block, i);
        call->saved = tensor_in(plan, this->saved_block, i).data;
        for (int j = 0; j < layer->input_count; j++) {
            int index = layer->inputs[j];
            int grad = plan->layers[index].grad_block;
            call->x[j] = tensor_in(plan, plan->layers[index].value_block, index);
            call->dx[j] = tensor_in(plan, this->adds[j] ? this->temp_block[j] : grad, index);
            plan->sums[i][j] = tensor_in(plan, grad, index);
        }
        bind_params(plan, layer, call);
        if (layer->op->carried) {
            call->carried = carried;
            carried += lk__round_up(layer->op->carried(layer, plan->opts.slots), LK_ALIGN / sizeof(float));
        }
    }
}

/* Keeps every later product and sum of sizes far from overflow. */
static lk_status check_sizes(const lk_plan *plan)
{
    for (int i = 0; i < plan->graph->count; i++) {
        const lk_layer *layer = layer_at(plan, i);
        if (lk__shape_sample(layer->shape) > MAX_BLOCK / sizeof(float) / plan->opts.capacity)
            return lk__fail(LK_STATUS_MEMORY, "layer %d (%s) would need over %zu bytes for %zu samples of %zux%zux%zu",
                            i, layer->op->name, MAX_BLOCK, plan->opts.capacity, layer->shape.c, layer->shape.h,
                            layer->shape.w);
    }
    return LK_OK;
}

static lk_status compile(lk_plan *plan)
{
    size_t layers = (size_t)plan->graph->count;
    LK_TRY(check_sizes(plan));
    LK_TRY(LK_ALLOC(layers, "plan", &plan->layers));
    LK_TRY(LK_ALLOC(layers, "plan", &plan->calls));
    LK_TRY(LK_ALLOC(layers, "plan", &plan->sums));
    count_consumers(plan);
    choose_values(plan);
    choose_grads(plan);
    choose_masks(plan);
    LK_TRY(place_memory(plan));
    size_scratch(plan);
    const lk_device_type *type = plan->dev->type;
    LK_TRY(type->alloc(plan->dev, plan->arena_bytes, "activations (a smaller --micro-batch needs less)",
                       (void **)&plan->arena));
    LK_TRY(type->alloc(plan->dev, plan->carried_floats * sizeof(float), "partial sums", (void **)&plan->carried));
    LK_TRY(type->alloc(plan->dev, plan->scratch_bytes, "kernel scratch", &plan->scratch));
    bind_calls(plan);
    return LK_OK;
}

lk_status lk__plan_create(const lk_graph *graph, lk_params *params, const lk_plan_opts *opts, lk_plan **out)
{
    lk_plan *plan;
    LK_TRY(LK_ALLOC(1, "plan", &plan));
    plan->graph = graph;
    plan->params = params;
    plan->dev = params->dev;
    plan->opts = *opts;
    lk_status status = compile(plan);
    if (status != LK_OK) {
        lk__plan_destroy(plan);
        return status;
    }
    *out = plan;
    return LK_OK;
}

void lk__plan_destroy(lk_plan *plan)
{
    if (!plan)
        return;
    const lk_device_type *type = plan->dev->type;
    type->free(plan->dev, plan->scratch);
    type->free(plan->dev, plan->carried);
    type->free(plan->dev, plan->arena);
    lk__free(plan->blocks);
    lk__free(plan->sums);
    lk__free(plan->calls);
    lk__free(plan->layers);
    lk__free(plan);
}

float *lk__plan_input(const lk_plan *plan)
{
    return plan->calls[0].y.data;
}

/* The layer's call for this wave. */
static lk_call call_for(const lk_plan *plan, int layer, const lk_wave *wave)
{
    lk_call call = plan->calls[layer];
    call.wave = wave;
    call.y.shape.n = call.dy.shape.n = wave->n;
    for (int j = 0; j < LK_MAX_INPUTS; j++)
        call.x[j].shape.n = call.dx[j].shape.n = wave->n;
    return call;
}

void lk__plan_forward(lk_plan *plan, const lk_wave *wave)
{
    for (int i = 1; i < plan->graph->count; i++) {
        if (plan->layers[i].skipped)
            continue;
        const lk_op *op = layer_at(plan, i)->op;
        lk_call call = call_for(plan, i, wave);
        if (op->forward_sums && wave->train)
            op->forward_sums(&call);
        op->forward(&call);
    }
}

static void add_inputs(const lk_plan *plan, int layer, const lk_call *call)
{
    for (int j = 0; j < call->layer->input_count; j++) {
        if (!plan->layers[layer].adds[j])
            continue;
        lk_tensor sum = plan->sums[layer][j];
        sum.shape.n = call->wave->n;
        call->k->add(call->dev, &sum, &call->dx[j], false, &sum);
    }
}

void lk__plan_backward(lk_plan *plan, const lk_wave *wave)
{
    for (int i = plan->graph->count - 1; i > 0; i--) {
        if (!plan->layers[i].needs_grad || plan->layers[i].passes)
            continue;
        const lk_op *op = layer_at(plan, i)->op;
        lk_call call = call_for(plan, i, wave);
        if (op->backward_sums)
            op->backward_sums(&call);
        op->backward(&call);
        add_inputs(plan, i, &call);
    }
}

void lk__plan_finish(lk_plan *plan, const lk_wave *wave)
{
    for (int i = 1; i < plan->graph->count; i++) {
        const lk_layer *layer = layer_at(plan, i);
        lk_call call = call_for(plan, i, wave);
        if (layer->op->finish)
            layer->op->finish(&call);
        if (layer->counts_batches)
            plan->params->batches[i]++;
    }
}
