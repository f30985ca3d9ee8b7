/* layer_memory.c - lifetimes of the layers' values and gradients.
 *
 * Lifetimes are in units of layers: layer i of L runs forward at time i and backward at time 2L-1-i. */
#include "nn/layer_memory.h"

#include <assert.h>

#include "base/mem.h"

static int backward_time(const lk_layer_memory *memory, int layer)
{
    return 2 * memory->opts.graph->count - 1 - layer;
}

static const lk_layer *layer_at(const lk_layer_memory *memory, int index)
{
    return &memory->opts.graph->layers[index];
}

static int add_block(lk_layer_memory *memory, size_t bytes, int first, int last)
{
    memory->blocks[memory->block_count] = (lk_arena_block){.bytes = bytes, .first = first, .last = last};
    return (int)memory->block_count++;
}

static void extend(lk_layer_memory *memory, int block, int first, int last)
{
    lk_arena_block *b = &memory->blocks[block];
    b->first = first < b->first ? first : b->first;
    b->last = last > b->last ? last : b->last;
}

/* A layer's value, or its gradient, without memory. With a pooling these are the pooling's. */
static lk_tensor value_of(const lk_layer_memory *memory, int index)
{
    int pool = memory->opts.choices[index].pool;
    const lk_layer *layer = layer_at(memory, pool >= 0 ? pool : index);
    lk_tensor tensor = {.dtype = memory->opts.dev->values, .shape = layer->shape};
    tensor.pitch = lk__device_pitch(memory->opts.dev, layer->shape.c);
    if (memory->opts.choices[index].view) {
        lk_shape x = lk__op_input_shape(memory->opts.graph, layer, 0);
        tensor.pitch = x.h * x.w * lk__device_pitch(memory->opts.dev, x.c);
    }
    return tensor;
}

static size_t value_bytes(const lk_layer_memory *memory, int layer)
{
    lk_tensor value = value_of(memory, layer);
    return memory->opts.capacity * lk__tensor_stride(&value);
}

/* What a layer saves is in use until the backward pass of the layer that computes it. */
static void add_saved_block(lk_layer_memory *memory, int i)
{
    const lk_layer *layer = layer_at(memory, i);
    int by = memory->opts.choices[i].forward;
    size_t floats =
        layer->op->saved ? layer->op->saved(memory->opts.dev, layer, memory->opts.capacity, memory->opts.shards) : 0;
    if (floats)
        memory->layers[i].saved =
            add_block(memory, floats * sizeof(float), i, backward_time(memory, by >= 0 && by < i ? by : i));
}

static void add_value_blocks(lk_layer_memory *memory)
{
    int input = memory->opts.first - 1, output = memory->opts.last - 1;
    memory->layers[input].value = add_block(memory, value_bytes(memory, input), input, input);
    for (int i = memory->opts.first; i < memory->opts.last; i++) {
        const lk_layer *layer = layer_at(memory, i);
        const lk_fuse_choice *chosen = &memory->opts.choices[i];
        lk_layer_blocks *this = &memory->layers[i];
        if (chosen->value != i)
            this->value = memory->layers[chosen->value].value;
        else if (!layer->op->is_loss)
            this->value = add_block(memory, value_bytes(memory, i), i, i);
        if (layer->op->flags & LK_OP_READS_Y && !chosen->backward_elsewhere)
            extend(memory, this->value, i, backward_time(memory, i));
        for (int j = 0; j < layer->input_count; j++)
            extend(memory, memory->layers[layer->inputs[j]].value, i,
                   layer->op->flags & LK_OP_READS_X ? backward_time(memory, i) : i);
        add_saved_block(memory, i);
        if (memory->opts.kept && memory->opts.kept[i])
            extend(memory, this->value, i, output);
    }
    /* The output is needed until the next stage has sent its gradient back. */
    if (memory->layers[output].value >= 0)
        extend(memory, memory->layers[output].value, output, backward_time(memory, output));
}

/* The terms of an addition that a layer does at its time `now`. */
static void keep_rest(lk_layer_memory *memory, const lk_fuse_choice *chosen, int now)
{
    int from = chosen->rest, signs = chosen->signs;
    assert(memory->layers[from].adds[0]);
    extend(memory, memory->layers[from].temp[0], now, now);
    if (signs >= 0)
        memory->layers[signs].signs = add_block(memory, value_bytes(memory, signs) / 16, signs, now);
    else if (memory->opts.choices[from].mask_sum)
        extend(memory, memory->layers[layer_at(memory, from)->inputs[0]].value, now, now);
}

/* Goes backward through the layers. The first layer that writes an input's gradient writes it directly; later
 * ones add to it. */
static void add_grad_blocks(lk_layer_memory *memory, bool *written)
{
    int output = memory->opts.last - 1, end = backward_time(memory, output);
    if (!layer_at(memory, output)->op->is_loss && memory->opts.choices[output].needs_grad)
        memory->layers[output].grad = add_block(memory, value_bytes(memory, output), end, end);
    for (int i = output; i >= memory->opts.first; i--) {
        const lk_layer *layer = layer_at(memory, i);
        lk_layer_blocks *this = &memory->layers[i];
        int now = layer->op->is_loss ? i : backward_time(memory, i);
        if (!memory->opts.choices[i].needs_grad)
            continue;
        if (memory->opts.choices[i].rest >= 0)
            keep_rest(memory, &memory->opts.choices[i], now);
        for (int j = 0; j < layer->input_count; j++) {
            int index = layer->inputs[j];
            lk_layer_blocks *input = &memory->layers[index];
            if (!memory->opts.choices[index].needs_grad)
                continue;
            if (!written[index] && memory->opts.choices[index].grad != index) {
                input->grad = this->grad;
            } else if (!written[index]) {
                input->grad = add_block(memory, value_bytes(memory, index), now, now);
            } else if (layer->op->flags & LK_OP_ADDS_DX) {
                this->add = true;
            } else {
                this->adds[j] = true;
                this->temp[j] = add_block(memory, value_bytes(memory, index), now, now);
            }
            written[index] = true;
            extend(memory, input->grad, now, backward_time(memory, index));
        }
    }
}

lk_status lk__layer_memory_init(lk_layer_memory *memory, const lk_layer_memory_opts *opts)
{
    size_t layers = (size_t)opts->graph->count;
    bool *written;
    memory->opts = *opts;
    LK_TRY(LK_ALLOC(layers, "memory plan", &memory->layers));
    LK_TRY(LK_ALLOC(layers * (2 * LK_MAX_INPUTS + 2) + 1, "memory plan", &memory->blocks));
    LK_TRY(LK_ALLOC(layers, "memory plan", &written));
    for (size_t i = 0; i < layers; i++) {
        lk_layer_blocks *this = &memory->layers[i];
        this->value = this->grad = this->saved = this->signs = -1;
        for (int j = 0; j < LK_MAX_INPUTS; j++)
            this->temp[j] = -1;
    }
    add_value_blocks(memory);
    add_grad_blocks(memory, written);
    lk__mem_free(written);
    return lk__arena_pack(memory->blocks, memory->block_count, &memory->bytes);
}

void lk__layer_memory_fini(lk_layer_memory *memory)
{
    lk__mem_free(memory->blocks);
    lk__mem_free(memory->layers);
}

lk_tensor lk__layer_memory_tensor(const lk_layer_memory *memory, char *arena, int block, int layer)
{
    lk_tensor tensor = value_of(memory, layer);
    if (block >= 0)
        tensor.data = arena + memory->blocks[block].offset;
    return tensor;
}
