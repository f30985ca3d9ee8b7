/* run.h - runs a program or a function as the ranks of a job: what `lockstep run` and `lockstep train -n` do
 * at one node, from the rendezvous of the nodes to the last restart. Prints nothing itself. */
#ifndef LK_LAUNCH_RUN_H
#define LK_LAUNCH_RUN_H

#include <lockstep/group.h>

#include "base/status.h"
#include "launch/agent.h"

typedef struct lk_launch_opts {
    int nproc; /* ranks on this node */
    int nnodes, node_rank;
    const char *init_method; /* "tcp://HOST:PORT" or "file://PATH", replaces the next two; or NULL */
    bool tasks;              /* the launchers are the tasks of a scheduler, one on each node: they join by env:// */
    const char *master_addr; /* NULL: 127.0.0.1; with file:// an address of node 0's host */
    int master_port;         /* one node: of its ranks, 0: a free port; several: of the launchers, 0: LK_AGENT_PORT */
    int max_restarts;
    lk_bind_policy bind;
    const char *log_dir; /* or NULL */
    const char *backend; /* of the ranks' groups, or NULL */
    double timeout;      /* seconds for the rendezvous of the nodes, and for a stopped rank */
    double grace;        /* seconds for interrupted ranks to end by themselves; not 0: a notice says so. 0: 5 */
    char *const *argv;   /* the program and its arguments, terminated by NULL; NULL: fn */
    lk_spawn_fn fn;      /* called in a fork of this process, which should have no other threads */
    void *fn_arg;
    bool plain, progress; /* as in lk_launch_node_opts */
    lk_notice_fn notice;
    /* Called after a failed round that is followed by another, restart + 1 of max_restarts at node 0. */
    void (*failed)(void *arg, const lk_launch_verdict *verdict, int restart);
    void *arg;
} lk_launch_opts;

/* Runs the job; blocks until its end. SIGINT, SIGTERM, SIGHUP and SIGQUIT end it, a second one at once.
 * SIGUSR1 is sent to the ranks of this node while they run. LK_OK: *out says how the job ended. Otherwise no
 * rank has run at this node, or none is left. */
lk_status lk__launch_run(const lk_launch_opts *opts, lk_launch_verdict *out) LK_CHECKED;

/* The exit status of the launcher. */
int lk__launch_verdict_exit(const lk_launch_verdict *verdict);
/* Writes a sentence about the end of the job, without the last lines of a rank: "rank 2 on host b (pid 123)
 * was killed by SIGSEGV (segmentation fault)". */
void lk__launch_verdict_text(const lk_launch_verdict *verdict, char *text, size_t bytes);

#endif
