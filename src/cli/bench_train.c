/* bench_train.c - `lockstep bench train`: steps of training with the data
 * already in memory, so that the step alone is timed. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "cli/cli.h"
#include "cli/json.h"

enum { WARM_UP = 3, MAX_BATCHES = 32 };

/* Batches copied out of a loader. */
typedef struct batch_store {
    lk_batch batches[MAX_BATCHES];
    size_t count;
} batch_store;

typedef struct train_bench {
    lk_dataset *data;
    lk_loader *loader;
    lk_graph *graph;
    lk_engine *engine;
    batch_store store;
} train_bench;

static lk_status copy_array(const void *from, size_t bytes, const char *what, void **out)
{
    LK_TRY(lk__alloc(1, bytes, what, out));
    memcpy(*out, from, bytes);
    return LK_OK;
}

static lk_status keep_batch(const lk_batch *from, lk_batch *out)
{
    lk_batch copy = {.count = from->count, .sample = from->sample};
    void *block;
    lk_status status;
    LK_TRY(copy_array(from->x, from->count * from->sample * sizeof *from->x, "a batch", &block));
    copy.x = block;
    LK_TRY_GOTO(copy_array(from->labels, from->count * sizeof *from->labels, "labels", &block), free_x);
    copy.labels = block;
    LK_TRY_GOTO(copy_array(from->ids, from->count * sizeof *from->ids, "sample ids", &block), free_labels);
    copy.ids = block;
    *out = copy;
    return LK_OK;

free_labels:
    lk__free((void *)copy.labels);
free_x:
    lk__free((void *)copy.x);
    return status;
}

/* Whole batches only: a smaller last one would blur the time of a step. */
static lk_status fill_store(train_bench *bench, size_t batch_size, size_t steps)
{
    const lk_dataset_info *info = lk_dataset_get_info(bench->data);
    size_t wanted = lk__min_size(lk__min_size(steps, MAX_BATCHES), info->count / batch_size);
    LK_TRY(lk_loader_start(bench->loader, 0, 0));
    while (bench->store.count < wanted) {
        const lk_batch *batch;
        LK_TRY(lk_loader_next(bench->loader, &batch));
        LK_TRY(keep_batch(batch, &bench->store.batches[bench->store.count]));
        bench->store.count++;
    }
    return LK_OK;
}

static lk_status open_bench(train_bench *bench, const lk_train_opts *opts, size_t batch_size, size_t steps)
{
    const lk_dataset_info *info = lk_dataset_get_info(bench->data);
    lk_loader_opts loader = {.batch = batch_size, .shuffle = true, .seed = opts->seed, .augment = "auto"};
    lk_model_shape shape = {
        .channels = info->channels, .height = info->height, .width = info->width, .classes = info->classes};
    lk_engine_opts engine = {
        .device = opts->device,
        .threads = opts->threads > 0 ? opts->threads : lk__cores(),
        .batch = batch_size,
        .shards = opts->shards,
        .micro_batch = opts->micro_batch,
        .bn = opts->bn,
        .optimizer = opts->optimizer,
        .lr = opts->lr,
        .seed = opts->seed,
    };
    LK_TRY(lk_model_build(opts->model, shape, &bench->graph));
    LK_TRY(lk_engine_create(bench->graph, &engine, &bench->engine));
    LK_TRY(lk_loader_create(bench->data, &loader, &bench->loader));
    return fill_store(bench, batch_size, steps);
}

static void close_bench(train_bench *bench)
{
    for (size_t i = 0; i < bench->store.count; i++) {
        lk__free((void *)bench->store.batches[i].x);
        lk__free((void *)bench->store.batches[i].labels);
        lk__free((void *)bench->store.batches[i].ids);
    }
    lk_loader_destroy(bench->loader);
    lk_engine_destroy(bench->engine);
    lk_graph_destroy(bench->graph);
    lk_dataset_destroy(bench->data);
}

static lk_status time_steps(train_bench *bench, size_t steps, double *seconds)
{
    lk_metrics metrics;
    double began = 0;
    for (size_t i = 0; i < WARM_UP + steps; i++) {
        if (i == WARM_UP)
            began = lk__clock();
        LK_TRY(lk_engine_step(bench->engine, &bench->store.batches[i % bench->store.count], &metrics));
    }
    *seconds = lk__clock() - began;
    return LK_OK;
}

static void print_result(const lk_args *args, size_t batch_size, double seconds)
{
    const lk_train_opts *opts = &args->train;
    double img_per_s = (double)(batch_size * args->steps) / seconds;
    double ms_per_step = 1e3 * seconds / (double)args->steps;
    int threads = opts->threads > 0 ? opts->threads : lk__cores();
    if (!args->json) {
        printf("%s on %s, batch %zu, %d thread%s, %d shards: %.1f img/s, %.3f ms a step, %.0f MB at most\n",
               opts->model, opts->data, batch_size, threads, threads == 1 ? "" : "s", opts->shards, img_per_s,
               ms_per_step, lk__peak_rss_mb());
        return;
    }
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "case", "train");
    cJSON_AddStringToObject(line, "model", opts->model);
    cJSON_AddStringToObject(line, "data", opts->data);
    cJSON_AddStringToObject(line, "optimizer", opts->optimizer);
    cJSON_AddNumberToObject(line, "batch_size", (double)batch_size);
    cJSON_AddNumberToObject(line, "threads", threads);
    cJSON_AddNumberToObject(line, "shards", opts->shards);
    cJSON_AddNumberToObject(line, "steps", (double)args->steps);
    cJSON_AddNumberToObject(line, "img_per_s", img_per_s);
    cJSON_AddNumberToObject(line, "ms_per_step", ms_per_step);
    cJSON_AddNumberToObject(line, "peak_rss_mb", lk__peak_rss_mb());
    lk__json_line(line);
}

lk_status lk__bench_train(const lk_args *args)
{
    train_bench bench = {0};
    lk_status status;
    double seconds = 0;
    LK_TRY_GOTO(lk_dataset_open(args->train.data, args->train.data_dir, LK_SPLIT_TRAIN, &bench.data), close_bench);
    size_t batch_size = lk__min_size(args->train.batch, lk_dataset_get_info(bench.data)->count);
    LK_TRY_GOTO(open_bench(&bench, &args->train, batch_size, args->steps), close_bench);
    LK_TRY_GOTO(time_steps(&bench, args->steps, &seconds), close_bench);
    print_result(args, batch_size, seconds);

close_bench:
    close_bench(&bench);
    return status;
}
