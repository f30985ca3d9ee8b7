/* test_progress.c - the progress thread: requests advance while the caller makes no call, calls of several groups
 * beside the thread, groups that are destroyed, processes that are forked and a rank that dies meanwhile. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "comm/harness.h"

enum { LARGE = 16 << 20, SMALL = 1000, ROUNDS = 200 };

static const team_spec pair = {.size = 2, .timeout = 60, .hosts = "ab"};

/* Reads the history until it has no call under way. That makes no progress itself. */
static void await_without_calls(const lk_group *group)
{
    struct timespec pause = {.tv_nsec = 1000000};
    char text[8192];
    for (double end = lk__clock() + 60; lk__clock() < end; nanosleep(&pause, NULL)) {
        CHECK(lk_group_history(group, text, sizeof text) <= sizeof text);
        if (!strstr(text, "under way"))
            return;
    }
    CHECK(!"the request has not moved");
}

static bool sum_large(lk_group *group, const team_spec *team, const void *arg)
{
    uint8_t *bytes = NULL;
    lk_request *request = NULL;
    bool done = false;
    CHECK_OK(lk_group_alloc(group, LARGE, (void **)&bytes));
    memset(bytes, 1 + lk_group_rank(group), LARGE);
    CHECK_OK(lk_allreduce(group, (lk_buffer){bytes, LARGE, LK_DTYPE_U8}, LK_REDUCTION_SUM, &request));
    await_without_calls(group);
    CHECK_OK(lk_request_test(request, &done));
    CHECK(done && bytes[0] == 3 && bytes[LARGE - 1] == 3);
    return false;
}

static void sums_advance_while_the_caller_computes(void **state)
{
    assert_true(team_run_over(TEAM_TRANSPORTS, pair, sum_large, NULL));
}

static void add_small(lk_group *group, int32_t numbers[SMALL], lk_request **request)
{
    for (int i = 0; i < SMALL; i++)
        numbers[i] = i + lk_group_rank(group);
    CHECK_OK(lk_allreduce(group, (lk_buffer){numbers, SMALL, LK_DTYPE_I32}, LK_REDUCTION_SUM, request));
}

/* Requests of the whole group and of a part are under way, and blocking calls come in between. */
static bool mix_groups(lk_group *group, const team_spec *team, const void *arg)
{
    lk_group *part = NULL;
    static _Thread_local int32_t first[SMALL], second[SMALL];
    CHECK_OK(lk_group_split(group, 0, 0, &part));
    for (int round = 0; round < ROUNDS; round++) {
        lk_request *one = NULL, *two = NULL;
        add_small(group, first, &one);
        add_small(part, second, &two);
        if (round % 3 == 0)
            CHECK_OK(lk_barrier(part, NULL));
        CHECK_OK(lk_group_poll(group));
        CHECK_OK(lk_request_wait(two));
        CHECK_OK(lk_request_wait(one));
        CHECK(first[SMALL - 1] == 2 * (SMALL - 1) + 1 && second[5] == 11);
    }
    lk_group_destroy(part);
    return false;
}

static void calls_of_several_groups_take_turns(void **state)
{
    assert_true(team_run_over(TEAM_TRANSPORTS, pair, mix_groups, NULL));
}

/* Parts come and go while a sum of the whole group is under way, which is destroyed before it is complete. */
static bool destroy_early(lk_group *group, const team_spec *team, const void *arg)
{
    uint8_t *bytes = NULL;
    lk_request *request = NULL;
    CHECK_OK(lk_group_alloc(group, LARGE, (void **)&bytes));
    memset(bytes, 1, LARGE);
    CHECK_OK(lk_allreduce(group, (lk_buffer){bytes, LARGE, LK_DTYPE_U8}, LK_REDUCTION_SUM, &request));
    for (int round = 0; round < 10; round++) {
        int32_t number = 1;
        lk_group *part = NULL;
        lk_request *small = NULL;
        CHECK_OK(lk_group_split(group, 0, 0, &part));
        CHECK_OK(lk_allreduce(part, (lk_buffer){&number, 1, LK_DTYPE_I32}, LK_REDUCTION_SUM, &small));
        CHECK_OK(lk_request_wait(small));
        lk_group_destroy(part);
    }
    /* The other rank may have left already. */
    lk_status status = lk_allreduce(group, (lk_buffer){bytes, LARGE, LK_DTYPE_U8}, LK_REDUCTION_SUM, &request);
    CHECK(status == LK_OK || status == LK_STATUS_PEER);
    lk_group_destroy(group);
    return true;
}

