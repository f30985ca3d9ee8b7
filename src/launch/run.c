/* run.c - the address and the token of a job, and its rounds. */
#include "launch/run.h"

#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launch/cause.h"
#include "net/host.h"
#include "net/socket.h"

static const char LOOPBACK[] = "127.0.0.1";

static volatile sig_atomic_t interrupted;

static const int taken[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
enum { TAKEN = sizeof taken / sizeof *taken };

static void note_signal(int number)
{
    interrupted = number;
}

/* Handles SIGUSR1 before there are ranks: does nothing. */
static void disregard(int number)
{
    (void)number;
}

/* Ignored signals stay ignored (nohup). */
static void take_signals(struct sigaction saved[TAKEN])
{
    struct sigaction note = {.sa_handler = note_signal}, none = {.sa_handler = disregard, .sa_flags = SA_RESTART};
    sigemptyset(&note.sa_mask);
    sigemptyset(&none.sa_mask);
    interrupted = 0;
    for (int i = 0; i < TAKEN; i++) {
        sigaction(taken[i], NULL, &saved[i]);
        if (saved[i].sa_handler != SIG_IGN)
            sigaction(taken[i], taken[i] == SIGUSR1 ? &none : &note, NULL);
    }
}

static void give_signals_back(const struct sigaction saved[TAKEN])
{
    for (int i = 0; i < TAKEN; i++)
        sigaction(taken[i], &saved[i], NULL);
}

static lk_status set_host(lk_launch_address *address, const char *host)
{
    if (strlen(host) >= sizeof address->host)
        return lk__fail(LK_STATUS_USAGE, "the name of the master's host has more than %zu characters",
                        sizeof address->host - 1);
    snprintf(address->host, sizeof address->host, "%s", host);
    return LK_OK;
}

static lk_status parse_method(const lk_launch_opts *opts, lk_launch_address *address)
{
    const char *method = opts->init_method;
    if (strncmp(method, "tcp://", 6) == 0)
        return lk__net_split(method + 6, address->host, sizeof address->host, &address->port);
    if (strncmp(method, "env://", 6) == 0)
        return lk__fail(LK_STATUS_USAGE,
                        "`init_method` env:// is for ranks: 'lockstep run' sets the variables that it reads; for the "
                        "rendezvous of several nodes give tcp://HOST:PORT or file://PATH");
    if (strncmp(method, "file://", 7) != 0 || !method[7])
        return lk__fail(LK_STATUS_USAGE, "`init_method` '%s' must be tcp://HOST:PORT or file://PATH", method);
    return LK_OK;
}

/* Fills the address from the options. With several nodes the rendezvous completes it. */
static lk_status find_address(const lk_launch_opts *opts, lk_launch_address *out)
{
    lk_launch_address address = {.port = opts->master_port};
    LK_TRY(set_host(&address, opts->master_addr ? opts->master_addr : LOOPBACK));
    if (opts->init_method)
        LK_TRY(parse_method(opts, &address));
    LK_TRY(lk__token_find(NULL, &address.token, &address.given));
    *out = address;
    return LK_OK;
}

typedef struct job {
    const lk_launch_opts *opts;
    lk_launch_address address;
    char hostname[LK_HOST_BYTES];
    lk_agent *agent;
    lk_launch_plan plan;
    int holder; /* socket that reserves the ranks' port; -1: none */
    char token[LK_TOKEN_TEXT];
} job;

/* A port given by the user must be free; otherwise a free port is found and reserved. */
static lk_status find_port(job *j)
{
    lk_launch_plan *plan = &j->plan;
    snprintf(plan->master_addr, sizeof plan->master_addr, "%s", j->address.host);
    bool given = j->opts->nnodes == 1 && j->address.port > 0;
    if (!given)
        return lk__net_reserve(j->address.host, &j->holder, &plan->master_port);
    int probe = -1;
    LK_TRY(lk__net_listen(j->address.host, j->address.port, &probe, &plan->master_port));
    close(probe);
    return LK_OK;
}

static lk_status make_plan(job *j, int restart)
{
    if (j->opts->node_rank != 0)
        return lk__agent_plan(j->agent, &j->plan);
    char secret[LK_TOKEN_TEXT];
    lk_status status;
    j->plan = (lk_launch_plan){.restart = restart};
    LK_TRY_GOTO(find_port(j), refuse);
    LK_TRY_GOTO(lk__token_make(secret), refuse);
    snprintf(j->plan.run_id, sizeof j->plan.run_id, "%.16s", secret);
    return lk__agent_plan(j->agent, &j->plan);
refuse:
    lk__agent_refuse(j->agent, lk_error_detail());
    return status;
}

/* Makes the ranks' token; *out NULL: the user's token is in their environment. Several nodes derive it from
 * their common token and the run id, so that it is never sent; one node draws a random one. */
static lk_status make_token(job *j, const char **out)
{
    *out = NULL;
    if (j->address.given)
        return LK_OK;
    *out = j->token;
    if (j->opts->nnodes == 1)
        return lk__token_make(j->token);
    uint8_t hash[LK_TOKEN_BYTES];
    crypto_generichash(hash, sizeof hash, (const uint8_t *)j->plan.run_id, strlen(j->plan.run_id), j->address.token.key,
                       sizeof j->address.token.key);
    sodium_bin2hex(j->token, sizeof j->token, hash, sizeof hash);
    return LK_OK;
}

static lk_status start_ranks(job *j, lk_launch_node_opts *node_opts, lk_launch_node **out)
{
    const lk_launch_opts *opts = j->opts;
    *node_opts = (lk_launch_node_opts){
        .nproc = opts->nproc,
        .first_rank = j->plan.first_rank,
        .world_size = j->plan.world_size,
        .node_rank = opts->node_rank,
        .nnodes = opts->nnodes,
        .restart = j->plan.restart,
        .max_restarts = opts->max_restarts,
        .master_addr = j->plan.master_addr,
        .master_port = j->plan.master_port,
        .run_id = j->plan.run_id,
        .argv = opts->argv,
        .fn = opts->fn,
        .arg = opts->fn_arg,
        .plain = opts->plain,
        .progress = opts->progress,
        .bind = opts->bind,
        .log_dir = opts->log_dir,
        .name_host = opts->nnodes > 1,
        .pass_user = true,
        .timeout = opts->timeout,
        .backend = opts->backend,
        .notice = opts->notice,
        .notice_arg = opts->arg,
    };
    LK_TRY(make_token(j, &node_opts->token));
    /* Otherwise every rank would write what is buffered now. */
    if (opts->fn)
        fflush(NULL);
    return lk__launch_node_start(node_opts, out);
}

static lk_status run_round(job *j, int restart, lk_launch_verdict *out)
{
    lk_launch_node_opts node_opts; /* must outlive the node */
    lk_launch_node *node = NULL;
    char detail[LK_MESSAGE_TEXT];
    LK_TRY(make_plan(j, restart));
    lk_status started = start_ranks(j, &node_opts, &node);
    snprintf(detail, sizeof detail, "%s", lk_error_detail());
    const lk_agent_watch_opts watch = {.max_restarts = j->opts->max_restarts, .grace = j->opts->grace};
    lk__agent_watch(j->agent, &j->plan, &watch, started == LK_OK ? node : NULL, out);
    if (j->holder >= 0)
        close(j->holder);
    j->holder = -1;
    return started == LK_OK ? LK_OK : lk__fail(started, "%s", detail);
}

static lk_status run_rounds(job *j, lk_launch_verdict *out)
{
    for (int restart = 0;; restart++) {
        LK_TRY(run_round(j, restart, out));
        if (!out->again)
            return LK_OK;
        j->opts->failed(j->opts->arg, out, restart);
    }
}

/* Returns the rendezvous of the nodes as an init method, from any of the options. */
static const char *find_method(const job *j, char *text, size_t bytes)
{
    const lk_launch_address *address = &j->address;
    if (j->opts->init_method)
        return j->opts->init_method;
    if (j->opts->tasks)
        return "env://";
    snprintf(text, bytes, strchr(address->host, ':') ? "tcp://[%s]:%d" : "tcp://%s:%d", address->host,
             address->port ? address->port : LK_AGENT_PORT);
    return text;
}

static lk_status run_job(const lk_launch_opts *opts, lk_launch_verdict *out)
{
    job j = {.opts = opts, .holder = -1};
    LK_TRY(find_address(opts, &j.address));
    lk__host_name(j.hostname);
    char method[LK_LAUNCH_HOST + 32];
    lk_launch_rendezvous_opts rendezvous = {.init_method = find_method(&j, method, sizeof method),
                                            .address = opts->master_addr,
                                            .port = opts->master_port,
                                            .node_rank = opts->node_rank,
                                            .nnodes = opts->nnodes,
                                            .nproc = opts->nproc,
                                            .hostname = j.hostname,
                                            .timeout = opts->timeout,
                                            .notice = opts->notice,
                                            .notice_arg = opts->arg,
                                            .interrupted = &interrupted};
    LK_TRY(lk__agent_create(&rendezvous, &j.address, &j.agent));
    lk_status status = run_rounds(&j, out);
    if (j.holder >= 0)
        close(j.holder);
    lk__agent_destroy(j.agent);
    return status;
}

lk_status lk__launch_run(const lk_launch_opts *opts, lk_launch_verdict *out)
{
    struct sigaction saved[TAKEN];
    take_signals(saved);
    lk_status status = run_job(opts, out);
    give_signals_back(saved);
    /* An interruption before the ranks were started also ends the job as interrupted. */
    if (status != LK_STATUS_PEER || !interrupted)
        return status;
    *out = (lk_launch_verdict){
        .outcome = LK_AGENT_OUTCOME_INTERRUPTED, .node = opts->node_rank, .signal = (int)interrupted};
    return LK_OK;
}

int lk__launch_verdict_exit(const lk_launch_verdict *verdict)
{
    switch (verdict->outcome) {
    case LK_AGENT_OUTCOME_DONE:
        return 0;
    case LK_AGENT_OUTCOME_FAILED:
        return lk__cause_exit(&verdict->cause);
    case LK_AGENT_OUTCOME_INTERRUPTED:
        return verdict->unwritten ? 1 : 128 + verdict->signal;
    case LK_AGENT_OUTCOME_LOST:
    case LK_AGENT_OUTCOME_BROKEN:
        break;
    }
    return 1;
}

void lk__launch_verdict_text(const lk_launch_verdict *verdict, char *text, size_t bytes)
{
    const lk_cause *cause = &verdict->cause;
    char what[256];
    switch (verdict->outcome) {
    case LK_AGENT_OUTCOME_DONE:
        snprintf(text, bytes, "all ranks are done");
        break;
    case LK_AGENT_OUTCOME_FAILED:
        lk__cause_text(cause, what, sizeof what);
        snprintf(text, bytes, "rank %d on host %s (pid %ld) %s", cause->rank, cause->host, (long)cause->pid, what);
        break;
    case LK_AGENT_OUTCOME_LOST:
        snprintf(text, bytes, "node %d (host %s) disappeared", verdict->node, cause->host);
        break;
    case LK_AGENT_OUTCOME_BROKEN:
        snprintf(text, bytes, "node %d (host %s): %s", verdict->node, cause->host, cause->tail);
        break;
    case LK_AGENT_OUTCOME_INTERRUPTED:
        lk__cause_signal_name(verdict->signal, what, sizeof what);
        snprintf(text, bytes, "interrupted by %s", what);
        break;
    }
}
