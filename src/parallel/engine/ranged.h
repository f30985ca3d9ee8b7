/* ranged.h - the memory of an engine whose size depends on the range of shards that its rank trains: gradients, the
 * plan and its lanes, leaves of metrics. */
#ifndef LK_PARALLEL_ENGINE_RANGED_H
#define LK_PARALLEL_ENGINE_RANGED_H

#include "parallel/memory/memory.h"
#include "parallel/step/engine_impl.h"

/* This rank in the form that memory.h measures. */
lk_engine_rank_model lk__engine_model(lk_engine *engine);

/* The sizes that a range of shards needs, and the larger of each of two sizes. */
lk_engine_extent lk__engine_extent(const lk_waves *waves);
lk_engine_extent lk__engine_extent_most(lk_engine_extent a, lk_engine_extent b);

/* Each allocates for engine->extent. Gradients: collective if a group sums them. */
lk_status lk__engine_alloc_grads(lk_engine *engine) LK_CHECKED;
lk_status lk__engine_alloc_leaves(lk_engine *engine) LK_CHECKED;
/* Needs the gradients. */
lk_status lk__engine_alloc_plan(lk_engine *engine) LK_CHECKED;
/* The lanes of the plan. Needs the links, which replace staging buffers. */
lk_status lk__engine_alloc_lanes(lk_engine *engine) LK_CHECKED;
/* Frees the lanes, too. */
void lk__engine_free_plan(lk_engine *engine);

#endif
