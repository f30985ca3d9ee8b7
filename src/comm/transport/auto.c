/* auto.c - one transport with shared memory inside a host and tcp between hosts.
 *
 * If all ranks are on one host, open returns the shm transport itself; if MPI is due at all ranks, the mpi transport;
 * if each rank is on its own host, the tcp transport. Otherwise the ranks of each host have a shm transport, and tcp
 * connects ranks of different hosts. A rank sleeps at the doorbell of its shared memory; a watcher thread sleeps at the
 * sockets and rings it. */
#define _GNU_SOURCE /* epoll, eventfd */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "comm/mpi/session.h"
#include "comm/transport/shared.h"
#include "comm/transport/tcp.h"

enum {
    TICKETS = 4096,    /* sends that may be under way */
    BLOB_BYTES = 256,  /* bytes of an exchange among all ranks */
    PIECE_BYTES = 240, /* bytes of a blob for an exchange inside a host */
    EVENTS = 16,
    DETAIL_BYTES = 512,
};

/* Seconds. Calls of wait that follow each other more quickly count as one spin. */
static const double pause_seconds = 20e-6;

/* What a rank sends in a round of exchanges. The ranks of other hosts may need more rounds, so all ranks
 * continue until none is exchanging. */
typedef enum round_state { ROUND_EXCHANGING, ROUND_DONE, ROUND_FAILED } round_state;
typedef struct blob {
    uint8_t state;
    uint8_t unused[BLOB_BYTES - PIECE_BYTES - 1];
    uint8_t piece[PIECE_BYTES];
} blob;
_Static_assert(sizeof(blob) == BLOB_BYTES, "an exchange takes no more");

/* The tickets of one send; 0: nothing was sent over that transport. */
typedef struct ticket_pair {
    uint64_t shm, tcp;
} ticket_pair;

/* A block of plain memory. The caller's memory begins LK_ALIGN bytes later. */
typedef struct plain {
    struct plain *next;
} plain;

typedef struct mixed {
    lk_transport base;
    lk_boot boot;
    lk_boot local;      /* for the ranks of this host */
    int *local_of;      /* (size) index among the ranks of this host; -1: on another host */
    int *ranks;         /* (local.size) rank of each index */
    lk_member *members; /* (local.size) */
    blob *blobs;        /* (size) received in a round */
    int *near, *far;    /* (size) peers of a send, numbered as in shm and as in tcp */
    struct pollfd *fds; /* (size) */
    lk_transport *shm;  /* NULL: this rank is alone on its host */
    lk_transport *tcp;
    plain *blocks;
    uint64_t next; /* ticket */
    ticket_pair tickets[TICKETS];
    double spin_begin, last_wait;
    pthread_t watcher;
    bool watching;
    int epoll, stop; /* -1: none; stop is an eventfd that epoll watches */
} mixed;

static lk_status take_round(mixed *m, round_state s, const void *piece, size_t bytes)
{
    blob mine = {.state = (uint8_t)s};
    if (bytes > 0)
        memcpy(mine.piece, piece, bytes);
    return m->boot.exchange(m->boot.arg, &mine, sizeof mine, m->blobs);
}

/* lk_boot.exchange of the ranks of this host: pieces are exchanged among all ranks, and those of this host
 * are used. */
static lk_status exchange_local(void *arg, const void *mine, size_t bytes, void *all)
{
    mixed *m = arg;
    for (size_t at = 0; at == 0 || at < bytes; at += PIECE_BYTES) {
        size_t piece = lk__size_min(bytes - at, PIECE_BYTES);
        LK_TRY(take_round(m, ROUND_EXCHANGING, (const uint8_t *)mine + at, piece));
        for (int i = 0; i < m->local.size; i++) {
            const blob *b = &m->blobs[m->ranks[i]];
            if (b->state != ROUND_EXCHANGING)
                return lk__fail(LK_STATUS_PEER, "rank %d on host %s gave up sharing memory", m->ranks[i],
                                m->members[i].host);
            memcpy((uint8_t *)all + (size_t)i * bytes + at, b->piece, piece);
        }
    }
    return LK_OK;
}

