/* memory.c - the sizes that build.c allocates, for one rank. */
#include "parallel/memory.h"

#include "base/pool.h"
#include "parallel/engine_impl.h"

static lk_status measure_plan(const lk_graph *graph, lk_device *dev, const lk_waves *waves, lk_engine_size *size)
{
    lk_plan_size plan;
    lk_plan_opts opts = {.first = 1,
                         .last = graph->count,
                         .capacity = waves->capacity,
                         .lanes = 1,
                         .shards = waves->shards,
                         .slots = waves->most_roots,
                         .all_roots = waves->all_roots,
                         .total_slots = waves->total_slots};
    LK_TRY(lk__plan_measure(graph, dev, &opts, &plan));
    size->activations = plan.activations;
    size->statistics += plan.sums;
    size->scratch = plan.scratch;
    size->samples = waves->capacity;
    return LK_OK;
}

static lk_status measure_optimizer(const char *spec, lk_device *dev, size_t parameters, lk_engine_size *size)
{
    lk_optim *optim;
    LK_TRY(lk__optim_create(spec, 0, dev, 0, &optim));
    size->optimizer = lk__optim_states(optim) * parameters;
    lk__optim_destroy(optim);
    return LK_OK;
}

static lk_status measure(const lk_graph *graph, const lk_engine_opts *opts, lk_device *dev, lk_engine_size *out)
{
    lk_params_size params = lk__params_measure(graph, 1, graph->count);
    lk_engine_size size = {.parameters = params.count * sizeof(float),
                           .statistics = params.buffer_count * sizeof(float)};
    lk_waves_opts cut = {.shards = opts->shards,
                         .bounds = (int[]){0, opts->shards},
                         .replicas = 1,
                         .batch = opts->batch,
                         .micro_batch = lk__graph_takes_one_wave(graph, opts->bn) ? 0 : opts->micro_batch};
    lk_waves *waves;
    LK_TRY(measure_optimizer(opts->optimizer, dev, size.parameters, &size));
    LK_TRY(lk__waves_create(&cut, &waves));
    size.gradients = size.parameters * (size_t)(waves->single ? waves->own_roots : waves->most_roots);
    lk_status status = measure_plan(graph, dev, waves, &size);
    lk__waves_destroy(waves);
    if (status == LK_OK)
        *out = size;
    return status;
}

lk_status lk__engine_measure(const lk_graph *graph, const lk_engine_opts *opts, lk_engine_size *out)
{
    lk_device *dev;
    lk_engine_opts full = lk__engine_defaults(opts);
    lk_device_opts device = {.threads = full.threads ? full.threads : lk__cores()};
    LK_TRY(lk_graph_check(graph));
    LK_TRY(lk__device_open(full.device, &device, &dev));
    lk_status status = measure(graph, &full, dev, out);
    lk__device_close(dev);
    return status;
}
