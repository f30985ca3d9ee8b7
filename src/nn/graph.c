/* graph.c - builds a graph, and keeps its first mistake. */
#include "nn/graph.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "nn/op.h"

static const lk_node bad_node = {.index = -1};

lk_status lk_graph_create(lk_graph **out)
{
    LK_TRY(LK_GIVEN(out));
    static unsigned last;
    lk_graph *graph;
    LK_TRY(LK_ALLOC(1, "graph", &graph));
    while (graph->id == 0)
        graph->id = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    *out = graph;
    return LK_OK;
}

void lk_graph_destroy(lk_graph *graph)
{
    if (!graph)
        return;
    lk__mem_free(graph->class_weights);
    lk__mem_free(graph->layers);
    lk__mem_free(graph);
}

static lk_status copy_class_weights(const lk_graph *graph, lk_graph *copy)
{
    if (!graph->class_weights)
        return LK_OK;
    LK_TRY(LK_ALLOC(graph->classes, "class weights", &copy->class_weights));
    memcpy(copy->class_weights, graph->class_weights, graph->classes * sizeof *graph->class_weights);
    copy->classes = graph->classes;
    return LK_OK;
}

void lk__graph_use_winograd(lk_graph *graph)
{
    for (int i = 0; i < graph->count; i++)
        graph->layers[i].attr.conv.tile = LK_CONV2D_DESC_BY_SHAPE;
}

lk_status lk__graph_copy(const lk_graph *graph, lk_graph **out)
{
    lk_graph *copy;
    LK_TRY(lk_graph_create(&copy));
    lk_status status = LK_ALLOC((size_t)graph->count, "graph", &copy->layers);
    if (status == LK_OK)
        status = copy_class_weights(graph, copy);
    if (status != LK_OK) {
        lk_graph_destroy(copy);
        return status;
    }
    memcpy(copy->layers, graph->layers, sizeof *graph->layers * (size_t)graph->count);
    copy->count = copy->room = graph->count;
    *out = copy;
    return LK_OK;
}

lk_node lk__graph_reject(lk_graph *graph, lk_status status)
{
    graph->status = status;
    snprintf(graph->detail, sizeof graph->detail, "%s", lk_error_detail());
    return bad_node;
}

void lk__graph_check_clear(lk_graph *graph, lk_status clear)
{
    if (graph && graph->status == LK_OK && clear != LK_OK)
        lk__graph_reject(graph, clear);
}

static lk_status grow(lk_graph *graph)
{
    if (graph->count < graph->room)
        return LK_OK;
    if ((unsigned)graph->count >= LK_RNG_MAX_LAYER)
        return lk__fail(LK_STATUS_USAGE, "a graph holds at most %u layers", LK_RNG_MAX_LAYER);
    int room = graph->room ? 2 * graph->room : 32;
    lk_layer *layers;
    LK_TRY(LK_ALLOC((size_t)room, "graph", &layers));
    if (graph->count)
        memcpy(layers, graph->layers, sizeof *layers * (size_t)graph->count);
    lk__mem_free(graph->layers);
    graph->layers = layers;
    graph->room = room;
    return LK_OK;
}

bool lk__layer_is_named(const lk_layer *layer, const char *name)
{
    return *name && (strcmp(layer->name, name) == 0 || strcmp(layer->alias, name) == 0);
}

static lk_status check_name(const lk_graph *graph, const char *name)
{
    if (!*name || strlen(name) >= LK_MAX_NAME)
        return lk__fail(LK_STATUS_USAGE, "a layer name must have 1 to %d characters, got '%s'", LK_MAX_NAME - 1, name);
    for (const char *c = name; *c; c++) {
        if (*c <= ' ' || *c > '~')
            return lk__fail(LK_STATUS_USAGE, "layer name '%s': only printable ASCII without blanks makes a key", name);
    }
    for (int i = 0; i < graph->count; i++) {
        if (lk__layer_is_named(&graph->layers[i], name))
            return lk__fail(LK_STATUS_USAGE, "two layers are named '%s': give each layer a name of its own", name);
    }
    return LK_OK;
}

