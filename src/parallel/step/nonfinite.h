/* nonfinite.h - what is not finite in a step, and whose it is. */
#ifndef LK_PARALLEL_STEP_NONFINITE_H
#define LK_PARALLEL_STEP_NONFINITE_H

#include "parallel/step/engine_impl.h"

/* Together, after the passes of a step that was done now, or when a recorded step is
 * received: MISMATCH unless all ranks have parts of one batch. *bad: some rank has a loss or
 * a gradient that is not finite. found is what the devices found in a recorded step; NULL:
 * the host looks. Brings the raised levels of all ranks round. */
lk_status lk__nonfinite_check_step(lk_engine *engine, const lk_engine_part *part, const lk_flag *found,
                                   bool *bad) LK_CHECKED;
/* The first of these alone, and the raised levels, for an evaluation. */
lk_status lk__nonfinite_check_total(lk_engine *engine, size_t total) LK_CHECKED;

/* Together, after a step that is bad, before anything is updated or counted by it, or when
 * all of that was taken back: NONFINITE with step and parameter, or sample or tensor and
 * shard, the same at every rank. loss and place of the engine are the step's. The shard of
 * a recorded gradient stays unknown where a rank does not have the samples any more. */
lk_status lk__nonfinite_explain(lk_engine *engine, const lk_engine_part *part, const lk_flag *found) LK_CHECKED;

/* Together, when all sums over ranks are there: where they are doubtful, whether they are
 * finite at every stage (else NONFINITE). In a recorded step: enqueues the look at losses
 * and sums. */
lk_status lk__nonfinite_check_sums(lk_engine *engine, const lk_engine_part *part) LK_CHECKED;

#endif
