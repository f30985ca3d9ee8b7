/* test_differences.c - the differences from PyTorch that docs/guide.md lists for the engine. Inputs
 * are small whole numbers: statistics and gradients are known up to rounding. */
#include <math.h>

#include "law.h"

enum { SAMPLES = 4 };

static float x[SAMPLES];
static int32_t labels[SAMPLES];
static const uint32_t ids[SAMPLES] = {0, 1, 2, 3};

/* One value for each sample, BatchNorm "norm", a linear layer "fc" of zeros, two classes. */
static lk_engine *normed_engine(lk_engine_opts opts)
{
    lk_graph *graph;
    lk_engine *engine;
    lk_state *state;
    law_require(lk_graph_create(&graph));
    lk_node node = lk_batchnorm2d(graph, lk_input(graph, 1, 1, 1), "norm");
    lk_cross_entropy(graph, lk_linear(graph, lk_flatten(graph, node), "fc", 2));
    opts.threads = 1;
    opts.optimizer = "sgd";
    opts.lr = 1;
    law_require(lk_engine_create(graph, &opts, &engine));
    law_require(lk_engine_state(engine, &state));
    memset(lk_state_find(state, "fc.weight")->data, 0, 2 * sizeof(float));
    memset(lk_state_find(state, "fc.bias")->data, 0, 2 * sizeof(float));
    law_require(lk_engine_set_state(engine, state));
    lk_state_destroy(state);
    lk_graph_destroy(graph);
    return engine;
}

static lk_batch batch_of(size_t count)
{
    return (lk_batch){.count = count, .sample_floats = 1, .x = x, .labels = labels, .ids = ids};
}

static lk_metrics step(lk_engine *engine, size_t count)
{
    lk_batch batch = batch_of(count);
    lk_metrics metrics;
    law_require(lk_engine_step(engine, &batch, &metrics));
    return metrics;
}

static void expect(const lk_engine *engine, const char *name, double want)
{
    lk_state *state;
    float value;
    law_require(lk_engine_state(engine, &state));
    memcpy(&value, lk_state_find(state, name)->data, sizeof value);
    lk_state_destroy(state);
    if (!(fabs(value - want) <= 1e-6))
        fail_msg("%s is %.9g, not %.9g", name, value, want);
}

/* Shards {0, 2} and {4, 10}: with LK_BN_MODE_SHARD each is normalised alone, but the running statistics
 * get the mean 4 and the unbiased variance 56/3 of all four. Rank 0 of DDP would keep 1 and 2. */
static void test_running_statistics_are_pooled(void **arg)
{
    for (int mode = 0; mode < 2; mode++) {
        lk_engine *engine =
            normed_engine((lk_engine_opts){.batch = 4, .shards = 2, .bn = mode ? LK_BN_MODE_SHARD : LK_BN_MODE_BATCH});
        memcpy(x, (float[]){0, 2, 4, 10}, sizeof x);
        step(engine, 4);
        expect(engine, "norm.running_mean", .1 * 4);
        expect(engine, "norm.running_var", .9 + .1 * 56 / 3);
        lk_engine_destroy(engine);
    }
}

/* Shards of one and of two samples with labels 0 and 1, 1, all scores 0: the gradient of
 * the first bias is (-.5 + .5 + .5) / 3. The mean of two ranks' means would be 0. */
static void test_samples_weigh_alike(void **arg)
{
    lk_engine *engine = normed_engine((lk_engine_opts){.batch = 3, .shards = 2, .bn = LK_BN_MODE_SHARD});
    memcpy(labels, (int32_t[]){0, 1, 1, 0}, sizeof labels);
    step(engine, 3);
    expect(engine, "fc.bias", -1.0 / 6);
    lk_engine_destroy(engine);
}

/* A last batch of one value is trained on: the bias learns, the running variance stays. */
static void test_one_value_in_the_last_batch(void **arg)
{
    lk_engine *engine = normed_engine((lk_engine_opts){.batch = 2, .shards = 2});
    x[0] = 5;
    labels[0] = 0;
    step(engine, 1);
    expect(engine, "norm.running_mean", .1 * 5);
    expect(engine, "norm.running_var", 1);
    expect(engine, "fc.bias", .5);
    expect(engine, "fc.weight", 0);
    lk_engine_destroy(engine);
}

/* Labels are smoothed in training only: after one step the two losses of a batch differ. */
static void test_test_loss_is_plain(void **arg)
{
    lk_engine *engine = normed_engine((lk_engine_opts){.batch = 2, .shards = 1, .label_smoothing = .5});
    lk_metrics tested;
    lk_batch batch = batch_of(2);
    memset(x, 0, sizeof x);
    memset(labels, 0, sizeof labels);
    step(engine, 2);
    /* Now the bias is (.25, -.25) and the loss is ln(1 + exp(-.5)). */
    law_require(lk_engine_eval(engine, &batch, &tested));
    assert_true(fabs(tested.loss - log1p(exp(-.5))) <= 1e-6);
    assert_true(fabs(step(engine, 2).loss - (log1p(exp(-.5)) + .25 * .5)) <= 1e-6);
    lk_engine_destroy(engine);
}

TEST_MAIN(NULL, NULL, TEST(test_running_statistics_are_pooled), TEST(test_samples_weigh_alike),
          TEST(test_one_value_in_the_last_batch), TEST(test_test_loss_is_plain))
