/* params.c - layout, initialisation, export and import of parameters. */
#include "nn/params.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "nn/init.h"
#include "nn/op.h"
#include "tensor/state.h"

enum { ALIGN_ELEMENTS = LK_ALIGN / sizeof(float) };

/* Fewer parameters are drawn sooner than threads start. */
enum { DRAWN_ALONE = 1 << 17 };

static const char batches_suffix[] = "num_batches_tracked";
static const lk_device_weight no_weight = {0};

/* The shape by which this device may reorder the parameter. */
static lk_device_weight weight_of(const lk_graph *graph, const lk_device *dev, const lk_layer *layer, int slot)
{
    lk_device_weight weight = layer->params[slot].weight;
    if (weight.out == 0 || weight.taps > 0)
        return weight;
    const lk_layer *input = &graph->layers[layer->inputs[0]];
    bool view = dev->type->flat_views && lk__graph_flat_view(graph, input);
    lk_shape flat = view ? lk__op_input_shape(graph, input, 0) : (lk_shape){.h = 1, .w = 1};
    weight.pixels = flat.h * flat.w;
    return weight;
}

size_t lk__params_elements(const lk_graph *graph, const lk_device *dev, const lk_layer *layer, int slot)
{
    lk_device_weight weight = weight_of(graph, dev, layer, slot);
    if (weight.out > 0 && dev->type->weight_count)
        return dev->type->weight_count(&weight);
    return lk__op_slot_count(&layer->params[slot]);
}

/* Elements including the gap after the parameter. */
static size_t param_room(const lk_graph *graph, const lk_device *dev, const lk_layer *layer, int slot)
{
    return lk__size_round_up(lk__params_elements(graph, dev, layer, slot), ALIGN_ELEMENTS);
}

static size_t buffer_room(const lk_op_slot *def)
{
    return lk__size_round_up(lk__op_slot_count(def), ALIGN_ELEMENTS);
}

size_t lk__params_end(const lk_params *params, const lk_layer *layer, int slot)
{
    return params->param_offset[layer->index][slot] + param_room(params->graph, params->dev, layer, slot);
}

static void lay_out(lk_params *params)
{
    const lk_graph *graph = params->graph;
    size_t offset = 0;
    for (int i = params->last - 1; i >= params->first; i--) {
        const lk_layer *layer = &graph->layers[i];
        for (int slot = layer->param_count - 1; slot >= 0; slot--) {
            params->param_offset[i][slot] = offset;
            offset += param_room(graph, params->dev, layer, slot);
        }
    }
    params->count = offset;
    size_t buffers = 0;
    for (int i = params->first; i < params->last; i++) {
        for (int slot = 0; slot < graph->layers[i].buffer_count; slot++) {
            params->buffer_offset[i][slot] = buffers;
            buffers += buffer_room(&graph->layers[i].buffers[slot]);
        }
    }
    params->buffer_count = buffers;
}

lk_params_size lk__params_measure(const lk_graph *graph, const lk_device *dev, int first, int last)
{
    lk_params_size size = {0};
    for (int i = first; i < last; i++) {
        const lk_layer *layer = &graph->layers[i];
        for (int slot = 0; slot < layer->param_count; slot++)
            size.count += param_room(graph, dev, layer, slot);
        for (int slot = 0; slot < layer->buffer_count; slot++)
            size.buffer_count += buffer_room(&layer->buffers[slot]);
    }
    return size;
}

/* If the value type is f32, values and params are the same array. */
static lk_status alloc_values(lk_params *params)
{
    lk_device *dev = params->dev;
    params->values = params->params;
    if (dev->values == LK_DTYPE_F32)
        return LK_OK;
    params->values = NULL;
    return dev->type->alloc(dev, params->count * lk_dtype_size(dev->values), "parameters", &params->values);
}

