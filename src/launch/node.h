/* node.h - the ranks of one node: started, watched, stopped.
 *
 * The caller forks a guard, the guard a keeper, the keeper the ranks. All three are
 * subreapers: as long as one of them lives, it finds every descendant, grandchildren
 * included, and ends it. Ranks live in process groups of their own, read from /dev/null, and
 * write through pipes, line by line.
 *
 * From start to destroy the node takes SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP
 * and SIGPIPE of the calling thread (those that are ignored stay ignored), and
 * SIGUSR1 where it is to be passed on.
 * One node at a time in a process. */
#ifndef LK_LAUNCH_NODE_H
#define LK_LAUNCH_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <lockstep/launch.h>

#include "base/status.h"

typedef enum lk_bind_policy { LK_BIND_NONE, LK_BIND_CORE } lk_bind_policy;

/* What the pointers lead to must outlive the node. */
typedef struct lk_launch_node_opts {
    int nproc;      /* ranks here */
    int first_rank; /* of the job */
    int world_size;
    int node_rank, nnodes;
    int restart; /* how often the job was started again */
    int max_restarts;
    const char *master_addr; /* NULL: the inherited variable stays */
    int master_port;
    const char *run_id; /* same on all nodes; NULL as above */
    const char *token;  /* becomes LOCKSTEP_TOKEN; NULL as above */
    char *const *argv;  /* program and arguments, found in PATH; NULL: fn */
    lk_spawn_fn fn;
    void *arg;
    lk_bind_policy bind;
    const char *log_dir; /* NULL: none; else rank_R.log is written there, too */
    bool raw;            /* pass output through without prefix (lk_spawn) */
    bool plain;          /* no prefix for stdout nor for rank 0's stderr: only one writes, or they name themselves */
    bool name_host;      /* prefix [host:rank] instead of [rank] */
    const char *backend; /* becomes LOCKSTEP_BACKEND; NULL: the inherited one stays */
    bool pass_user;      /* SIGUSR1 goes on to the ranks themselves; else it stays the caller's */
    double timeout; /* seconds that a stopped rank is waited for, and LOCKSTEP_TIMEOUT; 0: for ever, and as above */
    /* A line for the user, without newline ("rank 1 (pid 7) is stopped ..."). */
    void (*notice)(void *arg, const char *text);
    void *notice_arg;
} lk_launch_node_opts;

/* Why a job ended: the first rank that failed. */
typedef struct lk_cause {
    int rank;
    pid_t pid;
    int status; /* as wait(2) gives it; -1: it stayed stopped until the timeout */
    char host[64];
    char tail[2048];    /* its last lines of stderr, "" when it wrote none */
    double stopped_for; /* seconds, where status is -1 */
    bool shown;         /* tail is the end of what this node's standard error has; after lk__launch_node_stop */
} lk_cause;

typedef struct lk_launch_node lk_launch_node;

typedef enum lk_launch_node_state {
    LK_NODE_RUNNING,
    LK_NODE_DONE,       /* all ranks ended with 0 */
    LK_NODE_FAILED,     /* see lk__launch_node_cause; the rest still run until lk__launch_node_stop */
    LK_NODE_INTERRUPTED /* this process got SIGINT, SIGTERM, SIGHUP or SIGQUIT, or its
                         * output was closed (SIGPIPE): lk__launch_node_signal */
} lk_launch_node_state;

/* A program that is not there or cannot be executed is NOT_FOUND, before any
 * rank has run. */
lk_status lk__launch_node_start(const lk_launch_node_opts *opts, lk_launch_node **out) LK_CHECKED;
/* Sleeps until the state changes, extra_fd (-1: none) can be read, or seconds
 * have passed; passes output on meanwhile. A change is told once: called again
 * after DONE or FAILED it sleeps, and a signal still ends the sleep. A failure is
 * told some 75 ms late, as a better cause may follow, unless seconds are 0. When the
 * keeper was killed, all ranks have been ended and the status is PEER. */
lk_status lk__launch_node_wait(lk_launch_node *node, int extra_fd, double seconds,
                               lk_launch_node_state *out) LK_CHECKED;
const lk_cause *lk__launch_node_cause(const lk_launch_node *node);
int lk__launch_node_signal(const lk_launch_node *node);
/* SIGPIPE stands for another error than a reader that closed its end, which was told. */
bool lk__launch_node_unwritten(const lk_launch_node *node); /* 0: none came */
/* Whether another signal came after that one: the user wants the end at once, and
 * the ranks have been killed. What follows a signal within a moment is the same one:
 * timeout(1) and batch systems send it to a process and to its group. */
bool lk__launch_node_hurried(const lk_launch_node *node);
/* Begins to end all descendants: first by signal (SIGTERM, or what interrupted),
 * after `grace` seconds, and at a second signal, by SIGKILL. lk__launch_node_wait goes on to
 * pass output on, and returns when none is left: lk__launch_node_stopped. Called again with
 * SIGKILL it ends the grace. */
void lk__launch_node_end(lk_launch_node *node, int signal, double grace);
bool lk__launch_node_stopped(const lk_launch_node *node);
/* The whole of it: returns when none is left. */
void lk__launch_node_stop(lk_launch_node *node, int signal, double grace);
/* Ends what still runs, and gives the caller its signals back. */
void lk__launch_node_destroy(lk_launch_node *node);

/* "was killed by SIGSEGV (segmentation fault)", "got SIGTERM (told to stop) and ended",
 * "exited with status 3". */
void lk__cause_text(const lk_cause *cause, char *text, size_t bytes);
/* The exit status of a launcher whose job ended so: the rank's own, 128 + signal
 * for a signal. Never 0. */
int lk__cause_exit(const lk_cause *cause);
/* Whether a, of which this process heard later, was the root of the failure rather
 * than b. A rank that names no other comes before one whose last lines say that
 * another died, the rank that died before the one that says so, a death by signal
 * before an exit. No clock decides: those of two hosts may differ. */
bool lk__cause_before(const lk_cause *a, const lk_cause *b);

#endif
