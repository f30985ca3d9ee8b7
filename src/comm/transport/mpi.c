/* mpi.c - frames over the non-blocking messages of an MPI library.
 *
 * A frame that the receiver has predicted (guess.h) is one message: its payload, without a header. Another small frame
 * is one message: header and payload, copied together. Another large frame is two messages with the same tag: its
 * header, then its payload. The receiver knows by its length what a message is: a message as long as the predicted
 * payload is that payload, and the sender makes any other message longer by a byte where its length would be the same.
 *
 * Small payloads are used in the receive buffer. Large payloads go from the caller's memory to the caller's memory:
 * `expect` names their place before the frame is known. The receiver of a frame chooses the tags, a different one for
 * each rank of the sending process, so that groups, and thread ranks of one process, never mix.
 *
 * MPI cannot block until one of several things happens or a time has passed. So `wait` polls for a moment and
 * then sleeps, each time for a part of the time that it has waited so far.
 *
 * MPI does not say that a peer has died. The control does: this transport fails only where MPI reports an
 * error. */
#include <assert.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "comm/mpi/in_time.h"
#include "comm/mpi/session.h"
#include "comm/transport/mpi_state.h"

enum {
    SMALL = LK_MPI_SMALL - (int)sizeof(lk_mpi_header), /* most bytes of a payload that is copied beside its header */
    DIRECT = SMALL + 1 /* least bytes of a predicted payload that MPI receives at its place instead of the buffer */
};
static const uint64_t magic = 0x3146494d706b634cu + sizeof(lk_frame);

/* Seconds. A rank with a core of its own polls longer, because a sleep costs the time of waking up. */
static const double spin_alone = 200e-6, spin_crowded = 20e-6;
static const double pause_seconds = 500e-6; /* a rank that has not waited for so long begins to poll again */
static const double nap_most = 1e-3;
enum { NAP_PART = 8 }; /* a sleep lasts this part of the time waited */

static void add_live(lk_mpi_transport *t, lk_mpi_request request, int peer, int at)
{
    t->requests[t->count] = request;
    t->lives[t->count++] = (lk_mpi_live){peer, at};
}

/* The frame whose payload may come or go without a header; NULL: none. */
static const lk_frame *predicted(const lk_mpi_transport *t, const lk_frame_guess *guess)
{
    return t->mpi->sends_bare ? lk__frame_guess(guess) : NULL;
}

/* Whether a receive of this predicted payload is posted, into which only a header without payload fits. */
static bool is_direct(const lk_frame *next)
{
    return next && next->bytes >= DIRECT;
}

/* Whether a payload is in the message of its header, where `next` was predicted. */
static bool is_beside(const lk_frame *next, uint64_t bytes)
{
    return bytes <= SMALL && !is_direct(next);
}

static lk_status post_receive(lk_mpi_transport *t, int rank, void *to, size_t bytes, lk_mpi_inbox state)
{
    lk_mpi_peer *peer = &t->peers[rank];
    lk_mpi_request request = 0;
    if (t->count == t->room)
        LK_TRY(lk__mpi_transport_room(t, 1));
    lk__mpi_lock();
    int code = t->mpi->receive(t->comm, to, bytes, peer->rank, peer->tag_from, &request);
    lk__mpi_unlock();
    t->error = t->error ? t->error : code;
    if (code != 0)
        return LK_OK;
    add_live(t, request, rank, LK_MPI_NO_SLOT);
    peer->posted = to;
    peer->state = state;
    return LK_OK;
}

/* Memory for a large payload whose place the caller has not named. */
static lk_status spare_room(lk_mpi_peer *peer, size_t bytes)
{
    if (peer->spare_bytes >= bytes)
        return LK_OK;
    lk__mem_free(peer->spare);
    peer->spare_bytes = 0;
    peer->spare = NULL;
    LK_TRY(lk__mem_alloc(1, bytes, "a receive buffer", &peer->spare));
    peer->spare_bytes = bytes;
    return LK_OK;
}

/* Posts the receive of the next frame. Most ranks hear from few peers, so a buffer is made when a frame is first asked
 * for. */
