/* engine.c - the engine: how it is put together, and its steps.
 *
 * A step runs this rank's waves through the plan (passes.c), sums gradients over
 * the ranks in buckets while it does (buckets.c), makes sure that all is finite
 * (blame.c), and updates each range when its sum is there. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "parallel/agree.h"
#include "parallel/clip.h"
#include "parallel/engine_impl.h"
#include "parallel/pipeline.h"
#include "parallel/replicas.h"

enum { DEFAULT_SHARDS = 16, MAX_THREADS = 1024, DEFAULT_CHECK_EVERY = 100, WAVES_A_STAGE = 4 };

static const size_t DEFAULT_BUCKET = (size_t)4 << 20;

/* ---- options ------------------------------------------------------------------ */

static lk_status check_opts(const lk_engine_opts *opts)
{
    if (opts->batch < 1 || opts->batch > UINT32_MAX)
        return lk__fail(LK_STATUS_USAGE, "a batch of %zu samples; 1 to %u are possible", opts->batch, UINT32_MAX);
    if (opts->shards < 1 || opts->shards > LK_MAX_SHARDS)
        return lk__fail(LK_STATUS_USAGE, "--shards %d is not in 1 to %d", opts->shards, LK_MAX_SHARDS);
    if (opts->threads < 0 || opts->threads > MAX_THREADS)
        return lk__fail(LK_STATUS_USAGE, "--threads %d is not in 1 to %d", opts->threads, MAX_THREADS);
    if (opts->bn != LK_BN_BATCH && opts->bn != LK_BN_SHARD)
        return lk__fail(LK_STATUS_USAGE, "there is no BatchNorm mode %d", (int)opts->bn);
    if (!isfinite(opts->clip_norm) || opts->clip_norm < 0)
        return lk__fail(LK_STATUS_USAGE, "--clip-norm %g must be a number not below 0", opts->clip_norm);
    return LK_OK;
}

static lk_engine_opts with_defaults(const lk_engine_opts *opts)
{
    lk_engine_opts full = *opts;
    if (!full.device)
        full.device = "cpu";
    if (!full.shards)
        full.shards = DEFAULT_SHARDS;
    if (!full.optimizer)
        full.optimizer = "sgd";
    if (!full.bucket_bytes)
        full.bucket_bytes = DEFAULT_BUCKET;
    if (!full.check_every)
        full.check_every = DEFAULT_CHECK_EVERY;
    return full;
}

/* What must be the same at all ranks: the result's, and the order of calls. */
static lk_status agree_options(lk_engine *engine)
{
    const lk_engine_opts *opts = &engine->opts;
    char lines[LK_AGREED_TEXT];
    if (!opts->group || lk_group_size(opts->group) == 1)
        return LK_OK;
    snprintf(lines, sizeof lines,
             "a model of %d layers with %zu parameters\n--batch-size %zu\n--shards %d\n--seed %llu\n--optimizer "
             "%.200s\n--lr %.17g\n--bn %s\n--clip-norm %.17g\n--micro-batch %zu\n--bucket-mb %g\n--stages "
             "%.200s\n--pipelined %d\n--check-every %d\nallow_nonfinite %d\n",
             engine->graph->count, lk_graph_parameters(engine->graph), opts->batch, opts->shards,
             (unsigned long long)opts->seed, opts->optimizer, opts->lr, opts->bn == LK_BN_BATCH ? "batch" : "shard",
             opts->clip_norm, opts->micro_batch, (double)opts->bucket_bytes / (1 << 20),
             opts->stages ? opts->stages : "1", opts->pipelined, opts->check_every, opts->allow_nonfinite);
    return lk__agree_lines(opts->group, lines, &engine->agreed);
}

/* ---- creation ------------------------------------------------------------------- */

