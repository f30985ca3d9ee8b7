/* step.c - training steps and evaluations.
 *
 * A step runs this rank's waves through the plan (run_waves.c), meanwhile sums gradients over the ranks in
 * buckets (buckets.c), checks that all values are finite (nonfinite.c), clips and updates. An evaluation runs
 * the part forward. The same code, run_part, runs what is done at once and what a device records (recorded.c);
 * lk_engine_part.flag distinguishes them. */
#include "parallel/step/step.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/trace.h"
#include "parallel/agree.h"
#include "parallel/layout/replicas.h"
#include "parallel/step/clip.h"
#include "parallel/step/marks.h"
#include "parallel/step/metrics.h"
#include "parallel/step/nonfinite.h"
#include "parallel/step/outputs.h"
#include "parallel/step/recorded.h"
#include "parallel/step/room.h"
#include "parallel/step/run_waves.h"

/* Counts the time since `began` as a wait for other ranks. One rank waits for nobody. */
static void count_wait(lk_engine *engine, double began)
{
    if (engine->grid.world)
        engine->waits.gradients += lk__clock() - began;
}

static lk_status await_bucket(lk_engine *engine, int index)
{
    double began = lk__clock();
    LK_TRY(lk__buckets_wait(engine->buckets, index));
    count_wait(engine, began);
    return LK_OK;
}

static lk_status finish_buckets(lk_engine *engine)
{
    double began = lk__clock();
    LK_TRY(lk__buckets_finish(engine->buckets));
    count_wait(engine, began);
    return LK_OK;
}

/* Adds to the detail from which step to resume. */
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

/* Collective. All replicas of a stage find the same difference; if there are other stages, these get the
 * same failure. */
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
    double began = lk__trace_begin();
    lk_status status = compare_replicas(engine);
    lk__trace_end(LK_TRACE_KIND_CHECK, "compare replicas", -1, began);
    engine->replicas_differ = status == LK_STATUS_MISMATCH;
    LK_TRY(status);
    engine->equal_at = lk__optim_steps(engine->optim);
    return LK_OK;
}

/* Whether the replicas must be compared: since they were last equal, the number of steps has reached or
 * passed a multiple of check_every. */
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

/* If faults are requested: sets the site (rank, step, operation), and may flip a bit of the parameters. */
static lk_status inject_faults(lk_engine *engine, const char *op, uint64_t step)
{
    size_t bit, count = engine->params->count;
    if (!lk__fault_is_on())
        return LK_OK;
    int rank = engine->grid.world ? lk_group_rank(engine->grid.world) : 0;
    lk__fault_set_site((lk_fault_site){.rank = rank, .step = step, .op = op});
    lk__fault_point(op);
    return lk__fault_flip(op, count * 8 * sizeof(float), &bit) ? flip_bit(engine, bit) : LK_OK;
}

/* The sum of all weights is known only now, so gradients are those of the weighted losses over the number of samples;
 * the factor makes them gradients of the weighted mean. All ranks know that the sum is 0. */
static lk_status take_weights(lk_engine *engine, const lk_engine_part *part, const lk_metrics *metrics)
{
    if (metrics->weight > 0) {
        engine->weight_factor = (float)((double)part->total / metrics->weight);
        if (engine->weight_factor == 1)
            return LK_OK;
        return engine->dev->type->upload(engine->dev, &engine->weight_factor, sizeof engine->weight_factor,
                                         &engine->inputs->weight_factor);
    }
    LK_TRY(lk__buckets_wait_all(engine->buckets));
    engine->agreed = true;
    return lk__fail(LK_STATUS_USAGE, "all %zu samples of the batch have weight 0; give one a weight above 0",
                    part->total);
}

/* Collective, when losses and label ranks are in host memory: the metrics of a step that is finite at all
 * ranks. Otherwise NONFINITE, and the engine is in its state before the step. found as in nonfinite.h. */
