/* plan.c - compiles a graph and runs its calls.
 *
 * Lifetimes are in units of layers: layer i of L runs forward at time i and backward at time 2L-1-i. */
#include "nn/plan.h"

#include <string.h>

#include "base/mem.h"
#include "base/trace.h"
#include "nn/arena.h"
#include "nn/fuse.h"

/* The largest activation, in bytes. */
static const size_t MAX_BLOCK = (size_t)1 << 46;

/* Compilation's data for one layer. All tables of layers have the same indexes. */
typedef struct layer_plan {
    bool add;                 /* the layer adds to dx[0] itself */
    bool adds[LK_MAX_INPUTS]; /* dx is written to a temporary, which is then added */
    /* Indexes of blocks, or -1. */
    int value_block, grad_block, saved_block;
    int temp_block[LK_MAX_INPUTS];
} layer_plan;

struct lk_plan {
    const lk_graph *graph;
    lk_params *params;
    lk_device *dev;
    lk_plan_opts opts;
    lk_fuse_choice *choices;
    layer_plan *layers;
    lk_op_call *calls;                /* (lanes, layers) templates; n is set for each wave */
    lk_tensor (*adds)[LK_MAX_INPUTS]; /* (lanes, layers) the gradient to which a temporary dx is added */
    lk_arena_block *blocks;
    size_t block_count;
    size_t arena_bytes, sum_floats, scratch_bytes;
    size_t widest;   /* floats of the largest entry of sums */
    char *arena;     /* (lanes, arena_bytes), device */
    float *sums;     /* device */
    float *gathered; /* (all_roots, widest), device */
    void *scratch;   /* device */
};

static int backward_time(const lk_plan *plan, int layer)
{
    return 2 * plan->graph->count - 1 - layer;
}

static const lk_layer *layer_at(const lk_plan *plan, int index)
{
    return &plan->graph->layers[index];
}

static int add_block(lk_plan *plan, size_t bytes, int first, int last)
{
    plan->blocks[plan->block_count] = (lk_arena_block){.bytes = bytes, .first = first, .last = last};
    return (int)plan->block_count++;
}

static void extend(lk_plan *plan, int block, int first, int last)
{
    lk_arena_block *b = &plan->blocks[block];
    b->first = first < b->first ? first : b->first;
    b->last = last > b->last ? last : b->last;
}

/* A layer's value, or its gradient, without memory. */
static lk_tensor value_of(const lk_plan *plan, int index)
{
    const lk_layer *layer = layer_at(plan, index);
    lk_tensor tensor = {.dtype = plan->dev->values, .shape = layer->shape};
    tensor.pitch = lk__device_pitch(plan->dev, layer->shape.c);
    if (plan->choices[index].view) {
        lk_shape x = lk__op_input_shape(plan->graph, layer, 0);
        tensor.pitch = x.h * x.w * lk__device_pitch(plan->dev, x.c);
    }
    return tensor;
}

static size_t value_bytes(const lk_plan *plan, int layer)
{
    lk_tensor value = value_of(plan, layer);
    return plan->opts.capacity * lk__tensor_stride(&value);
}

static void add_saved_block(lk_plan *plan, int i)
{
    const lk_layer *layer = layer_at(plan, i);
    size_t floats = layer->op->saved ? layer->op->saved(plan->dev, layer, plan->opts.capacity, plan->opts.shards) : 0;
    if (floats)
        plan->layers[i].saved_block = add_block(plan, floats * sizeof(float), i, backward_time(plan, i));
}

static void add_value_blocks(lk_plan *plan)
{
    int input = plan->opts.first - 1, output = plan->opts.last - 1;
    plan->layers[input].value_block = add_block(plan, value_bytes(plan, input), input, input);
    for (int i = plan->opts.first; i < plan->opts.last; i++) {
        const lk_layer *layer = layer_at(plan, i);
        const lk_fuse_choice *chosen = &plan->choices[i];
        layer_plan *this = &plan->layers[i];
        if (chosen->value != i)
            this->value_block = plan->layers[chosen->value].value_block;
        else if (!layer->op->is_loss)
            this->value_block = add_block(plan, value_bytes(plan, i), i, i);
        if (layer->op->flags & LK_OP_READS_Y && !chosen->backward_elsewhere)
            extend(plan, this->value_block, i, backward_time(plan, i));
        for (int j = 0; j < layer->input_count; j++)
            extend(plan, plan->layers[layer->inputs[j]].value_block, i,
                   layer->op->flags & LK_OP_READS_X ? backward_time(plan, i) : i);
        add_saved_block(plan, i);
        if (plan->opts.kept && plan->opts.kept[i])
            extend(plan, this->value_block, i, output);
    }
    /* The output is needed until the next stage has sent its gradient back. */
    if (plan->layers[output].value_block >= 0)
        extend(plan, plan->layers[output].value_block, output, backward_time(plan, output));
}