static bool too_many(const size_t *dims, int count)
{
    size_t product = 1;
    for (int i = 0; i < count; i++) {
        if (__builtin_mul_overflow(product, dims[i], &product) || product > LK_RNG_MAX_ELEMENT)
            return true;
    }
    return false;
}

/* The index of every element must be addressable (base/rng.h). */
static lk_status check_sizes(const lk_layer *layer)
{
    const size_t shape[] = {layer->shape.c, layer->shape.h, layer->shape.w};
    bool bad = too_many(shape, 3);
    for (int slot = 0; slot < layer->param_count; slot++)
        bad |= too_many(layer->params[slot].dims, layer->params[slot].ndim);
    if (bad)
        return lk__fail(LK_STATUS_USAGE, "layer %d (%s): its output or a parameter has more than 2^34 elements",
                        layer->index, layer->op->name);
    return LK_OK;
}

static lk_status append(lk_graph *graph, lk_layer *layer, const char *name)
{
    LK_TRY(grow(graph));
    if (graph->count > 0 && graph->layers[graph->count - 1].op->is_loss)
        return lk__fail(LK_STATUS_USAGE, "layer %d (%s) follows the loss, which must be the last", graph->count,
                        layer->op->name);
    if (name) {
        LK_TRY(check_name(graph, name));
        snprintf(layer->name, sizeof layer->name, "%s", name);
    }
    layer->index = graph->count;
    LK_TRY(layer->op->infer(graph, layer));
    LK_TRY(check_sizes(layer));
    if (layer->param_count > 0 && !name)
        return lk__fail(LK_STATUS_USAGE, "layer %d (%s) has parameters and needs a name; name is NULL", layer->index,
                        layer->op->name);
    graph->layers[graph->count++] = *layer;
    return LK_OK;
}

lk_status lk__graph_check_node(const lk_graph *graph, lk_node node, const char *role)
{
    if (node.index < 0)
        return lk__fail(
            LK_STATUS_USAGE,
            "%s is no node: the builder that returned it has failed, and lk_graph_check of its graph says why", role);
    if (node.graph != graph->id)
        return lk__fail(LK_STATUS_USAGE, "%s is not a node of this graph, but %s", role,
                        node.graph ? "of another" : "one that no builder has returned");
    if (node.index >= graph->count)
        return lk__fail(LK_STATUS_USAGE, "%s is node %d of a graph of %d layers", role, node.index, graph->count);
    return LK_OK;
}

static lk_status take_inputs(const lk_graph *graph, lk_layer *layer, const lk_node *inputs, int count)
{
    for (int i = 0; i < count; i++) {
        char role[64];
        snprintf(role, sizeof role, "layer %d (%s): input %d", graph->count, layer->op->name, i);
        LK_TRY(lk__graph_check_node(graph, inputs[i], role));
        layer->inputs[i] = inputs[i].index;
    }
    layer->input_count = count;
    return LK_OK;
}

lk_node lk__graph_add_layer(lk_graph *graph, lk_layer layer, const char *name, const lk_node *inputs, int input_count)
{
    if (!graph || graph->status != LK_OK)
        return bad_node;
    lk_status status = take_inputs(graph, &layer, inputs, input_count);
    if (status == LK_OK)
        status = append(graph, &layer, name);
    if (status != LK_OK)
        return lk__graph_reject(graph, status);
    return (lk_node){.index = layer.index, .graph = graph->id};
}

static lk_status check_alias(const lk_graph *graph, lk_node x, const char *name)
{
    LK_TRY(lk__graph_check_node(graph, x, "lk_name: x"));
    LK_TRY(LK_GIVEN(name));
    if (strchr(name, ','))
        return lk__fail(LK_STATUS_USAGE, "layer name '%s': commas separate names in `outputs` and `stages`", name);
    return check_name(graph, name);
}