static lk_status check_results(lk_engine *engine, const lk_engine_part *part, const lk_flag *found, lk_metrics *out)
{
    double began = lk__clock();
    bool bad = false;
    double traced = lk__trace_begin_label(LK_TRACE_KIND_CHECK, "check results", -1);
    LK_TRY(lk__nonfinite_check_step(engine, part, found, &bad));
    if (bad && found)
        LK_TRY(lk__recorded_roll_back(engine));
    if (bad)
        return lk__nonfinite_explain(engine, part, found);
    engine->own = lk__metrics_leaves(engine, part);
    LK_TRY(lk__metrics_total(engine, part, out));
    LK_TRY(take_weights(engine, part, out));
    lk__trace_end(LK_TRACE_KIND_CHECK, "check results", -1, traced);
    count_wait(engine, began);
    return LK_OK;
}

/* Waits until all gradients are summed, and checks the sums. */
static lk_status await_gradients(lk_engine *engine, const lk_engine_part *part)
{
    for (int i = 0; i < engine->buckets->count; i++)
        LK_TRY(await_bucket(engine, i));
    LK_TRY(finish_buckets(engine));
    return lk__nonfinite_check_sums(engine, part);
}

/* Enqueues the product of these gradients and the factor of the weights. */
static void weigh(lk_engine *engine, float *grads, size_t count)
{
    if (engine->weight_factor != 1 && count > 0)
        engine->dev->kernels->scale(engine->dev, NULL, count, &engine->inputs->weight_factor, grads);
}

/* The same for the gradients of all parameters and, if they are wanted, of the samples; later calls change nothing. */
static void weigh_all(lk_engine *engine, const lk_engine_part *part)
{
    weigh(engine, engine->params->grads, engine->params->count);
    if (engine->input_grads)
        weigh(engine, engine->input_grads, part->count * lk__shape_sample(engine->graph->layers[0].shape));
    engine->weight_factor = 1;
}

static lk_status clip(lk_engine *engine, const lk_flag *flag)
{
    lk_params *params = engine->params;
    if (engine->opts.clip_norm == 0)
        return LK_OK;
    LK_TRY(lk__clip_prepare(params));
    lk__clip_squares(params, 0, params->count);
    LK_TRY(lk__clip_fold(params, engine->grid.pipeline, engine->opts.clip_norm));
    lk__clip_scale(params, flag);
    return flag ? LK_OK : lk__clip_norm(params, &engine->grad_norm);
}

/* Whether the update of this step also takes the gradient's norm; clipping has taken it before. */
static bool takes_norm(const lk_engine *engine)
{
    return engine->norm_wanted && engine->opts.clip_norm == 0;
}

/* Enqueues the optimiser's update of these elements. */
static void update_range(lk_engine *engine, size_t begin, size_t end, const lk_flag *flag)
{
    weigh(engine, engine->params->grads + begin, end - begin);
    if (takes_norm(engine))
        lk__clip_squares(engine->params, begin, end);
    const lk_params *params = engine->params;
    bool rounds = params->values != params->params && lk__optim_rounds(engine->optim);
    lk_optim_range range = {.grads = params->grads,
                            .params = params->params,
                            .values = rounds ? params->values : NULL,
                            .begin = begin,
                            .end = end,
                            .flag = flag};
    double began = lk__trace_begin_label(LK_TRACE_KIND_UPDATE, "update", -1);
    if (!flag)
        lk__marks_add(engine, (lk_trace_label){0});
    lk__param_groups_update(&engine->groups, engine->optim, &range);
    if (!rounds)
        lk__params_round(params, begin, end);
    if (!flag)
        lk__marks_add(engine, lk__trace_label());
    lk__trace_end(LK_TRACE_KIND_UPDATE, "update", -1, began);
}

/* Updates the parameters. all: all gradients are summed, so one update does, unless the norm is taken bucket by
 * bucket; otherwise each bucket is updated as soon as it is summed. */
static lk_status update(lk_engine *engine, const lk_flag *flag, bool all)
{
    const lk_buckets *buckets = engine->buckets;
    double began = lk__trace_begin();
    lk__fault_work("update");
    if (!flag)
        LK_TRY(lk__optim_begin(engine->optim));
    if (takes_norm(engine))
        LK_TRY(lk__clip_prepare(engine->params));
    bool whole = all && !takes_norm(engine);
    if (whole)
        update_range(engine, 0, engine->params->count, flag);
    for (int i = 0; !whole && i < buckets->count; i++) {
        if (!all)
            LK_TRY(await_bucket(engine, i));
        update_range(engine, buckets->list[i].begin, buckets->list[i].end, flag);
    }
    LK_TRY(finish_buckets(engine));
    if (takes_norm(engine))
        LK_TRY(lk__clip_fold(engine->params, engine->grid.pipeline, 0));
    if (flag)
        return LK_OK;
    LK_TRY(engine->dev->type->sync(engine->dev));
    lk__marks_read(engine);
    if (takes_norm(engine))
        LK_TRY(lk__clip_norm(engine->params, &engine->grad_norm));
    lk__trace_end(LK_TRACE_KIND_UPDATE, "update all", -1, began);
    return check_is_due(engine) ? lk__step_compare(engine) : LK_OK;
}