static lk_status check_local(void *arg)
{
    const mixed *m = arg;
    return m->boot.check(m->boot.arg);
}

/* Collective. Takes part in rounds until no rank is exchanging. LK_OK if mine is LK_OK at all ranks. */
static lk_status finish_rounds(mixed *m, lk_status mine)
{
    char detail[DETAIL_BYTES];
    snprintf(detail, sizeof detail, "%s", lk_error_detail());
    bool busy = true;
    lk_status status = LK_OK;
    while (busy && status == LK_OK) {
        status = take_round(m, mine == LK_OK ? ROUND_DONE : ROUND_FAILED, NULL, 0);
        busy = false;
        for (int r = 0; r < m->boot.size; r++)
            busy = busy || m->blobs[r].state == ROUND_EXCHANGING;
    }
    if (mine != LK_OK)
        return lk__fail(mine, "%s", detail);
    LK_TRY(status);
    for (int r = 0; r < m->boot.size; r++)
        if (m->blobs[r].state == ROUND_FAILED)
            return lk__fail(LK_STATUS_PEER, "rank %d on host %s could not share memory; its own message says why", r,
                            m->boot.members[r].host);
    return LK_OK;
}

static void *watch(void *arg)
{
    mixed *m = arg;
    struct epoll_event events[EVENTS];
    for (;;) {
        int count = epoll_wait(m->epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++)
            if (events[i].data.fd == m->stop)
                return NULL;
        if (count > 0)
            lk__shared_ring(m->shm);
    }
}

/* Adds the sockets to epoll. Each is armed for one event at a time, when this rank goes to sleep. */
static bool add_sockets(const mixed *m)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = m->stop};
    bool fine = epoll_ctl(m->epoll, EPOLL_CTL_ADD, m->stop, &event) == 0;
    const lk_tcp *tcp = (const lk_tcp *)m->tcp;
    for (int r = 0; r < tcp->size; r++) {
        event = (struct epoll_event){.events = EPOLLONESHOT, .data.fd = tcp->peers[r].fd};
        if (tcp->peers[r].fd >= 0)
            fine = fine && epoll_ctl(m->epoll, EPOLL_CTL_ADD, tcp->peers[r].fd, &event) == 0;
    }
    return fine;
}

/* Blocks all signals in the new thread: they are for the program's own threads. */
static bool start_thread(mixed *m)
{
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return false;
    m->watching = lk__thread_create(&m->watcher, watch, m) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return m->watching;
}

static lk_status start_watcher(mixed *m)
{
    m->epoll = epoll_create1(EPOLL_CLOEXEC);
    m->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->epoll < 0 || m->stop < 0 || !add_sockets(m) || !start_thread(m))
        return lk__fail(LK_STATUS_IO, "cannot start the thread that watches the connections to other hosts: too many "
                                      "open files or threads? (ulimit -n, ulimit -u)");
    return LK_OK;
}

static void stop_watcher(mixed *m)
{
    uint64_t one = 1;
    if (m->watching) {
        while (write(m->stop, &one, sizeof one) < 0)
            ;
        pthread_join(m->watcher, NULL);
    }
    if (m->epoll >= 0)
        close(m->epoll);
    if (m->stop >= 0)
        close(m->stop);
}

static void arm(const mixed *m, int count)
{
    for (int i = 0; i < count; i++) {
        uint32_t events = (m->fds[i].events & POLLIN ? EPOLLIN : 0u) | (m->fds[i].events & POLLOUT ? EPOLLOUT : 0u);
        struct epoll_event event = {.events = events | EPOLLONESHOT, .data.fd = m->fds[i].fd};
        epoll_ctl(m->epoll, EPOLL_CTL_MOD, m->fds[i].fd, &event);
    }
}

