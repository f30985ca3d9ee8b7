/* test_recorded.c - steps that are sent before the results of earlier ones are there,
 * on a device that records: the same bits as one by one. */
#include "law.h"

#include <math.h>

#include "tape.h"

static lk_device_type tape;

static lk_status tape_open(const lk_device_opts *opts, lk_device **out)
{
    LK_TRY(lk__device_cpu.open(opts, out));
    (*out)->type = &tape;
    return LK_OK;
}

static int add_tape(void **state)
{
    (void)state;
    tape = lk__device_cpu;
    tape.name = "tape";
    tape.open = tape_open;
    tape_extend(&tape);
    return lk__device_add(&tape) == LK_OK ? 0 : -1;
}

enum { STEPS = 12, MOST = 24, FLOATS = 784 };

static const law_case cases[] = {
    {.model = "cnn", .shape = {1, 28, 28, 10}, .optimizer = "adadelta", .lr = 1, .batch = MOST, .shards = 4},
    {.model = "resnet20", .shape = {3, 16, 16, 10}, .optimizer = "sgd:momentum=.9", .lr = .1, .batch = 16, .shards = 3},
    {.model = "resnet20",
     .shape = {3, 16, 16, 10},
     .bn = LK_BN_SHARD,
     .optimizer = "adam",
     .lr = .01,
     .batch = 16,
     .shards = 4,
     .label_smoothing = .1},
};

/* Batches, and what came of them. */
typedef struct history {
    float x[STEPS][MOST * FLOATS];
    int32_t labels[STEPS][MOST];
    uint32_t ids[STEPS][MOST];
    lk_batch batches[STEPS];
    lk_metrics metrics[STEPS];
} history;

static lk_engine *make_engine(const law_case *c, const char *device)
{
    lk_engine *engine;
    lk_engine_opts opts = law_opts(c, &(law_way){.threads = 1});
    opts.device = device;
    law_require(law_create(c, &opts, &engine));
    return engine;
}

static void make_batches(const law_case *c, history *h)
{
    for (int i = 0; i < STEPS; i++)
        law_batch(c, i, h->x[i], h->labels[i], h->ids[i], &h->batches[i]);
}

static uint64_t hash_of(const lk_engine *engine)
{
    lk_state *state, *optimizer;
    law_require(lk_engine_state(engine, &state));
    law_require(lk_engine_optimizer_state(engine, &optimizer));
    uint64_t hash = lk_state_hash(state) ^ lk_state_hash(optimizer);
    lk_state_destroy(optimizer);
    lk_state_destroy(state);
    return hash;
}

static void run_one_by_one(lk_engine *engine, history *h)
{
    for (int i = 0; i < STEPS; i++)
        law_require(lk_engine_step(engine, &h->batches[i], &h->metrics[i]));
}

/* Returns the most steps that were under way. */
static int run_ahead(lk_engine *engine, const history *h)
{
    int most = 0;
    for (int received = 0, sent = 0; received < STEPS; received++) {
        lk_metrics metrics;
        while (sent == received || (sent < STEPS && lk_engine_can_send(engine, h->batches[sent].count)))
            law_require(lk_engine_send(engine, &h->batches[sent++]));
        most = sent - received > most ? sent - received : most;
        law_require(lk_engine_receive(engine, &metrics));
        assert_memory_equal(&metrics, &h->metrics[received], sizeof metrics);
    }
    return most;
}

static void test_same_bits(void **state)
{
    history *h = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lk_engine *alone = make_engine(&cases[i], "cpu"), *ahead = make_engine(&cases[i], "tape");
        make_batches(&cases[i], h);
        run_one_by_one(alone, h);
        tape_recorded = tape_played = 0;
        assert_int_equal(run_ahead(ahead, h), lk_engine_depth(ahead));
        assert_int_equal(hash_of(ahead), hash_of(alone));
        /* Whole batches, halves; the single sample comes once and is not recorded. */
        assert_int_equal(tape_recorded, 2);
        assert_int_equal(tape_played, STEPS - 3);
        assert_int_equal(lk_engine_depth(alone), 1);
        lk_engine_destroy(alone);
        lk_engine_destroy(ahead);
    }
}

