/* ranks.h - ranks for the tests of transports: processes or threads that exchange data through shared
 * memory instead of a control server, and traffic between them of which every byte is checked. */
#ifndef LK_TESTS_COMM_RANKS_H
#define LK_TESTS_COMM_RANKS_H

#include "base/clock.h"
#include "comm/transport/transport.h"
#include "processes.h"

enum { MAX_TEST_RANKS = 8, EXCHANGE_BYTES = 256 };

/* Lives in memory that all ranks share. It keeps the data of two rounds: a rank may still read one
 * round while others write the next. */
typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t turn;
    int size, here;
    unsigned round;
    bool broken;
    uint8_t blobs[2][MAX_TEST_RANKS * EXCHANGE_BYTES];
    lk_member members[MAX_TEST_RANKS];
    char note[1024]; /* for the test's own use */
} meeting;

/* What a rank has: it is given to the function of the rank. */
typedef struct place {
    meeting *shared;
    int rank;
    lk_transport *t; /* for the test's own use */
} place;

static inline meeting *meeting_create(int size)
{
    meeting *shared = process_share(sizeof *shared);
    pthread_mutexattr_t lock;
    pthread_mutexattr_init(&lock);
    pthread_mutexattr_setpshared(&lock, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->lock, &lock);
    pthread_condattr_t turn;
    pthread_condattr_init(&turn);
    pthread_condattr_setpshared(&turn, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&shared->turn, &turn);
    shared->size = size;
    for (int r = 0; r < size; r++) {
        lk_member *member = &shared->members[r];
        member->host_key = 7;
        snprintf(member->host, sizeof member->host, "node%d", r);
        snprintf(member->address, sizeof member->address, "127.0.0.1");
    }
    return shared;
}

static inline void meeting_destroy(meeting *shared)
{
    munmap(shared, sizeof *shared);
}

static inline lk_status meeting_exchange(void *arg, const void *mine, size_t bytes, void *all)
{
    place *at = arg;
    meeting *shared = at->shared;
    CHECK(bytes <= EXCHANGE_BYTES);
    pthread_mutex_lock(&shared->lock);
    unsigned round = shared->round;
    uint8_t *blobs = shared->blobs[round % 2];
    memcpy(blobs + (size_t)at->rank * bytes, mine, bytes);
    if (++shared->here == shared->size) {
        shared->here = 0;
        shared->round++;
        pthread_cond_broadcast(&shared->turn);
    }
    while (shared->round == round && !shared->broken)
        pthread_cond_wait(&shared->turn, &shared->lock);
    bool broken = shared->round == round;
    memcpy(all, blobs, (size_t)shared->size * bytes);
    pthread_mutex_unlock(&shared->lock);
    return broken ? lk__fail(LK_STATUS_PEER, "the job is broken") : LK_OK;
}

static inline lk_status meeting_check(void *arg)
{
    place *at = arg;
    pthread_mutex_lock(&at->shared->lock);
    bool broken = at->shared->broken;
    pthread_mutex_unlock(&at->shared->lock);
    return broken ? lk__fail(LK_STATUS_PEER, "the job is broken") : LK_OK;
}

static inline lk_boot meeting_boot(place *at, double timeout)
{
    lk_boot boot = {.rank = at->rank,
                    .size = at->shared->size,
                    .members = at->shared->members,
                    .group = 3,
                    .timeout = timeout,
                    .exchange = meeting_exchange,
                    .check = meeting_check,
                    .arg = at};
    CHECK_OK(lk__token_from_text("the token of a test", &boot.token));
    return boot;
}

typedef void (*rank_fn)(place *at, const void *arg);

typedef struct ranks_run {
    meeting *shared;
    rank_fn fn;
    const void *arg;
} ranks_run;

static inline void be_rank(int rank, void *arg)
{
    const ranks_run *run = arg;
    run->fn(&(place){.shared = run->shared, .rank = rank}, run->arg);
}

/* Runs fn in a process for each rank; returns the result of processes_run. */
static inline bool run_ranks(meeting *shared, rank_fn fn, const void *arg, unsigned killed)
{
    return processes_run(shared->size, be_rank, &(ranks_run){shared, fn, arg}, killed);
}

static inline uint8_t byte_of(int from, int to, int index, size_t i)
{
    return (uint8_t)((size_t)from * 31 + (size_t)to * 57 + (size_t)index * 101 + i * 7 + (i >> 9));
}

static inline lk_frame frame_of(int index, size_t bytes)
{
    return (lk_frame){
        .call = {.group = 3, .number = (uint32_t)index, .kind = LK_CALL_KIND_MESSAGE, .root = -1, .count = bytes},
        .part = (uint32_t)index,
        .bytes = bytes};
}

/* Sleeps, at most 0.05 s, until something has happened since the last progress. */
static inline void pause_ranks(lk_transport *t)
{
    t->type->wait(t, 0.05);
    CHECK_OK(t->type->progress(t));
}

/* The progress of one pair of ranks in its list of frames. */
typedef struct flow {
    int sent, got;
    size_t given, taken; /* bytes of the current frame, which max_frame may cut into pieces */
    uint32_t part_out, part_in;
    uint8_t *out, *in;
    uint64_t ticket;
} flow;

/* Sends the next piece of frame f->sent, as large as the transport allows. `out` is filled again
 * only after the last piece was sent. */