void lk__params_round(const lk_params *params, size_t begin, size_t end)
{
    lk_device *dev = params->dev;
    if (params->values == params->params)
        return;
    lk_shape row = {.n = 1, .c = end - begin, .h = 1, .w = 1};
    lk_tensor from = {.data = params->params + begin, .dtype = LK_DTYPE_F32, .shape = row};
    lk_tensor to = {
        .data = (char *)params->values + begin * lk_dtype_size(dev->values), .dtype = dev->values, .shape = row};
    dev->kernels->copy(dev, &from, &to);
}

static lk_status alloc_floats(lk_device *dev, size_t count, const char *what, float **out)
{
    return dev->type->alloc(dev, count * sizeof(float), what, (void **)out);
}

lk_status lk__params_create(const lk_graph *graph, lk_device *dev, int first, int last, lk_params **out)
{
    lk_params *params;
    LK_TRY(LK_ALLOC(1, "parameters", &params));
    *params = (lk_params){.graph = graph, .dev = dev, .first = first, .last = last};
    size_t layers = (size_t)graph->count;
    lk_status status;
    LK_TRY_GOTO(LK_ALLOC(layers, "parameter offsets", &params->param_offset), destroy_params);
    LK_TRY_GOTO(LK_ALLOC(layers, "buffer offsets", &params->buffer_offset), destroy_params);
    LK_TRY_GOTO(LK_ALLOC(layers, "batch counters", &params->batches), destroy_params);
    lay_out(params);
    LK_TRY_GOTO(alloc_floats(dev, params->count, "parameters", &params->params), destroy_params);
    LK_TRY_GOTO(alloc_values(params), destroy_params);
    LK_TRY_GOTO(dev->type->alloc(dev, sizeof *params->flag, "parameters", (void **)&params->flag), destroy_params);
    LK_TRY_GOTO(alloc_floats(dev, params->buffer_count, "buffers", &params->buffers), destroy_params);
    *out = params;
    return LK_OK;

destroy_params:
    lk__params_destroy(params);
    return status;
}

void lk__params_destroy(lk_params *params)
{
    if (!params)
        return;
    params->dev->type->free(params->dev, params->norm);
    params->dev->type->free(params->dev, params->squares);
    params->dev->type->free(params->dev, params->flag);
    params->dev->type->free(params->dev, params->buffers);
    if (params->values != params->params)
        params->dev->type->free(params->dev, params->values);
    params->dev->type->free(params->dev, params->params);
    lk__mem_free(params->batches);
    lk__mem_free(params->buffer_offset);
    lk__mem_free(params->param_offset);
    lk__mem_free(params);
}

/* Uploads from PyTorch's order to the device's. */
static lk_status put(lk_device *dev, const lk_device_weight *weight, size_t count, const float *values, float *dst)
{
    if (weight->out == 0 || !dev->type->pack)
        return dev->type->upload(dev, values, count * sizeof *values, dst);
    size_t packed_count = dev->type->weight_count(weight);
    float *packed;
    LK_TRY(LK_ALLOC(packed_count, "weights in the device's order", &packed));
    dev->type->pack(weight, values, packed);
    lk_status status = dev->type->upload(dev, packed, packed_count * sizeof *packed, dst);
    lk__mem_free(packed);
    return status;
}

/* Downloads from the device's order to PyTorch's. */
static lk_status take(lk_device *dev, const lk_device_weight *weight, const float *src, size_t count, float *values)
{
    if (weight->out == 0 || !dev->type->unpack)
        return dev->type->download(dev, src, count * sizeof *values, values);
    size_t packed_count = dev->type->weight_count(weight);
    float *packed;
    LK_TRY(LK_ALLOC(packed_count, "weights in the device's order", &packed));
    lk_status status = dev->type->download(dev, src, packed_count * sizeof *packed, packed);
    if (status == LK_OK)
        dev->type->unpack(weight, packed, values);
    lk__mem_free(packed);
    return status;
}

/* Whether the device stores the parameter in host memory and in PyTorch's order. */
static bool is_plain(const lk_device *dev, const lk_device_weight *weight)
{
    return dev->type->host_memory && (weight->out == 0 || !dev->type->pack);
}

