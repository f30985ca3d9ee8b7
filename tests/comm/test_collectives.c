/* test_collectives.c - collectives over all transports, with 1, 2, 3, 5 and 8 ranks. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */
#include "check.h"
#include "comm/collectives.h"

/* Each element is computed and compared by code of the test, which sanitizers make slow. */
#if defined(LK_SANITIZED)
static const effort plan = {.largest = 20011};
#else
static const effort plan = {.largest = 200003};
#endif

/* tcp has 8 ranks in test_collectives_more.c. */
static void ranks_of_one_host_agree(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        assert_true(team_run_over(sizes[i] == 8 ? 2 : TEAM_WITHOUT_AUTO, (team_spec){.size = sizes[i]}, try_collectives,
                                  &plan));
}

static void ranks_of_several_hosts_agree(void **state)
{
    static const char *const hosts[] = {"ab", "aab", "abbab", "aabbc"};
    for (size_t i = 0; i < COUNT_OF(hosts); i++)
        assert_true(team_run((team_spec){.size = (int)strlen(hosts[i]), .transport = "auto", .hosts = hosts[i]},
                             try_collectives, &plan));
}

static bool thousands_under_way(lk_group *group, const team_spec *team, const void *arg)
{
    enum { CALLS = 5000 };
    int rank = lk_group_rank(group), size = lk_group_size(group);
    float *numbers = malloc(CALLS * sizeof *numbers);
    lk_request **requests = malloc(CALLS * sizeof(lk_request *));
    CHECK(numbers && requests);
    for (int reverse = 0; reverse < 2; reverse++) {
        for (int i = 0; i < CALLS; i++) {
            numbers[i] = (float)(i + rank);
            lk_buffer one = {numbers + i, 1, LK_DTYPE_F32};
            CHECK_OK(lk_allreduce(group, one, LK_REDUCTION_SUM, &requests[i]));
        }
        for (int i = 0; i < CALLS; i++)
            CHECK_OK(lk_request_wait(requests[reverse ? CALLS - 1 - i : i]));
        for (int i = 0; i < CALLS; i++)
            CHECK(numbers[i] == (float)(size * i + size * (size - 1) / 2));
    }
    free(requests);
    free(numbers);
    return false;
}

static void thousands_of_calls_may_be_under_way(void **state)
{
    assert_true(team_run_over(TEAM_WITHOUT_AUTO, (team_spec){.size = 2}, thousands_under_way, NULL));
}

static bool seven_for_five(lk_group *group, const team_spec *team, const void *arg)
{
    int rank = lk_group_rank(group);
    int32_t in[7], out[8];
    size_t first = 0, total = 0;
    for (int r = 0; r < 5; r++) {
        first += r < rank ? lk_even_count(7, 5, r) : 0;
        total += lk_even_count(7, 5, r);
    }
    CHECK(total == 7);
    for (int i = 0; i < 7; i++)
        in[i] = 10 * i + rank;
    for (int i = 0; i < 8; i++)
        out[i] = -1;
    CHECK_OK(lk_reduce_scatter(group, (lk_buffer){in, 7, LK_DTYPE_I32}, NULL, out, LK_REDUCTION_SUM, NULL));
    for (size_t i = 0; i < 8; i++)
        CHECK(out[i] == (i < lk_even_count(7, 5, rank) ? (int32_t)(50 * (first + i) + 10) : -1));
    return false;
}

static void a_scatter_without_counts_gives_even_shares(void **state)
{
    assert_true(team_run_over(TEAM_WITHOUT_AUTO, (team_spec){.size = 5}, seven_for_five, NULL));
    assert_int_equal(lk_even_count(7, 5, -1), 0);
    assert_int_equal(lk_even_count(7, 5, 5), 0);
}

TEST_MAIN(NULL, NULL, TEST(ranks_of_one_host_agree), TEST(ranks_of_several_hosts_agree),
          TEST(thousands_of_calls_may_be_under_way), TEST(a_scatter_without_counts_gives_even_shares))
