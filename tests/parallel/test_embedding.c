/* test_embedding.c - ids that are none: an error of the step or evaluation that names sample and value, and changes
 * nothing; behind another layer a NaN, which the step finds. bf16 cannot hold ids. */
#include <math.h>

#include "law.h"
#include "tensor/device.h"

enum { TOKENS = 4, ROWS = 10, BATCH = 6 };

typedef struct batch_of_ids {
    float x[BATCH * TOKENS];
    int32_t labels[BATCH];
    uint32_t ids[BATCH];
    lk_batch view;
} batch_of_ids;

static void fill(batch_of_ids *b)
{
    *b = (batch_of_ids){0};
    for (size_t i = 0; i < BATCH * TOKENS; i++)
        b->x[i] = (float)(i * 7 % ROWS);
    for (uint32_t i = 0; i < BATCH; i++)
        b->ids[i] = 100 + i;
    b->view = (lk_batch){.count = BATCH, .sample_floats = TOKENS, .x = b->x, .labels = b->labels, .ids = b->ids};
}

static lk_status create(bool behind, const char *device, lk_engine **out)
{
    lk_graph *g;
    LK_TRY(lk_graph_create(&g));
    lk_node x = lk_input(g, TOKENS, 1, 1);
    if (behind)
        x = lk_reshape(g, x, 1, TOKENS, 1);
    x = lk_embedding(g, x, "words", ROWS, 5);
    lk_cross_entropy(g, lk_linear(g, lk_global_avgpool(g, x), "fc", 3));
    lk_engine_opts opts = {.batch = BATCH, .lr = 0.1, .device = device};
    lk_status status = lk_engine_create(g, &opts, out);
    lk_graph_destroy(g);
    return status;
}

static void test_wrong_ids(void **arg)
{
    static const struct {
        float value;
        const char *text;
    } cases[] = {{ROWS, "is 10;"}, {-1, "is -1;"}, {2.5f, "is 2.5;"}, {NAN, "nan;"}, {INFINITY, "is inf;"}};
    lk_engine *engine;
    batch_of_ids b;
    lk_metrics metrics;
    assert_ok(create(false, NULL, &engine));
    uint64_t before = law_hash(engine);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        fill(&b);
        b.x[2 * TOKENS + 3] = cases[i].value;
        assert_fails(lk_engine_step(engine, &b.view, &metrics), LK_STATUS_MISMATCH, "sample 102: its value 3");
        assert_contains(lk_error_detail(), cases[i].text);
        assert_contains(lk_error_detail(), "embedding 'words' takes ids: whole numbers from 0 to 9");
        assert_fails(lk_engine_eval(engine, &b.view, &metrics), LK_STATUS_MISMATCH, "sample 102: its value 3");
    }
    assert_true(law_hash(engine) == before);
    fill(&b);
    assert_ok(lk_engine_step(engine, &b.view, &metrics));
    assert_true(law_hash(engine) != before);
    lk_engine_destroy(engine);
}

static void test_behind_a_layer(void **arg)
{
    lk_engine *engine;
    batch_of_ids b;
    lk_metrics metrics;
    assert_ok(create(true, NULL, &engine));
    uint64_t before = law_hash(engine);
    fill(&b);
    b.x[2 * TOKENS + 3] = ROWS;
    assert_fails(lk_engine_step(engine, &b.view, &metrics), LK_STATUS_NONFINITE, "102");
    assert_true(law_hash(engine) == before);
    lk_engine_destroy(engine);
}

static void test_nan_weight(void **arg)
{
    lk_engine *engine;
    lk_state *state;
    batch_of_ids b;
    lk_metrics metrics;
    fill(&b);
    assert_ok(create(false, NULL, &engine));
    assert_ok(lk_engine_state(engine, &state));
    ((float *)lk_state_find(state, "words.weight")->data)[7 * 5 + 2] = NAN;
    assert_ok(lk_engine_set_state(engine, state));
    assert_fails(lk_engine_step(engine, &b.view, &metrics), LK_STATUS_NONFINITE, "words.weight");
    lk_state_destroy(state);
    lk_engine_destroy(engine);
}

/* The CPU with another value type. */
static lk_device_type half_type;

static lk_status half_open(const lk_device_opts *opts, lk_device **out)
{
    LK_TRY(lk__device_cpu.open(opts, out));
    (*out)->type = &half_type;
    (*out)->values = LK_DTYPE_BF16;
    return LK_OK;
}

static void test_bf16(void **arg)
{
    lk_engine *engine;
    half_type = lk__device_cpu;
    half_type.name = "half";
    half_type.open = half_open;
    assert_ok(lk__device_add(&half_type));
    assert_fails(create(false, "half", &engine), LK_STATUS_UNSUPPORTED, "embedding 'words': bf16");
}

TEST_MAIN(NULL, NULL, TEST(test_wrong_ids), TEST(test_behind_a_layer), TEST(test_nan_weight), TEST(test_bf16))