static lk_status init_slot(lk_params *params, const lk_op_slot *def, const lk_device_weight *weight, const lk_rng *rng,
                           lk_pool *pool, float *dst)
{
    size_t count = lk__op_slot_count(def);
    if (count > LK_RNG_MAX_ELEMENT)
        return lk__fail(LK_STATUS_USAGE, "a parameter of %zu elements cannot be initialised; %llu is the limit", count,
                        (unsigned long long)LK_RNG_MAX_ELEMENT);
    if (is_plain(params->dev, weight)) {
        lk__init_draw(def, rng, pool, dst);
        return LK_OK;
    }
    float *values;
    LK_TRY(LK_ALLOC(count, "initial values", &values));
    lk__init_draw(def, rng, pool, values);
    lk_status status = put(params->dev, weight, count, values, dst);
    lk__mem_free(values);
    return status;
}

static lk_status init_layer(lk_params *params, int i, uint64_t seed, lk_pool *pool)
{
    const lk_layer *layer = &params->graph->layers[i];
    for (int slot = 0; slot < layer->param_count; slot++) {
        lk_rng rng = lk__rng(seed, LK_RNG_PURPOSE_INIT, (uint32_t)i, 0, (uint32_t)slot);
        lk_device_weight weight = weight_of(params->graph, params->dev, layer, slot);
        LK_TRY(init_slot(params, &layer->params[slot], &weight, &rng, pool,
                         params->params + params->param_offset[i][slot]));
    }
    for (int slot = 0; slot < layer->buffer_count; slot++)
        LK_TRY(init_slot(params, &layer->buffers[slot], &no_weight, NULL, pool,
                         params->buffers + params->buffer_offset[i][slot]));
    params->batches[i] = 0;
    return LK_OK;
}

lk_status lk__params_init(lk_params *params, uint64_t seed, int threads)
{
    lk_pool *pool;
    LK_TRY(lk__pool_create(params->count < DRAWN_ALONE ? 1 : threads, true, &pool));
    lk_status status = LK_OK;
    for (int i = params->first; i < params->last && status == LK_OK; i++)
        status = init_layer(params, i, seed, pool);
    lk__pool_destroy(pool);
    LK_TRY(status);
    lk__params_round(params, 0, params->count);
    return LK_OK;
}

/* One key of the graph. A walk visits the keys in PyTorch's order. */
typedef struct slot_visit {
    lk_params_key key;
    lk_device_weight weight; /* of a parameter; otherwise all zero */
    float *data;             /* device; NULL for a counter, and for a layer of another stage */
    int64_t *counter;        /* host; NULL for other keys, and for a layer of another stage */
} slot_visit;

typedef lk_status (*visit_fn)(const lk_params *params, const slot_visit *visit, void *arg);

/* A walk calls fn for every key; the key begins with `prefix` and a dot unless prefix is NULL. */
typedef struct walk {
    const lk_params *params;
    const char *prefix;
    visit_fn fn;
    void *arg;
} walk;

static bool is_here(const lk_params *params, const lk_layer *layer)
{
    return layer->index >= params->first && layer->index < params->last;
}

static void name_key(const walk *w, const lk_layer *layer, const char *suffix, char name[LK_MAX_ARRAY_KEY])
{
    char key[LK_MAX_KEY];
    lk__op_slot_key(layer, suffix, key);
    snprintf(name, LK_MAX_ARRAY_KEY, "%s%s%s", w->prefix ? w->prefix : "", w->prefix ? "." : "", key);
}

/* array is the flat array that has the slot at `offset`; NULL if no data are wanted. */
static lk_status visit_slot(const walk *w, const lk_layer *layer, const lk_op_slot *def, const lk_device_weight *weight,
                            float *array, size_t offset)
{
    slot_visit visit = {.key = {.dtype = LK_DTYPE_F32, .ndim = def->ndim, .dims = def->dims}, .weight = *weight};
    if (array && is_here(w->params, layer))
        visit.data = array + offset;
    name_key(w, layer, def->suffix, visit.key.name);
    return w->fn(w->params, &visit, w->arg);
}

