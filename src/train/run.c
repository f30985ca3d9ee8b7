/* run.c - prepares a rank for its first step, from initial weights or from a checkpoint; and records who has
 * failed. */
#include "train/run.h"

#include <stdio.h>

#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "parallel/engine/engine.h"
#include "train/start.h"

/* Aborts the job with this rank's detail. If the job is aborted already, its first reason stays. */
static lk_status abort_job(const lk_train_run *run, lk_status status)
{
    char why[LK_DETAIL_BYTES];
    if (!run->rank->group)
        return status;
    snprintf(why, sizeof why, "%s", lk_error_detail());
    lk_group_abort(run->rank->group, why);
    return lk__fail(status, "%s", why);
}

lk_status lk__run_own_result(lk_train_run *run, lk_status status)
{
    if (status == LK_OK)
        return LK_OK;
    run->fault = LK_TRAIN_FAULT_OWN;
    return abort_job(run, status);
}

lk_status lk__run_common_result(lk_train_run *run, lk_status status)
{
    run->fault = LK_TRAIN_FAULT_COMMON;
    return status;
}

lk_status lk__run_collective_result(lk_train_run *run, lk_status status)
{
    bool agreed =
        run->engine ? lk__engine_agreed(run->engine) : status == LK_STATUS_USAGE || status == LK_STATUS_MISMATCH;
    run->fault = status == LK_STATUS_PEER ? LK_TRAIN_FAULT_PEER : agreed ? LK_TRAIN_FAULT_COMMON : LK_TRAIN_FAULT_OWN;
    return status != LK_OK && run->fault == LK_TRAIN_FAULT_OWN ? abort_job(run, status) : status;
}

/* Collective: counts the ranks that have failed. */
static lk_status count_failed(const lk_train_run *run, bool mine, int64_t *failed)
{
    *failed = mine;
    return lk_allreduce(run->rank->group, (lk_buffer){failed, 1, LK_DTYPE_I64}, LK_REDUCTION_SUM, NULL);
}

lk_status lk__run_vote(lk_train_run *run, lk_status status)
{
    char why[LK_DETAIL_BYTES];
    int64_t failed = 0;
    if (run->self.ranks == 1)
        return lk__run_common_result(run, status);
    snprintf(why, sizeof why, "%s", status == LK_OK ? "" : lk_error_detail());
    run->fault = LK_TRAIN_FAULT_PEER;
    LK_TRY(count_failed(run, status != LK_OK, &failed));
    if (failed == 0)
        return LK_OK;
    if (status == LK_OK)
        return lk_barrier(run->rank->group, NULL); /* fails with the reason of a rank that aborts the job */
    status = lk__fail(status, "%s", why);
    return failed == run->self.ranks ? lk__run_common_result(run, status) : lk__run_own_result(run, status);
}

/* The result of a comparison between ranks. */
static lk_status compared_result(lk_train_run *run, lk_status status, bool agreed)
{
    if (status != LK_OK && status != LK_STATUS_PEER && !agreed)
        return lk__run_own_result(run, status);
    run->fault = agreed ? LK_TRAIN_FAULT_COMMON : LK_TRAIN_FAULT_PEER;
    return status;
}

/* Compares the options and data that the engine does not compare. */
static lk_status compare_options(lk_train_run *run)
{
    bool agreed = false;
    if (run->self.ranks == 1)
        return LK_OK;
    lk_status status = lk__train_agree(run->rank, &agreed);
    return compared_result(run, status, agreed);
}

lk_status lk__run_compare_files(lk_train_run *run, const char *split, const lk_dataset *data)
{
    bool agreed = false;
    if (run->self.ranks == 1 || run->rank->one_process)
        return LK_OK;
    lk_status status = lk__train_agree_files(run->rank, split, data, &agreed);
    return compared_result(run, status, agreed);
}

/* Samples of this rank in a wave. With --accumulate K, a step needs only the memory of a batch that is K times
 * smaller. */
