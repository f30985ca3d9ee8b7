/* Sums over the canonical tree, with vectors of a megabyte and sixteen ranks. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */
#include "check.h"
#include "comm/sums.h"

static const sum_case cases[] = {
    {16, 300007, LK_DTYPE_F32, LK_REDUCTION_SUM},
    {64, 70001, LK_DTYPE_F64, LK_REDUCTION_MEAN},
    {5, 200003, LK_DTYPE_BF16, LK_REDUCTION_SUM},
    {64, 1000, LK_DTYPE_F32, LK_REDUCTION_SUM},
    {0},
};
static const team_spec teams[] = {
    {.size = 2, .transport = "tcp"},
    {.size = 3, .transport = "shm"},
    {.size = 5, .transport = "inproc"},
    {.size = 8, .transport = "tcp"},
    {.size = 8, .transport = "auto", .hosts = "aabbbbbb"},
    {.size = 16, .transport = "inproc"},
    {.size = 16, .transport = "shm"},
    {.size = 16, .transport = "tcp"},
    {.size = 16, .transport = "auto", .hosts = "abcabcabcabcabca"},
};

static void long_sums_have_the_same_bits(void **state)
{
    for (size_t i = 0; i < sizeof teams / sizeof *teams; i++)
        assert_true(team_run(teams[i], try_all_sums, cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(long_sums_have_the_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