/* Goes backward through the layers. The first layer that writes an input's gradient writes it directly; later
 * ones add to it. */
static void add_grad_blocks(lk_plan *plan, bool *written)
{
    int output = plan->opts.last - 1, end = backward_time(plan, output);
    if (!layer_at(plan, output)->op->is_loss && plan->choices[output].needs_grad)
        plan->layers[output].grad_block = add_block(plan, value_bytes(plan, output), end, end);
    for (int i = output; i >= plan->opts.first; i--) {
        const lk_layer *layer = layer_at(plan, i);
        layer_plan *this = &plan->layers[i];
        int now = layer->op->is_loss ? i : backward_time(plan, i);
        if (!plan->choices[i].needs_grad)
            continue;
        for (int j = 0; j < layer->input_count; j++) {
            int index = layer->inputs[j];
            layer_plan *input = &plan->layers[index];
            if (!plan->choices[index].needs_grad)
                continue;
            if (!written[index] && plan->choices[index].grad != index) {
                input->grad_block = this->grad_block;
            } else if (!written[index]) {
                input->grad_block = add_block(plan, value_bytes(plan, index), now, now);
            } else if (layer->op->flags & LK_OP_ADDS_DX) {
                this->add = true;
            } else {
                this->adds[j] = true;
                this->temp_block[j] = add_block(plan, value_bytes(plan, index), now, now);
            }
            written[index] = true;
            extend(plan, input->grad_block, now, backward_time(plan, index));
        }
    }
}

static lk_status assign_memory(lk_plan *plan)
{
    size_t layers = (size_t)plan->graph->count;
    bool *written;
    LK_TRY(LK_ALLOC(layers * (2 * LK_MAX_INPUTS + 2) + 1, "memory plan", &plan->blocks));
    LK_TRY(LK_ALLOC(layers, "memory plan", &written));
    for (size_t i = 0; i < layers; i++) {
        layer_plan *this = &plan->layers[i];
        this->value_block = this->grad_block = this->saved_block = -1;
        for (int j = 0; j < LK_MAX_INPUTS; j++)
            this->temp_block[j] = -1;
    }
    add_value_blocks(plan);
    add_grad_blocks(plan, written);
    lk__mem_free(written);
    return lk__arena_pack(plan->blocks, plan->block_count, &plan->arena_bytes);
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
    lk_tensor tensor = value_of(plan, layer);
    if (block >= 0)
        tensor.data = plan->arena + (size_t)lane * plan->arena_bytes + plan->blocks[block].offset;
    return tensor;
}

static void bind_params(const lk_plan *plan, const lk_layer *layer, lk_op_call *call)
{
    lk_params *params = plan->params;
    for (int slot = 0; slot < layer->param_count; slot++) {
        size_t offset = params->param_offset[layer->index][slot];
        call->param[slot] = params->params + offset;
        call->value[slot] = (char *)params->values + offset * lk_dtype_size(plan->dev->values);
        call->grad[slot] = (lk_partials){params->grads + offset, params->count};
    }
    for (int slot = 0; slot < layer->buffer_count; slot++)
        call->buffer[slot] = params->buffers + params->buffer_offset[layer->index][slot];
}

/* The sums of a layer are consecutive in memory; returns the end of them. */
static float *bind_sums(const lk_plan *plan, const lk_layer *layer, float *at, lk_op_call *call)
{
    size_t width = layer->op->sum_width(layer);
    for (int which = 0; which < LK_OP_SUM_COUNT; which++) {
        call->partial[which] = (lk_partials){at, width};
        call->total[which] = (lk_partials){at + width * (size_t)plan->opts.slots, width};
        at += sum_floats(plan, layer);
    }
    return at;
}

