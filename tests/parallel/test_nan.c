/* test_nan.c - a NaN in any weight or in a sample reaches the loss through ReLU, ReLU6, max pooling,
 * dropout and BatchNorm: the step fails with LK_STATUS_NONFINITE, names the tensor or the sample, and
 * changes nothing. */
#include <math.h>

#include "law.h"

/* Max pooling and dropout without a ReLU before them, and a ReLU that is not merged into another
 * layer. */
static void build_pools(lk_model_shape shape, lk_graph *g)
{
    lk_node x = lk_input(g, shape.channels, shape.height, shape.width);
    x = lk_conv2d(g, x, "one", (lk_conv2d_opts){.out = 5, .kernel = 3, .pad = 1});
    x = lk_dropout(g, lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 3, .stride = 2, .pad = 1}), 0.9);
    x = lk_relu(g, lk_flatten(g, lk_conv2d(g, x, "two", (lk_conv2d_opts){.out = 3, .kernel = 3, .groups = 1})));
    lk_cross_entropy(g, lk_linear(g, lk_relu(g, lk_linear(g, x, "three", 21)), "four", shape.classes));
}

static lk_engine *make_engine(const law_case *c)
{
    law_way way = {.threads = 1};
    lk_engine_opts opts = law_opts(c, &way);
    lk_engine *engine;
    lk_graph *graph;
    if (strcmp(c->model, "pools") != 0)
        return law_engine(c, way);
    law_require(lk_graph_create(&graph));
    build_pools(c->shape, graph);
    law_require(lk_engine_create(graph, &opts, &engine));
    lk_graph_destroy(graph);
    return engine;
}

static void expect_failure(lk_engine *engine, const lk_batch *batch, const char *what, const char *text)
{
    lk_metrics metrics;
    uint64_t before = law_hash(engine);
    lk_status status = lk_engine_step(engine, batch, &metrics);
    if (status != LK_STATUS_NONFINITE)
        fail_msg("NaN in %s: %s, loss %g", what, lk_status_string(status), metrics.loss);
    assert_detail(text);
    assert_true(law_hash(engine) == before);
    assert_int_equal(lk_engine_steps(engine), 0);
}

static bool is_trained(const char *key)
{
    return !strstr(key, "running_") && !strstr(key, "num_batches");
}

/* Sets one element to NaN, in each of every `stride`th tensor in turn. */
static void spoil_weights(lk_engine *engine, const lk_batch *batch, size_t stride)
{
    lk_state *state;
    law_require(lk_engine_state(engine, &state));
    for (size_t i = 0; i < lk_state_count(state); i += stride) {
        const lk_state_entry *tensor = lk_state_at(state, i);
        if (!is_trained(tensor->name))
            continue;
        size_t count = tensor->bytes / sizeof(float), at = i % 3 * (count - 1) / 2;
        float *value = (float *)tensor->data + at, number = *value;
        char text[256];
        *value = NAN;
        law_require(lk_engine_set_state(engine, state));
        snprintf(text, sizeof text, "step 1: before the step %s has a value that is not finite", tensor->name);
        expect_failure(engine, batch, tensor->name, text);
        *value = number;
    }
    law_require(lk_engine_set_state(engine, state));
    lk_state_destroy(state);
}

static void check(const law_case *c, size_t stride)
{
    law_samples s = law_samples_make(c);
    lk_engine *engine = make_engine(c);
    lk_batch batch;
    lk_metrics metrics;
    law_batch(c, 0, s.x, s.labels, s.ids, &batch);
    spoil_weights(engine, &batch, stride);
    enum { SPOILT = 2 };
    char text[64];
    float *value = s.x + SPOILT * batch.sample_floats + batch.sample_floats / 2, number = *value;
    *value = NAN;
    /* BatchNorm mixes samples; without it the sample with the NaN is named. */
    snprintf(text, sizeof text, "step 1: the loss of sample %d ", c->bn == LK_BN_MODE_SHARD ? 0 : SPOILT);
    expect_failure(engine, &batch, "a sample", text);
    *value = number;
    law_require(lk_engine_step(engine, &batch, &metrics));
    assert_true(isfinite(metrics.loss));
    lk_engine_destroy(engine);
    law_samples_free(&s);
}

static void test_cnn(void **arg)
{
    check(&(law_case){"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1.0, 1, 4, 4, .hash = 0}, 1);
}

static void test_relu6(void **arg)
{
    check(&(law_case){"mobilenet_v2:width=.1,cifar", LAW_SMALL, LK_BN_MODE_SHARD, "sgd", 0.1, 1, 8, 2, .hash = 0}, 7);
}

static void test_pools(void **arg)
{
    check(&(law_case){"pools", LAW_SMALL, LK_BN_MODE_BATCH, "adam", 0.1, 1, 4, 4, .hash = 0}, 1);
}

TEST_MAIN(NULL, NULL, TEST(test_cnn), TEST(test_relu6), TEST(test_pools))
