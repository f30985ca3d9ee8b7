/* test_graphs.c - small graphs in an engine against PyTorch: losses of three steps, gradients of the first step,
 * the last state with its running statistics, and the loss in evaluation. Every op is in one of the graphs. */
#include "golden/golden.h"

enum { BATCH = 12, STEPS = 3 };

static const lk_model_shape shape = {.channels = 3, .height = 8, .width = 8, .classes = 5};

static void build_plain(lk_graph *g, lk_node x)
{
    x = lk_relu(g, lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 4, .kernel = 3}));
    x = lk_flatten(g, lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 2}));
    lk_cross_entropy(g, lk_linear(g, x, "fc", shape.classes));
}

static void build_strided(lk_graph *g, lk_node x)
{
    x = lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 7, .kernel = 5, .stride = 2, .pad = 2, .no_bias = true});
    x = lk_relu(g, lk_batchnorm2d(g, x, "bn1"));
    x = lk_conv2d(g, x, "conv2", (lk_conv2d_opts){.out = 9, .kernel = 1, .stride = 2});
    x = lk_linear(g, lk_flatten(g, lk_global_avgpool(g, x)), "fc", shape.classes);
    lk_nll_loss(g, lk_log_softmax(g, x));
}

static void build_overlap(lk_graph *g, lk_node x)
{
    x = lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 5, .kernel = 3, .pad = 1});
    x = lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 3, .stride = 2, .pad = 1});
    lk_cross_entropy(g, lk_linear(g, lk_flatten(g, x), "fc", shape.classes));
}

static void build_features(lk_graph *g, lk_node x)
{
    x = lk_relu(g, lk_linear(g, lk_flatten(g, x), "fc1", 20));
    x = lk_linear(g, lk_dropout(g, x, 0), "fc2", shape.classes);
    lk_nll_loss(g, lk_log_softmax(g, x));
}

static void build_residual(lk_graph *g, lk_node x)
{
    lk_conv2d_opts conv = {.out = 6, .kernel = 3, .pad = 1, .no_bias = true};
    x = lk_relu(g, lk_batchnorm2d(g, lk_conv2d(g, x, "conv1", conv), "bn1"));
    lk_node y = lk_batchnorm2d(g, lk_conv2d(g, x, "conv2", conv), "bn2");
    x = lk_flatten(g, lk_global_avgpool(g, lk_relu(g, lk_add(g, y, x))));
    lk_cross_entropy(g, lk_linear(g, x, "fc", shape.classes));
}

static void build_gated(lk_graph *g, lk_node x)
{
    lk_conv2d_opts conv = {.out = 6, .kernel = 1};
    x = lk_groupnorm(g, lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 8, .kernel = 3, .stride = 2}), "norm", 2);
    x = lk_gelu_tanh(g, x);
    lk_node value = lk_tanh(g, lk_conv2d(g, x, "value", conv));
    lk_node gate = lk_sigmoid(g, lk_conv2d(g, x, "gate", conv));
    conv.out = 3;
    lk_node gated = lk_mul(g, value, gate), side = lk_silu(g, lk_conv2d(g, x, "side", conv));
    x = lk_concat(g, gated, side);
    lk_node mean = lk_global_avgpool(g, x), most = lk_global_maxpool(g, x);
    x = lk_concat(g, mean, most);
    lk_cross_entropy(g, lk_linear(g, x, "fc", shape.classes));
}

/* 16 tokens of 8 features as two heads of 4. */
static lk_node heads(lk_graph *g, lk_node x)
{
    return lk_transpose(g, lk_reshape(g, x, 16, 2, 4), 1, 2);
}

