/* marks.h - when the stream of a device does what, for traces: the host enqueues marks between pieces of work and reads
 * their times when the device has reached them. Nothing happens on devices without marks, as the CPU, and while no
 * rank traces. */
#ifndef LK_PARALLEL_STEP_MARKS_H
#define LK_PARALLEL_STEP_MARKS_H

#include "base/trace.h"
#include "parallel/step/engine_impl.h"

/* What the stream does between the mark before and a new one is `label`; without a name it is not shown. Not inside a
 * recording. */
void lk__marks_add(lk_engine *engine, lk_trace_label label);
/* After the device has done all of it: records the spans between the marks, and forgets them. */
void lk__marks_read(lk_engine *engine);

/* A recorded step or evaluation, before and after its launch; slot is below LK_RECORDED_DEPTH. */
void lk__marks_begin_step(lk_engine *engine, int slot);
void lk__marks_end_step(lk_engine *engine, int slot);
/* After its results are there: records its span. False if the times are not known. */
bool lk__marks_read_step(lk_engine *engine, int slot, lk_trace_label label);

void lk__marks_destroy(lk_marks *marks);

#endif
