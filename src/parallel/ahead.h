/* ahead.h - steps that are sent before the results of earlier ones are there.
 *
 * A device that records does a whole step (copy of the samples, forward, loss,
 * backward, a look for what is not finite, running statistics, update, results) as
 * one piece of work that is enqueued again and again. Nothing of it waits for the
 * host, so several steps can be under way. A step whose loss or gradients are not
 * finite changes nothing, and neither do those behind it. */
#ifndef LK_PARALLEL_AHEAD_H
#define LK_PARALLEL_AHEAD_H

#include "parallel/engine_impl.h"

/* Steps under way at most. */
enum { LK_AHEAD_DEPTH = 4 };

/* *out stays NULL where the engine's steps cannot be recorded: the device cannot,
 * there are other ranks, a step has several waves, or a norm must be known on the
 * way. */
lk_status lk__ahead_create(lk_engine *engine, lk_ahead **out) LK_CHECKED;
void lk__ahead_destroy(lk_engine *engine, lk_ahead *ahead);

/* Whether the step of these samples can be sent. The first one of each size is done
 * by the usual way: the device learns its shapes. */
bool lk__ahead_knows(const lk_ahead *ahead, size_t total);
void lk__ahead_learn(lk_ahead *ahead, size_t total);

/* There must be room. */
lk_status lk__ahead_send(lk_engine *engine, const lk_part *part) LK_CHECKED;
int lk__ahead_pending(const lk_ahead *ahead);
/* Waits for the oldest; NONFINITE puts the engine back to before it, and none is
 * under way then. */
lk_status lk__ahead_receive(lk_engine *engine, lk_metrics *out) LK_CHECKED;

#endif
