/* test_deaths_more.c - a rank that is killed inside a collective of 5 or 8 ranks, and the notice of
 * a rank that waits. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */
#include "check.h"
#include "comm/deaths.h"

static const team_spec teams[] = {
    {.size = 5, .transport = "shm"},
    {.size = 5, .transport = "tcp"},
    {.size = 5, .transport = "auto", .hosts = "abbab"},
    {.size = 8, .transport = "auto", .hosts = "aaaabbbb"},
};

static void a_killed_rank_is_named(void **state)
{
    static const int ranks[] = {0, 2, 4};
    for (size_t t = 0; t < COUNT_OF(teams); t++)
        for (size_t i = 0; i < DEATHS; i++)
            for (size_t r = 0; r < COUNT_OF(ranks); r++)
                assert_true(run_death(teams[t], ranks[r], i, (int)(r + i) % 4));
}

/* Rank 1 makes no call until the timeout of the others, before which rank 0 gives *arg notices. */
static bool rank_1_stays_away(lk_group *group, const team_spec *team, const void *arg)
{
    CHECK_OK(lk_barrier(group, NULL));
    if (lk_group_rank(group) == 1)
        while (lk_group_poll(group) == LK_OK)
            sleep_ms(10);
    CHECK_FAILS(lk_barrier(group, NULL), LK_STATUS_PEER, "for rank 1: that is its timeout");
    int notices = *(const int *)arg;
    if (lk_group_rank(group) == 0) {
        CHECK(team->page->notices == notices);
        CHECK_TEXT(team->page->text, notices ? "rank 0 waits in barrier #1 for rank 1, " : "");
    }
    return false;
}

static void waiting_is_told(void **state)
{
    const int notices = 1;
    assert_true(team_run_over(TEAM_WITHOUT_AUTO, (team_spec){.size = 2, .timeout = 7}, rank_1_stays_away, &notices));
}

/* The first notice would be at 5 s, which is the timeout: nothing is left to wait. */
static void a_timeout_is_not_told_as_a_wait(void **state)
{
    const int notices = 0;
    assert_true(team_run_over(TEAM_WITHOUT_AUTO, (team_spec){.size = 2, .timeout = 5}, rank_1_stays_away, &notices));
}

TEST_MAIN(NULL, NULL, TEST(a_killed_rank_is_named), TEST(waiting_is_told), TEST(a_timeout_is_not_told_as_a_wait))
