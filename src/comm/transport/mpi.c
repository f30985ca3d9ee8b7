/* mpi.c - frames over the non-blocking messages of an MPI library.
 *
 * A small frame is one message: header and payload, copied together at the sender and used in place at the
 * receiver. A large frame is two messages with the same tag: its header, then its payload, which goes from
 * the caller's memory to the caller's memory. The receiver of a frame chooses the tags, a different one for
 * each rank of the sending process, so that groups, and thread ranks of one process, never mix.
 *
 * MPI cannot block until one of several things happens or a time has passed. So `wait` polls for a moment and
 * then sleeps, each time for a part of the time that it has waited so far.
 *
 * MPI does not say that a peer has died. The control does: this transport fails only where MPI reports an
 * error. */
#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "comm/mpi/load.h"
#include "comm/mpi/session.h"
#include "comm/transport/doorbell.h"
#include "comm/transport/frame.h"
#include "comm/transport/mpi_offer.h"
#include "comm/transport/tcp.h"
#include "comm/transport/transport.h"

/* The first bytes of a frame, as they are in memory: all ranks run one build on one kind of machine, which
 * `magic` shows. Its size keeps the payload aligned. */
typedef struct header {
    uint64_t magic;
    uint64_t sum; /* checksum of the rest and of the payload; 0: none */
    lk_frame frame;
} header;
_Static_assert(sizeof(header) == LK_FRAME_BYTES, "a header keeps its payload aligned");

enum {
    SMALL = LK_MPI_SMALL - (int)sizeof(header), /* most bytes of a payload that is copied beside its header */
    TICKETS = 1024,                             /* sends that may be under way */
    NO_SLOT = TICKETS
};
static const uint64_t magic = 0x3146494d706b634cu + sizeof(lk_frame);

/* Seconds. A rank with a core of its own polls longer, because a sleep costs the time of waking up. */
static const double spin_alone = 200e-6, spin_crowded = 20e-6;
static const double pause_seconds = 500e-6; /* a rank that has not waited for so long begins to poll again */
static const double nap_most = 1e-3;
enum { NAP_PART = 8 }; /* a sleep lasts this part of the time waited */

typedef enum inbox {
    INBOX_IDLE,
    INBOX_ASKED,   /* a receive of a header is posted */
    INBOX_FRAME,   /* the header is here, and a small payload with it */
    INBOX_READING, /* a receive of the payload is posted */
    INBOX_READ
} inbox;

typedef struct mpi_peer {
    int rank;             /* MPI's */
    int tag_to, tag_from; /* of messages to the peer, and from it */
    inbox state;
    header *buffer; /* (LK_MPI_SMALL bytes) the payload of a small frame follows the header */
    uint8_t *into;
    int sending; /* messages to the peer that are under way */
    bool garbage;
} mpi_peer;

/* A frame that is being sent. Its stage has the header and a small payload. */
typedef struct slot {
    uint64_t ticket;
    int left;      /* messages under way */
    int next;      /* free slot */
    header *stage; /* (LK_MPI_SMALL bytes) */
} slot;

/* What a request belongs to. */
typedef struct live {
    int peer;
    int slot; /* NO_SLOT: a receive */
} live;

typedef struct mpi_transport {
    lk_transport base;
    const lk_mpi *mpi;
    int rank, size;
    lk_member *members; /* (size) */
    mpi_peer *peers;    /* (size) */
    slot slots[TICKETS];
    int free_slot;
    uint64_t sends;
    lk_mpi_request *requests; /* (room) all that is under way */
    live *lives;              /* (room) */
    int *done;                /* (room) */
    int count, room;
    lk_status status; /* MEMORY: there was none for a receive */
    int error;        /* MPI's code of a failed call; 0: none */
    bool crowded;     /* more ranks than cores on this host */
    bool sums;        /* payloads have checksums */
    double still_since, last_wait;
    lk_mpi_set set; /* the processes of the group, for sums of MPI; 0: no sum was made */
    int sum_tag;    /* the same at all ranks */
    bool shares;    /* a process has several ranks */
} mpi_transport;

