/* launch.h - starting ranks as processes of this host.
 *
 * Threads: only one thread at a time may call lk_spawn. */
#ifndef LOCKSTEP_LAUNCH_H
#define LOCKSTEP_LAUNCH_H

#include <lockstep/status.h>

LK_API_BEGIN

/* The function that a spawned process runs; its return value is the exit status of the process.
 * RANK, WORLD_SIZE and the other variables of env:// are set, so that lk_group_join(NULL, &group)
 * joins the other processes. */
typedef int (*lk_spawn_fn)(int rank, void *arg);

/* Runs fn in nprocs (at least 1) forked processes. Blocks until all of them have ended. If a process ends with
 * an exit status other than 0 or by a signal, the other processes are ended within a second, and
 * the call returns PEER; the detail says which process failed first, and how. All processes end
 * even if the caller is killed. The calling process should have no other threads: a forked process has only the thread
 * that called. fn and arg are used until the call returns.
 *
 * PEER also if a signal (SIGINT, SIGTERM, SIGHUP) ended the job; the signal is then raised again in the caller. USAGE:
 * nprocs is below 1, or $LOCKSTEP_TIMEOUT is no number. IO: a process or a pipe cannot be created, or no port is free.
 * UNSUPPORTED: the kernel has no subreapers. */
lk_status lk_spawn(int nprocs, lk_spawn_fn fn, void *arg) LK_CHECKED;

LK_API_END
#endif
