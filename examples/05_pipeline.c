/* 05_pipeline.c - the two stages of 04_model_parallel.c as processes, first in turn, then as a pipeline.
 *
 * In turn, one stage waits while the other one computes. In a pipeline, a batch is divided into waves, so that
 * both stages compute at the same time. The bits are those of 01. */
#include <stdio.h>

#include <lockstep/lockstep.h>

enum { RANKS = 2, BATCH = 256, MICRO_BATCH = 64, EPOCHS = 2 };

/* The same network as in 01_single.c. */
static void build_network(lk_graph *graph, const lk_dataset_info *data)
{
    lk_node x = lk_input(graph, data->channels, data->height, data->width);
    x = lk_relu(graph, lk_conv2d(graph, x, "conv1", (lk_conv2d_opts){.out = 8, .kernel = 3, .stride = 2}));
    x = lk_relu(graph, lk_conv2d(graph, x, "conv2", (lk_conv2d_opts){.out = 16, .kernel = 3, .stride = 2}));
    lk_cross_entropy(graph, lk_linear(graph, lk_flatten(graph, x), "fc", data->classes));
}

static lk_status train(lk_group *group, const lk_dataset *data, bool pipelined, lk_state **state)
{
    lk_graph *graph;
    LK_TRY(lk_graph_create(&graph));
    build_network(graph, lk_dataset_get_info(data));

    lk_engine *engine;
    lk_engine_opts engine_opts = {.batch = BATCH, .optimizer = "adam", .lr = .004, .seed = 1, .group = group};
    engine_opts.stages = "conv2";
    engine_opts.pipelined = pipelined;
    engine_opts.micro_batch = pipelined ? MICRO_BATCH : 0;
    LK_TRY(lk_engine_create(graph, &engine_opts, &engine));

    lk_loader *loader;
    lk_loader_opts loader_opts = {.batch = BATCH, .shuffle = true, .seed = 1, .workers = 1};
    loader_opts.share = lk_engine_shard_range(engine);
    LK_TRY(lk_loader_create(data, &loader_opts, &loader));

    const lk_batch *batch;
    lk_metrics metrics;
    for (size_t epoch = 0; epoch < EPOCHS; epoch++) {
        LK_TRY(lk_loader_start(loader, epoch, 0));
        LK_TRY(lk_loader_next(loader, &batch));
        while (batch) {
            LK_TRY(lk_engine_step(engine, batch, &metrics));
            LK_TRY(lk_loader_next(loader, &batch));
        }
    }

    lk_waits waits = lk_engine_waits(engine);
    double waited = waits.gradients + waits.other, all[RANKS];
    LK_TRY(lk_allgather(group, (lk_buffer){.at = &waited, .count = 1, .dtype = LK_DTYPE_F64}, NULL, all, NULL));
    if (lk_group_rank(group) == 0)
        printf("%s: stage 0 waited %.2f s, stage 1 %.2f s\n", pipelined ? "pipelined" : "in turn", all[0], all[1]);

    LK_TRY(lk_engine_state(engine, state));
    lk_loader_destroy(loader);
    lk_engine_destroy(engine);
    lk_graph_destroy(graph);
    return LK_OK;
}

/* Each process runs this. After a failure the process ends, so this function then frees nothing. */
static lk_status run(void)
{
    lk_group *group;
    lk_dataset *data;
    lk_state *in_turn, *pipelined;
    LK_TRY(lk_group_join(NULL, &group));
    LK_TRY(lk_dataset_open("digits", NULL, LK_SPLIT_TRAIN, &data));
    LK_TRY(train(group, data, false, &in_turn));
    LK_TRY(train(group, data, true, &pipelined));
    if (lk_group_rank(group) == 0) {
        printf("tensors that differ: %zu\n", lk_state_compare(in_turn, pipelined, NULL, NULL));
        LK_TRY(lk_state_save(pipelined, "05_pipeline.safetensors"));
    }
    lk_state_destroy(in_turn);
    lk_state_destroy(pipelined);
    lk_dataset_destroy(data);
    lk_group_destroy(group);
    return LK_OK;
}

static int work(int rank, void *arg)
{
    (void)arg;
    if (run() == LK_OK)
        return 0;
    fprintf(stderr, "05_pipeline: rank %d: %s\n", rank, lk_error_detail());
    return 1;
}

int main(void)
{
    if (lk_spawn(RANKS, work, NULL) == LK_OK)
        return 0;
    fprintf(stderr, "05_pipeline: %s\n", lk_error_detail());
    return 1;
}
