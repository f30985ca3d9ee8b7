/* outputs.c - finding outputs by name, copying them from the device, and gathering them from the ranks. */
#include "parallel/step/outputs.h"

#include <string.h>

#include "base/clock.h"
#include "base/math64.h"
#include "base/mem.h"
#include "base/spec.h"
#include "parallel/layout/partition.h"
#include "parallel/step/staging.h"

typedef struct output {
    char name[LK_LAYER_TEXT]; /* as in lk_engine_opts.outputs; "" for the scores */
    int layer, stage;
    lk_shape shape; /* n = 1 */
} output;

struct lk_engine_outputs {
    output *list; /* the scores, then the named nodes */
    size_t count;
    bool *kept;     /* (layers); NULL: no node is named */
    size_t *counts; /* (ranks) elements that each rank gives to the gathering of an output */
    void *copy;     /* staging buffer for the values of a piece; NULL: none is needed, or there was no pass yet */
};

/* The number of names in a list with commas; 0 for NULL. */
static size_t count_names(const char *names)
{
    size_t count = names != NULL;
    for (const char *at = names; at && *at != '\0'; at++)
        count += *at == ',';
    return count;
}

/* Finds the node of the name that is `length` bytes long, above 0 and below the size of out->name. */
static lk_status find_node(const lk_graph *graph, const char *name, size_t length, output *out)
{
    memcpy(out->name, name, length);
    out->name[length] = '\0';
    return lk__partition_find_value(graph, out->name, "`outputs`", &out->layer);
}

static lk_status find_nodes(const lk_graph *graph, const char *names, lk_engine_outputs *outputs)
{
    for (const char *at = names; at != NULL; outputs->count++) {
        const char *comma = strchr(at, ',');
        output *next = &outputs->list[outputs->count];
        size_t length = comma ? (size_t)(comma - at) : strlen(at);
        if (length == 0 || length >= sizeof next->name)
            return lk__fail(LK_STATUS_USAGE,
                            "`outputs` '%.200s': name %zu is %s; give names with one comma between two", names,
                            outputs->count, length ? "too long" : "empty");
        LK_TRY(find_node(graph, at, length, next));
        outputs->kept[next->layer] = true;
        at = comma ? comma + 1 : NULL;
    }
    return LK_OK;
}

/* The scores are in the last stage even if the stage before computes them: there they are the loss's input. */
static lk_status find_stages(const lk_graph *graph, const char *spec, lk_engine_outputs *outputs)
{
    int stages, first[LK_MAX_STAGES + 1];
    LK_TRY(lk__partition(graph, spec ? spec : "1", &stages, first));
    for (size_t i = 0; i < outputs->count; i++) {
        output *this = &outputs->list[i];
        this->shape = graph->layers[this->layer].shape;
        this->stage = stages - 1;
        while (i > 0 && this->layer < first[this->stage])
            this->stage--;
    }
    return LK_OK;
}

static lk_status fill(const lk_graph *graph, const char *names, const char *stages, int ranks,
                      lk_engine_outputs *outputs)
{
    LK_TRY(LK_ALLOC(count_names(names) + 1, "outputs", &outputs->list));
    LK_TRY(LK_ALLOC((size_t)ranks, "outputs", &outputs->counts));
    if (names)
        LK_TRY(LK_ALLOC((size_t)graph->count, "outputs", &outputs->kept));
    outputs->list[0].layer = graph->layers[graph->count - 1].inputs[0];
    outputs->count = 1;
    LK_TRY(find_nodes(graph, names, outputs));
    return find_stages(graph, stages, outputs);
}

lk_status lk__engine_outputs_create(const lk_graph *graph, const char *names, const char *stages, int ranks,
                                    lk_engine_outputs **out)
{
    lk_engine_outputs *outputs;
    LK_TRY(LK_ALLOC(1, "outputs", &outputs));
    lk_status status = fill(graph, names, stages, ranks, outputs);
    if (status != LK_OK) {
        lk__engine_outputs_destroy(outputs);
        return status;
    }
    *out = outputs;
    return LK_OK;
}

