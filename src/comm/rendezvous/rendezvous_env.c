/* rendezvous_env.c - env://: rank, size, host and port from the environment (comm/detect/task.h), as torchrun,
 * `lockstep run`, MPI launchers and schedulers set them.
 *
 * A torchrun agent that shares its store listens at MASTER_PORT itself. Then rank 0 takes the first free one
 * of the ports that follow, and the others try them in turn: only the right server passes the handshake. The same
 * is done with a port that follows from the job of a scheduler.
 *
 * Where the launcher has a channel of its own (channel.h), rank 0 draws the token and sends it to the others through
 * the channel, with its address and a port. The address and the port are used where the environment has none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/spec.h"
#include "comm/detect/task.h"
#include "comm/rendezvous/channel.h"
#include "comm/rendezvous/rendezvous.h"
#include "net/host.h"
#include "net/socket.h"

enum { LAST_PORT = 65535 };

/* Sets rank and size. `task` has no problem. */
static lk_status take_rank(lk_meeting *meeting, const lk_group_opts *opts, const lk_task *task)
{
    long long size, rank;
    LK_TRY(lk__task_need(task, LK_TASK_QUANTITY_SIZE));
    LK_TRY(lk__task_need(task, LK_TASK_QUANTITY_RANK));
    size = task->values[LK_TASK_QUANTITY_SIZE].number;
    rank = task->values[LK_TASK_QUANTITY_RANK].number;
    if (size <= LK_MAX_RANKS && rank >= size)
        return lk__fail(LK_STATUS_USAGE, "the variable %s is '%lld': it must be a number from 0 to %lld",
                        task->values[LK_TASK_QUANTITY_RANK].source, rank, size - 1);
    return lk__meeting_rank(meeting, opts, rank, size);
}

/* What rank 0 sends through the job channel: "TOKEN@PORT@HOST". */
typedef struct news {
    char token[LK_TOKEN_TEXT];
    char host[LK_TASK_TEXT];
    int port;
} news;

/* Whether every process may use the host that it has from the environment. The first host of a scheduler's list may
 * have a name that is not known here, or only as loopback: then rank 0 decides. */
static bool host_is_sure(const lk_task *task)
{
    const lk_task_value *host = &task->values[LK_TASK_QUANTITY_HOST];
    return host->known && (strcmp(host->source, "MASTER_ADDR") == 0 || strcmp(host->text, "127.0.0.1") == 0);
}

/* Whether this host is `host`, and others can reach it by that name. */
static bool is_own_name(const char *host)
{
    int fd = -1, port = 0;
    bool can = !lk__net_is_loopback(host) && lk__net_listen(host, 0, &fd, &port) == LK_OK;
    lk__fd_close(&fd);
    return can;
}

/* Rank 0: decides where it listens, and draws the token. */
static lk_status write_news(const lk_task *task, char text[LK_JOB_CHANNEL_TEXT])
{
    const lk_task_value *known = &task->values[LK_TASK_QUANTITY_HOST];
    char token[LK_TOKEN_TEXT], own[LK_ADDRESS_BYTES];
    unsigned slot = 0;
    LK_TRY(lk__token_make(token));
    /* The port is public, so its digits are drawn apart from those of the token. */
    (void)sscanf(token, "%4x", &slot);
    LK_TRY(lk__token_make(token));
    lk__host_address(own);
    snprintf(text, LK_JOB_CHANNEL_TEXT, "%s@%d@%s", token, lk__task_port_of(slot),
             known->known && is_own_name(known->text) ? known->text : own);
    return LK_OK;
}

static lk_status read_news(const char *text, news *out)
{
    char port[8];
    long long number = 0;
    int end = 0;
    bool whole = sscanf(text, "%64[0-9a-f]@%6[0-9]@%255[0-9A-Za-z.:%%_-]%n", out->token, port, out->host, &end) == 3 &&
                 text[end] == '\0' && lk__number_parse_int(port, 1, LAST_PORT - LK_TASK_PORTS, &number);
    if (!whole || strlen(out->token) != LK_TOKEN_TEXT - 1)
        return lk__fail(LK_STATUS_FORMAT,
                        "the launcher's channel gave another text than rank 0 of this release writes; use one release "
                        "of Lockstep for all ranks");
    out->port = (int)number;
    return LK_OK;
}

