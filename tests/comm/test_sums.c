/* Sums over the canonical tree have the same bits for every cut of the shards
 * among 1, 2, 3, 5 and 8 ranks, on every transport. */
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
static const int sizes[] = {1, 2, 3, 5, 8};

static void run_sizes(const char *transport)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_true(team_run((team_spec){.size = sizes[i], .transport = transport}, try_all_sums, cases));
}

static void thread_ranks_have_the_same_bits(void **state)
{
    run_sizes("inproc");
}

static void ranks_with_shared_memory_have_the_same_bits(void **state)
{
    run_sizes("shm");
}

static void ranks_over_sockets_have_the_same_bits(void **state)
{
    run_sizes("tcp");
}

static void ranks_of_several_hosts_have_the_same_bits(void **state)
{
    static const char *const hosts[] = {"ab", "aab", "abbab", "aabbc", "aaaabbbb", "abababab", "abbbbbbc"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        assert_true(team_run((team_spec){.size = (int)strlen(hosts[i]), .transport = "auto", .hosts = hosts[i]},
                             try_all_sums, cases));
}

enum { SHARE = 300000, WHOLE = 3 * SHARE };

static float value_at(size_t i)
{
    return (float)(i % 1000 + 1);
}

/* This rank's share of the sum of three such vectors. */
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
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
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
    static const team_spec teams[] = {
        {.size = 3, .transport = "inproc"},
        {.size = 3, .transport = "shm"},
        {.size = 3, .transport = "tcp"},
        {.size = 3, .transport = "auto", .hosts = "aab"},
    };
    for (size_t t = 0; t < sizeof teams / sizeof *teams; t++)
        assert_true(team_run(teams[t], results_in_the_data, NULL));
}

/* More than a piece of a large sum, and not a multiple of one. */
enum { LONG = 2600001, LONG_SHARDS = 5 };

/* Element i of a shard; sums of such values depend on their order. */
static float shard_value(int shard, size_t i)
{
    uint32_t mixed = ((uint32_t)i * 2654435761u) ^ ((uint32_t)shard * 40503u);
    return (float)(mixed % 1000003u) * (shard % 2 ? 1.0f / 3 : 1e-3f);
}

static float node(int first, int last, size_t i)
{
    int middle = first + 1;
    if (last - first == 1)
        return shard_value(first, i);
    while (2 * (middle - first) < last - first)
        middle = first + 2 * (middle - first);
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
    static const char *const transports[] = {"inproc", "shm", "tcp"};
    for (size_t t = 0; t < sizeof transports / sizeof *transports; t++)
        for (int size = 1; size <= 3; size++)
            assert_true(team_run((team_spec){.size = size, .transport = transports[t]}, sum_long_vectors, NULL));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_ranks_have_the_same_bits),
        cmocka_unit_test(ranks_with_shared_memory_have_the_same_bits),
        cmocka_unit_test(ranks_over_sockets_have_the_same_bits),
        cmocka_unit_test(ranks_of_several_hosts_have_the_same_bits),
        cmocka_unit_test(results_may_lie_in_the_data),
        cmocka_unit_test(long_vectors_have_the_same_bits),
        cmocka_unit_test(there_are_no_roots_of_no_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
