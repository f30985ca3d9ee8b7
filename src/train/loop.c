/* loop.c - the loop of one rank: epochs of steps, an evaluation after each, and saving the model at the end.
 * All ranks make the same calls of the engine in the same order; a rank that fails alone aborts the job. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/trace.h"
#include "parallel/engine/engine.h"
#include "train/run.h"

/* After a step or evaluation: takes the request that all ranks have agreed on. */
static void update_signal_level(lk_train_run *run)
{
    int level = lk_engine_agreed_signal(run->engine);
    if (level <= run->signal_level)
        return;
    run->signal_level = level;
    run->signal_rank = lk_engine_agreed_signal_rank(run->engine);
}

static bool is_stopped(const lk_train_run *run)
{
    return run->signal_level >= LK_SIGNAL_LEVEL_STOP;
}

static void count_batch(lk_train_run *run, const lk_metrics *metrics)
{
    lk_metrics own = lk_engine_own_metrics(run->engine);
    run->at.step++;
    run->at.batch++;
    run->at.samples += metrics->count;
    run->at.weight += metrics->weight;
    run->at.loss += metrics->loss * metrics->weight;
    run->result.steps = run->at.step;
    run->result.samples += metrics->count;
    run->running.count += own.count;
    run->running.correct += own.correct;
    run->running.top5 += own.top5;
    run->running.weight += own.weight;
    run->running.loss += own.loss * own.weight;
    run->running.absolute_error += own.absolute_error * (double)own.count;
    run->running.squared_error += own.squared_error * (double)own.count;
    run->result.train_seconds = run->earlier_epochs + (lk__clock() - run->epoch_began);
}

static double rate_at(const lk_train_run *run, size_t batch)
{
    lk_lr_schedule_at at = lk__run_schedule_at(run, run->at.epoch, batch);
    return lk_lr_schedule_lr(run->shared->schedule, run->effective.lr, at);
}

static double waits_so_far(const lk_train_run *run)
{
    lk_waits waits = lk_engine_waits(run->engine);
    return waits.gradients + waits.other;
}

/* Adds the time since `began` to the phases; the engine has counted `waited` seconds of waits before it. */
static void count_compute(lk_train_run *run, double began, double waited)
{
    double wait = waits_so_far(run) - waited;
    run->use.phases.wait += wait;
    run->use.phases.compute += lk__clock() - began - wait;
}

static lk_status send_batch(lk_train_run *run)
{
    const lk_batch *batch;
    size_t index = run->at.batch + run->under_way;
    bool norm = run->norm_every > 0 && index % run->norm_every == 0;
    double began = lk__clock();
    LK_TRY(lk__run_own_result(run, lk_loader_next(run->loader, &batch)));
    double loaded = lk__clock(), waited = waits_so_far(run);
    run->use.phases.data += loaded - began;
    LK_TRY(lk__run_own_result(run, lk_engine_set_lr(run->engine, rate_at(run, index))));
    LK_TRY(lk__run_own_result(run, lk_engine_set_grad_norm(run->engine, norm)));
    LK_TRY(lk__run_emit_next(run, rate_at(run, index)));
    LK_TRY(lk__run_collective_result(run, lk_engine_send(run->engine, batch)));
    count_compute(run, loaded, waited);
    run->under_way++;
    return LK_OK;
}

static lk_status receive_batch(lk_train_run *run, lk_metrics *out)
{
    double began = lk__clock(), waited = waits_so_far(run);
    LK_TRY(lk__run_collective_result(run, lk_engine_receive(run->engine, out)));
    count_compute(run, began, waited);
    run->under_way--;
    return LK_OK;
}

/* Whether to send another step before the last one is received. Steps after a save, an evaluation or the end
 * are not sent. */
static bool can_send_next(const lk_train_run *run)
{
    size_t every = run->opts->save_every, step = run->at.step + run->under_way, at = run->at.batch + run->under_way;
    size_t count = lk_dataset_get_info(run->shared->train)->count, batch = lk__run_batch(run);
    if (run->hooks->before_step || run->signal_level != LK_SIGNAL_LEVEL_NONE || at >= run->effective.batches ||
        step >= run->total_steps || (every && step % every == 0) || lk__run_trace_cuts(run, step))
        return false;
    return lk_engine_can_send(run->engine, lk__size_min(batch, count - at * batch));
}

