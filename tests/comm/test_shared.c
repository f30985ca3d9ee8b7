/* test_shared.c - frames between ranks that share memory: all sizes, order, no
 * room, data read in place, nonsense. */
#include "base/cores.h"
#include "comm/board.h"

/* A vector of each size goes from rank 0 around the ring, in frames as large as
 * may be. */
static int around(rank *self)
{
    static const size_t sizes[] = {0, 1, 4, 63, 64, 65, 1000, 4096, 4097, 65536, 262144, 262145, 5000000};
    int size = self->boot.size, me = self->boot.rank;
    int next = (me + 1) % size, before = (me + size - 1) % size;
    unsigned char *data = malloc(5000000);
    CHECK(self, data != NULL);
    uint32_t number = 0;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes && size > 1; k++) {
        size_t most = self->type->max_frame(self->t, data, sizes[k]);
        CHECK(self, most >= 8192);
        fill(data, sizes[k], 0);
        for (size_t done = 0; done < sizes[k] || done == 0; number++) {
            size_t bytes = sizes[k] - done < most ? sizes[k] - done : most;
            uint64_t ticket = 0;
            fill(data + done, bytes, number);
            if (me != 0 && take(self, before, number, number, bytes) != 0)
                return 1;
            if (send_one(self, &next, 1, number, data + done, bytes, &ticket) != 0)
                return 1;
            wait_sent(self, ticket);
            if (me == 0 && take(self, before, number, number, bytes) != 0)
                return 1;
            done += bytes > 0 ? bytes : 1;
        }
    }
    free(data);
    return 0;
}

/* Every rank sends frames of changing sizes to all others at once, while it
 * takes theirs. */
enum { ROUNDS = 300 };
static size_t round_bytes(uint32_t number, int from)
{
    static const size_t sizes[] = {4, 64, 200, 4096, 6000, 0, 8192, 32};
    return sizes[(number * 5 + (uint32_t)from) % 8];
}

static int crowd(rank *self)
{
    int size = self->boot.size, me = self->boot.rank, peers[MAX_SIZE], count = 0;
    uint32_t sent = 0, taken[MAX_SIZE] = {0}, left = (uint32_t)(size - 1) * ROUNDS;
    static _Thread_local unsigned char data[ROUNDS][8192];
    for (int i = 1; i < size; i++)
        peers[count++] = (me + i) % size;
    while ((sent < ROUNDS && count > 0) || left > 0) {
        bool moved = false;
        if (sent < ROUNDS && count > 0) {
            uint64_t ticket;
            lk_frame frame = frame_of(sent, round_bytes(sent, me));
            fill(data[sent], (size_t)frame.bytes, sent + (uint32_t)me);
            CHECK(self, self->type->send(self->t, peers, count, &frame, data[sent], &ticket) == LK_OK);
            moved = ticket != 0;
            sent += moved;
        }
        for (int i = 0; i < count; i++) {
            int p = peers[i];
            if (self->type->arrived(self->t, p) == NULL)
                continue;
            if (take(self, p, taken[p], taken[p] + (uint32_t)p, round_bytes(taken[p], p)) != 0)
                return 1;
            taken[p]++;
            left--;
            moved = true;
        }
        CHECK(self, self->type->progress(self->t) == LK_OK);
        if (!moved)
            self->type->wait(self->t, 0.5);
    }
    meet(self); /* threads' data are read in place until here */
    return 0;
}

/* Rank 0 sends to rank 1 until there is no room; the frames are all there, in
 * order, and then there is room again. */
static int fill_up(rank *self, size_t bytes)
{
    static unsigned char data[16384];
    int one = 1;
    uint32_t count = 0;
    uint64_t ticket = 1;
    if (self->boot.rank == 0) {
        for (lk_frame frame; ticket != 0; count += ticket != 0) {
            frame = frame_of(count, bytes);
            CHECK(self, count < 100000);
            CHECK(self, self->type->send(self->t, &one, 1, &frame, data, &ticket) == LK_OK);
        }
        CHECK(self, count > 1);
        memcpy(self->board->data[0], &count, sizeof count);
    }
    meet(self);
    memcpy(&count, self->board->data[0], sizeof count);
    meet(self);
    for (uint32_t i = 0; i < count && self->boot.rank == 1; i++) {
        const lk_frame *frame = await(self, 0);
        CHECK(self, frame != NULL && frame->call.number == i && frame->bytes == bytes);
        self->type->release(self->t, 0);
    }
    if (self->boot.rank == 0)
        return send_one(self, &one, 1, 7, data, bytes, &ticket);
    if (self->boot.rank == 1) {
        CHECK(self, await(self, 0) != NULL);
        self->type->release(self->t, 0);
    }
    return 0;
}

static int fill_slots(rank *self)
{
    return fill_up(self, 4);
}

