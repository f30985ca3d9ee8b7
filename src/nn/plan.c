/* plan.c - compiles a graph and runs its calls. */
#include "nn/plan.h"

#include <string.h>

#include "base/mem.h"
#include "base/trace.h"
#include "nn/frozen.h"
#include "nn/fuse.h"
#include "nn/layer_memory.h"

/* The largest activation, in bytes. */
static const size_t MAX_BLOCK = (size_t)1 << 46;

struct lk_plan {
    const lk_graph *graph;
    lk_params *params;
    lk_device *dev;
    lk_plan_opts opts;
    lk_frozen frozen;
    lk_fuse_choice *choices;
    lk_layer_memory memory;
    lk_op_call *calls;                /* (lanes, layers) templates; n is set for each wave */
    lk_tensor (*adds)[LK_MAX_INPUTS]; /* (lanes, layers) the gradient to which a temporary dx is added */
    size_t sum_floats, scratch_bytes;
    size_t arena_room;    /* bytes allocated for a lane: memory.bytes or more */
    size_t widest;        /* floats of the largest entry of sums */
    char *arena;          /* (lanes, memory.bytes), device */
    float *sums;          /* device */
    float *gathered;      /* (all_roots, widest), device */
    float *class_weights; /* (classes), device; NULL: none, or the loss is not in the plan */
    void *scratch;        /* device */
};

static const lk_layer *layer_at(const lk_plan *plan, int index)
{
    return &plan->graph->layers[index];
}

/* Floats of one layer's partial sums and totals of one kind. */
static size_t sum_floats(const lk_plan *plan, const lk_layer *layer)
{
    size_t slots = (size_t)(plan->opts.slots + plan->opts.total_slots);
    return lk__size_round_up(layer->op->sum_width(layer) * slots, LK_ALIGN / sizeof(float));
}

static void size_scratch(lk_plan *plan)
{
    for (int i = plan->opts.first; i < plan->opts.last; i++) {
        const lk_layer *layer = layer_at(plan, i);
        if (layer->op->sum_width) {
            plan->sum_floats += LK_OP_SUM_COUNT * sum_floats(plan, layer);
            plan->widest = lk__size_max(plan->widest, layer->op->sum_width(layer));
        }
        if (!layer->op->scratch)
            continue;
        lk_shape x = layer_at(plan, layer->inputs[0])->shape;
        lk_shape y = layer->shape;
        x.n = y.n = plan->opts.capacity;
        plan->scratch_bytes = lk__size_max(plan->scratch_bytes, layer->op->scratch(plan->dev, layer, x, y));
    }
}

static lk_tensor tensor_in(const lk_plan *plan, int lane, int block, int layer)
{
    return lk__layer_memory_tensor(&plan->memory, plan->arena + (size_t)lane * plan->memory.bytes, block, layer);
}

static void bind_params(const lk_plan *plan, const lk_layer *layer, lk_op_call *call)
{
    lk_params *params = plan->params;
    for (int slot = 0; slot < layer->param_count; slot++) {
        size_t offset = params->param_offset[layer->index][slot];
        call->param[slot] = params->params + offset;
        call->value[slot] = (char *)params->values + offset * lk_dtype_size(plan->dev->values);
        if (!lk__frozen_skips(&plan->frozen, layer, slot))
            call->grad[slot] = (lk_partials){params->grads + offset, params->count};
    }
    for (int slot = 0; slot < layer->buffer_count; slot++)
        call->buffer[slot] = params->buffers + params->buffer_offset[layer->index][slot];
}

/* The sums of a layer are consecutive in memory; returns the end of them. The partial sum of a rank alone is the
 * total. */
static float *bind_sums(const lk_plan *plan, const lk_layer *layer, float *at, lk_op_call *call)
{
    size_t width = layer->op->sum_width(layer);
    for (int which = 0; which < LK_OP_SUM_COUNT; which++) {
        call->partial[which] = call->total[which] = (lk_partials){at, width};
        if (plan->opts.hooks.gather)
            call->total[which].slot0 += width * (size_t)plan->opts.slots;
        at += sum_floats(plan, layer);
    }
    return at;
}