/* Takes from the job channel what the environment does not say. */
static lk_status ask_launcher(lk_meeting *meeting, const lk_task *task, const lk_job_channel_task *process)
{
    char text[LK_JOB_CHANNEL_TEXT] = "";
    news it;
    if (process->rank == 0)
        LK_TRY(write_news(task, text));
    LK_TRY(lk__job_channel_share(process, &meeting->deadline, text));
    LK_TRY(read_news(text, &it));
    if (!host_is_sure(task))
        snprintf(meeting->host, sizeof meeting->host, "%s", it.host);
    if (lk__task_port(task, &meeting->port) != LK_OK) {
        meeting->port = it.port;
        meeting->ports = LK_TASK_PORTS;
    }
    return meeting->given ? LK_OK : lk__token_from_text(it.token, &meeting->token);
}

/* torchrun says whether its store is at MASTER_PORT; older versions say nothing. */
static bool agent_listens(void)
{
    const char *shared = getenv("TORCHELASTIC_USE_AGENT_STORE");
    return getenv("TORCHELASTIC_RUN_ID") && (!shared || strcmp(shared, "False") != 0);
}

/* A torchrun agent listens at the port itself. */
static void avoid_agent(lk_meeting_plan *plan)
{
    if (!agent_listens() || plan->ports > 1)
        return;
    plan->ports = LK_TASK_PORTS;
    plan->first = plan->port + LK_TASK_PORTS <= LAST_PORT ? plan->port + 1 : plan->port - LK_TASK_PORTS;
}

lk_status lk__meeting_env_plan(const lk_task *task, const lk_job_channel_task *process, bool token,
                               lk_meeting_plan *out)
{
    lk_meeting_plan plan = {.ports = task->ports ? LK_TASK_PORTS : 1};
    bool channel = process->size > 1 && lk__job_channel_there(process);
    lk_status status = lk__task_host(task, plan.host);
    /* A job of one rank waits for no other rank. */
    bool alone = process->size == 1 && process->threads <= 1;
    if (status != LK_OK && alone) {
        snprintf(plan.host, sizeof plan.host, "127.0.0.1");
        status = LK_OK;
    }
    if (status == LK_OK && !alone)
        status = lk__task_port(task, &plan.port);
    plan.channel = channel && (status != LK_OK || !token);
    if (status != LK_OK && !plan.channel)
        return lk__job_channel_missed(process, status);
    plan.first = plan.port;
    if (!plan.channel)
        avoid_agent(&plan);
    *out = plan;
    return LK_OK;
}

static lk_status find(lk_meeting *meeting, const lk_group_opts *opts, const char *rest)
{
    lk_task task;
    lk_meeting_plan plan;
    char job[512];
    if (rest[0])
        return lk__fail(LK_STATUS_USAGE, "env:// takes nothing after it, but was given '%s'", rest);
    lk__task_find(NULL, NULL, &task);
    LK_TRY(lk__task_check(&task));
    LK_TRY(take_rank(meeting, opts, &task));
    LK_TRY(lk__token_find(opts->token, &meeting->token, &meeting->given));
    const lk_job_channel_task process = {.rank = task.values[LK_TASK_QUANTITY_RANK].number,
                                         .size = task.values[LK_TASK_QUANTITY_SIZE].number,
                                         .threads = meeting->threads,
                                         .backend = opts->backend,
                                         .interrupted = meeting->kind.interrupted};
    LK_TRY(lk__meeting_env_plan(&task, &process, meeting->given, &plan));
    _Static_assert(sizeof meeting->host >= sizeof plan.host, "a host fits");
    memcpy(meeting->host, plan.host, sizeof plan.host);
    meeting->port = plan.first;
    lk__exits_find(plan.first, meeting->exits);
    meeting->ports = plan.ports;
    if (plan.channel)
        return ask_launcher(meeting, &task, &process);
    /* Job and port distinguish jobs. The address is not used, because it may be written in several ways. */
    const lk_task_value *name = &task.values[LK_TASK_QUANTITY_JOB];
    snprintf(job, sizeof job, "lockstep env %d %s", plan.port, name->known ? name->text : "");
    return lk__meeting_token(meeting, opts->token, job);
}

bool lk_group_launched(void)
{
    lk_task task;
    lk__task_find(NULL, NULL, &task);
    return lk__task_joins(&task);
}

const lk_rendezvous_method lk__rendezvous_env = {
    .scheme = "env://",
    .summary = "env://",
    .find = find,
    .listen = lk__meeting_listen_ports,
    .connect = lk__meeting_connect_ports,
};
