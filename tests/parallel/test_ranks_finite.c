/* test_ranks_finite.c - a non-finite value at one rank, or only in the sum over the ranks: every rank
 * has the same message, and the state does not change. */
#include <math.h>

#include "far.h"
#include "ranks.h"

#include "parallel/step/engine_impl.h"

static const law_case mlp = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 4, 12, .shards = 6};

/* The sample that has a NaN in the second step. */
enum { SPOILT = 5 };

typedef struct nan_job {
    law_way way;
    char text[1024]; /* message of a run by one rank */
} nan_job;

/* The second step has the NaN; the state must not change. */
static void step_into_nan(lk_engine *engine, bool share)
{
    law_samples s = law_samples_make(&mlp);
    lk_metrics metrics;
    lk_batch batch;
    law_batch(&mlp, 0, s.x, s.labels, s.ids, &batch);
    if (share)
        batch = ranks_cut(batch, lk_engine_shard_range(engine));
    CHECK_OK(lk_engine_step(engine, &batch, &metrics));
    uint64_t before = law_hash(engine);
    law_batch(&mlp, 1, s.x, s.labels, s.ids, &batch);
    s.x[SPOILT * batch.sample_floats + 3] = NAN;
    if (share)
        batch = ranks_cut(batch, lk_engine_shard_range(engine));
    CHECK(lk_engine_step(engine, &batch, &metrics) == LK_STATUS_NONFINITE);
    CHECK(law_hash(engine) == before);
    CHECK(lk_engine_steps(engine) == 1);
    law_samples_free(&s);
}

static bool meet_nan(lk_group *group, const team_spec *team, const void *arg)
{
    const nan_job *job = arg;
    lk_engine *engine = ranks_engine(&mlp, &job->way, group);
    step_into_nan(engine, true);
    CHECK_TEXT(lk_error_detail(), job->text);
    lk_engine_destroy(engine);
    return false;
}