static lk_status make_room(mpi_transport *t, int more)
{
    int room = t->room ? t->room : 64;
    while (room < t->count + more)
        room *= 2;
    if (room == t->room)
        return LK_OK;
    lk_mpi_request *requests = realloc(t->requests, (size_t)room * sizeof *requests);
    t->requests = requests ? requests : t->requests;
    live *lives = realloc(t->lives, (size_t)room * sizeof *lives);
    t->lives = lives ? lives : t->lives;
    int *done = realloc(t->done, (size_t)room * sizeof *done);
    t->done = done ? done : t->done;
    if (!requests || !lives || !done)
        return lk__fail_memory((size_t)room * sizeof *lives, "messages under way");
    t->room = room;
    return LK_OK;
}

static void add_live(mpi_transport *t, lk_mpi_request request, int peer, int at)
{
    t->requests[t->count] = request;
    t->lives[t->count++] = (live){peer, at};
}

/* Posts a receive. There is room for one of each peer from the start. */
static bool post_receive(mpi_transport *t, int rank, void *to, size_t bytes)
{
    mpi_peer *peer = &t->peers[rank];
    lk_mpi_request request = 0;
    lk__mpi_lock();
    int code = t->mpi->receive(to, bytes, peer->rank, peer->tag_from, &request);
    lk__mpi_unlock();
    t->error = t->error ? t->error : code;
    if (code == 0)
        add_live(t, request, rank, NO_SLOT);
    return code == 0;
}

/* Most ranks hear from few peers, so a buffer is made when a frame is first asked for. */
static void ask_header(mpi_transport *t, int rank)
{
    mpi_peer *peer = &t->peers[rank];
    lk_status status = t->status;
    if (status == LK_OK && !peer->buffer)
        status = lk__mem_alloc(1, LK_MPI_SMALL, "a receive buffer", (void **)&peer->buffer);
    if (status == LK_OK)
        status = make_room(t, 1);
    if (status == LK_OK && post_receive(t, rank, peer->buffer, LK_MPI_SMALL))
        peer->state = INBOX_ASKED;
    t->status = status;
}

static void finish_receive(mpi_peer *peer)
{
    if (peer->state == INBOX_READING) {
        peer->state = INBOX_READ;
        return;
    }
    peer->garbage = peer->buffer->magic != magic || peer->buffer->frame.bytes > LK_FRAME_MAX;
    peer->state = INBOX_FRAME;
}

static void finish_send(mpi_transport *t, int at)
{
    slot *s = &t->slots[at];
    if (--s->left > 0)
        return;
    s->next = t->free_slot;
    t->free_slot = at;
}

static void finish_live(mpi_transport *t, int index)
{
    live ended = t->lives[index];
    t->lives[index] = t->lives[--t->count];
    t->requests[index] = t->requests[t->count];
    if (ended.slot == NO_SLOT) {
        finish_receive(&t->peers[ended.peer]);
        return;
    }
    t->peers[ended.peer].sending--;
    finish_send(t, ended.slot);
}

/* Moves messages; returns whether one has ended. */
static bool move(mpi_transport *t)
{
    int ended = 0;
    if (t->count == 0)
        return false;
    lk__mpi_lock();
    int code = t->mpi->test(t->requests, t->count, t->done, &ended);
    lk__mpi_unlock();
    t->error = t->error ? t->error : code;
    /* From the last to the first, because the last takes the place of an ended one. */
    for (int i = ended - 1; i >= 0; i--)
        finish_live(t, t->done[i]);
    return ended > 0;
}

static const lk_frame *arrived(lk_transport *transport, int rank)
{
    mpi_transport *t = (mpi_transport *)transport;
    mpi_peer *peer = &t->peers[rank];
    if (peer->state == INBOX_IDLE)
        ask_header(t, rank);
    return peer->state >= INBOX_FRAME && !peer->garbage ? &peer->buffer->frame : NULL;
}

static uint64_t sum_of(const lk_frame *frame, const void *data)
{
    uint64_t sum = lk__hash(data, (size_t)frame->bytes, lk__hash(frame, sizeof *frame, 0));
    return sum ? sum : 1;
}

static lk_status check_sum(const mpi_transport *t, int rank, const void *data)
{
    header *here = t->peers[rank].buffer;
    if (here->sum == 0 || here->sum == sum_of(&here->frame, data)) {
        here->sum = 0;
        return LK_OK;
    }
    return lk__fail(LK_STATUS_IO,
                    "a frame from rank %d on host %s to rank %d on host %s changed on the way: its checksum is wrong; "
                    "check the network and the memory of the two hosts",
                    rank, t->members[rank].host, t->rank, t->members[t->rank].host);
}