static lk_status visit_layer_params(const walk *w, const lk_layer *layer, float *array)
{
    const size_t *offset = w->params->param_offset[layer->index];
    for (int slot = 0; slot < layer->param_count; slot++) {
        lk_device_weight weight = weight_of(w->params->graph, w->params->dev, layer, slot);
        LK_TRY(visit_slot(w, layer, &layer->params[slot], &weight, array, offset[slot]));
    }
    return LK_OK;
}

static lk_status visit_counter(const walk *w, const lk_layer *layer)
{
    slot_visit visit = {.key = {.dtype = LK_DTYPE_I64}};
    if (is_here(w->params, layer))
        visit.counter = &w->params->batches[layer->index];
    name_key(w, layer, batches_suffix, visit.key.name);
    return w->fn(w->params, &visit, w->arg);
}

static lk_status visit_all(const walk *w)
{
    const lk_params *params = w->params;
    for (int i = 0; i < params->graph->count; i++) {
        const lk_layer *layer = &params->graph->layers[i];
        LK_TRY(visit_layer_params(w, layer, params->params));
        for (int slot = 0; slot < layer->buffer_count; slot++)
            LK_TRY(visit_slot(w, layer, &layer->buffers[slot], &no_weight, params->buffers,
                              params->buffer_offset[i][slot]));
        if (layer->counts_batches)
            LK_TRY(visit_counter(w, layer));
    }
    return LK_OK;
}

/* Visits the parameters only, in an array with their offsets. */
static lk_status visit_array(const walk *w, float *array)
{
    for (int i = 0; i < w->params->graph->count; i++)
        LK_TRY(visit_layer_params(w, &w->params->graph->layers[i], array));
    return LK_OK;
}

static lk_status export_slot(const lk_params *params, const slot_visit *visit, void *arg)
{
    const lk_params_key *key = &visit->key;
    lk_state_entry *entry;
    LK_TRY(lk_state_add(arg, key->name, key->dtype, key->ndim, key->dims, &entry));
    if (visit->counter)
        memcpy(entry->data, visit->counter, sizeof *visit->counter);
    if (!visit->data)
        return LK_OK;
    return take(params->dev, &visit->weight, visit->data, entry->bytes / sizeof(float), entry->data);
}

lk_status lk__params_export(const lk_params *params, lk_state **out)
{
    lk_state *state;
    LK_TRY(lk_state_create(&state));
    lk_status status = visit_all(&(walk){.params = params, .fn = export_slot, .arg = state});
    return lk__state_hand_over(status, state, out);
}

lk_status lk__params_export_array(const lk_params *params, lk_params_array array, lk_state *state)
{
    return visit_array(&(walk){.params = params, .prefix = array.name, .fn = export_slot, .arg = state}, array.data);
}

lk_status lk__params_export_grads(const lk_params *params, lk_state **out)
{
    lk_state *state;
    LK_TRY(lk_state_create(&state));
    lk_status status = lk__params_export_array(params, (lk_params_array){.data = params->grads}, state);
    return lk__state_hand_over(status, state, out);
}

static void describe_shape(int ndim, const size_t *dims, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "(");
    for (int i = 0; i < ndim && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, i ? ", %zu" : "%zu", dims[i]);
    if (used < bytes)
        snprintf(text + used, bytes - used, ")");
}

lk_status lk__params_key_check(const lk_params_key *key, const lk_state *state, const char *owner)
{
    const lk_state_entry *entry = lk_state_find(state, key->name);
    if (!entry)
        return lk__fail(LK_STATUS_MISMATCH,
                        "the state has no key '%s', which %s needs: it is incomplete, or of another model", key->name,
                        owner);
    if (entry->dtype != key->dtype || entry->ndim != key->ndim ||
        (key->ndim && memcmp(entry->dims, key->dims, sizeof *key->dims * (size_t)key->ndim) != 0)) {
        char have[128], want[128];
        describe_shape(entry->ndim, entry->dims, have, sizeof have);
        describe_shape(key->ndim, key->dims, want, sizeof want);
        return lk__fail(LK_STATUS_MISMATCH, "key '%s' is %s %s, %s needs %s %s", key->name, lk_dtype_name(entry->dtype),
                        have, owner, lk_dtype_name(key->dtype), want);
    }
    return LK_OK;
}

