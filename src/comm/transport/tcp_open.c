/* tcp_open.c - makes one authenticated connection to each peer.
 *
 * Every rank listens, sends its port to the others, connects to the ranks before it and accepts those after
 * it. All handshakes run at the same time. A connection from elsewhere is closed when it fails, is too slow,
 * or too many wait; a peer whose connection was closed with them connects again. The connecting end finishes
 * its handshake last: then the other end has accepted the connection. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/mem.h"
#include "comm/transport/doorbell.h"
#include "comm/transport/tcp.h"
#include "net/auth.h"
#include "net/socket.h"

enum {
    CANDIDATES = 64,    /* unauthenticated connections at a time, in addition to the peers */
    PURPOSE_BYTES = 16, /* of a greeting; group and rank follow, four bytes each */
    DETAIL_BYTES = 512,
};

/* Offsets in an offer: whether the rank listens, its port, its CPUs. */
enum { AT_LISTENS = 0, AT_PORT = 1, AT_CPUS = 3 };
_Static_assert((int)AT_CPUS + LK_CPU_WORDS * 8 == (int)LK_TCP_OFFER_BYTES, "an offer holds a mask of CPUs");

static const char purpose[PURPOSE_BYTES] = "lockstep data";
static const double handshake_seconds = 10;
static const double attempt_seconds = 1;  /* seconds of one attempt to connect */
static const double again_seconds = 0.05; /* seconds until the next attempt */
static const double check_seconds = 0.05; /* seconds between checks of the job */

/* A connection that is not authenticated yet. */
typedef struct caller {
    int fd;
    int peer; /* the rank that this rank connected to; -1: accepted, rank not known yet */
    double deadline;
    lk_handshake shake;
} caller;

typedef struct opening {
    lk_tcp *tcp;
    const lk_boot *boot;
    const bool *skip;
    const uint8_t *offers; /* (size, LK_TCP_OFFER_BYTES) */
    int listener;
    double deadline;
    int missing;          /* peers without a connection */
    double *again;        /* (size) lk__clock() time to connect to a peer; NEVER while an attempt is under way */
    caller *callers;      /* (room) in the order of arrival */
    struct pollfd *polls; /* (room + 1) */
    int count, room;
    char reason[DETAIL_BYTES]; /* why the last attempt failed */
} opening;

#define NEVER 1e300

static bool is_peer(const opening *o, int rank)
{
    return rank != o->boot->rank && !(o->skip && o->skip[rank]);
}

static void write_greeting(uint8_t out[LK_GREETING_BYTES], uint32_t group, int rank)
{
    memset(out, 0, LK_GREETING_BYTES);
    memcpy(out, purpose, PURPOSE_BYTES);
    lk__bytes_put_le(out + PURPOSE_BYTES, group, 4);
    lk__bytes_put_le(out + PURPOSE_BYTES + 4, (uint32_t)rank, 4);
}

/* Returns the peer with that greeting, or -1. */
static int read_greeting(const opening *o, const uint8_t *greeting)
{
    uint8_t expected[LK_GREETING_BYTES];
    for (int r = 0; r < o->boot->size; r++) {
        write_greeting(expected, o->boot->group, r);
        if (is_peer(o, r) && memcmp(expected, greeting, LK_GREETING_BYTES) == 0)
            return r;
    }
    return -1;
}

static void add_caller(opening *o, int fd, int peer)
{
    uint8_t greeting[LK_GREETING_BYTES];
    caller *c = &o->callers[o->count++];
    *c = (caller){.fd = fd, .peer = peer, .deadline = lk__clock() + handshake_seconds};
    write_greeting(greeting, o->boot->group, o->boot->rank);
    lk__handshake_init(&c->shake, &o->boot->token, peer < 0, greeting);
}

static void remove_caller(opening *o, int i)
{
    o->count--;
    memmove(&o->callers[i], &o->callers[i + 1], (size_t)(o->count - i) * sizeof *o->callers);
}

static void drop_caller(opening *o, int i)
{
    int peer = o->callers[i].peer;
    close(o->callers[i].fd);
    remove_caller(o, i);
    if (peer >= 0)
        o->again[peer] = lk__clock() + again_seconds;
}

/* Closes the oldest accepted connection: a peer is authenticated quickly, or connects again. */
static void make_room(opening *o)
{
    for (int i = 0; i < o->count; i++) {
        if (o->callers[i].peer < 0) {
            drop_caller(o, i);
            return;
        }
    }
}

