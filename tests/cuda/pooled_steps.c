/* pooled_steps.c - steps and evaluations of small networks in which batch normalisations have a max pooling behind
 * them, on the device under test: the same bits where a kernel computes both and where they are apart, because a node
 * between them is an output. */
#include "cuda/outcome.h"

/* Convolution, "bn1", perhaps a ReLU "relu1", pooling "pool1", perhaps a dropout; the same with 2x2 windows, "bn2" and
 * "relu2", perhaps in a block with a shortcut; a linear layer. */
typedef struct network {
    law_case c;
    size_t first, second; /* channels of the convolutions */
    lk_maxpool2d_opts pool;
    bool relu, dropout, shortcut;
    bool frozen; /* the first convolution and normalisation */
    size_t micro_batch;
} network;

static lk_node named(lk_graph *g, lk_node x, const char *name)
{
    return lk_name(g, x, name);
}

static lk_node make_layers(const network *n, lk_graph *g)
{
    lk_conv2d_opts conv = {.out = n->first, .kernel = 3, .pad = 1};
    lk_node x = lk_input(g, n->c.shape.channels, n->c.shape.height, n->c.shape.width);
    x = lk_batchnorm2d(g, lk_conv2d(g, x, "conv1", conv), "bn1");
    if (n->relu)
        x = named(g, lk_relu(g, x), "relu1");
    x = named(g, lk_maxpool2d(g, x, n->pool), "pool1");
    if (n->dropout)
        x = lk_dropout(g, x, 0.25);
    if (n->shortcut) {
        conv.out = n->first;
        lk_node y = lk_batchnorm2d(g, lk_conv2d(g, x, "conv_a", conv), "bn_a");
        x = lk_relu(g, lk_add(g, y, lk_batchnorm2d(g, lk_conv2d(g, x, "conv_b", conv), "bn_b")));
    }
    conv.out = n->second;
    x = named(g, lk_relu(g, lk_batchnorm2d(g, lk_conv2d(g, x, "conv2", conv), "bn2")), "relu2");
    x = named(g, lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 2}), "pool2");
    return lk_cross_entropy(g, lk_linear(g, lk_flatten(g, x), "fc", n->c.shape.classes));
}

static lk_engine *make_network(const network *n, const char *outputs)
{
    lk_graph *graph;
    lk_engine *engine;
    lk_engine_opts opts = law_opts(&n->c, &(law_way){.threads = 1, .micro_batch = n->micro_batch});
    lk_param_group frozen = {.frozen = true};
    opts.device = fx_name();
    opts.precision = precision;
    opts.outputs = outputs;
    law_require(lk_graph_create(&graph));
    (void)make_layers(n, graph);
    law_require(lk_engine_create(graph, &opts, &engine));
    lk_graph_destroy(graph);
    if (n->frozen) {
        law_require(lk_engine_set_group(engine, "conv1.*", &frozen));
        law_require(lk_engine_set_group(engine, "bn1.*", &frozen));
    }
    return engine;
}

/* The results of a network; scores are those of a few more samples than a batch. */
typedef struct network_results {
    outcome o;
    float *scores;
    size_t floats;
} network_results;

static network_results run_network(const network *n, const char *outputs)
{
    network_results r = {0};
    law_samples s;
    lk_engine *engine = make_network(n, outputs);
    law_require(lk_engine_state(engine, &r.o.first));
    for (int i = 0; i < n->c.steps; i++)
        keep_step(engine, &n->c, i, AT_ONCE, &r.o);
    lk_batch batch = law_samples_only(&n->c, n->c.batch + 3, &s);
    r.floats = (n->c.batch + 3) * lk_engine_output_floats(engine, NULL);
    r.scores = new_floats(r.floats);
    law_require(lk_engine_forward(engine, &batch, r.scores));
    law_samples_free(&s);
    finish(engine, &n->c, &r.o);
    return r;
}

static void free_results(network_results *r)
{
    outcome_free(&r->o);
    free(r->scores);
}

/* A case of steps with a batch, shards and a mode of the normalisation; every fifth step has half a batch. */
#define STEPS(channels, height, width, batch_, shards_, mode)                                                      \
    {                                                                                                              \
        NULL, {channels, height, width, 10}, mode, "sgd:momentum=.9", 0.02, 3, .batch = batch_, .shards = shards_, \
                                                                               .first = 3                          \
    }

static const network networks[] = {
    {STEPS(3, 16, 16, 33, 4, LK_BN_MODE_BATCH), 8, 20, {.kernel = 2}, .relu = true},
    {STEPS(3, 15, 13, 12, 5, LK_BN_MODE_SHARD), 3, 8, {.kernel = 2}, .relu = true, .micro_batch = 3},
    {STEPS(1, 11, 9, 9, 1, LK_BN_MODE_BATCH), 20, 3, {.kernel = 2, .ceil = true}, .dropout = true},
    {STEPS(3, 16, 18, 20, 16, LK_BN_MODE_BATCH),
     64,
     16,
     {.kernel = 3, .stride = 2, .pad = 1},
     .relu = true,
     .shortcut = true},
    {STEPS(3, 17, 15, 17, 4, LK_BN_MODE_SHARD),
     20,
     24,
     {.kernel = 3, .stride = 2, .pad = 1},
     .relu = true,
     .dropout = true,
     .micro_batch = 6},
    {STEPS(1, 13, 14, 1, 1, LK_BN_MODE_BATCH), 8, 3, {.kernel = 3, .stride = 2}, .shortcut = true},
    {STEPS(3, 12, 12, 8, 2, LK_BN_MODE_BATCH), 16, 8, {.kernel = 2}, .relu = true, .frozen = true},
};

static void check_network(const network *n)
{
    const char *const apart[] = {n->relu ? "relu1,relu2" : "bn1,relu2", "bn1,pool2"};
    char what[64];
    network_results want = run_network(n, NULL);
    for (size_t i = 0; i < COUNT_OF(apart); i++) {
        network_results got = run_network(n, apart[i]);
        snprintf(what, sizeof what, "network %zu, outputs %s", (size_t)(n - networks), apart[i]);
        same_outcomes(what, &got.o, &want.o);
        fx_same(what, got.scores, want.scores, want.floats);
        free_results(&got);
    }
    free_results(&want);
}

static void test_networks(void **state)
{
    for (size_t i = 0; i < COUNT_OF(networks); i++)
        check_network(&networks[i]);
}

int main(void)
{
    return fx_main(TESTS(TEST(test_networks)), FX_FP32 | FX_TF32 | FX_BF16);
}
