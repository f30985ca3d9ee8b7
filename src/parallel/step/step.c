/* step.c - what a training step is.
 *
 * A step runs this rank's waves through the plan (passes.c), sums gradients over the ranks
 * in buckets while it does (buckets.c), makes sure that all is finite (blame.c), clips and
 * updates. run_step says so once, for steps that are done now and for those that a device
 * records (ahead.c); lk_engine_part.flag tells which of the two it is. */
#include "parallel/step/step.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "parallel/agree.h"
#include "parallel/layout/replicas.h"
#include "parallel/step/clip.h"
#include "parallel/step/metrics.h"
#include "parallel/step/nonfinite.h"
#include "parallel/step/recorded.h"
#include "parallel/step/run_waves.h"

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

lk_status lk__step_compare(lk_engine *engine)
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

/* Together, when losses and places are there: the metrics of a step that is finite at all
 * ranks. Else NONFINITE, and the state is that from before it. found is as in blame.h. */
static lk_status judge(lk_engine *engine, const lk_engine_part *part, const lk_flag *found, lk_metrics *out)
{
    double began = lk__clock();
    bool bad = false;
    LK_TRY(lk__nonfinite_check_step(engine, part, found, &bad));
    if (bad && found)
        LK_TRY(lk__recorded_go_back(engine));
    if (bad)
        return lk__nonfinite_explain(engine, part, found);
    engine->own = lk__metrics_leaves(engine, part->total);
    LK_TRY(lk__metrics_total(engine, part->total, out));
    if (engine->grid.world)
        engine->waits.gradients += lk__clock() - began;
    return LK_OK;
}

/* All gradients at once: summed and found finite. */
static lk_status await_gradients(lk_engine *engine, const lk_engine_part *part)
{
    for (int i = 0; i < engine->buckets->count; i++)
        LK_TRY(await_bucket(engine, i));
    LK_TRY(settle_buckets(engine));
    return lk__nonfinite_check_sums(engine, part);
}

static lk_status clip(lk_engine *engine)
{
    double norm;
    if (engine->opts.clip_norm == 0)
        return LK_OK;
    LK_TRY(lk__clip_norm(engine->params, engine->grid.pipeline, &norm));
    lk__clip_gradient(engine->params, norm, engine->opts.clip_norm);
    return LK_OK;
}

/* Enqueues the optimiser's step over these elements. */
static void update_range(lk_engine *engine, size_t begin, size_t end, const lk_flag *flag)
{
    lk_optim_range range = {
        .grads = engine->params->grads, .params = engine->params->params, .begin = begin, .end = end, .flag = flag};
    lk__optim_range(engine->optim, &range);
    lk__params_round(engine->params, begin, end);
}

/* By all gradients at once, which are there, or by each bucket when its sum is. */
static lk_status update(lk_engine *engine, const lk_flag *flag, bool all)
{
    const lk_buckets *buckets = engine->buckets;
    if (!flag)
        LK_TRY(lk__optim_begin(engine->optim));
    if (all)
        update_range(engine, 0, engine->params->count, flag);
    for (int i = 0; !all && i < buckets->count; i++) {
        LK_TRY(await_bucket(engine, i));
        update_range(engine, buckets->list[i].begin, buckets->list[i].end, flag);
    }
    if (flag)
        return LK_OK;
    LK_TRY(settle_buckets(engine));
    LK_TRY(engine->dev->type->sync(engine->dev));
    return check_is_due(engine) ? lk__step_compare(engine) : LK_OK;
}

/* Up to gradients that are finite at every rank. Where they are needed all at once, they are
 * summed and clipped; else their sums may be under way. A recorded step is judged when its
 * results are received. */
static lk_status run_gradients(lk_engine *engine, const lk_engine_part *part, bool all, lk_metrics *out)
{
    LK_TRY(lk__engine_run_waves(engine, part));
    if (!part->flag)
        LK_TRY(judge(engine, part, NULL, out));
    all = all || engine->doubtful;
    if (all)
        LK_TRY(await_gradients(engine, part));
    LK_TRY(lk__engine_finish_waves(engine, part));
    /* That gathers again, and the norm waits for the device. */
    if (all)
        LK_TRY(settle_buckets(engine));
    LK_TRY(clip(engine));
    if (part->flag)
        return LK_OK; /* it is counted when it is sent */
    lk__plan_count(engine->plan, 1);
    lk__optim_count(engine->optim);
    return LK_OK;
}

/* A step, done now or enqueued for a device that records. */
static lk_status run_step(lk_engine *engine, const lk_engine_part *part, lk_metrics *out)
{
    bool all = part->flag || engine->opts.clip_norm > 0;
    LK_TRY(run_gradients(engine, part, all, out));
    return update(engine, part->flag, all || engine->doubtful);
}

