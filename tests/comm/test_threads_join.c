/* test_threads_join.c - several processes with several ranks each: every thread joins by itself, and
 * the ranks work together over each transport. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */
#include "check.h"
#include "comm/collectives.h"
#include "comm/sums.h"

/* Two processes of two ranks, one of three, and hosts with a process of two each. */
static const team_spec teams[] = {
    {.size = 4, .threads = 2, .transport = "shm"},
    {.size = 4, .threads = 2, .transport = "tcp"},
    {.size = 4, .threads = 2, .transport = "auto"},
    {.size = 3, .threads = 3, .transport = "shm"},
    {.size = 3, .threads = 3, .transport = "tcp"},
    {.size = 3, .threads = 3, .transport = "auto"},
    {.size = 4, .threads = 2, .transport = "auto", .hosts = "aabb"},
    {.size = 6, .threads = 2, .transport = "auto", .hosts = "aabbaa"},
};

/* The ranks of a process have consecutive numbers, and each rank exists once. */
static bool stand_in_order(lk_group *group, const team_spec *team, const void *arg)
{
    int rank = lk_group_rank(group);
    int32_t mine[2] = {(int32_t)getpid(), rank}, all[2 * TEAM_MAX];
    check_names(group, team);
    CHECK_OK(lk_allgather(group, (lk_buffer){mine, 2, LK_DTYPE_I32}, NULL, all, NULL));
    for (int r = 0; r < team->size; r++) {
        CHECK(all[2 * r + 1] == r);
        for (int q = 0; q < team->size; q++)
            CHECK((all[2 * r] == all[2 * q]) == (r / team->threads == q / team->threads));
    }
    return false;
}

static int32_t sum_of(lk_group *group, int32_t mine)
{
    CHECK_OK(lk_allreduce(group, (lk_buffer){&mine, 1, LK_DTYPE_I32}, LK_REDUCTION_SUM, NULL));
    return mine;
}

/* One part inside each process and one across the processes. */
static bool work_in_parts(lk_group *group, const team_spec *team, const void *arg)
{
    enum { LENGTH = 30011 };
    int rank = lk_group_rank(group), process = rank / team->threads, thread = rank % team->threads;
    int processes = team->size / team->threads;
    lk_group *inside = NULL, *across = NULL;
    void *block = NULL;
    CHECK_OK(lk_group_split(group, process, 0, &inside));
    CHECK_OK(lk_group_split(group, thread, 0, &across));
    CHECK(lk_group_size(inside) == team->threads && lk_group_rank(inside) == thread);
    CHECK(lk_group_local_size(inside) == team->threads && lk_group_local_rank(inside) == thread);
    CHECK(lk_group_size(across) == processes && lk_group_rank(across) == process);
    CHECK(sum_of(inside, process) == process * team->threads);
    CHECK(sum_of(across, thread) == thread * processes);
    CHECK_OK(lk_group_alloc(group, LENGTH * sizeof(int32_t), &block));
    int32_t *numbers = block;
    for (int i = 0; i < LENGTH; i++)
        numbers[i] = rank + i;
    CHECK_OK(lk_allreduce(group, (lk_buffer){numbers, LENGTH, LK_DTYPE_I32}, LK_REDUCTION_SUM, NULL));
    for (int i = 0; i < LENGTH; i++)
        CHECK(numbers[i] == team->size * i + team->size * (team->size - 1) / 2);
    lk_group_free(group, block);
    lk_group_destroy(across);
    lk_group_destroy(inside);
    CHECK(sum_of(group, 1) == team->size);
    return false;
}

static void run_all(team_fn fn, const void *arg)
{
    for (size_t t = 0; t < COUNT_OF(teams); t++)
        for (int env = 0; env <= 1; env++) {
            team_spec team = teams[t];
            team.env = env;
            assert_true(team_run(team, fn, arg));
        }
}

static void threads_of_processes_join(void **state)
{
    run_all(stand_in_order, NULL);
}

static void their_parts_work(void **state)
{
    run_all(work_in_parts, NULL);
}

