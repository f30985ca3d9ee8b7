/* test_init.c - initialisation policies: bounds, moments and bits of the initial weights. */
#include <math.h>

#include <lockstep/lockstep.h>

#include "base/hash.h"
#include "base/math.h"
#include "check.h"
#include "nn/graph.h"
#include "nn/init.h"
#include "nn/params.h"

/* A 3x3 convolution from 64 to 128 channels in two groups, and a linear layer from 128 to 300. */
enum { IN = 64, OUT = 128, GROUPS = 2, WIDE = 300 };
enum { CONV_FAN_IN = IN / GROUPS * 9, CONV_FAN_OUT = OUT * 9 };

typedef struct network {
    lk_graph *graph;
    lk_node conv, bn, linear;
} network;

static network make_network(void)
{
    network n;
    assert_int_equal(lk_graph_create(&n.graph), LK_OK);
    lk_node x = lk_input(n.graph, IN, 3, 3);
    n.conv = lk_conv2d(n.graph, x, "conv", (lk_conv2d_opts){.out = OUT, .kernel = 3, .groups = GROUPS});
    n.bn = lk_batchnorm2d(n.graph, n.conv, "bn");
    n.linear = lk_linear(n.graph, lk_flatten(n.graph, n.bn), "fc", WIDE);
    return n;
}

static lk_state *draw(const lk_graph *graph, uint64_t seed)
{
    lk_device *dev;
    lk_params *params;
    lk_state *state;
    assert_int_equal(lk__device_open("cpu", &(lk_device_opts){.threads = 1}, &dev), LK_OK);
    assert_int_equal(lk__params_create(graph, dev, 0, graph->count, &params), LK_OK);
    assert_int_equal(lk__params_init(params, seed, 1), LK_OK);
    assert_int_equal(lk__params_export(params, &state), LK_OK);
    lk__params_destroy(params);
    lk__device_close(dev);
    return state;
}

/* Every element has the bits of its own address, whatever the number of threads; sizes around those of the pieces. */
static void test_threads(void **state)
{
    static const size_t counts[] = {1, 3, 255, 257, 16384, 16385, 50001};
    static float values[50001];
    lk_rng rng = lk__rng(7, LK_RNG_PURPOSE_INIT, 3, 0, 1);
    for (int threads = 1; threads <= 3; threads++) {
        lk_pool *pool;
        assert_int_equal(lk__pool_create(threads, true, &pool), LK_OK);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            lk_op_slot uniform = {.ndim = 1, .dims = {counts[i]}, .fill = LK_OP_FILL_UNIFORM, .spread = .25};
            lk_op_slot normal = {.ndim = 1, .dims = {counts[i]}, .fill = LK_OP_FILL_NORMAL, .spread = .5};
            lk__init_draw(&uniform, &rng, pool, values);
            for (size_t e = 0; e < counts[i]; e++)
                assert_true(values[e] == (2.0f * lk__rng_unit(lk__rng_u32(&rng, e)) - 1.0f) * .25f);
            lk__init_draw(&normal, &rng, pool, values);
            for (size_t e = 0; e < counts[i]; e++) {
                float pair[2];
                lk__math_normal_pair(lk__rng_u32(&rng, e / 2 * 2), lk__rng_u32(&rng, e / 2 * 2 + 1), pair);
                assert_true(values[e] == pair[e % 2] * .5f);
            }
        }
        lk__pool_destroy(pool);
    }
}

typedef struct sample {
    const float *values;
    size_t count;
} sample;

static sample values_of(const lk_state *state, const char *key)
{
    const lk_state_entry *entry = lk_state_find(state, key);
    assert_non_null(entry);
    return (sample){entry->data, entry->bytes / sizeof(float)};
}

/* Moments within five standard errors: that of the mean is sqrt(v / n), that of the mean square is
 * v sqrt((k - 1) / n) with kurtosis k. */
static void expect_moments(sample s, double variance, double kurtosis)
{
    double sum = 0, square = 0, n = (double)s.count;
    for (size_t i = 0; i < s.count; i++) {
        sum += (double)s.values[i];
        square += (double)s.values[i] * (double)s.values[i];
    }
    assert_true(fabs(sum / n) < 5 * sqrt(variance / n));
    assert_true(fabs(square / n - variance) < 5 * variance * sqrt((kurtosis - 1) / n));
}

static void expect_bound(sample s, double bound)
{
    double largest = 0;
    for (size_t i = 0; i < s.count; i++)
        largest = fmax(largest, fabs((double)s.values[i]));
    /* The bound is rounded to float; the largest of n values is below it by a fraction of about 1/n. */
    assert_true(largest <= bound * (1 + 0x1p-23));
    assert_true(largest > bound * (1 - 20 / (double)s.count));
}

