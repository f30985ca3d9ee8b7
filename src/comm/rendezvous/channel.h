/* channel.h - the job channel: what a launcher or scheduler offers to the processes of a job before
 * they are connected. All of them learn a short text of rank 0: the token of the job, and the address of its host.
 *
 * Launchers are rows of a table. A process shares once and remembers the text: thread ranks, and groups that are
 * joined later, get the same text without the launcher. */
#ifndef LK_COMM_RENDEZVOUS_CHANNEL_H
#define LK_COMM_RENDEZVOUS_CHANNEL_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "net/deadline.h"

/* The process as the rendezvous knows it. */
typedef struct lk_job_channel_task {
    int rank, size;                           /* of processes */
    int threads;                              /* ranks of each process; 0: one */
    const char *backend;                      /* of the group; NULL or "": the default */
    const volatile sig_atomic_t *interrupted; /* not 0 ends the wait; may be NULL */
} lk_job_channel_task;

/* Bytes of a text with its end. It has printable characters only, without spaces and '='. */
enum { LK_JOB_CHANNEL_TEXT = 512 };

typedef struct lk_job_channel {
    const char *name; /* "PMI", in messages */
    /* Whether this process has the channel, and the launcher means this task by it. Never blocks. */
    bool (*is_there)(const lk_job_channel_task *task);
    /* Collective over all processes of the job: text of rank 0 becomes text of all. Blocks until the deadline,
     * with notices. Called at most once in a process. */
    lk_status (*share)(const lk_job_channel_task *task, lk_deadline *deadline, char text[LK_JOB_CHANNEL_TEXT]);
} lk_job_channel;

extern const lk_job_channel lk__job_channel_mpi;
extern const lk_job_channel lk__job_channel_pmi;
/* Rows of the table; NULL after the last. The first that is there is used. */
const lk_job_channel *lk__job_channel_list(size_t index);

/* Whether lk__job_channel_share would share. Never blocks on the launcher. */
bool lk__job_channel_there(const lk_job_channel_task *task);
/* For a task that has neither an address nor a channel: returns the status of that failure. Where MPI would be the
 * channel if its plug-in could be loaded, the detail also says so. */
lk_status lk__job_channel_missed(const lk_job_channel_task *task, lk_status status) LK_CHECKED;
/* Collective over all processes of the job, unless this process has shared before: text, which rank 0 fills,
 * becomes rank 0's text of the first call. Any thread may call it; a thread that comes while another one shares
 * waits for it. A failure is remembered, too. */
lk_status lk__job_channel_share(const lk_job_channel_task *task, lk_deadline *deadline,
                                char text[LK_JOB_CHANNEL_TEXT]) LK_CHECKED;

#endif
