/* test_engine.c - the engine's contract without the law: reading and setting states, evaluation, and
 * errors that a user can cause. */
#include <math.h>

#include "law.h"
#include "parallel/layout/defaults.h"
#include "parallel/step/engine_impl.h"

static const law_case cnn = {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "sgd", 0.05, 3, 8, .shards = 4};
static const law_case resnet = {"resnet20:width=4", LAW_CIFAR, LK_BN_MODE_BATCH, "sgd", 0.05, 3, 8, .shards = 4};

enum { SAMPLES = 16, PIXELS = 3 * 32 * 32 };
static float x[SAMPLES * PIXELS];
static int32_t labels[SAMPLES];
static uint32_t ids[SAMPLES];

/* A batch of the first `count` samples of the arrays above. */
static const lk_batch *batch_of(lk_batch *batch, size_t count, size_t sample)
{
    *batch = (lk_batch){.count = count, .sample_floats = sample, .x = x, .labels = labels, .ids = ids};
    return batch;
}

static void test_state_moves_between_engines(void **arg)
{
    lk_engine *a = law_engine(&resnet, (law_way){.threads = 1});
    lk_batch batch;
    lk_metrics metrics;
    for (int step = 0; step < 3; step++) {
        law_batch(&resnet, step, x, labels, ids, &batch);
        law_require(lk_engine_step(a, &batch, &metrics));
    }
    assert_int_equal(lk_engine_steps(a), 3);
    lk_engine *b = law_engine(&resnet, (law_way){.threads = 2});
    assert_true(law_hash(a) != law_hash(b));
    lk_state *state;
    law_require(lk_engine_state(a, &state));
    int64_t tracked;
    memcpy(&tracked, lk_state_find(state, "bn1.num_batches_tracked")->data, sizeof tracked);
    assert_int_equal(tracked, 3);
    law_require(lk_engine_set_state(b, state));
    assert_true(law_hash(a) == law_hash(b));
    lk_metrics in_a, in_b;
    law_require(lk_engine_eval(a, &batch, &in_a));
    law_require(lk_engine_eval(b, &batch, &in_b));
    assert_memory_equal(&in_a.loss, &in_b.loss, sizeof in_a.loss);
    lk_state_destroy(state);
    lk_engine_destroy(b);
    lk_engine_destroy(a);
}

/* Old files have no counters: counters begin at 0, and all other entries are taken. */
static void test_states_without_counters(void **arg)
{
    lk_engine *a = law_engine(&resnet, (law_way){.threads = 1});
    lk_batch batch;
    lk_metrics metrics;
    law_batch(&resnet, 0, x, labels, ids, &batch);
    law_require(lk_engine_step(a, &batch, &metrics));
    lk_state *state, *old, *back;
    law_require(lk_engine_state(a, &state));
    law_require(lk_state_create(&old));
    for (size_t i = 0; i < lk_state_count(state); i++) {
        const lk_state_entry *from = lk_state_at(state, i);
        lk_state_entry *to;
        if (from->dtype == LK_DTYPE_I64)
            continue;
        law_require(lk_state_add(old, from->name, from->dtype, from->ndim, from->dims, &to));
        memcpy(to->data, from->data, from->bytes);
    }
    law_require(lk_engine_set_state(a, old));
    law_require(lk_engine_state(a, &back));
    for (size_t i = 0; i < lk_state_count(state); i++) {
        const lk_state_entry *was = lk_state_at(state, i), *is = lk_state_at(back, i);
        static const int64_t none = 0;
        assert_memory_equal(is->data, was->dtype == LK_DTYPE_I64 ? (const void *)&none : was->data, was->bytes);
    }
    lk_state_destroy(back);
    lk_state_destroy(old);
    lk_state_destroy(state);
    lk_engine_destroy(a);
}

static void test_foreign_states_are_refused(void **arg)
{
    lk_engine *a = law_engine(&cnn, (law_way){.threads = 1});
    lk_engine *b = law_engine(&resnet, (law_way){.threads = 1});
    uint64_t before = law_hash(a);
    lk_state *state;
    law_require(lk_engine_state(b, &state));
    assert_fails(lk_engine_set_state(a, state), LK_STATUS_MISMATCH, "conv1.weight");
    lk_state_destroy(state);
    law_require(lk_engine_state(a, &state));
    lk_state_entry *entry;
    law_require(lk_state_add(state, "extra.weight", LK_DTYPE_F32, 1, (size_t[]){1}, &entry));
    assert_fails(lk_engine_set_state(a, state), LK_STATUS_MISMATCH, "extra.weight");
    lk_state_destroy(state);
    law_require(lk_state_create(&state));
    assert_fails(lk_engine_set_state(a, state), LK_STATUS_MISMATCH, "conv1.weight");
    lk_state_destroy(state);
    assert_true(law_hash(a) == before);
    lk_engine_destroy(b);
    lk_engine_destroy(a);
}

