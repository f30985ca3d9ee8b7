/* memory.c - the sizes that engine/build.c allocates for one rank. */
#include "parallel/memory/memory.h"

#include "base/cores.h"
#include "base/mem.h"
#include "parallel/layout/defaults.h"
#include "parallel/step/engine_impl.h"
#include "parallel/step/pipeline.h"

enum { WAVES_A_STAGE = 4 };

/* The samples of a wave. The default for a pipeline has enough waves to keep all stages busy most of the
 * time. */
static size_t choose_micro_batch(const lk_engine_rank_model *rank)
{
    const lk_engine_opts *opts = &rank->opts;
    size_t waves = (size_t)(WAVES_A_STAGE * rank->grid.stages * rank->grid.replicas);
    if (lk__graph_takes_one_wave(rank->graph, opts->bn))
        return 0;
    if (opts->micro_batch || !opts->pipelined)
        return opts->micro_batch;
    return lk__size_max(1, opts->batch / waves);
}

lk_status lk__engine_rank_waves(const lk_engine_rank_model *rank, lk_waves **out, int *lanes)
{
    const lk_grid *grid = &rank->grid;
    lk_waves_opts opts = {.shards = rank->opts.shards,
                          .bounds = grid->bounds,
                          .replicas = grid->replicas,
                          .replica = grid->replica,
                          .batch = rank->opts.batch,
                          .micro_batch = choose_micro_batch(rank)};
    lk_waves *waves;
    LK_TRY(lk__waves_create(&opts, &waves));
    int most = waves->single ? 1 : waves->last - waves->first;
    *lanes = lk__pipeline_ahead(grid->stages, grid->stage, most - 1, rank->opts.pipelined) + 1;
    *out = waves;
    return LK_OK;
}

static lk_status measure_plan(const lk_engine_rank_model *rank, const lk_waves *waves, int lanes, lk_engine_size *size)
{
    lk_plan_size plan;
    lk_plan_opts opts = {.first = rank->grid.first_layer,
                         .last = rank->grid.last_layer,
                         .capacity = waves->capacity,
                         .lanes = lanes,
                         .shards = waves->last - waves->first,
                         .slots = waves->most_roots,
                         .all_roots = waves->all_roots,
                         .total_slots = waves->total_slots,
                         .kept = rank->kept,
                         .input_grads = rank->opts.input_grads,
                         .hooks = rank->hooks};
    LK_TRY(lk__plan_measure(rank->graph, rank->dev, &opts, &plan));
    size->activations = plan.activations;
    if (rank->opts.input_grads && rank->grid.stage == 0)
        size->activations += lk__shard_most(rank->opts.batch, waves->shards, waves->last - waves->first) *
                             lk__shape_sample(rank->graph->layers[0].shape) * sizeof(float);
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

/* Bytes of a layer's result for a wave of `capacity` samples. */
static size_t wave_bytes(const lk_engine_rank_model *rank, size_t capacity, int layer)
{
    lk_tensor value = {.dtype = rank->dev->values, .shape = rank->graph->layers[layer].shape};
    value.pitch = lk__device_pitch(rank->dev, value.shape.c);
    return capacity * lk__tensor_stride(&value);
}

/* The large staging buffers. */
static size_t measure_copies(const lk_engine_rank_model *rank, const lk_waves *waves, int lanes, size_t parameters)
{
    const lk_grid *grid = &rank->grid;
    size_t lane = 0;
    if (rank->dev->type->host_memory)
        return 0;
    if (grid->stage > 0)
        lane += wave_bytes(rank, waves->capacity, grid->first_layer - 1);
    if (grid->stage < grid->stages - 1)
        lane += wave_bytes(rank, waves->capacity, grid->last_layer - 1);
    return (size_t)lanes * lane +
           (grid->replicas > 1 && !rank->device_sums ? parameters * (size_t)waves->own_roots : 0);
}

/* Bytes of the float targets of a rank's samples. */
static size_t target_bytes(const lk_engine_rank_model *rank, const lk_waves *waves)
{
    size_t most = lk__shard_most(rank->opts.batch, waves->shards, waves->last - waves->first);
    return most * lk__graph_target_floats(rank->graph) * sizeof(float);
}

lk_status lk__engine_measure_rank(const lk_engine_rank_model *rank, lk_engine_size *out)
{
    lk_params_size params = lk__params_measure(rank->graph, rank->dev, rank->grid.first_layer, rank->grid.last_layer);
    lk_engine_size size = {.parameters = params.count * sizeof(float),
                           .statistics = params.buffer_count * sizeof(float),
                           .host_only = rank->host_only};
    lk_waves *waves;
    int lanes;
    LK_TRY(measure_optimizer(rank->opts.optimizer, rank->dev, size.parameters, &size));
    LK_TRY(lk__engine_rank_waves(rank, &waves, &lanes));
    size.gradients = size.parameters * (size_t)lk__waves_slots(waves);
    lk_status status = measure_plan(rank, waves, lanes, &size);
    if (status == LK_OK && rank->grid.stage == rank->grid.stages - 1)
        size.activations += target_bytes(rank, waves);
    if (status == LK_OK) /* measure_plan has checked that the sizes do not overflow */
        size.copies = measure_copies(rank, waves, lanes, size.parameters);
    lk__waves_destroy(waves);
    if (rank->dev->values != LK_DTYPE_F32) /* products read a rounded copy */
        size.parameters += params.count * lk_dtype_size(rank->dev->values);
    if (status == LK_OK)
        *out = size;
    return status;
}

size_t lk__engine_size_total(const lk_engine_size *size)
{
    size_t device =
        size->parameters + size->gradients + size->optimizer + size->statistics + size->activations + size->scratch;
    return size->copies + (size->host_only ? 0 : device);
}

size_t lk__engine_size_shared(const lk_engine_size *size)
{
    return size->host_only ? size->copies : size->gradients;
}

lk_status lk__engine_measure(const lk_graph *graph, const lk_engine_opts *opts, lk_engine_size *out)
{
    lk_graph *copy;
    lk_engine_rank_model rank = {.opts = lk__engine_defaults(opts)};
    int bounds[] = {0, rank.opts.shards};
    rank.grid = (lk_grid){.replicas = 1, .stages = 1, .first_layer = 1, .last_layer = graph->count, .bounds = bounds};
    lk_device_opts device = {.threads = rank.opts.threads ? rank.opts.threads : lk__cores(),
                             .precision = rank.opts.precision};
    lk_status status;
    LK_TRY(lk_graph_check(graph));
    LK_TRY(lk__graph_copy(graph, &copy));
    if (rank.opts.conv == LK_CONV_MODE_WINOGRAD)
        lk__graph_use_winograd(copy);
    rank.graph = copy;
    LK_TRY_GOTO(lk__device_open(rank.opts.device, &device, &rank.dev), destroy_copy);
    status = lk__engine_measure_rank(&rank, out);
    lk__device_close(rank.dev);

destroy_copy:
    lk_graph_destroy(copy);
    return status;
}
