/* test_parts.c - parts of a group (lk_group_split): the order of their ranks, calls of parts beside
 * calls of the whole group, and parts of parts. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */
#include "check.h"
#include "comm/harness.h"

static int32_t sum_of(lk_group *group, int32_t mine)
{
    CHECK_OK(lk_allreduce(group, (lk_buffer){&mine, 1, LK_DTYPE_I32}, LK_REDUCTION_SUM, NULL));
    return mine;
}

/* Sums a vector that is long enough to be divided into segments. */
static void sum_long(lk_group *group, int32_t mine, int32_t want)
{
    enum { LENGTH = 30011 };
    int32_t *numbers = malloc(LENGTH * sizeof *numbers);
    CHECK(numbers);
    for (int i = 0; i < LENGTH; i++)
        numbers[i] = mine + i;
    CHECK_OK(lk_allreduce(group, (lk_buffer){numbers, LENGTH, LK_DTYPE_I32}, LK_REDUCTION_SUM, NULL));
    for (int i = 0; i < LENGTH; i++)
        CHECK(numbers[i] == want + i * lk_group_size(group));
    free(numbers);
}

/* Two parts, even and odd ranks, each in reverse order. */
static bool halves(lk_group *group, const team_spec *team, const void *arg)
{
    int rank = lk_group_rank(group), size = lk_group_size(group);
    int colour = rank % 2, members = (size + 1 - colour) / 2, before = (size - 1 - rank) / 2;
    int32_t want = 0, ranks[TEAM_MAX];
    lk_group *part = NULL;
    for (int r = colour; r < size; r += 2)
        want += 100 + r;
    CHECK_OK(lk_group_split(group, colour, -rank, &part));
    CHECK(lk_group_size(part) == members && lk_group_rank(part) == before);
    CHECK(strcmp(lk_group_host(part, before), lk_group_host(group, rank)) == 0);
    CHECK(sum_of(part, 100 + rank) == want);
    sum_long(part, 100 + rank, want);
    CHECK_OK(lk_allgather(part, (lk_buffer){&(int32_t){rank}, 1, LK_DTYPE_I32}, NULL, ranks, NULL));
    for (int i = 0; i < members; i++)
        CHECK(ranks[i] == ranks[0] - 2 * i && ranks[i] % 2 == colour);
    /* Calls of the whole group and of a part are under way at once. */
    lk_request *whole_call = NULL, *part_call = NULL;
    int32_t a = rank, b = rank;
    CHECK_OK(lk_allreduce(group, (lk_buffer){&a, 1, LK_DTYPE_I32}, LK_REDUCTION_MAX, &whole_call));
    CHECK_OK(lk_allreduce(part, (lk_buffer){&b, 1, LK_DTYPE_I32}, LK_REDUCTION_MIN, &part_call));
    CHECK_OK(lk_request_wait(part_call));
    CHECK_OK(lk_request_wait(whole_call));
    CHECK(a == size - 1 && b == colour);
    lk_group_destroy(part);
    CHECK(sum_of(group, 1) == size);
    return false;
}

/* First rank 0 alone has a part; then the others have one, with parts of it. */
static bool loners(lk_group *group, const team_spec *team, const void *arg)
{
    int rank = lk_group_rank(group), size = lk_group_size(group);
    lk_group *part = NULL, *inner = NULL;
    CHECK_OK(lk_group_split(group, rank == 0 ? 7 : -1, 0, &part));
    CHECK((part != NULL) == (rank == 0));
    if (part) {
        CHECK(lk_group_size(part) == 1);
        CHECK(sum_of(part, 5) == 5);
    }
    lk_group_destroy(part);
    part = NULL;
    CHECK_OK(lk_group_split(group, rank == 0 ? -1 : 0, 0, &part));
    CHECK((part == NULL) == (rank == 0));
    if (part) {
        CHECK(lk_group_size(part) == size - 1 && lk_group_rank(part) == rank - 1);
        CHECK_OK(lk_group_split(part, rank == 1, 0, &inner));
        CHECK(lk_group_size(inner) == (rank == 1 ? 1 : size - 2));
        CHECK(sum_of(inner, 3) == 3 * lk_group_size(inner));
        CHECK(sum_of(part, 2) == 2 * (size - 1));
    }
    CHECK(sum_of(group, 1) == size);
    lk_group_destroy(inner);
    lk_group_destroy(part);
    CHECK_OK(lk_barrier(group, NULL));
    return false;
}

/* Parts of a destroyed group: calls fail with a detail, and the parts can be destroyed. */
static bool orphans(lk_group *group, const team_spec *team, const void *arg)
{
    lk_group *part = NULL, *other = NULL;
    float x = 1;
    CHECK_OK(lk_group_split(group, 0, 0, &part));
    CHECK_OK(lk_group_split(group, lk_group_rank(group) % 2, 0, &other));
    CHECK(sum_of(part, 1) == lk_group_size(group));
    lk_group_destroy(group);
    CHECK(lk_allreduce(part, (lk_buffer){&x, 1, LK_DTYPE_F32}, LK_REDUCTION_SUM, NULL) == LK_STATUS_USAGE);
    CHECK_TEXT(lk_error_detail(), "was destroyed");
    lk_group_destroy(part);
    lk_group_destroy(other);
    return true;
}