static void accept_all(opening *o)
{
    for (int n = 0; n < CANDIDATES; n++) {
        int fd = lk__net_accept(o->listener);
        if (fd < 0)
            return;
        if (o->count == o->room)
            make_room(o);
        add_caller(o, fd, -1);
    }
}

/* Makes an authenticated connection the one of its peer. It replaces an older one, which the peer has given
 * up. */
static void adopt(opening *o, int i)
{
    caller *c = &o->callers[i];
    int rank = read_greeting(o, lk__handshake_greeting(&c->shake));
    bool expected = rank >= 0 && (c->peer < 0 ? rank > o->boot->rank : rank == c->peer);
    if (!expected || lk__net_prepare(c->fd, o->boot->timeout) != LK_OK) {
        snprintf(o->reason, sizeof o->reason, "%s", expected ? lk_error_detail() : "another rank answers there");
        drop_caller(o, i);
        return;
    }
    int *fd = &o->tcp->peers[rank].fd;
    if (*fd >= 0)
        close(*fd);
    else
        o->missing--;
    *fd = c->fd;
    remove_caller(o, i);
}

static void step_callers(opening *o)
{
    for (int i = o->count - 1; i >= 0; i--) {
        caller *c = &o->callers[i];
        lk_handshake_state state = lk__handshake_step(&c->shake, c->fd);
        if (state == LK_HANDSHAKE_STATE_DONE) {
            adopt(o, i);
        } else if (state == LK_HANDSHAKE_STATE_FAILED || lk__clock() > c->deadline) {
            if (c->peer >= 0)
                snprintf(o->reason, sizeof o->reason, "%s",
                         state == LK_HANDSHAKE_STATE_FAILED ? lk_error_detail() : "it does not answer");
            drop_caller(o, i);
        }
    }
}

static int port_of(const opening *o, int rank)
{
    const uint8_t *at = o->offers + (size_t)rank * LK_TCP_OFFER_BYTES;
    return (int)lk__bytes_get_le(at + AT_PORT, 2);
}

/* Connects to the ranks whose time has come, up to the first failure, so that waiting for one rank does not
 * delay the others. */
static void call_peers(opening *o)
{
    for (int r = 0; r < o->boot->rank; r++) {
        double now = lk__clock();
        if (!is_peer(o, r) || o->again[r] > now)
            continue;
        int fd = -1;
        double until = now + attempt_seconds < o->deadline ? now + attempt_seconds : o->deadline;
        if (lk__net_connect(o->boot->members[r].address, port_of(o, r), until, &fd, NULL) != LK_OK) {
            snprintf(o->reason, sizeof o->reason, "%s", lk_error_detail());
            o->again[r] = lk__clock() + again_seconds;
            return;
        }
        if (o->count == o->room)
            make_room(o);
        o->again[r] = NEVER;
        add_caller(o, fd, r);
    }
}

static void wait_for_callers(opening *o)
{
    int count = 0;
    if (o->listener >= 0)
        o->polls[count++] = (struct pollfd){.fd = o->listener, .events = POLLIN};
    for (int i = 0; i < o->count; i++) {
        const caller *c = &o->callers[i];
        short events = lk__handshake_events(&c->shake);
        o->polls[count++] = (struct pollfd){.fd = c->fd, .events = events};
    }
    poll(o->polls, (nfds_t)count, (int)(check_seconds * 1e3));
}

static lk_status fail_missing(const opening *o)
{
    int r = 0;
    while (r < o->boot->size - 1 && (!is_peer(o, r) || o->tcp->peers[r].fd >= 0))
        r++;
    const lk_member *peer = &o->boot->members[r];
    bool called = r < o->boot->rank;
    return lk__fail(LK_STATUS_PEER, "rank %d has no connection to rank %d on host %s (%s) after %.0f s: %s",
                    o->boot->rank, r, peer->host, peer->address, o->boot->timeout,
                    called && o->reason[0] ? o->reason : "is a firewall between the hosts?");
}

static lk_status connect_peers(opening *o)
{
    while (o->missing > 0) {
        LK_TRY(o->boot->check(o->boot->arg));
        if (lk__clock() > o->deadline)
            return fail_missing(o);
        call_peers(o);
        wait_for_callers(o);
        accept_all(o);
        step_callers(o);
    }
    return LK_OK;
}

