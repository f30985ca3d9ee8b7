/* test_control.c - the control connection of a job that has started: ranks that die, leave, abort or
 * disagree. Ranks are processes on loopback; in test_threads they are threads. */
#include "comm/control_ranks.h"

static const int sizes[] = {1, 2, 3, 5, 8};

static lk_status exchange(lk_control *control)
{
    int mine = lk__control_rank(control), all[8];
    return lk__control_exchange(control, &mine, sizeof mine, all);
}

static void exchange_often(lk_control *control)
{
    uint8_t mine[LK_EXCHANGE_BYTES], all[16 * LK_EXCHANGE_BYTES];
    for (size_t i = 0; i < 50; i++) {
        size_t bytes = i * 5;
        memset(mine, lk__control_rank(control) + (int)i, sizeof mine);
        CHECK(lk__control_exchange(control, mine, bytes, all) == LK_OK);
        for (int r = 0; r < lk__control_size(control); r++)
            for (size_t b = 0; b < bytes; b++)
                CHECK(all[(size_t)r * bytes + b] == (uint8_t)(r + (int)i));
    }
}

static void test_exchange(void **state)
{
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        run_controls(exchange_often, make_plan(sizes[i], 30), -1);
}

static int victim; /* the rank that kill_victim kills */

static void kill_victim(lk_control *control)
{
    meet(control);
    if (lk__control_rank(control) == victim)
        kill(getpid(), SIGKILL);
    char text[64];
    snprintf(text, sizeof text, "pid %d) died", (int)lk__control_members(control)[victim].pid);
    for (int again = 0; again < 2; again++)
        CHECK_FAILS(broken(control), LK_STATUS_PEER, text);
    CHECK(exchange(control) == LK_STATUS_PEER);
}

static void test_death(void **state)
{
    for (victim = 0; victim <= 2; victim += 2)
        run_controls(kill_victim, make_plan(3, 30), victim);
}

static void wait_for_victim(int rank, void *arg)
{
    join_fails(arg, rank, LK_STATUS_PEER, "died before all ranks had joined");
}

/* Three of four ranks join; one of them is killed while they wait for the fourth. */
static void test_death_before_all_joined(void **state)
{
    for (victim = 0; victim < 2; victim++) {
        plan job = make_plan(4, 30);
        pid_t pids[3];
        for (int r = 0; r < 3; r++)
            pids[r] = process_start(wait_for_victim, r, &job);
        sleep_ms(2000); /* until they have joined */
        kill(pids[victim], SIGKILL);
        assert_true(processes_end(pids, 3, 1u << victim));
        give_back(&job);
    }
}

/* The others wait for a rank that is stopped: it is not dead. */
static void test_stopped(void **state)
{
    plan job = make_plan(3, 30);
    pid_t pids[3];
    start_ranks(work_until_told, &job, pids);
    await_workers(&job);
    kill(pids[1], SIGSTOP);
    sleep_ms(500);
    kill(pids[1], SIGCONT);
    dismiss_workers(&job, pids);
}

/* Another rank that sees it first may make the job fail while this rank waits. */
static void wait_for_leave(lk_control *control, int rank)
{
    double deadline = lk__clock() + 20;
    lk_status status = LK_OK;
    while (status == LK_OK && !lk__control_left(control, rank) && lk__clock() < deadline) {
        status = lk__control_check(control);
        sleep_ms(1);
    }
    CHECK(lk__control_left(control, rank));
}

/* Ranks leave one after the other, rank 0 first: its server works on for the others. */
static void leave_in_turn(lk_control *control)
{
    meet(control);
    for (int r = 0; r < lk__control_rank(control); r++)
        wait_for_leave(control, r);
    CHECK(lk__control_check(control) == LK_OK);
}

static void leave_and_be_needed(lk_control *control)
{
    if (lk__control_rank(control) == 1)
        return;
    wait_for_leave(control, 1);
    CHECK_FAILS(exchange(control), LK_STATUS_PEER, "rank 1 (host ");
    CHECK_TEXT(lk_error_detail(), "left while other ranks were waiting for it");
}

