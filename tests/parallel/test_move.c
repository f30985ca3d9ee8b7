/* test_move.c - shards that move between ranks before every step: weights, metrics and norms are those of one rank.
 * LAW_ONLY selects rows by a part of their name. */
#include <sys/resource.h>

#include "base/tree.h"
#include "parallel/engine/move.h"
#include "ranks.h"

enum { MLP, MLP_48, CNN, RES_BATCH, RES_SHARD, RES_7, CLIPPED, ROBUST, EMBEDDED, FROZEN, CASES };
enum { KB = 1024 };

static const law_group frozen[] = {{"chunk1.*", {.frozen = true}}, {NULL, {0}}};

/* Steps 4, 5 and 6 have half a batch, a whole one, and one sample. */
static const law_case cases[CASES] = {
    [MLP] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 8, 37, .shards = 16},
    [MLP_48] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1.0, 5, 51, .shards = 48, .first = 3},
    [CNN] = {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1.0, 4, 16, .shards = 16, .first = 3},
    [RES_BATCH] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 5, 19, 16, .first = 3},
    [RES_SHARD] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_SHARD, "adam", 1e-3, 5, 19, 16, .first = 3},
    [RES_7] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "adam", 1e-3, 5, 23, 7, .first = 3},
    [CLIPPED] = {"ops", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 5, 19, 16, .first = 3, .clip_norm = 0.5},
    [ROBUST] = {"robust", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 5, 19, 16, .first = 3},
    [EMBEDDED] = {"attention", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 5, 19, 16, .first = 3},
    [FROZEN] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adamw", 1e-3, 5, 19, 16, .first = 3, .groups = frozen},
};

static const ranks_row rows[] = {
    {"2 ranks: mlp", MLP, {.ranks = 2, .transport = "inproc", .threads = 1, .share = true}},
    {"3 ranks: mlp", MLP, {.ranks = 3, .transport = "inproc", .threads = 2, .bucket_bytes = 64 * KB}},
    {"4 ranks: mlp", MLP, {.ranks = 4, .transport = "inproc", .threads = 1, .share = true}},
    {"15 ranks: mlp", MLP, {.ranks = 15, .transport = "inproc", .threads = 1, .share = true}},
    {"3 ranks: cnn", CNN, {.ranks = 3, .transport = "inproc", .threads = 1, .share = true}},
    {"2 ranks, bn batch", RES_BATCH, {.ranks = 2, .transport = "inproc", .threads = 1, .share = true}},
    {"4 ranks, bn batch", RES_BATCH, {.ranks = 4, .transport = "inproc", .threads = 1}},
    {"3 ranks, bn shard", RES_SHARD, {.ranks = 3, .transport = "inproc", .threads = 1, .share = true}},
    {"3 ranks, 7 shards", RES_7, {.ranks = 3, .transport = "inproc", .threads = 1, .share = true}},
    {"steps in halves", RES_7, {.ranks = 2, .transport = "inproc", .threads = 1, .share = true, .halves = true}},
    {"waves of 1", MLP, {.ranks = 3, .transport = "inproc", .threads = 1, .micro_batch = 1, .share = true}},
    {"waves of 3", RES_SHARD, {.ranks = 2, .transport = "inproc", .threads = 1, .micro_batch = 3, .share = true}},
    {"accumulate 3", MLP_48, {.ranks = 4, .transport = "inproc", .threads = 1, .micro_batch = 5, .share = true}},
    {"clip", CLIPPED, {.ranks = 3, .transport = "inproc", .threads = 1, .share = true}},
    {"weights and targets", ROBUST, {.ranks = 3, .transport = "inproc", .threads = 1, .share = true}},
    {"attention", EMBEDDED, {.ranks = 2, .transport = "inproc", .threads = 1, .share = true}},
    {"frozen", FROZEN, {.ranks = 3, .transport = "inproc", .threads = 1, .share = true}},
    {"shm", RES_BATCH, {.ranks = 3, .transport = "shm", .threads = 1, .bucket_bytes = 64 * KB, .share = true}},
    {"shm, mlp", MLP, {.ranks = 2, .transport = "shm", .threads = 1, .share = true}},
    {"tcp", MLP, {.ranks = 3, .transport = "tcp", .threads = 1, .share = true}},
    {"3 on 2 hosts", RES_7, {.ranks = 3, .transport = "auto", .hosts = "aab", .threads = 1, .share = true}},
    {"nested", MLP, {.ranks = 4, .devices = 2, .transport = "auto", .threads = 1, .share = true}},
};

