/* engine.c - the engine's steps and evaluations.
 *
 * A step runs this rank's waves through the plan (passes.c), sums gradients over
 * the ranks in buckets while it does (buckets.c), makes sure that all is finite
 * (blame.c), and updates each range when its sum is there. */
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "parallel/engine/agree.h"
#include "parallel/engine/engine_impl.h"
#include "parallel/layout/replicas.h"
#include "parallel/step/clip.h"
#include "parallel/step/recorded.h"
#include "parallel/step/resident.h"

lk_shard_range lk_engine_shard_range(const lk_engine *engine)
{
    const lk_waves *waves = engine->waves;
    if (!engine->grid.world)
        return (lk_shard_range){0};
    return (lk_shard_range){
        .shards = waves->shards, .first = waves->first, .last = waves->last, .labels_only = engine->grid.stage > 0};
}

static lk_status check_samples(const lk_engine *engine, const lk_batch *batch, const lk_engine_part *part)
{
    size_t sample = lk__shape_sample(engine->graph->layers[0].shape);
    if (batch->count > 0 && batch->sample_floats != sample)
        return lk__fail(LK_STATUS_MISMATCH, "the batch has %zu values a sample, the model takes %zu",
                        batch->sample_floats, sample);
    size_t classes = engine->graph->layers[engine->graph->count - 1].shape.c;
    for (size_t i = 0; i < part->count; i++) {
        if (part->labels[i] < 0 || (size_t)part->labels[i] >= classes)
            return lk__fail(LK_STATUS_MISMATCH, "sample %u has label %d, but the model has %zu classes", part->ids[i],
                            part->labels[i], classes);
    }
    return LK_OK;
}

/* Points the part at its samples, which begin at `begin` in the batch. A share without
 * samples may come without memory, and is given some that nobody reads. */
static void point_at(const lk_batch *batch, size_t begin, bool with_x, lk_engine_part *part)
{
    static const float no_x[1];
    static const int32_t no_labels[1];
    static const uint32_t no_ids[1];
    bool empty = part->count == 0;
    part->labels = empty ? no_labels : batch->labels + begin;
    part->ids = empty ? no_ids : batch->ids + begin;
    if (with_x)
        part->x = empty ? no_x : batch->x + begin * batch->sample_floats;
}

/* This rank's samples of a batch, which holds all of it or just those. */
static lk_status take_part(const lk_engine *engine, const lk_batch *batch, lk_engine_part *out)
{
    bool first = engine->grid.stage == 0;
    const lk_resident *resident = NULL;
    if (first && batch->source)
        LK_TRY(lk__resident_find(engine, batch, &resident));
    if (batch->count > 0 && ((!batch->x && !resident && first) || !batch->labels || !batch->ids))
        return lk__fail(LK_STATUS_USAGE, "a batch needs samples, labels and ids; one of them is NULL");
    const lk_waves *waves = engine->waves;
    lk_shard_range share = {.shards = waves->shards, .first = waves->first, .last = waves->last};
    size_t total = batch->total ? batch->total : batch->count, begin = 0;
    lk_engine_part part = {.resident = resident,
                           .count = lk_shard_range_count(share, total),
                           .total = total,
                           .epoch = (uint32_t)batch->epoch};
    if (batch->count == total)
        begin = lk_shard_range_begin(share, total);
    else if (batch->count != part.count)
        return lk__fail(LK_STATUS_MISMATCH,
                        "this rank's share of a batch of %zu is %zu samples, not %zu; give its loader the share of "
                        "lk_engine_shard_range",
                        total, part.count, batch->count);
    point_at(batch, begin, first && !resident, &part);
    LK_TRY(check_samples(engine, batch, &part));
    *out = part;
    return LK_OK;
}

/* Room for the results of n samples. */
static lk_status ensure_results(lk_engine *engine, size_t n)
{
    n = lk__size_max(n, 1);
    if (n <= engine->results)
        return LK_OK;
    lk__mem_free(engine->loss);
    lk__mem_free(engine->place);
    engine->loss = NULL;
    engine->place = NULL;
    engine->results = 0;
    LK_TRY(LK_ALLOC(n, "losses", &engine->loss));
    LK_TRY(LK_ALLOC(n, "results", &engine->place));
    engine->results = n;
    return LK_OK;
}

static lk_status await_bucket(lk_engine *engine, int index)
{
    double began = lk__clock();
    LK_TRY(lk__buckets_wait(engine->buckets, index));
    engine->waits.gradients += lk__clock() - began;
    return LK_OK;
}

