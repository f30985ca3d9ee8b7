/* step.h - training steps and evaluations of an engine: what they are, and whether a step is
 * done now or sent to a device that has recorded it. Together, all of them. */
#ifndef LK_PARALLEL_STEP_STEP_H
#define LK_PARALLEL_STEP_STEP_H

#include "parallel/step/engine_impl.h"

/* The step of this part, whose results lk__step_receive then has. Where the device has
 * recorded steps of this size it is enqueued and may follow others; else it is done now, and
 * must be the only one (USAGE). */
lk_status lk__step_send(lk_engine *engine, const lk_engine_part *part) LK_CHECKED;
/* Whether a step of `total` samples can follow those under way. */
bool lk__step_can_send(const lk_engine *engine, size_t total);
/* Waits for the oldest step; replicas are compared where that is due. */
lk_status lk__step_receive(lk_engine *engine, lk_metrics *out) LK_CHECKED;

/* A step in two halves: gradients that are summed, finite and clipped; the update by them. */
lk_status lk__step_gradients(lk_engine *engine, const lk_engine_part *part, lk_metrics *out) LK_CHECKED;
lk_status lk__step_update(lk_engine *engine) LK_CHECKED;

lk_status lk__step_evaluate(lk_engine *engine, const lk_engine_part *part, lk_metrics *out) LK_CHECKED;

/* Compares the replicas: MISMATCH, the same at every rank, where they differ. */
lk_status lk__step_compare(lk_engine *engine) LK_CHECKED;

#endif
