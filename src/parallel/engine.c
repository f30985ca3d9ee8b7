/* engine.c - steps over shards: waves through the plan, sums over the tree,
 * then the optimiser.
 *
 * A step's shards are run in waves of whole shards; each wave goes forward and
 * backward before the next, and partial sums carry over (tensor/shards.h).
 * Where the graph needs sums over all samples in mid-pass (BatchNorm over the
 * batch), the whole step is one wave. */
#include <lockstep/engine.h>

#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/pool.h"
#include "nn/params.h"
#include "nn/plan.h"
#include "optim/optim.h"

enum { DEFAULT_SHARDS = 16, MAX_THREADS = 1024 };

struct lk_engine {
    lk_engine_opts opts;
    lk_graph *graph;
    lk_device *dev;
    lk_params *params;
    lk_plan *plan;
    lk_optim *optim;
    size_t capacity; /* samples in a wave */
    bool one_wave;   /* a step cannot be split */
    bool ready;      /* gradients of a whole step are there */
    /* Device, (capacity). */
    uint32_t *ids;
    int32_t *labels, *correct;
    float *loss;
    /* Host, (batch). */
    float *host_loss;
    int32_t *host_correct;
    /* Host, for one wave. */
    size_t *begin; /* (shards + 1) */
    int *merges;   /* (shards) */
    size_t rows[LK_TREE_MAX_DEPTH];
};

static lk_status check_opts(const lk_engine_opts *opts)
{
    if (opts->batch < 1 || opts->batch > UINT32_MAX)
        return lk__fail(LK_STATUS_USAGE, "a batch of %zu samples; 1 to %u are possible", opts->batch, UINT32_MAX);
    if (opts->shards < 1 || opts->shards > LK_MAX_SHARDS)
        return lk__fail(LK_STATUS_USAGE, "--shards %d is not in 1 to %d", opts->shards, LK_MAX_SHARDS);
    if (opts->threads < 1 || opts->threads > MAX_THREADS)
        return lk__fail(LK_STATUS_USAGE, "--threads %d is not in 1 to %d", opts->threads, MAX_THREADS);
    if (opts->bn != LK_BN_BATCH && opts->bn != LK_BN_SHARD)
        return lk__fail(LK_STATUS_USAGE, "there is no BatchNorm mode %d", (int)opts->bn);
    return LK_OK;
}

static lk_engine_opts with_defaults(const lk_engine_opts *opts)
{
    lk_engine_opts full = *opts;
    if (!full.device)
        full.device = "cpu";
    if (!full.threads)
        full.threads = lk__cores();
    if (!full.shards)
        full.shards = DEFAULT_SHARDS;
    if (!full.optimizer)
        full.optimizer = "sgd";
    return full;
}

static size_t shard_begin(const lk_engine *engine, size_t batch, int shard)
{
    return lk__shard_begin(batch, engine->opts.shards, shard);
}

/* The largest shard that any step may have. */
static size_t largest_shard(const lk_engine_opts *opts)
{
    return (opts->batch + (size_t)opts->shards - 1) / (size_t)opts->shards;
}

/* The deepest stack of log2(shards) + 1 entries, rounded down, and the leaf that
 * is being pushed. */
static int stack_slots(int shards)
{
    return 33 - __builtin_clz((unsigned)shards);
}

static void choose_waves(lk_engine *engine)
{
    const lk_engine_opts *opts = &engine->opts;
    engine->one_wave = opts->bn == LK_BN_BATCH && lk__graph_has_sums(engine->graph);
    engine->capacity = opts->batch;
    if (opts->micro_batch && opts->micro_batch < opts->batch && !engine->one_wave)
        engine->capacity = lk__max_size(opts->micro_batch, largest_shard(opts));
}

static lk_status alloc_device(lk_engine *engine, size_t size, const char *what, void **out)
{
    return engine->dev->type->alloc(engine->dev, engine->capacity * size, what, out);
}

