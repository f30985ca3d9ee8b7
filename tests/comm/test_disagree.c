/* test_disagree.c - ranks that call different things, leave, abort or stay away: every other rank
 * gets an error that says who and what, and gets the same error in later calls. */
#define _DEFAULT_SOURCE /* anonymous memory that children share */
#include "check.h"
#include "comm/harness.h"

/* Much longer than the tests: an error that arrives has not waited for the timeout. */
#define LONG_TIMEOUT 100.0

/* Memory of each rank, also where ranks are threads. It outlives the ranks: peers may still read
 * data that a failed rank has sent. */
enum { RANK_FLOATS = 4096 * 16 };
static float memory[3][RANK_FLOATS];
static _Thread_local float *data;

static void begin(lk_group *group, const team_spec *team)
{
    data = memory[lk_group_rank(group)];
    CHECK_OK(lk_barrier(group, NULL));
    team_await_all(team);
}

static lk_buffer floats(size_t count)
{
    return (lk_buffer){data + 4096 * 8, count, LK_DTYPE_F32};
}

static lk_status call(lk_group *group, const team_call *c)
{
    return team_make_call(group, c, data + 4096 * 8, data, NULL);
}

static const team_call sum_10 = {.count = 10}, sum_11 = {.count = 11}, max_10 = {.count = 10, .op = LK_REDUCTION_MAX},
                       sum_20000 = {.count = 20000}, sum_20001 = {.count = 20001},
                       sum_10_integers = {.count = 10, .dtype = LK_DTYPE_I32},
                       broadcast_0 = {.kind = LK_CALL_KIND_BROADCAST, .count = 10},
                       broadcast_1 = {.kind = LK_CALL_KIND_BROADCAST, .count = 10, .root = 1},
                       gather_0 = {.kind = LK_CALL_KIND_GATHER, .count = 10},
                       scatter_0 = {.kind = LK_CALL_KIND_SCATTER, .count = 10},
                       barrier = {.kind = LK_CALL_KIND_BARRIER},
                       allgather_up = {.kind = LK_CALL_KIND_ALLGATHER, .counts = (const size_t[]){1, 2, 3}},
                       allgather_down = {.kind = LK_CALL_KIND_ALLGATHER, .counts = (const size_t[]){3, 2, 1}},
                       shards_even = {.count = 10, .bounds = (const int[]){0, 2, 4, 6}},
                       shards_uneven = {.count = 10, .bounds = (const int[]){0, 1, 4, 6}};

/* The call of rank 1, the call of the others, and their texts in messages. */
typedef struct quarrel {
    const team_call *other, *usual;
    const char *other_text, *usual_text;
} quarrel;

static const quarrel quarrels[] = {
    {&broadcast_0, &sum_10, "broadcast #1 (10 f32, root 0", "allreduce #1 (10 f32, sum"},
    {&barrier, &sum_10, "barrier #1", "allreduce #1 (10 f32, sum"},
    {&sum_11, &sum_10, "allreduce #1 (11 f32, sum", "allreduce #1 (10 f32, sum"},
    {&sum_20001, &sum_20000, "allreduce #1 (20001 f32, sum", "allreduce #1 (20000 f32, sum"},
    {&sum_10_integers, &sum_10, "allreduce #1 (10 i32, sum", "allreduce #1 (10 f32, sum"},
    {&max_10, &sum_10, "allreduce #1 (10 f32, max", "allreduce #1 (10 f32, sum"},
    {&broadcast_0, &broadcast_1, "broadcast #1 (10 f32, root 0", "broadcast #1 (10 f32, root 1"},
    {&broadcast_1, &broadcast_0, "broadcast #1 (10 f32, root 1", "broadcast #1 (10 f32, root 0"},
    {&allgather_up, &allgather_down, "allgather #1 (6 f32", "allgather #1 (6 f32"},
    {&shards_even, &shards_uneven, "allreduce #1 (10 f32, sum, split", "allreduce #1 (10 f32, sum, split"},
    {&scatter_0, &gather_0, "scatter #1 (30 f32, root 0", "gather #1 (30 f32, root 0"},
    {&gather_0, &scatter_0, "gather #1 (30 f32, root 0", "scatter #1 (30 f32, root 0"},
};

