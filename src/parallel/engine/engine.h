/* engine.h - functions of an engine that are not public, for other files and modules. */
#ifndef LK_PARALLEL_ENGINE_ENGINE_H
#define LK_PARALLEL_ENGINE_ENGINE_H

#include <lockstep/engine.h>

#include "base/status.h"
#include "nn/params.h"
#include "parallel/step/meter.h"

/* lk__engine_enter begins a public call that uses the engine's memory, lk__engine_leave ends it and
 * returns status. lk__engine_enter_idle is for calls that read or change the state: USAGE while steps
 * are under way. If enter fails, the call has changed nothing and the job is not aborted. */
lk_status lk__engine_enter(const lk_engine *engine) LK_CHECKED;
lk_status lk__engine_enter_idle(const lk_engine *engine) LK_CHECKED;
lk_status lk__engine_leave(const lk_engine *engine, lk_status status) LK_CHECKED;
/* Ends a collective call: aborts the job with this rank's detail if status is a failure that the other
 * ranks do not know; returns status. */
lk_status lk__engine_abort_on_failure(const lk_engine *engine, lk_status status) LK_CHECKED;
/* Whether the last call failed at every rank with the same detail. */
bool lk__engine_agreed(const lk_engine *engine);

/* Collective over the stages of a replica: a copy of these parameters and buffers, which have the form of the engine's
 * own, of all stages. The caller owns *out. */
lk_status lk__engine_export(const lk_engine *engine, const lk_params *params, lk_state **out) LK_CHECKED;
/* Checks a state as lk_engine_set_state does (MISMATCH), but not collectively: does not communicate
 * and does not abort the job. */
lk_status lk__engine_check_state(const lk_engine *engine, const lk_state *state) LK_CHECKED;
/* Enqueues setting elements [begin,end) of the gradients to 0, in all slots. */
void lk__engine_clear_grads(lk_engine *engine, size_t begin, size_t end);
/* The number of steps when the replicas were last known to be equal: they were compared, or all got
 * one state. With one replica, the current number of steps. */
uint64_t lk__engine_equal_at(const lk_engine *engine);
/* Whether the last comparison of the replicas found a difference. */
bool lk__engine_replicas_differ(const lk_engine *engine);
/* The cores of this rank's part that its threads leave free. The host of another device needs one core. */
int lk__engine_free_cores(const lk_engine *engine);
/* Sets the meter of the engine's steps, borrowed until the engine is destroyed; NULL: none. */
void lk__engine_set_meter(lk_engine *engine, lk_engine_meter *meter);
/* Calls the slot `explain` of the engine's device, if it has one (tensor/device.h). */
void lk__engine_explain(const lk_engine *engine, void (*each)(void *arg, const char *line), void *arg);

#endif