static void build_transformer(lk_graph *g, lk_node x)
{
    x = lk_conv2d(g, x, "patches", (lk_conv2d_opts){.out = 8, .kernel = 2, .stride = 2});
    x = lk_reshape(g, x, 1, 16, 8);
    lk_node y = lk_layernorm(g, x, "norm1");
    lk_node query = heads(g, lk_linear(g, y, "query", 8)), key = heads(g, lk_tanh(g, lk_linear(g, y, "key", 8)));
    lk_node value = heads(g, lk_linear(g, y, "value", 8));
    y = lk_matmul(g, lk_softmax(g, lk_matmul(g, query, lk_transpose(g, key, 2, 3))), value);
    y = lk_reshape(g, lk_transpose(g, y, 1, 2), 1, 16, 8);
    x = lk_add(g, x, lk_linear(g, y, "out", 8));
    y = lk_gelu(g, lk_linear(g, lk_layernorm(g, x, "norm2"), "up", 12));
    x = lk_add(g, x, lk_linear(g, y, "down", 8));
    lk_cross_entropy(g, lk_linear(g, lk_global_avgpool(g, x), "fc", shape.classes));
}

static void build_upsampled(lk_graph *g, lk_node x)
{
    x = lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 6, .kernel = 3, .stride = 2});
    x = lk_conv_transpose2d(g, x, "up1",
                            (lk_conv_transpose2d_opts){.out = 8, .kernel = 3, .stride = 2, .pad = 1, .out_pad = 1});
    x = lk_conv_transpose2d(g, lk_relu(g, x), "up2",
                            (lk_conv_transpose2d_opts){.out = 4, .kernel = 2, .groups = 2, .no_bias = true});
    lk_cross_entropy(g, lk_linear(g, lk_flatten(g, x), "fc", shape.classes));
}

static void build_rectangular(lk_graph *g, lk_node x)
{
    x = lk_relu(g, lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 6, .kernel = 1, .kernel_w = 7, .pad_w = 3}));
    lk_conv2d_opts dilated = {.out = 6, .kernel = 3, .kernel_w = 2, .pad = 2, .pad_w = 1, .dilation = 2};
    dilated.dilation_w = 3;
    dilated.groups = 6;
    x = lk_conv2d(g, x, "conv2", dilated);
    x = lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 2, .stride = 2, .stride_w = 1});
    lk_conv_transpose2d_opts up = {.out = 8, .kernel = 2, .kernel_w = 3, .stride = 2, .stride_w = 1, .pad_w = 1};
    up.out_pad = 1;
    up.out_pad_w = LK_ZERO_PAD;
    up.dilation_w = 2;
    x = lk_relu(g, lk_conv_transpose2d(g, x, "up", up));
    lk_conv2d_opts tall = {.out = 4, .kernel = 5, .kernel_w = 1, .stride = 2, .stride_w = 1, .pad = 2, .groups = 2};
    tall.pad_w = LK_ZERO_PAD;
    x = lk_conv2d(g, x, "conv3", tall);
    x = lk_avgpool2d(g, x, (lk_avgpool2d_opts){.kernel = 3, .kernel_w = 1, .ceil = true});
    lk_cross_entropy(g, lk_linear(g, lk_flatten(g, x), "fc", shape.classes));
}

typedef struct graph_case {
    const char *name;
    void (*build)(lk_graph *graph, lk_node x);
    lk_bn_mode bn;
    int shards; /* 0: the default, which is more than the samples of a batch */
} graph_case;

static const graph_case cases[] = {
    {"plain", build_plain, LK_BN_MODE_BATCH, 0},       {"strided", build_strided, LK_BN_MODE_BATCH, 5},
    {"overlap", build_overlap, LK_BN_MODE_BATCH, 4},   {"features", build_features, LK_BN_MODE_BATCH, 7},
    {"residual", build_residual, LK_BN_MODE_BATCH, 0}, {"residual_shard", build_residual, LK_BN_MODE_SHARD, 3},
};

/* The golden values of these are in another file. */
static const graph_case layer_cases[] = {
    {"gated", build_gated, LK_BN_MODE_BATCH, 5},
    {"transformer", build_transformer, LK_BN_MODE_BATCH, 0},
    {"upsampled", build_upsampled, LK_BN_MODE_BATCH, 7},
};

