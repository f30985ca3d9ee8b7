/* test_misuse.c - wrong calls: without memory, without a request, from a process that has joined
 * already or that was forked later. Each returns LK_STATUS_USAGE with a detail, and the group can
 * still be used. Empty vectors need no memory. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */
#include "check.h"
#include "comm/harness.h"

enum { RANKS = 2 };

static const lk_buffer nothing = {NULL, 1, LK_DTYPE_F32};

static bool pass_no_memory(lk_group *group, const team_spec *team, const void *arg)
{
    float room[4] = {0};
    const lk_buffer some = {room, 1, LK_DTYPE_F32}, two = {room, 2, LK_DTYPE_F32};
    const size_t ones[RANKS] = {1, 1};
    int rank = lk_group_rank(group), other = 1 - rank;
    CHECK_FAILS(lk_allreduce(group, nothing, LK_REDUCTION_SUM, NULL), LK_STATUS_USAGE, "allreduce: data.at is NULL");
    CHECK_TEXT(lk_error_detail(), "1 element");
    CHECK_FAILS(lk_reduce(group, nothing, LK_REDUCTION_SUM, 0, NULL), LK_STATUS_USAGE, "reduce: data.at is NULL");
    CHECK_FAILS(lk_reduce_scatter(group, nothing, NULL, room, LK_REDUCTION_SUM, NULL), LK_STATUS_USAGE,
                "reduce_scatter: in.at is NULL");
    CHECK_FAILS(lk_reduce_scatter(group, two, NULL, NULL, LK_REDUCTION_SUM, NULL), LK_STATUS_USAGE,
                "reduce_scatter: out is NULL");
    CHECK_FAILS(lk_broadcast(group, nothing, 0, NULL), LK_STATUS_USAGE, "broadcast: data.at is NULL");
    CHECK_FAILS(lk_allgather(group, nothing, NULL, room, NULL), LK_STATUS_USAGE, "allgather: mine.at is NULL");
    CHECK_FAILS(lk_allgather(group, some, ones, NULL, NULL), LK_STATUS_USAGE, "allgather: out is NULL");
    CHECK_FAILS(lk_gather(group, nothing, NULL, room, 0, NULL), LK_STATUS_USAGE, "gather: mine.at is NULL");
    CHECK_FAILS(lk_gather(group, some, NULL, NULL, rank, NULL), LK_STATUS_USAGE, "gather: out is NULL");
    CHECK_FAILS(lk_scatter(group, room, NULL, nothing, 0, NULL), LK_STATUS_USAGE, "scatter: mine.at is NULL");
    CHECK_FAILS(lk_scatter(group, NULL, NULL, some, rank, NULL), LK_STATUS_USAGE, "scatter: in is NULL");
    CHECK_FAILS(lk_alltoall(group, (lk_buffer){NULL, 2, LK_DTYPE_F32}, NULL, two, NULL, NULL), LK_STATUS_USAGE,
                "alltoall: in.at is NULL");
    CHECK_FAILS(lk_alltoall(group, two, NULL, (lk_buffer){NULL, 2, LK_DTYPE_F32}, NULL, NULL), LK_STATUS_USAGE,
                "alltoall: out.at is NULL");
    CHECK_FAILS(lk_send(group, nothing, other, NULL), LK_STATUS_USAGE, "send: data.at is NULL");
    CHECK_FAILS(lk_recv(group, nothing, other, NULL), LK_STATUS_USAGE, "recv: data.at is NULL");
    CHECK_OK(lk_barrier(group, NULL));
    return false;
}

