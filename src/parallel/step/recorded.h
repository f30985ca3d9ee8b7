/* recorded.h - recorded steps, of which several can be under way.
 *
 * A device that can record runs a whole step (step.c) as one unit of work, which is enqueued for every step.
 * No part of it waits for the host, so a step can be sent before the results of earlier ones are known. A
 * step with a non-finite loss or gradient changes nothing, and neither do the steps after it.
 *
 * Steps of several ranks are recorded if the channel between the devices can be recorded
 * (comm/device_sums.h). Gradients are summed during the backward pass, and each device checks the losses of
 * all ranks and the sums, so that all find the same. The host computes metrics when it receives a step,
 * while the devices continue. All ranks must send and receive the same steps in the same order. */
#ifndef LK_PARALLEL_STEP_RECORDED_H
#define LK_PARALLEL_STEP_RECORDED_H

#include "parallel/step/engine_impl.h"

/* The largest number of steps under way. */
enum { LK_RECORDED_DEPTH = 4 };

/* Collective. *out stays NULL if the engine's steps cannot be recorded: the device cannot record; the host
 * sums gradients; there are several stages; the host needs the gradient's norm (clipping); or a step has
 * several waves, and there are several ranks or the samples are too large to upload at once. */
lk_status lk__recorded_create(lk_engine *engine, lk_recorded **out) LK_CHECKED;
void lk__recorded_destroy(lk_engine *engine, lk_recorded *recorded);

/* Whether a step of `total` samples can be sent. The first step of each size is done at once, so that the
 * device can prepare its shapes. */
bool lk__recorded_knows(const lk_engine *engine, size_t total);
/* Collective, after that first step: later steps of this size can be recorded. */
lk_status lk__recorded_learn(lk_engine *engine, size_t total) LK_CHECKED;

/* Sends a step and counts it (the optimiser's steps, engine->pending); fewer than LK_RECORDED_DEPTH steps
 * may be under way. If the step must be recorded, calls enqueue(engine). That function enqueues the step:
 * lk__recorded_fetch first, which enqueues the transfer of the inputs and returns the part to compute;
 * lk__recorded_post last, which enqueues the transfer of the results. */
lk_status lk__recorded_send(lk_engine *engine, const lk_engine_part *part,
                            lk_status (*enqueue)(void *engine)) LK_CHECKED;
const lk_engine_part *lk__recorded_fetch(lk_engine *engine);
void lk__recorded_post(lk_engine *engine);

/* Blocks until the oldest step is done. Fills the engine's host_losses and host_label_ranks. Sets *found to the
 * result of the device's check, and *part to the step's part, which is valid until LK_RECORDED_DEPTH more steps
 * are sent. part->x is NULL if the samples were not kept. */
lk_status lk__recorded_receive(lk_engine *engine, lk_engine_part *part, lk_flag *found) LK_CHECKED;
/* After a received step that is bad: waits for the steps under way and restores the numbers from before the
 * bad step. (The device has not changed parameters since.) Then no step is under way. */
lk_status lk__recorded_roll_back(lk_engine *engine) LK_CHECKED;

#endif
