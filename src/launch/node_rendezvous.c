/* node_rendezvous.c - which nodes of a job have connected to node 0, and which are missing.
 *
 * Finding and authenticating each other is done by comm/rendezvous and net/acceptor. */
#include "launch/node_rendezvous.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "comm/control/roster.h"
#include "net/socket.h"

enum { TWIN_SECONDS = 5 };

static lk_status open_meeting(const lk_launch_rendezvous_opts *opts, lk_notice_fn notice, void *arg, lk_meeting *out)
{
    const lk_group_opts group = {.init_method = opts->init_method,
                                 .rank = opts->node_rank,
                                 .world_size = opts->nnodes,
                                 .timeout = opts->timeout,
                                 .notice = notice,
                                 .notice_arg = arg};
    const lk_meeting_kind nodes = {.noun = "node",
                                   .greeting = "lockstep agents 2",
                                   .host = opts->address,
                                   .port = opts->port,
                                   .interrupted = opts->interrupted};
    return lk__meeting_open(&group, &nodes, out);
}

/* Launchers notice a vanished host before its ranks' peers do, so that they can name it. */
static double vanish(const lk_launch_rendezvous_opts *opts)
{
    return lk__net_vanish(opts->timeout) * 2 / 3;
}

static void send_hello(const lk_launch_rendezvous_opts *opts, lk_link *link)
{
    lk_message hello = {.kind = LK_MESSAGE_KIND_HELLO,
                        .numbers = {opts->node_rank, opts->nnodes, opts->nproc, getpid()}};
    snprintf(hello.name, sizeof hello.name, "%s", opts->hostname);
    lk__link_send(link, &hello);
}

typedef struct gathering {
    const lk_launch_rendezvous_opts *opts;
    lk_meeting meeting;
    lk_acceptor *acceptor;
    lk_link *links;  /* (nnodes); [0] stays closed */
    char hint[640];  /* last refusal of the acceptor; "" */
    char wrong[320]; /* why this job cannot start; "" */
} gathering;

static int missing(const gathering *g)
{
    int count = 0;
    for (int node = 1; node < g->opts->nnodes; node++)
        count += g->links[node].fd < 0;
    return count;
}

static void describe_missing(const gathering *g, char *text, size_t bytes)
{
    uint8_t awaited[LK_MAX_NODES] = {0};
    for (int node = 1; node < g->opts->nnodes; node++)
        awaited[node] = g->links[node].fd < 0;
    lk__text_awaited("node", awaited, g->opts->nnodes, "not joined", text, bytes);
}

static void send_to_all(const gathering *g, lk_message_kind kind, const char *text)
{
    lk_message message = {.kind = kind};
    snprintf(message.text, sizeof message.text, "%s", text);
    for (int node = 1; node < g->opts->nnodes; node++)
        lk__link_send(&g->links[node], &message);
}

/* Gives a notice at every node. */
static void notify(void *arg, const char *text)
{
    const gathering *g = arg;
    if (g->opts->notice)
        g->opts->notice(g->opts->notice_arg, text);
    send_to_all(g, LK_MESSAGE_KIND_NOTICE, text);
}

/* Writes why a node cannot take part; "": it can. If the numbers of nodes differ, neither job can start. */
static void judge(gathering *g, const lk_message *hello, char *why, size_t bytes)
{
    long long node = hello->numbers[0], nnodes = hello->numbers[1], nproc = hello->numbers[2];
    why[0] = '\0';
    if (node == 0) {
        snprintf(why, bytes,
                 "node 0 has joined already, from %s (pid %d); each node needs a `node_rank` of its own, and each "
                 "job a `master_port` of its own",
                 g->opts->hostname, (int)getpid());
    } else if (nnodes != g->opts->nnodes) {
        snprintf(g->wrong, sizeof g->wrong,
                 "node %lld on host %s was started with `nnodes` %lld, node 0 on host %s with `nnodes` %d: give all "
                 "nodes the same number",
                 node, hello->name, nnodes, g->opts->hostname, g->opts->nnodes);
        snprintf(why, bytes, "%s", g->wrong);
    } else if (node < 1 || node >= nnodes || nproc < 1 || nproc > LK_MAX_NPROC)
        snprintf(why, bytes,
                 "`node_rank` %lld with %lld ranks is impossible: nodes are 1 to %d, ranks of a node 1 to %d", node,
                 nproc, g->opts->nnodes - 1, LK_MAX_NPROC);
    else if (g->links[node].fd >= 0)
        snprintf(why, bytes,
                 "node %lld has joined already, from %s (pid %ld); each node needs a `node_rank` of its own", node,
                 g->links[node].host, g->links[node].pid);
}

/* Gives a notice about a refused node, since the job waits for it. */
static void notice_refused(gathering *g, const char *host, const char *why)
{
    char text[512];
    snprintf(text, sizeof text, "refused a node on host %s: %s", host, why);
    if (!g->wrong[0])
        notify(g, text);
}

/* Admits a node or refuses it. Owns fd. */
static void admit(gathering *g, int fd, const uint8_t *bytes)
{
    lk_message hello, refusal = {.kind = LK_MESSAGE_KIND_REFUSED};
    lk_link link = {.fd = fd};
    if (!lk__message_decode(bytes, &hello) || hello.kind != LK_MESSAGE_KIND_HELLO ||
        lk__net_prepare(fd, vanish(g->opts)) != LK_OK) {
        lk__link_close(&link);
        return;
    }
    send_hello(g->opts, &link);
    judge(g, &hello, refusal.text, sizeof refusal.text);
    if (refusal.text[0]) {
        lk__link_send(&link, &refusal);
        lk__link_close(&link);
        notice_refused(g, hello.name, refusal.text);
        return;
    }
    link.nproc = (int)hello.numbers[2];
    link.pid = (long)hello.numbers[3];
    memcpy(link.host, hello.name, sizeof link.host);
    g->links[hello.numbers[0]] = link;
}

