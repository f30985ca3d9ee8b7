/* 13_multilabel.c - several labels for each sample, with binary cross-entropy.
 *
 * The network says of a digit whether it is even, above 4, a prime and drawn with a loop. Start the program alone, as
 * ranks (lockstep run -n 3 build/examples/13_multilabel), or as two stages (lockstep run -n 2
 * build/examples/13_multilabel 2). The bits are the same each time. */
#include <stdio.h>

#include <lockstep/lockstep.h>

enum { BATCH = 128, STEPS = 100, LABELS = 4 };

/* Of the digits 0 to 9: even, above 4, prime, with a loop. */
static const float answers[10][LABELS] = {{1, 0, 0, 1}, {0, 0, 0, 0}, {1, 0, 1, 0}, {0, 0, 1, 0}, {1, 0, 0, 0},
                                          {0, 1, 1, 0}, {1, 1, 0, 1}, {0, 1, 1, 0}, {1, 1, 0, 1}, {0, 1, 0, 1}};

static void build_network(lk_graph *graph, const lk_dataset_info *data)
{
    static const float positive[LABELS] = {1, 1, 1.5f, 1.5f}; /* rarer labels count more */
    lk_node x = lk_input(graph, data->channels, data->height, data->width);
    x = lk_relu(graph, lk_conv2d(graph, x, "conv1", (lk_conv2d_opts){.out = 8, .kernel = 3, .stride = 2}));
    x = lk_relu(graph, lk_linear(graph, lk_flatten(graph, x), "fc1", 64));
    lk_node loss = lk_bce_with_logits_loss(graph, lk_linear(graph, x, "fc2", LABELS));
    lk_weigh_classes(graph, loss, positive, LABELS);
}

static lk_status train(lk_engine *engine, lk_loader *loader, bool speaker)
{
    static float targets[BATCH][LABELS];
    lk_metrics metrics;
    for (int step = 0; step < STEPS; step++) {
        const lk_batch *loaded;
        LK_TRY(lk_loader_next(loader, &loaded));
        lk_batch batch = *loaded;
        for (size_t i = 0; i < batch.count; i++)
            for (int k = 0; k < LABELS; k++)
                targets[i][k] = answers[batch.labels[i]][k];
        batch.targets = targets[0];
        batch.target_floats = LABELS;
        LK_TRY(lk_engine_step(engine, &batch, &metrics));
        if (speaker && step % 33 == 0)
            printf("step %d: loss %.4f, all labels right: %zu of %zu\n", step, metrics.loss, metrics.correct,
                   metrics.count);
    }
    return LK_OK;
}

static lk_status run(lk_group *group, const char *stages)
{
    lk_dataset *data;
    lk_graph *graph;
    lk_engine *engine;
    lk_loader *loader;
    lk_state *state;
    LK_TRY(lk_dataset_open("digits", NULL, LK_SPLIT_TRAIN, &data));
    LK_TRY(lk_graph_create(&graph));
    build_network(graph, lk_dataset_get_info(data));
    lk_engine_opts opts = {.batch = BATCH, .optimizer = "adam", .lr = .003, .seed = 1, .group = group};
    opts.stages = stages;
    LK_TRY(lk_engine_create(graph, &opts, &engine));
    lk_loader_opts load = {.batch = BATCH, .shuffle = true, .seed = 1, .share = lk_engine_shard_range(engine)};
    LK_TRY(lk_loader_create(data, &load, &loader));
    LK_TRY(lk_loader_start(loader, 0, 0));
    bool speaker = !group || lk_group_rank(group) == 0;
    LK_TRY(train(engine, loader, speaker));
    LK_TRY(lk_engine_state(engine, &state));
    if (speaker)
        printf("State hash %016llx\n", (unsigned long long)lk_state_hash(state));
    lk_state_destroy(state);
    lk_loader_destroy(loader);
    lk_engine_destroy(engine);
    lk_graph_destroy(graph);
    lk_dataset_destroy(data);
    return LK_OK;
}

int main(int argc, char **argv)
{
    lk_group *group = NULL; /* NULL: one process */
    lk_status status = lk_group_launched() ? lk_group_join(NULL, &group) : LK_OK;
    if (status == LK_OK)
        status = run(group, argc > 1 ? argv[1] : NULL);
    if (status != LK_OK)
        fprintf(stderr, "13_multilabel: %s\n", lk_error_detail());
    lk_group_destroy(group);
    return status != LK_OK;
}
