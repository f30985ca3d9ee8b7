/* test_losses.c - losses of float targets, weights of classes and of samples against PyTorch: the loss of a batch, its
 * errors, the sum of the weights and the gradients, through the engine. tools/golden_losses.py makes the values. */
#include "golden/golden.h"

enum { N = 9, FEATURES = 7, OUT = 6, CHANNELS = 2, HEIGHT = 5, WIDTH = 4, IMAGE = CHANNELS * HEIGHT * WIDTH };

/* What the values of a case are made from. */
typedef struct inputs {
    float x[N * FEATURES], targets[N * OUT], classes[OUT], weights[N];
    int32_t labels[N];
    uint32_t ids[N];
} inputs;

/* Fills count values with the noise of "name/key"; absolute: their absolute values. */
static void fill(float *to, size_t count, const char *name, const char *key, bool absolute)
{
    char full[64];
    snprintf(full, sizeof full, "%s/%s", name, key);
    for (size_t i = 0; i < count; i++)
        to[i] = absolute ? fabsf(golden_noise(full, i)) : golden_noise(full, i);
}

static void fill_inputs(inputs *in, const char *name)
{
    char full[64];
    fill(in->x, N * FEATURES, name, "x", false);
    fill(in->targets, N * OUT, name, "targets", true);
    fill(in->classes, OUT, name, "classes", true);
    fill(in->weights, N, name, "weights", true);
    snprintf(full, sizeof full, "%s/labels", name);
    for (size_t i = 0; i < N; i++) {
        in->labels[i] = golden_label(full, i, OUT);
        in->ids[i] = (uint32_t)i;
    }
}

typedef lk_node (*build_fn)(lk_graph *graph, lk_node x);

static lk_node huber(lk_graph *graph, lk_node x)
{
    return lk_huber_loss(graph, x, 0.75);
}

static lk_node smooth_l1(lk_graph *graph, lk_node x)
{
    return lk_smooth_l1_loss(graph, x, 0.5);
}

static lk_node nll(lk_graph *graph, lk_node x)
{
    return lk_nll_loss(graph, lk_log_softmax(graph, x));
}

static const struct loss_case {
    const char *name;
    build_fn build;
    bool labels;   /* the loss learns labels */
    bool weighs;   /* the classes have weights */
    double smooth; /* label smoothing */
} cases[] = {
    {"mse", lk_mse_loss, false, false, 0},
    {"l1", lk_l1_loss, false, false, 0},
    {"huber", huber, false, false, 0},
    {"smooth_l1", smooth_l1, false, false, 0},
    {"bce", lk_bce_with_logits_loss, false, false, 0},
    {"bce_weighted", lk_bce_with_logits_loss, false, true, 0},
    {"soft", lk_soft_cross_entropy, false, false, 0},
    {"soft_weighted", lk_soft_cross_entropy, false, true, 0},
    {"soft_smooth", lk_soft_cross_entropy, false, true, 0.125},
    {"classes", lk_cross_entropy, true, true, 0},
    {"classes_smooth", lk_cross_entropy, true, true, 0.125},
    {"nll_classes", nll, true, true, 0},
};

static lk_engine *engine_of(lk_graph *graph, double smoothing)
{
    lk_engine *engine;
    lk_engine_opts opts = {.batch = N, .threads = 2, .label_smoothing = smoothing};
    assert_ok(lk_engine_create(graph, &opts, &engine));
    lk_graph_destroy(graph);
    golden_fill_engine(engine);
    return engine;
}

static void near(const lk_state *golden, const char *name, const char *key, size_t i, double got)
{
    const lk_state_entry *entry = golden_get(golden, name, key);
    golden_near(entry->name, i, got, golden_at(entry, i), golden_max(entry));
}