/* Different calls in a part: all ranks of the job get the error, also ranks without a part. */
static bool quarrel(lk_group *group, const team_spec *team, const void *arg)
{
    int rank = lk_group_rank(group);
    lk_group *part = NULL;
    lk_status status = LK_OK;
    float x[8] = {0};
    CHECK_OK(lk_group_split(group, rank == 0 ? -1 : 1, 0, &part));
    if (rank == 0)
        status = lk_barrier(group, NULL);
    else
        status = lk_allreduce(part, (lk_buffer){x, rank == 1 ? 3u : 4u, LK_DTYPE_F32}, LK_REDUCTION_SUM, NULL);
    CHECK_FAILS(status, LK_STATUS_MISMATCH, "rank 1 called allreduce #0 (3 f32, sum) in group ");
    CHECK_TEXT(lk_error_detail(), "rank 2 called allreduce #0 (4 f32, sum) in group ");
    CHECK(lk_barrier(group, NULL) == LK_STATUS_MISMATCH);
    CHECK(!part || lk_barrier(part, NULL) == LK_STATUS_MISMATCH);
    lk_group_destroy(part);
    return false;
}

/* One part for each host. */
static bool hosts(lk_group *group, const team_spec *team, const void *arg)
{
    int rank = lk_group_rank(group);
    lk_group *part = NULL;
    void *block = NULL;
    CHECK_OK(lk_group_split(group, team->hosts[rank], rank, &part));
    CHECK(lk_group_size(part) == lk_group_local_size(group));
    CHECK(lk_group_rank(part) == lk_group_local_rank(group));
    CHECK_OK(lk_group_alloc(part, 4 * sizeof(int32_t), &block));
    *(int32_t *)block = 1;
    CHECK_OK(lk_allreduce(part, (lk_buffer){block, 1, LK_DTYPE_I32}, LK_REDUCTION_SUM, NULL));
    CHECK(*(int32_t *)block == lk_group_size(part));
    lk_group_destroy(part);
    CHECK_OK(lk_barrier(group, NULL));
    return false;
}

/* A call that rank 0 makes before it waits for its sum, and the other ranks after. */
typedef lk_status (*errand_fn)(lk_group *busy, lk_group *idle);

static lk_status barrier_of_idle(lk_group *busy, lk_group *idle)
{
    return lk_barrier(idle, NULL);
}

static lk_status block_of_idle(lk_group *busy, lk_group *idle)
{
    void *block = NULL;
    return lk_group_alloc(idle, 100, &block);
}

static lk_status block_of_busy(lk_group *busy, lk_group *idle)
{
    void *block = NULL;
    return lk_group_alloc(busy, 100, &block);
}

/* All ranks start the same calls in the same order and wait for them in different orders. */
static bool crossed_waits(lk_group *group, const team_spec *team, const void *arg)
{
    enum { LENGTH = 1 << 20 };
    const errand_fn *errand = arg;
    int rank = lk_group_rank(group);
    lk_group *busy = NULL, *idle = NULL;
    lk_request *request = NULL;
    float *numbers = malloc(LENGTH * sizeof *numbers);
    CHECK(numbers);
    for (int i = 0; i < LENGTH; i++)
        numbers[i] = (float)(i % 1000 + rank);
    CHECK_OK(lk_group_split(group, 0, 0, &busy));
    CHECK_OK(lk_group_split(group, 0, 0, &idle));
    CHECK_OK(lk_allreduce(busy, (lk_buffer){numbers, LENGTH, LK_DTYPE_F32}, LK_REDUCTION_SUM, &request));
    if (rank == 0)
        CHECK_OK((*errand)(busy, idle));
    CHECK_OK(lk_request_wait(request));
    if (rank != 0)
        CHECK_OK((*errand)(busy, idle));
    for (int i = 0; i < LENGTH; i++)
        CHECK(numbers[i] == (float)(2 * (i % 1000) + 1));
    free(numbers);
    lk_group_destroy(idle);
    lk_group_destroy(busy);
    return false;
}

static const team_spec teams[] = {
    {.size = 3, .transport = "inproc"},
    {.size = 5, .transport = "inproc"},
    {.size = 3, .transport = "shm"},
    {.size = 5, .transport = "shm"},
    {.size = 5, .transport = "tcp"},
    {.size = 3, .transport = "auto"},
    {.size = 5, .transport = "auto", .hosts = "abbab"},
    {.size = 8, .transport = "auto", .hosts = "aaaabbbb"},
};

static void parts_work_beside_the_whole(void **state)
{
    team_run_each(teams, COUNT_OF(teams), halves, NULL);
}

static void some_ranks_have_no_part(void **state)
{
    team_run_each(teams, COUNT_OF(teams), loners, NULL);
}

static void parts_may_outlive_the_whole(void **state)
{
    team_run_each(teams, COUNT_OF(teams), orphans, NULL);
}

static void a_quarrel_in_a_part_breaks_the_whole(void **state)
{
    for (size_t t = 0; t < COUNT_OF(teams); t++)
        if (teams[t].size == 3)
            assert_true(team_run(teams[t], quarrel, NULL));
}

static void a_part_may_be_a_host(void **state)
{
    for (size_t t = 0; t < COUNT_OF(teams); t++)
        if (teams[t].hosts)
            assert_true(team_run(teams[t], hosts, NULL));
}

static void waits_may_cross(void **state)
{
    static const errand_fn errands[] = {barrier_of_idle, block_of_idle, block_of_busy};
    const team_spec pair = {.size = 2, .timeout = 30, .hosts = "ab"};
    for (size_t i = 0; i < COUNT_OF(errands); i++)
        if (!team_run_over(TEAM_TRANSPORTS, pair, crossed_waits, &errands[i]))
            fail_msg("errand %zu", i);
}

TEST_MAIN(NULL, NULL, TEST(parts_work_beside_the_whole), TEST(some_ranks_have_no_part),
          TEST(parts_may_outlive_the_whole), TEST(a_quarrel_in_a_part_breaks_the_whole), TEST(a_part_may_be_a_host),
          TEST(waits_may_cross))
