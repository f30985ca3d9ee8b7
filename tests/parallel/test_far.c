/* test_far.c - ranks on a device whose memory the host cannot reach: in every mode they end with the
 * bits of one rank on the CPU, and groups move data through staging buffers in host memory. */
#include "far.h"
#include "ranks.h"

#include "parallel/layout/defaults.h"
#include "parallel/memory/fit.h"
#include "parallel/step/run_waves.h"

enum { MLP, CNN, CLIP, RES_BATCH, RES_SHARD, OPS, AUTOENCODER, ROBUST, WEIGHTED, CASES };
enum { KB = 1024 };

/* Steps 4, 5 and 6 have half a batch, a whole one, and one sample. Evaluations have
 * 2 * batch + 3 samples, and one. */
static const law_case cases[CASES] = {
    [MLP] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 3, 37, .shards = 16, .first = 4},
    [CNN] = {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1.0, 3, 13, 7, .first = 4, .label_smoothing = 0.1},
    [CLIP] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.1, 3, 20, 5, .first = 4, .clip_norm = 0.5},
    [RES_BATCH] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 3, 19, 16, .first = 4},
    [RES_SHARD] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_SHARD, "adam", 1e-3, 3, 19, 16, .first = 4},
    [OPS] = {"ops", LAW_ODD, LK_BN_MODE_SHARD, "adamw", 1e-3, 3, 11, 16, .first = 4, .clip_norm = .5,
             .label_smoothing = .1},
    [AUTOENCODER] = {"autoencoder", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 3, 11, 16, .first = 4},
    [ROBUST] = {"robust", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 3, 11, 16, .first = 4},
    [WEIGHTED] = {"weighted", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 3, 11, 16, .first = 4},
};

