/* 02_ddp.c - 01_single.c trained by several processes; the six numbered steps are the difference.
 *
 * Start two ranks: lockstep run -n 2 build/examples/02_ddp
 * With any number of ranks and hosts, the saved model has the same bits as that of 01. */
#include <stdio.h>

#include <lockstep/lockstep.h>

enum { BATCH = 256, TEST_BATCH = 1000, EPOCHS = 2 };

/* Two convolutions and a classifier. lk_engine_create returns a mistake in a layer. */
static void build_network(lk_graph *graph, const lk_dataset_info *data)
{
    lk_node x = lk_input(graph, data->channels, data->height, data->width);
    x = lk_relu(graph, lk_conv2d(graph, x, "conv1", (lk_conv2d_opts){.out = 8, .kernel = 3, .stride = 2}));
    x = lk_relu(graph, lk_conv2d(graph, x, "conv2", (lk_conv2d_opts){.out = 16, .kernel = 3, .stride = 2}));
    lk_cross_entropy(graph, lk_linear(graph, lk_flatten(graph, x), "fc", data->classes));
}

/* One pass over the data; step is lk_engine_step or lk_engine_eval. sum->loss is the sum over the samples. */
typedef lk_status (*step_fn)(lk_engine *engine, const lk_batch *batch, lk_metrics *metrics);
static lk_status pass(lk_engine *engine, lk_loader *loader, size_t epoch, step_fn step, lk_metrics *sum)
{
    const lk_batch *batch;
    lk_metrics metrics;
    *sum = (lk_metrics){0};
    LK_TRY(lk_loader_start(loader, epoch, 0));
    for (;;) {
        LK_TRY(lk_loader_next(loader, &batch));
        if (!batch)
            return LK_OK;
        LK_TRY(step(engine, batch, &metrics));
        sum->count += metrics.count;
        sum->correct += metrics.correct;
        sum->loss += metrics.loss * (double)metrics.count;
    }
}

/* After a failure the process ends, so this function then frees nothing. */
static lk_status run(void)
{
    lk_group *group; /* 1. join the other ranks */
    LK_TRY(lk_group_join(NULL, &group));

    lk_dataset *train_data, *test_data;
    LK_TRY(lk_dataset_open("digits", NULL, LK_SPLIT_TRAIN, &train_data));
    LK_TRY(lk_dataset_open("digits", NULL, LK_SPLIT_TEST, &test_data));

    lk_graph *graph;
    LK_TRY(lk_graph_create(&graph));
    build_network(graph, lk_dataset_get_info(train_data));

    lk_engine *engine;
    lk_engine_opts engine_opts = {.batch = BATCH, .optimizer = "adam", .lr = .004, .seed = 1};
    engine_opts.group = group; /* 2. give the group to the engine: the ranks share each batch */
    LK_TRY(lk_engine_create(graph, &engine_opts, &engine));

    lk_loader *train_loader, *test_loader;
    lk_loader_opts train_opts = {.batch = BATCH, .shuffle = true, .seed = 1, .workers = 1};
    lk_loader_opts test_opts = {.batch = TEST_BATCH};
    train_opts.share = test_opts.share = lk_engine_shard_range(engine); /* 3. load only this rank's share */
    LK_TRY(lk_loader_create(train_data, &train_opts, &train_loader));
    LK_TRY(lk_loader_create(test_data, &test_opts, &test_loader));

    for (size_t epoch = 0; epoch < EPOCHS; epoch++) {
        lk_metrics trained, tested;
        LK_TRY(pass(engine, train_loader, epoch, lk_engine_step, &trained));
        LK_TRY(pass(engine, test_loader, 0, lk_engine_eval, &tested));
        if (lk_group_rank(group) == 0) /* 4. all ranks have the same metrics, one prints them */
            printf("epoch %zu: loss %.4f, accuracy %.2f %%\n", epoch + 1, trained.loss / (double)trained.count,
                   100.0 * (double)tested.correct / (double)tested.count);
    }

    lk_state *state;
    LK_TRY(lk_engine_state(engine, &state));
    if (lk_group_rank(group) == 0) { /* 5. all ranks have the same model, one saves it */
        LK_TRY(lk_state_save(state, "02_ddp.safetensors"));
        printf("saved 02_ddp.safetensors\n");
    }

    lk_state_destroy(state);
    lk_loader_destroy(test_loader);
    lk_loader_destroy(train_loader);
    lk_engine_destroy(engine);
    lk_graph_destroy(graph);
    lk_dataset_destroy(test_data);
    lk_dataset_destroy(train_data);
    lk_group_destroy(group); /* 6. leave the group */
    return LK_OK;
}

int main(void)
{
    if (run() == LK_OK)
        return 0;
    fprintf(stderr, "02_ddp: %s\n", lk_error_detail());
    return 1;
}
