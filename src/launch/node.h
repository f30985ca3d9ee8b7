/* node.h - starts, watches and stops the ranks of one node.
 *
 * The caller forks a guard, the guard forks a keeper, the keeper forks the ranks. All three are subreapers:
 * as long as one of them lives, it finds every descendant and ends it. Each rank has its own process group,
 * reads from /dev/null, and writes through pipes, line by line.
 *
 * From start to destroy the node handles SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP and SIGPIPE of the calling
 * thread (ignored signals stay ignored), and SIGUSR1 if it is passed to the ranks. One node at a time in a
 * process. */
#ifndef LK_LAUNCH_NODE_H
#define LK_LAUNCH_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <lockstep/launch.h>

#include "base/status.h"

typedef enum lk_bind_policy { LK_BIND_POLICY_NONE, LK_BIND_POLICY_CORE } lk_bind_policy;

/* The memory of all pointers must outlive the node. */
typedef struct lk_launch_node_opts {
    int nproc;      /* ranks on this node */
    int first_rank; /* of this node */
    int world_size;
    int node_rank, nnodes;
    int restart; /* number of restarts so far */
    int max_restarts;
    const char *master_addr; /* NULL: the inherited variable stays, also for run_id and token */
    int master_port;
    const char *run_id; /* equal on all nodes */
    const char *token;  /* becomes LOCKSTEP_TOKEN */
    char *const *argv;  /* program and arguments, searched in PATH; NULL: fn */
    lk_spawn_fn fn;
    void *arg;
    lk_bind_policy bind;
    const char *log_dir; /* NULL: none; else the output is also written to rank_R.log there */
    bool raw;            /* output has no prefix (lk_spawn) */
    bool plain;     /* no prefix for stdout, nor for rank 0's stderr: only one rank writes, or lines name their rank */
    bool progress;  /* stderr is a terminal: the progress line of rank 0 stays below all other lines */
    bool name_host; /* prefix [host:rank] instead of [rank] */
    const char *backend; /* becomes LOCKSTEP_BACKEND; NULL: the inherited one stays */
    bool pass_user;      /* SIGUSR1 is sent to the ranks; otherwise the caller handles it */
    double timeout; /* seconds that a rank may be stopped, and LOCKSTEP_TIMEOUT; 0: no limit, and the variable stays */
    /* Gets a line for the user, without newline ("rank 1 (pid 7) is stopped ..."). */
    void (*notice)(void *arg, const char *text);
    void *notice_arg;
} lk_launch_node_opts;

/* Why a job ended: the rank that failed first. */
typedef struct lk_cause {
    int rank;
    pid_t pid;
    int status; /* as from wait(2); -1: the rank was stopped until the timeout */
    char host[64];
    char tail[2048];    /* its last lines of stderr; "": none */
    double stopped_for; /* seconds, if status is -1 */
    bool shown;         /* tail is also the end of this node's standard error; valid after lk__launch_node_stop */
} lk_cause;

typedef struct lk_launch_node lk_launch_node;

typedef enum lk_launch_node_state {
    LK_LAUNCH_NODE_STATE_RUNNING,
    LK_LAUNCH_NODE_STATE_DONE,       /* all ranks exited with 0 */
    LK_LAUNCH_NODE_STATE_FAILED,     /* see lk__launch_node_cause; the other ranks run until lk__launch_node_stop */
    LK_LAUNCH_NODE_STATE_INTERRUPTED /* this process got SIGINT, SIGTERM, SIGHUP or SIGQUIT, or its output was closed
                           (SIGPIPE): see lk__launch_node_signal */
} lk_launch_node_state;

/* Starts the ranks. A program that does not exist or cannot be executed is NOT_FOUND, before any rank runs. */
lk_status lk__launch_node_start(const lk_launch_node_opts *opts, lk_launch_node **out) LK_CHECKED;
/* Blocks until the state changes, extra_fd (-1: none) is readable, or seconds have passed; forwards output
 * meanwhile. Each change is returned once: after DONE or FAILED it blocks again, and a signal still ends it.
 * A failure is returned about 75 ms late, because a better cause may follow, unless seconds is 0. If the
 * keeper was killed, all ranks have been ended and the status is PEER. */
lk_status lk__launch_node_wait(lk_launch_node *node, int extra_fd, double seconds,
                               lk_launch_node_state *out) LK_CHECKED;
const lk_cause *lk__launch_node_cause(const lk_launch_node *node);
/* The signal that interrupted; 0: none. */
int lk__launch_node_signal(const lk_launch_node *node);
/* Whether the output could not be written for another reason than a closed reader, about which a notice was
 * given. */
bool lk__launch_node_unwritten(const lk_launch_node *node);
/* Whether a second signal came: then the ranks have been killed. A signal that follows within 0.2 s counts as
 * the same one, because timeout(1) and batch systems send it to a process and to its group. */
bool lk__launch_node_hurried(const lk_launch_node *node);
/* Begins to end all descendants: by signal (SIGTERM, or the signal that interrupted), then, after `grace`
 * seconds or at a second signal, by SIGKILL. Does not block: lk__launch_node_wait forwards output and returns
 * when none is left (lk__launch_node_stopped). A second call with SIGKILL ends the grace. */
void lk__launch_node_end(lk_launch_node *node, int signal, double grace);
bool lk__launch_node_stopped(const lk_launch_node *node);
/* Ends all descendants and blocks until none is left. */
void lk__launch_node_stop(lk_launch_node *node, int signal, double grace);
/* Ends all descendants that still run, and restores the caller's signals. */
void lk__launch_node_destroy(lk_launch_node *node);

/* Writes "was killed by SIGSEGV (segmentation fault)", "got SIGTERM (told to stop) and ended" or "exited with
 * status 3". */
void lk__cause_text(const lk_cause *cause, char *text, size_t bytes);
/* The exit status of a launcher after this cause: the rank's own status, or 128 + signal. Never 0. */
int lk__cause_exit(const lk_cause *cause);
/* Whether a, which became known later, is the cause rather than b. A rank that names no other rank comes
 * before a rank whose last lines say that another died; the rank that died comes before the rank that says
 * so; a death by signal comes before an exit. Times are not compared, since clocks of two hosts may differ. */
bool lk__cause_before(const lk_cause *a, const lk_cause *b);

#endif
