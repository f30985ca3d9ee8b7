/* hooks.c - the events of a run, and what their functions may ask of it. */
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "train/run.h"
#include "train/start.h"

static lk_lr_schedule_rates rates_left(const lk_train_run *run)
{
    if (run->at.step >= run->total_steps)
        return (lk_lr_schedule_rates){0};
    size_t epoch = run->at.step / run->effective.batches, batch = run->at.step % run->effective.batches;
    return lk__lr_schedule_rates(run->shared->schedule, run->effective.lr, lk__run_schedule_at(run, epoch, batch),
                                 run->at.step, run->total_steps);
}

/* The steps of the warm-up if the run has fewer steps, else 0. --dry-run does not count as a shorter run. */
static size_t unfinished_warmup(const lk_train_run *run)
{
    const lk_train_opts *opts = run->opts;
    size_t warmup = lk_lr_schedule_warmup(run->shared->schedule, run->effective.batches);
    size_t steps = opts->epochs * run->effective.batches;
    if (opts->max_steps)
        steps = lk__size_min(steps, opts->max_steps);
    return warmup > steps ? warmup : 0;
}

/* The event that the command line gets; programs get `start`. */
static void emit_begin(const lk_train_run *run)
{
    const lk_train_shared *shared = run->shared;
    if (!run->hooks->begin)
        return;
    lk_train_begin begin = {
        .train = lk_dataset_get_info(shared->train),
        .test = shared->test ? lk_dataset_get_info(shared->test) : NULL,
        .val = shared->val ? lk_dataset_get_info(shared->val) : NULL,
        .augment = lk__train_augment(shared->train, run->opts->augment),
        .test_augment = shared->test ? shared->test_augment : "none",
        .parameters = lk_graph_parameters(shared->graph),
        .batches = run->effective.batches,
        .steps = run->total_steps,
        .batch = lk__run_batch(run),
        .self = run->self,
        .cuts = (const char(*)[LK_LAYER_TEXT])shared->cuts,
        .better_shards = lk__train_better_shards(run->opts->shards, run->self.layout.replicas),
        .done = run->at.step,
        .earlier = run->earlier,
        .lr = run->effective.lr,
        .rates = rates_left(run),
        .watches = lk_lr_schedule_watches(shared->schedule),
        .warmup = unfinished_warmup(run),
        .extends =
            lk__train_rates_stay(run->rank, &run->effective, run->opts->epochs + 1, run->opts->epochs, run->at.step),
        .saved_shards = run->saved_shards,
        .other_device = run->other_device,
        .mixed_devices = run->mixed_devices,
        .agreed = run->at.agreed,
        .traced = run->opts->trace && run->trace.first == 0,
        .touched = run->touched,
    };
    run->hooks->begin(run->hooks->arg, &begin);
}

static const lk_dataset_info *info_of(const lk_dataset *data)
{
    return data ? lk_dataset_get_info(data) : NULL;
}

static void emit_notices(const lk_train_run *run)
{
    char text[LK_DETAIL_BYTES + LK_DEVICE_NOTES_TEXT];
    if (!run->hooks->notice || run->self.rank > 0)
        return;
    if (*run->other_device) {
        snprintf(text, sizeof text, "unlike the run of %.1024s: %s; from here on bits may differ", run->opts->resume,
                 run->other_device);
        run->hooks->notice(run->hooks->arg, text);
    }
    if (run->mixed_devices)
        run->hooks->notice(run->hooks->arg, lk__train_mixed_text);
}

lk_status lk__run_emit_start(lk_train_run *run)
{
    const lk_train_shared *shared = run->shared;
    emit_begin(run);
    emit_notices(run);
    if (!run->hooks->start)
        return LK_OK;
    lk_train_start start = {
        .run = run,
        .rank = run->self.rank,
        .ranks = run->self.ranks,
        .train = info_of(shared->train),
        .test = info_of(shared->test),
        .val = info_of(shared->val),
        .parameters = lk_graph_parameters(shared->graph),
        .batch = lk__run_batch(run),
        .batches = run->effective.batches,
        .steps = run->total_steps,
        .done = run->at.step,
        .resumed = shared->resume ? run->opts->resume : NULL,
        .lr = run->effective.lr,
    };
    run->hooks->start(run->hooks->arg, &start);
    return lk__run_asked(run);
}

