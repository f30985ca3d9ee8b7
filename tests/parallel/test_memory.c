/* test_memory.c - the measured sizes of an engine are those of a real engine. */
#include <lockstep/lockstep.h>

#include "parallel/memory/memory.h"
#include "parallel/step/run_waves.h"
#include "processes.h"

static lk_plan_size plan_of(const lk_engine *engine)
{
    const lk_waves *waves = engine->waves;
    lk_plan_size size;
    lk_plan_opts opts = {.first = engine->grid.first_layer,
                         .last = engine->grid.last_layer,
                         .capacity = waves->capacity,
                         .lanes = engine->lane_count,
                         .shards = waves->last - waves->first,
                         .slots = waves->most_roots,
                         .all_roots = waves->all_roots,
                         .total_slots = waves->total_slots,
                         .hooks = lk__engine_pass_hooks((lk_engine *)(uintptr_t)engine)};
    assert_int_equal(lk__plan_measure(engine->graph, engine->dev, &opts, &size), LK_OK);
    return size;
}

static bool same_size(const lk_engine *engine, const lk_engine_size *size)
{
    const lk_params *params = engine->params;
    lk_plan_size plan = plan_of(engine);
    size_t slots = (size_t)(engine->waves->single ? engine->waves->own_roots : engine->waves->most_roots);
    return size->parameters == params->count * sizeof(float) &&
           size->gradients == params->count * sizeof(float) * slots &&
           size->optimizer == params->count * sizeof(float) * lk__optim_states(engine->optim) &&
           size->statistics == params->buffer_count * sizeof(float) + plan.sums &&
           size->activations == plan.activations && size->scratch == plan.scratch &&
           size->samples == engine->waves->capacity;
}

static void expect_engine(const char *model, lk_model_shape shape, const lk_engine_opts *opts)
{
    lk_graph *graph;
    lk_engine *engine;
    lk_engine_size size;
    assert_int_equal(lk_model_build(model, shape, &graph), LK_OK);
    assert_int_equal(lk__engine_measure(graph, opts, &size), LK_OK);
    assert_int_equal(lk_engine_create(graph, opts, &engine), LK_OK);
    assert_true(same_size(engine, &size));
    lk_engine_destroy(engine);
    lk_graph_destroy(graph);
}

static void test_engines(void **arg)
{
    static const lk_engine_opts opts[] = {
        {.batch = 64, .threads = 1},
        {.batch = 64, .threads = 2, .micro_batch = 4, .optimizer = "adam"},
        {.batch = 21, .threads = 1, .shards = 6, .micro_batch = 7, .optimizer = "sgd:momentum=.9"},
        {.batch = 40, .threads = 2, .shards = 8, .micro_batch = 5, .bn = LK_BN_MODE_SHARD, .optimizer = "adadelta"},
        {.batch = 64, .threads = 1, .precision = LK_PRECISION_BF16},
    };
    for (size_t i = 0; i < COUNT_OF(opts); i++) {
        expect_engine("mlp", (lk_model_shape){1, 28, 28, 10}, &opts[i]);
        expect_engine("resnet20:width=4", (lk_model_shape){3, 32, 32, 10}, &opts[i]);
    }
}

/* A rank of a job of threads. */
typedef struct member {
    const lk_graph *graph;
    lk_engine_opts opts;
    bool right;
} member;

static void be_member(int number, void *arg)
{
    member *m = (member *)arg + number;
    lk_engine *engine;
    lk_engine_size size;
    if (lk_engine_create(m->graph, &m->opts, &engine) == LK_OK) {
        lk_engine_rank_model rank = {.graph = engine->graph,
                                     .dev = engine->dev,
                                     .opts = engine->opts,
                                     .grid = engine->grid,
                                     .hooks = lk__engine_pass_hooks(engine)};
        rank.opts.optimizer = m->opts.optimizer; /* the engine's own texts are freed */
        rank.opts.stages = m->opts.stages;
        m->right =
            lk__engine_measure_rank(&rank, &size) == LK_OK && same_size(engine, &size) && engine->lane_count >= 1;
        lk_engine_destroy(engine);
    }
    lk_group_destroy(m->opts.group);
}

static void expect_ranks(const char *model, const lk_engine_opts *opts, int ranks)
{
    enum { MOST = 4 };
    member members[MOST];
    lk_group *groups[MOST];
    lk_graph *graph;
    assert_int_equal(lk_model_build(model, (lk_model_shape){3, 32, 32, 10}, &graph), LK_OK);
    assert_int_equal(lk_group_create_threads(ranks, NULL, groups), LK_OK);
    for (int r = 0; r < ranks; r++) {
        members[r] = (member){.graph = graph, .opts = *opts};
        members[r].opts.group = groups[r];
    }
    threads_run(ranks, be_member, members);
    for (int r = 0; r < ranks; r++)
        assert_true(members[r].right);
    lk_graph_destroy(graph);
}

static void test_ranks(void **arg)
{
    static const struct {
        lk_engine_opts opts;
        int ranks;
    } rows[] = {
        {{.batch = 48, .threads = 1, .optimizer = "adam"}, 3},
        {{.batch = 48, .threads = 1, .micro_batch = 4, .optimizer = "sgd:momentum=.9"}, 2},
        {{.batch = 48, .threads = 1, .stages = "2", .optimizer = "adam"}, 4},
        {{.batch = 48, .threads = 1, .stages = "2", .pipelined = true, .bn = LK_BN_MODE_SHARD, .optimizer = "sgd"}, 4},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        expect_ranks("mlp", &rows[i].opts, rows[i].ranks);
        expect_ranks("resnet20:width=4", &rows[i].opts, rows[i].ranks);
    }
}

static void test_mistakes(void **arg)
{
    lk_graph *graph;
    lk_engine_size size;
    assert_int_equal(lk_model_build("mlp", (lk_model_shape){1, 28, 28, 10}, &graph), LK_OK);
    assert_int_equal(lk__engine_measure(graph, &(lk_engine_opts){.batch = 64, .optimizer = "adm"}, &size),
                     LK_STATUS_USAGE);
    assert_int_equal(lk__engine_measure(graph, &(lk_engine_opts){.batch = 64, .device = "abacus"}, &size),
                     LK_STATUS_USAGE);
    /* More memory than any machine has: the sizes do not overflow. */
    assert_int_equal(lk__engine_measure(graph, &(lk_engine_opts){.batch = (size_t)1 << 50}, &size), LK_STATUS_MEMORY);
    lk_graph_destroy(graph);
}

TEST_MAIN(NULL, NULL, TEST(test_engines), TEST(test_ranks), TEST(test_mistakes))
