/* steps.c - the engine and the batches of benchmarks. */
#include "cli/bench/steps.h"

#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "nn/models/zoo.h"

enum { RANDOM_BATCHES = 4 };

static lk_status copy_array(const void *from, size_t bytes, const char *what, void **out)
{
    LK_TRY(lk__mem_alloc(1, bytes, what, out));
    memcpy(*out, from, bytes);
    return LK_OK;
}

static lk_status keep_batch(const lk_batch *from, lk_batch *out)
{
    lk_batch copy = *from;
    copy.origins = NULL;
    void *block = NULL;
    lk_status status;
    if (from->x)
        LK_TRY(copy_array(from->x, from->count * from->sample_floats * sizeof *from->x, "a batch", &block));
    copy.x = block; /* NULL if samples are on the device */
    LK_TRY_GOTO(copy_array(from->labels, from->count * sizeof *from->labels, "labels", &block), free_x);
    copy.labels = block;
    LK_TRY_GOTO(copy_array(from->ids, from->count * sizeof *from->ids, "sample ids", &block), free_labels);
    copy.ids = block;
    *out = copy;
    return LK_OK;

free_labels:
    lk__mem_free((void *)copy.labels);
free_x:
    lk__mem_free((void *)copy.x);
    return status;
}

/* Whole batches only: a smaller last batch would distort the time of a step. */
static lk_status fill_store(lk_bench_steps *s)
{
    const lk_args *args = s->args;
    lk_loader_opts loader = {.batch = s->batch,
                             .shuffle = true,
                             .seed = args->train.seed,
                             .workers = lk__train_workers(&args->train, s->data, s->engine),
                             .augment = args->train.augment,
                             .share = lk_engine_shard_range(s->engine)};
    size_t whole = lk_dataset_get_info(s->data)->count / s->batch;
    size_t wanted = lk__size_min(lk__size_min(args->steps, LK_BENCH_STEPS_BATCHES), whole);
    bool cached;
    LK_TRY(lk_loader_create(s->data, &loader, &s->loader));
    LK_TRY(lk_engine_cache_dataset(s->engine, s->loader, &cached));
    LK_TRY(lk_loader_start(s->loader, 0, 0));
    while (s->count < wanted) {
        const lk_batch *batch;
        LK_TRY(lk_loader_next(s->loader, &batch));
        LK_TRY(keep_batch(batch, &s->batches[s->count]));
        s->count++;
    }
    /* Batches of samples that are on the device belong to the loader. Others are copies, and its memory is no part of
     * a step. */
    if (!cached) {
        lk_loader_destroy(s->loader);
        s->loader = NULL;
    }
    return LK_OK;
}

static lk_status choose_batch(lk_bench_steps *s)
{
    const lk_train_opts *opts = &s->args->train;
    s->batch = lk__size_min(opts->batch, lk_dataset_get_info(s->data)->count);
    if (s->batch < s->parts)
        return lk__fail(LK_STATUS_USAGE, "`batch` %zu has no sample for some of %zu `independent` ranks; give -n %zu",
                        s->batch, s->parts, s->batch);
    s->batch /= s->parts;
    s->shards = s->parts > 1 ? (int)lk__size_max((size_t)opts->shards / s->parts, 1) : opts->shards;
    return LK_OK;
}

static lk_status create_engine(lk_bench_steps *s)
{
    const lk_train_opts *opts = &s->args->train;
    lk_sample_shape shape;
    lk_engine_opts engine = lk__train_engine_opts(opts);
    engine.threads = s->threads;
    if (s->device)
        engine.device = s->device;
    engine.batch = s->batch;
    engine.shards = s->shards;
    engine.group = s->group;
    LK_TRY(lk__train_shape(s->data, opts->augment, &shape));
    LK_TRY(lk__train_build_model(opts, s->data, shape, &s->graph));
    return lk_engine_create(s->graph, &engine, &s->engine);
}

static lk_status open_images(lk_bench_steps *s)
{
    const lk_args *args = s->args;
    s->images = (lk_bench_images){.seed = args->train.seed, .count = RANDOM_BATCHES * args->train.batch};
    LK_TRY(lk__model_usual_shape(args->train.model, &s->images.shape));
    LK_TRY(lk__args_change_shape(args, &s->images.shape));
    return lk__bench_images_open(&s->images, &s->data);
}

static lk_status open_data(lk_bench_steps *s)
{
    const lk_args *args = s->args;
    if (args->input)
        return open_images(s);
    if (args->classes)
        return lk__fail(LK_STATUS_USAGE, "`classes` is for random images: give `input` too, as in `input` 3x32x32");
    return lk_dataset_open(args->train.data, args->train.data_dir, LK_SPLIT_TRAIN, &s->data);
}

lk_status lk__bench_steps_open(lk_bench_steps *steps)
{
    LK_TRY(open_data(steps));
    LK_TRY(choose_batch(steps));
    LK_TRY(create_engine(steps));
    return fill_store(steps);
}

void lk__bench_steps_close(lk_bench_steps *steps)
{
    for (size_t i = 0; i < steps->count; i++) {
        lk__mem_free((void *)steps->batches[i].x);
        lk__mem_free((void *)steps->batches[i].labels);
        lk__mem_free((void *)steps->batches[i].ids);
    }
    lk_loader_destroy(steps->loader);
    lk_engine_destroy(steps->engine);
    lk_graph_destroy(steps->graph);
    lk_dataset_destroy(steps->data);
}

lk_status lk__bench_steps_run(lk_bench_steps *steps, size_t count, lk_status (*each)(void *arg), void *arg)
{
    lk_metrics metrics;
    for (size_t received = 0, sent = 0; received < count; received++) {
        while (sent == received || (sent < count && lk_engine_can_send(steps->engine, steps->batch)))
            LK_TRY(lk_engine_send(steps->engine, &steps->batches[sent++ % steps->count]));
        LK_TRY(lk_engine_receive(steps->engine, &metrics));
        if (each)
            LK_TRY(each(arg));
    }
    return LK_OK;
}

const char *lk__bench_steps_data(const lk_args *args)
{
    return args->input ? args->input : args->train.data;
}
