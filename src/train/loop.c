/* loop.c - one rank of a training run: epochs of steps, an evaluation after
 * each, the model saved at the end. All ranks make the same calls of the engine
 * in the same order; what one of them fails at alone, it tells the others. */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "parallel/engine_impl.h"
#include "train/parts.h"
#include "train/start.h"

enum { DETAIL_BYTES = 2048 };

/* Everything a rank owns, and how far it is. */
typedef struct train_run {
    const lk_train_rank *rank;
    const lk_train_opts *opts;
    const lk_train_shared *shared;
    const lk_train_events *events;
    lk_fault fault;
    lk_train_result result;
    lk_train_place place;
    lk_engine *engine;
    lk_loader *loader, *test_loader;
    double base_lr;
    size_t total_steps;
    double began, epoch_began, step_began;
    double earlier_epochs; /* seconds of training steps */
    double epoch_loss;     /* sum over the epoch's samples */
    size_t epoch_samples;
    lk_metrics running; /* of this rank's samples in this epoch; loss is a sum */
} train_run;

/* A failure that the others have no part in must not let them wait. */
static lk_status alone(train_run *run, lk_status status)
{
    char why[DETAIL_BYTES];
    if (status == LK_OK)
        return LK_OK;
    run->fault = LK_FAULT_OWN;
    if (!run->rank->group)
        return status;
    snprintf(why, sizeof why, "%s", lk_error_detail());
    lk_group_abort(run->rank->group, why);
    return lk__fail(status, "%s", why);
}

/* A failure that every rank finds by itself. */
static lk_status alike(train_run *run, lk_status status)
{
    run->fault = LK_FAULT_COMMON;
    return status;
}

/* A failure of the engine, which has told the others of what is this rank's own.
 * One that could not be created has compared its options with theirs. */
static lk_status together(train_run *run, lk_status status)
{
    bool agreed =
        run->engine ? lk__engine_agreed(run->engine) : status == LK_STATUS_USAGE || status == LK_STATUS_MISMATCH;
    run->fault = status == LK_STATUS_PEER ? LK_FAULT_PEER : agreed ? LK_FAULT_COMMON : LK_FAULT_OWN;
    return status;
}

/* What the engine is not given is compared before it compares the rest. */
static lk_status compare_options(train_run *run)
{
    bool agreed = false;
    if (run->place.ranks == 1)
        return LK_OK;
    lk_status status = lk__train_agree(run->rank, &agreed);
    if (status != LK_OK && status != LK_STATUS_PEER && !agreed)
        return alone(run, status);
    run->fault = agreed ? LK_FAULT_COMMON : LK_FAULT_PEER;
    return status;
}

static size_t divide_up(size_t count, size_t parts)
{
    return (count + parts - 1) / parts;
}

/* Samples of this rank in a wave: --accumulate K promises the memory of a batch
 * that is K times smaller. */
static size_t wave_samples(const train_run *run)
{
    const lk_train_opts *opts = run->opts;
    if (opts->micro_batch || opts->accumulate < 2)
        return opts->micro_batch;
    int replicas = run->place.ranks / lk__cut_count(opts->stages);
    return divide_up(divide_up(opts->batch, opts->accumulate), replicas > 0 ? (size_t)replicas : 1);
}

static size_t batch_samples(const train_run *run)
{
    return lk__min_size(run->opts->batch, lk_dataset_get_info(run->shared->train)->count);
}

static lk_status create_engine(train_run *run)
{
    const lk_train_opts *opts = run->opts;
    lk_engine_opts engine = {
        .device = run->rank->device,
        .threads = opts->threads,
        .batch = batch_samples(run),
        .shards = opts->shards,
        .micro_batch = wave_samples(run),
        .bn = opts->bn,
        .optimizer = opts->optimizer,
        .lr = opts->lr,
        .seed = opts->seed,
        .clip_norm = opts->clip_norm,
        .label_smoothing = opts->label_smoothing,
        .group = run->rank->group,
        .bucket_bytes = opts->bucket_bytes,
        .stages = opts->stages,
        .pipelined = opts->pipelined,
        .check_every = opts->check_every ? opts->check_every : -1,
    };
    LK_TRY(lk_engine_create(run->shared->graph, &engine, &run->engine));
    run->base_lr = lk_engine_lr(run->engine);
    return LK_OK;
}

/* All ranks have the same file: what is wrong with it, each finds. */
static lk_status load_initial(train_run *run)
{
    if (!run->shared->initial)
        return LK_OK;
    lk_status status = lk__init_engine(run->engine, run->opts, run->shared->initial);
    bool every = status == LK_STATUS_MISMATCH || status == LK_STATUS_USAGE;
    return every ? alike(run, status) : together(run, status);
}