/* The first half of a step. all: returns when all gradients are summed, finite and clipped; otherwise their
 * sums may still be under way. A recorded step is checked when its results are received. */
static lk_status run_gradients(lk_engine *engine, const lk_engine_part *part, bool all, lk_metrics *out)
{
    LK_TRY(lk__engine_run_waves(engine, part));
    if (!part->flag)
        LK_TRY(check_results(engine, part, NULL, out));
    all = all || engine->may_overflow;
    if (all)
        LK_TRY(await_gradients(engine, part));
    LK_TRY(lk__engine_finish_waves(engine, part));
    /* lk__engine_finish_waves gathers sums again, and computing the norm waits for the device. */
    if (all) {
        LK_TRY(finish_buckets(engine));
        weigh_all(engine, part);
    }
    LK_TRY(clip(engine, part->flag));
    if (part->flag)
        return LK_OK; /* a recorded step is counted when it is sent */
    lk__plan_count(engine->plan, 1);
    lk__optim_count(engine->optim);
    return LK_OK;
}

/* A whole step, done at once or enqueued to be recorded. */
static lk_status run_step(lk_engine *engine, const lk_engine_part *part, lk_metrics *out)
{
    bool all = part->flag || engine->opts.clip_norm > 0;
    LK_TRY(run_gradients(engine, part, all, out));
    return update(engine, part->flag, all || engine->may_overflow);
}

/* The metrics of an evaluation whose losses and label ranks are in host memory. */
static lk_status total_evaluation(lk_engine *engine, const lk_engine_part *part, lk_metrics *out)
{
    (void)lk__metrics_leaves(engine, part);
    return lk__metrics_total(engine, part, out);
}

/* A whole evaluation, done at once or enqueued to be recorded. */
static lk_status run_evaluation(lk_engine *engine, const lk_engine_part *part, lk_metrics *out)
{
    if (!part->flag)
        LK_TRY(lk__nonfinite_check_total(engine, part));
    LK_TRY(lk__engine_run_eval(engine, part));
    return part->flag ? LK_OK : total_evaluation(engine, part, out);
}

static lk_status run_part(lk_engine *engine, const lk_engine_part *part, lk_metrics *out)
{
    return part->eval ? run_evaluation(engine, part, out) : run_step(engine, part, out);
}

static lk_status enqueue_part(void *arg)
{
    lk_engine *engine = arg;
    LK_TRY(run_part(engine, lk__recorded_fetch(engine), NULL));
    lk__recorded_post(engine);
    lk__buckets_reset(engine->buckets, false);
    return LK_OK;
}

/* Prepares a step or evaluation that is done at once. */
static lk_status begin_part(lk_engine *engine, const lk_engine_part *part)
{
    uint64_t steps = lk__optim_steps(engine->optim);
    if (!part->eval) {
        engine->may_overflow = false;
        engine->weight_factor = 1;
        engine->own = (lk_metrics){0};
        engine->grad_norm = NAN;
    }
    LK_TRY(inject_faults(engine, part->eval ? "eval" : "step", part->eval ? steps : steps + 1));
    return lk__engine_ensure_room(engine, part->count);
}

/* Fails if the job has failed: channels between devices must not be used then. Groups find that out themselves. */
static lk_status check_job(const lk_engine *engine)
{
    bool joined = engine->device_sums || engine->links.previous.in || engine->links.next.in;
    return joined ? lk_group_poll(engine->grid.world) : LK_OK;
}