static lk_status settle_buckets(lk_engine *engine)
{
    double began = lk__clock();
    LK_TRY(lk__buckets_settle(engine->buckets));
    engine->waits.gradients += lk__clock() - began;
    return LK_OK;
}

void lk__engine_update_range(lk_engine *engine, size_t begin, size_t end, const lk_flag *flag)
{
    lk_optim_range range = {
        .grads = engine->params->grads, .params = engine->params->params, .begin = begin, .end = end, .flag = flag};
    lk__optim_range(engine->optim, &range);
    lk__params_round(engine->params, begin, end);
}

uint64_t lk__engine_equal_at(const lk_engine *engine)
{
    return engine->grid.replicas > 1 ? engine->equal_at : lk__optim_steps(engine->optim);
}

bool lk__engine_replicas_differ(const lk_engine *engine)
{
    return engine->replicas_differ;
}

/* Adds from where to go on. */
static lk_status fail_replicas(const lk_engine *engine)
{
    char why[LK_AGREED_TEXT];
    snprintf(why, sizeof why, "%s", lk_error_detail());
    if (engine->equal_at == 0)
        return lk__fail(LK_STATUS_MISMATCH, "%s; they were not compared before: start again", why);
    return lk__fail(LK_STATUS_MISMATCH,
                    "%s; they were last equal after step %llu: resume from a checkpoint of that step or an earlier one",
                    why, (unsigned long long)engine->equal_at);
}

/* All replicas of a stage find the same; where there are other stages, those
 * hear of it. */
static lk_status compare_replicas(lk_engine *engine)
{
    const lk_grid *grid = &engine->grid;
    char text[LK_AGREED_TEXT];
    lk_status status = lk__replicas_compare(grid->sums, engine->params, engine->optim, lk__optim_steps(engine->optim),
                                            grid->stage, grid->stages);
    if (status != LK_OK && status != LK_STATUS_MISMATCH)
        return status;
    if (status == LK_STATUS_MISMATCH)
        status = fail_replicas(engine);
    if (grid->stages > 1) {
        snprintf(text, sizeof text, "%s", status == LK_OK ? "" : lk_error_detail());
        return lk__agree_failure(grid->world, status == LK_OK ? -1 : grid->stage, text, LK_STATUS_MISMATCH,
                                 &engine->agreed);
    }
    engine->agreed = status != LK_OK;
    return status;
}

static lk_status check_replicas(lk_engine *engine)
{
    if (!engine->grid.sums)
        return LK_OK;
    lk_status status = compare_replicas(engine);
    engine->replicas_differ = status == LK_STATUS_MISMATCH;
    LK_TRY(status);
    engine->equal_at = lk__optim_steps(engine->optim);
    return LK_OK;
}

/* Whether replicas are compared after the last step that was begun: the count of steps
 * has come to a multiple of check_every, or has passed one without an update. */
static bool check_is_due(const lk_engine *engine)
{
    int every = engine->opts.check_every;
    uint64_t steps = lk__optim_steps(engine->optim);
    return engine->grid.replicas > 1 && every > 0 && steps / (uint64_t)every != engine->equal_at / (uint64_t)every;
}

/* After an update. */
static lk_status finish_update(lk_engine *engine)
{
    LK_TRY(settle_buckets(engine));
    LK_TRY(engine->dev->type->sync(engine->dev));
    return check_is_due(engine) ? check_replicas(engine) : LK_OK;
}

static lk_status update_by_bucket(lk_engine *engine)
{
    lk__optim_count(engine->optim);
    LK_TRY(lk__optim_begin(engine->optim));
    for (int i = 0; i < engine->buckets->count; i++) {
        LK_TRY(await_bucket(engine, i));
        lk__engine_update_range(engine, engine->buckets->list[i].begin, engine->buckets->list[i].end, NULL);
    }
    return finish_update(engine);
}

static lk_status check_step(const lk_engine *engine, const lk_batch *batch)
{
    size_t count = batch->total ? batch->total : batch->count;
    if (engine->opts.eval_only)
        return lk__fail(LK_STATUS_USAGE, "a step of an engine that was created for evaluation alone (eval_only)");
    if (count < 1 || count > engine->opts.batch)
        return lk__fail(LK_STATUS_USAGE, "a batch of %zu samples; this engine takes 1 to %zu", count,
                        engine->opts.batch);
    if (lk__optim_steps(engine->optim) >= UINT32_MAX)
        return lk__fail(LK_STATUS_USAGE, "a run has at most %u steps", UINT32_MAX);
    return LK_OK;
}