static lk_status create_loader(train_run *run)
{
    const lk_train_opts *opts = run->opts;
    lk_loader_opts loader = {
        .batch = batch_samples(run),
        .shuffle = true,
        .seed = opts->seed,
        .workers = opts->workers,
        .augment = opts->augment,
        .share = lk_engine_share(run->engine),
    };
    return lk_loader_create(run->shared->train, &loader, &run->loader);
}

static void count_steps(train_run *run)
{
    const lk_train_opts *opts = run->opts;
    run->total_steps = opts->epochs * lk_loader_batches(run->loader);
    if (opts->max_steps)
        run->total_steps = lk__min_size(run->total_steps, opts->max_steps);
    if (opts->dry_run)
        run->total_steps = lk__min_size(run->total_steps, 1);
}

static lk_schedule_at schedule_at(const train_run *run, size_t epoch, size_t batch)
{
    return (lk_schedule_at){
        .epoch = epoch, .epochs = run->opts->epochs, .batch = batch, .batches = lk_loader_batches(run->loader)};
}

static lk_status run_open(train_run *run)
{
    const lk_train_opts *opts = run->opts;
    run->place = lk__train_place(run->rank);
    run->result.ranks = run->place.ranks;
    if (lk__saves(opts, run->place.rank))
        LK_TRY(
            alone(run, lk__save_path(opts->save_model, run->place.rank, run->result.saved, sizeof run->result.saved)));
    LK_TRY(compare_options(run));
    LK_TRY(together(run, create_engine(run)));
    LK_TRY(load_initial(run));
    LK_TRY(alone(run, create_loader(run)));
    LK_TRY(alike(run, lk__schedule_check(run->shared->schedule, run->base_lr, schedule_at(run, 0, 0))));
    count_steps(run);
    run->place.layout = lk_engine_layout(run->engine);
    run->place.share = lk_engine_share(run->engine);
    return LK_OK;
}

static void run_close(train_run *run)
{
    lk_loader_destroy(run->test_loader);
    lk_loader_destroy(run->loader);
    lk_engine_destroy(run->engine);
}

static void tell_start(const train_run *run)
{
    const lk_train_shared *shared = run->shared;
    if (!run->events->start)
        return;
    lk_train_start start = {
        .train = lk_dataset_get_info(shared->train),
        .test = shared->test ? lk_dataset_get_info(shared->test) : NULL,
        .augment = lk__training_augment(shared->train, run->opts->augment),
        .test_augment = shared->test ? shared->test_augment : "none",
        .parameters = lk_graph_parameters(shared->graph),
        .batches = lk_loader_batches(run->loader),
        .steps = run->total_steps,
        .batch = batch_samples(run),
        .place = run->place,
        .cuts = (const char(*)[LK_LAYER_TEXT])shared->cuts,
        .better_shards = lk__better_shards(run->opts->shards, run->place.layout.replicas),
    };
    run->events->start(run->events->arg, &start);
}

static lk_metrics running_mean(const train_run *run)
{
    lk_metrics mean = run->running;
    mean.loss = mean.count ? mean.loss / (double)mean.count : 0;
    return mean;
}

static void tell_step(const train_run *run, size_t epoch, size_t index, const lk_metrics *metrics)
{
    if (!run->events->step)
        return;
    double now = lk__clock();
    lk_train_step step = {
        .epoch = epoch + 1,
        .batch = index,
        .seen = run->epoch_samples - metrics->count,
        .step = run->result.steps,
        .metrics = *metrics,
        .own = lk_engine_own_metrics(run->engine),
        .running = running_mean(run),
        .lr = lk_engine_lr(run->engine),
        .samples = run->result.samples,
        .seconds = now - run->began,
        .train_seconds = run->result.train_seconds,
        .batch_seconds = now - run->step_began,
    };
    run->events->step(run->events->arg, &step);
}

static lk_status train_batch(train_run *run, size_t epoch, size_t index, const lk_batch *batch)
{
    lk_metrics metrics;
    lk_engine_set_lr(run->engine, lk__schedule_lr(run->shared->schedule, run->base_lr, schedule_at(run, epoch, index)));
    LK_TRY(together(run, lk_engine_step(run->engine, batch, &metrics)));
    run->result.steps++;
    run->result.samples += metrics.count;
    run->epoch_samples += metrics.count;
    run->epoch_loss += metrics.loss * (double)metrics.count;
    lk_metrics own = lk_engine_own_metrics(run->engine);
    run->running.count += own.count;
    run->running.correct += own.correct;
    run->running.top5 += own.top5;
    run->running.loss += own.loss * (double)own.count;
    run->result.train_seconds = run->earlier_epochs + (lk__clock() - run->epoch_began);
    tell_step(run, epoch, index, &metrics);
    return LK_OK;
}