/* More samples than a training wave has; the result is that of single samples. */
static void test_eval_counts_each_sample(void **arg)
{
    lk_engine *engine = law_engine(&cnn, (law_way){.threads = 2, .micro_batch = 2});
    double loss = 0;
    size_t correct = 0;
    lk_batch batch;
    lk_metrics metrics;
    for (uint32_t i = 0; i < SAMPLES; i++) {
        ids[i] = i;
        labels[i] = law_sample(cnn.shape, i, x + 784 * i);
        batch = (lk_batch){.count = 1, .sample_floats = 784, .x = x + 784 * i, .labels = labels + i, .ids = ids + i};
        law_require(lk_engine_eval(engine, &batch, &metrics));
        loss += metrics.loss;
        correct += metrics.correct;
    }
    law_require(lk_engine_eval(engine, batch_of(&batch, SAMPLES, 784), &metrics));
    assert_int_equal(metrics.count, SAMPLES);
    assert_int_equal(metrics.correct, correct);
    assert_true(metrics.loss == loss / SAMPLES);
    lk_engine_destroy(engine);
}

static void test_bad_batches(void **arg)
{
    lk_engine *engine = law_engine(&cnn, (law_way){.threads = 1});
    lk_batch batch;
    lk_metrics metrics;
    memset(x, 0, sizeof x);
    memset(labels, 0, sizeof labels);
    assert_fails(lk_engine_step(engine, batch_of(&batch, 0, 784), &metrics), LK_STATUS_USAGE, "0 samples");
    assert_fails(lk_engine_step(engine, batch_of(&batch, 9, 784), &metrics), LK_STATUS_USAGE, "9 samples");
    assert_fails(lk_engine_step(engine, batch_of(&batch, 2, 785), &metrics), LK_STATUS_MISMATCH, "785 values");
    assert_fails(
        lk_engine_step(engine, &(lk_batch){.count = 2, .sample_floats = 784, .x = x, .labels = labels}, &metrics),
        LK_STATUS_USAGE, "NULL");
    labels[1] = 10;
    assert_fails(lk_engine_step(engine, batch_of(&batch, 2, 784), &metrics), LK_STATUS_MISMATCH, "label 10");
    assert_int_equal(lk_engine_steps(engine), 0);
    lk_engine_destroy(engine);
}

static void test_an_engine_for_evaluation_takes_no_step(void **arg)
{
    lk_engine_opts opts = law_opts(&cnn, &(law_way){.threads = 1});
    lk_engine *engine;
    lk_batch batch;
    lk_metrics metrics;
    opts.eval_only = true;
    law_require(law_create(&cnn, &opts, &engine));
    law_batch(&cnn, 0, x, labels, ids, &batch);
    law_require(lk_engine_eval(engine, &batch, &metrics));
    assert_fails(lk_engine_step(engine, &batch, &metrics), LK_STATUS_USAGE, "eval_only");
    lk_engine_destroy(engine);
}

/* First a finite loss whose gradient overflows in one sample (two linear layers, the first zero, the
 * second huge), then a loss that is not finite. */
static void test_nonfinite_names_tensor_sample_and_shard(void **arg)
{
    lk_graph *graph;
    lk_engine *engine;
    law_require(lk_graph_create(&graph));
    lk_node node = lk_linear(graph, lk_flatten(graph, lk_input(graph, 1, 1, 2)), "first", 2);
    lk_cross_entropy(graph, lk_linear(graph, node, "second", 2));
    law_require(lk_engine_create(graph, &(lk_engine_opts){.batch = 8, .shards = 4, .threads = 1}, &engine));
    lk_state *state;
    law_require(lk_engine_state(engine, &state));
    memset(lk_state_find(state, "first.weight")->data, 0, 4 * sizeof(float));
    memset(lk_state_find(state, "first.bias")->data, 0, 2 * sizeof(float));
    memcpy(lk_state_find(state, "second.weight")->data, (float[]){1e30f, 1, 1, 1}, 4 * sizeof(float));
    law_require(lk_engine_set_state(engine, state));
    memset(x, 0, sizeof x);
    memset(labels, 0, sizeof labels);
    x[2 * 5] = 1e20f;
    lk_batch batch;
    lk_metrics metrics;
    lk_status status = lk_engine_step(engine, batch_of(&batch, 8, 2), &metrics);
    assert_fails(status, LK_STATUS_NONFINITE, "first.weight");
    assert_fails(status, LK_STATUS_NONFINITE, "shard 2");
    x[2 * 5] = INFINITY;
    ids[5] = 77;
    status = lk_engine_step(engine, batch_of(&batch, 8, 2), &metrics);
    assert_fails(status, LK_STATUS_NONFINITE, "sample 77 (shard 2)");
    assert_int_equal(lk_engine_steps(engine), 0);
    lk_state_destroy(state);
    lk_engine_destroy(engine);
    lk_graph_destroy(graph);
}

