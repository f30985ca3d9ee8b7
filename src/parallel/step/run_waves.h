/* run_waves.h - forward and backward passes of a step's waves, and forward passes of an evaluation. */
#ifndef LK_PARALLEL_STEP_RUN_WAVES_H
#define LK_PARALLEL_STEP_RUN_WAVES_H

#include "parallel/step/engine_impl.h"

/* Collective: runs all waves forward and backward, and starts buckets as their gradients become final. Fills
 * host_losses and host_label_ranks, unless the step is recorded. */
lk_status lk__engine_run_waves(lk_engine *engine, const lk_engine_part *part) LK_CHECKED;
/* After the checks of a step: updates the running statistics. */
lk_status lk__engine_finish_waves(lk_engine *engine, const lk_engine_part *part) LK_CHECKED;
/* Computes the gradients of a single shard s into slot 0. Collective over the stages of this replica. Must
 * follow lk__engine_run_waves of the same step. */
lk_status lk__engine_run_leaf(lk_engine *engine, const lk_engine_part *part, int s) LK_CHECKED;
/* Collective: runs the part forward in evaluation mode. Fills host_losses and host_label_ranks, unless the evaluation
 * is recorded; with part->wanted, this rank's rows of the outputs instead. */
lk_status lk__engine_run_eval(lk_engine *engine, const lk_engine_part *part) LK_CHECKED;

/* The functions that the plan calls during a pass. */
lk_plan_hooks lk__engine_pass_hooks(lk_engine *engine);

#endif