/* A cut for a step: the extremes first, then drawn ones. The same at all ranks. */
static void draw_cut(int shards, int replicas, int step, int *bounds)
{
    lk_rng rng = lk__rng(11, LK_RNG_PURPOSE_AUGMENT, 0, 0, (uint32_t)step);
    bounds[0] = 0;
    for (int r = 1; r < replicas; r++) {
        int least = bounds[r - 1] + 1, most = shards - (replicas - r);
        int drawn = least + (int)(lk__rng_u32(&rng, (uint64_t)r) % (unsigned)(most - least + 1));
        bounds[r] = step == 0 ? least : step == 1 ? most : drawn;
    }
    bounds[replicas] = shards;
}

static void move_to(lk_engine *engine, const law_case *c, int step)
{
    int bounds[LK_MAX_SHARDS + 1], replicas = lk_engine_layout(engine).replicas;
    bool moved = false;
    draw_cut(c->shards, replicas, step, bounds);
    CHECK_OK(lk__engine_move_shards(engine, bounds, &moved));
    CHECK(moved);
    CHECK(memcmp(lk__engine_train_bounds(engine), bounds, (size_t)(replicas + 1) * sizeof *bounds) == 0);
}

/* The gradients of the last step stay readable when shards move. */
static uint64_t grads_hash(const lk_engine *engine)
{
    lk_state *grads;
    CHECK_OK(lk_engine_grads(engine, &grads));
    uint64_t hash = lk_state_hash(grads);
    lk_state_destroy(grads);
    return hash;
}

static void run_moving_steps(const ranks_job *job, lk_engine *engine, ranks_truth *out)
{
    law_samples s = law_samples_make(&job->c);
    lk_shard_range even = lk_engine_shard_range(engine);
    for (int i = 0; i < job->c.steps; i++) {
        lk_batch batch;
        uint64_t before = i > 0 ? grads_hash(engine) : 0;
        move_to(engine, &job->c, i);
        CHECK(i == 0 || grads_hash(engine) == before);
        lk_shard_range now = lk_engine_shard_range(engine);
        CHECK(now.first == even.first && now.last == even.last);
        law_batch(&job->c, job->c.first + i, s.x, s.labels, s.ids, &batch);
        if (job->way.share)
            batch = ranks_cut(batch, lk__engine_train_range(engine));
        CHECK_OK(lk_engine_set_grad_norm(engine, i % 2 == 0));
        CHECK_OK(ranks_step(engine, &job->way, &batch, &out->steps[i]));
        out->norms[i] = lk_engine_grad_norm(engine);
    }
    law_samples_free(&s);
}

static bool be_moving(lk_group *group, const team_spec *team, const void *arg)
{
    const ranks_job *job = arg;
    ranks_truth ours = {0};
    lk_engine *engine = ranks_engine(&job->c, &job->way, group);
    CHECK(lk__engine_can_move(engine));
    run_moving_steps(job, engine, &ours);
    ranks_run_evals(job, engine, ours.evals);
    ours.hash = law_hash(engine);
    ranks_compare(job, lk_group_rank(group), &ours);
    ranks_check_layout(job, engine, lk_group_rank(group));
    CHECK_OK(lk_engine_check(engine));
    lk_engine_destroy(engine);
    return false;
}

static void test_row(void **arg)
{
    static ranks_truth truths[CASES];
    const ranks_row *r = *arg;
    ranks_job job = {.c = cases[r->c], .way = r->way, .truth = *ranks_know(&cases[r->c], &truths[r->c])};
    assert_true(team_run(ranks_team(&r->way), be_moving, &job));
}

/* A rank that lacks memory keeps all ranks from moving; the run goes on. The limit on file sizes is also that of
 * shared memory. */
