/* test_input_grads.c - the gradients of the samples: against finite differences, the same bits however the work is
 * divided, also below frozen layers, and wrong calls. */
#include <math.h>

#include "ranks.h"

static const law_group frozen[] = {{"*", {.frozen = true}}, {0}};

enum { GATES, RES, FROZEN, MLP, WEIGHTED, CASES };
static const law_case cases[CASES] = {
    [GATES] = {"gates", LAW_ODD, LK_BN_MODE_BATCH, "sgd", .05, 1, 7, .shards = 4},
    [RES] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd", .05, 1, 11, .shards = 5},
    [FROZEN] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd", .05, 1, 11, .shards = 5, .groups = frozen},
    [MLP] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "sgd", .05, 1, 9, .shards = 4},
    [WEIGHTED] = {"weighted", LAW_ODD, LK_BN_MODE_BATCH, "sgd", .05, 1, 9, .shards = 4},
};

static const ranks_row rows[] = {
    {"3 ranks", GATES, {.ranks = 3, .transport = "inproc", .threads = 1, .share = true}},
    {"2 ranks", MLP, {.ranks = 2, .transport = "inproc", .threads = 2, .micro_batch = 2}},
    {"2 stages", RES, {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2"}},
    {"2 x 2 stages", FROZEN, {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2"}},
    {"weights, 3 ranks", WEIGHTED, {.ranks = 3, .transport = "inproc", .threads = 1, .share = true}},
    {"weights, 2 stages", WEIGHTED, {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2"}},
};

static size_t sample_floats(const law_case *c)
{
    return c->shape.channels * c->shape.height * c->shape.width;
}

static lk_engine *make(const law_case *c, law_way way, lk_group *group)
{
    lk_engine *engine;
    lk_engine_opts opts = law_opts(c, &way);
    opts.group = group;
    opts.input_grads = true;
    CHECK_OK(law_create(c, &opts, &engine));
    return engine;
}

/* The gradients of this rank's samples of batch 0; NULL at stages without samples. */
static float *run(const law_case *c, lk_engine *engine, lk_batch batch, lk_metrics *metrics)
{
    float *dx = calloc(c->batch * sample_floats(c), sizeof *dx);
    CHECK_OK(lk_engine_gradients(engine, &batch, metrics));
    if (lk_engine_layout(engine).stage == 0) {
        CHECK_OK(lk_engine_input_grads(engine, dx));
        return dx;
    }
    CHECK(lk_engine_input_grads(engine, dx) == LK_STATUS_USAGE);
    free(dx);
    return NULL;
}

static float *run_alone(const law_case *c, law_way way)
{
    law_samples s = law_samples_make(c);
    lk_batch batch;
    lk_metrics metrics;
    law_batch(c, 0, s.x, s.labels, s.ids, &batch);
    lk_engine *engine = make(c, way, NULL);
    float *dx = run(c, engine, batch, &metrics);
    lk_engine_destroy(engine);
    law_samples_free(&s);
    return dx;
}

typedef struct job {
    const ranks_row *row;
    const float *want;
} job;

static bool be(lk_group *group, const team_spec *team, const void *arg)
{
    const job *j = arg;
    const law_case *c = &cases[j->row->c];
    law_samples s = law_samples_make(c);
    lk_batch batch;
    lk_metrics metrics;
    law_batch(c, 0, s.x, s.labels, s.ids, &batch);
    lk_engine *engine = make(c, j->row->way, group);
    lk_shard_range share = lk_engine_shard_range(engine);
    size_t begin = lk_shard_range_begin(share, c->batch) * sample_floats(c);
    size_t count = lk_shard_range_count(share, c->batch) * sample_floats(c);
    float *dx = run(c, engine, j->row->way.share ? ranks_cut(batch, share) : batch, &metrics);
    CHECK(!dx || memcmp(dx, j->want + begin, count * sizeof *dx) == 0);
    free(dx);
    lk_engine_destroy(engine);
    law_samples_free(&s);
    return false;
}

static void test_row(void **arg)
{
    const ranks_row *r = *arg;
    const law_case *c = &cases[r->c];
    size_t bytes = c->batch * sample_floats(c) * sizeof(float);
    float *want = run_alone(c, (law_way){.threads = 1}),
          *waves = run_alone(c, (law_way){.threads = 3, .micro_batch = 2});
    assert_memory_equal(want, waves, bytes);
    assert_true(team_run(ranks_team(&r->way), be, &(job){.row = r, .want = want}));
    free(want);
    free(waves);
}

/* Parameters do not change these gradients: freezing them neither. */
static void test_frozen(void **arg)
{
    size_t bytes = cases[RES].batch * sample_floats(&cases[RES]) * sizeof(float);
    float *a = run_alone(&cases[RES], (law_way){.threads = 1}), *b = run_alone(&cases[FROZEN], (law_way){.threads = 1});
    assert_memory_equal(a, b, bytes);
    free(a);
    free(b);
}

/* Moves the whole batch along its gradient g: the loss changes by step * |g|^2. The step is a compromise between the
 * curvature, which gives an error of order step^2 between two sides, and float's 24 bits in the loss. */
static void expect_finite_differences(const law_case *c)
{
    size_t count = c->batch * sample_floats(c);
    law_samples s = law_samples_make(c);
    lk_batch batch;
    lk_metrics low, high, now;
    law_batch(c, 0, s.x, s.labels, s.ids, &batch);
    lk_engine *engine = make(c, (law_way){.threads = 1}, NULL);
    float *dx = run(c, engine, batch, &now), *x = malloc(count * sizeof *x);
    double square = 0;
    for (size_t i = 0; i < count; i++)
        square += (double)dx[i] * (double)dx[i];
    double step = 0.02 / sqrt(square);
    memcpy(x, s.x, count * sizeof *x);
    for (size_t i = 0; i < count; i++)
        s.x[i] = (float)((double)x[i] + step * (double)dx[i]);
    free(run(c, engine, batch, &high));
    for (size_t i = 0; i < count; i++)
        s.x[i] = (float)((double)x[i] - step * (double)dx[i]);
    free(run(c, engine, batch, &low));
    double found = (high.loss - low.loss) / (2 * step);
    if (!(square > 0 && fabs(found - square) <= 1e-3 * square))
        fail_msg("%s: finite differences give %g, the gradient %g", c->model, found, square);
    free(x);
    free(dx);
    lk_engine_destroy(engine);
    law_samples_free(&s);
}

static void test_finite_differences(void **arg)
{
    expect_finite_differences(&cases[GATES]);
    expect_finite_differences(&cases[WEIGHTED]); /* of the weighted mean */
}

static void test_misuse(void **arg)
{
    static float dx[9 * 784];
    const law_case *c = &cases[MLP];
    lk_engine *plain = law_engine(c, (law_way){.threads = 1}), *engine = make(c, (law_way){.threads = 1}, NULL);
    law_samples s = law_samples_make(c);
    lk_batch batch;
    lk_metrics metrics;
    law_batch(c, 0, s.x, s.labels, s.ids, &batch);
    law_require(lk_engine_gradients(plain, &batch, &metrics));
    assert_fails(lk_engine_input_grads(plain, dx), LK_STATUS_USAGE, "without `input_grads`");
    assert_fails(lk_engine_input_grads(engine, dx), LK_STATUS_USAGE, "lk_engine_gradients must");
    law_require(lk_engine_gradients(engine, &batch, &metrics));
    law_require(lk_engine_input_grads(engine, dx));
    law_require(lk_engine_step(engine, &batch, &metrics));
    assert_fails(lk_engine_input_grads(engine, dx), LK_STATUS_USAGE, "lk_engine_gradients must");
    assert_fails(lk_engine_input_grads(engine, NULL), LK_STATUS_USAGE, "dx");
    assert_fails(lk_engine_input_grads(NULL, dx), LK_STATUS_USAGE, "engine");
    law_samples_free(&s);
    lk_engine_destroy(engine);
    lk_engine_destroy(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_frozen), TEST(test_finite_differences), TEST(test_misuse)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + ranks_run_rows(rows, COUNT_OF(rows), getenv("LAW_ONLY"), test_row);
}
