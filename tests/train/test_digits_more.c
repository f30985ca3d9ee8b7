/* test_digits_more.c - the built-in digits are hard enough: a linear model learns them, but stays below
 * the accuracy of a network. */
#include <lockstep/lockstep.h>

#include "check.h"

enum { BATCH = 64, TEST_BATCH = 1000, EPOCHS = 5 };

static lk_engine *create_linear(const lk_dataset_info *info)
{
    lk_graph *graph;
    lk_engine *engine;
    assert_ok(lk_graph_create(&graph));
    lk_node x = lk_flatten(graph, lk_input(graph, info->channels, info->height, info->width));
    lk_cross_entropy(graph, lk_linear(graph, x, "fc", info->classes));
    assert_ok(lk_engine_create(graph, &(lk_engine_opts){.batch = BATCH, .optimizer = "adam", .seed = 1}, &engine));
    lk_graph_destroy(graph);
    return engine;
}

static void train(lk_engine *engine, const lk_dataset *data)
{
    lk_loader *loader;
    assert_ok(
        lk_loader_create(data, &(lk_loader_opts){.batch = BATCH, .shuffle = true, .seed = 1, .workers = 1}, &loader));
    for (size_t epoch = 0; epoch < EPOCHS; epoch++) {
        const lk_batch *batch;
        lk_metrics metrics;
        assert_ok(lk_loader_start(loader, epoch, 0));
        for (assert_ok(lk_loader_next(loader, &batch)); batch; assert_ok(lk_loader_next(loader, &batch)))
            assert_ok(lk_engine_step(engine, batch, &metrics));
    }
    lk_loader_destroy(loader);
}

/* Returns the accuracy in percent. */
static double accuracy(lk_engine *engine, const lk_dataset *data)
{
    lk_loader *loader;
    const lk_batch *batch;
    size_t count = 0, correct = 0;
    assert_ok(lk_loader_create(data, &(lk_loader_opts){.batch = TEST_BATCH}, &loader));
    assert_ok(lk_loader_start(loader, 0, 0));
    for (assert_ok(lk_loader_next(loader, &batch)); batch; assert_ok(lk_loader_next(loader, &batch))) {
        lk_metrics metrics;
        assert_ok(lk_engine_eval(engine, batch, &metrics));
        count += metrics.count;
        correct += metrics.correct;
    }
    lk_loader_destroy(loader);
    assert_int_equal(count, lk_dataset_get_info(data)->count);
    return 100.0 * (double)correct / (double)count;
}

static void a_linear_model_does_not_get_far(void **state)
{
    lk_dataset *train_data, *test_data;
    assert_ok(lk_dataset_open("digits", NULL, LK_SPLIT_TRAIN, &train_data));
    assert_ok(lk_dataset_open("digits", NULL, LK_SPLIT_TEST, &test_data));
    lk_engine *engine = create_linear(lk_dataset_get_info(train_data));
    train(engine, train_data);
    double reached = accuracy(engine, test_data);
    print_message("%.2f %%\n", reached);
    assert_true(reached > 50);
    assert_true(reached < 95);
    lk_engine_destroy(engine);
    lk_dataset_destroy(test_data);
    lk_dataset_destroy(train_data);
}

TEST_MAIN(NULL, NULL, TEST(a_linear_model_does_not_get_far))
