/* evaluate.c - testing a model: each sample is evaluated exactly once. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "data/loader/loader.h"
#include "parallel/engine/engine.h"
#include "train/parts.h"

/* The largest number of samples in a wave, and of their floats. Large images need smaller waves, because the
 * plan reserves memory for a backward pass, which an evaluation does not use. */
enum { WAVE = 64, WAVE_FLOATS = 1 << 20 };

int lk__train_workers(const lk_train_opts *settings, const lk_dataset *data, const lk_engine *engine)
{
    if (settings->workers != LK_OPTION_WORD)
        return settings->workers;
    return lk_engine_shard_range(engine).labels_only ? 1 : lk__loader_auto_workers(data, lk__engine_free_cores(engine));
}

lk_status lk__train_test_loader(const lk_train_opts *opts, const lk_dataset *data, const char *augment,
                                const lk_engine *engine, lk_loader **out)
{
    lk_loader_opts loader = {
        .batch = lk__size_min(opts->test_batch, lk_dataset_get_info(data)->count),
        .seed = opts->seed,
        .workers = lk__train_workers(opts, data, engine),
        .augment = augment,
        .share = lk_engine_shard_range(engine),
    };
    return lk_loader_create(data, &loader, out);
}

lk_status lk__train_cache_samples(lk_engine *engine, lk_loader *loader)
{
    bool cached;
    return lk_engine_cache_dataset(engine, loader, &cached);
}

static void add_metrics(lk_metrics *total, const lk_metrics *part)
{
    total->count += part->count;
    total->correct += part->correct;
    total->top5 += part->top5;
    total->weight += part->weight;
    total->loss += part->loss * part->weight;
    total->absolute_error += part->absolute_error * (double)part->count;
    total->squared_error += part->squared_error * (double)part->count;
}

/* Turns sums into means. */
static void end_metrics(lk_metrics *total)
{
    if (total->weight > 0)
        total->loss /= total->weight;
    if (total->count) {
        total->absolute_error /= (double)total->count;
        total->squared_error /= (double)total->count;
    }
}

/* The batches of an evaluation: sent and received. */
typedef struct test_run {
    lk_engine *engine;
    lk_loader *loader;
    size_t most;           /* batches to send; 0: all */
    size_t sent, received; /* batches */
    const lk_batch *next;  /* the batch to send next; NULL: there is none */
    bool *own;             /* as in lk__train_evaluate_batches */
    lk_metrics total;      /* of the batches received; sums instead of means */
} test_run;

static lk_status load_next(test_run *run)
{
    run->next = NULL;
    return run->most && run->sent == run->most ? LK_OK : lk_loader_next(run->loader, &run->next);
}

/* Sends batches until the engine takes no more. */
static lk_status send_batches(test_run *run)
{
    while (run->next) {
        size_t total = run->next->total ? run->next->total : run->next->count;
        if (!lk_engine_can_send_eval(run->engine, total))
            return LK_OK;
        *run->own = false;
        LK_TRY(lk_engine_send_eval(run->engine, run->next));
        *run->own = true;
        run->sent++;
        LK_TRY(load_next(run));
    }
    return LK_OK;
}

static lk_status receive_batch(test_run *run)
{
    lk_metrics part;
    *run->own = false;
    LK_TRY(lk_engine_receive(run->engine, &part));
    *run->own = true;
    run->received++;
    add_metrics(&run->total, &part);
    return LK_OK;
}

/* Receives the batches under way, so that the engine can do something else. */
static lk_status drain(test_run *run)
{
    while (run->received < run->sent)
        LK_TRY(receive_batch(run));
    return LK_OK;
}

/* After a failure: a failed engine has nothing under way. The first failure is kept. */
static lk_status end_failed(test_run *run, lk_status status)
{
    char why[2048];
    bool own = *run->own;
    snprintf(why, sizeof why, "%s", lk_error_detail());
    if (own && drain(run) != LK_OK)
        status = lk__fail(status, "%s", why);
    *run->own = own;
    return status;
}