static golden_batch make_batch(size_t step)
{
    char name[32];
    size_t sample = shape.channels * shape.height * shape.width;
    golden_batch batch = golden_batch_make(BATCH, shape);
    snprintf(name, sizeof name, "graph/x%zu", step);
    for (size_t i = 0; i < BATCH * sample; i++)
        batch.x[i / sample * sample + golden_nhwc(i % sample, shape)] = golden_noise(name, i);
    snprintf(name, sizeof name, "graph/labels%zu", step);
    for (size_t i = 0; i < BATCH; i++)
        batch.labels[i] = golden_label(name, i, (uint32_t)shape.classes);
    return batch;
}

static lk_engine *make_engine(const graph_case *row)
{
    lk_graph *graph;
    lk_engine *engine;
    assert_ok(lk_graph_create(&graph));
    row->build(graph, lk_input(graph, shape.channels, shape.height, shape.width));
    lk_engine_opts opts = {.threads = 2,
                           .batch = BATCH,
                           .shards = row->shards,
                           .bn = row->bn,
                           .lr = 0.05,
                           .optimizer = "sgd:momentum=.9,weight_decay=.01"};
    assert_ok(lk_engine_create(graph, &opts, &engine));
    lk_graph_destroy(graph);
    golden_fill_engine(engine);
    return engine;
}

static void check_grads(const lk_engine *engine, const lk_state *golden, const char *name)
{
    char prefix[64];
    lk_state *grads;
    snprintf(prefix, sizeof prefix, "%s/grad", name);
    assert_ok(lk_engine_grads(engine, &grads));
    golden_compare_state(grads, golden, prefix);
    lk_state_destroy(grads);
}

static void check_end(lk_engine *engine, const lk_state *golden, const char *name, const lk_batch *batch)
{
    char prefix[64];
    lk_state *state;
    lk_metrics metrics;
    snprintf(prefix, sizeof prefix, "%s/state", name);
    assert_ok(lk_engine_state(engine, &state));
    golden_compare_state(state, golden, prefix);
    lk_state_destroy(state);
    assert_ok(lk_engine_eval(engine, batch, &metrics));
    const lk_state_entry *truth = golden_get(golden, name, "eval_loss");
    golden_near(truth->name, 0, metrics.loss, golden_at(truth, 0), golden_max(truth));
}

static void run_case(const graph_case *row, const lk_state *golden)
{
    lk_engine *engine = make_engine(row);
    const lk_state_entry *losses = golden_get(golden, row->name, "losses");
    for (size_t step = 0; step < STEPS; step++) {
        lk_metrics metrics;
        golden_batch batch = make_batch(step);
        assert_ok(lk_engine_step(engine, &batch.view, &metrics));
        golden_near(losses->name, step, metrics.loss, golden_at(losses, step), golden_max(losses));
        if (step == 0)
            check_grads(engine, golden, row->name);
        if (step == STEPS - 1)
            check_end(engine, golden, row->name, &batch.view);
        golden_batch_free(&batch);
    }
    lk_engine_destroy(engine);
}

static void test_graphs(void **state)
{
    lk_state *golden = golden_load(LK_TESTS_DIR "/golden/data", "graphs.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_case(&cases[i], golden);
    lk_state_destroy(golden);
}

static void test_layer_graphs(void **state)
{
    lk_state *golden = golden_load(LK_TESTS_DIR "/golden/data", "layer_graphs.safetensors");
    for (size_t i = 0; i < sizeof layer_cases / sizeof *layer_cases; i++)
        run_case(&layer_cases[i], golden);
    lk_state_destroy(golden);
}

static void test_window_graphs(void **state)
{
    static const graph_case window_case = {"rectangular", build_rectangular, LK_BN_MODE_BATCH, 5};
    lk_state *golden = golden_load(LK_TESTS_DIR "/golden/data", "window_graphs.safetensors");
    run_case(&window_case, golden);
    lk_state_destroy(golden);
}

TEST_MAIN(NULL, NULL, TEST(test_graphs), TEST(test_layer_graphs), TEST(test_window_graphs))