static void test_leave(void **state)
{
    run_controls(leave_in_turn, make_plan(3, 30), -1);
    run_controls(leave_and_be_needed, make_plan(3, 30), -1);
}

/* Rank 1 does not come to an exchange. */
static void stay_away(lk_control *control, const char *text)
{
    CHECK((lk__control_rank(control) == 1 ? broken(control) : exchange(control)) == LK_STATUS_PEER);
    CHECK_TEXT(lk_error_detail(), text);
}

static void process_stay_away(lk_control *control)
{
    stay_away(control, "rank 1 of 3 has not come to exchange addresses within 3 s");
}

static void test_exchange_timeout(void **state)
{
    run_controls(process_stay_away, make_plan(3, 3), -1);
}

static void abort_by_1(lk_control *control)
{
    if (lk__control_rank(control) == 1)
        lk__control_abort(control, LK_STATUS_NONFINITE, "rank 1: the loss is not finite");
    CHECK(broken(control) == LK_STATUS_NONFINITE);
    CHECK(strcmp(lk_error_detail(), "rank 1: the loss is not finite") == 0);
}

static void test_abort(void **state)
{
    run_controls(abort_by_1, make_plan(3, 30), -1);
}

/* Rank 2 disagrees on call #41. Each rank reports one call more than the server keeps. */
static void report(lk_control *control)
{
    lk_call calls[LK_HISTORY + 1];
    for (uint32_t i = 0; i <= LK_HISTORY; i++)
        calls[i] = (lk_call){.number = i, .kind = LK_CALL_KIND_ALLREDUCE, .root = -1, .count = 1024};
    if (lk__control_rank(control) == 2)
        calls[41] = (lk_call){.number = 41, .kind = LK_CALL_KIND_BROADCAST, .root = 1, .count = 7};
    lk__control_report(control, calls, LK_HISTORY + 1);
    CHECK_FAILS(broken(control), LK_STATUS_MISMATCH,
                " called allreduce #41 (1024 f32, sum), rank 2 called broadcast #41 (7 f32, ");
}

static void test_reports(void **state)
{
    run_controls(report, make_plan(3, 30), -1);
}

typedef struct control_threads {
    lk_control *controls[8];
    control_fn fn;
} control_threads;

static void be_thread(int rank, void *arg)
{
    const control_threads *all = arg;
    CHECK(lk__control_rank(all->controls[rank]) == rank);
    all->fn(all->controls[rank]);
    lk__control_destroy(all->controls[rank]);
}

static void run_threads(int count, double timeout, control_fn fn)
{
    control_threads all = {.fn = fn};
    lk_group_opts opts = {.timeout = timeout};
    assert_ok(lk__control_threads(count, &opts, all.controls));
    threads_run(count, be_thread, &all);
}

static void thread_meet(lk_control *control)
{
    for (int i = 0; i < 200; i++)
        meet(control);
    CHECK(lk__control_check(control) == LK_OK);
}

static void thread_abort(lk_control *control)
{
    if (lk__control_rank(control) == 1)
        lk__control_abort(control, LK_STATUS_IO, "rank 1: the disk is full");
    else
        CHECK(exchange(control) == LK_STATUS_IO);
    CHECK_FAILS(lk__control_check(control), LK_STATUS_IO, "rank 1: the disk is full");
}

static void thread_stay_away(lk_control *control)
{
    stay_away(control, "rank 1 of 3 has not come to an exchange within 2 s");
}

static void test_threads(void **state)
{
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        run_threads(sizes[i], 30, thread_meet);
    run_threads(3, 30, report);
    run_threads(3, 30, thread_abort);
    run_threads(3, 30, leave_and_be_needed);
    run_threads(3, 2, thread_stay_away);
    lk_control *none;
    assert_int_equal(lk__control_threads(0, NULL, &none), LK_STATUS_USAGE);
}

TEST_MAIN(NULL, NULL, TEST(test_exchange), TEST(test_death), TEST(test_death_before_all_joined), TEST(test_stopped),
          TEST(test_leave), TEST(test_exchange_timeout), TEST(test_abort), TEST(test_reports), TEST(test_threads))