static bool be_short_of_memory(lk_group *group, const team_spec *team, const void *arg)
{
    const ranks_job *job = arg;
    static const int bounds[] = {0, 5, 16};
    ranks_truth ours = {0};
    bool moved = true;
    lk_engine *engine = ranks_engine(&job->c, &job->way, group);
    if (lk_group_rank(group) == 1)
        CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, 4096}) == 0);
    CHECK_OK(lk__engine_move_shards(engine, bounds, &moved));
    CHECK(!moved && lk__engine_train_range(engine).last == 8 * (lk_group_rank(group) + 1));
    ranks_run(job, engine, &ours);
    ranks_compare(job, lk_group_rank(group), &ours);
    lk_engine_destroy(engine);
    return false;
}

static void test_short_of_memory(void **arg)
{
    law_way way = {.ranks = 2, .transport = "shm", .threads = 1, .share = true};
    ranks_job job = {.c = cases[MLP], .way = way};
    ranks_find_truth(&job.c, &job.truth);
    assert_true(team_run(ranks_team(&way), be_short_of_memory, &job));
}

/* The failure of a step whose sample 20 is not finite. */
static void fail_step(const ranks_job *job, lk_engine *engine, char detail[512])
{
    law_samples s = law_samples_make(&job->c);
    lk_batch batch;
    lk_metrics metrics;
    law_batch(&job->c, 0, s.x, s.labels, s.ids, &batch);
    s.x[20 * batch.sample_floats + 5] = NAN;
    if (job->way.share)
        batch = ranks_cut(batch, lk__engine_train_range(engine));
    CHECK(lk_engine_step(engine, &batch, &metrics) == LK_STATUS_NONFINITE);
    snprintf(detail, 512, "%s", lk_error_detail());
    law_samples_free(&s);
}

typedef struct failing_job {
    ranks_job job;
    char detail[512]; /* of one rank */
} failing_job;

static bool be_failing(lk_group *group, const team_spec *team, const void *arg)
{
    const failing_job *failing = arg;
    char detail[512];
    lk_engine *engine = ranks_engine(&failing->job.c, &failing->job.way, group);
    move_to(engine, &failing->job.c, 2);
    fail_step(&failing->job, engine, detail);
    CHECK(strcmp(detail, failing->detail) == 0);
    lk_engine_destroy(engine);
    return false;
}

/* Shards have their numbers wherever they are. */
static void test_nonfinite(void **arg)
{
    failing_job failing = {.job = {.c = cases[MLP], .way = {.threads = 1}}};
    lk_engine *engine = law_engine(&failing.job.c, failing.job.way);
    fail_step(&failing.job, engine, failing.detail);
    lk_engine_destroy(engine);
    failing.job.way = (law_way){.ranks = 3, .transport = "inproc", .threads = 1, .share = true};
    assert_non_null(strstr(failing.detail, "shard 9"));
    assert_true(team_run(ranks_team(&failing.job.way), be_failing, &failing));
}

/* Stages, and a single rank, keep their shards. */
static bool be_fixed(lk_group *group, const team_spec *team, const void *arg)
{
    const ranks_job *job = arg;
    lk_engine *engine = ranks_engine(&job->c, &job->way, group);
    CHECK(!lk__engine_can_move(engine));
    lk_engine_destroy(engine);
    return false;
}

static void test_fixed(void **arg)
{
    static const law_way ways[] = {{.ranks = 1, .transport = "inproc", .threads = 1},
                                   {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2"},
                                   {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2"}};
    for (size_t i = 0; i < COUNT_OF(ways); i++)
        assert_true(team_run(ranks_team(&ways[i]), be_fixed, &(ranks_job){.c = cases[MLP], .way = ways[i]}));
}

int main(void)
{
    const char *only = getenv("LAW_ONLY");
    int failed = ranks_run_rows(rows, COUNT_OF(rows), only, test_row);
    return only ? failed
                : failed + RUN_TESTS(NULL, NULL, TEST(test_short_of_memory), TEST(test_nonfinite), TEST(test_fixed));
}
