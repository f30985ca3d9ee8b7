/* nonfinite.h - finding non-finite losses and gradients in a step, and the rank and shard they come from. */
#ifndef LK_PARALLEL_STEP_NONFINITE_H
#define LK_PARALLEL_STEP_NONFINITE_H

#include "parallel/step/engine_impl.h"

/* Collective, after the passes of a step that is done at once, or when a recorded step is received.
 * MISMATCH if the ranks have parts of batches of different sizes, or only some give weights. *bad: some rank has a
 * non-finite loss or gradient. found: the result of the device's check of a recorded step; NULL: the host checks. Also
 * makes the ranks agree on the signal level. */
lk_status lk__nonfinite_check_step(lk_engine *engine, const lk_engine_part *part, const lk_flag *found,
                                   bool *bad) LK_CHECKED;
/* Collective, for an evaluation: checks only the size of the batch and who gives weights, and agrees on the signal
 * level. */
lk_status lk__nonfinite_check_total(lk_engine *engine, const lk_engine_part *part) LK_CHECKED;

/* Collective, after a bad step, when the engine is in its state before that step; host_losses are those of
 * the step. NONFINITE with the same detail at every rank: the step, and the parameter, the sample, or the
 * tensor and its shard. The shard of a recorded gradient is unknown if a rank has not kept the samples. */
lk_status lk__nonfinite_explain(lk_engine *engine, const lk_engine_part *part, const lk_flag *found) LK_CHECKED;

/* Collective, when all gradients are summed over the ranks: NONFINITE if the sums may overflow and do so at
 * any stage. In a recorded step: enqueues the check of losses and sums. */
lk_status lk__nonfinite_check_sums(lk_engine *engine, const lk_engine_part *part) LK_CHECKED;

#endif