static lk_transport *route(const lk_transport *transport, int peer, int *there)
{
    const mixed *m = (const mixed *)transport;
    bool near = m->local_of[peer] >= 0;
    *there = near ? m->local_of[peer] : peer;
    return near ? m->shm : m->tcp;
}

static size_t max_frame(const lk_transport *transport, const void *data, size_t bytes)
{
    const mixed *m = (const mixed *)transport;
    return m->shm ? m->shm->type->max_frame(m->shm, data, bytes) : m->tcp->type->max_frame(m->tcp, data, bytes);
}

static bool pair_sent(const mixed *m, ticket_pair pair)
{
    return (pair.shm == 0 || m->shm->type->sent(m->shm, pair.shm)) &&
           (pair.tcp == 0 || m->tcp->type->sent(m->tcp, pair.tcp));
}

/* If a later ticket uses the same entry, this ticket was done before. */
static bool sent(const lk_transport *transport, uint64_t ticket)
{
    const mixed *m = (const mixed *)transport;
    return m->next - ticket > TICKETS || pair_sent(m, m->tickets[ticket % TICKETS]);
}

static lk_status send_frame(lk_transport *transport, const int *peers, int count, const lk_frame *frame,
                            const void *data, uint64_t *ticket)
{
    mixed *m = (mixed *)transport;
    int near = 0, far = 0;
    for (int i = 0; i < count; i++) {
        if (m->local_of[peers[i]] >= 0)
            m->near[near++] = m->local_of[peers[i]];
        else
            m->far[far++] = peers[i];
    }
    ticket_pair pair = {0, 0};
    *ticket = 0;
    if (!pair_sent(m, m->tickets[m->next % TICKETS]))
        return LK_OK;
    if (far > 0 && !lk__tcp_has_room((const lk_tcp *)m->tcp, m->far, far))
        return LK_OK;
    if (near > 0) {
        LK_TRY(m->shm->type->send(m->shm, m->near, near, frame, data, &pair.shm));
        if (pair.shm == 0)
            return LK_OK;
    }
    if (far > 0)
        LK_TRY(m->tcp->type->send(m->tcp, m->far, far, frame, data, &pair.tcp));
    m->tickets[m->next % TICKETS] = pair;
    *ticket = m->next++;
    return LK_OK;
}

static bool taken(const lk_transport *transport, int peer)
{
    const lk_transport *part = route(transport, peer, &peer);
    return part->type->taken(part, peer);
}

static const lk_frame *arrived(lk_transport *transport, int peer)
{
    lk_transport *part = route(transport, peer, &peer);
    return part->type->arrived(part, peer);
}

static lk_status payload(lk_transport *transport, int peer, void *into, const void **at)
{
    lk_transport *part = route(transport, peer, &peer);
    return part->type->payload(part, peer, into, at);
}

static void release(lk_transport *transport, int peer)
{
    lk_transport *part = route(transport, peer, &peer);
    part->type->release(part, peer);
}

static lk_status progress(lk_transport *transport)
{
    mixed *m = (mixed *)transport;
    if (m->shm)
        LK_TRY(m->shm->type->progress(m->shm));
    return m->tcp->type->progress(m->tcp);
}

/* To spin, wait returns early; the caller then polls both transports. */
static bool still_spins(mixed *m)
{
    double now = lk__clock();
    if (now - m->last_wait > pause_seconds)
        m->spin_begin = now;
    m->last_wait = now;
    return now - m->spin_begin < lk__tcp_spin((const lk_tcp *)m->tcp);
}