static lk_status open_device(lk_engine *engine)
{
    lk_engine_opts *opts = &engine->opts;
    int part = lk__cores() / engine->grid.sharers;
    if (!opts->threads)
        opts->threads = part > 0 ? part : 1;
    lk_device_opts device = {.threads = opts->threads, .sharers = engine->grid.sharers};
    return lk__device_open(opts->device, &device, &engine->dev);
}

/* Enough waves to keep all stages busy most of the time, where the user does not
 * say. */
static size_t choose_micro_batch(const lk_engine *engine, bool one_wave)
{
    const lk_engine_opts *opts = &engine->opts;
    size_t waves = (size_t)(WAVES_A_STAGE * engine->grid.stages * engine->grid.replicas);
    if (one_wave)
        return 0;
    if (opts->micro_batch || !opts->pipelined)
        return opts->micro_batch;
    return lk__max_size(1, opts->batch / waves);
}

static lk_status plan_waves(lk_engine *engine)
{
    const lk_grid *grid = &engine->grid;
    bool one_wave = engine->opts.bn == LK_BN_BATCH && lk__graph_has_sums(engine->graph);
    lk_waves_opts opts = {.shards = engine->opts.shards,
                          .bounds = grid->bounds,
                          .replicas = grid->replicas,
                          .replica = grid->replica,
                          .batch = engine->opts.batch,
                          .micro_batch = choose_micro_batch(engine, one_wave)};
    LK_TRY(lk__waves_create(&opts, &engine->waves));
    lk_waves *waves = engine->waves;
    int most = waves->one_wave ? 1 : waves->last - waves->first;
    engine->lane_count = lk__pipeline_ahead(grid->stages, grid->stage, most - 1, engine->opts.pipelined) + 1;
    return LK_ALLOC((size_t)(waves->last - waves->first), "results", &engine->leaves);
}

/* Where ranks of this host can read each other's gradients in place, if the host
 * can. */
static lk_status alloc_grads(lk_engine *engine)
{
    const lk_waves *waves = engine->waves;
    int slots = waves->one_wave ? waves->own_roots : waves->most_roots;
    size_t bytes = lk__max_size(engine->params->count, 1) * (size_t)slots * sizeof(float);
    if (engine->grid.sums && engine->dev->type->host_memory) {
        LK_TRY(lk_group_alloc(engine->grid.sums, bytes, (void **)&engine->params->grads));
    } else {
        LK_TRY(engine->dev->type->alloc(engine->dev, bytes, "gradients", (void **)&engine->grads));
        engine->params->grads = engine->grads;
    }
    return LK_OK;
}

static lk_status build_params(lk_engine *engine)
{
    const lk_grid *grid = &engine->grid;
    LK_TRY(lk__params_create(engine->graph, engine->dev, grid->first_layer, grid->last_layer, &engine->params));
    LK_TRY(lk__params_init(engine->params, engine->opts.seed));
    LK_TRY(alloc_grads(engine));
    lk_buckets_opts buckets = {.group = grid->sums,
                               .bounds = grid->bounds,
                               .params = engine->params,
                               .roots = engine->waves->own_roots,
                               .bytes = engine->opts.bucket_bytes,
                               .check = !engine->opts.allow_nonfinite};
    LK_TRY(lk__buckets_create(&buckets, &engine->buckets));
    return lk__optim_create(engine->opts.optimizer, engine->opts.lr, engine->dev, engine->params->count,
                            &engine->optim);
}

static lk_status build_plan(lk_engine *engine)
{
    const lk_waves *waves = engine->waves;
    lk_plan_opts opts = {.first = engine->grid.first_layer,
                         .last = engine->grid.last_layer,
                         .capacity = waves->capacity,
                         .lanes = engine->lane_count,
                         .shards = waves->last - waves->first,
                         .slots = waves->most_roots,
                         .all_roots = waves->all_roots,
                         .total_slots = waves->total_slots,
                         .hooks = lk__pass_hooks(engine)};
    return lk__plan_create(engine->graph, engine->params, &opts, &engine->plan);
}