static lk_status post_next(lk_mpi_transport *t, int rank)
{
    lk_mpi_peer *peer = &t->peers[rank];
    if (!peer->buffer)
        LK_TRY(lk__mem_alloc(1, LK_MPI_SMALL, "a receive buffer", (void **)&peer->buffer));
    if (!is_direct(peer->next))
        return post_receive(t, rank, peer->buffer, LK_MPI_SMALL, LK_MPI_INBOX_ASKED);
    size_t bytes = (size_t)peer->next->bytes;
    if (peer->room >= bytes)
        return post_receive(t, rank, peer->into, bytes, LK_MPI_INBOX_ASKED);
    LK_TRY(spare_room(peer, bytes));
    return post_receive(t, rank, peer->spare, bytes, LK_MPI_INBOX_ASKED);
}

static void ask(lk_mpi_transport *t, int rank)
{
    if (t->status == LK_OK)
        t->status = post_next(t, rank);
}

/* Whether a message of so many bytes is a header, with its payload if that is `beside` it. */
static bool is_whole(const lk_mpi_header *header, size_t bytes, bool *beside, const lk_frame *next)
{
    if (bytes < sizeof *header || header->magic != magic || header->frame.bytes > LK_FRAME_MAX)
        return false;
    *beside = is_beside(next, header->frame.bytes);
    return !*beside || header->frame.bytes <= bytes - sizeof *header;
}

/* A header may have arrived where a predicted payload was expected. */
static void read_header(lk_mpi_transport *t, int rank, size_t bytes)
{
    lk_mpi_peer *peer = &t->peers[rank];
    lk_mpi_header *header = peer->buffer;
    bool beside = false;
    if (peer->posted != header && bytes <= LK_MPI_SMALL)
        memcpy(header, peer->posted, bytes);
    if (bytes > LK_MPI_SMALL || !is_whole(header, bytes, &beside, peer->next)) {
        t->garbage = rank;
        return;
    }
    peer->frame = header->frame;
    peer->sum = header->sum;
    peer->at = beside ? header + 1 : NULL;
    peer->state = LK_MPI_INBOX_FRAME;
}

static void finish_receive(lk_mpi_transport *t, int rank, size_t bytes)
{
    lk_mpi_peer *peer = &t->peers[rank];
    if (peer->state == LK_MPI_INBOX_READING) {
        peer->at = peer->posted;
        peer->state = LK_MPI_INBOX_FRAME;
        return;
    }
    if (peer->next && bytes == peer->next->bytes) {
        peer->frame = *peer->next;
        peer->sum = 0;
        peer->at = peer->posted;
        peer->state = LK_MPI_INBOX_FRAME;
    } else {
        read_header(t, rank, bytes);
    }
    if (peer->state != LK_MPI_INBOX_FRAME)
        return;
    lk__frame_guess_add(&peer->from, &peer->frame);
    peer->next = predicted(t, &peer->from);
}

static void finish_send(lk_mpi_transport *t, int at)
{
    lk_mpi_slot *s = &t->slots[at];
    if (--s->left > 0)
        return;
    s->next = t->free_slot;
    t->free_slot = at;
}

static void finish_live(lk_mpi_transport *t, lk_mpi_done done)
{
    lk_mpi_live ended = t->lives[done.index];
    t->lives[done.index] = t->lives[--t->count];
    t->requests[done.index] = t->requests[t->count];
    if (ended.slot == LK_MPI_NO_SLOT) {
        finish_receive(t, ended.peer, done.bytes);
        return;
    }
    t->peers[ended.peer].sending--;
    finish_send(t, ended.slot);
}

/* Moves messages; returns whether one has ended. */
static bool move(lk_mpi_transport *t)
{
    int ended = 0;
    if (t->count == 0 || t->error)
        return false;
    lk__mpi_lock();
    t->error = t->mpi->test(t->requests, t->count, t->done, &ended);
    lk__mpi_unlock();
    /* After an error a message may be incomplete. From the last to the first, because the last takes the place of an
     * ended one. */
    for (int i = ended - 1; i >= 0 && !t->error; i--)
        finish_live(t, t->done[i]);
    return ended > 0;
}