static const law_way fault_ways[] = {
    {.ranks = 2, .transport = "inproc", .threads = 1},
    {.ranks = 3, .transport = "tcp", .threads = 1, .bucket_bytes = 64 << 10},
    {.ranks = 6, .transport = "inproc", .threads = 1, .micro_batch = 1},
    {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2"},
    {.ranks = 2, .transport = "shm", .threads = 1, .stages = "2", .pipelined = true, .micro_batch = 2},
    {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true, .micro_batch = 2},
    {.device = "far", .ranks = 3, .transport = "inproc", .threads = 1},
    {.device = "far", .ranks = 4, .transport = "inproc", .threads = 1, .stages = "2"},
};
enum { FAULT_WAYS = COUNT_OF(fault_ways) };

static void test_nan_in_a_sample(void **arg)
{
    nan_job job;
    lk_engine *engine = law_engine(&mlp, (law_way){.threads = 1});
    step_into_nan(engine, false);
    snprintf(job.text, sizeof job.text, "%s", lk_error_detail());
    assert_contains(job.text, "step 2");
    assert_contains(job.text, "shard 2");
    lk_engine_destroy(engine);
    for (size_t i = 0; i < FAULT_WAYS; i++) {
        job.way = fault_ways[i];
        if (!team_run(ranks_team(&job.way), meet_nan, &job))
            fail_msg("way %zu: a NaN in a sample was not reported at every rank", i);
    }
}

/* A weight of the last layer is NaN at one rank: all ranks name the rank and the weight. */
static bool meet_nan_weight(lk_group *group, const team_spec *team, const void *arg)
{
    const law_way *way = arg;
    int spoilt = way->ranks - 1;
    lk_engine *engine = ranks_engine(&mlp, way, group);
    lk_metrics metrics;
    lk_batch batch;
    char text[96];
    law_samples s = law_samples_make(&mlp);
    if (lk_group_rank(group) == spoilt)
        engine->params->params[0] = NAN;
    law_batch(&mlp, 3, s.x, s.labels, s.ids, &batch);
    CHECK(lk_engine_step(engine, &batch, &metrics) == LK_STATUS_NONFINITE);
    snprintf(text, sizeof text, "chunk2.2.bias at rank %d has a value that is not finite", spoilt);
    CHECK_TEXT(lk_error_detail(), text);
    CHECK_TEXT(lk_error_detail(), "step 1");
    lk_engine_destroy(engine);
    law_samples_free(&s);
    return false;
}

static void test_nan_in_a_weight(void **arg)
{
    for (size_t i = 0; i < FAULT_WAYS; i++) {
        if (!team_run(ranks_team(&fault_ways[i]), meet_nan_weight, &fault_ways[i]))
            fail_msg("way %zu: a NaN in a weight was not reported at every rank", i);
    }
}

/* Two linear layers, the first zero, the second with one huge weight: the loss is finite, and the
 * gradient grows with the samples. 8 samples in 4 shards. */
typedef struct overflow {
    float x[8]; /* the first value of each sample */
    const char *what, *where;
    const char *stages;
    size_t width; /* of samples and of the first layer */
    size_t bucket_bytes;
    uint64_t hash; /* after a good step without a bad one before it */
    const char *device;
} overflow;

static lk_status create_two_layers(lk_group *group, const overflow *how, lk_engine **out)
{
    lk_graph *graph;
    lk_engine_opts opts = {.device = how->device,
                           .batch = 8,
                           .shards = 4,
                           .threads = 1,
                           .optimizer = "sgd:momentum=.9",
                           .group = group,
                           .stages = how->stages,
                           .bucket_bytes = how->bucket_bytes};
    LK_TRY(lk_graph_create(&graph));
    lk_node node = lk_linear(graph, lk_flatten(graph, lk_input(graph, 1, 1, how->width)), "first", how->width);
    lk_cross_entropy(graph, lk_linear(graph, node, "second", 2));
    lk_status status = lk_engine_create(graph, &opts, out);
    lk_graph_destroy(graph);
    return status;
}

static void set_two_layers(lk_engine *engine, size_t width)
{
    lk_state *state;
    CHECK_OK(lk_engine_state(engine, &state));
    for (size_t i = 0; i < lk_state_count(state); i++)
        memset(lk_state_at(state, i)->data, 0, lk_state_at(state, i)->bytes);
    float *second = lk_state_find(state, "second.weight")->data;
    for (size_t i = 0; i < 2 * width; i++)
        second[i] = i == width - 1 ? 1e30f : 1;
    CHECK_OK(lk_engine_set_state(engine, state));
    lk_state_destroy(state);
}

/* Makes a step; x has the first value of each sample. */
static lk_status step_two_layers(lk_engine *engine, size_t width, const float x[8])
{
    float *samples = calloc(8 * width, sizeof *samples);
    int32_t labels[8] = {0};
    uint32_t ids[8];
    lk_metrics metrics;
    CHECK(samples != NULL);
    for (uint32_t i = 0; i < 8; i++) {
        samples[width * i] = x[i];
        ids[i] = 70 + i;
    }
    lk_batch batch = {.count = 8, .sample_floats = width, .x = samples, .labels = labels, .ids = ids};
    lk_status status = lk_engine_step(engine, &batch, &metrics);
    free(samples);
    return status;
}

static uint64_t step_well(lk_engine *engine, size_t width)
{
    static const float good[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    CHECK_OK(step_two_layers(engine, width, good));
    return law_hash(engine);
}

static bool meet_overflow(lk_group *group, const team_spec *team, const void *arg)
{
    const overflow *how = arg;
    lk_engine *engine;
    CHECK_OK(create_two_layers(group, how, &engine));
    set_two_layers(engine, how->width);
    uint64_t before = law_hash(engine);
    CHECK_FAILS(step_two_layers(engine, how->width, how->x), LK_STATUS_NONFINITE, how->what);
    CHECK_TEXT(lk_error_detail(), how->where);
    CHECK_TEXT(lk_error_detail(), "step 1");
    CHECK(law_hash(engine) == before);
    CHECK(step_well(engine, how->width) == how->hash);
    CHECK(lk_engine_steps(engine) == 1);
    lk_engine_destroy(engine);
    return false;
}

static uint64_t hash_without_overflow(const overflow *how)
{
    overflow plain = {.width = how->width, .bucket_bytes = 1 << 30};
    lk_engine *engine;
    CHECK_OK(create_two_layers(NULL, &plain, &engine));
    set_two_layers(engine, how->width);
    uint64_t hash = step_well(engine, how->width);
    lk_engine_destroy(engine);
    return hash;
}

/* A sample's gradient is 1/16 of its first value times 1e30: 2.5e38 for 4e9; twice as much overflows.
 * A first layer of width 200 has 160 KB; its last bytes overflow, when other buckets are summed
 * already. */
static void test_values_that_overflow(void **arg)
{
    static const overflow rows[] = {
        {{0, 0, 0, 0, 0, 1e20f, 0, 0}, "first.weight", "shard 2", NULL, 2, .hash = 0},
        {{4e9f, 0, 0, 0, 0, 0, 0, 4e9f}, "first.weight", "sum over shards", NULL, 2, .hash = 0},
        {{4e9f, 0, 0, 0, 0, 0, 0, 4e9f}, "first.weight", "sum over shards", NULL, 200, 64 << 10, .hash = 0},
        {{4e9f, 0, 0, 0, 0, 0, 0, 4e9f}, "first.weight", "sum over shards", NULL, 200, 1 << 10, .hash = 0},
        {{0, 0, 0, 0, 0, INFINITY, 0, 0}, "sample 75", "shard 2", NULL, 2, .hash = 0},
        {{0, 0, 0, 0, 0, 1e20f, 0, 0}, "first.weight", "shard 2", "second", 2, .hash = 0},
        {{0, 0, 0, 0, 0, INFINITY, 0, 0}, "sample 75", "shard 2", "second", 2, .hash = 0},
        {{4e9f, 0, 0, 0, 0, 0, 0, 4e9f}, "first.weight", "sum over shards", "second", 2, .hash = 0},
        {{4e9f, 0, 0, 0, 0, 0, 0, 4e9f}, "first.weight", "sum over shards", "second", 200, 64 << 10, .hash = 0},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        overflow row = rows[i];
        int step = row.stages ? 2 : 1;
        row.hash = hash_without_overflow(&row);
        for (int ranks = step; ranks <= 4; ranks += step) {
            team_spec team = {.size = ranks, .transport = ranks == 3 ? "shm" : "inproc"};
            for (int far = 0; far < 2; far++) {
                row.device = far ? "far" : "cpu";
                if (!team_run(team, meet_overflow, &row))
                    fail_msg("row %zu: %s was not reported by all of %d ranks on %s", i, row.what, ranks, row.device);
            }
        }
    }
}

int main(void)
{
    law_require(far_add());
    return RUN_TESTS(NULL, NULL, TEST(test_nan_in_a_sample), TEST(test_nan_in_a_weight),
                     TEST(test_values_that_overflow));
}
