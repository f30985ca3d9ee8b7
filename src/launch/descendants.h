/* descendants.h - the processes of this host as /proc shows them, and which of them descend from a given
 * process.
 *
 * A process that has left its session or process group is still found by its parents; orphans belong to the
 * nearest subreaper above them. A snapshot is outdated as soon as it is taken, so callers repeat. */
#ifndef LK_LAUNCH_DESCENDANTS_H
#define LK_LAUNCH_DESCENDANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/process.h"

typedef struct lk_processes {
    lk_process *list; /* (count) sorted by pid */
    size_t count, capacity;
} lk_processes;

/* Replaces the snapshot. It is incomplete when memory is short, and empty if /proc is not mounted or shows
 * another PID namespace. */
void lk__processes_read(lk_processes *processes);
/* Marks the descendants of root, except processes in spared (NULL: none) and their descendants. Returns the
 * number of marked processes, zombies included. */
size_t lk__processes_mark(lk_processes *processes, pid_t root, const lk_processes *spared);
/* Sends signal to all marked processes. SIGKILL also goes to their process groups if these have no unmarked
 * members: the kernel signals a group at once, so no member can escape by forking. */
void lk__processes_signal(const lk_processes *processes, int signal);
void lk__processes_fini(lk_processes *processes);

/* Reads the descendants of this process. */
void lk__descendants_read(lk_processes *processes);
/* Kills and reaps the descendants of this process, except those in spared (NULL: none), until none is left or
 * `seconds` have passed. */
void lk__descendants_end(const lk_processes *spared, double seconds);

#endif