static void wait_some(lk_transport *transport, double seconds)
{
    mixed *m = (mixed *)transport;
    if (!m->shm) {
        m->tcp->type->wait(m->tcp, seconds);
        return;
    }
    bool now = false;
    if (lk__tcp_move((lk_tcp *)m->tcp))
        return;
    if (still_spins(m)) {
        sched_yield();
        return;
    }
    int count = lk__tcp_wanted((const lk_tcp *)m->tcp, m->fds, &now);
    if (now)
        return;
    arm(m, count);
    m->shm->type->wait(m->shm, seconds);
    m->last_wait = 0;
}

static lk_status alloc_plain(mixed *m, size_t bytes, void **out)
{
    char *block = NULL;
    if (bytes > SIZE_MAX - LK_ALIGN)
        return lk__fail_memory(bytes, "memory of a group");
    LK_TRY(LK_ALLOC(bytes + LK_ALIGN, "memory of a group", &block));
    plain *head = (plain *)(void *)block;
    head->next = m->blocks;
    m->blocks = head;
    *out = block + LK_ALIGN;
    return LK_OK;
}

static void free_plain(mixed *m, void *block)
{
    for (plain **at = &m->blocks; *at; at = &(*at)->next) {
        plain *head = *at;
        if ((char *)head + LK_ALIGN != block)
            continue;
        *at = head->next;
        lk__mem_free(head);
        return;
    }
}

static void free_block(lk_transport *transport, void *block)
{
    mixed *m = (mixed *)transport;
    if (m->shm)
        m->shm->type->free(m->shm, block);
    else
        free_plain(m, block);
}

static size_t block_room(const lk_transport *transport)
{
    const mixed *m = (const mixed *)transport;
    return m->shm ? m->shm->type->room(m->shm) : SIZE_MAX;
}

static lk_status alloc_block(lk_transport *transport, size_t bytes, void **out)
{
    mixed *m = (mixed *)transport;
    void *block = NULL;
    lk_status mine = m->shm ? m->shm->type->alloc(m->shm, bytes, &block) : alloc_plain(m, bytes, &block);
    lk_status status = finish_rounds(m, mine);
    if (status == LK_OK)
        *out = block;
    else if (mine == LK_OK)
        free_block(transport, block);
    return status;
}

static void close_mixed(lk_transport *transport)
{
    mixed *m = (mixed *)transport;
    if (!m)
        return;
    stop_watcher(m);
    while (m->blocks)
        free_plain(m, (char *)m->blocks + LK_ALIGN);
    if (m->tcp)
        m->tcp->type->close(m->tcp);
    if (m->shm)
        m->shm->type->close(m->shm);
    lk__mem_free(m->local_of);
    lk__mem_free(m->ranks);
    lk__mem_free(m->members);
    lk__mem_free(m->blobs);
    lk__mem_free(m->near);
    lk__mem_free(m->far);
    lk__mem_free(m->fds);
    lk__mem_free(m);
}

static bool same_host(const lk_boot *boot, int a, int b)
{
    return boot->members[a].host_key == boot->members[b].host_key;
}

static void find_local(mixed *m)
{
    m->local = m->boot;
    m->local.size = 0;
    for (int r = 0; r < m->boot.size; r++) {
        m->local_of[r] = -1;
        if (!same_host(&m->boot, r, m->boot.rank))
            continue;
        if (r == m->boot.rank)
            m->local.rank = m->local.size;
        m->ranks[m->local.size] = r;
        m->members[m->local.size] = m->boot.members[r];
        m->local_of[r] = m->local.size++;
    }
    m->local.members = m->members;
    m->local.exchange = exchange_local;
    m->local.check = check_local;
    m->local.arg = m;
}