typedef struct check_arg {
    const lk_state *state;
    const char *owner;
    size_t known; /* keys of the state that the graph has */
} check_arg;

static lk_status check_slot(const lk_params *params, const slot_visit *visit, void *arg)
{
    (void)params;
    check_arg *check = arg;
    /* PyTorch before 0.4.1 did not save counters. */
    if (visit->key.dtype == LK_DTYPE_I64 && !lk_state_find(check->state, visit->key.name))
        return LK_OK;
    LK_TRY(lk__params_key_check(&visit->key, check->state, check->owner));
    check->known++;
    return LK_OK;
}

lk_status lk__params_check_array(const lk_params *params, const char *name, const lk_state *state, const char *owner,
                                 size_t *known)
{
    check_arg check = {.state = state, .owner = owner};
    LK_TRY(visit_array(&(walk){.params = params, .prefix = name, .fn = check_slot, .arg = &check}, NULL));
    *known += check.known;
    return LK_OK;
}

static lk_status find_slot(const lk_params *params, const slot_visit *visit, void *arg)
{
    (void)params;
    return strcmp(visit->key.name, arg) == 0 ? LK_STATUS_MISMATCH : LK_OK;
}

bool lk__params_array_has(const lk_params *params, const char *name, const char *key)
{
    walk w = {.params = params, .prefix = name, .fn = find_slot, .arg = (void *)(uintptr_t)key};
    return visit_array(&w, NULL) != LK_OK;
}

static lk_status check_unknown(const lk_params *params, const lk_state *state, size_t known)
{
    for (size_t i = 0; known < lk_state_count(state) && i < lk_state_count(state); i++) {
        char *key = lk_state_at(state, i)->name;
        if (visit_all(&(walk){.params = params, .fn = find_slot, .arg = key}) == LK_OK)
            return lk__fail(LK_STATUS_MISMATCH, "the state has a key '%s' that the model does not know", key);
    }
    return LK_OK;
}

static lk_status import_slot(const lk_params *params, const slot_visit *visit, void *arg)
{
    const lk_state_entry *entry = lk_state_find(arg, visit->key.name);
    if (visit->counter && entry)
        memcpy(visit->counter, entry->data, sizeof *visit->counter);
    else if (visit->counter)
        *visit->counter = 0;
    if (!visit->data)
        return LK_OK;
    return put(params->dev, &visit->weight, entry->bytes / sizeof(float), entry->data, visit->data);
}

lk_status lk__params_check(const lk_params *params, const lk_state *state)
{
    check_arg check = {.state = state, .owner = "the model"};
    LK_TRY(visit_all(&(walk){.params = params, .fn = check_slot, .arg = &check}));
    return check_unknown(params, state, check.known);
}

lk_status lk__params_import(lk_params *params, const lk_state *state)
{
    LK_TRY(lk__params_check(params, state));
    LK_TRY(visit_all(&(walk){.params = params, .fn = import_slot, .arg = (void *)(uintptr_t)state}));
    lk__params_round(params, 0, params->count);
    return LK_OK;
}

lk_status lk__params_import_array(const lk_params *params, const lk_state *state, lk_params_array array)
{
    walk w = {.params = params, .prefix = array.name, .fn = import_slot, .arg = (void *)(uintptr_t)state};
    return visit_array(&w, array.data);
}

void lk__params_key_at(const lk_params *params, size_t offset, char key[LK_MAX_KEY])
{
    /* Offsets fall from layer to layer: this finds the first parameter at or below the offset. */
    for (int i = params->first; i < params->last; i++) {
        const lk_layer *layer = &params->graph->layers[i];
        for (int slot = 0; slot < layer->param_count; slot++) {
            if (params->param_offset[i][slot] <= offset) {
                lk__op_slot_key(layer, layer->params[slot].suffix, key);
                return;
            }
        }
    }
    snprintf(key, LK_MAX_KEY, "element %zu", offset);
}