static bool sum_no_shards(lk_group *group, const team_spec *team, const void *arg)
{
    float room[4] = {0};
    const lk_buffer some = {room, 1, LK_DTYPE_F32};
    const int bounds[RANKS + 1] = {0, 1, 2};
    const size_t ones[RANKS] = {1, 1};
    const void *roots[LK_MAX_ROOTS] = {room}, *none[LK_MAX_ROOTS] = {NULL};
    const lk_shard_sums good = {bounds, roots};
    CHECK_FAILS(lk_allreduce_shards(group, NULL, some, LK_REDUCTION_SUM, NULL), LK_STATUS_USAGE,
                "allreduce: sums is NULL");
    CHECK_FAILS(lk_reduce_shards(group, NULL, some, LK_REDUCTION_SUM, 0, NULL), LK_STATUS_USAGE,
                "reduce: sums is NULL");
    CHECK_FAILS(lk_reduce_scatter_shards(group, NULL, ones, some, LK_REDUCTION_SUM, NULL), LK_STATUS_USAGE,
                "reduce_scatter: sums is NULL");
    CHECK_FAILS(lk_reduce_scatter_shards(group, &good, NULL, some, LK_REDUCTION_SUM, NULL), LK_STATUS_USAGE,
                "reduce_scatter: counts is NULL");
    CHECK_FAILS(lk_allreduce_shards(group, &(lk_shard_sums){NULL, roots}, some, LK_REDUCTION_SUM, NULL),
                LK_STATUS_USAGE, "sums.bounds is NULL");
    CHECK_FAILS(lk_allreduce_shards(group, &(lk_shard_sums){bounds, NULL}, some, LK_REDUCTION_SUM, NULL),
                LK_STATUS_USAGE, "sums.roots is NULL");
    CHECK_FAILS(lk_allreduce_shards(group, &(lk_shard_sums){bounds, none}, some, LK_REDUCTION_SUM, NULL),
                LK_STATUS_USAGE, "sums.roots[0] is NULL");
    CHECK_FAILS(lk_allreduce_shards(group, &good, nothing, LK_REDUCTION_SUM, NULL), LK_STATUS_USAGE, "out.at is NULL");
    CHECK_OK(lk_barrier(group, NULL));
    return false;
}

/* Calls without a group, without a request or without an output. */
static bool pass_no_object(lk_group *group, const team_spec *team, const void *arg)
{
    float room[1] = {0};
    bool done = false;
    void *block = NULL;
    lk_group *part = NULL;
    lk_request *request = NULL;
    CHECK_FAILS(lk_request_wait(NULL), LK_STATUS_USAGE, "request is NULL");
    CHECK_FAILS(lk_request_test(NULL, &done), LK_STATUS_USAGE, "request is NULL");
    CHECK_OK(lk_allreduce(group, (lk_buffer){room, 1, LK_DTYPE_F32}, LK_REDUCTION_SUM, &request));
    CHECK_FAILS(lk_request_test(request, NULL), LK_STATUS_USAGE, "done is NULL");
    CHECK_OK(lk_request_wait(request));
    CHECK_FAILS(lk_allreduce(NULL, (lk_buffer){room, 1, LK_DTYPE_F32}, LK_REDUCTION_SUM, NULL), LK_STATUS_USAGE,
                "allreduce: group is NULL");
    CHECK_FAILS(lk_barrier(NULL, NULL), LK_STATUS_USAGE, "barrier: group is NULL");
    CHECK_FAILS(lk_group_poll(NULL), LK_STATUS_USAGE, "group is NULL");
    CHECK_FAILS(lk_group_split(NULL, 0, 0, &part), LK_STATUS_USAGE, "parent is NULL");
    CHECK_FAILS(lk_group_split(group, 0, 0, NULL), LK_STATUS_USAGE, "out is NULL");
    CHECK_FAILS(lk_group_alloc(NULL, 8, &block), LK_STATUS_USAGE, "group is NULL");
    CHECK_FAILS(lk_group_alloc(group, 8, NULL), LK_STATUS_USAGE, "out is NULL");
    CHECK_FAILS(lk_group_join(NULL, NULL), LK_STATUS_USAGE, "out is NULL");
    CHECK_FAILS(lk_group_create_threads(1, NULL, NULL), LK_STATUS_USAGE, "out is NULL");
    CHECK(lk_group_host(group, -1)[0] == '\0' && lk_group_host(group, RANKS)[0] == '\0');
    CHECK(!lk_group_is_local(group, -1) && !lk_group_is_local(group, RANKS));
    CHECK_OK(lk_barrier(group, NULL));
    return false;
}

