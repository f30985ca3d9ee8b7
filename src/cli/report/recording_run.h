/* recording_run.h - fills the object of run.json. */
#ifndef LK_CLI_REPORT_RECORDING_RUN_H
#define LK_CLI_REPORT_RECORDING_RUN_H

#include "cli/report/recording.h"

/* The working directory; "." if it is unknown. */
const char *lk__recording_directory(char out[LK_PATH_BYTES]);

/* What is known before the run starts, when it starts, and after its first step. */
void lk__recording_begin_run(lk_recording *recording);
void lk__recording_describe(lk_recording *recording, const lk_train_begin *start);
void lk__recording_describe_ranks(lk_recording *recording, const lk_train_uses *uses);
/* The end of a run: done or stopped; or a failure, with the status "failed" or "stopped". */
void lk__recording_conclude(lk_recording *recording, const lk_train_outcome *result);
void lk__recording_describe_failure(lk_recording *recording, const char *status, const char *detail);
/* The results of the last evaluation alone, for a run whose result is known. */
void lk__recording_add_tests(lk_recording *recording, const lk_train_outcome *result);
/* Whether run.json says that the run is done; and whether its result is that of this step. */
bool lk__recording_is_done(const lk_recording *recording);
bool lk__recording_has_result(const lk_recording *recording, size_t step);
/* Seconds of a resumed run up to its checkpoint: where that is the end of the last process, until that end. 0: unknown.
 */
double lk__recording_earlier(const lk_recording *recording, const lk_train_begin *start);
/* A write has failed, and the run goes on. */
void lk__recording_describe_muted(lk_recording *recording, const char *why);

#endif
