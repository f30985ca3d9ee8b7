/* 15_fine_tune.c - fine-tuning: a trained network learns a new task with frozen layers and two learning rates.
 *
 * The network learns the ten digits and is saved. Then it is loaded and learns even and odd: conv1 is frozen, conv2
 * learns slowly, fc at the full rate. One process, ranks (lockstep run -n 3) or stages (and STAGES=3): the same bits.
 */
#include <stdio.h>
#include <stdlib.h>

#include <lockstep/lockstep.h>

enum { BATCH = 250, DIGITS = 10, PARITIES = 2 };

static lk_status make_engine(const lk_dataset_info *data, lk_group *group, lk_engine **out)
{
    lk_graph *graph;
    LK_TRY(lk_graph_create(&graph));
    lk_node x = lk_input(graph, data->channels, data->height, data->width);
    x = lk_relu(graph, lk_conv2d(graph, x, "conv1", (lk_conv2d_opts){.out = 8, .kernel = 3, .stride = 2}));
    x = lk_relu(graph, lk_conv2d(graph, x, "conv2", (lk_conv2d_opts){.out = 16, .kernel = 3, .stride = 2}));
    lk_cross_entropy(graph, lk_linear(graph, lk_flatten(graph, x), "fc", data->classes));
    lk_engine_opts opts = {.batch = BATCH, .optimizer = "adam", .lr = .004, .group = group, .stages = getenv("STAGES")};
    LK_TRY(lk_engine_create(graph, &opts, out));
    lk_graph_destroy(graph);
    return LK_OK;
}

/* One pass over the data, which learns or evaluates. A label is the digit's remainder by `classes`. */
static lk_status pass(lk_engine *engine, lk_dataset *data, int32_t classes, bool learns, size_t *correct)
{
    int32_t labels[BATCH];
    lk_loader *loader;
    const lk_batch *next;
    lk_metrics metrics;
    lk_loader_opts opts = {.batch = BATCH, .shuffle = true, .seed = 1, .share = lk_engine_shard_range(engine)};
    LK_TRY(lk_loader_create(data, &opts, &loader));
    LK_TRY(lk_loader_start(loader, 0, 0));
    LK_TRY(lk_loader_next(loader, &next));
    for (*correct = 0; next; *correct += metrics.correct) {
        lk_batch batch = *next;
        for (size_t i = 0; i < batch.count; i++)
            labels[i] = batch.labels[i] % classes;
        batch.labels = labels;
        LK_TRY(learns ? lk_engine_step(engine, &batch, &metrics) : lk_engine_eval(engine, &batch, &metrics));
        LK_TRY(lk_loader_next(loader, &next));
    }
    lk_loader_destroy(loader);
    return LK_OK;
}

static lk_status train(lk_engine *engine, lk_dataset *data[2], int32_t classes, const char *file, bool speaker)
{
    size_t correct;
    lk_state *state;
    LK_TRY(pass(engine, data[0], classes, true, &correct));
    LK_TRY(pass(engine, data[1], classes, false, &correct));
    LK_TRY(lk_engine_state(engine, &state));
    if (speaker) {
        LK_TRY(lk_state_save(state, file));
        printf("%s: %zu of %zu test images are right\n", file, correct, lk_dataset_get_info(data[1])->count);
    }
    lk_state_destroy(state);
    return LK_OK;
}

static lk_status run(lk_group *group)
{
    bool speaker = !group || lk_group_rank(group) == 0;
    lk_dataset *data[2];
    lk_engine *engine;
    lk_state *digits;
    LK_TRY(lk_dataset_open("digits", NULL, LK_SPLIT_TRAIN, &data[0]));
    LK_TRY(lk_dataset_open("digits", NULL, LK_SPLIT_TEST, &data[1]));
    LK_TRY(make_engine(lk_dataset_get_info(data[0]), group, &engine));
    LK_TRY(train(engine, data, DIGITS, "digits.safetensors", speaker));
    lk_engine_destroy(engine);
    LK_TRY(make_engine(lk_dataset_get_info(data[0]), group, &engine));
    LK_TRY(lk_state_load("digits.safetensors", &digits)); /* rank 0 has saved it: lk_engine_create waits for all */
    LK_TRY(lk_engine_set_state(engine, digits));
    LK_TRY(lk_engine_set_group(engine, "conv1.*", &(lk_param_group){.frozen = true}));
    LK_TRY(lk_engine_set_group(engine, "conv2.*", &(lk_param_group){.lr_scale = .1}));
    LK_TRY(train(engine, data, PARITIES, "15_fine_tune.safetensors", speaker));
    lk_state_destroy(digits);
    lk_engine_destroy(engine);
    lk_dataset_destroy(data[1]);
    lk_dataset_destroy(data[0]);
    return LK_OK;
}

int main(void)
{
    lk_group *group = NULL; /* NULL: one process */
    lk_status status = lk_group_launched() ? lk_group_join(NULL, &group) : LK_OK;
    if (status == LK_OK)
        status = run(group);
    if (status != LK_OK)
        fprintf(stderr, "15_fine_tune: %s\n", lk_error_detail());
    lk_group_destroy(group);
    return status != LK_OK;
}