static lk_status alloc_waves(lk_engine *engine)
{
    LK_TRY(alloc_device(engine, sizeof *engine->ids, "sample ids", (void **)&engine->ids));
    LK_TRY(alloc_device(engine, sizeof *engine->labels, "labels", (void **)&engine->labels));
    LK_TRY(alloc_device(engine, sizeof *engine->correct, "results", (void **)&engine->correct));
    LK_TRY(alloc_device(engine, sizeof *engine->loss, "losses", (void **)&engine->loss));
    LK_TRY(LK_ALLOC(engine->opts.batch, "losses", &engine->host_loss));
    LK_TRY(LK_ALLOC(engine->opts.batch, "results", &engine->host_correct));
    LK_TRY(LK_ALLOC((size_t)engine->opts.shards + 1, "shards", &engine->begin));
    return LK_ALLOC((size_t)engine->opts.shards, "shards", &engine->merges);
}

static lk_status build(lk_engine *engine, const lk_graph *graph)
{
    const lk_engine_opts *opts = &engine->opts;
    LK_TRY(lk__graph_copy(graph, &engine->graph));
    LK_TRY(lk__device_open(opts->device, &(lk_device_opts){.threads = opts->threads}, &engine->dev));
    choose_waves(engine);
    int slots = stack_slots(opts->shards);
    LK_TRY(lk__params_create(engine->graph, engine->dev, engine->capacity < opts->batch ? slots : 1, &engine->params));
    LK_TRY(lk__params_init(engine->params, opts->seed));
    lk_plan_opts plan_opts = {.capacity = engine->capacity, .shards = opts->shards, .slots = slots};
    LK_TRY(lk__plan_create(engine->graph, engine->params, &plan_opts, &engine->plan));
    LK_TRY(lk__optim_create(opts->optimizer, opts->lr, engine->dev, engine->params->count, &engine->optim));
    return alloc_waves(engine);
}

lk_status lk_engine_create(const lk_graph *graph, const lk_engine_opts *opts, lk_engine **out)
{
    lk_engine_opts full = with_defaults(opts);
    LK_TRY(lk_graph_check(graph));
    LK_TRY(check_opts(&full));
    lk_engine *engine;
    LK_TRY(LK_ALLOC(1, "engine", &engine));
    engine->opts = full;
    lk_status status = build(engine, graph);
    if (status != LK_OK) {
        lk_engine_destroy(engine);
        return status;
    }
    *out = engine;
    return LK_OK;
}

void lk_engine_destroy(lk_engine *engine)
{
    if (!engine)
        return;
    lk__free(engine->merges);
    lk__free(engine->begin);
    lk__free(engine->host_correct);
    lk__free(engine->host_loss);
    if (engine->dev) {
        const lk_device_type *type = engine->dev->type;
        type->free(engine->dev, engine->loss);
        type->free(engine->dev, engine->correct);
        type->free(engine->dev, engine->labels);
        type->free(engine->dev, engine->ids);
    }
    lk__optim_destroy(engine->optim);
    lk__plan_destroy(engine->plan);
    lk__params_destroy(engine->params);
    lk__device_close(engine->dev);
    lk_graph_destroy(engine->graph);
    lk__free(engine);
}

static lk_status check_batch(const lk_engine *engine, const lk_batch *batch)
{
    if (!batch->x || !batch->labels || !batch->ids)
        return lk__fail(LK_STATUS_USAGE, "a batch needs samples, labels and ids; one of them is NULL");
    size_t sample = lk__shape_sample(engine->graph->layers[0].shape);
    if (batch->sample != sample)
        return lk__fail(LK_STATUS_MISMATCH, "the batch has %zu values a sample, the model takes %zu", batch->sample,
                        sample);
    size_t classes = engine->graph->layers[engine->graph->count - 1].shape.c;
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->labels[i] < 0 || (size_t)batch->labels[i] >= classes)
            return lk__fail(LK_STATUS_MISMATCH, "sample %u has label %d, but the model has %zu classes", batch->ids[i],
                            batch->labels[i], classes);
    }
    return LK_OK;
}

