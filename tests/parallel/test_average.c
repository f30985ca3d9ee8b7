/* test_average.c - the moving average of the weights: the formula, the same bits however the work is divided, and
 * continuing from a saved average. */
#include <math.h>

#include "ranks.h"
#include "tensor/cpu/cpu.h"

enum { STEPS = 5 };
static const double DECAY = 0.75;

static const law_case c = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd:momentum=.9", .05, STEPS, 11,
                           .shards = 5};

static const ranks_row rows[] = {
    {"3 ranks", 0, {.ranks = 3, .transport = "inproc", .threads = 1}},
    {"2 stages", 0, {.ranks = 2, .transport = "shm", .threads = 1, .stages = "2"}},
    {"2 x 2", 0, {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true}},
};

static void make_step(lk_engine *engine, int step)
{
    law_samples s = law_samples_make(&c);
    lk_batch batch;
    lk_metrics metrics;
    law_batch(&c, step, s.x, s.labels, s.ids, &batch);
    CHECK_OK(lk_engine_step(engine, &batch, &metrics));
    law_samples_free(&s);
}

static lk_state *average_of(const lk_engine *engine)
{
    lk_state *state;
    CHECK_OK(lk_engine_averaged_state(engine, &state));
    return state;
}

static uint64_t run(lk_engine *engine)
{
    for (int i = 0; i < STEPS; i++) {
        make_step(engine, i);
        CHECK_OK(lk_engine_average(engine, DECAY));
    }
    lk_state *average = average_of(engine);
    uint64_t hash = lk_state_hash(average);
    lk_state_destroy(average);
    return hash;
}

/* The average of one more state; buffers are those of the state. */
static void add_state(lk_state *average, const lk_state *state)
{
    for (size_t i = 0; i < lk_state_count(average); i++) {
        const lk_state_entry *a = lk_state_at(average, i), *b = lk_state_at(state, i);
        bool buffer = strstr(a->name, "running_") || a->dtype != LK_DTYPE_F32;
        float *mean = a->data;
        const float *x = b->data;
        if (buffer)
            memcpy(a->data, b->data, a->bytes);
        for (size_t k = 0; !buffer && k < a->bytes / sizeof *mean; k++)
            mean[k] = fmaf((float)(1 - DECAY), x[k] - mean[k], mean[k]);
    }
}

static void test_formula(void **arg)
{
    lk_engine *engine = law_engine(&c, (law_way){.threads = 2});
    lk_state *want = NULL, *state;
    for (int i = 0; i < STEPS; i++) {
        make_step(engine, i);
        law_require(lk_engine_average(engine, DECAY));
        law_require(lk_engine_state(engine, i == 0 ? &want : &state));
        if (i == 0)
            continue;
        add_state(want, state);
        lk_state_destroy(state);
        lk_state *got = average_of(engine);
        assert_true(lk_state_hash(got) == lk_state_hash(want));
        lk_state_destroy(got);
    }
    lk_state_destroy(want);
    lk_engine_destroy(engine);
}

static uint64_t run_alone(law_way way)
{
    lk_engine *engine = law_engine(&c, way);
    uint64_t hash = run(engine);
    lk_engine_destroy(engine);
    return hash;
}

static bool be(lk_group *group, const team_spec *team, const void *arg)
{
    const ranks_job *job = arg;
    lk_engine *engine = ranks_engine(&c, &job->way, group);
    CHECK(run(engine) == job->truth.hash);
    lk_engine_destroy(engine);
    return false;
}

static void test_row(void **arg)
{
    const ranks_row *r = *arg;
    const lk_cpu_build *build;
    ranks_job job = {.way = r->way, .truth = {.hash = run_alone((law_way){.threads = 1})}};
    for (size_t i = 0; (build = lk__cpu_build_list(i)); i++)
        assert_true(job.truth.hash == run_alone((law_way){.threads = 3, .micro_batch = 4, .isa = build->name}));
    assert_true(team_run(ranks_team(&r->way), be, &job));
}

/* An average that is saved and set again continues. */
static void test_continued(void **arg)
{
    lk_engine *engine = law_engine(&c, (law_way){.threads = 1}), *other = law_engine(&c, (law_way){.threads = 1});
    (void)run(engine);
    lk_state *saved = average_of(engine), *state;
    law_require(lk_engine_state(engine, &state));
    law_require(lk_engine_set_averaged_state(other, saved));
    law_require(lk_engine_set_state(other, state));
    law_require(lk_engine_average(engine, .5));
    law_require(lk_engine_average(other, .5));
    lk_state *a = average_of(engine), *b = average_of(other);
    assert_true(lk_state_hash(a) == lk_state_hash(b) && lk_state_hash(a) != lk_state_hash(saved));
    lk_state_destroy(a);
    lk_state_destroy(b);
    lk_state_destroy(state);
    lk_state_destroy(saved);
    lk_engine_destroy(other);
    lk_engine_destroy(engine);
}

static void test_misuse(void **arg)
{
    lk_engine *engine = law_engine(&c, (law_way){.threads = 1});
    lk_state *unread, *empty;
    law_require(lk_state_create(&empty));
    assert_fails(lk_engine_averaged_state(engine, &unread), LK_STATUS_USAGE, "no average");
    assert_fails(lk_engine_average(engine, 1), LK_STATUS_USAGE, "`decay` 1");
    assert_fails(lk_engine_average(engine, NAN), LK_STATUS_USAGE, "`decay`");
    assert_fails(lk_engine_average(NULL, .5), LK_STATUS_USAGE, "engine");
    assert_fails(lk_engine_set_averaged_state(engine, empty), LK_STATUS_MISMATCH, "conv1.weight");
    assert_fails(lk_engine_averaged_state(engine, &unread), LK_STATUS_USAGE, "no average");
    lk_state_destroy(empty);
    lk_engine_destroy(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_formula), TEST(test_continued), TEST(test_misuse)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + ranks_run_rows(rows, COUNT_OF(rows), getenv("LAW_ONLY"), test_row);
}