static const lk_frame *arrived(lk_transport *transport, int rank)
{
    lk_mpi_transport *t = (lk_mpi_transport *)transport;
    lk_mpi_peer *peer = &t->peers[rank];
    if (peer->state == LK_MPI_INBOX_IDLE)
        ask(t, rank);
    return peer->state >= LK_MPI_INBOX_FRAME ? &peer->frame : NULL;
}

static void expect(lk_transport *transport, int rank, void *into, size_t room)
{
    lk_mpi_transport *t = (lk_mpi_transport *)transport;
    lk_mpi_peer *peer = &t->peers[rank];
    if (peer->state != LK_MPI_INBOX_IDLE)
        return;
    peer->into = into;
    peer->room = room;
    ask(t, rank);
}

static uint64_t sum_of(const lk_frame *frame, const void *data)
{
    uint64_t sum = lk__hash(data, (size_t)frame->bytes, lk__hash(frame, sizeof *frame, 0));
    return sum ? sum : 1;
}

static lk_status check_sum(const lk_mpi_transport *t, int rank)
{
    lk_mpi_peer *peer = &t->peers[rank];
    if (peer->sum == 0 || peer->sum == sum_of(&peer->buffer->frame, peer->at)) {
        peer->sum = 0;
        return LK_OK;
    }
    return lk__fail(LK_STATUS_IO,
                    "a frame from rank %d on host %s to rank %d on host %s changed on the way: its checksum is wrong; "
                    "check the network and the memory of the two hosts",
                    rank, t->members[rank].host, t->rank, t->members[t->rank].host);
}

static lk_status payload(lk_transport *transport, int rank, void *into, const void **at)
{
    lk_mpi_transport *t = (lk_mpi_transport *)transport;
    lk_mpi_peer *peer = &t->peers[rank];
    assert(peer->state >= LK_MPI_INBOX_FRAME);
    *at = NULL;
    if (peer->state == LK_MPI_INBOX_FRAME && !peer->at)
        return post_receive(t, rank, into, (size_t)peer->frame.bytes, LK_MPI_INBOX_READING);
    if (peer->at)
        LK_TRY(check_sum(t, rank));
    *at = peer->at;
    return LK_OK;
}

/* The next frame is asked for at once, so that it finds its receive posted, unless its place is not known yet. */
static void release(lk_transport *transport, int rank)
{
    lk_mpi_transport *t = (lk_mpi_transport *)transport;
    lk_mpi_peer *peer = &t->peers[rank];
    assert(peer->state == LK_MPI_INBOX_FRAME);
    peer->state = LK_MPI_INBOX_IDLE;
    peer->at = peer->into = NULL;
    peer->room = 0;
    if (!is_direct(peer->next))
        ask(t, rank);
}

static size_t max_frame(const lk_transport *transport, const void *data, size_t bytes)
{
    (void)transport, (void)data, (void)bytes;
    return LK_MPI_MOST_BYTES;
}

/* Starts one message of a frame. */
static int start_message(lk_mpi_transport *t, int rank, int at, const void *data, size_t bytes)
{
    lk_mpi_peer *peer = &t->peers[rank];
    lk_mpi_request request = 0;
    int code = t->mpi->send(t->comm, data, bytes, peer->rank, peer->tag_to, &request);
    if (code != 0 || request == 0)
        return code;
    t->slots[at].left++;
    peer->sending++;
    add_live(t, request, rank, at);
    return 0;
}

/* Starts the messages of a frame to one peer; the slot's stage has its header. */
static int send_with_header(lk_mpi_transport *t, int rank, int at, const lk_frame *next, const void *data)
{
    const lk_mpi_header *stage = t->slots[at].stage;
    bool beside = is_beside(next, stage->frame.bytes);
    size_t bytes = (size_t)stage->frame.bytes, length = sizeof *stage + (beside ? bytes : 0);
    if (next && next->bytes == length)
        length++;
    int code = start_message(t, rank, at, stage, length);
    return code == 0 && !beside && bytes > 0 ? start_message(t, rank, at, data, bytes) : code;
}

