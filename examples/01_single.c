/* 01_single.c - a network of one's own, trained by one process.
 *
 * Build the graph, give it to an engine, feed the engine batches. */
#include <stdio.h>

#include <lockstep/lockstep.h>

enum { BATCH = 64, TEST_BATCH = 1000, EPOCHS = 2 };

/* Two convolutions and a classifier, read top to bottom. A mistake in a layer
 * is reported when the engine is created. */
static void build_network(lk_graph *graph, const lk_dataset_info *data)
{
    lk_node x = lk_input(graph, data->channels, data->height, data->width);
    x = lk_relu(graph, lk_conv2d(graph, x, "conv1", (lk_conv2d_opts){.out = 8, .kernel = 3}));
    x = lk_maxpool2d(graph, x, (lk_maxpool2d_opts){.kernel = 2});
    x = lk_relu(graph, lk_conv2d(graph, x, "conv2", (lk_conv2d_opts){.out = 16, .kernel = 3}));
    x = lk_maxpool2d(graph, x, (lk_maxpool2d_opts){.kernel = 2});
    lk_cross_entropy(graph, lk_linear(graph, lk_flatten(graph, x), "fc", data->classes));
}

static lk_status train_epoch(lk_engine *engine, lk_loader *loader, size_t epoch)
{
    const lk_batch *batch;
    lk_metrics metrics;
    LK_TRY(lk_loader_start(loader, epoch, 0));
    for (size_t step = 0;; step++) {
        LK_TRY(lk_loader_next(loader, &batch));
        if (!batch)
            return LK_OK;
        LK_TRY(lk_engine_step(engine, batch, &metrics));
        if (step % 100 == 0)
            printf("epoch %zu, step %zu: loss %.4f\n", epoch + 1, step, metrics.loss);
    }
}

static lk_status test(lk_engine *engine, lk_loader *loader)
{
    const lk_batch *batch;
    lk_metrics metrics;
    size_t count = 0, correct = 0;
    LK_TRY(lk_loader_start(loader, 0, 0));
    for (;;) {
        LK_TRY(lk_loader_next(loader, &batch));
        if (!batch)
            break;
        LK_TRY(lk_engine_eval(engine, batch, &metrics));
        count += metrics.count;
        correct += metrics.correct;
    }
    printf("accuracy %.2f %%\n", 100.0 * (double)correct / (double)count);
    return LK_OK;
}

/* The process ends after a failure, so what was created is left to it. */
static lk_status run(void)
{
    lk_dataset *train_data, *test_data;
    LK_TRY(lk_dataset_open("digits", NULL, LK_SPLIT_TRAIN, &train_data));
    LK_TRY(lk_dataset_open("digits", NULL, LK_SPLIT_TEST, &test_data));

    lk_graph *graph;
    LK_TRY(lk_graph_create(&graph));
    build_network(graph, lk_dataset_get_info(train_data));

    lk_engine *engine;
    lk_loader *train_loader, *test_loader;
    LK_TRY(lk_engine_create(graph, &(lk_engine_opts){.batch = BATCH, .optimizer = "adam", .seed = 1}, &engine));
    LK_TRY(lk_loader_create(train_data, &(lk_loader_opts){.batch = BATCH, .shuffle = true, .seed = 1, .workers = 1},
                            &train_loader));
    LK_TRY(lk_loader_create(test_data, &(lk_loader_opts){.batch = TEST_BATCH}, &test_loader));

    for (size_t epoch = 0; epoch < EPOCHS; epoch++) {
        LK_TRY(train_epoch(engine, train_loader, epoch));
        LK_TRY(test(engine, test_loader));
    }

    lk_state *state;
    LK_TRY(lk_engine_state(engine, &state));
    LK_TRY(lk_state_save(state, "01_single.safetensors"));
    printf("saved 01_single.safetensors\n");

    lk_state_destroy(state);
    lk_loader_destroy(test_loader);
    lk_loader_destroy(train_loader);
    lk_engine_destroy(engine);
    lk_graph_destroy(graph);
    lk_dataset_destroy(test_data);
    lk_dataset_destroy(train_data);
    return LK_OK;
}

int main(void)
{
    if (run() == LK_OK)
        return 0;
    fprintf(stderr, "01_single: %s\n", lk_error_detail());
    return 1;
}
