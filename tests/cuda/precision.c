/* precision.c - the precision tf32conv: convolutions have the bits of tf32, linear layers and products of two nodes
 * those of fp32. It is the default of a GPU. */
#include "parallel/law.h"

#include "tensor/kernel_test.h"

enum { BATCH = 32, STEPS = 2 };

static const law_case images = {"cnn", LAW_CIFAR, LK_BN_MODE_BATCH, "sgd", 0.05, STEPS, BATCH, .shards = 16};

/* Only convolutions have products. */
static void build_convolutions(lk_graph *g, lk_node x)
{
    x = lk_relu(g, lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 32, .kernel = 3, .pad = 1}));
    x = lk_conv2d(g, x, "conv2", (lk_conv2d_opts){.out = images.shape.classes, .kernel = 3, .stride = 2});
    lk_cross_entropy(g, lk_flatten(g, lk_global_avgpool(g, x)));
}

static void build_linear(lk_graph *g, lk_node x)
{
    x = lk_relu(g, lk_linear(g, lk_flatten(g, x), "fc1", 64));
    lk_cross_entropy(g, lk_linear(g, x, "fc2", images.shape.classes));
}

/* The hash of the weights after a few steps. */
static uint64_t trained(void (*build)(lk_graph *g, lk_node x), lk_precision wanted)
{
    lk_engine_opts opts = {.device = fx_name(), .batch = BATCH, .lr = 0.05, .seed = 1, .precision = wanted};
    lk_graph *g;
    lk_engine *engine;
    lk_batch batch;
    lk_metrics metrics;
    law_samples s = law_samples_make(&images);
    assert_ok(lk_graph_create(&g));
    build(g, lk_input(g, images.shape.channels, images.shape.height, images.shape.width));
    assert_ok(lk_engine_create(g, &opts, &engine));
    for (int i = 0; i < STEPS; i++) {
        law_batch(&images, i, s.x, s.labels, s.ids, &batch);
        assert_ok(lk_engine_step(engine, &batch, &metrics));
    }
    uint64_t hash = law_hash_all(engine);
    lk_engine_destroy(engine);
    lk_graph_destroy(g);
    law_samples_free(&s);
    return hash;
}

static void convolutions_are_tf32(void **arg)
{
    uint64_t hash = trained(build_convolutions, LK_PRECISION_TF32CONV);
    assert_true(hash == trained(build_convolutions, LK_PRECISION_TF32));
    assert_true(hash != trained(build_convolutions, LK_PRECISION_FP32));
    assert_true(hash == trained(build_convolutions, LK_PRECISION_AUTO));
}

static void linear_layers_are_fp32(void **arg)
{
    uint64_t hash = trained(build_linear, LK_PRECISION_TF32CONV);
    assert_true(hash == trained(build_linear, LK_PRECISION_FP32));
    assert_true(hash != trained(build_linear, LK_PRECISION_TF32));
    assert_true(hash == trained(build_linear, LK_PRECISION_AUTO));
}

int main(void)
{
    if (fx_present() && strncmp(fx_name(), "cpu", 3) != 0)
        return RUN_TESTS(NULL, NULL, TEST(convolutions_are_tf32), TEST(linear_layers_are_fp32));
    puts("skipped: no GPU");
    return FX_SKIPPED;
}