static int fill_small(rank *self)
{
    return fill_up(self, 100);
}

static int fill_large(rank *self)
{
    return fill_up(self, 8000);
}

/* A peer that takes nothing does not keep others from getting frames. */
static int starve(rank *self)
{
    static unsigned char data[16384];
    int one = 1, two = 2;
    uint64_t ticket = 1;
    lk_frame frame = frame_of(0, 8000);
    if (self->boot.rank == 0) {
        while (ticket != 0)
            CHECK(self, self->type->send(self->t, &one, 1, &frame, data, &ticket) == LK_OK);
        fill(data, 8000, 3);
        for (uint32_t i = 0; i < 500; i++)
            if (send_one(self, &two, 1, i, data, 8000, &ticket) != 0)
                return 1;
    }
    for (uint32_t i = 0; i < 500 && self->boot.rank == 2; i++)
        if (take(self, 0, i, 3, 8000) != 0)
            return 1;
    meet(self);
    return 0;
}

/* A slot full of nonsense is an error that names its writer. */
static int nonsense(rank *self)
{
    lk_shared *s = (lk_shared *)self->t;
    const size_t line = 128;
    int one = 1;
    uint64_t ticket;
    if (self->boot.rank == 0) {
        if (send_one(self, &one, 1, 0, "x", 1, &ticket) != 0)
            return 1;
        unsigned char *slot = s->segment[0] + line + s->layout.lane_bytes + line;
        memset(slot + sizeof(uint64_t), 0xfe, line - sizeof(uint64_t));
    }
    meet(self);
    if (self->boot.rank == 0)
        return 0;
    CHECK(self, self->type->arrived(self->t, 0) == NULL);
    CHECK(self, self->type->progress(self->t) == LK_STATUS_MISMATCH);
    CHECK(self, strstr(lk_error_detail(), "rank 0 ") != NULL);
    return 0;
}

static void test_all_sizes_around(void **state)
{
    (void)state;
    const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        run_both(sizes[i], around);
}

static void test_all_to_all(void **state)
{
    (void)state;
    const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        run_both(sizes[i], crowd);
}

static void test_no_room(void **state)
{
    (void)state;
    run_both(2, fill_slots);
    run_both(2, fill_small);
    run_both(2, fill_large);
    run_both(3, starve);
}

static void test_lending(void **state)
{
    (void)state;
    run_both(3, lend);
}

static void test_nonsense(void **state)
{
    (void)state;
    run_both(2, nonsense);
}

static void *ring_main(void *arg)
{
    lk__shared_ring(arg);
    return NULL;
}

static void test_ring(void **state)
{
    (void)state;
    board *b = board_create(1);
    rank self = {.board = b, .type = &lk__transport_inproc};
    self.boot = (lk_boot){.rank = 0, .size = 1, .timeout = 60, .exchange = exchange, .check = check, .arg = &self};
    assert_int_equal(self.type->open(&self.boot, &self.t), LK_OK);
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, ring_main, self.t), 0);
        self.type->wait(self.t, 3600); /* a ring that is lost is the test's timeout */
        pthread_join(thread, NULL);
    }
    self.type->close(self.t);
    munmap(b, sizeof *b);
}

static void test_crowded(void **state)
{
    (void)state;
    uint64_t cpus[LK_CPU_WORDS] = {0};
    const int quota = lk__cores_quota("");
    assert_int_equal(lk__bell_cpus_crowded(cpus, 8), quota < 8); /* which CPUs, is unknown */
    cpus[0] = 5;
    cpus[3] = 1;
    assert_int_equal(lk__bell_cpus_crowded(cpus, 3), quota < 3);
    assert_true(lk__bell_cpus_crowded(cpus, 4));
}

/* The default /dev/shm of a container has 64 MB. */
static void test_layout(void **state)
{
    (void)state;
    for (int size = 1; size <= LK_MAX_RANKS; size *= 2) {
        lk_shared_layout l = lk__shared_layout(size, false);
        assert_true(size > 16 || l.bytes * (size_t)size <= 40u << 20);
        assert_true(l.chunk_at[0] >= LK_SHARED_ALIGN + (size_t)size * l.lane_bytes);
        assert_true(l.chunk_at[1] >= l.chunk_at[0] + l.chunks[0] * l.chunk_bytes[0]);
        assert_true(l.bytes >= l.chunk_at[1] + l.chunks[1] * l.chunk_bytes[1]);
        assert_true(size == 1 || (l.chunks[0] >= (uint32_t)size && l.chunks[1] >= (uint32_t)size));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_sizes_around), cmocka_unit_test(test_all_to_all), cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_lending),          cmocka_unit_test(test_nonsense),   cmocka_unit_test(test_ring),
        cmocka_unit_test(test_crowded),          cmocka_unit_test(test_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