static const ranks_row rows[] = {
    {"one rank: cnn", CNN, {.ranks = 1, .transport = "inproc", .threads = 2}},
    {"one rank in waves: resnet", RES_SHARD, {.ranks = 1, .transport = "inproc", .threads = 1, .micro_batch = 5}},
    {"2 ranks: mlp", MLP, {.ranks = 2, .transport = "inproc", .threads = 1, .bucket_bytes = 64 * KB, .share = true}},
    {"3 ranks: mlp", MLP, {.ranks = 3, .transport = "inproc", .threads = 1, .bucket_bytes = 256 * KB}},
    {"3 ranks in waves: mlp", MLP, {.ranks = 3, .transport = "inproc", .threads = 1, .micro_batch = 1, .share = true}},
    {"2 ranks: cnn", CNN, {.ranks = 2, .transport = "inproc", .threads = 1, .share = true}},
    {"2 ranks in halves: cnn", CNN, {.ranks = 2, .transport = "inproc", .threads = 1, .halves = true}},
    {"3 ranks, clip", CLIP, {.ranks = 3, .transport = "inproc", .threads = 1, .share = true}},
    {"2 ranks, bn batch", RES_BATCH, {.ranks = 2, .transport = "inproc", .threads = 1, .share = true}},
    {"3 ranks, bn batch", RES_BATCH, {.ranks = 3, .transport = "inproc", .threads = 1, .bucket_bytes = 16 * KB}},
    {"3 ranks, bn shard", RES_SHARD, {.ranks = 3, .transport = "inproc", .threads = 1, .micro_batch = 3}},
    {"5 ranks: ops", OPS, {.ranks = 5, .transport = "inproc", .threads = 1, .bucket_bytes = 16 * KB, .share = true}},
    {"3 ranks: autoencoder", AUTOENCODER, {.ranks = 3, .transport = "inproc", .threads = 1, .share = true}},
    {"2 ranks in waves: robust", ROBUST, {.ranks = 2, .transport = "inproc", .threads = 1, .micro_batch = 2}},
    {"grid: weighted", WEIGHTED, {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2", .share = true}},
    {"shm, 3 ranks, bn batch", RES_BATCH, {.ranks = 3, .transport = "shm", .threads = 1, .share = true}},
    {"tcp, 2 ranks: mlp", MLP, {.ranks = 2, .transport = "tcp", .threads = 1, .bucket_bytes = 256 * KB}},
    {"auto, 3 ranks on 2 hosts", CLIP, {.ranks = 3, .transport = "auto", .hosts = "aab", .threads = 1}},
    {"nested 2x2", RES_BATCH, {.ranks = 4, .devices = 2, .transport = "auto", .threads = 1, .share = true}},
    {"2 stages: cnn", CNN, {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2", .share = true}},
    {"2 stages, bn batch", RES_BATCH, {.ranks = 2, .transport = "shm", .threads = 1, .stages = "2"}},
    {"3 stages, clip", CLIP, {.ranks = 3, .transport = "inproc", .threads = 1, .stages = "3", .micro_batch = 4}},
    {"pipelined: mlp",
     MLP,
     {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true, .share = true}},
    {"pipelined, 3 stages in waves",
     RES_SHARD,
     {.ranks = 3, .transport = "inproc", .threads = 1, .stages = "3", .pipelined = true, .micro_batch = 3}},
    {"pipelined, shm: ops",
     OPS,
     {.ranks = 2, .transport = "shm", .threads = 1, .stages = "2", .pipelined = true, .micro_batch = 2, .share = true}},
    {"grid, bn batch",
     RES_BATCH,
     {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2", .bucket_bytes = 16 * KB, .share = true}},
    {"grid, pipelined: ops",
     OPS,
     {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true, .micro_batch = 1}},
    {"grid, nested, pipelined",
     RES_SHARD,
     {.ranks = 4, .devices = 2, .transport = "auto", .threads = 1, .stages = "2", .pipelined = true, .share = true}},
};

static void test_row(void **arg)
{
    static ranks_truth truths[CASES];
    const ranks_row *r = *arg;
    law_way way = r->way;
    way.device = "far";
    ranks_expect(&cases[r->c], way, ranks_know(&cases[r->c], &truths[r->c]));
}

/* An engine without a group. */
static void test_alone(void **arg)
{
    for (int c = 0; c < CASES; c++) {
        uint64_t near = law_run(&cases[c], (law_way){.threads = 1});
        law_expect(&cases[c], (law_way){.device = "far", .threads = 2, .micro_batch = 4}, near);
    }
}

static bool is_copy(const void *copy, bool wanted)
{
    return wanted ? copy && !far_has(copy, 1) : !copy;
}

static void check_copies(const lk_engine *engine)
{
    const lk_grid *grid = &engine->grid;
    CHECK(far_has(engine->params->grads, 1) && far_has(engine->params->params, 1));
    CHECK(is_copy(engine->buckets->copy, grid->replicas > 1));
    CHECK(is_copy(engine->sums_copy, grid->replicas > 1));
    for (int i = 0; i < engine->lane_count; i++) {
        CHECK(is_copy(engine->lanes[i].previous_copy, grid->stage > 0));
        CHECK(is_copy(engine->lanes[i].next_copy, grid->stage < grid->stages - 1));
    }
}

/* The measured size of the staging buffers is their allocated size. */
static void check_measured(lk_engine *engine, const char *optimizer)
{
    lk_engine_size size;
    lk_engine_rank_model rank = {.graph = engine->graph,
                                 .dev = engine->dev,
                                 .opts = engine->opts,
                                 .grid = engine->grid,
                                 .hooks = lk__engine_pass_hooks(engine),
                                 .host_only = true};
    rank.opts.optimizer = optimizer; /* the engine's own text is freed */
    CHECK_OK(lk__engine_measure_rank(&rank, &size));
    size_t lane = 0, sums = engine->params->count * (size_t)engine->waves->own_roots * sizeof(float);
    lk_tensor input = lk__plan_input(engine->plan, 0), output = lk__plan_output(engine->plan, 0);
    lane += engine->lanes[0].previous_copy ? lk__tensor_stride(&input) : 0;
    lane += engine->lanes[0].next_copy ? lk__tensor_stride(&output) : 0;
    CHECK(size.copies == sums + lane * engine->waves->capacity * (size_t)engine->lane_count);
    CHECK(lk__engine_size_total(&size) == size.copies && lk__engine_size_shared(&size) == size.copies);
}

static bool look_inside(lk_group *group, const team_spec *team, const void *arg)
{
    const law_way *way = arg;
    const law_case *c = &cases[RES_SHARD];
    lk_engine *engine = ranks_engine(c, way, group);
    lk_batch batch;
    lk_metrics metrics;
    law_samples s = law_samples_make(c);
    check_copies(engine);
    check_measured(engine, c->optimizer);
    law_batch(c, 0, s.x, s.labels, s.ids, &batch);
    size_t before = far_fetched;
    CHECK_OK(lk_engine_step(engine, &batch, &metrics));
    CHECK(far_fetched - before >= engine->params->count * (size_t)engine->waves->own_roots * sizeof(float));
    lk_engine_destroy(engine);
    law_samples_free(&s);
    return false;
}

static void test_copies(void **arg)
{
    static const law_way ways[] = {
        {.device = "far", .ranks = 2, .transport = "inproc", .threads = 1},
        {.device = "far", .ranks = 3, .transport = "inproc", .threads = 1, .micro_batch = 2},
        {.device = "far", .ranks = 4, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true},
        {.device = "far", .ranks = 6, .transport = "inproc", .threads = 1, .stages = "3"},
    };
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
        if (!team_run(ranks_team(&ways[i]), look_inside, &ways[i]))
            fail_msg("way %zu: what goes to other ranks is not where it should be", i);
    }
}

static bool find_a_flip(lk_group *group, const team_spec *team, const void *arg)
{
    const law_case *c = &cases[RES_SHARD];
    lk_engine *engine = ranks_engine(c, arg, group);
    lk_batch batch;
    lk_metrics metrics;
    law_samples s = law_samples_make(c);
    law_batch(c, 0, s.x, s.labels, s.ids, &batch);
    CHECK_OK(lk_engine_step(engine, &batch, &metrics));
    CHECK(lk_engine_step(engine, &batch, &metrics) == LK_STATUS_MISMATCH);
    CHECK_TEXT(lk_error_detail(), "step 2: rank 1 differs from the other replicas in ");
    lk_engine_destroy(engine);
    law_samples_free(&s);
    return false;
}

/* A fault on request changes the device's memory. */
static void test_a_bit_flips(void **arg)
{
    law_way way = {.device = "far", .ranks = 3, .transport = "shm", .threads = 1, .check_every = 1};
    setenv("LOCKSTEP_FAULT", "flip:rank=1,step=2", 1);
    bool found = team_run(ranks_team(&way), find_a_flip, &way);
    unsetenv("LOCKSTEP_FAULT");
    assert_true(found);
}

/* The device's memory is not host memory; staging buffers are. */
static void test_memory(void **arg)
{
    lk_graph *graph;
    int bounds[] = {0, 8, 16};
    lk_engine_opts opts = {.device = "far", .batch = 4096, .shards = 16};
    lk_engine_size size;
    law_require(lk_model_build("mlp", (lk_model_shape)LAW_MNIST, &graph));
    lk_engine_rank_model rank = {.graph = graph, .opts = lk__engine_defaults(&opts), .host_only = true};
    rank.grid = (lk_grid){.replicas = 2, .stages = 1, .first_layer = 1, .last_layer = graph->count, .bounds = bounds};
    law_require(lk__device_open("far", &(lk_device_opts){.threads = 1}, &rank.dev));
    law_require(lk__engine_measure_rank(&rank, &size));
    assert_int_equal(size.copies, size.parameters);
    assert_true(size.activations > 4 * size.parameters);
    lk_available enough = {{2 * size.parameters, "the host"}, {SIZE_MAX, ""}}, little = enough;
    law_require(lk__fit_check(&rank, &enough));
    little.host.bytes = size.parameters;
    assert_fails(lk__fit_check(&rank, &little), LK_STATUS_MEMORY, " for copies of what ranks exchange, ");
    assert_null(strstr(lk_error_detail(), "activations"));
    lk__device_close(rank.dev);
    lk_graph_destroy(graph);
}

static void test_table(void **arg)
{
    size_t rows_before = 0;
    lk_device *dev;
    while (lk__device_list(rows_before))
        rows_before++;
    assert_ptr_equal(lk__device_list(rows_before - 1), &far_type);
    law_require(lk__device_open("far:3", &(lk_device_opts){.threads = 1}, &dev));
    lk__device_close(dev);
    size_t more = 0;
    while (lk__device_add(&far_type) == LK_OK)
        more++;
    assert_detail("no room for device 'far'");
    assert_null(lk__device_list(rows_before + more));
}

int main(void)
{
    law_require(far_add());
    /* The first engine of a process reads the faults, so this test comes first. */
    int failed = RUN_TESTS(NULL, NULL, TEST(test_a_bit_flips));
    failed += ranks_run_rows(rows, COUNT_OF(rows), NULL, test_row);
    return failed + RUN_TESTS(NULL, NULL, TEST(test_alone), TEST(test_copies), TEST(test_memory), TEST(test_table));
}