/* The addition that completes a layer's dy. It is of the dx of a layer with one input. */
static lk_batchnorm_addition rest_of(const lk_plan *plan, int lane, const lk_fuse_choice *chosen)
{
    const lk_layer_blocks *layers = plan->memory.layers;
    int input = layer_at(plan, chosen->rest)->inputs[0];
    lk_batchnorm_addition rest = {.part = tensor_in(plan, lane, layers[chosen->rest].temp[0], input)};
    if (chosen->signs >= 0)
        rest.signs = tensor_in(plan, lane, layers[chosen->signs].signs, input).data;
    else if (plan->choices[chosen->rest].mask_sum)
        rest.mask = tensor_in(plan, lane, layers[input].value, input);
    return rest;
}

static void bind_layer(lk_plan *plan, int lane, int i)
{
    const lk_layer *layer = layer_at(plan, i);
    const lk_fuse_choice *chosen = &plan->choices[i];
    const lk_layer_blocks *this = &plan->memory.layers[i];
    size_t at = (size_t)(lane * plan->graph->count + i);
    lk_op_call *call = &plan->calls[at];
    *call = (lk_op_call){.dev = plan->dev,
                         .k = plan->dev->kernels,
                         .layer = layer,
                         .relu = chosen->relu,
                         .six = chosen->six,
                         .relu_grad = chosen->relu_grad,
                         .mask = chosen->mask};
    call->shards = plan->opts.shards;
    call->add = this->add;
    call->scores = layer->op->is_loss && plan->choices[layer->inputs[0]].view;
    call->class_weights = plan->class_weights;
    call->scratch = plan->scratch;
    call->y = tensor_in(plan, lane, this->value, i);
    if (chosen->dropout >= 0)
        call->dropout = layer_at(plan, chosen->dropout);
    if (chosen->masked_dropout >= 0)
        call->masked_dropout = layer_at(plan, chosen->masked_dropout);
    if (chosen->other >= 0)
        call->other = tensor_in(plan, lane, plan->memory.layers[chosen->other].value, chosen->other);
    call->dy = tensor_in(plan, lane, this->grad, i);
    if (chosen->rest >= 0)
        call->rest = rest_of(plan, lane, chosen);
    call->signs = tensor_in(plan, lane, this->signs, i).data;
    if (chosen->pool >= 0) {
        call->pool = layer_at(plan, chosen->pool);
        call->pool_index = tensor_in(plan, lane, plan->memory.layers[chosen->pool].saved, i).data;
    }
    call->saved = tensor_in(plan, lane, this->saved, i).data;
    for (int j = 0; j < layer->input_count && i >= plan->opts.first; j++) {
        int index = layer->inputs[j];
        int grad = plan->memory.layers[index].grad;
        call->x[j] = tensor_in(plan, lane, plan->memory.layers[index].value, index);
        call->dx[j] = tensor_in(plan, lane, this->adds[j] ? this->temp[j] : grad, index);
        plan->adds[at][j] = tensor_in(plan, lane, grad, index);
    }
}

/* The call of the input has only a value and a gradient. */
static void bind_calls(lk_plan *plan)
{
    for (int lane = 0; lane < plan->opts.lanes; lane++) {
        float *sums = plan->sums;
        bind_layer(plan, lane, plan->opts.first - 1);
        for (int i = plan->opts.first; i < plan->opts.last; i++) {
            const lk_layer *layer = layer_at(plan, i);
            lk_op_call *call = &plan->calls[lane * plan->graph->count + i];
            bind_layer(plan, lane, i);
            bind_params(plan, layer, call);
            if (layer->op->sum_width)
                sums = bind_sums(plan, layer, sums, call);
        }
    }
}