void lk__engine_outputs_destroy(lk_engine_outputs *outputs)
{
    if (!outputs)
        return;
    lk__mem_free(outputs->copy);
    lk__mem_free(outputs->counts);
    lk__mem_free(outputs->kept);
    lk__mem_free(outputs->list);
    lk__mem_free(outputs);
}

const bool *lk__engine_outputs_kept(const lk_engine_outputs *outputs)
{
    return outputs->kept;
}

/* NULL if there is no such output. */
static const output *find_output(const lk_engine_outputs *outputs, const char *node)
{
    for (size_t i = 0; i < outputs->count; i++)
        if (node ? i > 0 && strcmp(outputs->list[i].name, node) == 0 : i == 0)
            return &outputs->list[i];
    return NULL;
}

size_t lk__engine_outputs_floats(const lk_engine_outputs *outputs, const char *node)
{
    const output *found = find_output(outputs, node);
    return found ? lk__shape_sample(found->shape) : 0;
}

static const char *name_at(const void *arg, size_t index)
{
    const lk_engine_outputs *outputs = arg;
    return index + 1 < outputs->count ? outputs->list[index + 1].name : NULL;
}

static lk_status fail_unknown(const lk_engine_outputs *outputs, const char *node)
{
    size_t index;
    const lk_names names = {.what = "lk_output", .kind = "output", .next = name_at, .arg = outputs, .list = "outputs"};
    if (outputs->count > 1)
        return lk__names_find(&names, node, &index);
    return lk__fail(LK_STATUS_USAGE,
                    "lk_output: no output '%.200s': the engine was created without `outputs`; name the node there",
                    node);
}

lk_status lk__engine_outputs_check(const lk_engine_outputs *outputs, const lk_engine_wanted *wanted)
{
    if (wanted->count == 0)
        return lk__fail(LK_STATUS_USAGE, "a forward pass for 0 outputs; give at least one");
    for (size_t i = 0; i < wanted->count; i++) {
        const lk_output *one = &wanted->list[i];
        if (!find_output(outputs, one->node))
            return fail_unknown(outputs, one->node);
        if (!one->values)
            return lk__fail(LK_STATUS_USAGE, "lk_output %zu (%s): `values` is NULL", i,
                            one->node ? one->node : "the scores");
    }
    return LK_OK;
}

/* Whether this rank has the values of an output. */
static bool has(const lk_engine *engine, const output *o)
{
    return o->stage == engine->grid.stage;
}

lk_status lk__engine_outputs_prepare(lk_engine *engine)
{
    lk_engine_outputs *outputs = engine->outputs;
    size_t bytes = 0;
    if (outputs->copy || engine->dev->type->host_memory)
        return LK_OK;
    for (size_t i = 0; i < outputs->count; i++) {
        lk_tensor value =
            has(engine, &outputs->list[i]) ? lk__plan_value(engine->plan, 0, outputs->list[i].layer) : (lk_tensor){0};
        bytes = lk__size_max(bytes, engine->even->capacity * lk__tensor_stride(&value));
    }
    return bytes ? lk__staging_alloc(engine->dev, bytes, "a copy of outputs", &outputs->copy) : LK_OK;
}

/* Element i of an array of f32 or bf16. */
static float element(const void *array, lk_dtype dtype, size_t i)
{
    if (dtype == LK_DTYPE_F32)
        return ((const float *)array)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)array)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Writes the samples of a tensor, whose host memory is `from`, as f32 in the order (n, c, h, w). */