/* Checks that every later call fails with the same text. */
static void check_broken(lk_group *group, lk_status status)
{
    char text[1024], *history;
    snprintf(text, sizeof text, "%s", lk_error_detail());
    CHECK(lk_barrier(group, NULL) == status);
    CHECK_TEXT(lk_error_detail(), text);
    CHECK(call(group, &sum_10) == status);
    CHECK_TEXT(lk_error_detail(), text);
    CHECK(lk_group_poll(group) == status);
    CHECK_TEXT(lk_error_detail(), text);
    size_t bytes = lk_group_history(group, NULL, 0);
    CHECK((history = malloc(bytes)) != NULL);
    CHECK(lk_group_history(group, history, bytes) == bytes && strlen(history) + 1 == bytes);
    CHECK_TEXT(history, "barrier #0: done");
    free(history);
}

static void check_quarrel(lk_group *group, const quarrel *q)
{
    char text[1024], history[8192], other[128], self[32];
    snprintf(text, sizeof text, "%s", lk_error_detail());
    snprintf(other, sizeof other, "rank 1 called %s", q->other_text);
    CHECK_TEXT(text, other);
    CHECK_TEXT(text, q->usual_text);
    CHECK(strstr(text, "rank 0 called") || strstr(text, "rank 2 called"));
    /* A named rank has made its call; another rank may get the error before its call. */
    snprintf(self, sizeof self, "rank %d called", lk_group_rank(group));
    lk_group_history(group, history, sizeof history);
    if (strstr(text, self))
        CHECK_TEXT(history, lk_group_rank(group) == 1 ? q->other_text : q->usual_text);
}

/* A rank that finished its part before the disagreement was known gets the error in a later call. */
static lk_status status_later(lk_group *group, lk_status status)
{
    for (int i = 0; i < 3 && status == LK_OK; i++)
        status = lk_barrier(group, NULL);
    return status;
}

static bool quarrel_at_rank_1(lk_group *group, const team_spec *team, const void *arg)
{
    const quarrel *q = arg;
    begin(group, team);
    lk_status status = status_later(group, call(group, lk_group_rank(group) == 1 ? q->other : q->usual));
    CHECK(status == LK_STATUS_MISMATCH);
    check_quarrel(group, q);
    CHECK(lk_barrier(group, NULL) == status);
    check_quarrel(group, q);
    return false;
}

static bool run_over_all(team_fn fn, const void *arg)
{
    return team_run_over(TEAM_TRANSPORTS, (team_spec){.size = 3, .timeout = LONG_TIMEOUT, .hosts = "aba"}, fn, arg);
}

static void a_different_call_is_named(void **state)
{
    for (size_t i = 0; i < COUNT_OF(quarrels); i++)
        if (!run_over_all(quarrel_at_rank_1, &quarrels[i]))
            fail_msg("%s against %s", quarrels[i].other_text, quarrels[i].usual_text);
}

/* Ranks that poll instead of waiting get the error, too. */
static bool quarrel_while_polling(lk_group *group, const team_spec *team, const void *arg)
{
    lk_request *request = NULL;
    lk_status status;
    bool done = false;
    begin(group, team);
    if (lk_group_rank(group) == 1)
        status = lk_scatter(group, data, NULL, floats(10), 0, &request);
    else
        status = lk_gather(group, floats(10), NULL, data, 0, &request);
    while (status == LK_OK && !done)
        status = lk_request_test(request, &done);
    status = status_later(group, status);
    CHECK_FAILS(status, LK_STATUS_MISMATCH, "rank 1 called scatter #1");
    CHECK_TEXT(lk_error_detail(), "called gather #1");
    check_broken(group, status);
    return false;
}