/* A step that fails does not change the state or the statistics of BatchNorm, and an update after it
 * is refused. The shard of a non-finite gradient in BatchNorm is named, too. */
static void test_nonfinite_step_changes_nothing(void **arg)
{
    for (int mode = 0; mode < 2; mode++) {
        lk_graph *graph;
        lk_engine *engine;
        lk_batch batch;
        lk_metrics metrics;
        lk_state *state;
        law_require(lk_graph_create(&graph));
        lk_node node = lk_batchnorm2d(graph, lk_input(graph, 1, 1, 3), "bn");
        lk_cross_entropy(graph, lk_linear(graph, lk_flatten(graph, node), "fc", 2));
        lk_engine_opts opts = {.batch = 4, .shards = 4, .threads = 1, .bn = mode ? LK_BN_MODE_SHARD : LK_BN_MODE_BATCH};
        law_require(lk_engine_create(graph, &opts, &engine));
        law_require(lk_engine_state(engine, &state));
        /* The scores are the last layer's bias. Samples with the right answer have a small gradient;
         * for a wrong answer the gradient of bn.bias, a sum of three huge weights, overflows. */
        memset(lk_state_find(state, "bn.weight")->data, 0, sizeof(float));
        memcpy(lk_state_find(state, "fc.weight")->data, (float[]){3e38f, 3e38f, 3e38f, -3e38f, -3e38f, -3e38f},
               6 * sizeof(float));
        memcpy(lk_state_find(state, "fc.bias")->data, (float[]){3, -3}, 2 * sizeof(float));
        law_require(lk_engine_set_state(engine, state));
        uint64_t before = law_hash(engine);
        for (uint32_t i = 0; i < 12; i++)
            x[i] = (float)i;
        memcpy(labels, (int32_t[]){0, 0, 1, 0}, 4 * sizeof *labels);
        lk_status status = lk_engine_gradients(engine, batch_of(&batch, 4, 3), &metrics);
        assert_fails(status, LK_STATUS_NONFINITE, "bn.");
        assert_fails(status, LK_STATUS_NONFINITE, "shard 2");
        assert_true(law_hash(engine) == before);
        assert_fails(lk_engine_update(engine), LK_STATUS_USAGE, "no gradients");
        lk_state_destroy(state);
        lk_engine_destroy(engine);
        lk_graph_destroy(graph);
    }
}

static lk_status create_normed(lk_engine_opts opts, size_t width)
{
    lk_graph *graph;
    lk_engine *engine = NULL;
    law_require(lk_graph_create(&graph));
    lk_node node = lk_batchnorm2d(graph, lk_input(graph, 2, 1, width), "norm");
    lk_cross_entropy(graph, lk_linear(graph, lk_flatten(graph, node), "fc", 2));
    opts.threads = 1;
    lk_status status = lk_engine_create(graph, &opts, &engine);
    lk_engine_destroy(engine);
    lk_graph_destroy(graph);
    return status;
}

/* BatchNorm over one value always gives its bias. An engine whose batches are all of one value is
 * refused; a last batch of one sample is not. */
static void test_batchnorm_of_one_value(void **arg)
{
    lk_status status = create_normed((lk_engine_opts){.batch = 1}, 1);
    assert_fails(status, LK_STATUS_USAGE, "BatchNorm 'norm'");
    assert_fails(status, LK_STATUS_USAGE, "`batch`");
    status = create_normed((lk_engine_opts){.batch = 16, .bn = LK_BN_MODE_SHARD}, 1);
    assert_fails(status, LK_STATUS_USAGE, "BatchNorm 'norm'");
    assert_fails(status, LK_STATUS_USAGE, "`bn` batch");
    law_require(create_normed((lk_engine_opts){.batch = 1}, 2));
    law_require(create_normed((lk_engine_opts){.batch = 2}, 1));
    law_require(create_normed((lk_engine_opts){.batch = 17, .bn = LK_BN_MODE_SHARD}, 1));
    law_require(create_normed((lk_engine_opts){.batch = 1, .eval_only = true}, 1));
}

/* Layers read samples where the caller has them: none may change them, also one that can work in place, and the layer
 * after it must read what it wrote, not the samples. */
