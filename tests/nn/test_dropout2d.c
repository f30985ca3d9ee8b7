/* test_dropout2d.c - the layer that drops whole channels: the address of its random numbers, the same mask
 * in forward and backward, and no change in evaluation. */
#include "base/rng.h"
#include "check.h"
#include "nn/op.h"

enum { SAMPLES = 5, CHANNELS = 37, SIDE = 3, PIXELS = SIDE * SIDE, COUNT = SAMPLES * CHANNELS * PIXELS };

static const uint32_t ids[SAMPLES] = {7, 0, 4000000000u, 3, 59999};
static const uint64_t seed = 0x900000002u;

static lk_tensor tensor(float *data)
{
    return (lk_tensor){.data = data, .dtype = LK_DTYPE_F32, .shape = {SAMPLES, CHANNELS, SIDE, SIDE}};
}

/* A graph in which layer `index` is a dropout2d. */
static lk_graph *make_graph(int index)
{
    lk_graph *graph;
    assert_int_equal(lk_graph_create(&graph), LK_OK);
    lk_node x = lk_input(graph, CHANNELS, SIDE, SIDE);
    while (x.index < index - 1)
        x = lk_relu6(graph, x);
    assert_int_equal(lk_dropout2d(graph, x, 0.25).index, index);
    return graph;
}

static float expected(int layer, uint32_t step, size_t i, float x)
{
    lk_rng rng = lk__rng(seed, LK_RNG_PURPOSE_DROPOUT, (uint32_t)layer, step, ids[i / CHANNELS / PIXELS]);
    return lk__rng_u32(&rng, i % CHANNELS) < 0x40000000u ? 0.0f : x * (float)(1 / 0.75);
}

static void check_layer(lk_device *dev, int index, uint32_t step)
{
    static float x[COUNT], y[COUNT], dy[COUNT], dx[COUNT];
    lk_graph *graph = make_graph(index);
    lk_op_wave wave = {.n = SAMPLES, .train = true, .seed = seed, .step = &step, .ids = ids};
    lk_op_call call = {.dev = dev, .k = dev->kernels, .layer = &graph->layers[index], .wave = &wave};
    call.x[0] = tensor(x);
    call.y = tensor(y);
    call.dy = tensor(dy);
    call.dx[0] = tensor(dx);
    for (size_t i = 0; i < COUNT; i++) {
        x[i] = 1.0f + (float)i;
        dy[i] = -0.5f - (float)i;
    }
    size_t dropped = 0;
    lk__op_dropout2d.forward(&call);
    lk__op_dropout2d.backward(&call);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(y[i] == expected(index, step, i, x[i]));
        assert_true(dx[i] == expected(index, step, i, dy[i]));
        dropped += y[i] == 0;
    }
    assert_in_range(dropped, 1, COUNT - 1);
    wave.train = false;
    lk__op_dropout2d.forward(&call);
    assert_memory_equal(x, y, sizeof x);
    lk_graph_destroy(graph);
}

static void test_layers(void **arg)
{
    lk_device *dev;
    assert_int_equal(lk__device_open("cpu", &(lk_device_opts){.threads = 2}, &dev), LK_OK);
    check_layer(dev, 1, 0);
    check_layer(dev, 1, 1);
    check_layer(dev, 4, 1);
    lk__device_close(dev);
}

TEST_MAIN(NULL, NULL, TEST(test_layers))