static lk_status payload(lk_transport *transport, int rank, void *into, const void **at)
{
    mpi_transport *t = (mpi_transport *)transport;
    mpi_peer *peer = &t->peers[rank];
    assert(peer->state >= INBOX_FRAME);
    size_t bytes = (size_t)peer->buffer->frame.bytes;
    if (bytes <= SMALL) {
        LK_TRY(check_sum(t, rank, peer->buffer + 1));
        *at = peer->buffer + 1;
        return LK_OK;
    }
    if (peer->state == INBOX_FRAME) {
        LK_TRY(make_room(t, 1));
        peer->into = into;
        if (post_receive(t, rank, into, bytes))
            peer->state = INBOX_READING;
    }
    assert(peer->into == into);
    *at = NULL;
    if (peer->state != INBOX_READ)
        return LK_OK;
    LK_TRY(check_sum(t, rank, into));
    *at = into;
    return LK_OK;
}

/* The next header is asked for at once, so that it finds its receive posted. */
static void release(lk_transport *transport, int rank)
{
    mpi_transport *t = (mpi_transport *)transport;
    mpi_peer *peer = &t->peers[rank];
    assert(peer->state == INBOX_READ || peer->state == INBOX_FRAME);
    peer->state = INBOX_IDLE;
    peer->into = NULL;
    ask_header(t, rank);
}

static size_t max_frame(const lk_transport *transport, const void *data, size_t bytes)
{
    (void)transport, (void)data, (void)bytes;
    return LK_MPI_MOST_BYTES;
}

/* Starts the messages of a frame to one peer. */
static int start_messages(mpi_transport *t, int rank, int at, const lk_frame *frame, const void *data)
{
    mpi_peer *peer = &t->peers[rank];
    slot *s = &t->slots[at];
    size_t bytes = (size_t)frame->bytes, beside = bytes <= SMALL ? bytes : 0;
    const void *parts[] = {s->stage, data};
    size_t sizes[] = {sizeof(header) + beside, bytes - beside};
    int code = 0;
    for (int i = 0; i < 2 && code == 0 && sizes[i] > 0; i++) {
        lk_mpi_request request = 0;
        code = t->mpi->send(parts[i], sizes[i], peer->rank, peer->tag_to, &request);
        if (code != 0 || request == 0)
            continue;
        s->left++;
        peer->sending++;
        add_live(t, request, rank, at);
    }
    return code;
}

static lk_status fill_stage(const mpi_transport *t, slot *s, const lk_frame *frame, const void *data)
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

static lk_status send_frame(lk_transport *transport, const int *peers, int count, const lk_frame *frame,
                            const void *data, uint64_t *ticket)
{
    mpi_transport *t = (mpi_transport *)transport;
    int at = t->free_slot, code = 0;
    *ticket = 0;
    if (at == NO_SLOT)
        return LK_OK;
    slot *s = &t->slots[at];
    LK_TRY(make_room(t, 2 * count));
    LK_TRY(fill_stage(t, s, frame, data));
    s->ticket = ++t->sends * TICKETS + (uint64_t)at;
    lk__mpi_lock();
    for (int i = 0; i < count && code == 0; i++)
        code = start_messages(t, peers[i], at, frame, data);
    lk__mpi_unlock();
    if (s->left > 0)
        t->free_slot = s->next;
    *ticket = s->ticket;
    return lk__mpi_check(t->mpi, code, "send a message");
}

/* Makes MPI's set of the group's processes, at the first sum. */
static lk_status open_set(mpi_transport *t)
{
    int *ranks = NULL;
    if (t->shares)
        return lk__fail(LK_STATUS_UNSUPPORTED, "MPI sums between processes, and a process of this job has several "
                                               "ranks: start one process for each rank, or use `reduce` tree");
    LK_TRY(LK_ALLOC((size_t)t->size, "processes of a sum", &ranks));
    for (int r = 0; r < t->size; r++)
        ranks[r] = t->peers[r].rank;
    lk__mpi_lock();
    int code = t->mpi->sum_open(ranks, t->size, t->sum_tag, &t->set);
    lk__mpi_unlock();
    lk__mem_free(ranks);
    return lk__mpi_check(t->mpi, code, "connect the processes of a sum");
}