lk_status lk__tcp_boot_agree(const lk_boot *boot, lk_status mine, const char *what)
{
    uint8_t fine = mine == LK_OK, all[LK_MAX_RANKS];
    char detail[DETAIL_BYTES];
    snprintf(detail, sizeof detail, "%s", lk_error_detail());
    lk_status status = boot->exchange(boot->arg, &fine, 1, all);
    if (mine != LK_OK)
        return lk__fail(mine, "%s", detail);
    LK_TRY(status);
    int failed = 0;
    while (failed < boot->size && all[failed])
        failed++;
    if (failed == boot->size)
        return LK_OK;
    /* If that rank failed because the job has ended, the reason is the job's. */
    LK_TRY(boot->check(boot->arg));
    return lk__fail(LK_STATUS_PEER, "rank %d on host %s could not %s; its own message says why", failed,
                    boot->members[failed].host, what);
}

/* Whether this host has more ranks than cores. A rank that is bound to one core cannot see this alone. */
static bool is_crowded(const lk_boot *boot, const uint8_t *offers)
{
    uint64_t cpus[LK_CPU_WORDS], all[LK_CPU_WORDS] = {0};
    int here = 0;
    for (int r = 0; r < boot->size; r++) {
        if (boot->members[r].host_key != boot->members[boot->rank].host_key)
            continue;
        memcpy(cpus, offers + (size_t)r * LK_TCP_OFFER_BYTES + AT_CPUS, sizeof cpus);
        for (int i = 0; i < LK_CPU_WORDS; i++)
            all[i] |= cpus[i];
        here++;
    }
    return lk__bell_cpus_crowded(all, here);
}

static lk_status exchange_offers(const lk_boot *boot, lk_status listening, int port, uint8_t *offers)
{
    uint8_t mine[LK_TCP_OFFER_BYTES] = {listening == LK_OK};
    lk__bytes_put_le(mine + AT_PORT, (uint64_t)port, 2);
    uint64_t cpus[LK_CPU_WORDS];
    char detail[DETAIL_BYTES];
    snprintf(detail, sizeof detail, "%s", lk_error_detail());
    lk__bell_cpus(cpus);
    memcpy(mine + AT_CPUS, cpus, sizeof cpus);
    lk_status status = boot->exchange(boot->arg, mine, sizeof mine, offers);
    if (listening != LK_OK)
        return lk__fail(listening, "%s", detail);
    LK_TRY(status);
    for (int r = 0; r < boot->size; r++)
        if (!offers[(size_t)r * LK_TCP_OFFER_BYTES + AT_LISTENS])
            return lk__fail(LK_STATUS_PEER, "rank %d on host %s could not listen at %s; its own message says why", r,
                            boot->members[r].host, boot->members[r].address);
    return LK_OK;
}

/* Allocates the arrays, and opens a listener if some rank will connect. */
static lk_status prepare(opening *o, int *port)
{
    int callers = 0;
    for (int r = 0; r < o->boot->size; r++) {
        o->missing += is_peer(o, r);
        callers += is_peer(o, r) && r > o->boot->rank;
    }
    o->room = o->boot->size + CANDIDATES;
    LK_TRY(LK_ALLOC((size_t)o->boot->size, "calls", &o->again));
    LK_TRY(LK_ALLOC((size_t)o->room, "callers", &o->callers));
    LK_TRY(LK_ALLOC((size_t)o->room + 1, "polled sockets", &o->polls));
    return callers ? lk__net_listen(o->boot->members[o->boot->rank].address, 0, &o->listener, port) : LK_OK;
}

static void fini(opening *o)
{
    for (int i = 0; i < o->count; i++)
        close(o->callers[i].fd);
    if (o->listener >= 0)
        close(o->listener);
    lk__mem_free(o->again);
    lk__mem_free(o->callers);
    lk__mem_free(o->polls);
}

lk_status lk__tcp_connect(lk_tcp *tcp, const lk_boot *boot, const bool *skip)
{
    opening o = {.tcp = tcp, .boot = boot, .skip = skip, .offers = tcp->offers, .listener = -1};
    o.deadline = lk__clock() + boot->timeout;
    int port = 0;
    lk_status status = prepare(&o, &port);
    LK_TRY_GOTO(exchange_offers(boot, status, port, tcp->offers), close_callers);
    tcp->crowded = is_crowded(boot, tcp->offers);
    status = lk__tcp_boot_agree(boot, connect_peers(&o), "connect to all its peers");
close_callers:
    fini(&o);
    return status;
}
