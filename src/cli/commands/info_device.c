/* info_device.c - a step of training whose result nobody needs, so that the device chooses its algorithms. Values do
 * not count for the choice, so all samples are zero. */
#include "cli/commands/info_device.h"

#include "base/mem.h"
#include "nn/graph.h"
#include "parallel/engine/engine.h"

/* A batch of zeros, which are valid samples, labels and targets of every model. */
typedef struct zeros {
    float *x, *targets;
    int32_t *labels;
    uint32_t *ids;
} zeros;

static void free_zeros(zeros *z)
{
    lk__mem_free(z->x);
    lk__mem_free(z->targets);
    lk__mem_free(z->labels);
    lk__mem_free(z->ids);
}

static lk_status make_zeros(const lk_graph *graph, size_t n, zeros *z, lk_batch *out)
{
    size_t floats = lk__shape_sample(graph->layers[0].shape), targets = lk__graph_target_floats(graph);
    LK_TRY(LK_ALLOC(n * floats, "samples", &z->x));
    LK_TRY(LK_ALLOC(lk__size_max(n * targets, 1), "targets", &z->targets));
    LK_TRY(LK_ALLOC(n, "labels", &z->labels));
    LK_TRY(LK_ALLOC(n, "ids", &z->ids));
    *out = (lk_batch){.count = n,
                      .sample_floats = floats,
                      .x = z->x,
                      .labels = z->labels,
                      .target_floats = targets,
                      .targets = targets ? z->targets : NULL,
                      .ids = z->ids};
    return LK_OK;
}

static lk_status take_step(lk_engine *engine, const lk_graph *graph, size_t n)
{
    zeros z = {0};
    lk_batch batch;
    lk_metrics metrics;
    lk_status status = make_zeros(graph, n, &z, &batch);
    if (status == LK_OK)
        status = lk_engine_step(engine, &batch, &metrics);
    free_zeros(&z);
    return status;
}

lk_status lk__cmd_info_device(const lk_graph *graph, const lk_engine_opts *opts,
                              void (*each)(void *arg, const char *line), void *arg)
{
    lk_engine_opts own = *opts;
    lk_engine *engine;
    own.allow_nonfinite = true;
    LK_TRY(lk_engine_create(graph, &own, &engine));
    lk_status status = take_step(engine, graph, own.batch);
    if (status == LK_OK)
        lk__engine_explain(engine, each, arg);
    lk_engine_destroy(engine);
    return status;
}