lk_node lk_name(lk_graph *graph, lk_node x, const char *name)
{
    if (!graph || graph->status != LK_OK)
        return bad_node;
    lk_status status = check_alias(graph, x, name);
    if (status != LK_OK)
        return lk__graph_reject(graph, status);
    snprintf(graph->layers[x.index].alias, LK_MAX_NAME, "%s", name);
    return x;
}

/* The first node whose result no layer reads; if the graph is correct, this is count - 1, the loss. */
static int first_unused(const lk_graph *graph)
{
    for (int i = 0; i < graph->count; i++) {
        bool used = false;
        for (int j = i + 1; j < graph->count && !used; j++) {
            const lk_layer *layer = &graph->layers[j];
            for (int k = 0; k < layer->input_count; k++)
                used |= layer->inputs[k] == i;
        }
        if (!used)
            return i;
    }
    return graph->count;
}

lk_status lk_graph_check(const lk_graph *graph)
{
    LK_TRY(LK_GIVEN(graph));
    if (graph->status != LK_OK)
        return lk__fail(graph->status, "%s", graph->detail);
    if (graph->count == 0 || !graph->layers[graph->count - 1].op->is_loss)
        return lk__fail(LK_STATUS_USAGE, "the graph has no loss as its last node; add lk_cross_entropy, lk_mse_loss or "
                                         "another loss of graph.h");
    int unused = first_unused(graph);
    if (unused != graph->count - 1)
        return lk__fail(LK_STATUS_USAGE, "layer %d (%s) is not used by any other; leave it out", unused,
                        graph->layers[unused].op->name);
    return LK_OK;
}

lk_model_shape lk_graph_shape(const lk_graph *graph)
{
    if (!graph || graph->count == 0 || graph->status != LK_OK || !graph->layers[graph->count - 1].op->is_loss)
        return (lk_model_shape){0};
    lk_shape input = graph->layers[0].shape, scores = graph->layers[graph->count - 1].shape;
    return (lk_model_shape){.channels = input.c, .height = input.h, .width = input.w, .classes = scores.c};
}

size_t lk_graph_parameters(const lk_graph *graph)
{
    size_t total = 0;
    for (int i = 0; graph && i < graph->count; i++) {
        for (int slot = 0; slot < graph->layers[i].param_count; slot++)
            total += lk__op_slot_count(&graph->layers[i].params[slot]);
    }
    return total;
}

void lk__op_slot_key(const lk_layer *layer, const char *suffix, char key[LK_MAX_KEY])
{
    snprintf(key, LK_MAX_KEY, "%s.%s", layer->name, suffix);
}

/* Windows that are not square or that are dilated. */
static uint64_t hash_windows(const lk_window *h, const lk_window *w, uint64_t hash)
{
    if (memcmp(h, w, sizeof *h) == 0 && h->dilation <= 1)
        return hash;
    char text[256];
    int length =
        snprintf(text, sizeof text, "%zu %zu %zu %zu %zu", h->dilation, w->kernel, w->stride, w->pad, w->dilation);
    return lk__hash(text, (size_t)length, hash);
}

/* Attributes that few layers have, and that leave the hash of all others as it is. The output padding of a transposed
 * convolution is known by its shape. */
static uint64_t hash_rare(const lk_layer *layer, uint64_t hash)
{
    hash = layer->attr.axes[0] ? lk__hash(layer->attr.axes, sizeof layer->attr.axes, hash) : hash;
    hash = hash_windows(&layer->attr.conv.h, &layer->attr.conv.w, hash);
    return hash_windows(&layer->attr.pool.h, &layer->attr.pool.w, hash);
}

/* An own op is distinguished from an op of the library with the same name by its attributes, of which there may be 0
 * bytes. */
static uint64_t hash_own(const lk_layer *layer, uint64_t hash)
{
    if (!layer->own.x[0].c)
        return hash;
    hash = lk__hash(&layer->own.attr_bytes, sizeof layer->own.attr_bytes, hash);
    return lk__hash(layer->own.attr, layer->own.attr_bytes, hash);
}

