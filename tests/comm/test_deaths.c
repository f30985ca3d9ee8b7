/* test_deaths.c - all other ranks name a rank that is killed inside a collective, and a rank that
 * takes nothing. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */
#include "check.h"
#include "comm/deaths.h"

static const team_spec teams[] = {
    {.size = 3, .transport = "shm"},
    {.size = 3, .transport = "tcp"},
    {.size = 3, .transport = "auto", .hosts = "aab"},
};

static void a_killed_rank_is_named(void **state)
{
    for (size_t t = 0; t < COUNT_OF(teams); t++)
        for (size_t i = 0; i < DEATHS; i++)
            assert_true(run_death(teams[t], 1, i, 1));
}

static void a_killed_rank_0_is_named(void **state)
{
    for (size_t t = 0; t < COUNT_OF(teams); t++)
        for (size_t i = 0; i < DEATHS; i += 3)
            assert_true(run_death(teams[t], 0, i, 0));
}

/* More data than a transport buffers for a rank that takes nothing. */
enum { MUCH = 1 << 24 };

/* Rank 0 sends to rank 1. Rank 1 takes nothing until the timeout of rank 0. */
static bool rank_1_takes_nothing(lk_group *group, const team_spec *team, const void *arg)
{
    static float data[MUCH];
    CHECK_OK(lk_barrier(group, NULL));
    if (lk_group_rank(group) == 1)
        while (lk_group_poll(group) == LK_OK)
            sleep_ms(10);
    else
        CHECK(lk_send(group, (lk_buffer){data, MUCH, LK_DTYPE_F32}, 1, NULL) == LK_STATUS_PEER);
    CHECK_TEXT(lk_error_detail(), "for rank 1 to take what was sent: that is its timeout; is rank 1 (host ");
    CHECK_TEXT(lk_error_detail(), ") stopped");
    return false;
}

static void a_rank_that_takes_nothing_is_named(void **state)
{
    assert_true(team_run_over(TEAM_WITHOUT_AUTO, (team_spec){.size = 2, .timeout = 1}, rank_1_takes_nothing, NULL));
}

TEST_MAIN(NULL, NULL, TEST(a_killed_rank_is_named), TEST(a_killed_rank_0_is_named),
          TEST(a_rank_that_takes_nothing_is_named))