static void bind_layer(lk_plan *plan, int lane, int i)
{
    const lk_layer *layer = layer_at(plan, i);
    const lk_fuse_choice *chosen = &plan->choices[i];
    const layer_plan *this = &plan->layers[i];
    size_t at = (size_t)(lane * plan->graph->count + i);
    lk_op_call *call = &plan->calls[at];
    *call = (lk_op_call){
        .dev = plan->dev, .k = plan->dev->kernels, .layer = layer, .relu = chosen->relu, .mask = chosen->mask};
    call->shards = plan->opts.shards;
    call->add = this->add;
    call->scores = layer->op->is_loss && plan->choices[layer->inputs[0]].view;
    call->scratch = plan->scratch;
    call->y = tensor_in(plan, lane, this->value_block, i);
    if (chosen->dropout >= 0)
        call->dropout = layer_at(plan, chosen->dropout);
    if (chosen->other >= 0)
        call->other = tensor_in(plan, lane, plan->layers[chosen->other].value_block, chosen->other);
    call->dy = tensor_in(plan, lane, this->grad_block, i);
    call->saved = tensor_in(plan, lane, this->saved_block, i).data;
    for (int j = 0; j < layer->input_count && i >= plan->opts.first; j++) {
        int index = layer->inputs[j];
        int grad = plan->layers[index].grad_block;
        call->x[j] = tensor_in(plan, lane, plan->layers[index].value_block, index);
        call->dx[j] = tensor_in(plan, lane, this->adds[j] ? this->temp_block[j] : grad, index);
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

static size_t gathered_floats(const lk_plan *plan)
{
    return plan->opts.hooks.gather ? (size_t)plan->opts.all_roots * plan->widest : 0;
}

static lk_status alloc_memory(lk_plan *plan)
{
    const lk_device_type *type = plan->dev->type;
    size_t gathered = gathered_floats(plan);
    LK_TRY(type->alloc(plan->dev, plan->arena_bytes * (size_t)plan->opts.lanes, "activations", (void **)&plan->arena));
    LK_TRY(type->alloc(plan->dev, plan->sum_floats * sizeof(float), "partial sums", (void **)&plan->sums));
    LK_TRY(type->alloc(plan->dev, gathered * sizeof(float), "partial sums", (void **)&plan->gathered));
    return type->alloc(plan->dev, plan->scratch_bytes, "kernel scratch", &plan->scratch);
}

/* All choices that do not need memory. */
static lk_status choose(lk_plan *plan)
{
    LK_TRY(check_sizes(plan));
    LK_TRY(LK_ALLOC((size_t)plan->graph->count, "plan", &plan->layers));
    LK_TRY(LK_ALLOC((size_t)plan->graph->count, "plan", &plan->choices));
    lk_fuse_opts fuse = {plan->graph, plan->dev->type, plan->opts.first, plan->opts.last, plan->opts.kept};
    lk__fuse(&fuse, plan->choices);
    LK_TRY(assign_memory(plan));
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
        *out = (lk_plan_size){.activations = plan->arena_bytes * (size_t)opts->lanes,
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

void lk__plan_destroy(lk_plan *plan)
{
    if (!plan)
        return;
    const lk_device_type *type = plan->dev->type;
    type->free(plan->dev, plan->scratch);
    type->free(plan->dev, plan->gathered);
    type->free(plan->dev, plan->sums);
    type->free(plan->dev, plan->arena);
    lk__mem_free(plan->blocks);
    lk__mem_free(plan->adds);
    lk__mem_free(plan->calls);
    lk__mem_free(plan->layers);
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
    lk_tensor value = tensor_in(plan, lane, plan->layers[layer].value_block, layer);
    if (plan->choices[layer].view) {
        value.shape = lk__op_input_shape(plan->graph, layer_at(plan, layer), 0);
        value.pitch = lk__device_pitch(plan->dev, value.shape.c);
    }
    return value;
}

/* The layer's call for this wave. */
static lk_op_call call_for(const lk_plan *plan, int layer, const lk_op_wave *wave)
{
    lk_op_call call = *call_at(plan, wave->lane, layer);
    call.wave = wave;
    call.y.shape.n = call.dy.shape.n = call.other.shape.n = wave->n;
    for (int j = 0; j < LK_MAX_INPUTS; j++)
        call.x[j].shape.n = call.dx[j].shape.n = wave->n;
    return call;
}

/* Computes the layer's total from the partial sums of all ranks. */
static lk_status total_sums(lk_plan *plan, const lk_op_call *call, lk_op_sum which)
{
    const lk_op *op = call->layer->op;
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
    for (int j = 0; j < call->layer->input_count; j++) {
        if (!plan->layers[layer].adds[j])
            continue;
        lk_tensor sum = plan->adds[call->wave->lane * plan->graph->count + layer][j];
        sum.shape.n = call->wave->n;
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
        done = grads_end(plan, call.layer, done);
        LK_TRY(report_done(plan, wave, done));
        lk__trace_end(LK_TRACE_KIND_BACKWARD, name, i, began);
    }
    return LK_OK;
}

lk_status lk__plan_finish(lk_plan *plan, const lk_op_wave *wave)
{
    for (int i = plan->opts.first; i < plan->opts.last; i++) {
        const lk_layer *layer = layer_at(plan, i);
        lk_op_call call = call_for(plan, i, wave);
        if (layer->op->sum_width && wave->bn == LK_BN_MODE_SHARD)
            LK_TRY(total_sums(plan, &call, LK_OP_SUM_FORWARD));
        if (layer->op->finish)
            layer->op->finish(&call);
    }
    return LK_OK;
}

void lk__plan_count(lk_plan *plan, int64_t steps)
{
    for (int i = plan->opts.first; i < plan->opts.last; i++) {
        if (layer_at(plan, i)->counts_batches)
            plan->params->batches[i] += steps;
    }
}
