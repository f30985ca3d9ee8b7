/* test_reserved.c - a set word of `reserved` is an error: an option of a later version is not ignored. */
#include <lockstep/lockstep.h>

#include "check.h"

static void test_options_of_an_engine(void **state)
{
    lk_engine_opts opts = {.batch = 1, .threads = 1};
    uint64_t *last = &opts.reserved[COUNT_OF(opts.reserved) - 1];
    lk_engine *engine;
    lk_graph *graph;
    assert_ok(lk_model_build("mlp", (lk_model_shape){1, 28, 28, 10}, &graph));
    *last = 1;
    assert_fails(lk_engine_create(graph, &opts, &engine), LK_STATUS_USAGE, "lk_engine_opts.reserved is not 0");
    *last = 0;
    assert_ok(lk_engine_create(graph, &opts, &engine));

    lk_metrics metrics;
    lk_batch batch = {.count = 1, .reserved[0] = 1};
    assert_fails(lk_engine_eval(engine, &batch, &metrics), LK_STATUS_USAGE, "lk_batch.reserved is not 0");
    lk_engine_destroy(engine);
    lk_graph_destroy(graph);
}

static void test_options_of_a_loader(void **state)
{
    lk_loader_opts opts = {.batch = 1, .reserved[7] = 1};
    lk_dataset *data;
    lk_loader *loader;
    assert_ok(lk_dataset_open("digits", NULL, LK_SPLIT_TEST, &data));
    assert_fails(lk_loader_create(data, &opts, &loader), LK_STATUS_USAGE, "lk_loader_opts.reserved is not 0");
    lk_dataset_destroy(data);
}

static void test_options_of_a_group(void **state)
{
    lk_group_opts opts = {.reserved[0] = 1};
    lk_group *group;
    assert_fails(lk_group_join(&opts, &group), LK_STATUS_USAGE, "lk_group_opts.reserved is not 0");
    assert_fails(lk_group_create_threads(1, &opts, &group), LK_STATUS_USAGE, "lk_group_opts.reserved is not 0");
}

static lk_node add_conv2d(lk_graph *graph, lk_node x)
{
    return lk_conv2d(graph, x, "conv", (lk_conv2d_opts){.out = 1, .kernel = 1, .reserved[2] = 1});
}

static lk_node add_maxpool2d(lk_graph *graph, lk_node x)
{
    return lk_maxpool2d(graph, x, (lk_maxpool2d_opts){.kernel = 1, .reserved[1] = 1});
}

static lk_node add_avgpool2d(lk_graph *graph, lk_node x)
{
    return lk_avgpool2d(graph, x, (lk_avgpool2d_opts){.kernel = 1, .reserved[4] = 1});
}

static void test_options_of_builders(void **state)
{
    static const struct {
        lk_node (*add)(lk_graph *graph, lk_node x);
        const char *words;
    } rows[] = {
        {add_conv2d, "lk_conv2d_opts.reserved is not 0"},
        {add_maxpool2d, "lk_maxpool2d_opts.reserved is not 0"},
        {add_avgpool2d, "lk_avgpool2d_opts.reserved is not 0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lk_graph *graph;
        assert_ok(lk_graph_create(&graph));
        assert_true(rows[i].add(graph, lk_input(graph, 1, 4, 4)).index < 0);
        assert_fails(lk_graph_check(graph), LK_STATUS_USAGE, rows[i].words);
        lk_graph_destroy(graph);
    }
}

/* Each builder with a mistake of an earlier one keeps that mistake. */
static void test_first_mistake_is_kept(void **state)
{
    lk_graph *graph;
    assert_ok(lk_graph_create(&graph));
    lk_node x = lk_linear(graph, lk_input(graph, 1, 4, 4), "fc", 1);
    add_conv2d(graph, x);
    assert_fails(lk_graph_check(graph), LK_STATUS_USAGE, "lk_flatten");
    lk_graph_destroy(graph);
}

TEST_MAIN(NULL, NULL, TEST(test_options_of_an_engine), TEST(test_options_of_a_loader), TEST(test_options_of_a_group),
          TEST(test_options_of_builders), TEST(test_first_mistake_is_kept))
