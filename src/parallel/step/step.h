/* step.h - training steps and evaluations of an engine. All functions except lk__step_can_send are
 * collective. */
#ifndef LK_PARALLEL_STEP_STEP_H
#define LK_PARALLEL_STEP_STEP_H

#include "parallel/step/engine_impl.h"

/* Starts a step or an evaluation (part->eval). If batches of this size can be recorded, it is enqueued and may follow
 * others. Otherwise it is done at once, and nothing else may be under way (USAGE). */
lk_status lk__step_send(lk_engine *engine, const lk_engine_part *part) LK_CHECKED;
/* Whether a step, or an evaluation, of `total` samples can be sent now. */
bool lk__step_can_send(const lk_engine *engine, bool eval, size_t total);
/* Blocks until the oldest one is done and returns its metrics; compares the replicas after a step if that is due. */
lk_status lk__step_receive(lk_engine *engine, lk_metrics *out) LK_CHECKED;

/* The two halves of a step: computing gradients that are summed, finite and clipped; updating by them. */
lk_status lk__step_gradients(lk_engine *engine, const lk_engine_part *part, lk_metrics *out) LK_CHECKED;
lk_status lk__step_update(lk_engine *engine) LK_CHECKED;

/* Runs an evaluation and writes part->wanted's outputs, of all ranks' samples. */
lk_status lk__step_forward(lk_engine *engine, const lk_engine_part *part) LK_CHECKED;

/* Compares the replicas: MISMATCH with the same detail at every rank if they differ. */
lk_status lk__step_compare(lk_engine *engine) LK_CHECKED;

#endif
