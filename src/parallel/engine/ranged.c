/* ranged.c - gradients, plan, lanes and leaves of a rank, for the range of shards that it trains. */
#include "parallel/engine/ranged.h"

#include "base/mem.h"
#include "parallel/step/outputs.h"
#include "parallel/step/run_waves.h"
#include "parallel/step/staging.h"

lk_engine_rank_model lk__engine_model(lk_engine *engine)
{
    return (lk_engine_rank_model){.graph = engine->graph,
                                  .dev = engine->dev,
                                  .opts = engine->opts,
                                  .grid = engine->grid,
                                  .hooks = lk__engine_pass_hooks(engine),
                                  .kept = lk__engine_outputs_kept(engine->outputs),
                                  .device_sums = engine->channel};
}

lk_engine_extent lk__engine_extent(const lk_waves *waves)
{
    return (lk_engine_extent){.capacity = waves->capacity,
                              .shards = waves->last - waves->first,
                              .grad_slots = lk__waves_slots(waves),
                              .slots = waves->most_roots,
                              .all_roots = waves->all_roots,
                              .total_slots = waves->total_slots};
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

lk_engine_extent lk__engine_extent_most(lk_engine_extent a, lk_engine_extent b)
{
    return (lk_engine_extent){.capacity = lk__size_max(a.capacity, b.capacity),
                              .shards = larger(a.shards, b.shards),
                              .grad_slots = larger(a.grad_slots, b.grad_slots),
                              .slots = larger(a.slots, b.slots),
                              .all_roots = larger(a.all_roots, b.all_roots),
                              .total_slots = larger(a.total_slots, b.total_slots)};
}

/* The partial sums that the group adds are in the group's memory, which the ranks of a host read directly: the
 * gradients themselves, or their staging buffer. */
lk_status lk__engine_alloc_grads(lk_engine *engine)
{
    bool far = !engine->dev->type->host_memory, grouped = engine->grid.sums && !engine->channel;
    size_t slot = lk__size_max(engine->params->count, 1) * sizeof(float);
    size_t bytes = slot * (size_t)engine->extent.grad_slots;
    if (grouped)
        LK_TRY(lk_group_alloc(engine->grid.sums, far ? slot * (size_t)engine->waves->own_roots : bytes,
                              (void **)&engine->shared));
    if (far || !engine->shared)
        LK_TRY(engine->dev->type->alloc(engine->dev, bytes, "gradients", (void **)&engine->grads));
    engine->params->grads = engine->grads ? engine->grads : engine->shared;
    return LK_OK;
}

lk_status lk__engine_alloc_leaves(lk_engine *engine)
{
    lk__mem_free(engine->leaves);
    engine->leaves = NULL;
    return LK_ALLOC((size_t)engine->extent.shards, "results", &engine->leaves);
}

lk_status lk__engine_alloc_plan(lk_engine *engine)
{
    const lk_engine_extent *extent = &engine->extent;
    lk_plan_opts opts = {.first = engine->grid.first_layer,
                         .last = engine->grid.last_layer,
                         .capacity = extent->capacity,
                         .lanes = engine->lane_count,
                         .shards = extent->shards,
                         .slots = extent->slots,
                         .all_roots = extent->all_roots,
                         .total_slots = extent->total_slots,
                         .kept = lk__engine_outputs_kept(engine->outputs),
                         .input_grads = engine->opts.input_grads,
                         .hooks = lk__engine_pass_hooks(engine)};
    LK_TRY(lk__plan_create(engine->graph, engine->params, &opts, &engine->plan));
    return engine->groups.frozen ? lk__plan_freeze(engine->plan, engine->groups.frozen) : LK_OK;
}

static lk_status alloc_samples(lk_engine *engine, lk_tensor input, lk_engine_lane *lane)
{
    lk_device *dev = engine->dev;
    size_t sample = lk__shape_sample(input.shape) * sizeof *lane->samples;
    if (engine->grid.stage > 0 || (input.dtype == LK_DTYPE_F32 && lk__tensor_stride(&input) == sample))
        return LK_OK;
    return dev->type->alloc(dev, engine->extent.capacity * sample, "samples", (void **)&lane->samples);
}

/* Staging buffers for the tensors that a lane exchanges with the previous and the next stage. */
static lk_status alloc_copies(lk_engine *engine, int index)
{
    lk_engine_lane *lane = &engine->lanes[index];
    lk_tensor input = lk__plan_input(engine->plan, index), output = lk__plan_output(engine->plan, index);
    size_t capacity = engine->extent.capacity;
    if (engine->grid.stage > 0 && !engine->links.previous.in)
        LK_TRY(lk__staging_alloc(engine->dev, capacity * lk__tensor_stride(&input), "a copy of activations",
                                 &lane->previous_copy));
    if (lk__engine_has_losses(engine) || engine->links.next.in)
        return LK_OK;
    return lk__staging_alloc(engine->dev, capacity * lk__tensor_stride(&output), "a copy of activations",
                             &lane->next_copy);
}

lk_status lk__engine_alloc_lanes(lk_engine *engine)
{
    LK_TRY(LK_ALLOC((size_t)engine->lane_count, "waves", &engine->lanes));
    for (int i = 0; i < engine->lane_count; i++) {
        LK_TRY(alloc_samples(engine, lk__plan_input(engine->plan, i), &engine->lanes[i]));
        LK_TRY(alloc_copies(engine, i));
    }
    return LK_OK;
}

void lk__engine_free_plan(lk_engine *engine)
{
    for (int i = 0; engine->lanes && i < engine->lane_count; i++) {
        lk__mem_free(engine->lanes[i].next_copy);
        lk__mem_free(engine->lanes[i].previous_copy);
        engine->dev->type->free(engine->dev, engine->lanes[i].samples);
    }
    lk__mem_free(engine->lanes);
    lk__plan_destroy(engine->plan);
    engine->lanes = NULL;
    engine->plan = NULL;
}