/* Brings samples [begin, begin + wave->n) of the batch to the device. */
static lk_status upload(lk_engine *engine, const lk_batch *batch, size_t begin, lk_wave *wave)
{
    size_t n = wave->n;
    size_t sample = lk__shape_sample(engine->graph->layers[0].shape);
    lk_device *dev = engine->dev;
    LK_TRY(
        dev->type->upload(dev, batch->x + begin * sample, n * sample * sizeof *batch->x, lk__plan_input(engine->plan)));
    LK_TRY(dev->type->upload(dev, batch->labels + begin, n * sizeof *batch->labels, engine->labels));
    LK_TRY(dev->type->upload(dev, batch->ids + begin, n * sizeof *batch->ids, engine->ids));
    wave->ids = engine->ids;
    wave->labels = engine->labels;
    wave->loss = engine->loss;
    wave->correct = engine->correct;
    return LK_OK;
}

static lk_status download(lk_engine *engine, size_t n, size_t begin)
{
    lk_device *dev = engine->dev;
    LK_TRY(dev->type->download(dev, engine->loss, n * sizeof *engine->loss, engine->host_loss + begin));
    return dev->type->download(dev, engine->correct, n * sizeof *engine->correct, engine->host_correct + begin);
}

/* Describes shards [first, last) of a step of `batch` samples to the kernels. */
static lk_shards make_shards(lk_engine *engine, size_t batch, int first, int last)
{
    size_t start = shard_begin(engine, batch, first);
    for (int s = first; s < last; s++) {
        engine->begin[s - first] = shard_begin(engine, batch, s) - start;
        engine->merges[s - first] = lk__tree_merges(engine->opts.shards, s);
    }
    engine->begin[last - first] = shard_begin(engine, batch, last) - start;
    int leaf[LK_TREE_MAX_DEPTH + 1];
    int depth = first ? lk__tree_stack(engine->opts.shards, first - 1, leaf) : 0;
    leaf[depth] = first;
    for (int d = 0; d < depth; d++)
        engine->rows[d] = shard_begin(engine, batch, leaf[d + 1]) - shard_begin(engine, batch, leaf[d]);
    return (lk_shards){
        .count = last - first, .begin = engine->begin, .merges = engine->merges, .depth = depth, .rows = engine->rows};
}

/* The shard after the last that fits into a wave starting at `first`. */
static int wave_end(const lk_engine *engine, size_t batch, int first)
{
    int last = first + 1;
    size_t start = shard_begin(engine, batch, first);
    while (last < engine->opts.shards && shard_begin(engine, batch, last + 1) - start <= engine->capacity)
        last++;
    return last;
}

/* The sum of one value a sample over the tree: a leaf a shard, in sample order.
 * Metrics are in double; they never reach a weight. */
static double tree_sum(const lk_engine *engine, const float *values, size_t batch)
{
    double stack[LK_TREE_MAX_DEPTH];
    int depth = 0;
    for (int s = 0; s < engine->opts.shards; s++) {
        double leaf = 0;
        for (size_t i = shard_begin(engine, batch, s); i < shard_begin(engine, batch, s + 1); i++)
            leaf += (double)values[i];
        stack[depth++] = leaf;
        for (int m = lk__tree_merges(engine->opts.shards, s); m > 0; m--, depth--)
            stack[depth - 2] += stack[depth - 1];
    }
    return stack[0];
}

static lk_metrics collect(const lk_engine *engine, size_t batch)
{
    lk_metrics metrics = {.count = batch};
    for (size_t i = 0; i < batch; i++)
        metrics.correct += (size_t)engine->host_correct[i];
    metrics.loss = tree_sum(engine, engine->host_loss, batch) / (double)batch;
    return metrics;
}

