/* tcp.c - frames over one connection for each pair of ranks.
 *
 * A frame is a header followed by its payload. Writing sends the caller's data from where they are. Reading
 * puts a large payload directly into the caller's memory; small payloads are used in a buffer that is read
 * ahead, so that a small frame costs one system call at each end. Nothing is read from a peer beyond what was
 * requested: the rest waits in the kernel, and so does its sender.
 *
 * Frames have checksums, because those of TCP are weak and a changed bit would be summed into the weights of
 * all ranks. Headers and small payloads always have one, large payloads only if they go to another host:
 * inside a host there is no network, and a checksum would cost half as much as the copies.
 *
 * A closed connection is a failure only when something is needed from it, because ranks leave at different
 * times. The control says why a rank is gone. */
#include "comm/transport/tcp.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/socket.h"

enum {
    /* Most bytes in one system call, and of a frame with a checksum, so that sending, receiving and computing
     * checksums alternate. */
    CHUNK = 512 * 1024,
    GATHER = 16,  /* pieces in one system call */
    DRAIN = 64,   /* reads of 4 KiB by which close discards data */
    SMALL = 1024, /* largest payload whose checksum costs little compared to its frame */
};

/* Seconds that a rank with its own core spins before it sleeps: about the time of falling asleep and waking
 * up. It yields between polls, because the system may have put two ranks on one core. */
static const double spin_seconds = 50e-6;

double lk__tcp_spin(const lk_tcp *tcp)
{
    return tcp->crowded ? 0 : spin_seconds;
}

/* Adds the unsent part of an entry to iov; returns its bytes. */
static size_t gather_entry(const lk_tcp_entry *entry, size_t room, struct iovec *iov, int *count)
{
    size_t header = entry->done < LK_FRAME_BYTES ? LK_FRAME_BYTES - entry->done : 0;
    size_t data_done = entry->done + header - LK_FRAME_BYTES;
    size_t data = lk__size_min(entry->bytes - data_done, room);
    if (header > 0)
        iov[(*count)++] = (struct iovec){(void *)(uintptr_t)(entry->header + entry->done), header};
    if (data > 0)
        iov[(*count)++] = (struct iovec){(void *)(uintptr_t)(entry->data + data_done), data};
    return header + data;
}

static int gather(const lk_tcp_peer *peer, struct iovec *iov)
{
    int count = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < peer->pending && count + 2 <= GATHER && bytes < CHUNK; i++)
        bytes += gather_entry(&peer->queue[(peer->first + i) % LK_TCP_QUEUE], CHUNK - bytes, iov, &count);
    return count;
}

/* `bytes` more bytes of the queue were given to the kernel. */
static void retire(lk_tcp *tcp, lk_tcp_peer *peer, size_t bytes)
{
    while (bytes > 0) {
        lk_tcp_entry *entry = &peer->queue[peer->first];
        size_t step = lk__size_min(LK_FRAME_BYTES + entry->bytes - entry->done, bytes);
        entry->done += step;
        bytes -= step;
        if (entry->done < LK_FRAME_BYTES + entry->bytes)
            return;
        tcp->left[entry->ticket % LK_TCP_TICKETS]--;
        peer->first = (peer->first + 1) % LK_TCP_QUEUE;
        peer->pending--;
    }
}

static bool would_block(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS;
}

static bool wants_write(const lk_tcp_peer *peer)
{
    return peer->pending > 0 && !peer->write_ended;
}

/* The kernel reports once why a connection was lost; the later end of the other direction must not hide it. */
static void note_error(lk_tcp_peer *peer, int error)
{
    if (!lk__net_is_vanished(peer->error))
        peer->error = error;
}

static bool write_some(lk_tcp *tcp, lk_tcp_peer *peer)
{
    struct iovec iov[GATHER];
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)gather(peer, iov)};
    ssize_t bytes = sendmsg(peer->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (bytes < 0 && would_block(errno))
        return false;
    if (bytes < 0) {
        peer->write_ended = true;
        note_error(peer, errno);
    } else {
        retire(tcp, peer, (size_t)bytes);
    }
    return true;
}