static void expect_uniform(sample s, double bound)
{
    expect_bound(s, bound);
    expect_moments(s, bound * bound / 3, 9.0 / 5);
}

static void expect_normal(sample s, double variance)
{
    double largest = 0;
    for (size_t i = 0; i < s.count; i++)
        largest = fmax(largest, fabs((double)s.values[i]));
    assert_true(largest < 5.8 * sqrt(variance));
    assert_true(largest > 3 * sqrt(variance));
    expect_moments(s, variance, 3);
}

static void expect_constant(sample s, float value)
{
    for (size_t i = 0; i < s.count; i++)
        assert_true(s.values[i] == value);
}

typedef struct policy_row {
    const char *policy;
    bool normal;
    double conv, linear; /* variances of weights */
    bool zero_bias;
} policy_row;

static const policy_row rows[] = {
    {"default", false, 1.0 / 3 / CONV_FAN_IN, 1.0 / 3 / OUT, false},
    {"kaiming_normal", true, 2.0 / CONV_FAN_IN, 2.0 / OUT, false},
    {"kaiming_uniform", false, 2.0 / CONV_FAN_IN, 2.0 / OUT, false},
    {"kaiming_normal:fan_out", true, 2.0 / CONV_FAN_OUT, 2.0 / WIDE, false},
    {"kaiming_uniform:fan-out,zero-bias", false, 2.0 / CONV_FAN_OUT, 2.0 / WIDE, true},
    {"kaiming_normal:fan_out=0,zero_bias=1", true, 2.0 / CONV_FAN_IN, 2.0 / OUT, true},
    {"xavier_normal", true, 2.0 / (CONV_FAN_IN + CONV_FAN_OUT), 2.0 / (OUT + WIDE), false},
    {"xavier_uniform:zero_bias", false, 2.0 / (CONV_FAN_IN + CONV_FAN_OUT), 2.0 / (OUT + WIDE), true},
    {"normal:std=.05", true, .0025, .0025, false},
    {"normal:zero_bias", true, 1e-4, 1e-4, true},
};

static void expect_weights(const policy_row *row, const lk_state *state, const char *key, double variance)
{
    sample s = values_of(state, key);
    if (row->normal)
        expect_normal(s, variance);
    else
        expect_uniform(s, sqrt(3 * variance));
}

static void expect_bias(const policy_row *row, const lk_state *state, const char *key, double fan_in)
{
    sample s = values_of(state, key);
    if (row->zero_bias)
        expect_constant(s, 0);
    else
        expect_uniform(s, 1 / sqrt(fan_in));
}

static void test_policies(void **arg)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        network n = make_network();
        lk_init_all(n.graph, rows[i].policy);
        lk_state *state = draw(n.graph, 5);
        expect_weights(&rows[i], state, "conv.weight", rows[i].conv);
        expect_weights(&rows[i], state, "fc.weight", rows[i].linear);
        expect_bias(&rows[i], state, "conv.bias", CONV_FAN_IN);
        expect_bias(&rows[i], state, "fc.bias", OUT);
        expect_constant(values_of(state, "bn.weight"), 1);
        expect_constant(values_of(state, "bn.bias"), 0);
        expect_constant(values_of(state, "bn.running_mean"), 0);
        expect_constant(values_of(state, "bn.running_var"), 1);
        lk_state_destroy(state);
        lk_graph_destroy(n.graph);
    }
}

/* lk_init returns the node that it was given, and changes that layer alone. */
static void test_one_layer(void **arg)
{
    network n = make_network();
    lk_node same = lk_init(n.graph, n.conv, "kaiming_normal");
    assert_int_equal(same.index, n.conv.index);
    lk_state *state = draw(n.graph, 5);
    expect_normal(values_of(state, "conv.weight"), 2.0 / CONV_FAN_IN);
    expect_uniform(values_of(state, "fc.weight"), 1 / sqrt(OUT));
    lk_state_destroy(state);
    lk_graph_destroy(n.graph);
}

/* After a return to the default all bits are as without a policy. */
static void test_default_is_default(void **arg)
{
    network n = make_network();
    lk_state *before = draw(n.graph, 5);
    uint64_t hash = lk__graph_hash(n.graph);
    lk_init_all(n.graph, "normal:std=1,zero_bias");
    assert_true(lk__graph_hash(n.graph) != hash);
    lk_init_all(n.graph, "default");
    assert_true(lk__graph_hash(n.graph) == hash);
    lk_state *after = draw(n.graph, 5);
    assert_true(lk_state_hash(before) == lk_state_hash(after));
    lk_state_destroy(after);
    lk_state_destroy(before);
    lk_graph_destroy(n.graph);
}