static void test_samples_are_not_changed(void **arg)
{
    static float given[8 * 36];
    uint64_t hash[2];
    for (size_t i = 0; i < 8 * 36; i++)
        given[i] = (float)(i * 7 % 11) - 5;
    for (size_t i = 0; i < 8; i++) {
        labels[i] = (int32_t)(i % 3);
        ids[i] = (uint32_t)i;
    }
    for (int rectified = 0; rectified < 2; rectified++) {
        lk_graph *graph;
        lk_engine *engine;
        lk_batch batch;
        lk_metrics metrics;
        for (size_t i = 0; i < 8 * 36; i++)
            x[i] = rectified && given[i] < 0 ? 0 : given[i];
        law_require(lk_graph_create(&graph));
        lk_node node = lk_relu(graph, lk_flatten(graph, lk_input(graph, 1, 6, 6)));
        lk_cross_entropy(graph, lk_linear(graph, node, "fc", 3));
        law_require(lk_engine_create(graph, &(lk_engine_opts){.batch = 8, .shards = 4, .threads = 1}, &engine));
        law_require(lk_engine_step(engine, batch_of(&batch, 8, 36), &metrics));
        hash[rectified] = law_hash(engine);
        assert_true(rectified || memcmp(x, given, sizeof given) == 0);
        lk_engine_destroy(engine);
        lk_graph_destroy(graph);
    }
    assert_true(hash[0] == hash[1]);
}

static void test_bad_options(void **arg)
{
    lk_graph *graph;
    lk_engine *engine;
    law_require(lk_model_build("mlp", cnn.shape, &graph));
    static const struct {
        lk_engine_opts opts;
        const char *words;
    } rows[] = {
        {{.batch = 0}, "batch"},
        {{.batch = 8, .shards = 5000}, "`shards` 5000"},
        {{.batch = 8, .shards = -1}, "`shards` -1"},
        {{.batch = 8, .threads = -2}, "`threads` -2"},
        {{.batch = 8, .threads = 5000}, "`threads` 5000"},
        {{.batch = 8, .bn = (lk_bn_mode)7}, "`bn` 7"},
        {{.batch = 8, .device = "gpu"}, "gpu"},
        {{.batch = 8, .optimizer = "adamm"}, "adam"},
        {{.batch = 8, .optimizer = "sgd:momentum=x"}, "momentum"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        assert_fails(lk_engine_create(graph, &rows[i].opts, &engine), LK_STATUS_USAGE, rows[i].words);
    lk_graph_destroy(graph);
}

/* AUTO is what the device has: fp32 on the CPU, which has bf16 beside it. */
static void test_default_precision(void **arg)
{
    lk_engine_opts opts = law_opts(&cnn, &(law_way){.threads = 1});
    lk_engine *engine;
    opts.precision = LK_PRECISION_AUTO;
    law_require(law_create(&cnn, &opts, &engine));
    assert_int_equal(engine->opts.precision, LK_PRECISION_FP32);
    lk_engine_destroy(engine);
    opts.precision = LK_PRECISION_TF32CONV;
    assert_fails(law_create(&cnn, &opts, &engine), LK_STATUS_UNSUPPORTED,
                 "`precision` tf32conv: the CPU computes in fp32 or bf16");
}

/* 16 shards on every device; as many as replicas if these are more. */
static void test_default_shards(void **arg)
{
    assert_int_equal(lk__engine_default_shards(1, NULL), 16);
    assert_int_equal(lk__engine_default_shards(16, NULL), 16);
    assert_int_equal(lk__engine_default_shards(17, NULL), 17);
    assert_int_equal(lk__engine_default_shards(40, "2"), 20);
    assert_int_equal(lk__engine_default_shards(40, "fc1,fc2"), 16);
    assert_int_equal(lk__engine_default_shards(1, "2"), 16);
    assert_int_equal(lk__engine_default_shards(40, "0"), 16); /* the engine refuses such stages */
    lk_engine_opts opts = law_opts(&cnn, &(law_way){.threads = 1});
    lk_engine *engine;
    opts.shards = 0;
    law_require(law_create(&cnn, &opts, &engine));
    assert_int_equal(engine->opts.shards, 16);
    lk_engine_destroy(engine);
}

TEST_MAIN(NULL, NULL, TEST(test_default_precision), TEST(test_default_shards), TEST(test_state_moves_between_engines),
          TEST(test_states_without_counters), TEST(test_foreign_states_are_refused), TEST(test_eval_counts_each_sample),
          TEST(test_bad_batches), TEST(test_an_engine_for_evaluation_takes_no_step),
          TEST(test_nonfinite_names_tensor_sample_and_shard), TEST(test_nonfinite_step_changes_nothing),
          TEST(test_batchnorm_of_one_value), TEST(test_samples_are_not_changed), TEST(test_bad_options))
