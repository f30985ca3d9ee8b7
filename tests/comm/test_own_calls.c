/* test_own_calls.c - waiting for several requests, messages in a ring, and reductions of the program's own. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */
#include "check.h"
#include "comm/harness.h"

enum { CALLS = 5 };

/* Sums of different sizes under way, which end in any order. */
static bool several(lk_group *group, const team_spec *team, const void *arg)
{
    static const size_t counts[CALLS] = {1, 30011, 7, 0, 4096};
    int size = lk_group_size(group);
    int32_t *values = malloc(CALLS * 30011 * sizeof *values);
    lk_request *requests[CALLS + 1] = {NULL};
    CHECK(values);
    for (int round = 0; round < 4; round++) {
        for (size_t c = 0; c < CALLS; c++) {
            int32_t *mine = values + c * 30011;
            for (size_t i = 0; i < counts[c]; i++)
                mine[i] = (int32_t)(c + i);
            CHECK_OK(lk_allreduce(group, (lk_buffer){mine, counts[c], LK_DTYPE_I32}, LK_REDUCTION_SUM, &requests[c]));
        }
        bool seen[CALLS] = {false};
        for (size_t left = CALLS; round % 2 == 0 && left > 0; left--) {
            size_t index = 99;
            CHECK_OK(lk_request_wait_any(requests, CALLS + 1, &index));
            CHECK(index < CALLS && !seen[index] && !requests[index]);
            seen[index] = true;
        }
        CHECK_OK(lk_request_wait_all(requests, CALLS + 1));
        for (size_t c = 0; c < CALLS; c++) {
            CHECK(!requests[c]);
            for (size_t i = 0; i < counts[c]; i++)
                CHECK(values[c * 30011 + i] == (int32_t)(c + i) * size);
        }
    }
    size_t index = 0;
    CHECK_OK(lk_request_wait_any(requests, CALLS, &index));
    CHECK(index == CALLS);
    free(values);
    return false;
}

/* Every rank sends to the next one and receives from the one before: with frames larger than any buffer. */
static bool ring(lk_group *group, const team_spec *team, const void *arg)
{
    enum { LENGTH = 700001 };
    int rank = lk_group_rank(group), size = lk_group_size(group);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    int32_t *values = malloc(2 * LENGTH * sizeof *values);
    CHECK(values);
    for (size_t i = 0; i < LENGTH; i++)
        values[i] = rank * 1000 + (int32_t)(i % 1000);
    lk_buffer out = {values, LENGTH, LK_DTYPE_I32}, in = {values + LENGTH, LENGTH, LK_DTYPE_I32};
    CHECK_OK(lk_sendrecv(group, out, to, in, from));
    for (size_t i = 0; i < LENGTH; i++)
        CHECK(values[LENGTH + i] == from * 1000 + (int32_t)(i % 1000));
    in.count = 3;
    CHECK_FAILS(lk_sendrecv(group, out, rank, in, rank), LK_STATUS_USAGE, "another type or size");
    /* Nothing is left under way after a wrong argument. */
    if (size > 1) {
        CHECK_FAILS(lk_sendrecv(group, out, size, in, from), LK_STATUS_USAGE, "`to` is rank");
        CHECK_FAILS(lk_sendrecv(group, out, to, in, rank), LK_STATUS_USAGE, "`from` is rank");
        CHECK_FAILS(lk_sendrecv(group, (lk_buffer){NULL, 1, LK_DTYPE_I32}, to, in, from), LK_STATUS_USAGE, "out.at");
    }
    in.count = out.count;
    CHECK_OK(lk_sendrecv(group, out, to, in, from));
    free(values);
    return false;
}

/* left - right: neither associative nor commutative, so it shows the order of the tree. */
static void subtract(void *arg, lk_dtype dtype, const void *left, const void *right, void *out, size_t count)
{
    CHECK(dtype == LK_DTYPE_F64 && *(const int *)arg == 42);
    for (size_t i = 0; i < count; i++)
        ((double *)out)[i] = ((const double *)left)[i] - ((const double *)right)[i];
}

static double expected(int first, int last)
{
    if (last - first == 1)
        return 1 << first;
    int half = 1;
    while (2 * half < last - first)
        half *= 2;
    return expected(first, first + half) - expected(first + half, last);
}