static size_t wave_samples(const lk_train_run *run)
{
    const lk_train_opts *opts = run->opts;
    if (opts->micro_batch || opts->accumulate < 2)
        return opts->micro_batch;
    int replicas = run->self.ranks / lk__partition_count(opts->stages);
    return lk__size_divide_up(lk__size_divide_up(opts->batch, opts->accumulate), replicas > 0 ? (size_t)replicas : 1);
}

size_t lk__run_batch(const lk_train_run *run)
{
    return lk__size_min(run->opts->batch, lk_dataset_get_info(run->shared->train)->count);
}

/* The engine's signal source: one rank of a process takes the request. A request to save that reaches two ranks
 * in consecutive steps is carried out once. */
static int take_signal_level(void *arg)
{
    const lk_train_run *run = arg;
    atomic_int *asked = run->rank->signal_level;
    int level = asked ? atomic_exchange(asked, LK_SIGNAL_LEVEL_NONE) : LK_SIGNAL_LEVEL_NONE;
    if (run->asks_stop && level < LK_SIGNAL_LEVEL_STOP)
        return LK_SIGNAL_LEVEL_STOP;
    return level == LK_SIGNAL_LEVEL_SAVE && run->signal_saved > 0 && run->at.step == run->signal_saved
               ? LK_SIGNAL_LEVEL_NONE
               : level;
}

static lk_status create_engine(lk_train_run *run)
{
    lk_engine_opts engine = lk__train_engine_opts(run->opts);
    engine.device = run->rank->device;
    engine.batch = lk__run_batch(run);
    engine.micro_batch = wave_samples(run);
    engine.group = run->rank->group;
    LK_TRY(lk_engine_create(run->shared->graph, &engine, &run->engine));
    lk_engine_set_signal_source(run->engine, take_signal_level, run);
    run->effective.lr = lk_engine_lr(run->engine);
    return LK_OK;
}

/* The result of using a file or an option that is equal at all ranks: each finds the same error in it. */
static lk_status input_result(lk_train_run *run, lk_status status)
{
    bool every = status == LK_STATUS_MISMATCH || status == LK_STATUS_USAGE;
    return every ? lk__run_common_result(run, status) : lk__run_collective_result(run, status);
}

static lk_status load_initial(lk_train_run *run)
{
    if (!run->shared->initial)
        return LK_OK;
    return input_result(run, lk__train_init_engine(run->engine, run->opts, run->shared->initial,
                                                   "; `init_skip` NAME leaves a layer out"));
}

static lk_status create_loader(lk_train_run *run)
{
    const lk_train_opts *opts = run->opts;
    lk_loader_opts loader = {
        .batch = opts->batch,
        .drop_last = opts->drop_last,
        .shuffle = true,
        .seed = opts->seed,
        .workers = lk__train_workers(opts, run->shared->train, run->engine),
        .augment = opts->augment,
        .share = lk_engine_shard_range(run->engine),
    };
    LK_TRY(lk_loader_create(run->shared->train, &loader, &run->loader));
    run->effective.batches = lk_loader_batches(run->loader);
    return LK_OK;
}

static void count_steps(lk_train_run *run)
{
    const lk_train_opts *opts = run->opts;
    run->total_steps = opts->epochs * run->effective.batches;
    if (opts->max_steps)
        run->total_steps = lk__size_min(run->total_steps, opts->max_steps);
    if (opts->dry_run)
        run->total_steps = lk__size_min(run->total_steps, run->at.step + 1);
}

/* Checks that the schedule gives the rate with which the checkpoint's last step was taken; before_step may have changed
 * that rate. */