static lk_status run_batches(test_run *run, const lk_train_watch *watch, bool *may_continue)
{
    size_t batches = run->most ? run->most : lk_loader_batches(run->loader);
    lk__train_activity(watch->hooks, LK_TRAIN_ACTIVITY_TEST, 0, batches);
    LK_TRY(lk_loader_start(run->loader, 0, 0));
    LK_TRY(load_next(run));
    while (*may_continue && (run->next || run->received < run->sent)) {
        LK_TRY(send_batches(run));
        LK_TRY(receive_batch(run));
        *may_continue = !watch->may_continue || watch->may_continue(watch->arg);
        lk__train_activity(watch->hooks, LK_TRAIN_ACTIVITY_TEST, run->received, batches);
    }
    return drain(run);
}

lk_status lk__train_evaluate_batches(lk_engine *engine, lk_loader *loader, size_t max_batches,
                                     const lk_train_watch *watch, lk_metrics *out, bool *own)
{
    test_run run = {.engine = engine, .loader = loader, .most = max_batches, .own = own};
    bool may_continue = true;
    *own = true;
    lk_status status = run_batches(&run, watch, &may_continue);
    if (status != LK_OK)
        return end_failed(&run, status);
    end_metrics(&run.total);
    *out = may_continue ? run.total : (lk_metrics){0};
    return LK_OK;
}

static size_t wave_samples(lk_sample_shape shape)
{
    size_t sample = shape.channels * shape.height * shape.width;
    return lk__size_max(lk__size_min(WAVE_FLOATS / sample, WAVE), 1);
}

lk_status lk__train_load_engine(const lk_train_opts *opts, const lk_graph *graph, const lk_train_evaluator *on,
                                const lk_state *state, lk_engine **out)
{
    lk_engine_opts engine_opts = {
        .device = on->device,
        .threads = opts->threads,
        .batch = on->wave,
        .shards = opts->shards,
        .conv = opts->conv,
        .precision = opts->precision,
        .optimizer = "sgd", /* has no state */
        .seed = opts->seed,
        .eval_only = true,
        .group = on->group,
    };
    lk_engine *engine;
    LK_TRY(lk_engine_create(graph, &engine_opts, &engine));
    lk_status status;
    LK_TRY_GOTO(lk__train_init_engine(engine, opts, state, "; `model` NAME says which model the file has"),
                destroy_engine);
    LK_TRY_GOTO(lk__train_check_finite(state, opts->init_from), destroy_engine);
    *out = engine;
    return LK_OK;

destroy_engine:
    lk_engine_destroy(engine);
    return status;
}

/* What the ranks of an evaluation share; they only read it. */
typedef struct evaluation {
    const lk_train_opts *opts;
    const lk_train_hooks *hooks;
    lk_state *state;
    lk_dataset *data;
    lk_graph *graph;
    size_t wave;
    char augment[LK_AUGMENT_TEXT];
} evaluation;

/* A rank: a thread of this process. */
typedef struct evaluating_rank {
    const evaluation *shared;
    const struct evaluating_rank *ranks; /* all of them */
    const char *device;
    lk_group *group; /* NULL: the only rank */
    pthread_t thread;
    lk_metrics metrics;
    lk_status status;
    char detail[2048];
} evaluating_rank;

static void close_evaluation(evaluation *e)
{
    lk_graph_destroy(e->graph);
    lk_dataset_destroy(e->data);
    lk_state_destroy(e->state);
}

static lk_status open_evaluation(const lk_train_opts *opts, const lk_train_hooks *hooks, evaluation *out)
{
    evaluation e = {.opts = opts, .hooks = hooks};
    lk_sample_shape shape;
    lk_status status;
    lk__train_activity(hooks, LK_TRAIN_ACTIVITY_OPEN, 0, 0);
    LK_TRY_GOTO(lk__train_load_weights(opts->init_from, &e.state), close);
    LK_TRY_GOTO(lk_dataset_open(opts->data, opts->data_dir, LK_SPLIT_TEST, &e.data), close);
    LK_TRY_GOTO(lk__train_evaluation_shape(opts, e.data, &shape, e.augment), close);
    LK_TRY_GOTO(lk__train_build_model(opts, e.data, shape, &e.graph), close);
    lk__train_activity(hooks, LK_TRAIN_ACTIVITY_PLAN, 0, 0);
    e.wave = wave_samples(shape);
    *out = e;
    return LK_OK;

close:
    close_evaluation(&e);
    return status;
}