lk_status lk__step_gradients(lk_engine *engine, const lk_engine_part *part, lk_metrics *out)
{
    lk_metrics metrics;
    LK_TRY(check_job(engine));
    LK_TRY(begin_part(engine, part));
    LK_TRY(run_gradients(engine, part, true, &metrics));
    engine->has_grads = engine->ready = true;
    engine->has_input_grads = engine->input_grads != NULL;
    engine->input_rows = part->count;
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

/* Whether another recorded step or evaluation may follow those under way. */
static bool takes_more(const lk_engine *engine)
{
    return !engine->at_once && engine->pending < LK_RECORDED_DEPTH && !check_is_due(engine);
}

bool lk__step_can_send(const lk_engine *engine, bool eval, size_t total)
{
    return engine->pending == 0 || (lk__recorded_knows(engine, eval, total) && takes_more(engine));
}

/* Does a step or evaluation at once, because its size is new or the device cannot record; lk__step_receive returns its
 * metrics. */
static lk_status do_at_once(lk_engine *engine, const lk_engine_part *part)
{
    LK_TRY(begin_part(engine, part));
    LK_TRY(run_part(engine, part, &engine->finished));
    engine->has_grads |= !part->eval;
    if (engine->recorded)
        LK_TRY(lk__recorded_learn(engine, part));
    engine->pending = 1;
    engine->at_once = true;
    return LK_OK;
}

/* Prepares a step that is recorded: nothing is allocated while it is. */
static lk_status begin_recorded_step(lk_engine *engine)
{
    bool norm = engine->norm_wanted || engine->opts.clip_norm > 0;
    engine->may_overflow = false;
    engine->weight_factor = 1;
    return norm ? lk__clip_prepare(engine->params) : LK_OK;
}

lk_status lk__step_send(lk_engine *engine, const lk_engine_part *part)
{
    bool recorded = lk__recorded_knows(engine, part->eval, part->total) && !lk__fault_is_on() && !part->weights;
    if (engine->pending > 0 && (!recorded || !takes_more(engine)))
        return lk__fail(LK_STATUS_USAGE, "%d steps are under way, and this %s needs their results first",
                        engine->pending, part->eval ? "evaluation" : "one");
    LK_TRY(check_job(engine));
    if (!recorded)
        return do_at_once(engine, part);
    if (!part->eval)
        LK_TRY(begin_recorded_step(engine));
    lk_status status = lk__recorded_send(engine, part, enqueue_part);
    if (status != LK_OK)
        lk__recorded_drop_evals(engine);
    return status;
}

static lk_status finish_evaluation(lk_engine *engine, const lk_engine_part *part, lk_metrics *out)
{
    LK_TRY(lk__nonfinite_check_total(engine, part));
    return total_evaluation(engine, part, out);
}

/* Compares the replicas after the last step under way, if that is due. */
static lk_status finish_step(lk_engine *engine, const lk_engine_part *part, const lk_flag *found, lk_metrics *out)
{
    lk_status status = check_results(engine, part, found, out);
    engine->has_grads = status == LK_OK;
    if (status != LK_OK)
        engine->grad_norm = NAN;
    if (status != LK_OK || engine->pending > 0 || !check_is_due(engine))
        return status;
    return lk__step_compare(engine);
}

static lk_status receive_recorded(lk_engine *engine, lk_metrics *out)
{
    lk_engine_part part;
    lk_flag found;
    LK_TRY(lk__recorded_receive(engine, &part, &found));
    return part.eval ? finish_evaluation(engine, &part, out) : finish_step(engine, &part, &found, out);
}

lk_status lk__step_receive(lk_engine *engine, lk_metrics *out)
{
    if (engine->pending == 0)
        return lk__fail(LK_STATUS_USAGE, "no step is under way: lk_engine_send begins one");
    if (engine->at_once) {
        *out = engine->finished;
        engine->pending = 0;
        engine->at_once = false;
        return LK_OK;
    }
    lk_status status = receive_recorded(engine, out);
    if (status != LK_OK)
        lk__recorded_drop_evals(engine);
    return status;
}

lk_status lk__step_forward(lk_engine *engine, const lk_engine_part *part)
{
    LK_TRY(check_job(engine));
    LK_TRY(begin_part(engine, part));
    LK_TRY(lk__nonfinite_check_total(engine, part));
    LK_TRY(lk__engine_outputs_prepare(engine));
    LK_TRY(lk__engine_run_eval(engine, part));
    return lk__engine_outputs_share(engine, part);
}
