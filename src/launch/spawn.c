/* spawn.c - lk_spawn: a job on this host whose ranks run a function. */
#include <lockstep/launch.h>

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/status.h"
#include "comm/rendezvous/rendezvous.h"
#include "launch/cause.h"
#include "launch/node.h"
#include "net/auth.h"
#include "net/socket.h"

static const char LOOPBACK[] = "127.0.0.1";
/* Seconds for the other ranks to end by themselves after a failure; the job ends within a second. */
static const double GRACE = 0.5;

static lk_status explain(const lk_cause *cause)
{
    char text[160];
    lk__cause_text(cause, text, sizeof text);
    return lk__fail(LK_STATUS_PEER, "rank %d (pid %d) %s", cause->rank, (int)cause->pid, text);
}

static lk_status run(const lk_launch_node_opts *opts, int *interrupted)
{
    lk_launch_node *node;
    lk_launch_node_state state = LK_LAUNCH_NODE_STATE_RUNNING;
    lk_status status = LK_OK;
    char name[32];
    LK_TRY(lk__launch_node_start(opts, &node));
    while (status == LK_OK && state == LK_LAUNCH_NODE_STATE_RUNNING)
        status = lk__launch_node_wait(node, -1, 3600, &state);
    *interrupted = lk__launch_node_signal(node);
    lk__launch_node_stop(node, *interrupted != 0 && *interrupted != SIGPIPE ? *interrupted : SIGTERM, GRACE);
    if (status == LK_OK && state == LK_LAUNCH_NODE_STATE_FAILED)
        status = explain(lk__launch_node_cause(node));
    if (status == LK_OK && state == LK_LAUNCH_NODE_STATE_INTERRUPTED) {
        lk__cause_signal_name(*interrupted, name, sizeof name);
        status = lk__fail(LK_STATUS_PEER, "the ranks were ended because %s came", name);
    }
    lk__launch_node_destroy(node);
    return status;
}

lk_status lk_spawn(int nprocs, lk_spawn_fn fn, void *arg)
{
    LK_TRY(LK_GIVEN(fn));
    char token[LK_TOKEN_TEXT], run_id[32];
    int holder = -1, interrupted = 0;
    if (nprocs < 1)
        return lk__fail(LK_STATUS_USAGE, "%d processes cannot be spawned; one at least", nprocs);
    lk_launch_node_opts opts = {.nproc = nprocs,
                                .world_size = nprocs,
                                .nnodes = 1,
                                .master_addr = LOOPBACK,
                                .run_id = run_id,
                                .token = token,
                                .fn = fn,
                                .arg = arg,
                                .raw = true};
    LK_TRY(lk__meeting_timeout(0, &opts.timeout));
    LK_TRY(lk__token_make(token));
    LK_TRY(lk__net_reserve(LOOPBACK, &holder, &opts.master_port));
    snprintf(run_id, sizeof run_id, "spawn-%ld-%d", (long)getpid(), opts.master_port);
    /* Otherwise every rank would write what is buffered now. */
    fflush(NULL);
    lk_status status = run(&opts, &interrupted);
    close(holder);
    /* The caller's own action for this signal follows, after all ranks have ended. */
    if (interrupted != 0)
        raise(interrupted);
    return status;
}
