/* Sums over the canonical tree have the same bits for every cut of the shards
 * among 1, 2, 3, 5 and 8 ranks, on every transport. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/sums.h"

static const sum_case cases[] = {
    {16, 900, LK_DTYPE_F32, LK_REDUCTION_SUM},
    {16, 12007, LK_DTYPE_F32, LK_REDUCTION_MEAN},
    {8, 3000, LK_DTYPE_BF16, LK_REDUCTION_SUM},
    {5, 700, LK_DTYPE_F64, LK_REDUCTION_SUM},
    {5, 5003, LK_DTYPE_F32, LK_REDUCTION_SUM},
    {64, 301, LK_DTYPE_F32, LK_REDUCTION_SUM},
    {16, 3001, LK_DTYPE_F64, LK_REDUCTION_MEAN},
    {8, 150, LK_DTYPE_BF16, LK_REDUCTION_MEAN},
    {16, 500, LK_DTYPE_I32, LK_REDUCTION_MEAN},
    {16, 500, LK_DTYPE_F32, LK_REDUCTION_MAX},
    {16, 3, LK_DTYPE_F32, LK_REDUCTION_SUM},
    {16, 0, LK_DTYPE_F32, LK_REDUCTION_SUM},
    {0},
};
static const int sizes[] = {1, 2, 3, 5, 8};

static void run_sizes(const char *transport)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_true(team_run((team_spec){.size = sizes[i], .transport = transport}, try_all_sums, cases));
}

static void thread_ranks_have_the_same_bits(void **state)
{
    (void)state;
    run_sizes("inproc");
}

static void ranks_with_shared_memory_have_the_same_bits(void **state)
{
    (void)state;
    run_sizes("shm");
}

static void ranks_over_sockets_have_the_same_bits(void **state)
{
    (void)state;
    run_sizes("tcp");
}

static void ranks_of_several_hosts_have_the_same_bits(void **state)
{
    static const char *const hosts[] = {"ab", "aab", "abbab", "aabbc", "aaaabbbb", "abababab", "abbbbbbc"};
    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        assert_true(team_run((team_spec){.size = (int)strlen(hosts[i]), .transport = "auto", .hosts = hosts[i]},
                             try_all_sums, cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_ranks_have_the_same_bits),
        cmocka_unit_test(ranks_with_shared_memory_have_the_same_bits),
        cmocka_unit_test(ranks_over_sockets_have_the_same_bits),
        cmocka_unit_test(ranks_of_several_hosts_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
