/* test_shared.c - frames between ranks that share memory: all sizes, their order, full rings, data
 * that is not copied, damaged slots. */
#include "base/cores.h"
#include "comm/board.h"

/* A vector of each size goes from rank 0 around the ring, in the largest possible frames. */
static void around(place *at, const void *arg)
{
    static const size_t sizes[] = {0, 1, 4, 63, 64, 65, 1000, 4096, 4097, 65536, 262144, 262145, 5000000};
    int size = at->shared->size, me = at->rank;
    int next = (me + 1) % size, before = (me + size - 1) % size;
    unsigned char *data = malloc(5000000);
    CHECK(data != NULL);
    int number = 0;
    for (size_t k = 0; k < COUNT_OF(sizes) && size > 1; k++) {
        size_t most = at->t->type->max_frame(at->t, data, sizes[k]);
        CHECK(most >= 8192);
        fill(data, sizes[k], 0);
        for (size_t done = 0; done < sizes[k] || done == 0; number++) {
            size_t bytes = sizes[k] - done < most ? sizes[k] - done : most;
            fill(data + done, bytes, (uint32_t)number);
            if (me != 0)
                take(at, before, number, (uint32_t)number, bytes);
            await_sent(at->t, send_one(at, &next, 1, number, data + done, bytes));
            if (me == 0)
                take(at, before, number, (uint32_t)number, bytes);
            done += bytes > 0 ? bytes : 1;
        }
    }
    free(data);
}

/* Every rank sends frames of changing sizes to all others while it takes theirs. */
enum { ROUNDS = 300 };
static size_t round_bytes(int number, int from)
{
    static const size_t sizes[] = {4, 64, 200, 4096, 6000, 0, 8192, 32};
    return sizes[(number * 5 + from) % 8];
}

static void crowd(place *at, const void *arg)
{
    int size = at->shared->size, me = at->rank, peers[MAX_TEST_RANKS], count = peers_of(me, size, peers);
    int sent = 0, taken[MAX_TEST_RANKS] = {0}, left = (size - 1) * ROUNDS;
    static _Thread_local unsigned char data[ROUNDS][8192];
    while ((sent < ROUNDS && count > 0) || left > 0) {
        bool moved = false;
        if (sent < ROUNDS && count > 0) {
            uint64_t ticket;
            lk_frame frame = frame_of(sent, round_bytes(sent, me));
            fill(data[sent], (size_t)frame.bytes, (uint32_t)(sent + me));
            CHECK_OK(at->t->type->send(at->t, peers, count, &frame, data[sent], &ticket));
            moved = ticket != 0;
            sent += moved;
        }
        for (int i = 0; i < count; i++) {
            int p = peers[i];
            if (at->t->type->arrived(at->t, p) == NULL)
                continue;
            take(at, p, taken[p], (uint32_t)(taken[p] + p), round_bytes(taken[p], p));
            taken[p]++;
            left--;
            moved = true;
        }
        CHECK_OK(at->t->type->progress(at->t));
        if (!moved)
            at->t->type->wait(at->t, 0.5);
    }
    together(at); /* ranks that are threads read the data of others until here */
}

/* Rank 0 sends to rank 1 until there is no room. All frames arrive in order; then there is room
 * again. */
static void fill_up(place *at, size_t bytes)
{
    static unsigned char data[16384];
    int one = 1;
    int count = 0;
    uint64_t ticket = 1;
    if (at->rank == 0) {
        for (lk_frame frame; ticket != 0; count += ticket != 0) {
            frame = frame_of(count, bytes);
            CHECK(count < 100000);
            CHECK_OK(at->t->type->send(at->t, &one, 1, &frame, data, &ticket));
        }
        CHECK(count > 1);
        memcpy(at->shared->note, &count, sizeof count);
    }
    together(at);
    memcpy(&count, at->shared->note, sizeof count);
    together(at);
    for (int i = 0; i < count && at->rank == 1; i++) {
        const lk_frame *frame = await_frame(at->t, 0);
        CHECK(frame->call.number == (uint32_t)i && frame->bytes == bytes);
        at->t->type->release(at->t, 0);
    }
    if (at->rank == 0)
        send_one(at, &one, 1, 7, data, bytes);
    if (at->rank == 1) {
        await_frame(at->t, 0);
        at->t->type->release(at->t, 0);
    }
}

static void fill_slots(place *at, const void *arg)
{
    fill_up(at, 4);
}

static void fill_small(place *at, const void *arg)
{
    fill_up(at, 100);
}

static void fill_large(place *at, const void *arg)
{
    fill_up(at, 8000);
}

/* A peer that takes nothing does not block frames to other peers. */
static void starve(place *at, const void *arg)
{
    static unsigned char data[16384];
    int one = 1, two = 2;
    uint64_t ticket = 1;
    lk_frame frame = frame_of(0, 8000);
    if (at->rank == 0) {
        while (ticket != 0)
            CHECK_OK(at->t->type->send(at->t, &one, 1, &frame, data, &ticket));
        fill(data, 8000, 3);
        for (int i = 0; i < 500; i++)
            send_one(at, &two, 1, i, data, 8000);
    }
    for (int i = 0; i < 500 && at->rank == 2; i++)
        take(at, 0, i, 3, 8000);
    together(at);
}

