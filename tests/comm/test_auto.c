/* test_auto.c - the auto transport. Host keys are set here: on one machine, ranks are on one host or
 * on several. */
#include "comm/ranks.h"

/* One digit for the host of each rank. */
static const char *const mixes[] = {"112", "121", "12121", "11122", "11122233", "12345671"};
enum { MIXES = COUNT_OF(mixes) };

static void run_hosts(const char *hosts, rank_fn fn, const void *arg, unsigned killed)
{
    meeting *shared = meeting_create((int)strlen(hosts));
    for (int r = 0; r < shared->size; r++)
        shared->members[r].host_key = (uint64_t)hosts[r];
    assert_true(run_ranks(shared, fn, arg, killed));
    meeting_destroy(shared);
}

static lk_transport *open_at(place *at, const char *name)
{
    lk_boot boot = meeting_boot(at, 60);
    lk_transport *t = NULL;
    CHECK_OK(lk__transport_auto.open(&boot, &t));
    CHECK(strcmp(t->type->name, name) == 0);
    return t;
}

static void talk(place *at, const void *name)
{
    static const size_t sizes[] = {0, 4, 100, 5000, 100001, 1500000, 0, 3};
    lk_transport *t = open_at(at, name);
    all_to_all(t, at->rank, at->shared->size, sizes, COUNT_OF(sizes));
    multicast(t, at->rank, at->shared->size, 0);
    multicast(t, at->rank, at->shared->size, 4000);
    together(at);
    t->type->close(t);
}

static void plain_cases_have_their_own_transport(void **state)
{
    run_hosts("1", talk, "shm", 0);
    run_hosts("111", talk, "shm", 0);
    run_hosts("12", talk, "tcp", 0);
    run_hosts("321", talk, "tcp", 0);
}

static void mixed_hosts_talk(void **state)
{
    for (int i = 0; i < MIXES; i++)
        run_hosts(mixes[i], talk, "auto", 0);
}

/* Frames from the same host and from another host end a long wait. */
static void sleep_long(place *at, const void *arg)
{
    lk_transport *t = open_at(at, "auto");
    int next = (at->rank + 1) % at->shared->size, before = (at->rank + at->shared->size - 1) % at->shared->size;
    for (int turn = 0; turn < 5; turn++) {
        lk_frame frame = frame_of(turn, 0);
        uint64_t ticket = 0;
        for (int half = 0; half < 2; half++) {
            if ((half == 0) == (at->rank == 0)) {
                sleep_ms(3);
                CHECK_OK(t->type->send(t, &next, 1, &frame, NULL, &ticket));
                CHECK(ticket);
                continue;
            }
            while (!t->type->arrived(t, before)) {
                CHECK_OK(t->type->progress(t));
                if (!t->type->arrived(t, before))
                    t->type->wait(t, 10 * PROCESS_SECONDS);
            }
            CHECK(t->type->arrived(t, before)->part == (uint32_t)turn);
            t->type->release(t, before);
        }
    }
    together(at);
    t->type->close(t);
}

static void sleepers_are_woken(void **state)
{
    run_hosts("112", sleep_long, NULL, 0);
    run_hosts("12121", sleep_long, NULL, 0);
}

/* Every rank sends from a block whose size differs from rank to rank. */
static void use_blocks(place *at, const void *arg)
{
    lk_transport *t = open_at(at, "auto");
    void *blocks[3] = {NULL};
    for (size_t i = 0; i < 3; i++) {
        size_t bytes = 1000 + 300000 * i + (size_t)at->rank;
        CHECK_OK(t->type->alloc(t, bytes, &blocks[i]));
        CHECK((uintptr_t)blocks[i] % 64 == 0);
        for (size_t k = 0; k < bytes; k++)
            CHECK(((uint8_t *)blocks[i])[k] == 0);
        memset(blocks[i], at->rank + 1, bytes);
    }
    t->type->free(t, blocks[1]);
    int peers[MAX_TEST_RANKS], count = peers_of(at->rank, at->shared->size, peers);
    enum { BYTES = 500000 };
    CHECK(t->type->max_frame(t, blocks[2], BYTES) >= BYTES);
    static uint8_t into[BYTES];
    lk_frame frame = frame_of(0, BYTES);
    uint64_t ticket = 0;
    CHECK_OK(t->type->send(t, peers, count, &frame, blocks[2], &ticket));
    CHECK(ticket);
    for (int p = 0; p < count; p++) {
        const void *there = await_payload(t, peers[p], into);
        for (size_t k = 0; k < BYTES; k++)
            CHECK(((const uint8_t *)there)[k] == peers[p] + 1);
        t->type->release(t, peers[p]);
    }
    await_sent(t, ticket);
    together(at);
    t->type->free(t, blocks[0]);
    t->type->close(t);
}

static void blocks_are_for_all_ranks(void **state)
{
    run_hosts("112", use_blocks, NULL, 0);
    run_hosts("12121", use_blocks, NULL, 0);
}

static void want_too_much(place *at, const void *arg)
{
    lk_transport *t = open_at(at, "auto");
    void *block = NULL;
    CHECK(t->type->alloc(t, at->rank == 1 ? SIZE_MAX : 1000, &block) != LK_OK && !block);
    CHECK_OK(t->type->alloc(t, 1000, &block));
    multicast(t, at->rank, at->shared->size, 100);
    together(at);
    t->type->close(t);
}

static void no_memory_at_one_is_a_failure_at_all(void **state)
{
    run_hosts("112", want_too_much, NULL, 0);
    run_hosts("1233", want_too_much, NULL, 0);
}

/* Rank 1 dies; rank 2 is on another host and names it. */
static void die(place *at, const void *arg)
{
    enum { BYTES = 64 << 20 };
    lk_transport *t = open_at(at, "auto");
    together(at);
    if (at->rank == 1)
        raise(SIGKILL);
    if (at->rank == 2) {
        CHECK_FAILS(await_failure(t, 1), LK_STATUS_PEER, "rank 1");
        CHECK_TEXT(lk_error_detail(), "node1");
    }
    t->type->close(t);
}

static void a_dead_rank_of_another_host_is_named(void **state)
{
    run_hosts("112", die, NULL, 1u << 1);
}

TEST_MAIN(NULL, NULL, TEST(plain_cases_have_their_own_transport), TEST(mixed_hosts_talk), TEST(sleepers_are_woken),
          TEST(blocks_are_for_all_ranks), TEST(no_memory_at_one_is_a_failure_at_all),
          TEST(a_dead_rank_of_another_host_is_named))