static lk_status alloc_lanes(lk_engine *engine)
{
    size_t capacity = engine->waves->capacity;
    lk_device *dev = engine->dev;
    LK_TRY(LK_ALLOC((size_t)engine->lane_count, "waves", &engine->lanes));
    for (int i = 0; i < engine->lane_count; i++) {
        lk_lane *lane = &engine->lanes[i];
        LK_TRY(dev->type->alloc(dev, capacity * sizeof *lane->ids, "sample ids", (void **)&lane->ids));
        LK_TRY(dev->type->alloc(dev, capacity * sizeof *lane->labels, "labels", (void **)&lane->labels));
        LK_TRY(dev->type->alloc(dev, capacity * sizeof *lane->correct, "results", (void **)&lane->correct));
        LK_TRY(dev->type->alloc(dev, capacity * sizeof *lane->loss, "losses", (void **)&lane->loss));
    }
    return LK_OK;
}

/* Room for the results of n samples. */
static lk_status ensure_results(lk_engine *engine, size_t n)
{
    n = lk__max_size(n, 1);
    if (n <= engine->results)
        return LK_OK;
    lk__free(engine->loss);
    lk__free(engine->correct);
    engine->loss = NULL;
    engine->correct = NULL;
    engine->results = 0;
    LK_TRY(LK_ALLOC(n, "losses", &engine->loss));
    LK_TRY(LK_ALLOC(n, "results", &engine->correct));
    engine->results = n;
    return LK_OK;
}

static lk_status build(lk_engine *engine, const lk_graph *graph)
{
    const lk_engine_opts *opts = &engine->opts;
    lk_grid_opts grid = {.world = opts->group, .stages = opts->stages, .shards = opts->shards};
    LK_TRY(lk__graph_copy(graph, &engine->graph));
    LK_TRY(agree_options(engine));
    LK_TRY(check_opts(opts));
    LK_TRY(lk__grid_init(&engine->grid, engine->graph, &grid));
    LK_TRY(open_device(engine));
    LK_TRY(plan_waves(engine));
    LK_TRY(build_params(engine));
    LK_TRY(build_plan(engine));
    LK_TRY(alloc_lanes(engine));
    return engine->grid.sums ? lk__replicas_start(engine->grid.sums, engine->params) : LK_OK;
}

/* A failure of this rank's own must not leave the others waiting. */
static lk_status tell_others(lk_engine *engine, lk_status status)
{
    char detail[LK_AGREED_TEXT];
    if (status == LK_OK || status == LK_STATUS_PEER || !engine->grid.world)
        return status;
    if (!engine->agreed) {
        snprintf(detail, sizeof detail, "%s", lk_error_detail());
        lk_group_abort(engine->grid.world, detail);
        status = lk__fail(status, "%s", detail);
    }
    engine->agreed = false;
    return status;
}

lk_status lk_engine_create(const lk_graph *graph, const lk_engine_opts *opts, lk_engine **out)
{
    lk_engine_opts full = with_defaults(opts);
    LK_TRY(lk_graph_check(graph));
    lk_engine *engine;
    LK_TRY(LK_ALLOC(1, "engine", &engine));
    engine->opts = full;
    lk_status status = build(engine, graph);
    if (status != LK_OK) {
        /* What the options say is wrong is wrong at every rank. */
        if (status != LK_STATUS_USAGE)
            status = tell_others(engine, status);
        lk_engine_destroy(engine);
        return status;
    }
    *out = engine;
    return LK_OK;
}

static void destroy_lanes(lk_engine *engine)
{
    const lk_device_type *type = engine->dev->type;
    for (int i = 0; engine->lanes && i < engine->lane_count; i++) {
        type->free(engine->dev, engine->lanes[i].loss);
        type->free(engine->dev, engine->lanes[i].correct);
        type->free(engine->dev, engine->lanes[i].labels);
        type->free(engine->dev, engine->lanes[i].ids);
    }
    lk__free(engine->lanes);
}