static lk_status make(const lk_boot *boot, mixed **out)
{
    mixed *m = NULL;
    size_t size = (size_t)boot->size;
    lk_status status = LK_OK;
    LK_TRY(LK_ALLOC(1, "a transport", &m));
    m->base.type = &lk__transport_auto;
    m->boot = *boot;
    m->next = 1;
    m->epoll = m->stop = -1;
    LK_TRY_GOTO(LK_ALLOC(size, "ranks of this host", &m->local_of), close_transport);
    LK_TRY_GOTO(LK_ALLOC(size, "ranks of this host", &m->ranks), close_transport);
    LK_TRY_GOTO(LK_ALLOC(size, "ranks of this host", &m->members), close_transport);
    LK_TRY_GOTO(LK_ALLOC(size, "an exchange", &m->blobs), close_transport);
    LK_TRY_GOTO(LK_ALLOC(size, "peers of a send", &m->near), close_transport);
    LK_TRY_GOTO(LK_ALLOC(size, "peers of a send", &m->far), close_transport);
    LK_TRY_GOTO(LK_ALLOC(size, "sockets", &m->fds), close_transport);
    find_local(m);
    *out = m;
    return LK_OK;
close_transport:
    close_mixed((lk_transport *)m);
    return status;
}

static lk_status open_shm(mixed *m)
{
    if (m->local.size == 1)
        return LK_OK;
    LK_TRY(lk__transport_shm.open(&m->local, &m->shm));
    lk__shared_name(m->shm, m->ranks);
    return LK_OK;
}

static lk_status open_tcp(mixed *m)
{
    bool skip[LK_MAX_RANKS];
    for (int r = 0; r < m->boot.size; r++)
        skip[r] = m->local_of[r] >= 0;
    return lk__tcp_open(&m->boot, skip, &m->tcp);
}

static lk_status open_mixed(const lk_boot *boot, lk_transport **out)
{
    mixed *m = NULL;
    lk_status status = LK_OK;
    LK_TRY_GOTO(lk__tcp_boot_agree(boot, make(boot, &m), "get memory for its connections"), close_transport);
    LK_TRY_GOTO(finish_rounds(m, open_shm(m)), close_transport);
    LK_TRY_GOTO(open_tcp(m), close_transport);
    LK_TRY_GOTO(lk__tcp_boot_agree(boot, m->shm ? start_watcher(m) : LK_OK, "watch its connections"), close_transport);
    *out = &m->base;
    return LK_OK;
close_transport:
    close_mixed((lk_transport *)m);
    return status;
}

/* Collective. Whether MPI is due at all ranks. Over the program's communicator, the thread level decides. */
static lk_status agree_mpi(const lk_boot *boot, bool *out)
{
    uint8_t all[LK_MAX_RANKS];
    uint8_t mine = boot->world ? lk__mpi_world_level(boot->world, boot->progress) == LK_OK : lk__mpi_is_due("auto");
    LK_TRY(boot->exchange(boot->arg, &mine, 1, all));
    *out = true;
    for (int r = 0; r < boot->size; r++)
        *out = *out && all[r];
    return LK_OK;
}

static lk_status open_auto(const lk_boot *boot, lk_transport **out)
{
    bool one = true, alone = true, mpi = false;
    for (int r = 0; r < boot->size; r++) {
        one = one && same_host(boot, r, 0);
        for (int q = 0; q < r; q++)
            alone = alone && !same_host(boot, r, q);
    }
    if (one)
        return lk__transport_shm.open(boot, out);
    LK_TRY(agree_mpi(boot, &mpi));
    if (mpi)
        return lk__transport_mpi.open(boot, out);
    return alone ? lk__transport_tcp.open(boot, out) : open_mixed(boot, out);
}

const lk_transport_type lk__transport_auto = {
    .name = "auto",
    .summary = "shm on one host; over several hosts mpi if an MPI launcher has started the ranks, else shm inside a "
               "host and tcp "
               "between",
    .open = open_auto,
    .close = close_mixed,
    .alloc = alloc_block,
    .free = free_block,
    .room = block_room,
    .max_frame = max_frame,
    .send = send_frame,
    .sent = sent,
    .taken = taken,
    .arrived = arrived,
    .payload = payload,
    .release = release,
    .progress = progress,
    .wait = wait_some,
};
