/* 16_own_loop.c - your own training loop: changed gradients, a schedule, and an average of the weights.
 *
 * Gradients become their signs before the update, and the averaged weights are tested. One process, ranks (lockstep run
 * -n 3 ...) or stages (STAGES=2 lockstep run -n 2 ...): the bits are the same. */
#include <stdio.h>
#include <stdlib.h>

#include <lockstep/lockstep.h>

enum { BATCH = 250 };

static lk_status make_engine(lk_group *group, lk_engine **out)
{
    lk_graph *graph;
    lk_model_shape shape = {.channels = 1, .height = 28, .width = 28, .classes = 10};
    lk_engine_opts opts = {.batch = BATCH, .optimizer = "sgd:momentum=.9", .seed = 1, .group = group};
    opts.stages = getenv("STAGES"); /* NULL: one stage */
    LK_TRY(lk_model_build("mlp", shape, &graph));
    LK_TRY(lk_engine_create(graph, &opts, out));
    lk_graph_destroy(graph);
    return LK_OK;
}

/* Replaces a gradient by its signs, as signSGD does. */
static void take_signs(const lk_state_entry *grad)
{
    float *values = grad->data;
    for (size_t i = 0; i < grad->bytes / sizeof *values; i++)
        values[i] = (float)((values[i] > 0) - (values[i] < 0));
}

static lk_status step(lk_engine *engine, const lk_batch *batch, lk_metrics *metrics)
{
    lk_state *grads;
    LK_TRY(lk_engine_gradients(engine, batch, metrics));
    LK_TRY(lk_engine_grads(engine, &grads));
    for (size_t i = 0; i < lk_state_count(grads); i++)
        take_signs(lk_state_at(grads, i));
    LK_TRY(lk_engine_set_grads(engine, grads));
    lk_state_destroy(grads);
    LK_TRY(lk_engine_update(engine));
    return lk_engine_average(engine, .95);
}

/* Trains for an epoch or, without a schedule, evaluates the first batch. */
static lk_status pass(lk_engine *engine, lk_split split, const lk_lr_schedule *schedule, lk_metrics *metrics)
{
    lk_dataset *data;
    lk_loader *loader;
    const lk_batch *batch;
    lk_loader_opts opts = {.batch = BATCH, .shuffle = true, .seed = 1, .share = lk_engine_shard_range(engine)};
    LK_TRY(lk_dataset_open("digits", NULL, split, &data));
    LK_TRY(lk_loader_create(data, &opts, &loader));
    LK_TRY(lk_loader_start(loader, 0, 0));
    lk_lr_schedule_at at = {.epochs = 1, .batches = schedule ? lk_loader_batches(loader) : 1};
    for (; at.batch < at.batches; at.batch++) {
        LK_TRY(lk_loader_next(loader, &batch));
        if (schedule)
            LK_TRY(lk_engine_set_lr(engine, lk_lr_schedule_lr(schedule, .001, at)));
        LK_TRY(schedule ? step(engine, batch, metrics) : lk_engine_eval(engine, batch, metrics));
    }
    lk_loader_destroy(loader);
    lk_dataset_destroy(data);
    return LK_OK;
}

static lk_status run(lk_group *group)
{
    lk_metrics metrics;
    lk_engine *engine;
    lk_lr_schedule *schedule;
    lk_state *average;
    LK_TRY(make_engine(group, &engine));
    LK_TRY(lk_lr_schedule_create("cosine:by_step,warmup_steps=8", &schedule));
    LK_TRY(pass(engine, LK_SPLIT_TRAIN, schedule, &metrics));
    LK_TRY(lk_engine_averaged_state(engine, &average));
    LK_TRY(lk_engine_set_state(engine, average));
    LK_TRY(pass(engine, LK_SPLIT_TEST, NULL, &metrics));
    if (!group || lk_group_rank(group) == 0) {
        printf("%zu of %zu test images are right\n", metrics.correct, metrics.count);
        LK_TRY(lk_state_save(average, "16_own_loop.safetensors"));
    }
    lk_state_destroy(average);
    lk_lr_schedule_destroy(schedule);
    lk_engine_destroy(engine);
    return LK_OK;
}

int main(void)
{
    lk_group *group = NULL; /* NULL: one process */
    lk_status status = lk_group_launched() ? lk_group_join(NULL, &group) : LK_OK;
    if (status == LK_OK)
        status = run(group);
    if (status != LK_OK)
        fprintf(stderr, "16_own_loop: %s\n", lk_error_detail());
    lk_group_destroy(group);
    return status != LK_OK;
}