/* Whether something that the caller requested has not arrived. */
static bool lacks(const lk_tcp_peer *peer)
{
    if (peer->has_frame)
        return peer->into && peer->got < peer->frame.bytes;
    return peer->awaited && peer->tail - peer->head < LK_FRAME_BYTES;
}

static bool wants_read(const lk_tcp_peer *peer)
{
    return peer->fd >= 0 && !peer->read_ended && lacks(peer);
}

/* Fills iov with the memory for the next bytes. After the end of a payload only a header is read, because the
 * next payload may go into the caller's memory. */
static int make_room(lk_tcp_peer *peer, struct iovec iov[2])
{
    if (peer->has_frame) {
        size_t rest = (size_t)peer->frame.bytes - peer->got;
        iov[0] = (struct iovec){peer->into + peer->got, lk__size_min(rest, CHUNK)};
        iov[1] = (struct iovec){peer->buffer, LK_FRAME_BYTES};
        peer->head = peer->tail = 0;
        return rest <= CHUNK ? 2 : 1;
    }
    /* A part of a header moves to the front, so that its payload will be aligned. */
    memmove(peer->buffer, peer->buffer + peer->head, peer->tail - peer->head);
    peer->tail -= peer->head;
    peer->head = 0;
    iov[0] = (struct iovec){peer->buffer + peer->tail, LK_TCP_BUFFER - peer->tail};
    return 1;
}

static bool read_some(lk_tcp_peer *peer)
{
    struct iovec iov[2];
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)make_room(peer, iov)};
    ssize_t bytes = recvmsg(peer->fd, &message, MSG_DONTWAIT);
    if (bytes < 0 && would_block(errno))
        return false;
    if (bytes <= 0) {
        peer->read_ended = true;
        note_error(peer, bytes < 0 ? errno : 0);
        return true;
    }
    size_t payload_bytes = peer->has_frame ? lk__size_min((size_t)bytes, iov[0].iov_len) : 0;
    peer->got += payload_bytes;
    peer->tail += (size_t)bytes - payload_bytes;
    return true;
}

static void parse(lk_tcp_peer *peer)
{
    lk_frame_result result = lk__frame_decode(peer->buffer + peer->head, &peer->frame, &peer->sum);
    if (result == LK_FRAME_RESULT_WHOLE) {
        peer->has_frame = true;
        peer->head += LK_FRAME_BYTES;
        return;
    }
    peer->garbage = peer->read_ended = true;
    peer->damaged = result == LK_FRAME_RESULT_DAMAGED ? "a header" : NULL;
    peer->head = peer->tail;
}

static const lk_frame *arrived(lk_transport *transport, int rank)
{
    lk_tcp_peer *peer = &((lk_tcp *)transport)->peers[rank];
    if (!peer->has_frame && peer->tail - peer->head >= LK_FRAME_BYTES)
        parse(peer);
    if (peer->has_frame)
        return &peer->frame;
    peer->awaited = peer->asked = true;
    return NULL;
}

static lk_status lost(const lk_tcp *tcp, int rank)
{
    const lk_tcp_peer *peer = &tcp->peers[rank];
    const char *host = tcp->members[rank].host;
    if (peer->damaged)
        return lk__fail(LK_STATUS_IO,
                        "%s from rank %d on host %s to rank %d on host %s changed on the way: its checksum is wrong; "
                        "check the network cards, the switch and the memory of the two hosts",
                        peer->damaged, rank, host, tcp->rank, tcp->members[tcp->rank].host);
    if (peer->garbage)
        return lk__fail(LK_STATUS_PEER,
                        "rank %d on host %s sent something that is not a frame: do all ranks run the same version?",
                        rank, host);
    if (!lk__net_is_vanished(peer->error))
        return lk__fail(LK_STATUS_PEER, "rank %d on host %s closed its connection to rank %d", rank, host, tcp->rank);
    return lk__fail(LK_STATUS_PEER, "rank %d lost its connection to rank %d on host %s: %s", tcp->rank, rank, host,
                    strerror(peer->error));
}

