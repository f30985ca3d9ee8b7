/* watch.c - what follows from the results of epochs: the rate of a schedule that watches them, and an early end. Only
 * whole epochs count, so a run that was interrupted comes to the same decisions. */
#include "nn/graph.h"
#include "nn/op.h"
#include "train/run.h"

/* Steps before the last drop had the rate before it. */
lk_lr_schedule_at lk__run_schedule_at(const lk_train_run *run, size_t epoch, size_t batch)
{
    const lk_position *at = &run->at;
    size_t batches = run->effective.batches;
    return (lk_lr_schedule_at){.epoch = epoch,
                               .epochs = run->opts->epochs,
                               .batch = batch,
                               .batches = batches,
                               .drops = at->watch.drops - (epoch * batches + batch < at->dropped)};
}

static void watch_rate(lk_train_run *run, const lk_metrics *result)
{
    lk_position *at = &run->at;
    size_t drops = at->watch.drops;
    lk_lr_schedule_result seen = {.loss = result->loss, .accuracy = (double)result->correct / (double)result->count};
    lk_lr_schedule_observe(run->shared->schedule, lk__run_schedule_at(run, at->epoch, at->batch - 1), seen, &at->watch);
    if (at->watch.drops > drops)
        at->dropped = at->step;
}

bool lk__run_is_better(const lk_train_run *run, const lk_metrics *result, size_t correct, double loss)
{
    bool classes = lk__graph_loss(run->shared->graph)->op->smooths;
    return classes ? result->correct > correct : result->loss < loss;
}

void lk__run_watch(lk_train_run *run, const lk_metrics *result)
{
    lk_position *at = &run->at;
    if (at->batch != run->effective.batches)
        return;
    watch_rate(run, result);
    bool better = at->judged == 0 || lk__run_is_better(run, result, at->judged_best, at->judged_loss);
    at->judged++;
    if (better) {
        at->judged_best = result->correct;
        at->judged_loss = result->loss;
    }
    at->stale = better ? 0 : at->stale + 1;
}

void lk__run_end_early(lk_train_run *run)
{
    const lk_train_opts *opts = run->opts;
    bool over = run->at.batch == run->effective.batches && run->at.tested == run->at.step;
    if (!opts->early_stop || !over || run->at.stale < opts->early_stop || run->at.step >= run->total_steps)
        return;
    run->total_steps = run->at.step;
    run->result.stale = run->at.stale;
}
