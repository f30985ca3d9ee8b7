/* test_sums_more.c - sums over the tree, with vectors of a megabyte and up to 16 ranks. */
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
    team_run_each(teams, COUNT_OF(teams), try_all_sums, cases);
}

TEST_MAIN(NULL, NULL, TEST(long_sums_have_the_same_bits))