static lk_status fill_stage(const lk_mpi_transport *t, lk_mpi_slot *s, const lk_frame *frame, const void *data)
{
    if (!s->stage)
        LK_TRY(lk__mem_alloc(1, LK_MPI_SMALL, "a frame", (void **)&s->stage));
    memset(s->stage, 0, sizeof *s->stage);
    s->stage->magic = magic;
    s->stage->frame.call = frame->call;
    s->stage->frame.part = frame->part;
    s->stage->frame.bytes = frame->bytes;
    s->stage->sum = t->sums ? sum_of(&s->stage->frame, data) : 0;
    if (frame->bytes > 0 && frame->bytes <= SMALL)
        memcpy(s->stage + 1, data, (size_t)frame->bytes);
    return LK_OK;
}

/* Starts a frame to all peers. The stage is filled for the first peer that needs a header. */
static lk_status start_frame(lk_mpi_transport *t, const int *peers, int count, int at, const lk_frame *frame,
                             const void *data)
{
    int code = 0;
    bool filled = false;
    for (int i = 0; i < count && code == 0; i++) {
        lk_mpi_peer *peer = &t->peers[peers[i]];
        const lk_frame *next = predicted(t, &peer->to);
        bool bare = next && !t->sums && lk__frame_same(next, frame);
        if (!bare && !filled)
            LK_TRY(fill_stage(t, &t->slots[at], frame, data));
        filled |= !bare;
        lk__mpi_lock();
        code = bare ? start_message(t, peers[i], at, data, (size_t)frame->bytes)
                    : send_with_header(t, peers[i], at, next, data);
        lk__mpi_unlock();
        lk__frame_guess_add(&peer->to, frame);
    }
    return lk__mpi_check(t->mpi, code, "send a message");
}

static lk_status send_frame(lk_transport *transport, const int *peers, int count, const lk_frame *frame,
                            const void *data, uint64_t *ticket)
{
    lk_mpi_transport *t = (lk_mpi_transport *)transport;
    int at = t->free_slot;
    *ticket = 0;
    if (at == LK_MPI_NO_SLOT)
        return LK_OK;
    lk_mpi_slot *s = &t->slots[at];
    if (t->count + 2 * count > t->room)
        LK_TRY(lk__mpi_transport_room(t, 2 * count));
    lk_status status = start_frame(t, peers, count, at, frame, data);
    if (s->left > 0)
        t->free_slot = s->next;
    LK_TRY(status);
    *ticket = s->ticket = ++t->sends * LK_MPI_TICKETS + (uint64_t)at;
    return LK_OK;
}

/* The arguments of sum_open. They stay if the call is late. */
typedef struct set_call {
    lk_mpi_comm comm;
    int count, tag;
    lk_mpi_set set;
    int ranks[];
} set_call;

static int run_open(const lk_mpi *mpi, void *arg)
{
    set_call *call = arg;
    return mpi->sum_open(call->comm, call->ranks, call->count, call->tag, &call->set);
}

/* Makes MPI's set of the group's processes, at the first sum. Blocks until all have come. */
static lk_status open_set(lk_mpi_transport *t)
{
    set_call *call = NULL;
    int code = 0;
    if (t->shares)
        return lk__fail(LK_STATUS_UNSUPPORTED, "MPI sums between processes, and a process of this job has several "
                                               "ranks: start one process for each rank, or use `reduce` tree");
    LK_TRY(
        lk__mem_alloc(1, sizeof *call + (size_t)t->size * sizeof *call->ranks, "processes of a sum", (void **)&call));
    *call = (set_call){.comm = t->comm, .count = t->size, .tag = t->sum_tag};
    for (int r = 0; r < t->size; r++)
        call->ranks[r] = t->peers[r].rank;
    lk__mpi_lock();
    lk_status status = lk__mpi_in_time(
        &(lk_mpi_blocking){t->mpi, run_open, call, t->timeout, "connected the processes of a sum"}, &code);
    lk__mpi_unlock();
    if (status == LK_STATUS_PEER)
        return status;
    t->set = call->set;
    lk__mem_free(call);
    LK_TRY(status);
    return lk__mpi_check(t->mpi, code, "connect the processes of a sum");
}