static void check_grads(const lk_state *golden, const char *name, const lk_engine *engine)
{
    lk_state *grads;
    assert_ok(lk_engine_grads(engine, &grads));
    assert_int_equal(lk_state_count(grads), 2);
    for (size_t k = 0; k < 2; k++) {
        const lk_state_entry *ours = lk_state_at(grads, k);
        char key[64];
        snprintf(key, sizeof key, "grad/%s", ours->name);
        assert_int_equal(golden_count(golden_get(golden, name, key)), golden_count(ours));
        for (size_t i = 0; i < golden_count(ours); i++)
            near(golden, name, key, i, golden_at(ours, i));
    }
    lk_state_destroy(grads);
}

static void check_case(const lk_state *golden, const struct loss_case *c, bool weighted)
{
    inputs in;
    lk_graph *graph;
    lk_metrics metrics;
    char name[64];
    fill_inputs(&in, c->name);
    snprintf(name, sizeof name, "%s%s", c->name, weighted ? "_samples" : "");
    assert_ok(lk_graph_create(&graph));
    lk_node loss = c->build(graph, lk_linear(graph, lk_input(graph, FEATURES, 1, 1), "fc", OUT));
    if (c->weighs)
        lk_weigh_classes(graph, loss, in.classes, OUT);
    lk_engine *engine = engine_of(graph, c->smooth);
    lk_batch batch = {.count = N, .sample_floats = FEATURES, .x = in.x, .labels = in.labels, .ids = in.ids};
    if (!c->labels) {
        batch.targets = in.targets;
        batch.target_floats = OUT;
    }
    batch.weights = weighted ? in.weights : NULL;
    assert_ok(lk_engine_gradients(engine, &batch, &metrics));
    near(golden, name, "loss", 0, metrics.loss);
    near(golden, name, "weight", 0, metrics.weight);
    check_grads(golden, name, engine);
    if (golden_find(golden, name, "errors")) {
        near(golden, name, "errors", 0, metrics.absolute_error);
        near(golden, name, "errors", 1, metrics.squared_error);
    }
    lk_engine_destroy(engine);
}

static void test_losses(void **state)
{
    lk_state *golden = golden_load(LK_TESTS_DIR "/golden/data", "losses.safetensors");
    for (size_t i = 0; i < 2 * COUNT_OF(cases); i++)
        check_case(golden, &cases[i / 2], i % 2);
    lk_state_destroy(golden);
}

/* Writes images of PyTorch's order (N, C, H, W) in the order of a batch (N, H, W, C). */
static void turn(const float *from, float *to)
{
    for (size_t i = 0; i < N * IMAGE; i++) {
        size_t n = i / IMAGE, c = i % IMAGE / (HEIGHT * WIDTH), pixel = i % (HEIGHT * WIDTH);
        to[n * IMAGE + pixel * CHANNELS + c] = from[i];
    }
}

/* The elements of an image that is a target are compared with those of the prediction at the same place. */
static void test_images(void **state)
{
    lk_state *golden = golden_load(LK_TESTS_DIR "/golden/data", "losses.safetensors");
    float noise[N * IMAGE], x[N * IMAGE], targets[N * IMAGE];
    const uint32_t ids[N] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    lk_graph *graph;
    lk_metrics metrics;
    fill(noise, N * IMAGE, "image", "x", false);
    turn(noise, x);
    fill(noise, N * IMAGE, "image", "targets", true);
    turn(noise, targets);
    assert_ok(lk_graph_create(&graph));
    lk_node input = lk_input(graph, CHANNELS, HEIGHT, WIDTH);
    lk_mse_loss(graph, lk_conv2d(graph, input, "conv", (lk_conv2d_opts){.out = CHANNELS, .kernel = 3, .pad = 1}));
    lk_engine *engine = engine_of(graph, 0);
    lk_batch batch = {.count = N, .sample_floats = IMAGE, .x = x, .ids = ids, .target_floats = IMAGE};
    batch.targets = targets;
    assert_ok(lk_engine_gradients(engine, &batch, &metrics));
    near(golden, "image", "loss", 0, metrics.loss);
    check_grads(golden, "image", engine);
    lk_engine_destroy(engine);
    lk_state_destroy(golden);
}

TEST_MAIN(NULL, NULL, TEST(test_losses), TEST(test_images))
