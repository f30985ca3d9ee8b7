/* test_own_update.c - training loops that update the weights without lk_engine_update: which calls
 * count as a step, and which random numbers a step draws. */
#include <math.h>

#include "ranks.h"
#include "tape.h"

enum { BATCH = 24, SAMPLE = 16, CLASSES = 4, STEPS = 6 };

static float x[BATCH * SAMPLE];
static int32_t labels[BATCH];
static uint32_t ids[BATCH];
static lk_device_type tape;

static lk_status tape_open(const lk_device_opts *opts, lk_device **out)
{
    LK_TRY(lk__device_cpu.open(opts, out));
    (*out)->type = &tape;
    return LK_OK;
}

static int prepare(void **state)
{
    for (int i = 0; i < BATCH * SAMPLE; i++)
        x[i] = (float)(i * 7919 % 101) / 64 - 1;
    for (int i = 0; i < BATCH; i++) {
        labels[i] = i % CLASSES;
        ids[i] = (uint32_t)i;
    }
    tape = lk__device_cpu;
    tape.name = "tape";
    tape.open = tape_open;
    tape_extend(&tape);
    return lk__device_add(&tape) == LK_OK ? 0 : -1;
}

static lk_batch whole_batch(void)
{
    return (lk_batch){.count = BATCH, .sample_floats = SAMPLE, .x = x, .labels = labels, .ids = ids};
}

/* A network with dropout. */
static lk_status create(const lk_engine_opts *opts, lk_engine **out)
{
    lk_graph *graph;
    LK_TRY(lk_graph_create(&graph));
    lk_node node = lk_relu(graph, lk_linear(graph, lk_input(graph, SAMPLE, 1, 1), "a", 32));
    lk_cross_entropy(graph, lk_linear(graph, lk_dropout(graph, node, .5), "b", CLASSES));
    lk_status status = lk_engine_create(graph, opts, out);
    lk_graph_destroy(graph);
    return status;
}

static lk_engine *make(const char *device, const char *optimizer)
{
    lk_engine *engine;
    law_require(create(
        &(lk_engine_opts){.device = device, .threads = 1, .batch = BATCH, .optimizer = optimizer, .lr = .25, .seed = 5},
        &engine));
    return engine;
}

static lk_state *copy_optimizer(const lk_engine *engine)
{
    lk_state *state;
    law_require(lk_engine_optimizer_state(engine, &state));
    return state;
}

static double loss_of_gradients(lk_engine *engine)
{
    lk_batch batch = whole_batch();
    lk_metrics metrics;
    law_require(lk_engine_gradients(engine, &batch, &metrics));
    return metrics.loss;
}

static double loss_of_step(lk_engine *engine)
{
    lk_batch batch = whole_batch();
    lk_metrics metrics;
    law_require(lk_engine_step(engine, &batch, &metrics));
    return metrics.loss;
}

/* Losses of steps from the same weights: only their dropout masks differ. */
static void take_losses(lk_engine *engine, double (*step)(lk_engine *engine), int count, double *out)
{
    lk_state *first;
    law_require(lk_engine_state(engine, &first));
    for (int i = 0; i < count; i++) {
        out[i] = step(engine);
        law_require(lk_engine_set_state(engine, first));
    }
    lk_state_destroy(first);
}

/* A loop that never calls lk_engine_update draws a new mask in every step, the same masks as
 * lk_engine_step. */
static void test_masks_follow_gradients(void **state)
{
    static const char *const devices[] = {"cpu", "tape"};
    for (size_t d = 0; d < 2; d++) {
        double want[STEPS], got[STEPS];
        lk_engine *steps = make("cpu", "sgd"), *own = make(devices[d], "sgd");
        take_losses(steps, loss_of_step, STEPS, want);
        take_losses(own, loss_of_gradients, 2, got);
        take_losses(own, loss_of_step, 2, got + 2);
        take_losses(own, loss_of_gradients, 2, got + 4);
        assert_memory_equal(got, want, sizeof got);
        for (int i = 1; i < STEPS; i++)
            assert_true(want[i] != want[i - 1]);
        assert_int_equal(lk_engine_steps(own), STEPS);
        lk_engine_destroy(own);
        lk_engine_destroy(steps);
    }
}

