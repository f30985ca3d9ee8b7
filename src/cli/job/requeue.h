/* requeue.h - --requeue: asks Slurm to put the job that this process belongs to back into its queue. Slurm then
 * ends the job and starts its script again later, with the same job id. */
#ifndef LK_CLI_JOB_REQUEUE_H
#define LK_CLI_JOB_REQUEUE_H

#include "base/status.h"

/* USAGE outside a job of Slurm, and if scontrol, which lk__requeue_ask runs, is in no folder of $PATH. Starts no
 * process. */
lk_status lk__requeue_check(void) LK_CHECKED;
/* IO, with the reason, if Slurm is not going to requeue this job when it is asked: the job is not a batch job,
 * or was submitted with --no-requeue. Blocks for at most 20 seconds. */
lk_status lk__requeue_expect(void) LK_CHECKED;
/* Asks Slurm to requeue the job. To be called by one process of each Slurm job, after everything was saved: Slurm may
 * send SIGTERM to all processes of the job before this function returns. A job that is already being ended, as by
 * scancel, is not requeued. Blocks for at most 40 seconds. IO: the detail has the reason, in the words of scontrol
 * where it gave one. */
lk_status lk__requeue_ask(void) LK_CHECKED;
/* The id of this process's Slurm job; NULL outside one. */
const char *lk__requeue_job(void);

#endif