static lk_status flip_bit(lk_engine *engine, size_t bit)
{
    const lk_device_type *type = engine->dev->type;
    uint8_t byte, *at = (uint8_t *)engine->params->params + bit / 8;
    LK_TRY(type->download(engine->dev, at, 1, &byte));
    byte ^= (uint8_t)(1u << bit % 8);
    LK_TRY(type->upload(engine->dev, &byte, 1, at));
    lk__params_round(engine->params, 0, engine->params->count);
    return LK_OK;
}

/* Where faults are asked for: this rank's place in the run, and a bit of its
 * parameters. */
static lk_status meet_faults(lk_engine *engine, const char *op, uint64_t step)
{
    size_t bit, count = engine->params->count;
    if (!lk__fault_is_on())
        return LK_OK;
    int rank = engine->grid.world ? lk_group_rank(engine->grid.world) : 0;
    lk__fault_set_site((lk_fault_site){.rank = rank, .step = step, .op = op});
    lk__fault_point(op);
    return lk__fault_flip(op, count * 8 * sizeof(float), &bit) ? flip_bit(engine, bit) : LK_OK;
}

/* Up to gradients that are known to be finite at every rank, their sums perhaps
 * still under way. */
static lk_status begin_step(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    lk_engine_part part;
    engine->has_grads = engine->ready = engine->doubtful = engine->agreed = false;
    engine->own = (lk_metrics){0};
    LK_TRY(check_step(engine, batch));
    engine->step = lk__optim_steps(engine->optim) + 1;
    LK_TRY(meet_faults(engine, "step", engine->step));
    LK_TRY(take_part(engine, batch, &part));
    LK_TRY(ensure_results(engine, part.count));
    LK_TRY(lk__engine_run_waves(engine, &part));
    double began = lk__clock();
    LK_TRY(lk__nonfinite_check_step(engine, &part));
    if (lk__engine_has_losses(engine))
        engine->own = lk__metrics_leaves(engine, part.total);
    LK_TRY(lk__metrics_total(engine, part.total, out));
    if (engine->grid.world)
        engine->waits.gradients += lk__clock() - began;
    return LK_OK;
}

/* When no check can stop the step any more: running statistics. */
static lk_status finish_passes(lk_engine *engine)
{
    lk_op_wave last = lk__waves_at(engine->waves, engine->waves->count - 1);
    last.bn = engine->opts.bn;
    last.step_rows = engine->waves->batch;
    lk__plan_count(engine->plan, 1);
    return lk__plan_finish(engine->plan, &last);
}

/* All gradients at once: summed, found finite, clipped. */
static lk_status await_gradients(lk_engine *engine)
{
    for (int i = 0; i < engine->buckets->count; i++)
        LK_TRY(await_bucket(engine, i));
    LK_TRY(settle_buckets(engine));
    LK_TRY(lk__nonfinite_check_sums(engine));
    LK_TRY(finish_passes(engine));
    /* That gathers again, and the norm waits for the device. */
    LK_TRY(settle_buckets(engine));
    if (engine->opts.clip_norm > 0) {
        double norm;
        LK_TRY(lk__clip_norm(engine->params, engine->grid.pipeline, &norm));
        lk__clip_gradient(engine->params, norm, engine->opts.clip_norm);
    }
    lk__optim_count(engine->optim);
    engine->has_grads = engine->ready = true;
    return LK_OK;
}

static lk_status gradients(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    lk_metrics metrics;
    LK_TRY(begin_step(engine, batch, &metrics));
    LK_TRY(await_gradients(engine));
    *out = metrics;
    return LK_OK;
}

static lk_status update(lk_engine *engine)
{
    engine->agreed = false;
    if (!engine->ready)
        return lk__fail(LK_STATUS_USAGE, "no gradients to update by; lk_engine_gradients must have succeeded before");
    engine->ready = false;
    LK_TRY(lk__optim_begin(engine->optim));
    lk__engine_update_range(engine, 0, engine->params->count, NULL);
    return finish_update(engine);
}

static lk_status step(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    lk_metrics metrics;
    LK_TRY(begin_step(engine, batch, &metrics));
    if (engine->opts.clip_norm > 0 || engine->doubtful) {
        LK_TRY(await_gradients(engine));
        LK_TRY(update(engine));
    } else {
        LK_TRY(finish_passes(engine));
        LK_TRY(update_by_bucket(engine));
        engine->has_grads = true;
    }
    *out = metrics;
    return LK_OK;
}