static lk_status check_last_rate(const lk_train_run *run)
{
    size_t batches = run->effective.batches, last = run->at.step - 1;
    if (run->at.step == 0 || run->hooks->before_step)
        return LK_OK;
    double saved = lk_engine_lr(run->engine);
    double rate = lk_lr_schedule_lr(run->shared->schedule, run->effective.lr,
                                    lk__run_schedule_at(run, last / batches, last % batches));
    if (saved == rate)
        return LK_OK;
    return lk__fail(LK_STATUS_MISMATCH,
                    "%s: step %zu was taken with the rate %.6g, where `schedule` %s has %.6g: another version of this "
                    "program saved it; resume from that one, or start a new run with `init_from` %s/%s",
                    run->opts->resume, run->at.step, saved, run->opts->schedule, rate, run->opts->resume,
                    lk__checkpoint_model);
}

/* Restores engine and position from the checkpoint. */
static lk_status resume_run(lk_train_run *run)
{
    const lk_checkpoint *resume = run->shared->resume;
    int shards = 0;
    if (!resume)
        return LK_OK;
    LK_TRY(lk__run_vote(run, lk__position_read(resume, run->opts->resume, &run->at)));
    LK_TRY(lk__run_own_result(run, lk__data_notes_read(run->shared->data_notes)));
    LK_TRY(lk__run_vote(run, lk__train_options_check(run->rank, &run->effective, &run->at, &shards, &run->touched)));
    LK_TRY(input_result(run, lk_engine_set_state(run->engine, lk_checkpoint_model(resume))));
    LK_TRY(input_result(run, lk_engine_set_optimizer_state(run->engine, lk_checkpoint_optimizer(resume))));
    LK_TRY(lk__run_common_result(run, check_last_rate(run)));
    if (lk_engine_steps(run->engine) != run->at.step)
        return lk__run_common_result(
            run, lk__fail(LK_STATUS_FORMAT, "%s: the optimiser has taken %llu steps, the run %zu", run->opts->resume,
                          (unsigned long long)lk_engine_steps(run->engine), run->at.step));
    run->saved = run->at;
    run->saved_shards = shards != run->opts->shards ? shards : 0;
    lk__device_notes_compare(run->rank->device, run->opts->precision, resume, run->other_device);
    run->result.steps = run->at.step;
    run->result.test = run->at.test;
    run->result.val = run->at.val;
    run->result.best_step = run->at.best_step;
    run->result.best_correct = run->at.best_correct;
    run->result.best_loss = run->at.best_loss;
    return LK_OK;
}

lk_status lk__run_open(lk_train_run *run)
{
    const lk_train_opts *opts = run->opts;
    run->self = lk__train_rank_info(run->rank);
    run->result.ranks = run->self.ranks;
    if (lk__train_saves(opts, run->self.rank))
        LK_TRY(lk__run_own_result(
            run, lk__train_save_path(opts->save_model, run->self.rank, run->result.saved, sizeof run->result.saved)));
    LK_TRY(compare_options(run));
    LK_TRY(lk__run_collective_result(run, create_engine(run)));
    if (run->rank->group)
        LK_TRY(lk__run_collective_result(
            run, lk__device_notes_mixed(run->rank->group, run->rank->device, &run->mixed_devices)));
    LK_TRY(load_initial(run));
    LK_TRY(input_result(run, create_loader(run)));
    LK_TRY(lk__run_common_result(
        run, lk_lr_schedule_check(run->shared->schedule, run->effective.lr, lk__run_schedule_at(run, 0, 0))));
    LK_TRY(resume_run(run));
    LK_TRY(lk__run_compare_files(run, "training", lk__train_whole(run->shared)));
    LK_TRY(lk__run_own_result(run, lk__train_cache_samples(run->engine, run->loader)));
    count_steps(run);
    run->self.layout = lk_engine_layout(run->engine);
    run->self.share = lk_engine_shard_range(run->engine);
    return LK_OK;
}

void lk__run_close(lk_train_run *run)
{
    lk_loader_destroy(run->val_loader);
    lk_loader_destroy(run->test_loader);
    lk_loader_destroy(run->loader);
    lk_engine_destroy(run->engine);
}
