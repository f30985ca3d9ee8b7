/* test_set_grads.c - gradients that the program replaces before the update: the same bits however the work is divided,
 * and wrong states change nothing. */
#include <math.h>

#include "ranks.h"

enum { MLP, RES, CASES };
enum { KB = 1024, STEPS = 4 };

static const law_group frozen[] = {{"conv1.*", {.frozen = true}}, {"fc.*", {.lr_scale = 2}}, {0}};

static const law_case cases[CASES] = {
    [MLP] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, STEPS, 13, .shards = 7},
    [RES] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd:momentum=.9", .05, STEPS, 11, .shards = 5,
             .groups = frozen},
};

static const ranks_row rows[] = {
    {"2 ranks", MLP, {.ranks = 2, .transport = "inproc", .threads = 1, .bucket_bytes = 16 * KB}},
    {"3 ranks", RES, {.ranks = 3, .transport = "shm", .threads = 1, .micro_batch = 2}},
    {"2 stages", MLP, {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2"}},
    {"2 x 2", RES, {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true}},
};

/* Replaces each gradient by its sign. Replicas other than 0 give other values, which are not used. */
static lk_status take_signs(lk_engine *engine)
{
    lk_state *grads;
    LK_TRY(lk_engine_grads(engine, &grads));
    float one = lk_engine_layout(engine).replica == 0 ? 1 : 3;
    for (size_t i = 0; i < lk_state_count(grads); i++) {
        const lk_state_entry *entry = lk_state_at(grads, i);
        float *values = entry->data;
        for (size_t k = 0; k < entry->bytes / sizeof *values; k++)
            values[k] = values[k] > 0 ? one : values[k] < 0 ? -one : 0;
    }
    lk_status status = lk_engine_set_grads(engine, grads);
    lk_state_destroy(grads);
    return status;
}

static uint64_t run(const law_case *c, lk_engine *engine)
{
    law_samples s = law_samples_make(c);
    for (int i = 0; i < STEPS; i++) {
        lk_batch batch;
        lk_metrics metrics;
        law_batch(c, i, s.x, s.labels, s.ids, &batch);
        CHECK_OK(lk_engine_gradients(engine, &batch, &metrics));
        CHECK_OK(take_signs(engine));
        CHECK_OK(lk_engine_update(engine));
    }
    law_samples_free(&s);
    return law_hash_all(engine);
}

typedef struct job {
    const ranks_row *row;
    uint64_t want;
} job;

static bool be(lk_group *group, const team_spec *team, const void *arg)
{
    const job *j = arg;
    lk_engine *engine = ranks_engine(&cases[j->row->c], &j->row->way, group);
    CHECK(run(&cases[j->row->c], engine) == j->want);
    CHECK_OK(lk_engine_check(engine));
    lk_engine_destroy(engine);
    return false;
}

static uint64_t run_alone(const law_case *c, law_way way)
{
    lk_engine *engine = law_engine(c, way);
    uint64_t hash = run(c, engine);
    lk_engine_destroy(engine);
    return hash;
}

static void test_row(void **arg)
{
    const ranks_row *r = *arg;
    job j = {.row = r, .want = run_alone(&cases[r->c], (law_way){.threads = 1})};
    assert_true(j.want == run_alone(&cases[r->c], (law_way){.threads = 3, .micro_batch = 4}));
    assert_true(team_run(ranks_team(&r->way), be, &j));
}

/* The engine's own gradients, set again, change nothing; and doubled ones are half the rate. */
static void test_own_gradients(void **arg)
{
    law_case c = cases[MLP];
    c.optimizer = "sgd";
    lk_engine *plain = law_engine(&c, (law_way){.threads = 1}), *same = law_engine(&c, (law_way){.threads = 1}),
              *doubled = law_engine(&c, (law_way){.threads = 1});
    law_samples s = law_samples_make(&c);
    lk_batch batch;
    lk_metrics metrics;
    lk_state *grads;
    law_batch(&c, 0, s.x, s.labels, s.ids, &batch);
    law_require(lk_engine_step(plain, &batch, &metrics));
    law_require(lk_engine_gradients(same, &batch, &metrics));
    law_require(lk_engine_gradients(doubled, &batch, &metrics));
    law_require(lk_engine_grads(same, &grads));
    law_require(lk_engine_set_grads(same, grads));
    law_require(lk_engine_update(same));
    assert_true(law_hash_all(plain) == law_hash_all(same));
    for (size_t i = 0; i < lk_state_count(grads); i++)
        for (size_t k = 0; k < lk_state_at(grads, i)->bytes / sizeof(float); k++)
            ((float *)lk_state_at(grads, i)->data)[k] *= 2;
    law_require(lk_engine_set_grads(doubled, grads));
    law_require(lk_engine_set_lr(doubled, c.lr / 2));
    law_require(lk_engine_update(doubled));
    assert_true(law_hash(plain) == law_hash(doubled));
    lk_state_destroy(grads);
    law_samples_free(&s);
    lk_engine_destroy(doubled);
    lk_engine_destroy(same);
    lk_engine_destroy(plain);
}

static void test_misuse(void **arg)
{
    const law_case *c = &cases[RES];
    lk_engine *engine = law_engine(c, (law_way){.threads = 1});
    law_samples s = law_samples_make(c);
    lk_batch batch;
    lk_metrics metrics;
    lk_state *grads, *unread, *state;
    law_require(lk_engine_state(engine, &state));
    assert_fails(lk_engine_set_grads(engine, state), LK_STATUS_USAGE, "no gradients to replace");
    law_batch(c, 0, s.x, s.labels, s.ids, &batch);
    law_require(lk_engine_gradients(engine, &batch, &metrics));
    law_require(lk_engine_grads(engine, &grads));
    uint64_t hash = lk_state_hash(grads);
    assert_fails(lk_engine_set_grads(engine, state), LK_STATUS_MISMATCH, "running_mean' that the gradient");
    law_require(lk_state_create(&unread));
    assert_fails(lk_engine_set_grads(engine, unread), LK_STATUS_MISMATCH, "no key 'conv1.weight'");
    lk_state_destroy(unread);
    *(float *)lk_state_find(grads, "fc.bias")->data = NAN;
    assert_fails(lk_engine_set_grads(engine, grads), LK_STATUS_NONFINITE,
                 "element 0 of the gradient of fc.bias is nan");
    law_require(lk_engine_grads(engine, &unread));
    assert_true(lk_state_hash(unread) == hash);
    lk_state_destroy(unread);
    law_require(lk_engine_update(engine));
    assert_fails(lk_engine_set_grads(engine, grads), LK_STATUS_USAGE, "no gradients to replace");
    assert_fails(lk_engine_set_grads(engine, NULL), LK_STATUS_USAGE, "grads");
    assert_fails(lk_engine_set_grads(NULL, grads), LK_STATUS_USAGE, "engine");
    lk_state_destroy(grads);
    lk_state_destroy(state);
    law_samples_free(&s);
    lk_engine_destroy(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_own_gradients), TEST(test_misuse)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + ranks_run_rows(rows, COUNT_OF(rows), getenv("LAW_ONLY"), test_row);
}