static lk_status check_losses(const lk_engine *engine, const lk_batch *batch)
{
    for (int s = 0; s < engine->opts.shards; s++) {
        for (size_t i = shard_begin(engine, batch->count, s); i < shard_begin(engine, batch->count, s + 1); i++) {
            if (!isfinite(engine->host_loss[i]))
                return lk__fail(LK_STATUS_NONFINITE,
                                "step %llu: the loss of sample %u (shard %d) is %g; if the weights and the "
                                "data are sound, a smaller learning rate may help",
                                (unsigned long long)lk__optim_steps(engine->optim) + 1, batch->ids[i], s,
                                (double)engine->host_loss[i]);
        }
    }
    return LK_OK;
}

static lk_wave make_wave(lk_engine *engine, const lk_batch *batch, int first, int last)
{
    lk_wave wave = {.shards = make_shards(engine, batch->count, first, last),
                    .n = shard_begin(engine, batch->count, last) - shard_begin(engine, batch->count, first),
                    .search = -1,
                    .train = true,
                    .last = last == engine->opts.shards,
                    .bn = engine->opts.bn,
                    .seed = engine->opts.seed,
                    .step = (uint32_t)lk__optim_steps(engine->optim),
                    .grad_scale = 1.0f / (float)batch->count,
                    .step_rows = batch->count};
    wave.leaves = wave.shards;
    return wave;
}

static lk_status run_wave(lk_engine *engine, const lk_batch *batch, int first, int last, lk_wave *wave)
{
    size_t begin = shard_begin(engine, batch->count, first);
    *wave = make_wave(engine, batch, first, last);
    LK_TRY(upload(engine, batch, begin, wave));
    lk__plan_forward(engine->plan, wave);
    lk__plan_backward(engine->plan, wave);
    return download(engine, wave->n, begin);
}

static lk_status first_nonfinite(lk_engine *engine, size_t begin, size_t count, size_t *first)
{
    engine->dev->kernels->find_nonfinite(engine->dev, count, engine->params->grads + begin, first);
    return engine->dev->type->sync(engine->dev);
}

/* The gradient of shard s alone, in slot 0; overwrites all gradients. */
static lk_status run_leaf(lk_engine *engine, const lk_batch *batch, int s)
{
    int first = engine->one_wave ? 0 : s;
    int last = engine->one_wave ? engine->opts.shards : s + 1;
    lk_wave wave = make_wave(engine, batch, first, last);
    size_t begin[2] = {wave.shards.begin[s - first], wave.shards.begin[s - first + 1]};
    wave.leaves = (lk_shards){.count = 1, .begin = begin, .merges = (const int[]){0}};
    wave.search = s - first;
    if (!engine->one_wave)
        wave.shards = wave.leaves;
    LK_TRY(upload(engine, batch, shard_begin(engine, batch->count, first), &wave));
    lk__plan_forward(engine->plan, &wave);
    lk__plan_backward(engine->plan, &wave);
    return LK_OK;
}

/* Which shard made an element of the gradient non-finite, by computing each
 * shard's gradient again; -1 when only their sum is. */
static lk_status blame_shard(lk_engine *engine, const lk_batch *batch, size_t element, int *out)
{
    *out = -1;
    for (int s = 0; s < engine->opts.shards; s++) {
        size_t first;
        LK_TRY(run_leaf(engine, batch, s));
        LK_TRY(first_nonfinite(engine, element, 1, &first));
        if (first == 0) {
            *out = s;
            return LK_OK;
        }
    }
    return LK_OK;
}

static lk_status check_grads(lk_engine *engine, const lk_batch *batch)
{
    size_t element;
    LK_TRY(first_nonfinite(engine, 0, engine->params->count, &element));
    if (element == engine->params->count)
        return LK_OK;
    char key[LK_MAX_KEY], where[32] = "the sum over shards";
    int shard;
    lk__params_key_at(engine->params, element, key);
    LK_TRY(blame_shard(engine, batch, element, &shard));
    if (shard >= 0)
        snprintf(where, sizeof where, "shard %d", shard);
    return lk__fail(LK_STATUS_NONFINITE,
                    "step %llu: the gradient of %s is not finite (%s); if the weights and "
                    "the data are sound, a smaller learning rate may help",
                    (unsigned long long)lk__optim_steps(engine->optim) + 1, key, where);
}

