/* room.h - memory for the inputs and results of a step or evaluation, on the device and in host memory. */
#ifndef LK_PARALLEL_STEP_ROOM_H
#define LK_PARALLEL_STEP_ROOM_H

#include "parallel/step/engine_impl.h"

/* Makes room for n samples of this rank (engine->room), and for the losses of a training batch of all ranks. No step
 * may be under way. Memory that grows loses its content, and recordings that use it become invalid. */
lk_status lk__engine_ensure_room(lk_engine *engine, size_t n) LK_CHECKED;
void lk__engine_free_room(lk_engine *engine);

#endif