static bool overlap(lk_group *group, const team_spec *team, const void *arg)
{
    float room[8] = {0};
    lk_buffer two = {room, 2, LK_DTYPE_F32};
    int rank = lk_group_rank(group);
    lk_buffer misplaced = {room + 2 * (1 - rank) + 1, 2, LK_DTYPE_F32};
    CHECK_FAILS(lk_allgather(group, misplaced, NULL, room, NULL), LK_STATUS_USAGE,
                "allgather: mine.at and out overlap");
    CHECK_FAILS(lk_alltoall(group, two, NULL, (lk_buffer){room + 1, 2, LK_DTYPE_F32}, NULL, NULL), LK_STATUS_USAGE,
                "alltoall: in.at and out.at overlap");
    two.at = room + 2 * rank;
    CHECK_OK(lk_allgather(group, two, NULL, room, NULL));
    CHECK_OK(lk_barrier(group, NULL));
    return false;
}

/* An empty std::vector has a null pointer, too. */
static bool pass_nothing(lk_group *group, const team_spec *team, const void *arg)
{
    const lk_buffer empty = {NULL, 0, LK_DTYPE_F32};
    const size_t zeros[RANKS] = {0};
    const int bounds[RANKS + 1] = {0, 1, 2};
    const void *roots[LK_MAX_ROOTS] = {NULL};
    const lk_shard_sums sums = {bounds, roots};
    int rank = lk_group_rank(group);
    CHECK_OK(lk_allreduce(group, empty, LK_REDUCTION_SUM, NULL));
    CHECK_OK(lk_allreduce_shards(group, &sums, empty, LK_REDUCTION_MEAN, NULL));
    CHECK_OK(lk_reduce(group, empty, LK_REDUCTION_MAX, 0, NULL));
    CHECK_OK(lk_reduce_shards(group, &sums, empty, LK_REDUCTION_SUM, 1, NULL));
    CHECK_OK(lk_reduce_scatter(group, empty, NULL, NULL, LK_REDUCTION_SUM, NULL));
    CHECK_OK(lk_reduce_scatter_shards(group, &sums, zeros, empty, LK_REDUCTION_SUM, NULL));
    CHECK_OK(lk_broadcast(group, empty, 1, NULL));
    CHECK_OK(lk_allgather(group, empty, NULL, NULL, NULL));
    CHECK_OK(lk_gather(group, empty, zeros, NULL, 0, NULL));
    CHECK_OK(lk_scatter(group, NULL, zeros, empty, 0, NULL));
    CHECK_OK(lk_alltoall(group, empty, NULL, empty, zeros, NULL));
    if (rank == 0)
        CHECK_OK(lk_send(group, empty, 1, NULL));
    else
        CHECK_OK(lk_recv(group, empty, 0, NULL));
    /* Only rank 0 gives an element. */
    float value = 7, got = 0;
    const size_t first[RANKS] = {1, 0};
    CHECK_OK(lk_allgather(group, (lk_buffer){rank == 0 ? &value : NULL, first[rank], LK_DTYPE_F32}, first, &got, NULL));
    CHECK(got == 7);
    return false;
}

static void wrong_calls_are_refused_and_empty_ones_are_not(void **state)
{
    static const team_fn calls[] = {pass_no_memory, sum_no_shards, pass_no_object, overlap, pass_nothing};
    for (size_t i = 0; i < COUNT_OF(calls); i++)
        assert_true(team_run_over(TEAM_WITHOUT_AUTO, (team_spec){.size = RANKS, .timeout = 30}, calls[i], NULL));
}

static lk_group_opts opts_of(const char *url, int rank, int thread, int threads)
{
    return (lk_group_opts){.init_method = url,
                           .rank = rank,
                           .world_size = RANKS,
                           .threads = threads,
                           .thread = thread,
                           .timeout = 20,
                           .token = "the token of a test"};
}

