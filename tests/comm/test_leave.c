/* test_leave.c - ranks that leave a group: a rank that waits for them gets an error at once, a rank
 * that has all data it needs from them works on. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */
#include "check.h"
#include "comm/harness.h"

/* Much longer than the tests: an error that arrives has not waited for the timeout. */
#define LONG_TIMEOUT 100.0

/* More data than rings and sockets hold after a few calls. It outlives ranks that are threads:
 * peers may still read data that a failed rank has sent. */
enum { COUNT = 271968, CALLS = 64, RANKS = 3 };
static float memory[RANKS][COUNT];

static lk_status broadcast(lk_group *group, lk_buffer data)
{
    return lk_broadcast(group, data, 0, NULL);
}

static lk_status send_to_1(lk_group *group, lk_buffer data)
{
    return lk_send(group, data, 1, NULL);
}

/* The message to the rank that left was started after one from a rank that is late. */
static lk_status send_behind_recv(lk_group *group, lk_buffer data)
{
    static float late;
    lk_request *recv = NULL, *send = NULL;
    lk_status status = lk_recv(group, (lk_buffer){&late, 1, LK_DTYPE_F32}, 2, &recv);
    for (int i = 0; i < CALLS && status == LK_OK; i++) {
        status = lk_send(group, data, 1, &send);
        if (status == LK_OK)
            status = lk_request_wait(send);
    }
    lk_status late_status = lk_request_wait(recv);
    return status == LK_OK ? late_status : status;
}

typedef struct leave_case {
    lk_status (*call)(lk_group *group, lk_buffer data);
    bool split;
} leave_case;

static const leave_case cases[] = {
    {broadcast, false}, {broadcast, true}, {send_to_1, false}, {send_behind_recv, false}};

/* Rank 2 makes no call until it gets the error. */
static void stay(lk_group *group)
{
    while (lk_group_poll(group) == LK_OK)
        sleep_ms(10);
}

static bool rank_1_leaves(lk_group *group, const team_spec *team, const void *arg)
{
    const leave_case *at = arg;
    lk_group *part = NULL;
    lk_status status = LK_OK;
    int rank = lk_group_rank(group);
    CHECK_OK(lk_group_split(group, 0, 0, &part));
    CHECK_OK(lk_barrier(part, NULL));
    for (int i = 0; rank == 0 && i < CALLS && status == LK_OK; i++)
        status = at->call(at->split ? part : group, (lk_buffer){memory[0], COUNT, LK_DTYPE_F32});
    if (rank == 0) {
        CHECK_FAILS(status, LK_STATUS_PEER, "rank 1 (host ");
        CHECK_TEXT(lk_error_detail(), "has left the group while rank 0 waits in ");
        CHECK_TEXT(lk_error_detail(), " for it to take what was sent");
    }
    if (rank == 2) {
        stay(group);
        CHECK_TEXT(lk_error_detail(), "has left the group while rank 0 waits in ");
    }
    lk_group_destroy(part);
    return false;
}

static bool run_over_all(team_fn fn, const void *arg)
{
    return team_run_over(TEAM_TRANSPORTS, (team_spec){.size = RANKS, .timeout = LONG_TIMEOUT, .hosts = "aba"}, fn, arg);
}

static void a_rank_that_left_and_should_take_is_named(void **state)
{
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        if (!run_over_all(rank_1_leaves, &cases[i]))
            fail_msg("case %zu", i);
}

/* Rank 1 receives its data and leaves; rank 2 makes the call half a second later. A multicast from
 * group memory has one ticket for both. */
static bool rank_1_takes_and_leaves(lk_group *group, const team_spec *team, const void *arg)
{
    void *block = NULL;
    CHECK_OK(lk_group_alloc(group, sizeof memory[0], &block));
    float *floats = block;
    for (int i = 0; i < COUNT; i++)
        floats[i] = lk_group_rank(group) == 0 ? (float)i : 0;
    CHECK_OK(lk_barrier(group, NULL));
    if (lk_group_rank(group) == 2)
        sleep_ms(500);
    CHECK_OK(lk_broadcast(group, (lk_buffer){floats, COUNT, LK_DTYPE_F32}, 0, NULL));
    for (int i = 0; i < COUNT; i++)
        CHECK(floats[i] == (float)i);
    lk_group_free(group, block);
    return false;
}

static void a_rank_that_took_all_may_leave(void **state)
{
    assert_true(run_over_all(rank_1_takes_and_leaves, NULL));
}

TEST_MAIN(NULL, NULL, TEST(a_rank_that_left_and_should_take_is_named), TEST(a_rank_that_took_all_may_leave))
