/* test_conv2d.c - convolutions in groups in a graph: parameters, multiplications and refused options. */
#include <lockstep/lockstep.h>

#include "check.h"
#include "nn/graph.h"
#include "nn/op.h"

/* A graph with one convolution; its input has 12 channels of 8x8 pixels. */
static lk_graph *graph_of(lk_conv2d_opts opts)
{
    lk_graph *graph;
    assert_int_equal(lk_graph_create(&graph), LK_OK);
    lk_conv2d(graph, lk_input(graph, 12, 8, 8), "conv", opts);
    return graph;
}

static void expect(lk_conv2d_opts opts, size_t in, double macs)
{
    lk_graph *graph = graph_of(opts);
    assert_int_equal(graph->count, 2);
    const lk_layer *layer = &graph->layers[1];
    const size_t want[] = {opts.out, in, opts.kernel, opts.kernel};
    assert_memory_equal(layer->params[0].dims, want, sizeof want);
    assert_int_equal(layer->params[0].fan_in, in * opts.kernel * opts.kernel);
    assert_int_equal(layer->params[1].fan_in, in * opts.kernel * opts.kernel);
    assert_int_equal(lk_graph_parameters(graph), opts.out * in * opts.kernel * opts.kernel + opts.out);
    assert_true(layer->op->macs(layer, graph->layers[0].shape) == macs);
    lk_graph_destroy(graph);
}

static void test_parameters(void **arg)
{
    expect((lk_conv2d_opts){.out = 20, .kernel = 3, .pad = 1}, 12, 20.0 * 64 * 12 * 9);
    expect((lk_conv2d_opts){.out = 20, .kernel = 3, .pad = 1, .groups = 1}, 12, 20.0 * 64 * 12 * 9);
    expect((lk_conv2d_opts){.out = 20, .kernel = 3, .pad = 1, .groups = 4}, 3, 20.0 * 64 * 3 * 9);
    expect((lk_conv2d_opts){.out = 12, .kernel = 3, .stride = 2, .pad = 1, .groups = 12}, 1, 12.0 * 16 * 9);
    expect((lk_conv2d_opts){.out = 24, .kernel = 1, .groups = 12}, 1, 24.0 * 64);
}

static void test_linear_macs(void **arg)
{
    lk_graph *graph;
    assert_int_equal(lk_graph_create(&graph), LK_OK);
    lk_linear(graph, lk_flatten(graph, lk_input(graph, 3, 4, 5)), "fc", 7);
    assert_int_equal(graph->count, 3);
    const lk_layer *layer = &graph->layers[2];
    assert_true(layer->op->macs(layer, graph->layers[1].shape) == 3.0 * 4 * 5 * 7);
    lk_graph_destroy(graph);
}

static void expect_mistake(size_t out, size_t groups, const char *words)
{
    lk_graph *graph = graph_of((lk_conv2d_opts){.out = out, .kernel = 3, .groups = groups});
    assert_fails(lk_graph_check(graph), LK_STATUS_USAGE, words);
    lk_graph_destroy(graph);
}

static void test_mistakes(void **arg)
{
    expect_mistake(20, 5, "'conv': 5 groups must divide both its 12 input and its 20 output channels");
    expect_mistake(20, 3, "3 groups");
    expect_mistake(12, 24, "24 groups");
}

static void test_hash(void **arg)
{
    lk_graph *one = graph_of((lk_conv2d_opts){.out = 12, .kernel = 3});
    lk_graph *same = graph_of((lk_conv2d_opts){.out = 12, .kernel = 3, .groups = 1});
    lk_graph *two = graph_of((lk_conv2d_opts){.out = 12, .kernel = 3, .groups = 2});
    assert_true(lk__graph_hash(one) == lk__graph_hash(same));
    assert_true(lk__graph_hash(one) != lk__graph_hash(two));
    lk_graph_destroy(one);
    lk_graph_destroy(same);
    lk_graph_destroy(two);
}

TEST_MAIN(NULL, NULL, TEST(test_parameters), TEST(test_linear_macs), TEST(test_mistakes), TEST(test_hash))
