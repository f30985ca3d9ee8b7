/* run_waves.h - forward and backward of a step's waves, and forward of an evaluation. */
#ifndef LK_PARALLEL_STEP_RUN_WAVES_H
#define LK_PARALLEL_STEP_RUN_WAVES_H

#include "parallel/step/engine_impl.h"

/* Together: forward and backward of all waves; starts buckets as they become final. Fills
 * loss and place of the engine, unless the step is recorded. */
lk_status lk__engine_run_waves(lk_engine *engine, const lk_engine_part *part) LK_CHECKED;
/* After the passes, when no host's check can stop the step any more: running statistics. */
lk_status lk__engine_finish_waves(lk_engine *engine, const lk_engine_part *part) LK_CHECKED;
/* The gradients of shard s of this replica alone, in slot 0; all its stages do
 * it together. The passes of the step must have been the last. */
lk_status lk__engine_run_leaf(lk_engine *engine, const lk_engine_part *part, int s) LK_CHECKED;
/* Forward in evaluation mode of samples [begin, begin + n) of the part; fills loss and place. */
lk_status lk__engine_run_eval(lk_engine *engine, const lk_engine_part *part, size_t begin, size_t n) LK_CHECKED;

/* The plan's hooks. */
lk_plan_hooks lk__engine_pass_hooks(lk_engine *engine);

#endif