/* Limits sizes so that no later product or sum of sizes overflows. */
static lk_status check_sizes(const lk_plan *plan)
{
    for (int i = plan->opts.first - 1; i < plan->opts.last; i++) {
        const lk_layer *layer = layer_at(plan, i);
        if (lk__shape_sample(layer->shape) > MAX_BLOCK / sizeof(float) / plan->opts.capacity)
            return lk__fail(LK_STATUS_MEMORY, "layer %d (%s) would need over %zu bytes for %zu samples of %zux%zux%zu",
                            i, layer->op->name, MAX_BLOCK, plan->opts.capacity, layer->shape.c, layer->shape.h,
                            layer->shape.w);
    }
    return LK_OK;
}

static lk_status check_device(const lk_plan *plan)
{
    for (int i = plan->opts.first; i < plan->opts.last; i++) {
        const lk_layer *layer = layer_at(plan, i);
        if (layer->op->supports)
            LK_TRY(layer->op->supports(plan->dev, layer));
    }
    return LK_OK;
}

static size_t gathered_floats(const lk_plan *plan)
{
    return plan->opts.hooks.gather ? (size_t)plan->opts.all_roots * plan->widest : 0;
}

static lk_status place_class_weights(lk_plan *plan)
{
    const lk_graph *graph = plan->graph;
    const lk_device_type *type = plan->dev->type;
    size_t bytes = graph->classes * sizeof *graph->class_weights;
    if (!graph->class_weights || plan->opts.last < graph->count)
        return LK_OK;
    LK_TRY(type->alloc(plan->dev, bytes, "class weights", (void **)&plan->class_weights));
    return type->upload(plan->dev, graph->class_weights, bytes, plan->class_weights);
}

static lk_status alloc_memory(lk_plan *plan)
{
    const lk_device_type *type = plan->dev->type;
    size_t gathered = gathered_floats(plan);
    plan->arena_room = plan->memory.bytes;
    LK_TRY(type->alloc(plan->dev, plan->memory.bytes * (size_t)plan->opts.lanes, "activations", (void **)&plan->arena));
    LK_TRY(type->alloc(plan->dev, plan->sum_floats * sizeof(float), "partial sums", (void **)&plan->sums));
    LK_TRY(type->alloc(plan->dev, gathered * sizeof(float), "partial sums", (void **)&plan->gathered));
    LK_TRY(place_class_weights(plan));
    return type->alloc(plan->dev, plan->scratch_bytes, "kernel scratch", &plan->scratch);
}

/* All choices that do not need memory. */
static lk_status choose(lk_plan *plan)
{
    LK_TRY(check_sizes(plan));
    LK_TRY(check_device(plan));
    LK_TRY(LK_ALLOC((size_t)plan->graph->count, "plan", &plan->choices));
    lk_fuse_opts fuse = {.graph = plan->graph,
                         .type = plan->dev->type,
                         .first = plan->opts.first,
                         .last = plan->opts.last,
                         .kept = plan->opts.kept,
                         .frozen = plan->frozen.slots,
                         .input_grads = plan->opts.input_grads};
    lk__fuse(&fuse, plan->choices);
    lk_layer_memory_opts memory = {.graph = plan->graph,
                                   .dev = plan->dev,
                                   .choices = plan->choices,
                                   .first = plan->opts.first,
                                   .last = plan->opts.last,
                                   .capacity = plan->opts.capacity,
                                   .shards = plan->opts.shards,
                                   .kept = plan->opts.kept};
    LK_TRY(lk__layer_memory_init(&plan->memory, &memory));
    size_scratch(plan);
    return LK_OK;
}

static lk_status compile(lk_plan *plan)
{
    size_t layers = (size_t)plan->graph->count, lanes = (size_t)plan->opts.lanes;
    LK_TRY(choose(plan));
    LK_TRY(LK_ALLOC(layers * lanes, "plan", &plan->calls));
    LK_TRY(LK_ALLOC(layers * lanes, "plan", &plan->adds));
    LK_TRY(alloc_memory(plan));
    bind_calls(plan);
    return LK_OK;
}