/* The two halves of a step count once; calls that failed do not count. */
static void test_what_is_counted(void **state)
{
    lk_engine *engine = make("cpu", "sgd:momentum=.9");
    lk_batch batch = whole_batch();
    lk_metrics metrics;
    (void)loss_of_gradients(engine);
    assert_int_equal(lk_engine_steps(engine), 1);
    law_require(lk_engine_update(engine));
    assert_int_equal(lk_engine_steps(engine), 1);
    (void)loss_of_step(engine);
    assert_int_equal(lk_engine_steps(engine), 2);
    batch.count = 0;
    assert_int_equal(lk_engine_gradients(engine, &batch, &metrics), LK_STATUS_USAGE);
    batch.count = BATCH;
    x[0] = INFINITY;
    assert_int_equal(lk_engine_gradients(engine, &batch, &metrics), LK_STATUS_NONFINITE);
    assert_int_equal(lk_engine_step(engine, &batch, &metrics), LK_STATUS_NONFINITE);
    x[0] = -1;
    assert_int_equal(lk_engine_steps(engine), 2);
    assert_int_equal(lk_engine_update(engine), LK_STATUS_USAGE);
    law_require(lk_engine_eval(engine, &batch, &metrics));
    assert_int_equal(lk_engine_steps(engine), 2);
    (void)loss_of_gradients(engine);
    (void)loss_of_gradients(engine);
    assert_int_equal(lk_engine_steps(engine), 4);
    lk_engine_destroy(engine);
}

/* The count of steps is saved and restored: the masks of later steps stay the same. */
static void test_the_count_is_saved(void **state)
{
    double want[STEPS], got[2];
    lk_engine *engine = make("cpu", "adam"), *other = make("cpu", "adam");
    take_losses(engine, loss_of_gradients, STEPS - 2, want);
    lk_state *saved = copy_optimizer(engine);
    take_losses(engine, loss_of_gradients, 2, want + STEPS - 2);
    law_require(lk_engine_set_optimizer_state(other, saved));
    assert_int_equal(lk_engine_steps(other), STEPS - 2);
    take_losses(other, loss_of_gradients, 2, got);
    assert_memory_equal(got, want + STEPS - 2, sizeof got);
    lk_state_destroy(saved);
    lk_engine_destroy(other);
    lk_engine_destroy(engine);
}

static void expect_entry(const lk_state *state, const char *name, const void *want)
{
    const lk_state_entry *entry = lk_state_find(state, name);
    assert_non_null(entry);
    assert_memory_equal(entry->data, want, entry->bytes);
}

/* The first update of SGD takes the gradient as momentum, and the first update of Adam corrects its
 * bias as the first one: both count updates, not gradients. */
static void check_first_update(bool restored)
{
    lk_engine *engine = make("cpu", "sgd:momentum=.5,dampening=.5");
    (void)loss_of_gradients(engine);
    (void)loss_of_gradients(engine);
    if (restored) {
        lk_state *saved = copy_optimizer(engine);
        lk_engine_destroy(engine);
        engine = make("cpu", "sgd:momentum=.5,dampening=.5");
        law_require(lk_engine_set_optimizer_state(engine, saved));
        lk_state_destroy(saved);
    }
    lk_state *grads, *after;
    (void)loss_of_gradients(engine);
    law_require(lk_engine_grads(engine, &grads));
    law_require(lk_engine_update(engine));
    after = copy_optimizer(engine);
    expect_entry(after, "momentum_buffer.a.weight", lk_state_find(grads, "a.weight")->data);
    expect_entry(after, "steps", &(int64_t){3});
    expect_entry(after, "powers", (double[]){1, 1});
    lk_state_destroy(after);
    lk_state_destroy(grads);
    lk_engine_destroy(engine);
}