void lk_engine_destroy(lk_engine *engine)
{
    if (!engine)
        return;
    lk__free(engine->correct);
    lk__free(engine->loss);
    lk__free(engine->leaves);
    lk__plan_destroy(engine->plan);
    lk__optim_destroy(engine->optim);
    lk__buckets_destroy(engine->buckets);
    lk__params_destroy(engine->params);
    lk__waves_destroy(engine->waves);
    if (engine->dev) {
        destroy_lanes(engine);
        engine->dev->type->free(engine->dev, engine->grads);
    }
    lk__device_close(engine->dev);
    lk__grid_fini(&engine->grid);
    lk_graph_destroy(engine->graph);
    lk__free(engine);
}

/* ---- batches ---------------------------------------------------------------------- */

lk_share lk_engine_share(const lk_engine *engine)
{
    const lk_waves *waves = engine->waves;
    if (!engine->grid.world)
        return (lk_share){0};
    return (lk_share){
        .shards = waves->shards, .first = waves->first, .last = waves->last, .labels_only = engine->grid.stage > 0};
}

static lk_status check_samples(const lk_engine *engine, const lk_batch *batch, const lk_part *part)
{
    size_t sample = lk__shape_sample(engine->graph->layers[0].shape);
    if (batch->sample != sample)
        return lk__fail(LK_STATUS_MISMATCH, "the batch has %zu values a sample, the model takes %zu", batch->sample,
                        sample);
    size_t classes = engine->graph->layers[engine->graph->count - 1].shape.c;
    for (size_t i = 0; i < part->count; i++) {
        if (part->labels[i] < 0 || (size_t)part->labels[i] >= classes)
            return lk__fail(LK_STATUS_MISMATCH, "sample %u has label %d, but the model has %zu classes", part->ids[i],
                            part->labels[i], classes);
    }
    return LK_OK;
}

/* This rank's samples of a batch, which holds all of it or just those. */
static lk_status take_part(const lk_engine *engine, const lk_batch *batch, lk_part *out)
{
    bool first = engine->grid.stage == 0;
    if ((!batch->x && first) || !batch->labels || !batch->ids)
        return lk__fail(LK_STATUS_USAGE, "a batch needs samples, labels and ids; one of them is NULL");
    const lk_waves *waves = engine->waves;
    lk_share share = {.shards = waves->shards, .first = waves->first, .last = waves->last};
    size_t total = batch->total ? batch->total : batch->count, begin = 0;
    lk_part part = {.count = lk_share_count(share, total), .total = total};
    if (!batch->total)
        begin = lk_share_begin(share, total);
    else if (batch->count != part.count)
        return lk__fail(LK_STATUS_MISMATCH,
                        "this rank's share of a batch of %zu is %zu samples, not %zu; give its loader the share of "
                        "lk_engine_share",
                        total, part.count, batch->count);
    part.x = first ? batch->x + begin * batch->sample : NULL;
    part.labels = batch->labels + begin;
    part.ids = batch->ids + begin;
    LK_TRY(check_samples(engine, batch, &part));
    *out = part;
    return LK_OK;
}

/* ---- steps ------------------------------------------------------------------------ */

static lk_status await_bucket(lk_engine *engine, int index)
{
    double began = lk__clock();
    LK_TRY(lk__buckets_wait(engine->buckets, index));
    engine->waits.gradients += lk__clock() - began;
    return lk__check_finite_sum(engine, &engine->buckets->list[index]);
}

static void update_range(lk_engine *engine, size_t begin, size_t end)
{
    lk__optim_range(engine->optim, engine->params->grads, engine->params->params, begin, end);
}

/* All replicas of a stage find the same; where there are other stages, those
 * hear of it. */
