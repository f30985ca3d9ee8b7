/* test_sums.c - sums over the tree have the same bits for every division of the shards among 1, 2,
 * 3, 5 and 8 ranks, over every transport. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */
#include "check.h"
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

static void ranks_of_one_host_have_the_same_bits(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        assert_true(team_run_over(TEAM_WITHOUT_AUTO, (team_spec){.size = sizes[i]}, try_all_sums, cases));
}

static void ranks_of_several_hosts_have_the_same_bits(void **state)
{
    static const char *const hosts[] = {"ab",       "aab",      "abbab",   "aabbc",    "aaaabbbb",
                                        "abababab", "abbbbbbc", "abcdefg", "aabbccdde"};
    for (size_t i = 0; i < COUNT_OF(hosts); i++)
        assert_true(team_run((team_spec){.size = (int)strlen(hosts[i]), .transport = "auto", .hosts = hosts[i]},
                             try_all_sums, cases));
}

enum { SHARE = 300000, WHOLE = 3 * SHARE };

static float value_at(size_t i)
{
    return (float)(i % 1000 + 1);
}

/* Checks this rank's part of the sum of three such vectors. */
static void expect_share(const lk_group *group, const float *at)
{
    size_t first = (size_t)lk_group_rank(group) * SHARE;
    for (size_t i = 0; i < SHARE; i++)
        CHECK(at[i] == 3 * value_at(first + i));
}

static bool results_in_the_data(lk_group *group, const team_spec *team, const void *arg)
{
    static const size_t counts[] = {SHARE, SHARE, SHARE}, places[] = {0, SHARE / 2, SHARE, 2 * SHARE};
    float *whole = malloc(WHOLE * sizeof *whole);
    CHECK(whole);
    for (size_t p = 0; p < COUNT_OF(places); p++) {
        for (size_t i = 0; i < WHOLE; i++)
            whole[i] = value_at(i);
        lk_buffer in = {whole, WHOLE, LK_DTYPE_F32};
        CHECK_OK(lk_reduce_scatter(group, in, counts, whole + places[p], LK_REDUCTION_SUM, NULL));
        expect_share(group, whole + places[p]);
        for (size_t i = 0; i < WHOLE; i++)
            whole[i] = value_at(i);
        lk_shard_sums sums = {(int[]){0, 1, 2, 3}, (const void *[]){whole}};
        lk_buffer out = {whole, SHARE, LK_DTYPE_F32};
        CHECK_OK(lk_reduce_scatter_shards(group, &sums, counts, out, LK_REDUCTION_SUM, NULL));
        expect_share(group, whole);
    }
    free(whole);
    return false;
}

static void results_may_lie_in_the_data(void **state)
{
    assert_true(team_run_over(TEAM_TRANSPORTS, (team_spec){.size = 3, .hosts = "aab"}, results_in_the_data, NULL));
}

/* Longer than one piece of a large sum, and not a multiple of a piece. */
enum { LONG = 2600001, LONG_SHARDS = 5 };

/* Element i of a shard; sums of these values depend on the order of the additions. */
static float shard_value(int shard, size_t i)
{
    uint32_t mixed = ((uint32_t)i * 2654435761u) ^ ((uint32_t)shard * 40503u);
    return (float)(mixed % 1000003u) * (shard % 2 ? 1.0f / 3 : 1e-3f);
}

static float node(int first, int last, size_t i)
{
    int middle = tree_middle(first, last);
    if (last - first == 1)
        return shard_value(first, i);
    return node(first, middle, i) + node(middle, last, i);
}

static bool sum_long_vectors(lk_group *group, const team_spec *team, const void *arg)
{
    static const int bounds[][4] = {{0, 5}, {0, 3, 5}, {0, 1, 3, 5}};
    const int *mine = bounds[team->size - 1];
    int begin[LK_MAX_ROOTS], rank = lk_group_rank(group);
    int roots = lk_shard_roots(LONG_SHARDS, mine[rank], mine[rank + 1], begin);
    float *vectors = malloc((size_t)roots * LONG * sizeof *vectors);
    const void *places[LK_MAX_ROOTS];
    CHECK(vectors);
    for (int r = 0; r < roots; r++) {
        places[r] = vectors + (size_t)r * LONG;
        for (size_t i = 0; i < LONG; i++)
            vectors[(size_t)r * LONG + i] = node(begin[r], r + 1 < roots ? begin[r + 1] : mine[rank + 1], i);
    }
    lk_shard_sums sums = {mine, places};
    CHECK_OK(lk_allreduce_shards(group, &sums, (lk_buffer){vectors, LONG, LK_DTYPE_F32}, LK_REDUCTION_SUM, NULL));
    for (size_t i = 0; i < LONG; i++)
        CHECK(vectors[i] == node(0, LONG_SHARDS, i));
    free(vectors);
    return false;
}

static void long_vectors_have_the_same_bits(void **state)
{
    for (int size = 1; size <= 3; size++)
        assert_true(team_run_over(TEAM_WITHOUT_AUTO, (team_spec){.size = size}, sum_long_vectors, NULL));
}

static void there_are_no_roots_of_no_range(void **state)
{
    int begin[LK_MAX_ROOTS];
    assert_int_equal(lk_shard_roots(10, 4, 12, begin), -1);
    assert_int_equal(lk_shard_roots(10, 6, 4, begin), -1);
    assert_int_equal(lk_shard_roots(10, -1, 4, begin), -1);
    assert_int_equal(lk_shard_roots(0, 0, 0, begin), -1);
    assert_int_equal(lk_shard_roots(10, 4, 4, begin), 0);
    assert_int_equal(lk_shard_roots(10, 0, 10, begin), 1);
}

TEST_MAIN(NULL, NULL, TEST(ranks_of_one_host_have_the_same_bits), TEST(ranks_of_several_hosts_have_the_same_bits),
          TEST(results_may_lie_in_the_data), TEST(long_vectors_have_the_same_bits),
          TEST(there_are_no_roots_of_no_range))