static lk_status train_epoch(train_run *run, size_t epoch)
{
    lk_dataset *test = run->shared->test;
    run->epoch_began = lk__clock();
    run->epoch_loss = 0;
    run->epoch_samples = 0;
    run->running = (lk_metrics){0};
    LK_TRY(alone(run, lk_loader_start(run->loader, epoch, 0)));
    for (size_t index = 0; run->result.steps < run->total_steps; index++) {
        const lk_batch *batch;
        run->step_began = lk__clock();
        LK_TRY(alone(run, lk_loader_next(run->loader, &batch)));
        if (!batch)
            break;
        LK_TRY(train_batch(run, epoch, index, batch));
        /* Waiting for the test files now does not delay the first step, and
         * finding them damaged does not come at the end of an epoch. Where
         * training ends here, the evaluation is what waits. */
        if (run->result.steps == 1 && run->total_steps > 1 && test)
            LK_TRY(alone(run, lk__check_readable(test)));
    }
    run->earlier_epochs = run->result.train_seconds;
    return LK_OK;
}

static lk_status evaluate(train_run *run)
{
    bool own = true;
    if (!run->test_loader)
        LK_TRY(alone(run, lk__test_loader(run->opts, run->shared->test, run->shared->test_augment, run->place.share,
                                          &run->test_loader)));
    lk_status status =
        lk__evaluate_batches(run->engine, run->test_loader, run->opts->dry_run ? 1 : 0, &run->result.test, &own);
    return own ? alone(run, status) : together(run, status);
}

static lk_status test_epoch(train_run *run, size_t epoch)
{
    lk_metrics *metrics = &run->result.test;
    if (!run->shared->test)
        return LK_OK;
    LK_TRY(evaluate(run));
    /* The last step may have broken the weights, and no later step tells. */
    if (!isfinite(metrics->loss))
        return alike(run, lk__fail(LK_STATUS_NONFINITE,
                                   "the test loss after epoch %zu is not finite; a smaller --lr may help", epoch + 1));
    if (!run->events->test)
        return LK_OK;
    lk_train_test test = {
        .epoch = epoch + 1,
        .metrics = *metrics,
        .train_loss = run->epoch_loss / (double)run->epoch_samples,
        .seconds = lk__clock() - run->began,
    };
    run->events->test(run->events->arg, &test);
    return LK_OK;
}

/* Every rank has the whole model then; those that are to save do. */
static lk_status finish(train_run *run)
{
    lk_state *state;
    lk_status status;
    if (run->opts->check_every)
        LK_TRY(together(run, lk_engine_check(run->engine)));
    LK_TRY(together(run, lk_engine_state(run->engine, &state)));
    run->result.hash = lk_state_hash(state);
    LK_TRY_GOTO(alike(run, lk__check_finite(state, "the trained model")), destroy_state);
    status = *run->result.saved ? alone(run, lk_state_save(state, run->result.saved)) : LK_OK;
destroy_state:
    lk_state_destroy(state);
    return status;
}

/* What was learned before the evaluation failed is not lost with it; what came
 * to nothing does not replace an older model. */
static lk_status save_anyway(train_run *run, lk_status failure)
{
    char why[DETAIL_BYTES], second[DETAIL_BYTES];
    lk_fault fault = run->fault;
    if (!*run->result.saved || failure == LK_STATUS_NONFINITE)
        return failure;
    snprintf(why, sizeof why, "%s", lk_error_detail());
    lk_status saved = finish(run);
    run->fault = fault;
    if (saved == LK_OK)
        return lk__fail(failure, "%s; the model was saved to %s", why, run->result.saved);
    snprintf(second, sizeof second, "%s", lk_error_detail());
    return lk__fail(failure, "%s; the model was not saved: %s", why, second);
}

static lk_status run_epochs(train_run *run)
{
    run->began = lk__clock();
    for (size_t epoch = 0; run->result.steps < run->total_steps; epoch++) {
        LK_TRY(train_epoch(run, epoch));
        lk_status status = test_epoch(run, epoch);
        if (status != LK_OK)
            return save_anyway(run, status);
    }
    run->result.seconds = lk__clock() - run->began;
    run->result.waits = lk_engine_waits(run->engine);
    return LK_OK;
}

lk_status lk__train_rank(const lk_train_rank *rank, lk_train_result *out, lk_fault *fault)
{
    train_run run = {.rank = rank, .opts = rank->opts, .shared = rank->shared, .events = rank->events};
    lk_status status;
    LK_TRY_GOTO(run_open(&run), close_run);
    tell_start(&run);
    LK_TRY_GOTO(run_epochs(&run), close_run);
    LK_TRY_GOTO(finish(&run), close_run);
    if (run.events->end)
        run.events->end(run.events->arg, &run.result);
    *out = run.result;

close_run:
    if (status != LK_OK)
        *fault = run.fault;
    run_close(&run);
    return status;
}