static lk_status conclude(lk_engine *engine, lk_status status)
{
    if (lk__fault_is_on())
        lk__fault_leave(NULL);
    if (status != LK_OK)
        lk__engine_note_raised(engine, 0);
    return engine->agreed ? status : lk__engine_tell(engine, status);
}

lk_status lk__engine_enter(const lk_engine *engine)
{
    return lk__gate_enter((lk_gate *)(uintptr_t)&engine->gate);
}

lk_status lk__engine_leave(const lk_engine *engine, lk_status status)
{
    lk__gate_leave((lk_gate *)(uintptr_t)&engine->gate);
    return status;
}

lk_status lk__engine_enter_idle(const lk_engine *engine)
{
    LK_TRY(lk__engine_enter(engine));
    if (engine->pending == 0)
        return LK_OK;
    return lk__engine_leave(
        engine, lk__fail(LK_STATUS_USAGE, "%d steps are under way: lk_engine_receive must have got their results first",
                         engine->pending));
}

lk_status lk_engine_cache_dataset(lk_engine *engine, lk_loader *loader, bool *placed)
{
    LK_TRY(lk__engine_enter_idle(engine));
    return lk__engine_leave(engine, lk__resident_add(engine, loader, placed));
}

lk_status lk_engine_gradients(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    LK_TRY(lk__engine_enter_idle(engine));
    return lk__engine_leave(engine, conclude(engine, gradients(engine, batch, out)));
}

lk_status lk_engine_update(lk_engine *engine)
{
    LK_TRY(lk__engine_enter_idle(engine));
    return lk__engine_leave(engine, conclude(engine, update(engine)));
}

int lk_engine_depth(const lk_engine *engine)
{
    return engine->ahead ? LK_AHEAD_DEPTH : 1;
}

/* Those of a size that the device has not met are done at once, and so are all
 * where it cannot record; their results wait here. */
static lk_status step_at_once(lk_engine *engine, const lk_batch *batch, size_t total)
{
    LK_TRY(step(engine, batch, &engine->finished));
    if (engine->ahead)
        LK_TRY(lk__recorded_learn(engine, total));
    engine->pending = 1;
    engine->at_once = true;
    return LK_OK;
}

/* Behind those under way. */
static bool takes_more(const lk_engine *engine)
{
    return !engine->at_once && engine->pending < lk_engine_depth(engine) && !check_is_due(engine);
}

static lk_status send_step(lk_engine *engine, const lk_batch *batch)
{
    lk_engine_part part;
    engine->has_grads = engine->ready = engine->agreed = false;
    LK_TRY(check_step(engine, batch));
    size_t total = batch->total ? batch->total : batch->count;
    bool known = engine->ahead && !lk__fault_is_on() && lk__recorded_knows(engine->ahead, total);
    if (engine->pending > 0 && (!known || !takes_more(engine)))
        return lk__fail(LK_STATUS_USAGE, "%d steps are under way, and this one needs their results first",
                        engine->pending);
    if (!known)
        return step_at_once(engine, batch, total);
    LK_TRY(take_part(engine, batch, &part));
    LK_TRY(ensure_results(engine, part.count));
    engine->step = lk__optim_steps(engine->optim) + 1;
    LK_TRY(lk__recorded_send(engine, &part));
    engine->pending++;
    return LK_OK;
}

bool lk_engine_can_send(const lk_engine *engine, size_t total)
{
    bool known = engine->ahead && lk__recorded_knows(engine->ahead, total);
    return engine->pending == 0 || (known && takes_more(engine));
}

lk_status lk_engine_send(lk_engine *engine, const lk_batch *batch)
{
    LK_TRY(lk__engine_enter(engine));
    return lk__engine_leave(engine, conclude(engine, send_step(engine, batch)));
}

static lk_status receive_step(lk_engine *engine, lk_metrics *out)
{
    engine->agreed = false;
    if (engine->pending == 0)
        return lk__fail(LK_STATUS_USAGE, "no step is under way");
    if (engine->at_once) {
        *out = engine->finished;
        engine->pending = 0;
        engine->at_once = false;
        return LK_OK;
    }
    lk_status status = lk__recorded_receive(engine, out);
    engine->pending = lk__recorded_pending(engine->ahead);
    engine->has_grads = status == LK_OK;
    if (status != LK_OK || engine->pending > 0 || !check_is_due(engine))
        return status;
    return check_replicas(engine);
}