lk_status lk__plan_measure(const lk_graph *graph, lk_device *dev, const lk_plan_opts *opts, lk_plan_size *out)
{
    lk_plan *plan;
    LK_TRY(LK_ALLOC(1, "plan", &plan));
    plan->graph = graph;
    plan->dev = dev;
    plan->opts = *opts;
    lk_status status = choose(plan);
    if (status == LK_OK)
        *out = (lk_plan_size){.activations = plan->memory.bytes * (size_t)opts->lanes,
                              .sums = (plan->sum_floats + gathered_floats(plan)) * sizeof(float),
                              .scratch = plan->scratch_bytes};
    lk__plan_destroy(plan);
    return status;
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

/* Compiles `next`, whose frozen parameters are set, to use the memory of `plan`, and a larger arena if it needs one. */
static lk_status recompile(const lk_plan *plan, lk_plan *next)
{
    size_t calls = (size_t)plan->graph->count * (size_t)plan->opts.lanes;
    LK_TRY(choose(next));
    LK_TRY(LK_ALLOC(calls, "plan", &next->calls));
    LK_TRY(LK_ALLOC(calls, "plan", &next->adds));
    if (next->memory.bytes > plan->arena_room) {
        next->arena_room = next->memory.bytes;
        return plan->dev->type->alloc(plan->dev, next->arena_room * (size_t)plan->opts.lanes, "activations",
                                      (void **)&next->arena);
    }
    return LK_OK;
}

/* Gives the memory of `plan` to `next`; they then change places. */
static void replace(lk_plan *plan, lk_plan *next)
{
    lk_plan old = *plan;
    if (!next->arena) {
        next->arena = old.arena;
        next->arena_room = old.arena_room;
        old.arena = NULL;
    }
    next->sums = old.sums;
    next->gathered = old.gathered;
    next->class_weights = old.class_weights;
    next->scratch = old.scratch;
    old.sums = old.gathered = old.class_weights = NULL;
    old.scratch = NULL;
    *plan = *next;
    *next = old;
    bind_calls(plan);
}

lk_status lk__plan_freeze(lk_plan *plan, const unsigned *frozen)
{
    lk_plan *next;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "plan", &next));
    *next = (lk_plan){.graph = plan->graph, .params = plan->params, .dev = plan->dev, .opts = plan->opts};
    LK_TRY_GOTO(lk__frozen_init(&next->frozen, plan->graph, plan->dev, frozen), destroy_next);
    LK_TRY_GOTO(recompile(plan, next), destroy_next);
    replace(plan, next);

destroy_next:
    lk__plan_destroy(next);
    return status;
}

void lk__plan_destroy(lk_plan *plan)
{
    if (!plan)
        return;
    const lk_device_type *type = plan->dev->type;
    lk__frozen_fini(&plan->frozen);
    type->free(plan->dev, plan->scratch);
    type->free(plan->dev, plan->class_weights);
    type->free(plan->dev, plan->gathered);
    type->free(plan->dev, plan->sums);
    type->free(plan->dev, plan->arena);
    lk__layer_memory_fini(&plan->memory);
    lk__mem_free(plan->adds);
    lk__mem_free(plan->calls);
    lk__mem_free(plan->choices);
    lk__mem_free(plan);
}

/* The template of a layer in a lane. */
static const lk_op_call *call_at(const lk_plan *plan, int lane, int layer)
{
    return &plan->calls[lane * plan->graph->count + layer];
}

lk_tensor lk__plan_input(const lk_plan *plan, int lane)
{
    return call_at(plan, lane, plan->opts.first - 1)->y;
}

lk_tensor lk__plan_input_grad(const lk_plan *plan, int lane)
{
    return call_at(plan, lane, plan->opts.first - 1)->dy;
}

lk_tensor lk__plan_output(const lk_plan *plan, int lane)
{
    return call_at(plan, lane, plan->opts.last - 1)->y;
}