static void a_different_call_is_named_to_those_who_poll(void **state)
{
    assert_true(run_over_all(quarrel_while_polling, NULL));
}

static bool message_of_other_length(lk_group *group, const team_spec *team, const void *arg)
{
    lk_status status = LK_OK;
    begin(group, team);
    if (lk_group_rank(group) == 0)
        status = lk_send(group, floats(10), 2, NULL);
    if (lk_group_rank(group) == 2)
        status = lk_recv(group, floats(11), 0, NULL);
    status = status_later(group, status);
    CHECK_FAILS(status, LK_STATUS_MISMATCH, "rank 2 called message #0 (11 f32");
    CHECK_TEXT(lk_error_detail(), "rank 0 called message #0 (10 f32");
    check_broken(group, status);
    return false;
}

/* Rank 0 sends more to rank 2 than rank 2 receives. */
static bool portions_that_differ(lk_group *group, const team_spec *team, const void *arg)
{
    size_t counts[] = {2, 2, 2};
    begin(group, team);
    size_t send[] = {2, 2, lk_group_rank(group) == 0 ? 5u : 2u};
    lk_buffer in = floats(send[0] + send[1] + send[2]);
    lk_buffer out = {data, 6, LK_DTYPE_F32};
    lk_status status = status_later(group, lk_alltoall(group, in, send, out, counts, NULL));
    CHECK_FAILS(status, LK_STATUS_MISMATCH, "alltoall #1");
    CHECK_TEXT(lk_error_detail(), "rank 0");
    CHECK_TEXT(lk_error_detail(), "rank 2");
    check_broken(group, status);
    return false;
}

/* Elements that rank 0 sends to rank 1, and that rank 1 expects. */
typedef struct portion {
    size_t given, taken;
} portion;

static bool portion_of_rank_1(lk_group *group, const team_spec *team, const void *arg)
{
    const portion *p = arg;
    int rank = lk_group_rank(group);
    char both[128];
    begin(group, team);
    size_t send[] = {1, rank == 0 ? p->given : 1, 1}, recv[] = {rank == 1 ? p->taken : 1, 1, 1};
    lk_buffer in = floats(2 + send[1]), out = {data, 2 + recv[0], LK_DTYPE_F32};
    lk_status status = lk_alltoall(group, in, send, out, recv, NULL);
    CHECK(rank != 1 || status == LK_STATUS_MISMATCH);
    if (status == LK_OK)
        status = lk_barrier(group, NULL);
    CHECK(status == LK_STATUS_MISMATCH);
    snprintf(both, sizeof both, "rank 0 sends it %zu elements, rank 1 takes %zu", p->given, p->taken);
    CHECK_TEXT(lk_error_detail(), "alltoall #1");
    CHECK_TEXT(lk_error_detail(), both);
    check_broken(group, status);
    return false;
}

static void portions_that_do_not_fit_are_named(void **state)
{
    static const portion portions[] = {{5, 8}, {8, 5}, {0, 3}, {3, 0}};
    for (size_t i = 0; i < COUNT_OF(portions); i++)
        if (!run_over_all(portion_of_rank_1, &portions[i]))
            fail_msg("%zu given, %zu taken", portions[i].given, portions[i].taken);
}

static void messages_that_do_not_fit_are_named(void **state)
{
    assert_true(run_over_all(message_of_other_length, NULL));
    assert_true(run_over_all(portions_that_differ, NULL));
}

