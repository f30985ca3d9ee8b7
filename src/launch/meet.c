/* meet.c - node 0 gathers the other nodes; they look for node 0.
 *
 * Node 0 never blocks on a single client: strangers, scanners and slow ones sit
 * in a few waiting places until their handshake is through or their time is
 * over, and a new client may take the oldest one's place. */
#include "launch/meet.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/net.h"

enum { PENDING = 16, HANDSHAKE_SECONDS = 10, CONNECT_SECONDS = 2, NOTICE_SECONDS = 5 };
enum { MAX_FAILURES = 3, STALE_SECONDS = 5 };
static const double SLICE = 0.2;

/* ---- the greeting: who is it ------------------------------------------- */

static const char MAGIC[8] = "LKagent1";

static void put32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

static uint32_t get32(const uint8_t *in)
{
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

/* Magic, node, nodes, ranks there, name of the host. */
enum { NODE_AT = 8, NNODES_AT = 12, NPROC_AT = 16, HOST_AT = 20 };

static void make_greeting(const lk_meet_opts *opts, uint8_t out[LK_GREETING_BYTES])
{
    memset(out, 0, LK_GREETING_BYTES);
    memcpy(out, MAGIC, sizeof MAGIC);
    put32(out + NODE_AT, (uint32_t)opts->node_rank);
    put32(out + NNODES_AT, (uint32_t)opts->nnodes);
    put32(out + NPROC_AT, (uint32_t)opts->nproc);
    snprintf((char *)out + HOST_AT, LK_GREETING_BYTES - HOST_AT, "%s", opts->hostname);
}

static bool is_agent(const uint8_t *greeting)
{
    return memcmp(greeting, MAGIC, sizeof MAGIC) == 0;
}

static void open_link(lk_link *link, int fd, const uint8_t *greeting)
{
    *link = (lk_link){.fd = fd, .nproc = (int)get32(greeting + NPROC_AT)};
    snprintf(link->host, sizeof link->host, "%.*s", LK_GREETING_BYTES - HOST_AT, (const char *)greeting + HOST_AT);
}

static lk_status fail_interrupted(void)
{
    return lk__fail(LK_STATUS_PEER, "interrupted while waiting for the other nodes");
}

static void notify(const lk_meet_opts *opts, const char *text)
{
    if (opts->notice)
        opts->notice(opts->notice_arg, text);
}

/* ---- node 0 -------------------------------------------------------------- */

typedef struct client {
    int fd; /* -1: free */
    double deadline;
    lk_handshake shake;
} client;

typedef struct server {
    const lk_meet_opts *opts;
    const lk_place *place;
    int listener;
    lk_link *links; /* (nnodes); [0] stays closed */
    client clients[PENDING];
    double deadline, notice_at;
} server;

static int missing(const server *s)
{
    int count = 0;
    for (int node = 1; node < s->opts->nnodes; node++)
        count += s->links[node].fd < 0;
    return count;
}

/* "node 1 of 2 has not joined", "nodes 1, 2 and 7 others of 12 have not joined" */
static void describe_missing(const server *s, char *text, size_t bytes)
{
    enum { NAMED = 8 };
    int count = missing(s), named = 0;
    size_t used = (size_t)snprintf(text, bytes, count == 1 ? "node" : "nodes");
    for (int node = 1; node < s->opts->nnodes && named < NAMED && used < bytes; node++) {
        if (s->links[node].fd < 0)
            used += (size_t)snprintf(text + used, bytes - used, "%s %d", named++ ? "," : "", node);
    }
    if (count > named && used < bytes)
        used += (size_t)snprintf(text + used, bytes - used, " and %d more", count - named);
    if (used < bytes)
        snprintf(text + used, bytes - used, " of %d %s not joined", s->opts->nnodes, count == 1 ? "has" : "have");
}

static void tell_all(const server *s, lk_message_kind kind, const char *text)
{
    lk_message message = {.kind = kind};
    snprintf(message.text, sizeof message.text, "%s", text);
    for (int node = 1; node < s->opts->nnodes; node++)
        lk__link_send(&s->links[node], &message);
}

static void send_refusal(int fd, const char *text)
{
    lk_link link = {.fd = fd};
    lk_message message = {.kind = LK_MESSAGE_REFUSED};
    snprintf(message.text, sizeof message.text, "%s", text);
    lk__link_send(&link, &message);
    close(fd);
}

/* A client that has proved the token takes its node's place; it owns fd. */
static void admit(server *s, int fd, const uint8_t *greeting)
{
    const lk_meet_opts *opts = s->opts;
    char why[256] = "";
    uint32_t node = get32(greeting + NODE_AT), nnodes = get32(greeting + NNODES_AT);
    uint32_t nproc = get32(greeting + NPROC_AT);
    if (!is_agent(greeting))
        snprintf(why, sizeof why, "nodes meet here, not ranks");
    else if (nnodes != (uint32_t)opts->nnodes)
        snprintf(why, sizeof why, "node 0 was started with --nnodes %d, this node with %u", opts->nnodes, nnodes);
    else if (node == 0 || node >= nnodes || nproc == 0 || nproc > LK_MAX_NPROC)
        snprintf(why, sizeof why, "there is no place for --node-rank %u with %u ranks", node, nproc);
    else if (s->links[node].fd >= 0)
        snprintf(why, sizeof why, "node %u has joined already, from %s; each node needs a --node-rank of its own", node,
                 s->links[node].host);
    if (*why) {
        send_refusal(fd, why);
        return;
    }
    open_link(&s->links[node], fd, greeting);
}

static void drop_client(client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

static void accept_clients(server *s)
{
    uint8_t greeting[LK_GREETING_BYTES];
    make_greeting(s->opts, greeting);
    for (int fd; (fd = lk__net_accept(s->listener)) >= 0;) {
        client *place = &s->clients[0];
        for (int i = 0; i < PENDING && place->fd >= 0; i++) {
            if (s->clients[i].fd < 0 || s->clients[i].deadline < place->deadline)
                place = &s->clients[i];
        }
        drop_client(place);
        if (lk__net_prepare(fd, s->opts->timeout) != LK_OK) {
            close(fd);
            continue;
        }
        place->fd = fd;
        place->deadline = lk__clock() + HANDSHAKE_SECONDS;
        lk__handshake_init(&place->shake, &s->place->token, true, greeting);
    }
}

static void step_clients(server *s)
{
    double now = lk__clock();
    for (int i = 0; i < PENDING; i++) {
        client *c = &s->clients[i];
        if (c->fd < 0)
            continue;
        lk_handshake_state state = lk__handshake_step(&c->shake, c->fd);
        if (state == LK_HANDSHAKE_DONE) {
            admit(s, c->fd, lk__handshake_greeting(&c->shake));
            c->fd = -1;
        } else if (state == LK_HANDSHAKE_FAILED || now >= c->deadline) {
            drop_client(c);
        }
    }
}

/* A node that goes away before all are there is missing again. */
static void read_links(server *s)
{
    lk_message message;
    for (int node = 1; node < s->opts->nnodes; node++) {
        lk_link *link = &s->links[node];
        if (link->fd < 0)
            continue;
        if (lk__link_receive(link, &message) == LK_LINK_CLOSED)
            lk__link_close(link);
    }
}

/* Until something happens that one of the above is for. */
static void wait_for_events(server *s)
{
    struct pollfd fds[1 + PENDING];
    nfds_t count = 0;
    fds[count++] = (struct pollfd){.fd = s->listener, .events = POLLIN};
    for (int i = 0; i < PENDING; i++) {
        if (s->clients[i].fd >= 0)
            fds[count++] =
                (struct pollfd){.fd = s->clients[i].fd, .events = lk__handshake_events(&s->clients[i].shake)};
    }
    /* Links are looked at when the slice is over: a job waits for its last node
     * longer than that. */
    (void)poll(fds, count, (int)(1000 * SLICE));
}

static void notice_missing(server *s)
{
    double now = lk__clock();
    if (now < s->notice_at)
        return;
    s->notice_at += NOTICE_SECONDS;
    char who[192], text[256];
    describe_missing(s, who, sizeof who);
    snprintf(text, sizeof text, "%s, %.0f s left", who, s->deadline > now ? s->deadline - now : 0);
    notify(s->opts, text);
    tell_all(s, LK_MESSAGE_NOTICE, text);
}

static lk_status fail_missing(server *s)
{
    char who[192], text[640];
    describe_missing(s, who, sizeof who);
    snprintf(text, sizeof text, "%s within %g s at %s port %d; start it there or raise --timeout", who,
             s->opts->timeout, s->place->host, s->place->port);
    tell_all(s, LK_MESSAGE_REFUSED, text);
    return lk__fail(LK_STATUS_PEER, "%s", text);
}

static lk_status gather(server *s)
{
    while (missing(s) > 0) {
        if (*s->opts->interrupted)
            return fail_interrupted();
        if (lk__clock() >= s->deadline)
            return fail_missing(s);
        notice_missing(s);
        wait_for_events(s);
        accept_clients(s);
        step_clients(s);
        read_links(s);
    }
    return LK_OK;
}

lk_status lk__meet_serve(const lk_meet_opts *opts, const lk_place *place, int listener, lk_link *links)
{
    double now = lk__clock();
    server s = {.opts = opts,
                .place = place,
                .listener = listener,
                .links = links,
                .deadline = now + opts->timeout,
                .notice_at = now + NOTICE_SECONDS};
    for (int i = 0; i < PENDING; i++)
        s.clients[i].fd = -1;
    for (int node = 0; node < opts->nnodes; node++)
        links[node] = (lk_link){.fd = -1};
    lk_status status = gather(&s);
    for (int i = 0; i < PENDING; i++)
        drop_client(&s.clients[i]);
    for (int node = 1; node < opts->nnodes && status != LK_OK; node++)
        lk__link_close(&links[node]);
    return status;
}

/* ---- other nodes ---------------------------------------------------------- */

/* Fills link, which owns fd then. */
static lk_status prove(const lk_meet_opts *opts, const lk_place *place, int fd, lk_link *link)
{
    uint8_t greeting[LK_GREETING_BYTES];
    make_greeting(opts, greeting);
    lk_handshake shake;
    lk__handshake_init(&shake, &place->token, false, greeting);
    double deadline = lk__clock() + HANDSHAKE_SECONDS;
    lk_status status;
    do
        status = lk__handshake_run(&shake, fd, lk__clock() + SLICE);
    while (shake.state == LK_HANDSHAKE_PENDING && lk__clock() < deadline && !*opts->interrupted);
    LK_TRY(status);
    if (!is_agent(lk__handshake_greeting(&shake)))
        return lk__fail(LK_STATUS_MISMATCH, "ranks meet there, not nodes; give the port of the other 'lockstep run'");
    open_link(link, fd, lk__handshake_greeting(&shake));
    return LK_OK;
}

/* One attempt; *answered tells that somebody was there. */
static lk_status attempt(const lk_meet_opts *opts, const lk_place *place, lk_link *link, bool *answered)
{
    int fd = -1;
    lk_status status;
    LK_TRY(lk__net_connect(place->host, place->port, lk__clock() + CONNECT_SECONDS, &fd, NULL));
    *answered = true;
    LK_TRY_GOTO(lk__net_prepare(fd, opts->timeout), close_socket);
    LK_TRY_GOTO(prove(opts, place, fd, link), close_socket);
    return LK_OK;
close_socket:
    close(fd);
    return status;
}

/* The search for node 0. */
typedef struct search {
    const lk_meet_opts *opts;
    lk_place *place;
    double deadline, notice_at;
    double deaf_since; /* nobody listens where the file says; 0: not so */
    int failures;      /* answers that were wrong */
} search;

/* PEER: not yet. */
static lk_status look(search *s, lk_link *link, bool *answered)
{
    *answered = false;
    bool found = true;
    if (s->place->file)
        LK_TRY(lk__meet_file_read(s->place, &found));
    if (!found)
        return lk__fail(LK_STATUS_PEER, "%s is not there yet", s->place->file);
    lk_status status = attempt(s->opts, s->place, link, answered);
    if (*answered || status == LK_OK)
        s->deaf_since = 0;
    else if (s->deaf_since == 0)
        s->deaf_since = lk__clock();
    return status == LK_OK ? LK_OK : LK_STATUS_PEER;
}

/* Whether to go on looking after this failure. */
static lk_status judge(search *s, bool answered)
{
    const lk_place *place = s->place;
    double now = lk__clock();
    if (*s->opts->interrupted)
        return fail_interrupted();
    /* An earlier job may be ending there; an answer that stays wrong is final. */
    s->failures += answered;
    if (s->failures >= MAX_FAILURES)
        return lk__fail(LK_STATUS_PEER, "cannot join node 0 at %s port %d: %s", place->host, place->port,
                        lk_error_detail());
    if (place->file && s->deaf_since > 0 && now > s->deaf_since + STALE_SECONDS)
        return lk__fail(LK_STATUS_PEER, "%s was left by an earlier job (nobody listens at %s port %d); remove it",
                        place->file, place->host, place->port);
    if (now >= s->deadline)
        return lk__fail(LK_STATUS_PEER, "node 0 of %d did not come up within %g s: %s", s->opts->nnodes,
                        s->opts->timeout, lk_error_detail());
    return LK_OK;
}

static void notice_search(search *s)
{
    double now = lk__clock();
    if (now < s->notice_at)
        return;
    s->notice_at += NOTICE_SECONDS;
    char text[1024];
    snprintf(text, sizeof text, "node 0 of %d has not come up, %.0f s left (%s)", s->opts->nnodes, s->deadline - now,
             lk_error_detail());
    notify(s->opts, text);
}

lk_status lk__meet_connect(const lk_meet_opts *opts, lk_place *place, lk_link *link)
{
    double now = lk__clock();
    search s = {.opts = opts, .place = place, .deadline = now + opts->timeout, .notice_at = now + NOTICE_SECONDS};
    for (;;) {
        bool answered;
        lk_status status = look(&s, link, &answered);
        if (status != LK_STATUS_PEER)
            return status;
        LK_TRY(judge(&s, answered));
        notice_search(&s);
        nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * SLICE)}, NULL);
    }
}