/* Receives the next step; later steps may be under way. */
static lk_status train_batch(lk_train_run *run)
{
    lk_metrics metrics;
    while (run->under_way == 0 || can_send_next(run))
        LK_TRY(send_batch(run));
    LK_TRY(receive_batch(run, &metrics));
    update_signal_level(run);
    double lr = run->hooks->before_step ? lk_engine_lr(run->engine) : rate_at(run, run->at.batch);
    count_batch(run, &metrics);
    LK_TRY(lk__run_emit_step(run, &metrics, lr));
    LK_TRY(lk__run_uses_step(run, metrics.count));
    return lk__run_moves_step(run, metrics.count);
}

static bool save_is_due(const lk_train_run *run)
{
    size_t every = run->opts->save_every;
    return run->signal_level != LK_SIGNAL_LEVEL_NONE ||
           (every ? run->at.step % every == 0 : run->at.batch == run->effective.batches);
}

/* Saves, and takes the time of it out of the steps' time: out of the next steps of the epoch, if there are any. */
static lk_status save_between_steps(lk_train_run *run)
{
    double began = lk__clock();
    LK_TRY(lk__run_save(run, false));
    run->epoch_began += lk__clock() - began;
    return LK_OK;
}

/* Called after each step: saves a checkpoint if one is due and no step is under way. */
static lk_status keep_step(lk_train_run *run)
{
    LK_TRY(lk__run_saved(run));
    if (run->under_way > 0 || !save_is_due(run))
        return LK_OK;
    if (run->signal_level == LK_SIGNAL_LEVEL_SAVE) {
        run->signal_level = LK_SIGNAL_LEVEL_NONE;
        run->signal_saved = run->at.step;
    }
    return save_between_steps(run);
}

static lk_status run_step(lk_train_run *run)
{
    LK_TRY(lk__run_trace_before(run));
    run->step_began = lk__clock();
    double traced = lk__trace_begin();
    LK_TRY(train_batch(run));
    LK_TRY(keep_step(run));
    lk__trace_end(LK_TRACE_KIND_STEP, "step", (int)run->at.step, traced);
    return lk__run_trace_after(run);
}

static bool epoch_is_over(const lk_train_run *run)
{
    return run->at.batch == run->effective.batches || run->at.step >= run->total_steps;
}

/* Checks that the test files can be read, and that they are equal at all ranks; once. */
static lk_status check_test_files(lk_train_run *run)
{
    const lk_dataset *test = run->shared->test;
    if (!test || run->test_checked)
        return LK_OK;
    run->test_checked = true;
    LK_TRY(lk__run_own_result(run, lk__train_check_readable(test)));
    return lk__run_compare_files(run, "test", test);
}

static lk_status train_epoch(lk_train_run *run)
{
    bool first = run->result.samples == 0;
    run->epoch_began = lk__clock();
    run->running = (lk_metrics){0};
    lk__train_activity(run->hooks, LK_TRAIN_ACTIVITY_STEP, 0, 0);
    LK_TRY(lk__run_own_result(run, lk_loader_start(run->loader, run->at.epoch, run->at.batch)));
    run->use.phases.data += lk__clock() - run->epoch_began;
    while (run->under_way > 0 || (!epoch_is_over(run) && !is_stopped(run))) {
        LK_TRY(run_step(run));
        /* The test files are checked after the first step: they do not delay it, and damage is found before
         * the end of the epoch. If training ends here, the evaluation checks them. */
        if (first && run->at.step < run->total_steps)
            LK_TRY(check_test_files(run));
        first = false;
    }
    run->earlier_epochs = run->result.train_seconds;
    return LK_OK;
}

static bool may_continue(void *arg)
{
    lk_train_run *run = arg;
    update_signal_level(run);
    return !is_stopped(run);
}

