/* test_groups.c - parameter groups in an engine against PyTorch's: learning rates and weight decays of their own, and
 * frozen parameters. Losses and the gradients and the state of the last of four steps. */
#include "golden/golden.h"

enum { BATCH = 12, STEPS = 4, MAX_ROWS = 3 };

static const lk_model_shape shape = {.channels = 3, .height = 8, .width = 8, .classes = 5};
static const lk_conv2d_opts conv = {.out = 6, .kernel = 3, .pad = 1, .no_bias = true};

typedef struct group_row {
    const char *pattern; /* NULL after the last */
    lk_param_group group;
} group_row;

typedef struct group_case {
    const char *name, *optimizer;
    group_row rows[MAX_ROWS];
} group_case;

/* The same as GROUPS of tools/golden_groups.py. */
static const group_case cases[] = {
    {"sgd",
     "sgd:momentum=.9,weight_decay=.01",
     {{"*", {.lr_scale = .1}},
      {"fc.*", {.lr_scale = 1, .weight_decay = .2}},
      {"*bn?.*", {.weight_decay = LK_NO_DECAY}}}},
    {"adam",
     "adam:weight_decay=.05",
     {{"fc.*", {.lr_scale = 2}}, {"*.bias", {.lr_scale = .5, .weight_decay = LK_NO_DECAY}}}},
    {"adamw",
     "adamw:weight_decay=.1",
     {{"conv*", {.lr_scale = .25, .weight_decay = .5}}, {"*.bias", {.weight_decay = LK_NO_DECAY}}}},
    {"adadelta", "adadelta", {{"conv1.weight", {.lr_scale = 3, .weight_decay = .1}}, {"bn*", {.lr_scale = .5}}}},
    {"rmsprop", "rmsprop:momentum=.5,eps=.01", {{"conv2.*", {.lr_scale = .3, .weight_decay = .02}}}},
    {"head", "sgd:momentum=.9,weight_decay=.01", {{"*", {.frozen = true}}, {"fc.*", {.lr_scale = 2}}}},
    {"lowest", "adam", {{"conv1.*", {.frozen = true}}, {"bn1.*", {.frozen = true}}, {"bn2.*", {.lr_scale = .5}}}},
    {"middle", "sgd:momentum=.9", {{"conv2.*", {.frozen = true}}, {"bn2.*", {.frozen = true}}}},
    {"parts", "adamw", {{"*.bias", {.frozen = true}}, {"conv1.*", {.frozen = true}}}},
    {"weights", "sgd:momentum=.9", {{"*.weight", {.frozen = true}}}},
};

static lk_engine *make_engine(const group_case *row)
{
    lk_graph *g;
    lk_engine *engine;
    assert_ok(lk_graph_create(&g));
    lk_node x = lk_input(g, shape.channels, shape.height, shape.width);
    x = lk_relu(g, lk_batchnorm2d(g, lk_conv2d(g, x, "conv1", conv), "bn1"));
    lk_node y = lk_batchnorm2d(g, lk_conv2d(g, x, "conv2", conv), "bn2");
    x = lk_flatten(g, lk_global_avgpool(g, lk_relu(g, lk_add(g, y, x))));
    lk_cross_entropy(g, lk_linear(g, x, "fc", shape.classes));
    lk_engine_opts opts = {.threads = 2, .batch = BATCH, .shards = 5, .lr = .05, .optimizer = row->optimizer};
    assert_ok(lk_engine_create(g, &opts, &engine));
    lk_graph_destroy(g);
    golden_fill_engine(engine);
    for (int i = 0; i < MAX_ROWS && row->rows[i].pattern; i++)
        assert_ok(lk_engine_set_group(engine, row->rows[i].pattern, &row->rows[i].group));
    return engine;
}

static golden_batch make_batch(size_t step)
{
    char name[32];
    size_t sample = shape.channels * shape.height * shape.width;
    golden_batch batch = golden_batch_make(BATCH, shape);
    snprintf(name, sizeof name, "groups/x%zu", step);
    for (size_t i = 0; i < BATCH * sample; i++)
        batch.x[i / sample * sample + golden_nhwc(i % sample, shape)] = golden_noise(name, i);
    snprintf(name, sizeof name, "groups/labels%zu", step);
    for (size_t i = 0; i < BATCH; i++)
        batch.labels[i] = golden_label(name, i, (uint32_t)shape.classes);
    return batch;
}

static void check_end(const lk_engine *engine, const lk_state *golden, const char *name)
{
    char prefix[64];
    lk_state *state, *grads;
    snprintf(prefix, sizeof prefix, "%s/state", name);
    assert_ok(lk_engine_state(engine, &state));
    golden_compare_state(state, golden, prefix);
    snprintf(prefix, sizeof prefix, "%s/grad", name);
    assert_ok(lk_engine_grads(engine, &grads));
    golden_compare_state(grads, golden, prefix);
    lk_state_destroy(state);
    lk_state_destroy(grads);
}

static void test_groups(void **state)
{
    lk_state *golden = golden_load(LK_TESTS_DIR "/golden/data", "groups.safetensors");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        lk_engine *engine = make_engine(&cases[i]);
        const lk_state_entry *losses = golden_get(golden, cases[i].name, "losses");
        for (size_t step = 0; step < STEPS; step++) {
            lk_metrics metrics;
            golden_batch batch = make_batch(step);
            assert_ok(lk_engine_step(engine, &batch.view, &metrics));
            golden_near(losses->name, step, metrics.loss, golden_at(losses, step), golden_max(losses));
            golden_batch_free(&batch);
        }
        check_end(engine, golden, cases[i].name);
        lk_engine_destroy(engine);
    }
    lk_state_destroy(golden);
}

TEST_MAIN(NULL, NULL, TEST(test_groups))