static lk_status sum(lk_transport *transport, float *values, size_t count, uint64_t *ticket)
{
    mpi_transport *t = (mpi_transport *)transport;
    int at = t->free_slot;
    lk_mpi_request request = 0;
    if (count > LK_MPI_MOST_BYTES / sizeof *values)
        return lk__fail(LK_STATUS_UNSUPPORTED,
                        "a sum of %zu floats is too large for MPI, which takes %zu: use smaller `bucket_bytes`", count,
                        LK_MPI_MOST_BYTES / sizeof *values);
    if (at == NO_SLOT)
        return lk__fail(LK_STATUS_UNSUPPORTED, "more than %d sums by MPI at a time: use larger `bucket_bytes`",
                        TICKETS);
    if (!t->set)
        LK_TRY(open_set(t));
    LK_TRY(make_room(t, 1));
    lk__mpi_lock();
    int code = t->mpi->sum(t->set, values, count, LK_MPI_TYPE_F32, &request);
    lk__mpi_unlock();
    LK_TRY(lk__mpi_check(t->mpi, code, "sum gradients"));
    slot *s = &t->slots[at];
    t->free_slot = s->next;
    s->ticket = ++t->sends * TICKETS + (uint64_t)at;
    s->left = 1;
    t->peers[t->rank].sending++;
    add_live(t, request, t->rank, at);
    *ticket = s->ticket;
    return LK_OK;
}

static bool sent(const lk_transport *transport, uint64_t ticket)
{
    const slot *s = &((const mpi_transport *)transport)->slots[ticket % TICKETS];
    return s->ticket != ticket || s->left == 0;
}

static bool taken(const lk_transport *transport, int rank)
{
    return ((const mpi_transport *)transport)->peers[rank].sending == 0;
}

static lk_status progress(lk_transport *transport)
{
    mpi_transport *t = (mpi_transport *)transport;
    move(t);
    if (t->status != LK_OK)
        return lk__fail_memory(LK_MPI_SMALL, "a receive buffer");
    if (t->error)
        return lk__mpi_check(t->mpi, t->error, "move messages");
    for (int r = 0; r < t->size; r++)
        if (t->peers[r].garbage)
            return lk__fail(LK_STATUS_PEER,
                            "rank %d on host %s sent something that is not a frame: do all ranks run the same version?",
                            r, t->members[r].host);
    return LK_OK;
}

static void nap(double seconds)
{
    struct timespec time = {.tv_nsec = (long)(seconds * 1e9)};
    nanosleep(&time, NULL);
}

static void wait_some(lk_transport *transport, double seconds)
{
    mpi_transport *t = (mpi_transport *)transport;
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
            nap(most < left ? most : left);
        else if (t->crowded)
            sched_yield();
    }
    t->last_wait = now;
}

/* Gives up what is under way. Only the receives of the next headers are, except after a failure. A buffer that MPI may
 * still write to is left to MPI. */
static void give_up_lives(mpi_transport *t)
{
    bool sends = false;
    lk__mpi_lock();
    for (int i = 0; i < t->count; i++) {
        mpi_peer *peer = &t->peers[t->lives[i].peer];
        if (t->lives[i].slot != NO_SLOT)
            sends = true;
        else if (!t->mpi->cancel(&t->requests[i]) && peer->state == INBOX_ASKED)
            peer->buffer = NULL;
    }
    if (t->set && !sends)
        t->mpi->sum_close(&t->set);
    lk__mpi_unlock();
    if (sends)
        lk__mpi_mark_failed();
}

/* Memory that MPI may still use is not freed. That happens only after a failure. */
static void close_mpi(lk_transport *transport)
{
    mpi_transport *t = (mpi_transport *)transport;
    if (!t)
        return;
    give_up_lives(t);
    for (int r = 0; t->peers && r < t->size; r++)
        lk__mem_free(t->peers[r].buffer);
    for (int i = 0; i < TICKETS; i++)
        if (t->slots[i].left == 0)
            lk__mem_free(t->slots[i].stage);
    lk__mem_free(t->peers);
    lk__mem_free(t->members);
    free(t->requests);
    free(t->lives);
    free(t->done);
    lk__mem_free(t);
}

static void fail_mpi(lk_transport *transport)
{
    (void)transport;
    lk__mpi_mark_failed();
}