static bool own(lk_group *group, const team_spec *team, const void *arg)
{
    enum { LENGTH = 5003 };
    int rank = lk_group_rank(group), size = lk_group_size(group);
    lk_reduction op = *(const lk_reduction *)arg;
    double *values = malloc(LENGTH * sizeof *values);
    CHECK(values);
    for (size_t i = 0; i < LENGTH; i++)
        values[i] = (double)(1 << rank) * (double)(i + 1);
    CHECK_OK(lk_allreduce(group, (lk_buffer){values, LENGTH, LK_DTYPE_F64}, op, NULL));
    for (size_t i = 0; i < LENGTH; i++)
        CHECK(values[i] == expected(0, size) * (double)(i + 1));
    CHECK_FAILS(lk_allreduce(group, (lk_buffer){values, 1, LK_DTYPE_F64}, (lk_reduction)(LK_REDUCTION_LIMIT - 1), NULL),
                LK_STATUS_USAGE, "no reduction has the number");
    free(values);
    return false;
}

/* The same number, but of different reductions. */
static bool strangers(lk_group *group, const team_spec *team, const void *arg)
{
    static int answer = 42;
    double x = 1;
    lk_reduction op = LK_REDUCTION_SUM;
    CHECK_OK(lk_reduction_register(lk_group_rank(group) == 1 ? "one" : "another", subtract, &answer, &op));
    CHECK_FAILS(lk_allreduce(group, (lk_buffer){&x, 1, LK_DTYPE_F64}, op, NULL), LK_STATUS_MISMATCH, "own reduction");
    return false;
}

static const team_spec teams[] = {
    {.size = 1, .transport = "shm"}, {.size = 3, .transport = "inproc"},
    {.size = 2, .transport = "shm"}, {.size = 5, .transport = "shm"},
    {.size = 3, .transport = "tcp"}, {.size = 5, .transport = "auto", .hosts = "abbab"},
};

static void several_calls_are_awaited(void **state)
{
    team_run_each(teams, COUNT_OF(teams), several, NULL);
}

static void a_ring_does_not_lock(void **state)
{
    team_run_each(teams, COUNT_OF(teams), ring, NULL);
}

/* Registered before there are ranks, so that threads share it. */
static void own_reductions_follow_the_tree(void **state)
{
    static int answer = 42;
    lk_reduction op = LK_REDUCTION_SUM;
    assert_ok(lk_reduction_register("difference", subtract, &answer, &op));
    assert_true(op >= LK_REDUCTION_COUNT);
    lk_reduction again = LK_REDUCTION_MAX;
    assert_fails(lk_reduction_register("difference", subtract, NULL, &again), LK_STATUS_USAGE,
                 "already a reduction 'difference'");
    assert_int_equal(again, LK_REDUCTION_MAX);
    team_run_each(teams, COUNT_OF(teams), own, &op);
}

static void different_reductions_are_told_apart(void **state)
{
    team_run_each((const team_spec[]){{.size = 2, .transport = "shm"}, {.size = 3, .transport = "tcp"}}, 2, strangers,
                  NULL);
}

static void wrong_arguments_are_errors(void **state)
{
    lk_reduction op;
    size_t index;
    lk_request *requests[1] = {NULL};
    assert_fails(lk_reduction_register("x", NULL, NULL, &op), LK_STATUS_USAGE, "combine is NULL");
    assert_fails(lk_reduction_register("", subtract, NULL, &op), LK_STATUS_USAGE, "name");
    assert_fails(lk_request_wait_all(NULL, 1), LK_STATUS_USAGE, "requests");
    assert_fails(lk_request_wait_any(NULL, 1, &index), LK_STATUS_USAGE, "requests");
    assert_fails(lk_request_wait_any(requests, 1, NULL), LK_STATUS_USAGE, "index");
    assert_fails(lk_sendrecv(NULL, (lk_buffer){0}, 0, (lk_buffer){0}, 0), LK_STATUS_USAGE, "group");
}

TEST_MAIN(NULL, NULL, TEST(several_calls_are_awaited), TEST(a_ring_does_not_lock), TEST(own_reductions_follow_the_tree),
          TEST(different_reductions_are_told_apart), TEST(wrong_arguments_are_errors))
