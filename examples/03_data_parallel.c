/* 03_data_parallel.c - 01_single.c trained by one process whose threads are ranks.
 *
 * Each rank works as in 02, but its group comes from lk_group_create_threads. The bits are those of 01. */
#include <pthread.h>
#include <stdio.h>

#include <lockstep/lockstep.h>

enum { RANKS = 2, BATCH = 256, EPOCHS = 2 };

/* The same network as in 01_single.c. */
static void build_network(lk_graph *graph, const lk_dataset_info *data)
{
    lk_node x = lk_input(graph, data->channels, data->height, data->width);
    x = lk_relu(graph, lk_conv2d(graph, x, "conv1", (lk_conv2d_opts){.out = 8, .kernel = 3, .stride = 2}));
    x = lk_relu(graph, lk_conv2d(graph, x, "conv2", (lk_conv2d_opts){.out = 16, .kernel = 3, .stride = 2}));
    lk_cross_entropy(graph, lk_linear(graph, lk_flatten(graph, x), "fc", data->classes));
}

static lk_status train_epoch(lk_engine *engine, lk_loader *loader, size_t epoch, lk_metrics *last)
{
    const lk_batch *batch;
    LK_TRY(lk_loader_start(loader, epoch, 0));
    LK_TRY(lk_loader_next(loader, &batch));
    while (batch) {
        LK_TRY(lk_engine_step(engine, batch, last));
        LK_TRY(lk_loader_next(loader, &batch));
    }
    return LK_OK;
}

/* After a failure the process ends, so this function then frees nothing. */
static lk_status train(lk_group *group)
{
    lk_dataset *data;
    lk_graph *graph;
    LK_TRY(lk_dataset_open("digits", NULL, LK_SPLIT_TRAIN, &data));
    LK_TRY(lk_graph_create(&graph));
    build_network(graph, lk_dataset_get_info(data));

    lk_engine *engine;
    lk_engine_opts engine_opts = {.batch = BATCH, .optimizer = "adam", .lr = .004, .seed = 1, .group = group};
    LK_TRY(lk_engine_create(graph, &engine_opts, &engine));

    lk_loader *loader;
    lk_loader_opts loader_opts = {.batch = BATCH, .shuffle = true, .seed = 1, .workers = 1};
    loader_opts.share = lk_engine_shard_range(engine);
    LK_TRY(lk_loader_create(data, &loader_opts, &loader));

    lk_metrics last;
    for (size_t epoch = 0; epoch < EPOCHS; epoch++) {
        LK_TRY(train_epoch(engine, loader, epoch, &last));
        if (lk_group_rank(group) == 0)
            printf("epoch %zu: loss of the last step %.4f\n", epoch + 1, last.loss);
    }

    lk_state *state;
    LK_TRY(lk_engine_state(engine, &state));
    if (lk_group_rank(group) == 0)
        LK_TRY(lk_state_save(state, "03_data_parallel.safetensors"));
    lk_state_destroy(state);
    lk_loader_destroy(loader);
    lk_engine_destroy(engine);
    lk_graph_destroy(graph);
    lk_dataset_destroy(data);
    return LK_OK;
}

/* If a rank fails and leaves, the ranks that wait for it get an error. */
static lk_status results[RANKS];
static void *work(void *arg)
{
    lk_group *group = arg;
    int rank = lk_group_rank(group);
    results[rank] = train(group);
    if (results[rank] != LK_OK)
        fprintf(stderr, "03_data_parallel: rank %d: %s\n", rank, lk_error_detail());
    lk_group_destroy(group);
    return NULL;
}

int main(void)
{
    lk_group *groups[RANKS];
    pthread_t threads[RANKS];
    int failed = 0;
    if (lk_group_create_threads(RANKS, NULL, groups) != LK_OK) {
        fprintf(stderr, "03_data_parallel: %s\n", lk_error_detail());
        return 1;
    }
    for (int r = 0; !failed && r < RANKS; r++)
        failed = pthread_create(&threads[r], NULL, work, groups[r]) != 0;
    for (int r = 0; !failed && r < RANKS; r++)
        failed = pthread_join(threads[r], NULL) != 0 || results[r] != LK_OK;
    return failed;
}