static lk_status check_replicas(lk_engine *engine)
{
    const lk_grid *grid = &engine->grid;
    if (!grid->sums)
        return LK_OK;
    char text[LK_AGREED_TEXT];
    lk_status status = lk__replicas_compare(grid->sums, engine->params, engine->optim, lk__optim_steps(engine->optim),
                                            grid->stage, grid->stages);
    if (status != LK_OK && status != LK_STATUS_MISMATCH)
        return status;
    if (grid->stages > 1) {
        snprintf(text, sizeof text, "%s", status == LK_OK ? "" : lk_error_detail());
        return lk__agree_failure(grid->world, status == LK_OK ? -1 : grid->stage, text, LK_STATUS_MISMATCH,
                                 &engine->agreed);
    }
    engine->agreed = status != LK_OK;
    return status;
}

/* After an update. */
static lk_status finish_update(lk_engine *engine)
{
    LK_TRY(engine->dev->type->sync(engine->dev));
    int every = engine->opts.check_every;
    if (engine->grid.replicas == 1 || every < 0 || lk__optim_steps(engine->optim) % (uint64_t)every != 0)
        return LK_OK;
    return check_replicas(engine);
}

static lk_status update_by_bucket(lk_engine *engine)
{
    lk__optim_begin(engine->optim);
    for (int i = 0; i < engine->buckets->count; i++) {
        LK_TRY(await_bucket(engine, i));
        update_range(engine, engine->buckets->list[i].begin, engine->buckets->list[i].end);
    }
    return finish_update(engine);
}

static lk_status check_step(const lk_engine *engine, const lk_batch *batch)
{
    size_t count = batch->total ? batch->total : batch->count;
    if (count < 1 || count > engine->opts.batch)
        return lk__fail(LK_STATUS_USAGE, "a batch of %zu samples; this engine takes 1 to %zu", count,
                        engine->opts.batch);
    if (lk__optim_steps(engine->optim) >= UINT32_MAX)
        return lk__fail(LK_STATUS_USAGE, "a run has at most %u steps", UINT32_MAX);
    return LK_OK;
}

/* Up to gradients that are known to be finite at every rank, their sums perhaps
 * still under way. */
static lk_status begin_step(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    lk_part part;
    engine->ready = false;
    LK_TRY(check_step(engine, batch));
    engine->step = lk__optim_steps(engine->optim) + 1;
    LK_TRY(take_part(engine, batch, &part));
    LK_TRY(ensure_results(engine, part.count));
    LK_TRY(lk__run_passes(engine, &part));
    double began = lk__clock();
    LK_TRY(lk__check_finite_step(engine, &part));
    if (lk__has_losses(engine))
        engine->own = lk__metrics_leaves(engine, part.total);
    LK_TRY(lk__metrics_total(engine, part.total, out));
    if (engine->grid.world)
        engine->waits.other += lk__clock() - began;
    lk_wave last = lk__waves_at(engine->waves, engine->waves->count - 1);
    last.bn = engine->opts.bn;
    last.step_rows = part.total;
    return lk__plan_finish(engine->plan, &last);
}

static lk_status gradients(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    lk_metrics metrics;
    LK_TRY(begin_step(engine, batch, &metrics));
    for (int i = 0; i < engine->buckets->count; i++)
        LK_TRY(await_bucket(engine, i));
    if (engine->opts.clip_norm > 0) {
        double norm;
        LK_TRY(lk__grad_norm(engine->params, engine->grid.pipeline, &norm));
        lk__grad_clip(engine->params, norm, engine->opts.clip_norm);
    }
    engine->ready = true;
    *out = metrics;
    return LK_OK;
}

static lk_status update(lk_engine *engine)
{
    if (!engine->ready)
        return lk__fail(LK_STATUS_USAGE, "no gradients to update by; lk_engine_gradients must have succeeded before");
    engine->ready = false;
    lk__optim_begin(engine->optim);
    update_range(engine, 0, engine->params->count);
    return finish_update(engine);
}

static lk_status step(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    lk_metrics metrics;
    if (engine->opts.clip_norm > 0) {
        LK_TRY(gradients(engine, batch, &metrics));
        LK_TRY(update(engine));
    } else {
        LK_TRY(begin_step(engine, batch, &metrics));
        LK_TRY(update_by_bucket(engine));
    }
    *out = metrics;
    return LK_OK;
}