static uint64_t hash_fills(const lk_layer *layer, uint64_t hash)
{
    for (int slot = 0; slot < layer->param_count; slot++) {
        char text[64];
        int length = snprintf(text, sizeof text, "%d %.17g", (int)layer->params[slot].fill, layer->params[slot].spread);
        hash = lk__hash(text, (size_t)length, hash);
    }
    return hash;
}

uint64_t lk__graph_hash(const lk_graph *graph)
{
    uint64_t hash = 0;
    for (int i = 0; i < graph->count; i++) {
        const lk_layer *layer = &graph->layers[i];
        const lk_conv2d_desc *conv = &layer->attr.conv;
        const lk_pool2d_desc *pool = &layer->attr.pool;
        char text[512];
        int length =
            snprintf(text, sizeof text, "%s %s %d %d %zu %zu %zu %zu %d %zu %zu %zu %zu %zu %zu %zu %.17g %d",
                     layer->op->name, layer->name, layer->input_count > 0 ? layer->inputs[0] : -1,
                     layer->input_count > 1 ? layer->inputs[1] : -1, layer->shape.c, layer->shape.h, layer->shape.w,
                     layer->attr.out, layer->attr.no_bias, conv->h.kernel, conv->h.stride, conv->h.pad, conv->groups,
                     pool->h.kernel, pool->h.stride, pool->h.pad, layer->attr.number, layer->attr.ceil);
        hash = hash_fills(layer, hash_own(layer, hash_rare(layer, lk__hash(text, (size_t)length, hash))));
    }
    if (graph->class_weights)
        hash = lk__hash(graph->class_weights, graph->classes * sizeof *graph->class_weights, hash);
    return hash;
}

static const lk_layer *only_reader(const lk_graph *graph, int index)
{
    const lk_layer *found = NULL;
    for (int i = index + 1; i < graph->count; i++) {
        const lk_layer *layer = &graph->layers[i];
        for (int j = 0; j < layer->input_count; j++) {
            if (layer->inputs[j] == index && found)
                return NULL;
            if (layer->inputs[j] == index)
                found = layer;
        }
    }
    return found;
}

/* Whether this layer, of type op, is the only consumer of its input and has one consumer, of type next. */
static bool stands_between(const lk_graph *graph, const lk_layer *layer, const lk_op *op, const lk_op *next)
{
    if (layer->op != op || only_reader(graph, layer->inputs[0]) != layer)
        return false;
    const lk_layer *reader = only_reader(graph, layer->index);
    return reader && reader->op == next;
}

bool lk__graph_flat_view(const lk_graph *graph, const lk_layer *layer)
{
    return stands_between(graph, layer, &lk__op_flatten, &lk__op_linear);
}

bool lk__graph_loss_view(const lk_graph *graph, const lk_layer *layer)
{
    return stands_between(graph, layer, &lk__op_log_softmax, &lk__op_nll_loss);
}

size_t lk__graph_target_floats(const lk_graph *graph)
{
    const lk_layer *loss = lk__graph_loss(graph);
    return loss->op->targets ? loss->op->targets(loss) : 0;
}

const float *lk__graph_label_weights(const lk_graph *graph)
{
    return lk__graph_loss(graph)->op->targets ? NULL : graph->class_weights;
}

bool lk__graph_has_sums(const lk_graph *graph)
{
    for (int i = 0; i < graph->count; i++) {
        if (graph->layers[i].op->sum_width)
            return true;
    }
    return false;
}

lk_status lk__graph_check_samples(const lk_graph *graph, const float *x, size_t count, const uint32_t *ids)
{
    size_t floats = lk__shape_sample(graph->layers[0].shape);
    for (int i = 1; i < graph->count; i++) {
        const lk_layer *layer = &graph->layers[i];
        if (!layer->op->check_sample || layer->inputs[0] != 0)
            continue;
        for (size_t k = 0; k < count; k++)
            LK_TRY(layer->op->check_sample(layer, x + k * floats, ids ? ids[k] : (uint32_t)k));
    }
    return LK_OK;
}
