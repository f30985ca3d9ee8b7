/* loop.c - a training run: epochs of steps, an evaluation after each, the
 * model saved at the end. */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "nn/plan.h"
#include "optim/optim.h"
#include "train/parts.h"

/* Everything a run owns, and how far it is. */
typedef struct train_run {
    const lk_train_opts *opts;
    const lk_train_events *events;
    lk_train_result result;
    lk_state *initial; /* of init_from, until the engine has it */
    lk_schedule *schedule;
    lk_dataset *train, *test;
    lk_graph *graph;
    lk_engine *engine;
    lk_loader *loader, *test_loader;
    int threads;
    double base_lr;
    size_t total_steps;
    double began, epoch_began;
    double earlier_epochs; /* seconds of training steps */
    double epoch_loss;     /* sum over the epoch's samples */
    size_t epoch_samples;
} train_run;

/* What needs no data comes first: the sooner a mistake is told, the better. */
static lk_status check_files(train_run *run)
{
    const lk_train_opts *opts = run->opts;
    if (opts->save_model) {
        LK_TRY(lk__save_path(opts->save_model, 0, run->result.saved, sizeof run->result.saved));
        LK_TRY(lk__save_check(run->result.saved));
    }
    LK_TRY(lk__schedule_create(opts->schedule, &run->schedule));
    if (opts->init_from)
        LK_TRY(lk_state_load(opts->init_from, &run->initial));
    return LK_OK;
}

static lk_status create_engine(train_run *run)
{
    const lk_train_opts *opts = run->opts;
    lk_engine_opts engine = {
        .device = opts->device,
        .threads = run->threads,
        .batch = lk__min_size(opts->batch, lk_dataset_get_info(run->train)->count),
        .shards = opts->shards,
        .micro_batch = opts->micro_batch,
        .bn = opts->bn,
        .optimizer = opts->optimizer,
        .lr = opts->lr,
        .seed = opts->seed,
    };
    LK_TRY(lk_engine_create(run->graph, &engine, &run->engine));
    run->base_lr = lk_engine_lr(run->engine);
    if (!run->initial)
        return LK_OK;
    LK_TRY(lk__init_engine(run->engine, run->initial, opts->init_from));
    lk_state_destroy(run->initial);
    run->initial = NULL;
    return LK_OK;
}