lk_status lk_engine_gradients(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    return tell_others(engine, gradients(engine, batch, out));
}

lk_status lk_engine_update(lk_engine *engine)
{
    return tell_others(engine, update(engine));
}

lk_status lk_engine_step(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    return tell_others(engine, step(engine, batch, out));
}

/* Evaluation is cut into pieces of the plan's capacity. Results are per sample,
 * so the cut does not show. */
static lk_status evaluate(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    lk_part part;
    size_t capacity = engine->waves->capacity;
    if (batch->count < 1 && !batch->total)
        return lk__fail(LK_STATUS_USAGE, "evaluation needs at least one sample");
    LK_TRY(take_part(engine, batch, &part));
    LK_TRY(ensure_results(engine, part.count));
    for (size_t begin = 0; begin < part.count; begin += capacity)
        LK_TRY(lk__run_eval(engine, &part, begin, lk__min_size(capacity, part.count - begin)));
    if (lk__has_losses(engine))
        (void)lk__metrics_leaves(engine, part.total);
    return lk__metrics_total(engine, part.total, out);
}

lk_status lk_engine_eval(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    return tell_others(engine, evaluate(engine, batch, out));
}

/* ---- what it says of itself --------------------------------------------------------- */

lk_layout lk_engine_layout(const lk_engine *engine)
{
    const lk_grid *grid = &engine->grid;
    return (lk_layout){
        .replica = grid->replica,
        .replicas = grid->replicas,
        .stage = grid->stage,
        .stages = grid->stages,
        .first_layer = grid->first_layer,
        .last_layer = grid->last_layer,
        .threads = engine->opts.threads,
        .capacity = engine->waves->capacity,
        .one_wave = engine->opts.bn == LK_BN_BATCH && lk__graph_has_sums(engine->graph),
    };
}

lk_metrics lk_engine_own_metrics(const lk_engine *engine)
{
    return engine->own;
}

lk_waits lk_engine_waits(const lk_engine *engine)
{
    return engine->waits;
}

lk_status lk_engine_check(lk_engine *engine)
{
    return tell_others(engine, check_replicas(engine));
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

/* ---- state in and out ----------------------------------------------------------------- */

/* Each key's bytes are zero at all stages but one, so adding them up as integers
 * brings every bit to every stage. */
static lk_status gather_stages(const lk_engine *engine, lk_state *state)
{
    for (size_t i = 0; engine->grid.pipeline && i < lk_state_count(state); i++) {
        const lk_entry *entry = lk_state_at(state, i);
        LK_TRY(lk_allreduce(engine->grid.pipeline, (lk_data){entry->data, entry->bytes, LK_DTYPE_U8}, LK_REDUCTION_SUM,
                            NULL));
    }
    return LK_OK;
}

typedef lk_status (*export_fn)(const lk_params *params, lk_state **out);

static lk_status export_whole(const lk_engine *engine, export_fn export, lk_state **out)
{
    lk_state *state;
    LK_TRY(export(engine->params, &state));
    lk_status status = gather_stages(engine, state);
    if (status == LK_OK)
        *out = state;
    else
        lk_state_destroy(state);
    return status;
}

lk_status lk_engine_state(const lk_engine *engine, lk_state **out)
{
    return export_whole(engine, lk__params_export, out);
}

lk_status lk_engine_grads(const lk_engine *engine, lk_state **out)
{
    return export_whole(engine, lk__params_export_grads, out);
}

static lk_status set_state(lk_engine *engine, const lk_state *state)
{
    LK_TRY(lk__params_import(engine->params, state));
    return engine->grid.sums ? lk__replicas_start(engine->grid.sums, engine->params) : LK_OK;
}

lk_status lk_engine_set_state(lk_engine *engine, const lk_state *state)
{
    return tell_others(engine, set_state(engine, state));
}
