/* test_memory.c - the sizes that are told of an engine are those of the engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <lockstep/lockstep.h>

#include "parallel/engine_impl.h"
#include "parallel/memory.h"

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
                         .total_slots = waves->total_slots};
    assert_int_equal(lk__plan_measure(engine->graph, engine->dev, &opts, &size), LK_OK);
    return size;
}

static void expect_engine(const char *model, lk_model_shape shape, const lk_engine_opts *opts)
{
    lk_graph *graph;
    lk_engine *engine;
    lk_engine_size size;
    assert_int_equal(lk_model_build(model, shape, &graph), LK_OK);
    assert_int_equal(lk__engine_measure(graph, opts, &size), LK_OK);
    assert_int_equal(lk_engine_create(graph, opts, &engine), LK_OK);
    const lk_params *params = engine->params;
    lk_plan_size plan = plan_of(engine);
    int slots = engine->waves->single ? engine->waves->own_roots : engine->waves->most_roots;
    assert_int_equal(size.parameters, params->count * sizeof(float));
    assert_int_equal(size.gradients, params->count * sizeof(float) * (size_t)slots);
    assert_int_equal(size.optimizer, params->count * sizeof(float) * lk__optim_states(engine->optim));
    assert_int_equal(size.statistics, params->buffer_count * sizeof(float) + plan.sums);
    assert_int_equal(size.activations, plan.activations);
    assert_int_equal(size.scratch, plan.scratch);
    assert_int_equal(size.samples, engine->waves->capacity);
    lk_engine_destroy(engine);
    lk_graph_destroy(graph);
}

static void test_engines(void **arg)
{
    (void)arg;
    static const lk_engine_opts opts[] = {
        {.batch = 64, .threads = 1},
        {.batch = 64, .threads = 2, .micro_batch = 4, .optimizer = "adam"},
        {.batch = 21, .threads = 1, .shards = 6, .micro_batch = 7, .optimizer = "sgd:momentum=.9"},
        {.batch = 40, .threads = 2, .shards = 8, .micro_batch = 5, .bn = LK_BN_SHARD, .optimizer = "adadelta"},
    };
    for (size_t i = 0; i < sizeof opts / sizeof *opts; i++) {
        expect_engine("mlp", (lk_model_shape){1, 28, 28, 10}, &opts[i]);
        expect_engine("resnet20:width=4", (lk_model_shape){3, 32, 32, 10}, &opts[i]);
    }
}

static void test_mistakes(void **arg)
{
    (void)arg;
    lk_graph *graph;
    lk_engine_size size;
    assert_int_equal(lk_model_build("mlp", (lk_model_shape){1, 28, 28, 10}, &graph), LK_OK);
    assert_int_equal(lk__engine_measure(graph, &(lk_engine_opts){.batch = 64, .optimizer = "adm"}, &size),
                     LK_STATUS_USAGE);
    assert_int_equal(lk__engine_measure(graph, &(lk_engine_opts){.batch = 64, .device = "abacus"}, &size),
                     LK_STATUS_USAGE);
    /* More than any machine has: the sizes still do not overflow. */
    assert_int_equal(lk__engine_measure(graph, &(lk_engine_opts){.batch = (size_t)1 << 50}, &size), LK_STATUS_MEMORY);
    lk_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engines),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