lk_status lk_engine_gradients(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    if (batch->count < 1 || batch->count > engine->opts.batch)
        return lk__fail(LK_STATUS_USAGE, "a batch of %zu samples; this engine takes 1 to %zu", batch->count,
                        engine->opts.batch);
    if (lk__optim_steps(engine->optim) >= UINT32_MAX)
        return lk__fail(LK_STATUS_USAGE, "a run has at most %u steps", UINT32_MAX);
    LK_TRY(check_batch(engine, batch));
    lk_wave wave;
    engine->ready = false;
    for (int first = 0; first < engine->opts.shards;) {
        int last = engine->one_wave ? engine->opts.shards : wave_end(engine, batch->count, first);
        LK_TRY(run_wave(engine, batch, first, last, &wave));
        first = last;
    }
    if (!engine->opts.allow_nonfinite) {
        LK_TRY(check_losses(engine, batch));
        LK_TRY(check_grads(engine, batch));
    }
    lk__plan_finish(engine->plan, &wave);
    engine->ready = true;
    *out = collect(engine, batch->count);
    return LK_OK;
}

lk_status lk_engine_update(lk_engine *engine)
{
    if (!engine->ready)
        return lk__fail(LK_STATUS_USAGE, "no gradients to update by; lk_engine_gradients must have succeeded before");
    engine->ready = false;
    lk__optim_begin(engine->optim);
    lk__optim_range(engine->optim, engine->params->grads, engine->params->params, 0, engine->params->count);
    return engine->dev->type->sync(engine->dev);
}

lk_status lk_engine_step(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    lk_metrics metrics;
    LK_TRY(lk_engine_gradients(engine, batch, &metrics));
    LK_TRY(lk_engine_update(engine));
    *out = metrics;
    return LK_OK;
}

/* Evaluation is cut into pieces of the plan's capacity. Results are per sample,
 * so the cut does not show. */
lk_status lk_engine_eval(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    if (batch->count < 1)
        return lk__fail(LK_STATUS_USAGE, "evaluation needs at least one sample");
    LK_TRY(check_batch(engine, batch));
    lk_metrics total = {.count = batch->count};
    for (size_t begin = 0; begin < batch->count; begin += engine->capacity) {
        size_t n = lk__min_size(engine->capacity, batch->count - begin);
        lk_wave wave = {.shards = make_shards(engine, n, 0, engine->opts.shards), .n = n};
        LK_TRY(upload(engine, batch, begin, &wave));
        lk__plan_forward(engine->plan, &wave);
        LK_TRY(download(engine, n, 0));
        for (size_t i = 0; i < n; i++) {
            total.loss += (double)engine->host_loss[i];
            total.correct += (size_t)engine->host_correct[i];
        }
    }
    total.loss /= (double)batch->count;
    *out = total;
    return LK_OK;
}

double lk_engine_lr(const lk_engine *engine)
{
    return lk__optim_lr(engine->optim);
}

void lk_engine_set_lr(lk_engine *engine, double lr)
{
    lk__optim_set_lr(engine->optim, lr);
}

uint64_t lk_engine_steps(const lk_engine *engine)
{
    return lk__optim_steps(engine->optim);
}

lk_status lk_engine_state(const lk_engine *engine, lk_state **out)
{
    return lk__params_export(engine->params, out);
}

lk_status lk_engine_grads(const lk_engine *engine, lk_state **out)
{
    return lk__params_export_grads(engine->params, out);
}

lk_status lk_engine_set_state(lk_engine *engine, const lk_state *state)
{
    return lk__params_import(engine->params, state);
}
