/* keeper.h - the process between the guard, which the launcher starts, and the ranks.
 *
 * It forks the ranks, adopts their orphans, tells the launcher what happens to
 * them, and ends every descendant when told to or when the launcher is gone. It
 * leaves when it has no descendant left. The two talk through a socket pair in
 * whole packets. */
#ifndef LK_LAUNCH_KEEPER_H
#define LK_LAUNCH_KEEPER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "launch/environment.h"
#include "launch/node.h"
#include "launch/output.h"

typedef enum lk_keeper_event {
    LK_KEEPER_READY,     /* pid: its own */
    LK_KEEPER_STARTED,   /* pid */
    LK_KEEPER_ENDED,     /* status as wait(2) gives it */
    LK_KEEPER_STOPPED,   /* status is the signal */
    LK_KEEPER_CONTINUED, /* after it */
    LK_KEEPER_LEFT,      /* the last: status is the number of processes that cannot be ended; 0: unknown */
    LK_KEEPER_DONE       /* the last: no descendant is left */
} lk_keeper_event;

/* Keeper to launcher. */
typedef struct lk_keeper_news {
    lk_keeper_event event;
    int index; /* of the rank in this node */
    pid_t pid;
    int status;
} lk_keeper_news;

/* Launcher to keeper: send signal to all descendants, or to the ranks only; with
 * end, see to it that none is left grace seconds later. */
typedef struct lk_keeper_order {
    int signal;
    bool ranks_only;
    bool end;
    bool unused[2]; /* no bytes go over the socket that nobody has set */
    double grace;
} lk_keeper_order;
_Static_assert(sizeof(lk_keeper_order) == sizeof(int) + 4 * sizeof(bool) + sizeof(double), "an order has no padding");

/* Written to plan.failures by a rank that could not become its program, or by a
 * keeper that could not fork it (index -1). */
typedef struct lk_keeper_failure {
    int index;
    int error; /* errno */
} lk_keeper_failure;

typedef struct lk_keeper_plan {
    const lk_launch_node_opts *opts;
    const char *path; /* of the program; NULL: opts->fn */
    lk_environment *environment;
    const lk_output *output;
    const char *affinity; /* (nproc sets of affinity_bytes); NULL: none */
    size_t affinity_bytes;
    const struct rlimit *files; /* the ranks' limit of open files */
    int control, failures;      /* the keeper's ends */
    const int *fds;             /* (fd_count) of the node; no rank gets any */
    size_t fd_count;
} lk_keeper_plan;

/* The keeper's life, in the process made for it. */
_Noreturn void lk__keeper_run(const lk_keeper_plan *plan);
/* Writes to plan->failures. */
void lk__keeper_report_failure(const lk_keeper_plan *plan, int index, int error);
/* Closes all descriptors from fd on, or gives them flags of close_range(2). */
void lk__keeper_close_above(int fd, unsigned flags);

#endif
