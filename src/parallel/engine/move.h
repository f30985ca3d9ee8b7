/* move.h - moving shards between the replicas of a job, between steps.
 *
 * Shards belong to the run and are summed over one tree, so it makes no difference to a bit which replica trains them.
 * Evaluations and lk_engine_shard_range stay with the even cut. */
#ifndef LK_PARALLEL_ENGINE_MOVE_H
#define LK_PARALLEL_ENGINE_MOVE_H

#include <lockstep/engine.h>

#include "base/status.h"

/* Whether shards can be moved; the same at all ranks. They cannot where ranks are stages, devices have memory of their
 * own, or sums are in an engine's own order. */
bool lk__engine_can_move(const lk_engine *engine);

/* The shards that this rank trains, as lk_engine_shard_range. */
lk_shard_range lk__engine_train_range(const lk_engine *engine);
/* The shards that each replica trains: replica r has [bounds[r], bounds[r+1]). Borrowed until the next move. */
const int *lk__engine_train_bounds(const lk_engine *engine);

/* Collective, while no step is under way, if lk__engine_can_move: the steps that follow divide their batches by these
 * bounds, (replicas + 1), which are equal at all ranks; each replica has at least one shard. *moved is false at all
 * ranks, and nothing has changed, if a rank lacks memory for its new shards. */
lk_status lk__engine_move_shards(lk_engine *engine, const int *bounds, bool *moved) LK_CHECKED;

#endif
