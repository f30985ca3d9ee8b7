/* Collectives on all transports, worlds of 1, 2, 3, 5 and 8. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */
#include "check.h"
#include "comm/collectives.h"

static void run_sizes(const char *transport, const int *sizes, size_t count)
{
    static const effort plan = {.largest = 200003};
    for (size_t i = 0; i < count; i++)
        assert_true(team_run((team_spec){.size = sizes[i], .transport = transport}, try_collectives, &plan));
}

static void thread_ranks_agree(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    run_sizes("inproc", sizes, 5);
}

static void ranks_with_shared_memory_agree(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    run_sizes("shm", sizes, 5);
}

static void ranks_over_sockets_agree(void **state)
{
    static const int sizes[] = {1, 2, 3, 5};
    run_sizes("tcp", sizes, 4);
}

static void ranks_of_several_hosts_agree(void **state)
{
    static const effort plan = {.largest = 200003};
    static const char *const hosts[] = {"ab", "aab", "abbab", "aabbc"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
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
    static const char *const transports[] = {"inproc", "shm", "tcp"};
    for (size_t t = 0; t < sizeof transports / sizeof *transports; t++)
        assert_true(team_run((team_spec){.size = 2, .transport = transports[t]}, thousands_under_way, NULL));
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
    static const char *const transports[] = {"inproc", "shm", "tcp"};
    for (size_t t = 0; t < sizeof transports / sizeof *transports; t++)
        assert_true(team_run((team_spec){.size = 5, .transport = transports[t]}, seven_for_five, NULL));
    assert_int_equal(lk_even_count(7, 5, -1), 0);
    assert_int_equal(lk_even_count(7, 5, 5), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_ranks_agree),
        cmocka_unit_test(ranks_with_shared_memory_agree),
        cmocka_unit_test(ranks_over_sockets_agree),
        cmocka_unit_test(ranks_of_several_hosts_agree),
        cmocka_unit_test(thousands_of_calls_may_be_under_way),
        cmocka_unit_test(a_scatter_without_counts_gives_even_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
