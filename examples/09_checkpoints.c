/* 09_checkpoints.c - your own loop that can be interrupted at any moment and resumes to the same bits.
 *
 * The numbered steps are what checkpoints add to a loop. Start it as one process, or as several ranks
 * (lockstep run -n 3 build/examples/09_checkpoints); the bits are the same. If it is started again, it resumes from
 * its last checkpoint. */
#include <stdio.h>
#include <stdlib.h>

#include <lockstep/lockstep.h>

enum { BATCH = 1000, STEPS = 90, EVERY = 20, BREAK = 75 };
static const char FOLDER[] = "09_checkpoints.checkpoint";

/* 1. Saves model, optimiser and step. The previous checkpoint stays until the new one is complete. */
static lk_status save(const lk_engine *engine, size_t step, bool writer)
{
    lk_state *model, *optimizer;
    lk_checkpoint *checkpoint;
    char text[32];
    LK_TRY(lk_engine_state(engine, &model));
    LK_TRY(lk_engine_optimizer_state(engine, &optimizer));
    LK_TRY(lk_checkpoint_create(model, optimizer, &checkpoint));
    snprintf(text, sizeof text, "%zu", step);
    LK_TRY(lk_checkpoint_set_note(checkpoint, "step", text));
    if (writer)
        LK_TRY(lk_checkpoint_save(checkpoint, FOLDER));
    lk_checkpoint_destroy(checkpoint);
    return LK_OK;
}

/* 2. Every rank loads the checkpoint. If there is none, the run starts at step 0; a damaged one is an error. */
static lk_status resume(lk_engine *engine, size_t *step)
{
    lk_checkpoint *checkpoint;
    lk_status status = lk_checkpoint_load(FOLDER, &checkpoint);
    if (status != LK_OK)
        return status == LK_STATUS_NOT_FOUND ? LK_OK : status;
    LK_TRY(lk_engine_set_state(engine, lk_checkpoint_model(checkpoint)));
    LK_TRY(lk_engine_set_optimizer_state(engine, lk_checkpoint_optimizer(checkpoint)));
    const char *text = lk_checkpoint_note(checkpoint, "step");
    *step = text ? strtoul(text, NULL, 10) : 0;
    lk_checkpoint_destroy(checkpoint);
    return LK_OK;
}

/* After a failure the process ends, so this function then frees nothing. */
static lk_status train(lk_group *group, const lk_dataset *data, bool durable, size_t end, lk_state **state)
{
    const lk_dataset_info *info = lk_dataset_get_info(data);
    lk_model_shape shape = {info->channels, info->height, info->width, info->classes};
    bool speaker = !group || lk_group_rank(group) == 0;
    size_t step = 0;
    lk_graph *graph;
    lk_engine *engine;
    lk_loader *loader;
    LK_TRY(lk_model_build("mlp", shape, &graph));
    LK_TRY(lk_engine_create(graph, &(lk_engine_opts){.batch = BATCH, .optimizer = "adam", .group = group}, &engine));
    lk_loader_opts opts = {.batch = BATCH, .shuffle = true, .workers = 1, .share = lk_engine_shard_range(engine)};
    LK_TRY(lk_loader_create(data, &opts, &loader));
    LK_TRY(durable ? resume(engine, &step) : LK_OK);
    if (speaker)
        printf("from step %zu to step %zu\n", step, end);
    for (size_t batches = lk_loader_batches(loader); step < end;) {
        const lk_batch *batch;
        lk_metrics metrics;
        LK_TRY(lk_loader_start(loader, step / batches, step % batches)); /* 3. may start within an epoch */
        LK_TRY(lk_loader_next(loader, &batch));
        while (batch && step < end) {
            LK_TRY(lk_engine_step(engine, batch, &metrics));
            LK_TRY(++step % EVERY == 0 && durable ? save(engine, step, speaker) : LK_OK);
            LK_TRY(lk_loader_next(loader, &batch));
        }
    }
    LK_TRY(lk_engine_state(engine, state));
    lk_loader_destroy(loader);
    lk_engine_destroy(engine);
    lk_graph_destroy(graph);
    return LK_OK;
}

int main(void)
{
    lk_group *group = NULL; /* NULL: one process */
    lk_dataset *data = NULL;
    lk_state *whole = NULL, *broken = NULL, *resumed = NULL;
    if ((lk_group_launched() && lk_group_join(NULL, &group) != LK_OK) ||
        lk_dataset_open("digits", NULL, LK_SPLIT_TRAIN, &data) != LK_OK ||
        train(group, data, false, STEPS, &whole) != LK_OK ||
        train(group, data, true, BREAK, &broken) != LK_OK || /* as if the power failed at step BREAK */
        train(group, data, true, STEPS, &resumed) != LK_OK) {
        fprintf(stderr, "09_checkpoints: %s\n", lk_error_detail());
        return 1;
    }
    printf("tensors that differ: %zu\n", lk_state_compare(whole, resumed, NULL, NULL));
    lk_state_destroy(whole), lk_state_destroy(broken), lk_state_destroy(resumed);
    lk_dataset_destroy(data);
    lk_group_destroy(group);
    return 0;
}