/* Verifies the checksum of a payload once. */
static lk_status check_sum(const lk_tcp *tcp, int rank, const void *data)
{
    lk_tcp_peer *peer = &tcp->peers[rank];
    if (peer->sum == 0 || peer->sum == lk__frame_sum(data, (size_t)peer->frame.bytes)) {
        peer->sum = 0;
        return LK_OK;
    }
    peer->damaged = "a payload";
    return lost(tcp, rank);
}

static lk_status payload(lk_transport *transport, int rank, void *into, const void **at)
{
    const lk_tcp *tcp = (lk_tcp *)transport;
    lk_tcp_peer *peer = &tcp->peers[rank];
    assert(peer->has_frame);
    size_t bytes = (size_t)peer->frame.bytes;
    size_t have = lk__size_min(peer->tail - peer->head, bytes);
    const uint8_t *here = peer->buffer + peer->head;
    if (bytes == 0 || (!peer->into && have == bytes && (uintptr_t)here % LK_ALIGN == 0)) {
        LK_TRY(check_sum(tcp, rank, here));
        *at = here;
        return LK_OK;
    }
    if (!peer->into) {
        memcpy(into, here, have);
        peer->head += have;
        peer->got = have;
        peer->into = into;
    }
    assert(peer->into == into);
    if (peer->got < bytes && peer->read_ended)
        return lost(tcp, rank);
    if (peer->got == bytes)
        LK_TRY(check_sum(tcp, rank, into));
    *at = peer->got == bytes ? into : NULL;
    return LK_OK;
}

static void release(lk_transport *transport, int rank)
{
    lk_tcp_peer *peer = &((lk_tcp *)transport)->peers[rank];
    assert(peer->has_frame);
    if (!peer->into)
        peer->head += (size_t)peer->frame.bytes;
    peer->has_frame = peer->awaited = peer->asked = false;
    peer->into = NULL;
    peer->got = 0;
    if (peer->head == peer->tail)
        peer->head = peer->tail = 0;
}

static size_t max_frame(const lk_transport *transport, const void *data, size_t bytes)
{
    (void)data, (void)bytes;
    return ((const lk_tcp *)transport)->sums_large ? CHUNK : LK_FRAME_MAX;
}

bool lk__tcp_has_room(const lk_tcp *tcp, const int *peers, int count)
{
    bool room = tcp->left[tcp->next % LK_TCP_TICKETS] == 0;
    for (int i = 0; i < count; i++)
        room = room && tcp->peers[peers[i]].pending < LK_TCP_QUEUE;
    return room;
}

static void enqueue(lk_tcp_peer *peer, const lk_frame *frame, uint64_t sum, const void *data, uint64_t ticket)
{
    lk_tcp_entry *entry = &peer->queue[(peer->first + peer->pending++) % LK_TCP_QUEUE];
    entry->data = data;
    entry->bytes = (size_t)frame->bytes;
    entry->done = 0;
    entry->ticket = ticket;
    lk__frame_encode(frame, sum, entry->header);
}

static bool is_far(const lk_tcp *tcp, int rank)
{
    return tcp->members[rank].host_key != tcp->members[tcp->rank].host_key;
}

/* Whether a payload of that size to these peers has a checksum. */
static bool wants_sum(const lk_tcp *tcp, const int *peers, int count, size_t bytes)
{
    bool wants = bytes > 0 && (bytes <= SMALL || tcp->checksum == LK_TCP_CHECKSUM_ALL);
    for (int i = 0; i < count && !wants; i++)
        wants = bytes > 0 && tcp->checksum == LK_TCP_CHECKSUM_HOSTS && is_far(tcp, peers[i]);
    return wants;
}

