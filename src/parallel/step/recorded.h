/* recorded.h - recorded steps, which are sent before the results of earlier ones are there.
 *
 * A device that records does a whole step (step.c says what it is) as one piece of work
 * that is enqueued again and again. Nothing of it waits for the host, so several steps
 * can be under way. A step whose loss or gradients are not finite changes nothing, and
 * neither do those behind it.
 *
 * Steps of several ranks are recorded where a channel between the devices can be
 * (comm/device_sums.h): gradients are summed beside the backward pass, and each rank looks at
 * the losses of all and at the sums, so that all find the same. The host adds up
 * metrics when it receives, while the devices go on. All ranks must send and receive
 * the same steps in the same order. */
#ifndef LK_PARALLEL_STEP_RECORDED_H
#define LK_PARALLEL_STEP_RECORDED_H

#include "parallel/step/engine_impl.h"

/* Steps under way at most. */
enum { LK_AHEAD_DEPTH = 4 };

/* Together. *out stays NULL where the engine's steps cannot be recorded: the device cannot,
 * the host has a part in the sums over ranks, there are stages, a step has several waves and
 * there are several ranks or the samples of all waves are too large to be brought at once,
 * or the host must know the norm of the gradients on the way, as clipping does. */
lk_status lk__recorded_create(lk_engine *engine, lk_recorded **out) LK_CHECKED;
void lk__recorded_destroy(lk_engine *engine, lk_recorded *ahead);

/* Whether the step of these samples can be sent. The first one of each size is done
 * now: the device learns its shapes. */
bool lk__recorded_knows(const lk_engine *engine, size_t total);
/* Together, after that step. */
lk_status lk__recorded_learn(lk_engine *engine, size_t total) LK_CHECKED;

/* Sends the step, which the optimiser then counts, and engine->pending; there must be room. enqueue, given the
 * engine, enqueues a step when it has to be recorded, of the part that lk__recorded_fetch
 * gives: fetch first enqueues what brings the step's inputs, post last its results. */
lk_status lk__recorded_send(lk_engine *engine, const lk_engine_part *part,
                            lk_status (*enqueue)(void *engine)) LK_CHECKED;
const lk_engine_part *lk__recorded_fetch(lk_engine *engine);
void lk__recorded_post(lk_engine *engine);

/* Waits for the oldest step: its part, which lasts until it is sent over, what the device
 * found not finite, and in the engine loss and place. part->x is NULL where the samples
 * were not kept. */
lk_status lk__recorded_receive(lk_engine *engine, lk_engine_part *part, lk_flag *found) LK_CHECKED;
/* The step that was received last failed: state and numbers are again those from before
 * it, and none is under way. */
lk_status lk__recorded_go_back(lk_engine *engine) LK_CHECKED;

#endif