static void join_twice(int rank, void *url)
{
    lk_group_opts opts = opts_of(url, rank, 0, 1);
    lk_group *group = NULL, *second = NULL;
    char expected[64];
    CHECK_OK(lk_group_join(&opts, &group));
    double begin = lk__clock();
    CHECK_FAILS(lk_group_join(&opts, &second), LK_STATUS_USAGE, "this process has joined this job");
    CHECK(!second && lk__clock() - begin < 5);
    snprintf(expected, sizeof expected, "as rank %d already; destroy that group first", rank);
    CHECK_TEXT(lk_error_detail(), expected);
    CHECK_TEXT(lk_error_detail(), "lk_group_split");
    CHECK_OK(lk_barrier(group, NULL));
    lk_group_destroy(group);
    CHECK_OK(lk_group_join(&opts, &group));
    CHECK_OK(lk_barrier(group, NULL));
    lk_group_destroy(group);
}

/* Two threads are two ranks; a third thread joins as the second rank and is refused. */
static void join_as_thread(int thread, void *arg)
{
    const lk_group_opts *opts = (const lk_group_opts *)arg + thread;
    lk_group *group = NULL;
    CHECK_OK(lk_group_join(opts, &group));
    CHECK_OK(lk_barrier(group, NULL));
    if (opts->thread == 1) {
        lk_group *second = NULL;
        CHECK_FAILS(lk_group_join(opts, &second), LK_STATUS_USAGE, "this process has joined this job");
    }
    CHECK_OK(lk_barrier(group, NULL));
    lk_group_destroy(group);
}

static void join_in_threads(int rank, void *url)
{
    lk_group_opts opts[2] = {opts_of(url, rank, 0, 2), opts_of(url, rank, 1, 2)};
    threads_run(2, join_as_thread, opts);
}

static void be_child(int number, void *arg)
{
    lk_group *group = arg, *part = NULL;
    float value = 1;
    CHECK_FAILS(lk_allreduce(group, (lk_buffer){&value, 1, LK_DTYPE_F32}, LK_REDUCTION_SUM, NULL), LK_STATUS_USAGE,
                "was made before this process was forked");
    CHECK_FAILS(lk_group_poll(group), LK_STATUS_USAGE, "was made before this process was forked");
    CHECK_FAILS(lk_group_split(group, 0, 0, &part), LK_STATUS_USAGE, "was made before this process was forked");
    lk_group_abort(group, "a child has no say");
    lk_group_destroy(group);
    _exit(0);
}

/* A forked child cannot use the group of its parent and does not disturb it. */
static void use_after_fork(int rank, void *url)
{
    lk_group_opts opts = opts_of(url, rank, 0, 1);
    lk_group *group = NULL;
    float value = 1;
    CHECK_OK(lk_group_join(&opts, &group));
    CHECK(process_wait(process_start(be_child, 0, group)) == 0);
    CHECK_OK(lk_allreduce(group, (lk_buffer){&value, 1, LK_DTYPE_F32}, LK_REDUCTION_SUM, NULL));
    CHECK(value == RANKS);
    lk_group_destroy(group);
}

/* Runs fn in RANKS processes; its argument is the URL of their rendezvous. */
static void run_processes(process_fn fn)
{
    int holder = -1, port = 0;
    char url[64];
    assert_int_equal(lk__net_reserve("127.0.0.1", &holder, &port), LK_OK);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", port);
    assert_true(processes_run(RANKS, fn, url, 0));
    close(holder);
}

static void processes_and_threads_join_once_and_children_have_no_group(void **state)
{
    run_processes(join_twice);
    run_processes(join_in_threads);
    run_processes(use_after_fork);
}

TEST_MAIN(NULL, NULL, TEST(wrong_calls_are_refused_and_empty_ones_are_not),
          TEST(processes_and_threads_join_once_and_children_have_no_group))
