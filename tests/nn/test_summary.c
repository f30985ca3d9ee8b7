/* test_summary.c - the numbers of `lockstep info --model`: layers, multiplications, and the memory that a
 * plan would need. */
#include <lockstep/lockstep.h>

#include "check.h"
#include "nn/plan.h"
#include "nn/summary.h"

static const lk_model_shape mnist = {1, 28, 28, 10}, cifar = {3, 32, 32, 10}, imagenet = {3, 224, 224, 1000};

static lk_graph *build(const char *spec, const lk_model_shape *shape)
{
    lk_graph *graph;
    assert_int_equal(lk_model_build(spec, *shape, &graph), LK_OK);
    return graph;
}

static void test_cnn_by_hand(void **arg)
{
    lk_graph *graph = build("cnn", &mnist);
    lk_graph_summary total = lk__graph_summary(graph);
    double conv1 = 26 * 26 * 32 * 9, conv2 = 24 * 24 * 64 * 32 * 9, fc1 = 9216 * 128, fc2 = 128 * 10;
    assert_int_equal(total.layers, 14);
    assert_int_equal(total.parameters, 1199882);
    assert_int_equal(total.tensors, 8);
    assert_int_equal(total.entries, 8);
    assert_true(total.macs == conv1 + conv2 + fc1 + fc2);
    lk_layer_summary layer = lk__layer_summary(graph, 3);
    assert_string_equal(layer.op, "conv2d");
    assert_string_equal(layer.name, "conv2");
    assert_int_equal(layer.parameters, 64 * 32 * 9 + 64);
    assert_int_equal(layer.output.c, 64);
    assert_int_equal(layer.output.h, 24);
    assert_true(layer.macs == conv2);
    assert_true(lk__layer_summary(graph, 4).macs == 0);
    lk_graph_destroy(graph);
}

/* Published numbers in millions; they count convolutions and linear layers. */
static void test_known_macs(void **arg)
{
    static const struct {
        const char *spec;
        const lk_model_shape *shape;
        double millions;
    } rows[] = {
        {"resnet18", &imagenet, 1814}, {"resnet50", &imagenet, 4089},    {"resnet152", &imagenet, 11514},
        {"vgg16", &imagenet, 15470},   {"mobilenet_v2", &imagenet, 301}, {"pyramidnet", &cifar, 4040},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lk_graph *graph = build(rows[i].spec, rows[i].shape);
        double macs = lk__graph_summary(graph).macs / 1e6;
        if (macs < rows[i].millions - 5 || macs > rows[i].millions + 5)
            fail_msg("%s: %.0f million multiplications, not %.0f", rows[i].spec, macs, rows[i].millions);
        lk_graph_destroy(graph);
    }
}

/* A device that counts the bytes that are allocated. */
static size_t counted;

static lk_status counting_alloc(lk_device *dev, size_t bytes, const char *what, void **out)
{
    counted += bytes;
    return lk__device_cpu.alloc(dev, bytes, what, out);
}

static size_t count_since(size_t *before)
{
    size_t bytes = counted - *before;
    *before = counted;
    return bytes;
}

static lk_status no_gather(void *arg, const float *mine, size_t width, float *all)
{
    return LK_OK;
}

static void expect_measured(lk_device *dev, const lk_graph *graph, lk_plan_opts opts)
{
    size_t before = counted;
    lk_params *params;
    lk_plan *plan;
    lk_plan_size size;
    opts.first = 1;
    opts.last = graph->count;
    lk_params_size floats = lk__params_measure(graph, dev, 1, graph->count);
    assert_int_equal(lk__plan_measure(graph, dev, &opts, &size), LK_OK);
    assert_int_equal(count_since(&before), 0);
    assert_int_equal(lk__params_create(graph, dev, 1, graph->count, &params), LK_OK);
    assert_int_equal(count_since(&before), (floats.count + floats.buffer_count) * sizeof(float) + sizeof(lk_flag));
    assert_int_equal(lk__plan_create(graph, params, &opts, &plan), LK_OK);
    assert_int_equal(count_since(&before), size.activations + size.sums + size.scratch);
    lk__plan_destroy(plan);
    lk__params_destroy(params);
}

static void test_memory(void **arg)
{
    static const struct {
        const char *spec;
        const lk_model_shape *shape;
    } rows[] = {{"cnn", &mnist}, {"mlp", &mnist}, {"resnet20", &cifar}, {"pyramidnet:blocks=2,alpha=24", &cifar}};
    static const lk_plan_opts opts[] = {
        {.capacity = 1, .lanes = 1, .shards = 1, .slots = 1, .all_roots = 1, .total_slots = 1},
        {.capacity = 48, .lanes = 1, .shards = 16, .slots = 5, .all_roots = 1, .total_slots = 1},
        {.capacity = 3,
         .lanes = 3,
         .shards = 5,
         .slots = 4,
         .all_roots = 7,
         .total_slots = 4,
         .hooks.gather = no_gather},
    };
    lk_device *dev;
    assert_int_equal(lk__device_open("cpu", &(lk_device_opts){.threads = 2}, &dev), LK_OK);
    lk_device_type counting = lk__device_cpu;
    const lk_device_type *plain = dev->type;
    counting.alloc = counting_alloc;
    dev->type = &counting;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lk_graph *graph = build(rows[i].spec, rows[i].shape);
        for (size_t j = 0; j < sizeof opts / sizeof *opts; j++)
            expect_measured(dev, graph, opts[j]);
        lk_graph_destroy(graph);
    }
    dev->type = plain;
    lk__device_close(dev);
}

TEST_MAIN(NULL, NULL, TEST(test_cnn_by_hand), TEST(test_known_macs), TEST(test_memory))
