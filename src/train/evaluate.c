/* evaluate.c - testing a model: each sample is evaluated exactly once. */
#include <math.h>

#include "base/mem.h"
#include "train/parts.h"

/* The largest number of samples in a wave, and of their floats. Large images need smaller waves, because the
 * plan reserves memory for a backward pass, which an evaluation does not use. */
enum { WAVE = 64, WAVE_FLOATS = 1 << 20 };

lk_status lk__train_test_loader(const lk_train_opts *opts, const lk_dataset *data, const char *augment,
                                lk_shard_range share, lk_loader **out)
{
    lk_loader_opts loader = {
        .batch = lk__size_min(opts->test_batch, lk_dataset_get_info(data)->count),
        .seed = opts->seed,
        .workers = opts->workers,
        .augment = augment,
        .share = share,
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
    total->loss += part->loss * (double)part->count;
}

lk_status lk__train_evaluate_batches(lk_engine *engine, lk_loader *loader, size_t max_batches,
                                     const lk_train_watch *watch, lk_metrics *out, bool *own)
{
    lk_metrics total = {0};
    bool may_continue = true;
    size_t batches = max_batches ? max_batches : lk_loader_batches(loader);
    *own = true;
    lk__train_activity(watch->events, LK_TRAIN_ACTIVITY_TEST, 0, batches);
    LK_TRY(lk_loader_start(loader, 0, 0));
    for (size_t i = 0; may_continue && (!max_batches || i < max_batches); i++) {
        const lk_batch *batch;
        lk_metrics part;
        LK_TRY(lk_loader_next(loader, &batch));
        if (!batch)
            break;
        *own = false;
        LK_TRY(lk_engine_eval(engine, batch, &part));
        *own = true;
        add_metrics(&total, &part);
        may_continue = !watch->may_continue || watch->may_continue(watch->arg);
        lk__train_activity(watch->events, LK_TRAIN_ACTIVITY_TEST, i + 1, batches);
    }
    if (total.count)
        total.loss /= (double)total.count;
    *out = may_continue ? total : (lk_metrics){0};
    return LK_OK;
}

static size_t wave_samples(lk_sample_shape shape)
{
    size_t sample = shape.channels * shape.height * shape.width;
    return lk__size_max(lk__size_min(WAVE_FLOATS / sample, WAVE), 1);
}

static lk_status load_engine(const lk_train_opts *opts, const lk_graph *graph, size_t wave, const lk_state *state,
                             lk_engine **out)
{
    lk_engine_opts engine_opts = {
        .device = opts->device,
        .threads = opts->threads,
        .batch = wave,
        .shards = opts->shards,
        .precision = opts->precision,
        .optimizer = "sgd", /* has no state */
        .seed = opts->seed,
        .eval_only = true,
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

lk_status lk__train_evaluate(const lk_train_opts *opts, const lk_train_events *events, lk_metrics *out, size_t *classes)
{
    lk_state *state = NULL;
    lk_dataset *data = NULL;
    lk_graph *graph = NULL;
    lk_engine *engine = NULL;
    lk_loader *loader = NULL;
    lk_metrics metrics = {0};
    lk_sample_shape shape;
    char augment[LK_AUGMENT_TEXT];
    bool own;
    lk_status status;
    lk__train_activity(events, LK_TRAIN_ACTIVITY_OPEN, 0, 0);
    LK_TRY_GOTO(lk__train_load_weights(opts->init_from, &state), release);
    LK_TRY_GOTO(lk_dataset_open(opts->data, opts->data_dir, LK_SPLIT_TEST, &data), release);
    LK_TRY_GOTO(lk__train_evaluation_shape(opts, data, &shape, augment), release);
    LK_TRY_GOTO(lk__train_build_model(opts, data, shape, &graph), release);
    lk__train_activity(events, LK_TRAIN_ACTIVITY_PLAN, 0, 0);
    LK_TRY_GOTO(load_engine(opts, graph, wave_samples(shape), state, &engine), release);
    LK_TRY_GOTO(lk__train_test_loader(opts, data, augment, (lk_shard_range){0}, &loader), release);
    LK_TRY_GOTO(lk__train_cache_samples(engine, loader), release);
    LK_TRY_GOTO(lk__train_evaluate_batches(engine, loader, opts->dry_run ? 1 : 0, &(lk_train_watch){.events = events},
                                           &metrics, &own),
                release);
    if (!isfinite(metrics.loss)) {
        status = lk__fail(LK_STATUS_NONFINITE,
                          "%s: the average loss is not finite, although every weight is: they are too large for this "
                          "data",
                          opts->init_from);
        goto release;
    }
    *out = metrics;
    *classes = lk_dataset_get_info(data)->classes;

release:
    lk_loader_destroy(loader);
    lk_engine_destroy(engine);
    lk_graph_destroy(graph);
    lk_dataset_destroy(data);
    lk_state_destroy(state);
    return status;
}