static lk_status send_frame(lk_transport *transport, const int *peers, int count, const lk_frame *frame,
                            const void *data, uint64_t *ticket)
{
    lk_tcp *tcp = (lk_tcp *)transport;
    for (int i = 0; i < count; i++)
        if (tcp->peers[peers[i]].write_ended)
            return lost(tcp, peers[i]);
    if (!lk__tcp_has_room(tcp, peers, count)) {
        *ticket = 0;
        return LK_OK;
    }
    bool wants = wants_sum(tcp, peers, count, (size_t)frame->bytes);
    uint64_t sum = wants ? lk__frame_sum(data, (size_t)frame->bytes) : 0;
    *ticket = tcp->next++;
    tcp->left[*ticket % LK_TCP_TICKETS] = (uint16_t)count;
    for (int i = 0; i < count; i++) {
        lk_tcp_peer *peer = &tcp->peers[peers[i]];
        assert(peer->fd >= 0);
        enqueue(peer, frame, sum, data, *ticket);
        if (peer->pending == 1)
            write_some(tcp, peer);
    }
    return LK_OK;
}

/* A ticket's entry is used again only after the ticket is done, so a ticket without an entry is done. */
static bool sent(const lk_transport *transport, uint64_t ticket)
{
    const lk_tcp *tcp = (const lk_tcp *)transport;
    return tcp->next - ticket > LK_TCP_TICKETS || tcp->left[ticket % LK_TCP_TICKETS] == 0;
}

static bool taken(const lk_transport *transport, int rank)
{
    return ((const lk_tcp *)transport)->peers[rank].pending == 0;
}

bool lk__tcp_move(lk_tcp *tcp)
{
    bool moved = false;
    for (int r = 0; r < tcp->size; r++) {
        lk_tcp_peer *peer = &tcp->peers[r];
        if (wants_write(peer))
            moved |= write_some(tcp, peer);
        if (wants_read(peer))
            moved |= read_some(peer);
    }
    return moved;
}

/* Whether something is needed from a connection that has ended. */
static bool failed(const lk_tcp_peer *peer)
{
    if (peer->pending > 0 && peer->write_ended)
        return true;
    return peer->read_ended && lacks(peer) && (peer->has_frame || peer->asked);
}

static lk_status progress(lk_transport *transport)
{
    lk_tcp *tcp = (lk_tcp *)transport;
    lk__tcp_move(tcp);
    for (int r = 0; r < tcp->size; r++) {
        if (failed(&tcp->peers[r]))
            return lost(tcp, r);
        tcp->peers[r].asked = false;
    }
    return LK_OK;
}

int lk__tcp_wanted(const lk_tcp *tcp, struct pollfd *fds, bool *now)
{
    int count = 0;
    *now = false;
    for (int r = 0; r < tcp->size; r++) {
        const lk_tcp_peer *peer = &tcp->peers[r];
        short events = (short)((wants_write(peer) ? POLLOUT : 0) | (wants_read(peer) ? POLLIN : 0));
        if (events)
            fds[count++] = (struct pollfd){.fd = peer->fd, .events = events};
        *now = *now || failed(peer);
    }
    return count;
}

static void wait_some(lk_transport *transport, double seconds)
{
    lk_tcp *tcp = (lk_tcp *)transport;
    double end = lk__clock() + fmin(lk__tcp_spin(tcp), seconds);
    do {
        if (lk__tcp_move(tcp))
            return;
        sched_yield();
    } while (lk__clock() < end);
    bool now = false;
    int count = lk__tcp_wanted(tcp, tcp->polls, &now);
    if (!now)
        poll(tcp->polls, (nfds_t)count, (int)ceil(fmin(fmax(seconds, 0), 3600) * 1e3));
}

/* Unread data are discarded first, because closing a socket with unread data resets the connection, and the
 * peer would lose the last frames of this rank. */
static void close_peer(lk_tcp_peer *peer)
{
    uint8_t dropped[4096];
    if (peer->fd < 0)
        return;
    for (int i = 0; i < DRAIN; i++)
        if (recv(peer->fd, dropped, sizeof dropped, MSG_DONTWAIT) <= 0)
            break;
    close(peer->fd);
}

