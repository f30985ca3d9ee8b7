/* recording.h - the run folder of `train --log-dir`: fills it from the events of rank 0.
 *
 * A write that fails does not end the run: it is reported once, and only run.json is still written, which says how the
 * run ends. */
#ifndef LK_CLI_REPORT_RECORDING_H
#define LK_CLI_REPORT_RECORDING_H

#include <pthread.h>

#include "cli/job/plan.h"
#include "cli/report/screen.h"
#include "record/write.h"

/* The recording of a process; all zeros: there is none. Must not be moved after lk__recording_open. */
typedef struct lk_recording {
    const lk_args *args;
    const lk_job_plan *plan;
    lk_record_writer *writer; /* NULL: no --log-dir, or not the process of rank 0 */
    bool muted;               /* a write has failed: only run.json is written from here on */
    pthread_mutex_t lock;     /* of run.json */
    lk_screen *screen;        /* on which a failed write is reported */
    lk_train_hooks next;      /* events that are called first */
    char name[LK_PATH_BYTES]; /* of the folder, for checkpoints; stays after a failed write */
    char checkpoint[LK_PATH_BYTES];
    char trace[LK_PATH_BYTES];
    size_t batches; /* of an epoch */
    double earlier; /* seconds of the run before this process */
    size_t earlier_samples;
    size_t samples;       /* at the last row */
    double train_seconds; /* the same */
    double uses_at;       /* seconds at the last row of ranks */
    bool uses_known;      /* hosts and devices are in run.json */
    bool begun;           /* run.json and config.yaml describe the run of this process */
    bool repeated;        /* run.json has the result of the last step: it and config.yaml stay until the next one */
    lk_train_begin start; /* what run.json says of a run that goes on */
    bool tested;          /* this process has evaluated the model */
} lk_recording;

/* At rank 0's process with --log-dir: makes the folder, or opens the folder of the run that is resumed, and begins the
 * copy of what is printed. Sets the fields of args->train and plan->train that name the run and, with --save-every and
 * without --checkpoint, the folder of checkpoints; these also at other processes. --trace without --trace-file is
 * written to the folder. */
lk_status lk__recording_open(lk_recording *recording, lk_args *args, lk_job_plan *plan) LK_CHECKED;
/* Puts the recording before the events of rank 0. plan may be another one than at lk__recording_open. */
void lk__recording_listen(lk_recording *recording, const lk_job_plan *plan, lk_screen *screen, lk_train_hooks *hooks);
/* Notes that the run has failed. Called before the failure is printed, since a launcher may end this process then. */
void lk__recording_failed(lk_recording *recording, const char *detail);
/* Closes the folder. */
void lk__recording_close(lk_recording *recording);

#endif