/* What is not finite stops the steps behind it, too, and all can go on from there. */
static void check_nonfinite(const law_case *c, history *h, float value, const char *text)
{
    lk_metrics metrics;
    lk_engine *alone = make_engine(c, "cpu"), *ahead = make_engine(c, "tape");
    make_batches(c, h);
    for (int i = 0; i < 2; i++) {
        law_require(lk_engine_step(alone, &h->batches[i], &metrics));
        law_require(lk_engine_step(ahead, &h->batches[i], &metrics));
    }
    h->x[2][5] = value;
    for (int i = 1; i < 4; i++)
        law_require(lk_engine_send(ahead, &h->batches[i]));
    law_require(lk_engine_step(alone, &h->batches[1], &metrics));
    law_require(lk_engine_receive(ahead, &metrics));
    assert_int_equal(lk_engine_receive(ahead, &metrics), LK_STATUS_NONFINITE);
    assert_non_null(strstr(lk_error_detail(), text));
    assert_int_equal(lk_engine_steps(ahead), 3);
    assert_int_equal(hash_of(ahead), hash_of(alone));
    assert_int_equal(lk_engine_receive(ahead, &metrics), LK_STATUS_USAGE);
    law_require(lk_engine_step(alone, &h->batches[3], &metrics));
    law_require(lk_engine_step(ahead, &h->batches[3], &metrics));
    assert_int_equal(hash_of(ahead), hash_of(alone));
    lk_engine_destroy(alone);
    lk_engine_destroy(ahead);
}

static void test_nonfinite(void **state)
{
    static const law_case steep = {
        .model = "steep", .shape = {1, 4, 4, 10}, .optimizer = "sgd", .lr = 1e-60, .batch = 16, .shards = 3};
    check_nonfinite(&cases[1], *state, NAN, "step 4: the loss of sample 32 (shard 0) is ");
    check_nonfinite(&steep, *state, 1e20f, "step 4: the gradient of first.weight is not finite");
}

/* A weight that is not finite is named, not the loss that follows from it. */
static void test_nonfinite_weight(void **arg)
{
    history *h = *arg;
    lk_metrics metrics;
    lk_state *state;
    lk_engine *ahead = make_engine(&cases[0], "tape");
    make_batches(&cases[0], h);
    for (int i = 0; i < 2; i++)
        law_require(lk_engine_step(ahead, &h->batches[i], &metrics));
    law_require(lk_engine_state(ahead, &state));
    ((float *)lk_state_find(state, "conv2.weight")->data)[77] = NAN;
    law_require(lk_engine_set_state(ahead, state));
    lk_state_destroy(state);
    law_require(lk_engine_send(ahead, &h->batches[2]));
    assert_int_equal(lk_engine_receive(ahead, &metrics), LK_STATUS_NONFINITE);
    assert_non_null(strstr(lk_error_detail(), "step 3: before the step conv2.weight has a value that is not finite"));
    lk_engine_destroy(ahead);
}

/* Calls that would see a state between two steps. */
static void test_order_of_calls(void **state)
{
    history *h = *state;
    lk_metrics metrics;
    lk_engine *engine = make_engine(&cases[0], "tape");
    make_batches(&cases[0], h);
    assert_int_equal(lk_engine_receive(engine, &metrics), LK_STATUS_USAGE);
    assert_true(lk_engine_can_send(engine, MOST));
    law_require(lk_engine_send(engine, &h->batches[0]));
    assert_false(lk_engine_can_send(engine, MOST));
    assert_int_equal(lk_engine_send(engine, &h->batches[1]), LK_STATUS_USAGE);
    assert_int_equal(lk_engine_step(engine, &h->batches[1], &metrics), LK_STATUS_USAGE);
    assert_int_equal(lk_engine_eval(engine, &h->batches[1], &metrics), LK_STATUS_USAGE);
    assert_int_equal(lk_engine_gradients(engine, &h->batches[1], &metrics), LK_STATUS_USAGE);
    assert_int_equal(lk_engine_update(engine), LK_STATUS_USAGE);
    assert_int_equal(lk_engine_check(engine), LK_STATUS_USAGE);
    lk_state *unread;
    assert_int_equal(lk_engine_state(engine, &unread), LK_STATUS_USAGE);
    assert_int_equal(lk_engine_optimizer_state(engine, &unread), LK_STATUS_USAGE);
    law_require(lk_engine_receive(engine, &metrics));
    law_require(lk_engine_eval(engine, &h->batches[1], &metrics));
    lk_engine_destroy(engine);
}

static int make_history(void **state)
{
    *state = malloc(sizeof(history));
    return *state ? 0 : -1;
}

static int free_history(void **state)
{
    free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_same_bits, make_history, free_history),
        cmocka_unit_test_setup_teardown(test_nonfinite, make_history, free_history),
        cmocka_unit_test_setup_teardown(test_nonfinite_weight, make_history, free_history),
        cmocka_unit_test_setup_teardown(test_order_of_calls, make_history, free_history),
    };
    return cmocka_run_group_tests(tests, add_tape, NULL);
}
