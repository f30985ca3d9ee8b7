/* engine.h - what other files and modules may ask of an engine beside its public functions. */
#ifndef LK_PARALLEL_ENGINE_ENGINE_H
#define LK_PARALLEL_ENGINE_ENGINE_H

#include <lockstep/engine.h>

#include "base/status.h"

/* Begins a public call that works on the engine's memory, and ends it; leave returns
 * status. enter_idle is for what reads or changes the state: USAGE while steps are
 * under way. A call that was not begun has touched nothing, and no other rank is told. */
lk_status lk__engine_enter(const lk_engine *engine) LK_CHECKED;
lk_status lk__engine_enter_idle(const lk_engine *engine) LK_CHECKED;
lk_status lk__engine_leave(const lk_engine *engine, lk_status status) LK_CHECKED;
/* Ends a call that ranks make together. A failure that the others cannot
 * know of breaks the job, with this rank's reason; returns status. */
lk_status lk__engine_tell(const lk_engine *engine, lk_status status) LK_CHECKED;
/* Whether every rank has the failure of the engine's last call. */
bool lk__engine_agreed(const lk_engine *engine);

/* As lk_engine_set_state finds it, MISMATCH where it does not fit; but this rank's alone,
 * and the others are not told. */
lk_status lk__engine_check_state(const lk_engine *engine, const lk_state *state) LK_CHECKED;
/* Steps taken when replicas were last known to be equal, by comparison or because all took
 * over one state. A replica alone is equal to all there are. */
uint64_t lk__engine_equal_at(const lk_engine *engine);
/* Whether the last comparison of the replicas found that they differ. */
bool lk__engine_replicas_differ(const lk_engine *engine);

#endif
