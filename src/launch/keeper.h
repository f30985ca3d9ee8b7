/* keeper.h - the process between the guard and the ranks.
 *
 * It forks the ranks, adopts their orphans, and sends the launcher news about them. It ends every descendant
 * when it is ordered to or when the launcher is gone, and exits when it has no descendant left. Launcher and
 * keeper exchange whole packets over a socket pair. */
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
    LK_KEEPER_EVENT_READY,     /* pid: of the keeper */
    LK_KEEPER_EVENT_STARTED,   /* pid */
    LK_KEEPER_EVENT_ENDED,     /* status: as from wait(2) */
    LK_KEEPER_EVENT_STOPPED,   /* status: the signal */
    LK_KEEPER_EVENT_CONTINUED, /* after STOPPED */
    LK_KEEPER_EVENT_LEFT,      /* last news: status is the number of processes that cannot be ended; 0: unknown */
    LK_KEEPER_EVENT_DONE       /* last news: no descendant is left */
} lk_keeper_event;

/* From the keeper to the launcher. */
typedef struct lk_keeper_news {
    lk_keeper_event event;
    int index; /* of the rank in this node */
    pid_t pid;
    int status;
} lk_keeper_news;

/* From the launcher to the keeper: send signal to all descendants, or only to the ranks. With end, no
 * descendant may be left `grace` seconds later. */
typedef struct lk_keeper_order {
    int signal;
    bool ranks_only;
    bool end;
    bool unused[2]; /* replaces padding, so that every byte sent is set */
    double grace;
} lk_keeper_order;
_Static_assert(sizeof(lk_keeper_order) == sizeof(int) + 4 * sizeof(bool) + sizeof(double), "an order has no padding");

/* Written to plan.failures by a rank that could not execute its program, or by a keeper that could not fork a
 * rank (index -1). */
typedef struct lk_keeper_failure {
    int index;
    int error; /* errno */
} lk_keeper_failure;

typedef struct lk_keeper_plan {
    const lk_launch_node_opts *opts;
    const char *path; /* of the program; NULL: the ranks run opts->fn */
    lk_environment *environment;
    const lk_output_pump *output;
    const char *affinity; /* (nproc sets of affinity_bytes) NULL: no binding */
    size_t affinity_bytes;
    const struct rlimit *files; /* limit of open files for the ranks */
    int control, failures;      /* the keeper's ends of the socket pair and the pipe */
    const int *fds;             /* (fd_count) descriptors of the launcher, which no rank may keep */
    size_t fd_count;
} lk_keeper_plan;

/* Runs the keeper in the process made for it. Never returns. */
_Noreturn void lk__keeper_run(const lk_keeper_plan *plan);
/* Writes a failure to plan->failures. */
void lk__keeper_report_failure(const lk_keeper_plan *plan, int index, int error);
/* Closes all descriptors from fd on, or, with flags of close_range(2), sets close-on-exec. */
void lk__keeper_close_above(int fd, unsigned flags);

#endif