static lk_status make(const lk_boot *boot, mpi_transport **out)
{
    mpi_transport *t = NULL;
    lk_tcp_checksum checksum = LK_CHECKSUM_HOSTS;
    lk_status status;
    LK_TRY(lk__tcp_checksum(&checksum));
    LK_TRY(LK_ALLOC(1, "an MPI transport", &t));
    t->base.type = &lk__transport_mpi;
    t->rank = boot->rank;
    t->size = boot->size;
    t->sums = checksum == LK_CHECKSUM_ALL;
    for (int i = 0; i < TICKETS; i++)
        t->slots[i].next = i + 1;
    LK_TRY_GOTO(make_room(t, 2 * boot->size), close_transport);
    LK_TRY_GOTO(LK_ALLOC((size_t)boot->size, "members", &t->members), close_transport);
    memcpy(t->members, boot->members, (size_t)boot->size * sizeof *t->members);
    LK_TRY_GOTO(LK_ALLOC((size_t)boot->size, "peers", &t->peers), close_transport);
    *out = t;
    return LK_OK;
close_transport:
    close_mpi((lk_transport *)t);
    return status;
}

/* Every rank receives with tags of its own: the first one, plus the sender's index in its process. The last tag of
 * rank 0 is for the set of processes that sum. */
static lk_status agree_tags(mpi_transport *t, const lk_boot *boot, const lk_mpi_offer *all)
{
    int32_t mine = 0, *firsts = NULL;
    int most = lk__mpi_offer_most(all, boot->size);
    lk_status status = lk__mpi_tags(most + 1, &mine);
    if (status == LK_OK)
        status = LK_ALLOC((size_t)boot->size, "tags", &firsts);
    LK_TRY_GOTO(lk__tcp_boot_agree(boot, status, "get tags of MPI"), free_firsts);
    LK_TRY_GOTO(boot->exchange(boot->arg, &mine, sizeof mine, firsts), free_firsts);
    t->sum_tag = firsts[0] + most;
    t->shares = most > 1;
    for (int r = 0; r < boot->size; r++) {
        t->peers[r].rank = all[r].rank;
        t->peers[r].tag_to = firsts[r] + lk__mpi_offer_index(all, boot->rank);
        t->peers[r].tag_from = mine + lk__mpi_offer_index(all, r);
    }
free_firsts:
    lk__mem_free(firsts);
    return status;
}

static lk_status exchange_offers(mpi_transport *t, const lk_boot *boot, const lk_mpi_place *place, lk_mpi_offer *all)
{
    lk_mpi_offer mine = {.rank = place->rank, .size = place->size};
    lk__bell_cpus(mine.cpus);
    LK_TRY(boot->exchange(boot->arg, &mine, sizeof mine, all));
    LK_TRY(lk__mpi_offer_check(boot, place, all));
    t->crowded = lk__mpi_offer_crowded(boot, all);
    return agree_tags(t, boot, all);
}

/* All ranks have loaded their plug-in before one of them starts MPI, which blocks until all do. It needs no deadline:
 * all ranks are here. */
static lk_status start_mpi(const lk_boot *boot, const lk_mpi **mpi, lk_mpi_place *place)
{
    LK_TRY(lk__tcp_boot_agree(boot, lk__mpi_load(mpi), "load its plug-in for MPI"));
    return lk__tcp_boot_agree(boot, lk__mpi_start(0, mpi, place), "start MPI");
}

static lk_status open_mpi(const lk_boot *boot, lk_transport **out)
{
    mpi_transport *t = NULL;
    lk_mpi_offer *all = NULL;
    const lk_mpi *mpi = NULL;
    lk_mpi_place place;
    lk_status status;
    LK_TRY(start_mpi(boot, &mpi, &place));
    status = make(boot, &t);
    if (status == LK_OK)
        status = LK_ALLOC((size_t)boot->size, "ranks of MPI", &all);
    LK_TRY_GOTO(lk__tcp_boot_agree(boot, status, "get memory for its MPI transport"), close_transport);
    t->mpi = mpi;
    LK_TRY_GOTO(exchange_offers(t, boot, &place, all), close_transport);
    lk__mem_free(all);
    *out = &t->base;
    return LK_OK;
close_transport:
    lk__mem_free(all);
    close_mpi((lk_transport *)t);
    return status;
}

const lk_transport_type lk__transport_mpi = {
    .name = "mpi",
    .summary = "an MPI library (Open MPI, MPICH), for processes that mpirun or srun --mpi has started",
    .open = open_mpi,
    .close = close_mpi,
    .max_frame = max_frame,
    .send = send_frame,
    .sent = sent,
    .taken = taken,
    .arrived = arrived,
    .payload = payload,
    .release = release,
    .progress = progress,
    .wait = wait_some,
    .sum = sum,
    .failed = fail_mpi,
};