static lk_status evaluate(lk_train_run *run, const lk_dataset *data, const char *augment, lk_loader **loader,
                          lk_metrics *out)
{
    bool own = true;
    if (!*loader) {
        LK_TRY(lk__run_own_result(run, lk__train_test_loader(run->opts, data, augment, run->engine, loader)));
        LK_TRY(lk__run_own_result(run, lk__train_cache_samples(run->engine, *loader)));
    }
    lk_status status = lk__train_evaluate_batches(run->engine, *loader, run->opts->dry_run ? 1 : 0,
                                                  &(lk_train_watch){may_continue, run, run->hooks}, out, &own);
    return own ? lk__run_own_result(run, status) : lk__run_collective_result(run, status);
}

/* Evaluates the validation and the test data, where there are any; a count stays 0 without. */
static lk_status evaluate_splits(lk_train_run *run, lk_metrics *val, lk_metrics *test)
{
    const lk_train_shared *shared = run->shared;
    if (shared->val)
        LK_TRY(evaluate(run, shared->val, shared->val_augment, &run->val_loader, val));
    if (shared->test && !is_stopped(run))
        LK_TRY(check_test_files(run));
    if (shared->test && !is_stopped(run))
        LK_TRY(evaluate(run, shared->test, shared->test_augment, &run->test_loader, test));
    return LK_OK;
}

/* Whether there are data to evaluate, and this step has not been tested. */
static bool test_is_due(const lk_train_run *run)
{
    const lk_position *at = &run->at;
    return !is_stopped(run) && (run->shared->test || run->shared->val) && at->step > 0 && at->tested != at->step;
}

/* The last step may have made weights non-finite, and no later step would find it. */
static lk_status check_loss(lk_train_run *run, const char *which, const lk_metrics *metrics)
{
    if (isfinite(metrics->loss))
        return LK_OK;
    return lk__run_common_result(run, lk__fail(LK_STATUS_NONFINITE,
                                               "the %s loss after epoch %zu is not finite; a smaller `lr` may help",
                                               which, run->at.epoch + 1));
}

static void keep_best(lk_train_run *run, const lk_metrics *judged)
{
    lk_position *at = &run->at;
    if (at->best_step == 0 || lk__run_is_better(run, judged, at->best_correct, at->best_loss)) {
        at->best_step = at->step;
        at->best_correct = judged->correct;
        at->best_loss = judged->loss;
    }
    run->result.best_step = at->best_step;
    run->result.best_correct = at->best_correct;
    run->result.best_loss = at->best_loss;
}

/* An evaluation that was stopped does not change the position. */
static lk_status test_epoch(lk_train_run *run)
{
    lk_metrics val = {0}, test = {0};
    lk_position *at = &run->at;
    LK_TRY(evaluate_splits(run, &val, &test));
    if (is_stopped(run))
        return LK_OK;
    LK_TRY(check_loss(run, "validation", &val));
    LK_TRY(check_loss(run, "test", &test));
    const lk_metrics *judged = run->shared->val ? &val : &test;
    at->tested = at->step;
    at->val = run->result.val = val;
    at->test = run->result.test = test;
    keep_best(run, judged);
    lk__run_watch(run, judged);
    LK_TRY(lk__run_emit_test(run, true));
    return lk__run_emit_test(run, false);
}

/* Whether the model has been tested as it is, with the best result so far. */
static bool is_best(const lk_train_run *run)
{
    return run->at.tested == run->at.step && run->at.best_step == run->at.step;
}

/* Saves a checkpoint if this is the best test result so far, or the end of the run. */
static lk_status keep_epoch(lk_train_run *run)
{
    bool best = is_best(run);
    bool last = run->at.step >= run->total_steps && run->at.step != run->saved.step;
    return best || last ? lk__run_save(run, best) : LK_OK;
}