static void groups_are_destroyed_with_requests_under_way(void **state)
{
    assert_true(team_run_over(TEAM_TRANSPORTS, pair, destroy_early, NULL));
}

/* The thread may have the turn at the moment of a fork, and does not exist in the child. */
static bool fork_often(lk_group *group, const team_spec *team, const void *arg)
{
    uint8_t *bytes = NULL;
    lk_request *request = NULL;
    char text[8192];
    CHECK_OK(lk_group_alloc(group, LARGE, (void **)&bytes));
    memset(bytes, 1, LARGE);
    for (int round = 0; round < 6; round++) {
        CHECK_OK(lk_allreduce(group, (lk_buffer){bytes, LARGE, LK_DTYPE_U8}, LK_REDUCTION_SUM, &request));
        pid_t child = fork();
        if (child == 0) {
            alarm(30);
            bool told = lk_group_history(group, text, sizeof text) > 1;
            lk_group_abort(group, "a child");
            lk_group_destroy(group);
            _exit(told ? 0 : 1);
        }
        int status = -1;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        CHECK_OK(lk_request_wait(request));
    }
    return false;
}

static void children_do_not_wait_for_the_thread(void **state)
{
    static const team_spec teams[] = {{.size = 2, .transport = "shm", .timeout = 60},
                                      {.size = 2, .transport = "tcp", .timeout = 60}};
    team_run_each(teams, COUNT_OF(teams), fork_often, NULL);
}

static bool lose_rank(lk_group *group, const team_spec *team, const void *arg)
{
    int32_t number = 1;
    lk_request *request = NULL;
    if (lk_group_rank(group) == 1)
        raise(SIGKILL);
    lk_status status = lk_allreduce(group, (lk_buffer){&number, 1, LK_DTYPE_I32}, LK_REDUCTION_SUM, &request);
    CHECK_FAILS(status == LK_OK ? lk_request_wait(request) : status, LK_STATUS_PEER, "rank 1");
    return false;
}

static void a_rank_that_dies_is_named(void **state)
{
    static const team_spec teams[] = {{.size = 2, .transport = "shm", .killed = 1U << 1},
                                      {.size = 2, .transport = "tcp", .killed = 1U << 1}};
    team_run_each(teams, COUNT_OF(teams), lose_rank, NULL);
}

static void a_wrong_variable_is_named(void **state)
{
    lk_group *groups[1] = {NULL};
    setenv("LOCKSTEP_PROGRESS_THREAD", "yes", 1);
    assert_fails(lk_group_create_threads(1, NULL, groups), LK_STATUS_USAGE, "LOCKSTEP_PROGRESS_THREAD is 'yes'");
    setenv("LOCKSTEP_PROGRESS_THREAD", "1", 1);
}

static int start_with_the_thread(void **state)
{
    return setenv("LOCKSTEP_PROGRESS_THREAD", "1", 1);
}

TEST_MAIN(start_with_the_thread, NULL, TEST(sums_advance_while_the_caller_computes),
          TEST(calls_of_several_groups_take_turns), TEST(groups_are_destroyed_with_requests_under_way),
          TEST(children_do_not_wait_for_the_thread), TEST(a_rank_that_dies_is_named), TEST(a_wrong_variable_is_named))