static lk_status sum(lk_transport *transport, float *values, size_t count, uint64_t *ticket)
{
    lk_mpi_transport *t = (lk_mpi_transport *)transport;
    int at = t->free_slot;
    lk_mpi_request request = 0;
    if (count > LK_MPI_MOST_BYTES / sizeof *values)
        return lk__fail(LK_STATUS_UNSUPPORTED,
                        "a sum of %zu floats is too large for MPI, which takes %zu: use smaller `bucket_bytes`", count,
                        LK_MPI_MOST_BYTES / sizeof *values);
    if (at == LK_MPI_NO_SLOT)
        return lk__fail(LK_STATUS_UNSUPPORTED, "more than %d sums by MPI at a time: use larger `bucket_bytes`",
                        LK_MPI_TICKETS);
    if (!t->set)
        LK_TRY(open_set(t));
    LK_TRY(lk__mpi_transport_room(t, 1));
    lk__mpi_lock();
    int code = t->mpi->sum(t->set, values, count, LK_MPI_TYPE_F32, &request);
    lk__mpi_unlock();
    LK_TRY(lk__mpi_check(t->mpi, code, "sum gradients"));
    lk_mpi_slot *s = &t->slots[at];
    t->free_slot = s->next;
    s->ticket = ++t->sends * LK_MPI_TICKETS + (uint64_t)at;
    s->left = 1;
    t->peers[t->rank].sending++;
    add_live(t, request, t->rank, at);
    *ticket = s->ticket;
    return LK_OK;
}

static bool sent(const lk_transport *transport, uint64_t ticket)
{
    const lk_mpi_slot *s = &((const lk_mpi_transport *)transport)->slots[ticket % LK_MPI_TICKETS];
    return s->ticket != ticket || s->left == 0;
}

static bool taken(const lk_transport *transport, int rank)
{
    return ((const lk_mpi_transport *)transport)->peers[rank].sending == 0;
}

static lk_status progress(lk_transport *transport)
{
    lk_mpi_transport *t = (lk_mpi_transport *)transport;
    move(t);
    if (t->status != LK_OK)
        return lk__fail_memory(LK_MPI_SMALL, "a receive buffer");
    if (t->error)
        return lk__mpi_check(t->mpi, t->error, "move messages");
    if (t->garbage < 0)
        return LK_OK;
    return lk__fail(LK_STATUS_PEER,
                    "rank %d on host %s sent something that is not a frame: do all ranks run the same version?",
                    t->garbage, t->members[t->garbage].host);
}

static void wait_some(lk_transport *transport, double seconds)
{
    lk_mpi_transport *t = (lk_mpi_transport *)transport;
    double begin = lk__clock(), spin = t->crowded ? spin_crowded : spin_alone, now;
    if (begin - t->last_wait > pause_seconds)
        t->still_since = begin;
    for (;;) {
        bool moved = move(t);
        now = lk__clock();
        if (moved)
            t->still_since = now;
        double waited = now - t->still_since, left = seconds - (now - begin);
        if (moved || t->error || left <= 0)
            break;
        double most = waited / NAP_PART < nap_most ? waited / NAP_PART : nap_most;
        if (waited >= spin)
            lk__clock_sleep(most < left ? most : left);
        else if (t->crowded)
            sched_yield();
    }
    t->last_wait = now;
}

static void fail_mpi(lk_transport *transport)
{
    if (!((const lk_mpi_transport *)transport)->world)
        lk__mpi_mark_failed();
}

const lk_transport_type lk__transport_mpi = {
    .name = "mpi",
    .summary = "an MPI library (Open MPI, MPICH), for processes that mpirun or srun --mpi has started",
    .open = lk__mpi_transport_open,
    .close = lk__mpi_transport_close,
    .max_frame = max_frame,
    .send = send_frame,
    .sent = sent,
    .taken = taken,
    .expect = expect,
    .arrived = arrived,
    .payload = payload,
    .release = release,
    .progress = progress,
    .wait = wait_some,
    .sum = sum,
    .failed = fail_mpi,
};