static lk_status evaluate_share(const evaluation *e, evaluating_rank *rank)
{
    lk_engine *engine = NULL;
    lk_loader *loader = NULL;
    lk_train_evaluator on = {.device = rank->device, .group = rank->group, .wave = e->wave};
    lk_train_watch watch = {.hooks = rank == rank->ranks ? e->hooks : NULL}; /* only the first rank reports */
    bool own;
    lk_status status;
    LK_TRY(lk__train_load_engine(e->opts, e->graph, &on, e->state, &engine));
    LK_TRY_GOTO(lk__train_test_loader(e->opts, e->data, e->augment, engine, &loader), destroy_engine);
    LK_TRY_GOTO(lk__train_cache_samples(engine, loader), destroy_loader);
    status = lk__train_evaluate_batches(engine, loader, e->opts->dry_run ? 1 : 0, &watch, &rank->metrics, &own);
destroy_loader:
    lk_loader_destroy(loader);
destroy_engine:
    lk_engine_destroy(engine);
    return status;
}

/* A rank that fails alone ends the others, too. If the job is aborted already, its first reason stays. */
static void *rank_main(void *arg)
{
    evaluating_rank *rank = arg;
    rank->status = evaluate_share(rank->shared, rank);
    snprintf(rank->detail, sizeof rank->detail, "%s", rank->status == LK_OK ? "" : lk_error_detail());
    if (rank->status != LK_OK && rank->group)
        lk_group_abort(rank->group, rank->detail);
    lk_group_destroy(rank->group);
    return NULL;
}

/* Runs the first rank in this thread. */
static lk_status run_threads(evaluating_rank *ranks, int count)
{
    int started = 1, error = 0;
    for (; started < count && !error; started += !error)
        error = lk__thread_create(&ranks[started].thread, rank_main, &ranks[started]);
    if (error)
        lk_group_abort(ranks[0].group, "a thread could not be started");
    rank_main(&ranks[0]);
    for (int i = 1; i < started; i++)
        pthread_join(ranks[i].thread, NULL);
    for (int i = started; i < count; i++)
        lk_group_destroy(ranks[i].group);
    if (error)
        return lk__fail(LK_STATUS_IO, "cannot start a thread for rank %d: %s; raise the limit on memory or threads",
                        started, strerror(error));
    return LK_OK;
}

/* The failure of a rank itself, rather than the one that the others report for it. */
static lk_status failure_of(const evaluating_rank *ranks, int count)
{
    const evaluating_rank *found = &ranks[0];
    for (int i = 0; i < count; i++)
        if (ranks[i].status != LK_OK && (found->status == LK_OK || found->status == LK_STATUS_PEER))
            found = &ranks[i];
    return found->status == LK_OK ? LK_OK : lk__fail(found->status, "%s", found->detail);
}

static lk_status run_ranks(evaluating_rank *ranks, int count)
{
    lk_group *groups[LK_EVALUATE_MAX_RANKS] = {NULL};
    if (count > 1)
        LK_TRY(lk_group_create_threads(count, NULL, groups));
    for (int i = 0; i < count; i++)
        ranks[i].group = groups[i];
    LK_TRY(run_threads(ranks, count));
    return failure_of(ranks, count);
}

static lk_status evaluate_ranks(const evaluation *e, const char *const *devices, int count, lk_metrics *out)
{
    evaluating_rank *ranks;
    LK_TRY(LK_ALLOC((size_t)count, "the ranks", &ranks));
    for (int i = 0; i < count; i++)
        ranks[i] = (evaluating_rank){.shared = e, .ranks = ranks, .device = devices[i]};
    lk_status status = run_ranks(ranks, count);
    lk_metrics metrics = ranks[0].metrics;
    lk__mem_free(ranks);
    LK_TRY(status);
    if (!isfinite(metrics.loss))
        return lk__fail(LK_STATUS_NONFINITE,
                        "%s: the average loss is not finite, although every weight is: they are too large for this "
                        "data",
                        e->opts->init_from);
    *out = metrics;
    return LK_OK;
}

lk_status lk__train_evaluate(const lk_train_opts *opts, const char *const *devices, int count,
                             const lk_train_hooks *hooks, lk_metrics *out, size_t *classes)
{
    evaluation e;
    LK_TRY(open_evaluation(opts, hooks, &e));
    lk_status status = evaluate_ranks(&e, devices, count, out);
    if (status == LK_OK)
        *classes = lk_dataset_get_info(e.data)->classes;
    close_evaluation(&e);
    return status;
}