/* Copies, checks and hashes the whole model at every rank; saves it at ranks that save the model. */
static lk_status finish(lk_train_run *run)
{
    lk_state *state;
    lk_status status;
    lk__train_activity(run->hooks, LK_TRAIN_ACTIVITY_END, 0, 0);
    LK_TRY(lk__run_collective_result(run, lk_engine_state(run->engine, &state)));
    LK_TRY_GOTO(lk__run_check(run), destroy_state); /* after the copy, as in keep.c */
    run->result.hash = lk_state_hash(state);
    LK_TRY_GOTO(lk__run_common_result(run, lk__train_check_finite(state, "the trained model")), destroy_state);
    LK_TRY_GOTO(lk__run_own_result(run, lk__train_describe(run->opts, run->shared, state)), destroy_state);
    status = *run->result.saved ? lk__run_own_result(run, lk_state_save(state, run->result.saved)) : LK_OK;
    run->unsaved = status != LK_OK;
    if (status == LK_OK && run->states && run->self.rank == 0)
        run->hooks->state(run->hooks->arg,
                          &(lk_train_state){.moment = LK_TRAIN_MOMENT_FINAL, .step = run->at.step, .model = state});
destroy_state:
    lk_state_destroy(state);
    return status;
}

/* Adds to a failure's detail whether `what` was saved, and where. */
static void add_saved(char why[LK_DETAIL_BYTES], const char *what, lk_status saved, const char *path)
{
    char failure[LK_DETAIL_BYTES];
    size_t used = strlen(why);
    snprintf(failure, sizeof failure, "%s", lk_error_detail());
    snprintf(why + used, LK_DETAIL_BYTES - used, "; %s was %ssaved%s %.*s", what, saved == LK_OK ? "" : "not ",
             saved == LK_OK ? " to" : ":", LK_DETAIL_BYTES / 4, saved == LK_OK ? path : failure);
}

/* After a failed evaluation: saves the trained model anyway, unless it has become non-finite. */
static lk_status save_after_failure(lk_train_run *run, lk_status failure)
{
    char why[LK_DETAIL_BYTES];
    lk_train_fault fault = run->fault;
    if (failure == LK_STATUS_NONFINITE)
        return failure;
    snprintf(why, sizeof why, "%s", lk_error_detail());
    if (run->opts->checkpoint && run->self.rank == 0 && run->self.layout.stages == 1)
        add_saved(why, "a checkpoint", lk__run_save_without_peers(run), run->result.checkpoint);
    if (*run->result.saved)
        add_saved(why, "the model", finish(run), run->result.saved);
    run->fault = fault;
    return lk__fail(failure, "%s", why);
}

static void end_clock(lk_train_run *run)
{
    run->result.seconds = lk__clock() - run->began;
    run->result.waits = lk_engine_waits(run->engine);
}

/* Stops the run by request: saves a checkpoint, waits until it is written, and emits the event. No rank leaves
 * before that, because a launcher ends all ranks when one has left. */
static lk_status stop(lk_train_run *run)
{
    LK_TRY(lk__run_trace_finish(run));
    LK_TRY(lk__run_save(run, is_best(run)));
    LK_TRY(lk__run_await_saved(run));
    end_clock(run);
    LK_TRY(lk__run_uses_end(run));
    run->result.stopped = true;
    run->result.stop_signal = run->signal_level - LK_SIGNAL_LEVEL_STOP;
    run->result.stop_rank = run->signal_rank;
    lk_group *group = run->rank->group;
    if (group)
        snprintf(run->result.stop_host, sizeof run->result.stop_host, "%s", lk_group_host(group, run->signal_rank));
    if (run->hooks->stopped)
        run->hooks->stopped(run->hooks->arg, &run->result);
    return group ? lk__run_collective_result(run, lk_barrier(group, NULL)) : LK_OK;
}

/* Compares the replicas before the evaluation: so all ranks test the same model, and a checkpoint that rank 0
 * saves without the others, if the evaluation fails, is of a step at which the replicas were equal. */
static lk_status test(lk_train_run *run)
{
    if (!test_is_due(run))
        return LK_OK;
    if (lk__engine_equal_at(run->engine) != run->at.step)
        LK_TRY(lk__run_check(run));
    double traced = lk__trace_begin();
    lk_status status = test_epoch(run);
    lk__trace_end(LK_TRACE_KIND_EVAL, "evaluate", (int)run->at.step, traced);
    return status == LK_OK ? LK_OK : save_after_failure(run, status);
}

