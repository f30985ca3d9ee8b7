/* recorded.h - recorded steps and evaluations, of which several can be under way.
 *
 * A device that can record runs a whole step or evaluation (step.c) as one unit of work, which is enqueued again for
 * every batch of the same size. No part of it waits for the host, so a batch can be sent before the results of earlier
 * ones are known. A step with a non-finite loss or gradient changes nothing, and neither do the steps after it.
 *
 * Batches with weights are not recorded: the sum of the weights of all ranks is found by the host.
 *
 * Steps of several ranks are recorded if the channel between the devices can be recorded
 * (comm/collective/device_sums.h). Gradients are summed during the backward pass, and each device checks the losses of
 * all ranks and the sums, so that all find the same. The host computes metrics when it receives a batch,
 * while the devices continue. All ranks must send and receive the same batches in the same order. */
#ifndef LK_PARALLEL_STEP_RECORDED_H
#define LK_PARALLEL_STEP_RECORDED_H

#include "parallel/step/engine_impl.h"

/* The largest number of steps and evaluations under way. */
enum { LK_RECORDED_DEPTH = 4 };

/* Collective. *out stays NULL if the engine cannot record: the device cannot; the host sums gradients; there are
 * several stages; the classes have weights. */
lk_status lk__recorded_create(lk_engine *engine, lk_recorded **out) LK_CHECKED;
void lk__recorded_destroy(lk_engine *engine, lk_recorded *recorded);

/* Whether a step, or an evaluation, of `total` samples can be sent; all ranks get the same answer. The first batch of
 * each size is done at once, so that the device can prepare its shapes. */
bool lk__recorded_knows(const lk_engine *engine, bool eval, size_t total);
/* Collective, after that first batch: later ones of this size can be recorded, unless a rank or a wave of it has no
 * samples, or the samples of its waves are too large to be uploaded together. */
lk_status lk__recorded_learn(lk_engine *engine, const lk_engine_part *part) LK_CHECKED;

/* Forgets what was recorded; later parts are recorded again. Nothing may be under way. Does nothing if the engine
 * cannot record. */
lk_status lk__recorded_forget(lk_engine *engine) LK_CHECKED;

/* Sends a part and counts it (engine->pending; a step also the optimiser's steps); fewer than LK_RECORDED_DEPTH may be
 * under way. If the part must be recorded, calls enqueue(engine). That function enqueues the step or evaluation:
 * lk__recorded_fetch first, which enqueues the transfer of the inputs and returns the part to compute;
 * lk__recorded_post last, which enqueues the transfer of the results. */
lk_status lk__recorded_send(lk_engine *engine, const lk_engine_part *part,
                            lk_status (*enqueue)(void *engine)) LK_CHECKED;
const lk_engine_part *lk__recorded_fetch(lk_engine *engine);
void lk__recorded_post(lk_engine *engine);

/* Blocks until the oldest part is done. Fills the engine's host_losses, host_label_ranks and host_errors. Sets *part to
 * the part, which is valid until LK_RECORDED_DEPTH more are sent, and *found to the result of the device's check, of a
 * step only. An evaluation has no ids and labels in *part. part->x is NULL if the samples were not kept. */
lk_status lk__recorded_receive(lk_engine *engine, lk_engine_part *part, lk_flag *found) LK_CHECKED;
/* After a received step that is bad: waits for everything under way and restores the numbers from before the
 * bad step. (The device has not changed parameters since.) Then nothing is under way. */
lk_status lk__recorded_roll_back(lk_engine *engine) LK_CHECKED;
/* After a failure: if only evaluations are under way, waits for them and drops them, so that the state can be read and
 * saved. */
void lk__recorded_drop_evals(lk_engine *engine);

#endif