static void unpack(const lk_tensor *value, const char *from, float *out)
{
    lk_shape shape = value->shape;
    size_t pixels = shape.h * shape.w, pitch = lk__tensor_pitch(value), stride = lk__tensor_stride(value);
    bool plain = value->dtype == LK_DTYPE_F32 && (pixels == 1 || shape.c == 1);
    for (size_t n = 0; n < shape.n; n++, from += stride, out += lk__shape_sample(shape)) {
        if (plain && (pixels == 1 || pitch == 1)) {
            memcpy(out, from, lk__shape_sample(shape) * sizeof *out);
            continue;
        }
        for (size_t c = 0; c < shape.c; c++)
            for (size_t p = 0; p < pixels; p++)
                out[c * pixels + p] = element(from, value->dtype, p * pitch + c);
    }
}

/* In place: scores to log-probabilities. */
static void log_softmax(float *row, size_t count)
{
    double largest = (double)row[0], sum = 0;
    for (size_t i = 1; i < count; i++)
        largest = (double)row[i] > largest ? (double)row[i] : largest;
    for (size_t i = 0; i < count; i++)
        sum += lk__math_exp64((double)row[i] - largest);
    double shift = largest + lk__math_log64(sum);
    for (size_t i = 0; i < count; i++)
        row[i] = (float)((double)row[i] - shift);
}

/* On some devices the loss computes the log-softmax before it, and that layer's value is its input's. */
static bool lacks_log_softmax(const lk_engine *engine, int layer)
{
    return engine->dev->type->loss_views && lk__graph_loss_view(engine->graph, &engine->graph->layers[layer]);
}

static lk_status fetch_output(lk_engine *engine, const output *o, size_t n, float *out)
{
    lk_tensor value = lk__plan_value(engine->plan, 0, o->layer);
    void *at = lk__staging_at(engine->outputs->copy, value.data);
    value.shape.n = n;
    LK_TRY(lk__staging_fetch(engine->dev, value.data, n * lk__tensor_stride(&value), at));
    unpack(&value, at, out);
    for (size_t i = 0; lacks_log_softmax(engine, o->layer) && i < n; i++)
        log_softmax(out + i * o->shape.c, o->shape.c);
    return LK_OK;
}

/* The index of this rank's first sample in the whole batch. */
static size_t first_sample(const lk_engine *engine, size_t total)
{
    return lk__shard_begin(total, engine->even->shards, engine->even->first);
}

lk_status lk__engine_outputs_fetch(lk_engine *engine, const lk_engine_part *part, size_t begin, size_t n)
{
    for (size_t i = 0; i < part->wanted->count; i++) {
        const lk_output *one = &part->wanted->list[i];
        const output *o = find_output(engine->outputs, one->node);
        size_t row = first_sample(engine, part->total) + begin;
        if (has(engine, o))
            LK_TRY(fetch_output(engine, o, n, one->values + row * lk__shape_sample(o->shape)));
    }
    return LK_OK;
}

/* Rank r gives the rows of its replica if its stage has the output. */
static lk_status share_output(lk_engine *engine, const output *o, size_t total, float *values)
{
    const lk_grid *grid = &engine->grid;
    size_t floats = lk__shape_sample(o->shape), *counts = engine->outputs->counts;
    for (int r = 0; r < grid->replicas * grid->stages; r++) {
        const int *bounds = grid->bounds + r / grid->stages;
        size_t begin = lk__shard_begin(total, engine->even->shards, bounds[0]);
        size_t end = lk__shard_begin(total, engine->even->shards, bounds[1]);
        counts[r] = r % grid->stages == o->stage ? (end - begin) * floats : 0;
    }
    lk_buffer mine = {values + first_sample(engine, total) * floats, counts[lk_group_rank(grid->world)], LK_DTYPE_F32};
    return lk_allgather(grid->world, mine, counts, values, NULL);
}

lk_status lk__engine_outputs_share(lk_engine *engine, const lk_engine_part *part)
{
    double began = lk__clock();
    if (!engine->grid.world)
        return LK_OK;
    for (size_t i = 0; i < part->wanted->count; i++) {
        const lk_output *one = &part->wanted->list[i];
        LK_TRY(share_output(engine, find_output(engine->outputs, one->node), part->total, one->values));
    }
    engine->waits.other += lk__clock() - began;
    return LK_OK;
}