static inline bool push(lk_transport *t, int me, int peer, const size_t *sizes, flow *f)
{
    if (f->ticket && !t->type->sent(t, f->ticket))
        return false;
    size_t size = sizes[f->sent];
    if (f->given == 0)
        for (size_t i = 0; i < size; i++)
            f->out[i] = byte_of(me, peer, f->sent, i);
    size_t rest = size - f->given, most = t->type->max_frame(t, f->out + f->given, rest);
    size_t bytes = rest < most ? rest : most;
    lk_frame frame = frame_of(f->sent, bytes);
    frame.part = f->part_out;
    uint64_t ticket = 0;
    CHECK_OK(t->type->send(t, &peer, 1, &frame, f->out + f->given, &ticket));
    if (ticket == 0)
        return false;
    f->ticket = ticket;
    f->part_out++;
    f->given += bytes;
    if (f->given == size) {
        f->given = 0;
        f->sent++;
    }
    return true;
}

static inline bool pull(lk_transport *t, int me, int peer, const size_t *sizes, flow *f)
{
    const lk_frame *frame = t->type->arrived(t, peer);
    if (!frame)
        return false;
    CHECK(frame->part == f->part_in && frame->call.number == (uint32_t)f->got && frame->call.group == 3);
    CHECK(frame->bytes <= sizes[f->got] - f->taken);
    size_t bytes = (size_t)frame->bytes;
    const void *at = NULL;
    if (bytes > 0) {
        CHECK_OK(t->type->payload(t, peer, f->in, &at));
        if (!at)
            return false;
    }
    for (size_t i = 0; i < bytes; i++)
        CHECK(((const uint8_t *)at)[i] == byte_of(peer, me, f->got, f->taken + i));
    t->type->release(t, peer);
    f->part_in++;
    f->taken += bytes;
    if (f->taken == sizes[f->got]) {
        f->taken = 0;
        f->got++;
    }
    return true;
}

/* Every rank sends frames of these sizes to every other rank, all at the same time. */
static inline void all_to_all(lk_transport *t, int me, int size, const size_t *sizes, int count)
{
    flow flows[MAX_TEST_RANKS] = {0};
    size_t largest = 1;
    for (int i = 0; i < count; i++)
        largest = sizes[i] > largest ? sizes[i] : largest;
    for (int r = 0; r < size; r++) {
        flows[r].out = malloc(largest);
        flows[r].in = malloc(largest);
        CHECK(flows[r].out && flows[r].in);
    }
    for (bool done = size == 1; !done;) {
        bool moved = false;
        done = true;
        for (int r = 0; r < size; r++) {
            if (r == me)
                continue;
            if (flows[r].sent < count)
                moved |= push(t, me, r, sizes, &flows[r]);
            if (flows[r].got < count)
                moved |= pull(t, me, r, sizes, &flows[r]);
            bool taken = flows[r].sent == count && t->type->sent(t, flows[r].ticket);
            done = done && taken && flows[r].got == count;
        }
        if (!done && !moved)
            pause_ranks(t);
        else
            CHECK_OK(t->type->progress(t));
    }
    for (int r = 0; r < size; r++) {
        free(flows[r].out);
        free(flows[r].in);
    }
}

/* Waits for the next frame from peer. */
static inline const lk_frame *await_frame(lk_transport *t, int peer)
{
    const lk_frame *frame;
    while (!(frame = t->type->arrived(t, peer)))
        pause_ranks(t);
    return frame;
}

/* Waits for the next frame from peer; returns its payload. */
static inline const void *await_payload(lk_transport *t, int peer, void *into)
{
    await_frame(t, peer);
    for (;;) {
        const void *at = NULL;
        CHECK_OK(t->type->payload(t, peer, into, &at));
        if (at)
            return at;
        pause_ranks(t);
    }
}

static inline void await_sent(lk_transport *t, uint64_t ticket)
{
    while (!t->type->sent(t, ticket))
        pause_ranks(t);
}

/* Lists all ranks but me; returns how many. */
static inline int peers_of(int me, int size, int peers[MAX_TEST_RANKS])
{
    int count = 0;
    for (int i = 1; i < size; i++)
        peers[count++] = (me + i) % size;
    return count;
}

/* Sends one frame to all others in one call and takes their frames. */
static inline void multicast(lk_transport *t, int me, int size, size_t bytes)
{
    int peers[MAX_TEST_RANKS], count = peers_of(me, size, peers);
    if (count == 0)
        return;
    uint8_t *out = malloc(bytes + 1), *in = malloc(bytes + 1);
    CHECK(out && in);
    for (size_t i = 0; i < bytes; i++)
        out[i] = byte_of(me, 0, 5, i);
    lk_frame frame = frame_of(5, bytes);
    uint64_t ticket = 0;
    CHECK_OK(t->type->send(t, peers, count, &frame, out, &ticket));
    CHECK(ticket != 0);
    for (int p = 0; p < count; p++) {
        const void *at = await_payload(t, peers[p], in);
        CHECK(t->type->arrived(t, peers[p])->bytes == bytes);
        for (size_t i = 0; i < bytes; i++)
            CHECK(((const uint8_t *)at)[i] == byte_of(peers[p], 0, 5, i));
        t->type->release(t, peers[p]);
    }
    await_sent(t, ticket);
    free(out);
    free(in);
}

/* Makes progress until it fails, at most 60 s; asks for a frame from peer unless peer is -1. */
static inline lk_status await_failure(lk_transport *t, int peer)
{
    for (double end = lk__clock() + 60; lk__clock() < end;) {
        lk_status status = t->type->progress(t);
        if (status != LK_OK)
            return status;
        if (peer >= 0)
            CHECK(!t->type->arrived(t, peer));
        t->type->wait(t, 0.05);
    }
    return LK_OK;
}

/* Returns when all ranks have called it. */
static inline void together(place *at)
{
    uint8_t mine = 0, all[MAX_TEST_RANKS];
    CHECK_OK(meeting_exchange(at, &mine, 1, all));
}

#endif