static void close_tcp(lk_transport *transport)
{
    lk_tcp *tcp = (lk_tcp *)transport;
    if (!tcp)
        return;
    for (int r = 0; tcp->peers && r < tcp->size; r++) {
        close_peer(&tcp->peers[r]);
        lk__mem_free(tcp->peers[r].queue);
        lk__mem_free(tcp->peers[r].buffer);
    }
    lk__mem_free(tcp->peers);
    lk__mem_free(tcp->offers);
    lk__mem_free(tcp->polls);
    lk__mem_free(tcp->members);
    lk__mem_free(tcp);
}

lk_status lk__tcp_checksum(lk_tcp_checksum *out)
{
    static const char *const names[] = {
        [LK_TCP_CHECKSUM_HOSTS] = "hosts", [LK_TCP_CHECKSUM_ALL] = "all", [LK_TCP_CHECKSUM_SMALL] = "small"};
    const char *text = getenv("LOCKSTEP_CHECKSUM");
    *out = LK_TCP_CHECKSUM_HOSTS;
    if (!text || !text[0])
        return LK_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (lk_tcp_checksum)i;
            return LK_OK;
        }
    }
    return lk__fail(LK_STATUS_USAGE,
                    "the variable LOCKSTEP_CHECKSUM is '%s': it must be hosts (large payloads between hosts are "
                    "checked), all or small",
                    text);
}

static lk_status make_parts(lk_tcp *tcp, const lk_boot *boot, const bool *skip)
{
    LK_TRY(lk__tcp_checksum(&tcp->checksum));
    LK_TRY(LK_ALLOC((size_t)boot->size, "polled sockets", &tcp->polls));
    LK_TRY(LK_ALLOC((size_t)boot->size * LK_TCP_OFFER_BYTES, "addresses", &tcp->offers));
    LK_TRY(LK_ALLOC((size_t)boot->size, "members", &tcp->members));
    memcpy(tcp->members, boot->members, (size_t)boot->size * sizeof *boot->members);
    LK_TRY(LK_ALLOC((size_t)boot->size, "connections", &tcp->peers));
    tcp->sums_large = tcp->checksum == LK_TCP_CHECKSUM_ALL;
    for (int r = 0; r < boot->size; r++) {
        tcp->peers[r].fd = -1;
        tcp->sums_large |= tcp->checksum == LK_TCP_CHECKSUM_HOSTS && is_far(tcp, r);
    }
    for (int r = 0; r < boot->size; r++) {
        if (r == boot->rank || (skip && skip[r]))
            continue;
        LK_TRY(LK_ALLOC(LK_TCP_QUEUE, "a send queue", &tcp->peers[r].queue));
        LK_TRY(LK_ALLOC(LK_TCP_BUFFER, "a receive buffer", &tcp->peers[r].buffer));
    }
    return LK_OK;
}

static lk_status make(const lk_boot *boot, const bool *skip, lk_tcp **out)
{
    lk_tcp *tcp = NULL;
    lk_status status = LK_OK;
    LK_TRY(LK_ALLOC(1, "a tcp transport", &tcp));
    tcp->base.type = &lk__transport_tcp;
    tcp->rank = boot->rank;
    tcp->size = boot->size;
    tcp->next = 1;
    LK_TRY_GOTO(make_parts(tcp, boot, skip), close_transport);
    *out = tcp;
    return LK_OK;
close_transport:
    close_tcp((lk_transport *)tcp);
    return status;
}

lk_status lk__tcp_open(const lk_boot *boot, const bool *skip, lk_transport **out)
{
    lk_tcp *tcp = NULL;
    lk_status status = LK_OK;
    LK_TRY_GOTO(lk__tcp_boot_agree(boot, make(boot, skip, &tcp), "prepare its connections"), close_transport);
    LK_TRY_GOTO(lk__tcp_connect(tcp, boot, skip), close_transport);
    *out = &tcp->base;
    return LK_OK;
close_transport:
    close_tcp((lk_transport *)tcp);
    return status;
}

static lk_status open_tcp(const lk_boot *boot, lk_transport **out)
{
    return lk__tcp_open(boot, NULL, out);
}

const lk_transport_type lk__transport_tcp = {
    .name = "tcp",
    .summary = "sockets, between any processes that reach each other",
    .open = open_tcp,
    .close = close_tcp,
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