static void their_collectives_agree(void **state)
{
    static const effort plan = {.largest = 20011};
    team_run_each(teams, COUNT_OF(teams), try_collectives, &plan);
}

static void their_sums_have_the_same_bits(void **state)
{
    static const sum_case cases[] = {
        {16, 12007, LK_DTYPE_F32, LK_REDUCTION_SUM}, {5, 700, LK_DTYPE_F64, LK_REDUCTION_MEAN}, {0}};
    team_run_each(teams, COUNT_OF(teams), try_all_sums, cases);
}

/* A process dies with all its ranks; the others name one of these ranks. */
static bool lose_a_process(lk_group *group, const team_spec *team, const void *arg)
{
    const int *dead = arg;
    int rank = lk_group_rank(group);
    char text[1024];
    lk_status status = lk_barrier(group, NULL);
    if (rank == (*dead + 1) * team->threads - 1)
        raise(SIGKILL);
    for (double end = lk__clock() + 60; status == LK_OK && lk__clock() < end;)
        status = lk_barrier(group, NULL);
    CHECK(status == LK_STATUS_PEER);
    snprintf(text, sizeof text, "%s", lk_error_detail());
    bool named = false;
    for (int t = 0; t < team->threads; t++) {
        char who[32];
        snprintf(who, sizeof who, "rank %d", *dead * team->threads + t);
        named = named || strstr(text, who);
    }
    CHECK(named || rank / team->threads == *dead);
    return false;
}

static void a_killed_process_is_noticed(void **state)
{
    for (size_t t = 0; t < COUNT_OF(teams); t++)
        for (int dead = 0; dead < teams[t].size / teams[t].threads && teams[t].size > teams[t].threads; dead++) {
            team_spec team = teams[t];
            team.killed = 1u << dead;
            team.timeout = 100;
            assert_true(team_run(team, lose_a_process, &dead));
        }
}

/* One rank of a process aborts: the other rank of the process gets the error, too, at the latest in
 * its second barrier. */
static bool give_up(lk_group *group, const team_spec *team, const void *arg)
{
    bool gives_up = lk_group_rank(group) == 1;
    lk_status status = lk_barrier(group, NULL);
    CHECK(status == LK_OK || (status == LK_STATUS_PEER && !gives_up));
    if (gives_up)
        lk_group_abort(group, "a thread has had enough");
    CHECK_FAILS(lk_barrier(group, NULL), LK_STATUS_PEER, "rank 1 gave up: a thread has had enough");
    return false;
}

static void one_that_gives_up_is_heard(void **state)
{
    team_run_each(teams, COUNT_OF(teams), give_up, NULL);
}

static void refuse(lk_group_opts opts, const char *part)
{
    lk_group *group = NULL;
    static const char *const methods[] = {"tcp://127.0.0.1:1", "file:///nowhere/at/all", "env://"};
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    for (size_t i = 0; i < COUNT_OF(methods); i++) {
        opts.init_method = methods[i];
        opts.world_size = 2;
        assert_int_equal(lk_group_join(&opts, &group), LK_STATUS_USAGE);
        assert_null(group);
        assert_detail(part);
    }
}

static void impossible_threads_are_refused(void **state)
{
    refuse((lk_group_opts){.threads = -1}, "cannot have -1 ranks");
    refuse((lk_group_opts){.thread = 1}, "thread 1 is impossible in a process of 1 ranks");
    refuse((lk_group_opts){.threads = 2, .thread = 2}, "they count from 0 to 1");
    refuse((lk_group_opts){.threads = 2, .thread = -1}, "thread -1 is impossible");
    refuse((lk_group_opts){.threads = 1000000}, "2 processes with 1000000 ranks each are too many");
}

TEST_MAIN(NULL, NULL, TEST(threads_of_processes_join), TEST(their_parts_work), TEST(their_collectives_agree),
          TEST(their_sums_have_the_same_bits), TEST(a_killed_process_is_noticed), TEST(one_that_gives_up_is_heard),
          TEST(impossible_threads_are_refused))