/* Every call is refused at once; the group can still be used. */
static bool impossible_arguments(lk_group *group, const team_spec *team, const void *arg)
{
    size_t counts[] = {1, 2, 3};
    begin(group, team);
    CHECK_FAILS(lk_broadcast(group, floats(1), 3, NULL), LK_STATUS_USAGE, "3");
    CHECK_FAILS(lk_broadcast(group, floats(1), -1, NULL), LK_STATUS_USAGE, "rank -1");
    CHECK(lk_send(group, floats(1), lk_group_rank(group), NULL) == LK_STATUS_USAGE);
    CHECK(lk_allreduce(group, (lk_buffer){data, 1, LK_DTYPE_COUNT}, LK_REDUCTION_SUM, NULL) == LK_STATUS_USAGE);
    CHECK(lk_allreduce(group, floats(1), (lk_reduction)LK_REDUCTION_LIMIT, NULL) == LK_STATUS_USAGE);
    CHECK(lk_allgather(group, floats(4), counts, data, NULL) == LK_STATUS_USAGE);
    CHECK(lk_reduce_scatter(group, floats(7), counts, data, LK_REDUCTION_SUM, NULL) == LK_STATUS_USAGE);
    CHECK(call(group, &(team_call){.count = 10, .bounds = (int[]){0, 2, 1, 4}}) == LK_STATUS_USAGE);
    CHECK(call(group, &(team_call){.count = 10, .bounds = (int[]){0, 0, 0, 0}}) == LK_STATUS_USAGE);
    CHECK(lk_alltoall(group, floats(4), NULL, floats(4), NULL, NULL) == LK_STATUS_USAGE);
    CHECK_OK(call(group, &sum_10));
    return false;
}

static void impossible_arguments_are_refused(void **state)
{
    assert_true(team_run_over(2, (team_spec){.size = 3, .timeout = LONG_TIMEOUT}, impossible_arguments, NULL));
}

static bool rank_1_leaves(lk_group *group, const team_spec *team, const void *arg)
{
    begin(group, team);
    if (lk_group_rank(group) == 1)
        return false;
    lk_status status = LK_OK;
    for (int i = 0; i < 1000 && status == LK_OK; i++)
        status = call(group, arg);
    CHECK_FAILS(status, LK_STATUS_PEER, "rank 1");
    CHECK_TEXT(lk_error_detail(), "left");
    check_broken(group, status);
    return false;
}

static void a_rank_that_left_is_named(void **state)
{
    static const team_call *const calls[] = {&barrier, &sum_10, &sum_20000, &broadcast_1};
    for (size_t i = 0; i < COUNT_OF(calls); i++)
        assert_true(run_over_all(rank_1_leaves, calls[i]));
}

/* Data that rank 1 sent before it left arrives. */
static bool rank_1_sends_and_leaves(lk_group *group, const team_spec *team, const void *arg)
{
    enum { LENGTH = 50001 };
    int32_t *numbers = malloc(LENGTH * sizeof *numbers);
    CHECK(numbers);
    begin(group, team);
    for (int i = 0; i < LENGTH; i++)
        numbers[i] = lk_group_rank(group) == 1 ? 3 * i : 0;
    if (lk_group_rank(group) == 1)
        CHECK_OK(lk_send(group, (lk_buffer){numbers, LENGTH, LK_DTYPE_I32}, 2, NULL));
    if (lk_group_rank(group) == 2) {
        sleep_ms(200);
        CHECK_OK(lk_recv(group, (lk_buffer){numbers, LENGTH, LK_DTYPE_I32}, 1, NULL));
        for (int i = 0; i < LENGTH; i++)
            CHECK(numbers[i] == 3 * i);
    }
    free(numbers);
    return false;
}

static void what_was_sent_before_leaving_arrives(void **state)
{
    assert_true(run_over_all(rank_1_sends_and_leaves, NULL));
}

/* Waits at most ten seconds. */
static bool counter_reaches(const team_spec *team, int value)
{
    for (int i = 0; i < 1000 && team->page->counter < value; i++)
        sleep_ms(10);
    return team->page->counter >= value;
}

static bool is_stopped(pid_t pid)
{
    char path[64], state = '?';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = '?';
    if (file)
        fclose(file);
    return state == 'T';
}

/* Rank 0 stops the process of rank 2, which waits, until rank 1 has sent and left. Rank 2 stays
 * stopped for longer than a rank waits for the last bytes of a rank that left: that time must not
 * count. */
