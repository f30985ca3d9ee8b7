/* test_embedding.c - an embedding in an engine against PyTorch: losses of three steps, gradients of the first step,
 * the last state. In the first step one row of the table has no id. */
#include "golden/golden.h"

enum { BATCH = 12, TOKENS = 7, ROWS = 9, WIDTH = 6, STEPS = 3 };

static const lk_model_shape shape = {.channels = TOKENS, .height = 1, .width = 1, .classes = 5};

static golden_batch make_batch(size_t step)
{
    char name[32];
    golden_batch batch = golden_batch_make(BATCH, shape);
    snprintf(name, sizeof name, "words/x%zu", step);
    for (size_t i = 0; i < BATCH * TOKENS; i++)
        batch.x[i] = (float)golden_label(name, i, step == 0 ? ROWS - 1 : ROWS);
    snprintf(name, sizeof name, "words/labels%zu", step);
    for (size_t i = 0; i < BATCH; i++)
        batch.labels[i] = golden_label(name, i, (uint32_t)shape.classes);
    return batch;
}

static lk_engine *make_engine(int shards)
{
    lk_graph *g;
    lk_engine *engine;
    assert_ok(lk_graph_create(&g));
    lk_node x = lk_embedding(g, lk_input(g, TOKENS, 1, 1), "words", ROWS, WIDTH);
    x = lk_tanh(g, lk_linear(g, x, "up", 8));
    lk_cross_entropy(g, lk_linear(g, lk_global_avgpool(g, x), "fc", shape.classes));
    lk_engine_opts opts = {
        .threads = 2, .batch = BATCH, .shards = shards, .lr = 0.5, .optimizer = "sgd:momentum=.9,weight_decay=.01"};
    assert_ok(lk_engine_create(g, &opts, &engine));
    lk_graph_destroy(g);
    golden_fill_engine(engine);
    return engine;
}

static void check_state(const lk_engine *engine, const lk_state *golden, bool grads)
{
    lk_state *state;
    assert_ok(grads ? lk_engine_grads(engine, &state) : lk_engine_state(engine, &state));
    golden_compare_state(state, golden, grads ? "words/grad" : "words/state");
    lk_state_destroy(state);
}

static void run(const lk_state *golden, int shards)
{
    lk_engine *engine = make_engine(shards);
    const lk_state_entry *losses = golden_get(golden, "words", "losses");
    for (size_t step = 0; step < STEPS; step++) {
        lk_metrics metrics;
        golden_batch batch = make_batch(step);
        assert_ok(lk_engine_step(engine, &batch.view, &metrics));
        golden_near(losses->name, step, metrics.loss, golden_at(losses, step), golden_max(losses));
        if (step == 0)
            check_state(engine, golden, true);
        golden_batch_free(&batch);
    }
    check_state(engine, golden, false);
    lk_engine_destroy(engine);
}

static void test_embedding(void **state)
{
    lk_state *golden = golden_load(LK_TESTS_DIR "/golden/data", "embedding.safetensors");
    run(golden, 0);
    run(golden, 1);
    run(golden, 5);
    lk_state_destroy(golden);
}

TEST_MAIN(NULL, NULL, TEST(test_embedding))