lk_status lk__run_emit_next(lk_train_run *run, double lr)
{
    if (!run->hooks->before_step)
        return LK_OK;
    lk_train_next next = {
        .run = run,
        .epoch = run->at.epoch + 1,
        .batch = run->at.batch,
        .step = run->at.step + 1,
        .lr = lr,
    };
    run->hooks->before_step(run->hooks->arg, &next);
    return lk__run_asked(run);
}

static lk_metrics running_mean(const lk_train_run *run)
{
    lk_metrics mean = run->running;
    mean.loss = mean.weight > 0 ? mean.loss / mean.weight : 0;
    mean.absolute_error = mean.count ? mean.absolute_error / (double)mean.count : 0;
    mean.squared_error = mean.count ? mean.squared_error / (double)mean.count : 0;
    return mean;
}

lk_status lk__run_emit_step(lk_train_run *run, const lk_metrics *metrics, double lr)
{
    if (!run->hooks->step)
        return LK_OK;
    double now = lk__clock();
    lk_train_step step = {
        .run = run,
        .epoch = run->at.epoch + 1,
        .batch = run->at.batch - 1,
        .seen = run->at.samples - metrics->count,
        .step = run->at.step,
        .metrics = *metrics,
        .own = lk_engine_own_metrics(run->engine),
        .running = running_mean(run),
        .lr = lr,
        .grad_norm = lk_engine_grad_norm(run->engine),
        .samples = run->result.samples,
        .seconds = now - run->began,
        .train_seconds = run->result.train_seconds,
        .batch_seconds = now - run->step_began,
    };
    run->hooks->step(run->hooks->arg, &step);
    return lk__run_asked(run);
}

static double train_loss(const lk_train_run *run)
{
    return run->at.loss / run->at.weight;
}

lk_status lk__run_emit_epoch(lk_train_run *run)
{
    if (!run->hooks->epoch)
        return LK_OK;
    lk_train_epoch epoch = {
        .run = run,
        .epoch = run->at.epoch + 1,
        .step = run->at.step,
        .train_loss = train_loss(run),
        .seconds = lk__clock() - run->began,
    };
    run->hooks->epoch(run->hooks->arg, &epoch);
    return lk__run_asked(run);
}

lk_status lk__run_emit_test(lk_train_run *run, bool val)
{
    if (!run->hooks->test || !(val ? run->shared->val : run->shared->test))
        return LK_OK;
    lk_train_test test = {
        .run = run,
        .val = val,
        .epoch = run->at.epoch + 1,
        .step = run->at.step,
        .metrics = val ? run->at.val : run->at.test,
        .train_loss = train_loss(run),
        .seconds = lk__clock() - run->began,
        .best = val == (run->shared->val != NULL) && run->at.best_step == run->at.step,
    };
    run->hooks->test(run->hooks->arg, &test);
    return lk__run_asked(run);
}

lk_status lk__run_asked(lk_train_run *run)
{
    lk_status asked = run->asked;
    run->asked = LK_OK; /* what follows the failure may emit events */
    return asked == LK_OK ? LK_OK : lk__run_own_result(run, lk__fail(asked, "%s", run->why));
}

lk_status lk__run_agree_stop(lk_train_run *run)
{
    lk_group *group = run->rank->group;
    int64_t first = run->asks_stop ? run->self.rank : run->self.ranks;
    if (!run->rank->asks)
        return LK_OK;
    if (group)
        LK_TRY(lk__run_collective_result(
            run, lk_allreduce(group, (lk_buffer){&first, 1, LK_DTYPE_I64}, LK_REDUCTION_MIN, NULL)));
    if (first == run->self.ranks || run->signal_level >= LK_SIGNAL_LEVEL_STOP)
        return LK_OK;
    run->signal_level = LK_SIGNAL_LEVEL_STOP;
    run->signal_rank = (int)first;
    return LK_OK;
}

lk_engine *lk_train_engine(lk_train_run *run)
{
    return run ? run->engine : NULL;
}

void lk_train_stop(lk_train_run *run)
{
    if (run)
        run->asks_stop = true;
}

void lk_train_fail(lk_train_run *run, lk_status status)
{
    if (!run || run->asked != LK_OK || status <= LK_OK || status >= LK_STATUS_COUNT)
        return;
    run->asked = status;
    snprintf(run->why, sizeof run->why, "%s", *lk_error_detail() ? lk_error_detail() : lk_status_string(status));
}