/* A node that disconnects before all have joined is missing again. */
static void read_links(gathering *g)
{
    lk_message message;
    for (int node = 1; node < g->opts->nnodes; node++) {
        lk_link *link = &g->links[node];
        if (link->fd >= 0 && lk__link_receive(link, &message) == LK_LINK_STATE_CLOSED)
            lk__link_close(link);
    }
}

/* Links are only checked after each tick of the acceptor, which is soon enough. */
static void await_newcomers(gathering *g)
{
    struct pollfd polls[LK_ACCEPTOR_POLLS];
    uint8_t hello[LK_MESSAGE_BYTES];
    (void)poll(polls, lk__acceptor_polls(g->acceptor, polls), LK_ACCEPTOR_TICK);
    /* Before new nodes, because a node may have been started again. */
    read_links(g);
    for (int fd; (fd = lk__acceptor_next(g->acceptor, hello)) >= 0;)
        admit(g, fd, hello);
    if (lk__acceptor_refused(g->acceptor, g->hint, sizeof g->hint))
        notify(g, g->hint);
}

static lk_status fail_missing(const gathering *g, const char *who)
{
    char text[LK_LAUNCH_HOST + 1024];
    snprintf(text, sizeof text, "%s within %g s at %s port %d; start it there or raise `timeout`%s%s", who,
             g->meeting.deadline.timeout, g->meeting.host, g->meeting.port, g->hint[0] ? "; " : "", g->hint);
    send_to_all(g, LK_MESSAGE_KIND_REFUSED, text);
    return lk__fail(LK_STATUS_PEER, "%s", text);
}

static lk_status gather(gathering *g)
{
    char who[192];
    while (missing(g) > 0) {
        describe_missing(g, who, sizeof who);
        if (*g->opts->interrupted)
            return lk__fail(LK_STATUS_PEER, "interrupted: %s", who);
        if (lk__deadline_over(&g->meeting.deadline))
            return fail_missing(g, who);
        lk__deadline_notice(&g->meeting.deadline, who);
        await_newcomers(g);
        if (g->wrong[0]) {
            send_to_all(g, LK_MESSAGE_KIND_REFUSED, g->wrong);
            return lk__fail(LK_STATUS_MISMATCH, "%s", g->wrong);
        }
    }
    return LK_OK;
}

/* Another node 0 has this node's port; asks it who it is. */
static lk_status fail_twin(gathering *g)
{
    lk_link link = {.fd = g->meeting.fd};
    lk_message message;
    lk_link_state state = LK_LINK_STATE_IDLE;
    double deadline = lk__clock() + TWIN_SECONDS;
    g->meeting.fd = -1;
    send_hello(g->opts, &link);
    while (state != LK_LINK_STATE_CLOSED && lk__clock() < deadline && !*g->opts->interrupted) {
        state = lk__link_receive(&link, &message);
        if (state == LK_LINK_STATE_MESSAGE && message.kind == LK_MESSAGE_KIND_REFUSED)
            break;
        if (state == LK_LINK_STATE_IDLE)
            (void)lk__net_wait(link.fd, POLLIN, lk__clock() + 0.2);
    }
    lk__link_close(&link);
    return lk__fail(LK_STATUS_MISMATCH, "%s",
                    state == LK_LINK_STATE_MESSAGE ? message.text : "node 0 has joined already");
}

/* Node 0: accepts all nodes. Afterwards the listener is closed and a published address is removed. */
static lk_status accept_nodes(gathering *g)
{
    lk_status status;
    LK_TRY(open_meeting(g->opts, notify, g, &g->meeting));
    if (g->meeting.twin)
        return fail_twin(g);
    LK_TRY_GOTO(lk__meeting_acceptor(&g->meeting, LK_MESSAGE_BYTES, &g->acceptor), close_meeting);
    status = gather(g);
    lk__acceptor_destroy(g->acceptor);
close_meeting:
    lk__meeting_close(&g->meeting);
    return status;
}

/* The other nodes: connect to node 0. link owns the connection, also after a failure. */
static lk_status connect_to_first(const lk_launch_rendezvous_opts *opts, lk_meeting *meeting, lk_link *link)
{
    LK_TRY(open_meeting(opts, opts->notice, opts->notice_arg, meeting));
    *link = (lk_link){.fd = meeting->fd};
    meeting->fd = -1;
    LK_TRY(lk__net_prepare(link->fd, vanish(opts)));
    lk__net_peer_address(link->fd, link->host, sizeof link->host);
    send_hello(opts, link);
    return LK_OK;
}

lk_status lk__launch_rendezvous(const lk_launch_rendezvous_opts *opts, lk_link *links, lk_launch_address *address)
{
    gathering g = {.opts = opts, .links = links};
    bool leads = opts->node_rank == 0;
    lk_status status = leads ? accept_nodes(&g) : connect_to_first(opts, &g.meeting, &links[0]);
    for (int i = 0; status != LK_OK && i < (leads ? opts->nnodes : 1); i++)
        lk__link_close(&links[i]);
    LK_TRY(status);
    if (leads) {
        memcpy(address->host, g.meeting.host, sizeof address->host);
        address->port = g.meeting.port;
    }
    address->token = g.meeting.token;
    address->given = g.meeting.given;
    return LK_OK;
}
