/* session.h - MPI in this process: started once, ended with the process.
 *
 * All functions are for any thread. MPI itself is called by one thread at a time, which holds the lock; the
 * thread level that this needs (SERIALIZED) is asked for and checked.
 *
 * The process ends MPI when it exits: MPI_Finalize after a clean exit, MPI_Abort after an exit with another
 * status than 0 or after a failure of a group, so that the launcher ends the other processes too. By then the
 * process has printed its own message. A process that was forked later leaves MPI alone. */
#ifndef LK_COMM_MPI_SESSION_H
#define LK_COMM_MPI_SESSION_H

#include "base/status.h"
#include "comm/mpi/adopt.h"
#include "comm/mpi/mpi.h"

/* Loads the plug-in and starts MPI, at the first call. Blocks until all processes of the MPI job have called it: PEER
 * after so many seconds; 0: no deadline. Later calls return the same, also the failure. USAGE in a process that
 * torchrun, `lockstep run` or -n has started in a task of an MPI launcher, and in one that was forked after the
 * start. */
lk_status lk__mpi_start(double seconds, const lk_mpi **mpi, lk_mpi_place *place) LK_CHECKED;

/* Sets the function that gets the message if MPI does not end in time because another process is gone: within the
 * seconds of lk__mpi_begin, 300 without. The process is exiting then, and its status becomes another than 0. */
void lk__mpi_set_late_notice(void (*notice)(const char *detail));

/* Whether a job over this backend (see lk__task_backend) uses MPI. "mpi": yes. "auto": if an MPI launcher has started
 * the tasks on several nodes, the plug-in loads, and MPI, if it was started, has all tasks in its world. All processes
 * of a job get the same answer where their installations are the same. Never blocks on other processes, and leaves the
 * thread's error detail as it was. */
bool lk__mpi_is_due(const char *backend);
/* Starts MPI if it is due. Fails only where MPI was asked for by name, or does not start within `seconds`. A program
 * calls it before it has threads at work: UCX, below MPICH and Open MPI, replaces functions of the C library while it
 * starts, and a thread that calls them at that moment crashes. */
lk_status lk__mpi_begin(const char *backend, double seconds) LK_CHECKED;

void lk__mpi_lock(void);
void lk__mpi_unlock(void);

/* *first is the first of `count` tags that no other group of this process receives with in the communicator: that of
 * world, or the session's if world is NULL. */
lk_status lk__mpi_tags(lk_mpi_world *world, int count, int *first) LK_CHECKED;
/* LK_OK for code 0; else PEER with MPI's text. what: what was tried, as in "send to rank 3". Called with the
 * lock held or not. */
lk_status lk__mpi_check(const lk_mpi *mpi, int code, const char *what) LK_CHECKED;
/* A group over MPI has failed: the process ends by MPI_Abort. */
void lk__mpi_mark_failed(void);

#endif