static void next_epoch(lk_train_run *run)
{
    run->at.epoch++;
    run->at.batch = 0;
    run->at.samples = 0;
    run->at.weight = 0;
    run->at.loss = 0;
}

/* A whole epoch, or the end of the run. */
static lk_status end_epoch(lk_train_run *run)
{
    LK_TRY(lk__run_emit_state(run, LK_TRAIN_MOMENT_EPOCH));
    LK_TRY(lk__run_emit_epoch(run));
    return lk__run_agree_stop(run);
}

static lk_status run_epochs(lk_train_run *run)
{
    run->began = lk__clock();
    for (;;) {
        bool more = !epoch_is_over(run) && !is_stopped(run);
        if (more)
            LK_TRY(train_epoch(run));
        if (more && epoch_is_over(run) && !is_stopped(run))
            LK_TRY(end_epoch(run));
        LK_TRY(test(run));
        if (!is_stopped(run))
            LK_TRY(lk__run_agree_stop(run));
        if (is_stopped(run))
            return stop(run);
        lk__run_end_early(run);
        LK_TRY(keep_epoch(run));
        if (run->at.step >= run->total_steps)
            break;
        next_epoch(run);
    }
    LK_TRY(lk__run_trace_finish(run)); /* of a run that ends before its last traced step */
    end_clock(run);
    return lk__run_uses_end(run);
}

/* The training is complete, and only its model could not be written: the results are reported before the failure. */
static lk_status end_unsaved(lk_train_run *run, lk_status failure)
{
    char why[LK_DETAIL_BYTES];
    snprintf(why, sizeof why, "%s", lk_error_detail());
    *run->result.saved = 0;
    if (run->hooks->end)
        run->hooks->end(run->hooks->arg, &run->result);
    return lk__fail(failure, "%s", why);
}

static lk_status run_steps(lk_train_run *run)
{
    LK_TRY(run_epochs(run));
    if (run->result.stopped && !run->rank->asks)
        return LK_OK; /* by a signal: the run is to be resumed. A run that lk_train_stop ends is finished */
    lk_status status = finish(run);
    if (run->unsaved)
        return end_unsaved(run, status);
    LK_TRY(status);
    return lk__run_await_saved(run);
}

static lk_status run_to_end(lk_train_run *run)
{
    lk__train_activity(run->hooks, LK_TRAIN_ACTIVITY_PLAN, 0, 0);
    LK_TRY(lk__run_open(run));
    LK_TRY(lk__run_trace_open(run));
    lk__engine_set_meter(run->engine, run->hooks->meter);
    LK_TRY(lk__run_uses_open(run));
    LK_TRY(lk__run_states_open(run));
    LK_TRY(lk__run_own_result(run, lk__run_moves_open(run)));
    run->earlier = lk__run_earlier(run);
    lk__run_end_early(run); /* a run that ended early before it was resumed has no steps left */
    LK_TRY(lk__run_emit_start(run));
    LK_TRY(lk__run_agree_stop(run));
    lk_status status = run->at.step == 0 ? lk__run_emit_state(run, LK_TRAIN_MOMENT_FIRST) : LK_OK;
    if (status == LK_OK)
        status = run_steps(run);
    if (status != LK_OK && lk__engine_replicas_differ(run->engine))
        return lk__run_distrust(run, status);
    if (status == LK_OK && !run->result.stopped && run->hooks->end)
        run->hooks->end(run->hooks->arg, &run->result);
    return status;
}

lk_status lk__train_rank(const lk_train_rank *rank, lk_train_outcome *out, lk_train_rank_failure *failure)
{
    lk_train_run run = {.rank = rank, .opts = rank->opts, .shared = rank->shared, .hooks = rank->hooks};
    lk__trace_thread(rank->group ? lk_group_rank(rank->group) : 0, "steps", -1);
    lk_status status = run_to_end(&run);
    lk__run_uses_close(&run);
    lk__run_moves_close(&run);
    if (status == LK_OK)
        *out = run.result;
    else
        *failure = (lk_train_rank_failure){.fault = run.fault, .begun = run.began > 0};
    lk__run_trace_close(&run);
    lk__run_close(&run);
    return status;
}
