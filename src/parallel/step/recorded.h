/* recorded.h - steps that are sent before the results of earlier ones are there.
 *
 * A device that records does a whole step (copy of the samples, forward, loss,
 * backward, a look for what is not finite, running statistics, update, results) as
 * one piece of work that is enqueued again and again. Nothing of it waits for the
 * host, so several steps can be under way. A step whose loss or gradients are not
 * finite changes nothing, and neither do those behind it.
 *
 * Steps of several ranks are recorded where a channel between the devices can be
 * (comm/device_sums.h): gradients are summed beside the backward pass, and each rank looks at
 * the losses of all and at the sums, so that all find the same. The host adds up
 * metrics when it receives, while the devices go on. All ranks must send and receive
 * the same steps in the same order. */
#ifndef LK_PARALLEL_STEP_RECORDED_H
#define LK_PARALLEL_STEP_RECORDED_H

#include "parallel/engine/engine_impl.h"

/* Steps under way at most. */
enum { LK_AHEAD_DEPTH = 4 };

/* Together. *out stays NULL where the engine's steps cannot be recorded: the device
 * cannot, the host has a part in the sums over ranks, there are stages, a step of some
 * rank has several waves, or a norm must be known on the way. */
lk_status lk__recorded_create(lk_engine *engine, lk_recorded **out) LK_CHECKED;
void lk__recorded_destroy(lk_engine *engine, lk_recorded *ahead);

/* Whether the step of these samples can be sent. The first one of each size is done
 * by the usual way: the device learns its shapes. */
bool lk__recorded_knows(const lk_recorded *ahead, size_t total);
/* Together, after that step. */
lk_status lk__recorded_learn(lk_engine *engine, size_t total) LK_CHECKED;

/* There must be room. */
lk_status lk__recorded_send(lk_engine *engine, const lk_engine_part *part) LK_CHECKED;
int lk__recorded_pending(const lk_recorded *ahead);
/* Together: waits for the oldest; NONFINITE puts the engine back to before it, and none is
 * under way then. */
lk_status lk__recorded_receive(lk_engine *engine, lk_metrics *out) LK_CHECKED;

#endif