static void stop_rank_2(lk_group *group, const team_spec *team)
{
    int32_t pid = 0;
    CHECK_OK(lk_recv(group, (lk_buffer){&pid, 1, LK_DTYPE_I32}, 2, NULL));
    sleep_ms(50);
    kill(pid, SIGSTOP);
    for (int i = 0; i < 1000 && !is_stopped(pid); i++)
        sleep_ms(10);
    bool stopped = is_stopped(pid);
    team->page->counter = 1;
    bool left = counter_reaches(team, 2);
    sleep_ms(2200);
    kill(pid, SIGCONT);
    CHECK(stopped && left);
}

static bool rank_1_leaves_before_a_stopped_one(lk_group *group, const team_spec *team, const void *arg)
{
    int32_t number = lk_group_rank(group) == 1 ? 7 : (int32_t)getpid();
    lk_buffer one = {&number, 1, LK_DTYPE_I32};
    begin(group, team);
    if (lk_group_rank(group) == 0)
        stop_rank_2(group, team);
    if (lk_group_rank(group) == 2) {
        CHECK_OK(lk_send(group, one, 0, NULL));
        CHECK_OK(lk_recv(group, one, 1, NULL));
        CHECK(number == 7);
    }
    if (lk_group_rank(group) != 1)
        return false;
    CHECK(counter_reaches(team, 1));
    CHECK_OK(lk_send(group, one, 2, NULL));
    lk_group_destroy(group);
    team->page->counter = 2;
    return true;
}

static void what_was_sent_to_a_stopped_rank_arrives(void **state)
{
    assert_true(team_run((team_spec){.size = 3, .transport = "tcp", .timeout = LONG_TIMEOUT},
                         rank_1_leaves_before_a_stopped_one, NULL));
}

static bool rank_1_gives_up(lk_group *group, const team_spec *team, const void *arg)
{
    lk_status status = LK_STATUS_PEER;
    lk_request *request = NULL;
    begin(group, team);
    if (lk_group_rank(group) == 1) {
        CHECK_OK(lk_recv(group, floats(10), 2, &request));
        lk_group_abort(group, "the disk is full");
        /* The request that was under way has failed, too. */
        CHECK(lk_request_wait(request) == LK_STATUS_PEER);
    } else {
        status = lk_recv(group, floats(10), 1, NULL);
    }
    CHECK_FAILS(status, LK_STATUS_PEER, "rank 1 gave up: the disk is full");
    check_broken(group, status);
    return false;
}

static void giving_up_reaches_all(void **state)
{
    assert_true(run_over_all(rank_1_gives_up, NULL));
}

/* Rank 1 makes no call until the timeout of the others. */
static bool rank_1_stays_away(lk_group *group, const team_spec *team, const void *arg)
{
    lk_status status = LK_OK;
    begin(group, team);
    if (lk_group_rank(group) == 1)
        while (team->page->counter == 0 || lk_group_poll(group) == LK_OK)
            sleep_ms(10);
    status = call(group, &sum_10);
    team->page->counter++;
    CHECK_FAILS(status, LK_STATUS_PEER, "for rank 1");
    CHECK_TEXT(lk_error_detail(), "allreduce #1 (10 f32, sum)");
    CHECK_TEXT(lk_error_detail(), "its timeout");
    check_broken(group, status);
    return false;
}

static void a_rank_that_stays_away_is_named(void **state)
{
    assert_true(team_run_over(TEAM_TRANSPORTS, (team_spec){.size = 3, .timeout = 3}, rank_1_stays_away, NULL));
}

TEST_MAIN(NULL, NULL, TEST(a_different_call_is_named), TEST(a_different_call_is_named_to_those_who_poll),
          TEST(messages_that_do_not_fit_are_named), TEST(portions_that_do_not_fit_are_named),
          TEST(impossible_arguments_are_refused), TEST(a_rank_that_left_is_named),
          TEST(what_was_sent_before_leaving_arrives), TEST(what_was_sent_to_a_stopped_rank_arrives),
          TEST(giving_up_reaches_all), TEST(a_rank_that_stays_away_is_named))
