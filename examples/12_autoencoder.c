/* 12_autoencoder.c - a network that learns to draw its own input: images are the targets.
 *
 * Convolutions make 16 numbers of an image, and transposed convolutions make an image of them. Start the program alone,
 * as ranks (lockstep run -n 3 build/examples/12_autoencoder), or as two stages (lockstep run -n 2
 * build/examples/12_autoencoder 2). The bits are the same each time. */
#include <stdio.h>

#include <lockstep/lockstep.h>

enum { BATCH = 128, STEPS = 60 };

static void build_network(lk_graph *graph, const lk_dataset_info *data)
{
    lk_conv2d_opts half = {.out = 8, .kernel = 3, .stride = 2, .pad = 1};
    lk_conv_transpose2d_opts twice = {.out = 8, .kernel = 2, .stride = 2};
    size_t side = data->height / 4;
    lk_node x = lk_input(graph, data->channels, data->height, data->width);
    x = lk_relu(graph, lk_conv2d(graph, x, "down1", half));
    x = lk_relu(graph, lk_conv2d(graph, x, "down2", half));
    x = lk_linear(graph, lk_flatten(graph, x), "code", 16);
    x = lk_relu(graph, lk_linear(graph, x, "decode", side * side * 8));
    x = lk_reshape(graph, x, side, side, 8);
    x = lk_relu(graph, lk_conv_transpose2d(graph, x, "up1", twice));
    twice.out = data->channels;
    lk_mse_loss(graph, lk_conv_transpose2d(graph, x, "up2", twice));
}

static lk_status train(lk_engine *engine, lk_loader *loader, bool speaker)
{
    lk_metrics metrics;
    for (int step = 0; step < STEPS; step++) {
        const lk_batch *loaded;
        LK_TRY(lk_loader_next(loader, &loaded));
        lk_batch batch = *loaded;
        batch.targets = batch.x; /* both have the order (H, W, C) */
        batch.target_floats = batch.sample_floats;
        LK_TRY(lk_engine_step(engine, &batch, &metrics));
        if (speaker && (step % 20 == 0 || step == STEPS - 1))
            printf("step %d: squared error %.4f\n", step, metrics.squared_error);
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
    load.share.labels_only = false; /* the last stage needs the images, too: as targets */
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
        fprintf(stderr, "12_autoencoder: %s\n", lk_error_detail());
    lk_group_destroy(group);
    return status != LK_OK;
}