lk_tensor lk__plan_output_grad(const lk_plan *plan, int lane)
{
    return call_at(plan, lane, plan->opts.last - 1)->dy;
}

lk_tensor lk__plan_value(const lk_plan *plan, int lane, int layer)
{
    lk_tensor value = tensor_in(plan, lane, plan->memory.layers[layer].value, layer);
    if (plan->choices[layer].view) {
        value.shape = lk__op_input_shape(plan->graph, layer_at(plan, layer), 0);
        value.pitch = lk__device_pitch(plan->dev, value.shape.c);
    }
    return value;
}

/* Whether this layer's value is the plan's input, or a view of it. */
static bool is_input(const lk_plan *plan, int layer)
{
    while (layer >= plan->opts.first && plan->choices[layer].view)
        layer = plan->graph->layers[layer].inputs[0];
    return layer < plan->opts.first;
}

bool lk__plan_takes_samples(const lk_plan *plan)
{
    return plan->dev->type->host_memory && plan->dev->values == LK_DTYPE_F32 && !plan->dev->type->pitch &&
           plan->opts.first == 1 && !is_input(plan, plan->opts.last - 1);
}

static void read_samples(const lk_plan *plan, lk_op_call *call)
{
    const lk_layer *layer = call->layer;
    void *samples = (void *)(uintptr_t)call->wave->samples;
    for (int j = 0; j < layer->input_count; j++)
        if (is_input(plan, layer->inputs[j]))
            call->x[j].data = samples;
    if (call->other.data && is_input(plan, plan->choices[layer->index].other))
        call->other.data = samples;
}

/* The layer's call for this wave. */
static lk_op_call call_for(const lk_plan *plan, int layer, const lk_op_wave *wave)
{
    lk_op_call call = *call_at(plan, wave->lane, layer);
    call.wave = wave;
    if (wave->samples)
        read_samples(plan, &call);
    call.y.shape.n = call.dy.shape.n = call.other.shape.n = wave->n;
    call.rest.part.shape.n = call.rest.mask.shape.n = wave->n;
    for (int j = 0; j < LK_MAX_INPUTS; j++)
        call.x[j].shape.n = call.dx[j].shape.n = wave->n;
    return call;
}

/* Computes the layer's total from the partial sums of all ranks. */
static lk_status total_sums(lk_plan *plan, const lk_op_call *call, lk_op_sum which)
{
    const lk_op *op = call->layer->op;
    if (call->total[which].slot0 == call->partial[which].slot0)
        return LK_OK;
    const lk_plan_hooks *hooks = &plan->opts.hooks;
    const float *entries = call->partial[which].slot0;
    if (hooks->gather) {
        LK_TRY(hooks->gather(hooks->arg, entries, op->sum_width(call->layer), plan->gathered));
        entries = plan->gathered;
    }
    op->fold_sums(call, which, entries);
    return LK_OK;
}

/* A search uses the totals of the step that it repeats. */
static lk_status run_sums(lk_plan *plan, const lk_op_call *call, lk_op_sum which)
{
    if (!call->layer->op->sum_width || !call->wave->train)
        return LK_OK;
    call->layer->op->add_sums(call, which);
    if (call->wave->bn == LK_BN_MODE_SHARD || call->wave->search >= 0)
        return LK_OK;
    return total_sums(plan, call, which);
}

static lk_status report_done(const lk_plan *plan, const lk_op_wave *wave, size_t done)
{
    const lk_plan_hooks *hooks = &plan->opts.hooks;
    return hooks->layer_done ? hooks->layer_done(hooks->arg, wave, done) : LK_OK;
}

/* A layer's name in traces. */
static const char *trace_name(const lk_layer *layer)
{
    return *layer->name ? layer->name : layer->op->name;
}