static lk_status create_loader(train_run *run)
{
    const lk_train_opts *opts = run->opts;
    lk_loader_opts loader = {
        .batch = lk__min_size(opts->batch, lk_dataset_get_info(run->train)->count),
        .shuffle = true,
        .seed = opts->seed,
        .workers = opts->workers,
        .augment = opts->augment,
    };
    return lk_loader_create(run->train, &loader, &run->loader);
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

static lk_status run_open(train_run *run)
{
    const lk_train_opts *opts = run->opts;
    run->threads = opts->threads > 0 ? opts->threads : lk__cores();
    LK_TRY(check_files(run));
    LK_TRY(lk__open_splits(opts, &run->train, &run->test));
    LK_TRY(lk__build_model(opts, run->train, &run->graph));
    LK_TRY(create_engine(run));
    LK_TRY(create_loader(run));
    count_steps(run);
    return LK_OK;
}

static void run_close(train_run *run)
{
    lk_loader_destroy(run->test_loader);
    lk_loader_destroy(run->loader);
    lk_engine_destroy(run->engine);
    lk_graph_destroy(run->graph);
    lk_dataset_destroy(run->test);
    lk_dataset_destroy(run->train);
    lk__schedule_destroy(run->schedule);
    lk_state_destroy(run->initial);
}

static void tell_start(const train_run *run)
{
    if (!run->events->start)
        return;
    lk_train_start start = {
        .train = lk_dataset_get_info(run->train),
        .test = run->test ? lk_dataset_get_info(run->test) : NULL,
        .parameters = lk_graph_parameters(run->graph),
        .batches = lk_loader_batches(run->loader),
        .steps = run->total_steps,
        .threads = run->threads,
        .one_wave = run->opts->bn == LK_BN_BATCH && lk__graph_has_sums(run->graph),
    };
    run->events->start(run->events->arg, &start);
}

static void tell_step(const train_run *run, size_t epoch, size_t index, const lk_metrics *metrics)
{
    if (!run->events->step)
        return;
    lk_train_step step = {
        .epoch = epoch + 1,
        .batch = index,
        .seen = run->epoch_samples - metrics->count,
        .step = run->result.steps,
        .metrics = *metrics,
        .lr = lk_engine_lr(run->engine),
        .samples = run->result.samples,
        .seconds = lk__clock() - run->began,
        .train_seconds = run->result.train_seconds,
    };
    run->events->step(run->events->arg, &step);
}

static lk_status train_batch(train_run *run, size_t epoch, size_t index, const lk_batch *batch)
{
    lk_metrics metrics;
    LK_TRY(lk_engine_step(run->engine, batch, &metrics));
    run->result.steps++;
    run->result.samples += metrics.count;
    run->epoch_samples += metrics.count;
    run->epoch_loss += metrics.loss * (double)metrics.count;
    run->result.train_seconds = run->earlier_epochs + (lk__clock() - run->epoch_began);
    tell_step(run, epoch, index, &metrics);
    return LK_OK;
}

static lk_status train_epoch(train_run *run, size_t epoch)
{
    run->epoch_began = lk__clock();
    run->epoch_loss = 0;
    run->epoch_samples = 0;
    lk_engine_set_lr(run->engine, lk__schedule_lr(run->schedule, run->base_lr, epoch));
    LK_TRY(lk_loader_start(run->loader, epoch, 0));
    for (size_t index = 0; run->result.steps < run->total_steps; index++) {
        const lk_batch *batch;
        LK_TRY(lk_loader_next(run->loader, &batch));
        if (!batch)
            break;
        LK_TRY(train_batch(run, epoch, index, batch));
        /* Waiting for the test files now does not delay the first step, and
         * finding them damaged does not come at the end of an epoch. Where
         * training ends here, the evaluation is what waits. */
        if (run->result.steps == 1 && run->total_steps > 1 && run->test)
            LK_TRY(lk__check_readable(run->test));
    }
    run->earlier_epochs = run->result.train_seconds;
    return LK_OK;
}

static lk_status test_epoch(train_run *run, size_t epoch)
{
    if (!run->test)
        return LK_OK;
    if (!run->test_loader)
        LK_TRY(lk__test_loader(run->opts, run->test, &run->test_loader));
    lk_metrics *metrics = &run->result.test;
    LK_TRY(lk__evaluate_batches(run->engine, run->test_loader, run->opts->dry_run ? 1 : 0, metrics));
    /* The last step may have broken the weights, and no later step tells. */
    if (!isfinite(metrics->loss))
        return lk__fail(LK_STATUS_NONFINITE, "the test loss after epoch %zu is not finite; a smaller --lr may help",
                        epoch + 1);
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

static lk_status finish(train_run *run)
{
    lk_state *state;
    lk_status status;
    LK_TRY(lk_engine_state(run->engine, &state));
    run->result.hash = lk_state_hash(state);
    LK_TRY_GOTO(lk__check_finite(state, "the trained model"), destroy_state);
    status = *run->result.saved ? lk_state_save(state, run->result.saved) : LK_OK;
destroy_state:
    lk_state_destroy(state);
    return status;
}

/* What was learned before the evaluation failed is not lost with it; what came
 * to nothing does not replace an older model. */
static lk_status save_anyway(train_run *run, lk_status failure)
{
    char why[1024];
    if (!*run->result.saved || failure == LK_STATUS_NONFINITE)
        return failure;
    snprintf(why, sizeof why, "%s", lk_error_detail());
    if (finish(run) == LK_OK)
        return lk__fail(failure, "%s; the model was saved to %s", why, run->result.saved);
    char second[1024];
    snprintf(second, sizeof second, "%s", lk_error_detail());
    return lk__fail(failure, "%s; the model was not saved: %s", why, second);
}

lk_status lk__train(const lk_train_opts *opts, const lk_train_events *events, lk_train_result *out)
{
    train_run run = {.opts = opts, .events = events};
    lk_status status;
    LK_TRY_GOTO(run_open(&run), close_run);
    tell_start(&run);
    run.began = lk__clock();
    for (size_t epoch = 0; run.result.steps < run.total_steps; epoch++) {
        LK_TRY_GOTO(train_epoch(&run, epoch), close_run);
        status = test_epoch(&run, epoch);
        if (status != LK_OK) {
            status = save_anyway(&run, status);
            goto close_run;
        }
    }
    run.result.seconds = lk__clock() - run.began;
    LK_TRY_GOTO(finish(&run), close_run);
    *out = run.result;

close_run:
    run_close(&run);
    return status;
}