static void test_first_update(void **state)
{
    check_first_update(false);
    check_first_update(true);
    lk_engine *engine = make("cpu", "adam:beta1=.5,beta2=.25");
    (void)loss_of_gradients(engine);
    (void)loss_of_gradients(engine);
    law_require(lk_engine_update(engine));
    lk_state *after = copy_optimizer(engine);
    expect_entry(after, "steps", &(int64_t){2});
    expect_entry(after, "powers", (double[]){.5, .25});
    lk_state_destroy(after);
    lk_engine_destroy(engine);
}

/* An update with gradients of another step count than the optimiser's is refused. */
static void test_a_restored_optimiser_wants_new_gradients(void **state)
{
    lk_engine *engine = make("cpu", "sgd:momentum=.5");
    lk_state *saved = copy_optimizer(engine);
    (void)loss_of_gradients(engine);
    law_require(lk_engine_set_optimizer_state(engine, saved));
    assert_int_equal(lk_engine_steps(engine), 0);
    assert_int_equal(lk_engine_update(engine), LK_STATUS_USAGE);
    lk_state_destroy(saved);
    lk_engine_destroy(engine);
}

static void expect_no_grads(const lk_engine *engine)
{
    lk_state *unread;
    assert_fails(lk_engine_grads(engine, &unread), LK_STATUS_USAGE, "lk_engine_gradients");
}

/* Gradients exist only after a step or a first half that succeeded. */
static void test_grads_need_a_step(void **state)
{
    static const char *const devices[] = {"cpu", "tape"};
    for (size_t d = 0; d < 2; d++) {
        lk_engine *engine = make(devices[d], "sgd");
        lk_batch batch = whole_batch();
        lk_metrics metrics;
        lk_state *grads;
        expect_no_grads(engine);
        law_require(lk_engine_eval(engine, &batch, &metrics));
        expect_no_grads(engine);
        for (int i = 0; i < 3; i++) {
            (void)loss_of_step(engine);
            law_require(lk_engine_grads(engine, &grads));
            lk_state_destroy(grads);
        }
        x[0] = INFINITY;
        assert_int_equal(lk_engine_step(engine, &batch, &metrics), LK_STATUS_NONFINITE);
        x[0] = -1;
        expect_no_grads(engine);
        (void)loss_of_gradients(engine);
        law_require(lk_engine_grads(engine, &grads));
        lk_state_destroy(grads);
        lk_engine_destroy(engine);
    }
}

/* Replicas that differ are found within check_every counted steps, even if not every step ends with
 * an update. */
static bool be_odd_pairs(lk_group *group, const team_spec *team, const void *arg)
{
    lk_engine *engine;
    lk_engine_opts opts = {
        .threads = 1, .batch = BATCH, .lr = .25, .seed = 5, .group = group, .check_every = 4, .shards = 4};
    lk_batch batch = whole_batch();
    lk_metrics metrics;
    lk_status status = LK_OK;
    CHECK_OK(create(&opts, &engine));
    CHECK_OK(lk_engine_step(engine, &batch, &metrics));
    if (lk_group_rank(group) == 1)
        CHECK_OK(lk_engine_set_lr(engine, .5));
    for (int i = 0; i < 2; i++) { /* counts 3 and 5 */
        CHECK_OK(lk_engine_gradients(engine, &batch, &metrics));
        CHECK_OK(lk_engine_gradients(engine, &batch, &metrics));
        CHECK(status == LK_OK);
        status = lk_engine_update(engine);
    }
    CHECK(status == LK_STATUS_MISMATCH && lk_engine_steps(engine) == 5);
    lk_engine_destroy(engine);
    return false;
}

static void test_comparisons_are_not_skipped(void **state)
{
    assert_true(team_run((team_spec){.size = 2, .transport = "inproc", .timeout = RANKS_TIMEOUT}, be_odd_pairs, NULL));
}

TEST_MAIN(prepare, NULL, TEST(test_masks_follow_gradients), TEST(test_what_is_counted), TEST(test_the_count_is_saved),
          TEST(test_first_update), TEST(test_a_restored_optimiser_wants_new_gradients), TEST(test_grads_need_a_step),
          TEST(test_comparisons_are_not_skipped))