static lk_status enqueue_step(void *arg)
{
    lk_engine *engine = arg;
    LK_TRY(run_step(engine, lk__recorded_fetch(engine), NULL));
    lk__recorded_post(engine);
    lk__buckets_reset(engine->buckets, false);
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

/* Before a step that is done now. */
static lk_status begin_step(lk_engine *engine, const lk_engine_part *part)
{
    engine->doubtful = false;
    engine->own = (lk_metrics){0};
    LK_TRY(meet_faults(engine, "step", lk__optim_steps(engine->optim) + 1));
    return ensure_results(engine, part->count);
}

lk_status lk__step_gradients(lk_engine *engine, const lk_engine_part *part, lk_metrics *out)
{
    lk_metrics metrics;
    LK_TRY(begin_step(engine, part));
    LK_TRY(run_gradients(engine, part, true, &metrics));
    engine->has_grads = engine->ready = true;
    *out = metrics;
    return LK_OK;
}

lk_status lk__step_update(lk_engine *engine)
{
    if (!engine->ready)
        return lk__fail(LK_STATUS_USAGE, "no gradients to update by; lk_engine_gradients must have succeeded before");
    engine->ready = false;
    return update(engine, NULL, true);
}

/* Behind those under way. */
static bool takes_more(const lk_engine *engine)
{
    return !engine->at_once && engine->pending < LK_AHEAD_DEPTH && !check_is_due(engine);
}

bool lk__step_can_send(const lk_engine *engine, size_t total)
{
    return engine->pending == 0 || (lk__recorded_knows(engine, total) && takes_more(engine));
}

/* A step of a size that the device has not met, and all where it cannot record: the
 * results wait in the engine. */
static lk_status step_at_once(lk_engine *engine, const lk_engine_part *part)
{
    LK_TRY(begin_step(engine, part));
    LK_TRY(run_step(engine, part, &engine->finished));
    engine->has_grads = true;
    if (engine->ahead)
        LK_TRY(lk__recorded_learn(engine, part->total));
    engine->pending = 1;
    engine->at_once = true;
    return LK_OK;
}

lk_status lk__step_send(lk_engine *engine, const lk_engine_part *part)
{
    bool recorded = lk__recorded_knows(engine, part->total) && !lk__fault_is_on();
    if (engine->pending > 0 && (!recorded || !takes_more(engine)))
        return lk__fail(LK_STATUS_USAGE, "%d steps are under way, and this one needs their results first",
                        engine->pending);
    if (!recorded)
        return step_at_once(engine, part);
    engine->doubtful = false;
    LK_TRY(ensure_results(engine, part->count));
    return lk__recorded_send(engine, part, enqueue_step);
}

static lk_status receive_recorded(lk_engine *engine, lk_metrics *out)
{
    lk_engine_part part;
    lk_flag found;
    LK_TRY(lk__recorded_receive(engine, &part, &found));
    return judge(engine, &part, &found, out);
}

lk_status lk__step_receive(lk_engine *engine, lk_metrics *out)
{
    if (engine->pending == 0)
        return lk__fail(LK_STATUS_USAGE, "no step is under way");
    if (engine->at_once) {
        *out = engine->finished;
        engine->pending = 0;
        engine->at_once = false;
        return LK_OK;
    }
    lk_status status = receive_recorded(engine, out);
    engine->has_grads = status == LK_OK;
    if (status != LK_OK || engine->pending > 0 || !check_is_due(engine))
        return status;
    return lk__step_compare(engine);
}

/* Results are per sample, so the cut into pieces does not show, or it is the same
 * for all ranks: pieces of shards. */
static lk_status run_part(lk_engine *engine, const lk_engine_part *part)
{
    const lk_waves *waves = engine->waves;
    bool by_shard = engine->dev->type->by_shard;
    size_t most = by_shard ? lk__shard_most(engine->opts.batch, waves->shards, 1) : waves->capacity;
    size_t first = lk__shard_begin(part->total, waves->shards, waves->first), begin = 0;
    for (int s = by_shard ? waves->first : waves->last - 1; s < waves->last; s++) {
        size_t end = lk__shard_begin(part->total, waves->shards, s + 1) - first;
        for (size_t n; begin < end; begin += n) {
            n = lk__size_min(most, end - begin);
            LK_TRY(lk__engine_run_eval(engine, part, begin, n));
        }
    }
    return LK_OK;
}

lk_status lk__step_evaluate(lk_engine *engine, const lk_engine_part *part, lk_metrics *out)
{
    LK_TRY(meet_faults(engine, "eval", lk__optim_steps(engine->optim)));
    LK_TRY(ensure_results(engine, part->count));
    LK_TRY(lk__nonfinite_check_total(engine, part->total));
    LK_TRY(run_part(engine, part));
    (void)lk__metrics_leaves(engine, part->total);
    return lk__metrics_total(engine, part->total, out);
}
