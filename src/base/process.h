/* process.h - a process of this host as /proc shows it. */
#ifndef LK_BASE_PROCESS_H
#define LK_BASE_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct lk_process {
    pid_t pid, parent, group;
    char state;                      /* as in proc(5): R, S, T, t, Z ... */
    bool marked;                     /* for the caller; false at first */
    unsigned long long ticks, birth; /* CPU time used, and start time since boot, in clock ticks */
} lk_process;

/* pid 0: this process. False when there is no such process, or no /proc. */
bool lk__process_read(pid_t pid, lk_process *out);
/* Blocks until this child has ended; returns its status as wait(2) does. */
int lk__process_await(pid_t pid);
/* Whether it is stopped by a signal or a debugger. */
bool lk__process_stopped(const lk_process *process);

#endif