/* A damaged slot, at offset `damaged` of rank 0's segment, is an error that names the rank that wrote it. */
static void nonsense(place *at, size_t damaged)
{
    lk_shared *s = (lk_shared *)at->t;
    int one = 1;
    if (at->rank == 0) {
        send_one(at, &one, 1, 0, "x", 1);
        memset(s->segment[0] + damaged + sizeof(uint64_t), 0xfe, LK_SHARED_ALIGN - sizeof(uint64_t));
    }
    together(at);
    if (at->rank != 1)
        return;
    CHECK(at->t->type->arrived(at->t, 0) == NULL);
    CHECK_FAILS(at->t->type->progress(at->t), LK_STATUS_MISMATCH, "rank 0 ");
}

/* A frame to one of two peers is in a lane, one to the only peer is on the billboard. */
static void nonsense_in_lane(place *at, const void *arg)
{
    nonsense(at, LK_SHARED_ALIGN + ((lk_shared *)at->t)->layout.lane_bytes + LK_SHARED_ALIGN);
}

static void nonsense_on_billboard(place *at, const void *arg)
{
    /* Frames are numbered from 1. */
    nonsense(at, ((lk_shared *)at->t)->layout.billboard_at + lk__billboard_slot_bytes());
}

/* Frames to one peer and to all keep their order. */
static void mixed(place *at, const void *arg)
{
    static _Thread_local unsigned char data[8192];
    int peers[MAX_TEST_RANKS], count = peers_of(at->rank, at->shared->size, peers), one = 1;
    int numbers[2000], sent = 0;
    for (int i = 0; i < 2000; i++)
        if (i % 7 < 3 || at->rank == 1) /* rank 1 takes all of them, the others those to all */
            numbers[sent++] = i;
    if (at->rank == 0) {
        for (int i = 0; i < 2000; i++) {
            size_t bytes = round_bytes(i, 1);
            fill(data, bytes, (uint32_t)i);
            await_sent(at->t,
                       i % 7 < 3 ? send_one(at, peers, count, i, data, bytes) : send_one(at, &one, 1, i, data, bytes));
        }
    } else {
        for (int i = 0; i < sent; i++)
            take(at, 0, numbers[i], (uint32_t)numbers[i], round_bytes(numbers[i], 1));
    }
    together(at);
}

static void test_frames(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        run_both(sizes[i], around);
        run_both(sizes[i], crowd);
    }
    run_both(2, fill_slots);
    run_both(2, fill_small);
    run_both(2, fill_large);
    run_both(3, starve);
    run_both(3, lend);
    run_both(2, mixed);
    run_both(4, mixed);
    run_both(3, nonsense_in_lane);
    run_both(2, nonsense_on_billboard);
}

static void *ring_main(void *arg)
{
    lk__shared_ring(arg);
    return NULL;
}

static void test_ring(void **state)
{
    place at = {.shared = meeting_create(1)};
    lk_boot boot = meeting_boot(&at, 60);
    assert_int_equal(lk__transport_inproc.open(&boot, &at.t), LK_OK);
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, ring_main, at.t), 0);
        at.t->type->wait(at.t, 3600); /* a lost ring ends in the test's timeout */
        pthread_join(thread, NULL);
    }
    at.t->type->close(at.t);
    meeting_destroy(at.shared);
}

static void test_crowded(void **state)
{
    uint64_t cpus[LK_CPU_WORDS] = {0};
    const int quota = lk__cores_quota("");
    assert_int_equal(lk__bell_cpus_crowded(cpus, 8), quota < 8); /* no CPU is known */
    cpus[0] = 5;
    cpus[3] = 1;
    assert_int_equal(lk__bell_cpus_crowded(cpus, 3), quota < 3);
    assert_true(lk__bell_cpus_crowded(cpus, 4));
}

/* /dev/shm of a container has 64 MiB by default. */
static void test_layout(void **state)
{
    for (int size = 1; size <= LK_MAX_RANKS; size *= 2) {
        lk_shared_layout l = lk__shared_layout(size, false);
        assert_true(size > 16 || l.bytes * (size_t)size <= 40u << 20);
        assert_true(l.chunk_at[0] >= LK_SHARED_ALIGN + (size_t)size * l.lane_bytes);
        assert_true(l.chunk_at[1] >= l.chunk_at[0] + l.chunks[0] * l.chunk_bytes[0]);
        assert_true(l.bytes >= l.chunk_at[1] + l.chunks[1] * l.chunk_bytes[1]);
        assert_true(size == 1 || (l.chunks[0] >= (uint32_t)size && l.chunks[1] >= (uint32_t)size));
    }
}

TEST_MAIN(NULL, NULL, TEST(test_frames), TEST(test_ring), TEST(test_crowded), TEST(test_layout))
