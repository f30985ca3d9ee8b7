/* descendants.h - the processes of this host as /proc shows them, and which of
 * them descend from a given one.
 *
 * A process that has left its session or group is still found: parents count,
 * and orphans belong to the nearest subreaper above them. Everything here is
 * best effort: a snapshot is old as soon as it is taken, so callers repeat. */
#ifndef LK_LAUNCH_DESCENDANTS_H
#define LK_LAUNCH_DESCENDANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct lk_process {
    pid_t pid, parent, group;
    char state;                      /* as in proc(5): R, S, T, t, Z ... */
    bool marked;                     /* by lk__processes_mark */
    unsigned long long ticks, birth; /* CPU time used; start since boot */
} lk_process;

typedef struct lk_processes {
    lk_process *list; /* (count), by pid */
    size_t count, capacity;
} lk_processes;

/* False when there is no such process. */
bool lk__process_read(pid_t pid, lk_process *out);
/* Blocks until this child has ended; its status as wait(2) gives it. */
int lk__process_await(pid_t pid);
/* Stopped by a signal or held by a debugger. */
bool lk__process_stopped(const lk_process *process);

/* A new snapshot in place of the old; incomplete when memory is short, empty where
 * /proc is not mounted or shows another namespace of processes. */
void lk__processes_read(lk_processes *processes);
/* Marks those below root, but none that is in spared (NULL: none) or below one
 * that is. Returns how many are marked, zombies included. */
size_t lk__processes_mark(lk_processes *processes, pid_t root, const lk_processes *spared);
/* Sends signal to all that are marked and, for SIGKILL, to their process groups
 * where those hold no others: the kernel signals a group at once, so none of it
 * can escape by forking. */
void lk__processes_signal(const lk_processes *processes, int signal);
void lk__processes_fini(lk_processes *processes);

/* Those that descend from this process. */
void lk__descendants_read(lk_processes *processes);
/* Kills and reaps what descends from this process, but none that is in spared (NULL:
 * none), until none is left or `seconds` have passed. */
void lk__descendants_end(const lk_processes *spared, double seconds);

#endif