lk_status lk_engine_receive(lk_engine *engine, lk_metrics *out)
{
    LK_TRY(lk__engine_enter(engine));
    return lk__engine_leave(engine, conclude(engine, receive_step(engine, out)));
}

lk_status lk_engine_step(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    LK_TRY(lk__engine_enter_idle(engine));
    lk_status status = conclude(engine, send_step(engine, batch));
    if (status == LK_OK)
        status = conclude(engine, receive_step(engine, out));
    return lk__engine_leave(engine, status);
}

/* Results are per sample, so the cut into pieces does not show, or it is the same
 * for all ranks: pieces of shards. */
static lk_status run_pieces(lk_engine *engine, const lk_engine_part *part, size_t begin, size_t end, size_t most)
{
    for (; begin < end; begin += most)
        LK_TRY(lk__engine_run_eval(engine, part, begin, lk__size_min(most, end - begin)));
    return LK_OK;
}

static lk_status run_part(lk_engine *engine, const lk_engine_part *part)
{
    const lk_waves *waves = engine->waves;
    if (!engine->dev->type->by_shard)
        return run_pieces(engine, part, 0, part->count, waves->capacity);
    size_t most = lk__shard_most(engine->opts.batch, waves->shards, 1);
    size_t first = lk__shard_begin(part->total, waves->shards, waves->first);
    for (int s = waves->first; s < waves->last; s++)
        LK_TRY(run_pieces(engine, part, lk__shard_begin(part->total, waves->shards, s) - first,
                          lk__shard_begin(part->total, waves->shards, s + 1) - first, most));
    return LK_OK;
}

static lk_status evaluate(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    lk_engine_part part;
    engine->agreed = false;
    if (batch->count < 1 && !batch->total)
        return lk__fail(LK_STATUS_USAGE, "evaluation needs at least one sample");
    LK_TRY(meet_faults(engine, "eval", lk__optim_steps(engine->optim)));
    LK_TRY(take_part(engine, batch, &part));
    LK_TRY(lk__nonfinite_check_total(engine, part.total));
    LK_TRY(ensure_results(engine, part.count));
    LK_TRY(run_part(engine, &part));
    if (lk__engine_has_losses(engine))
        (void)lk__metrics_leaves(engine, part.total);
    return lk__metrics_total(engine, part.total, out);
}

lk_status lk_engine_eval(lk_engine *engine, const lk_batch *batch, lk_metrics *out)
{
    LK_TRY(lk__engine_enter_idle(engine));
    return lk__engine_leave(engine, conclude(engine, evaluate(engine, batch, out)));
}

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
        .one_wave = lk__engine_takes_one_wave(engine),
        .gradient_backend = engine->channel ? engine->channel->name : NULL,
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
    LK_TRY(lk__engine_enter_idle(engine));
    return lk__engine_leave(engine, conclude(engine, check_replicas(engine)));
}

double lk_engine_lr(const lk_engine *engine)
{
    return lk__optim_lr(engine->optim);
}

lk_status lk_engine_set_lr(lk_engine *engine, double lr)
{
    LK_TRY(lk__engine_enter(engine));
    return lk__engine_leave(engine, lk__optim_set_lr(engine->optim, lr));
}

uint64_t lk_engine_steps(const lk_engine *engine)
{
    return lk__optim_steps(engine->optim);
}

void lk_engine_set_signal_source(lk_engine *engine, int (*level)(void *arg), void *arg)
{
    engine->level = level;
    engine->level_arg = arg;
}

/* The largest of these words has the largest level and, of several ranks, the
 * lowest. */
enum { RANK_BITS = 32 };

int64_t lk__engine_raise(const lk_engine *engine)
{
    int level = engine->level ? engine->level(engine->level_arg) : 0;
    int rank = engine->grid.world ? lk_group_rank(engine->grid.world) : 0;
    return level > 0 ? ((int64_t)level << RANK_BITS) + (INT32_MAX - rank) : 0;
}

void lk__engine_note_raised(lk_engine *engine, int64_t word)
{
    engine->raised = (int)(word >> RANK_BITS);
    engine->raised_by = (int)(INT32_MAX - (word & UINT32_MAX));
}

int lk_engine_agreed_signal(const lk_engine *engine)
{
    return engine->raised;
}

int lk_engine_agreed_signal_rank(const lk_engine *engine)
{
    return engine->raised > 0 ? engine->raised_by : -1;
}