lk_status lk__plan_forward(lk_plan *plan, const lk_op_wave *wave)
{
    for (int i = plan->opts.first; i < plan->opts.last; i++) {
        if (plan->choices[i].forward < 0 || (wave->no_loss && layer_at(plan, i)->op->is_loss))
            continue;
        lk_op_call call = call_for(plan, plan->choices[i].forward, wave);
        const char *name = trace_name(call.layer);
        double began = lk__trace_begin_label(LK_TRACE_KIND_FORWARD, name, i);
        LK_TRY(run_sums(plan, &call, LK_OP_SUM_FORWARD));
        call.layer->op->forward(&call);
        LK_TRY(report_done(plan, wave, 0));
        lk__trace_end(LK_TRACE_KIND_FORWARD, name, i, began);
    }
    return LK_OK;
}

static void add_inputs(const lk_plan *plan, int layer, const lk_op_call *call)
{
    if (plan->choices[layer].sum_elsewhere)
        return;
    for (int j = 0; j < call->layer->input_count; j++) {
        if (!plan->memory.layers[layer].adds[j])
            continue;
        lk_tensor sum = plan->adds[call->wave->lane * plan->graph->count + layer][j];
        sum.shape.n = call->wave->n;
        if (plan->choices[layer].mask_sum)
            call->k->add_masked(call->dev, &sum, &call->dx[j], &call->x[j], &sum);
        else
            call->k->add(call->dev, &sum, &call->dx[j], false, &sum);
    }
}

/* Elements of the flat array up to the end of a layer's parameters. */
static size_t grads_end(const lk_plan *plan, const lk_layer *layer, size_t before)
{
    if (layer->param_count == 0)
        return before;
    return lk__params_end(plan->params, layer, 0);
}

lk_status lk__plan_backward(lk_plan *plan, const lk_op_wave *wave)
{
    size_t done = 0;
    for (int i = plan->opts.last - 1; i >= plan->opts.first; i--) {
        if (!plan->choices[i].needs_grad || plan->choices[i].backward_elsewhere || plan->choices[i].view)
            continue;
        lk_op_call call = call_for(plan, i, wave);
        const char *name = trace_name(call.layer);
        double began = lk__trace_begin_label(LK_TRACE_KIND_BACKWARD, name, i);
        LK_TRY(run_sums(plan, &call, LK_OP_SUM_BACKWARD));
        if (call.layer->op->backward)
            call.layer->op->backward(&call);
        add_inputs(plan, i, &call);
        lk__frozen_clear(&plan->frozen, &call);
        done = grads_end(plan, call.layer, done);
        LK_TRY(report_done(plan, wave, done));
        lk__trace_end(LK_TRACE_KIND_BACKWARD, name, i, began);
    }
    return LK_OK;
}

/* Layers whose running statistics are updated by one call of the device, at most. */
enum { RUNNING_UPDATES = 64 };

lk_status lk__plan_finish(lk_plan *plan, const lk_op_wave *wave)
{
    const lk_kernels *k = plan->dev->kernels;
    lk_batchnorm_update updates[RUNNING_UPDATES];
    size_t count = 0;
    for (int i = plan->opts.first; i < plan->opts.last; i++) {
        const lk_layer *layer = layer_at(plan, i);
        lk_op_call call = call_for(plan, i, wave);
        if (layer->op->sum_width && wave->bn == LK_BN_MODE_SHARD)
            LK_TRY(total_sums(plan, &call, LK_OP_SUM_FORWARD));
        if (!layer->op->running)
            continue;
        layer->op->running(&call, &updates[count++]);
        if (count == RUNNING_UPDATES) {
            k->batchnorm_running_update(plan->dev, count, updates, wave->flag);
            count = 0;
        }
    }
    if (count > 0)
        k->batchnorm_running_update(plan->dev, count, updates, wave->flag);
    return LK_OK;
}

void lk__plan_count(lk_plan *plan, int64_t steps)
{
    for (int i = plan->opts.first; i < plan->opts.last; i++) {
        if (layer_at(plan, i)->counts_batches)
            plan->params->batches[i] += steps;
    }
}