/* The hash of a graph depends on its policies: ranks compare it. */
static void test_hash_tells_policies(void **arg)
{
    uint64_t hashes[sizeof rows / sizeof *rows];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        network n = make_network();
        lk_init_all(n.graph, rows[i].policy);
        hashes[i] = lk__graph_hash(n.graph);
        for (size_t j = 0; j < i; j++)
            assert_true(hashes[i] != hashes[j]);
        lk_graph_destroy(n.graph);
    }
}

static void test_seeds(void **arg)
{
    network n = make_network();
    lk_init_all(n.graph, "kaiming_normal");
    lk_state *a = draw(n.graph, 5), *b = draw(n.graph, 5), *c = draw(n.graph, 6);
    assert_true(lk_state_hash(a) == lk_state_hash(b));
    assert_true(lk_state_hash(a) != lk_state_hash(c));
    lk_state_destroy(c);
    lk_state_destroy(b);
    lk_state_destroy(a);
    lk_graph_destroy(n.graph);
}

/* An element depends on its address only, not on the number of elements. */
static void test_address(void **arg)
{
    static const size_t widths[] = {WIDE, WIDE - 1, 1};
    sample first = {0};
    lk_state *states[3];
    for (size_t i = 0; i < 3; i++) {
        lk_graph *graph;
        assert_int_equal(lk_graph_create(&graph), LK_OK);
        lk_init(graph, lk_linear(graph, lk_input(graph, 7, 1, 1), "fc", widths[i]), "normal:std=1");
        states[i] = draw(graph, 9);
        sample s = values_of(states[i], "fc.weight");
        first = i ? first : s;
        assert_memory_equal(s.values, first.values, s.count * sizeof(float));
        lk_graph_destroy(graph);
    }
    for (size_t i = 0; i < 3; i++)
        lk_state_destroy(states[i]);
}

/* The weights have the same hash on every machine. */
static void test_bits(void **arg)
{
    static const struct {
        const char *policy;
        uint64_t hash;
    } cases[] = {
        {"default", 0xed88af43ad3932b6},
        {"normal:std=1", 0x0277b9f5f748294b},
        {"kaiming_normal:fan_out", 0x69e32203732136b9},
        {"xavier_uniform", 0x924314b867d98998},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        network n = make_network();
        lk_init_all(n.graph, cases[i].policy);
        lk_state *state = draw(n.graph, 2020);
        sample s = values_of(state, "conv.weight");
        uint64_t hash = lk__hash(s.values, s.count * sizeof(float), 0);
        if (hash != cases[i].hash)
            fail_msg("%s: the weights' hash is %016llx", cases[i].policy, (unsigned long long)hash);
        lk_state_destroy(state);
        lk_graph_destroy(n.graph);
    }
}

static void test_mistakes(void **arg)
{
    enum { ALL, AT_CONV, AT_BN, AT_NO_NODE };
    static const struct {
        int where;
        const char *policy, *words;
    } cases[] = {
        {ALL, "kaiming", "no policy 'kaiming'"},
        {ALL, "xavier_normal:fan_out", "no parameter 'fan_out'"},
        {AT_CONV, "default:zero_bias", "none can be set here"},
        {ALL, "normal:std=-1", "out of range"},
        {ALL, "normal:std", "needs a value"},
        {AT_BN, "kaiming_normal", "neither a convolution nor a linear layer"},
        {AT_NO_NODE, "kaiming_normal", "not a node of this graph"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        network n = make_network();
        const lk_node nodes[] = {[AT_CONV] = n.conv, [AT_BN] = n.bn, [AT_NO_NODE] = {.index = 77}};
        lk_cross_entropy(n.graph, n.linear);
        if (cases[i].where == ALL)
            lk_init_all(n.graph, cases[i].policy);
        else
            lk_init(n.graph, nodes[cases[i].where], cases[i].policy);
        assert_fails(lk_graph_check(n.graph), LK_STATUS_USAGE, cases[i].words);
        lk_graph_destroy(n.graph);
    }
}

TEST_MAIN(NULL, NULL, TEST(test_threads), TEST(test_policies), TEST(test_one_layer), TEST(test_default_is_default),
          TEST(test_hash_tells_policies), TEST(test_seeds), TEST(test_address), TEST(test_bits), TEST(test_mistakes))
