/* rendezvous_env.c - env://: rank, size, host and port from the environment (comm/detect/task.h), as torchrun,
 * `lockstep run`, MPI launchers and schedulers set them.
 *
 * A torchrun agent that shares its store listens at MASTER_PORT itself. Then rank 0 takes the first free one
 * of the ports that follow, and the others try them in turn: only the right server passes the handshake. The same
 * is done with a port that follows from the job of a scheduler. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/detect/task.h"
#include "comm/rendezvous/rendezvous.h"

enum { LAST_PORT = 65535 };

/* Sets rank and size. `task` has no problem. */
static lk_status take_rank(lk_meeting *meeting, const lk_group_opts *opts, const lk_task *task)
{
    long long size, rank;
    LK_TRY(lk__task_need(task, LK_TASK_SIZE));
    LK_TRY(lk__task_need(task, LK_TASK_RANK));
    size = task->values[LK_TASK_SIZE].number;
    rank = task->values[LK_TASK_RANK].number;
    if (size <= LK_MAX_RANKS && rank >= size)
        return lk__fail(LK_STATUS_USAGE, "the variable %s is '%lld': it must be a number from 0 to %lld",
                        task->values[LK_TASK_RANK].source, rank, size - 1);
    return lk__meeting_rank(meeting, opts, rank, size);
}

static lk_status take_address(lk_meeting *meeting, const lk_task *task)
{
    _Static_assert(sizeof meeting->host >= LK_TASK_TEXT, "a host fits");
    LK_TRY(lk__task_host(task, meeting->host));
    LK_TRY(lk__task_port(task, &meeting->port));
    meeting->ports = task->ports ? LK_TASK_PORTS : 1;
    return LK_OK;
}

/* torchrun says whether its store is at MASTER_PORT; older versions say nothing. */
static bool agent_listens(void)
{
    const char *shared = getenv("TORCHELASTIC_USE_AGENT_STORE");
    return getenv("TORCHELASTIC_RUN_ID") && (!shared || strcmp(shared, "False") != 0);
}

static lk_status find(lk_meeting *meeting, const lk_group_opts *opts, const char *rest)
{
    lk_task task;
    char job[512];
    if (rest[0])
        return lk__fail(LK_STATUS_USAGE, "env:// takes nothing after it, but was given '%s'", rest);
    lk__task_find(NULL, NULL, &task);
    LK_TRY(lk__task_check(&task));
    LK_TRY(take_rank(meeting, opts, &task));
    LK_TRY(take_address(meeting, &task));
    /* Job and port distinguish jobs. The address is not used, because it may be written in several ways. */
    const lk_task_value *name = &task.values[LK_TASK_JOB];
    snprintf(job, sizeof job, "lockstep env %d %s", meeting->port, name->known ? name->text : "");
    if (agent_listens() && meeting->ports == 1) {
        meeting->ports = LK_TASK_PORTS;
        meeting->port = meeting->port + LK_TASK_PORTS <= LAST_PORT ? meeting->port + 1 : meeting->port - LK_TASK_PORTS;
    }
    return lk__meeting_token(meeting, opts->token, job);
}

const lk_rendezvous_method lk__rendezvous_env = {
    .scheme = "env://",
    .summary = "env://",
    .find = find,
    .listen = lk__meeting_listen_ports,
    .connect = lk__meeting_connect_ports,
};
