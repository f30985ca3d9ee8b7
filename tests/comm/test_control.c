/* test_control.c - the control plane of a job at work: who died, left or gave up,
 * and who disagrees. Ranks are processes on loopback; the last tests are for ranks
 * that are threads. */

#include "comm/control_ranks.h"

static void exchange_often(int rank, void *arg)
{
    lk_control *control = join(arg, rank);
    uint8_t mine[LK_EXCHANGE_BYTES], all[16 * LK_EXCHANGE_BYTES];
    for (size_t i = 0; i < 50; i++) {
        size_t bytes = i * 5;
        memset(mine, rank + (int)i, sizeof mine);
        CHECK(lk__control_exchange(control, mine, bytes, all) == LK_OK);
        for (int r = 0; r < lk__control_size(control); r++)
            for (size_t b = 0; b < bytes; b++)
                CHECK(all[(size_t)r * bytes + b] == (uint8_t)(r + (int)i));
    }
    lk__control_destroy(control);
}

static void test_exchange(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        run_ranks(exchange_often, make_plan(sizes[i], 30), -1);
}

static void kill_rank(int rank, void *arg, int victim)
{
    lk_control *control = join(arg, rank);
    meet(control);
    if (rank == victim)
        kill(getpid(), SIGKILL);
    char text[64];
    snprintf(text, sizeof text, "pid %d) died", (int)lk__control_members(control)[victim].pid);
    for (int again = 0; again < 2; again++) {
        CHECK_FAILS(broken(control), LK_STATUS_PEER, text);
    }
    int all[8];
    CHECK(lk__control_exchange(control, &rank, sizeof rank, all) == LK_STATUS_PEER);
    lk__control_destroy(control);
}

static void kill_rank_0(int rank, void *arg)
{
    kill_rank(rank, arg, 0);
}

static void kill_rank_2(int rank, void *arg)
{
    kill_rank(rank, arg, 2);
}

static void test_death(void **state)
{
    run_ranks(kill_rank_0, make_plan(3, 30), 0);
    run_ranks(kill_rank_2, make_plan(3, 30), 2);
}

static void wait_for_victim(int rank, void *arg)
{
    lk_group_opts opts = options(arg, rank);
    lk_control *control = NULL;
    CHECK(lk__control_join(&opts, &control) == LK_STATUS_PEER);
    CHECK_TEXT(lk_error_detail(), "died before all ranks had joined");
}

/* Of four, three come, and one of those is killed while they wait. */
static void test_death_before_all_joined(void **state)
{
    for (int victim = 0; victim < 2; victim++) {
        plan job = make_plan(4, 30);
        pid_t pids[3];
        for (int r = 0; r < 3; r++)
            pids[r] = process_start(wait_for_victim, r, &job);
        sleep_ms(2000); /* until they have joined */
        kill(pids[victim], SIGKILL);
        for (int r = 0; r < 3; r++)
            assert_int_equal(process_wait(pids[r]), r == victim ? 128 + SIGKILL : 0);
        give_back(&job);
    }
}

/* A stopped rank is awaited, not dead. */
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

/* The job may break afterwards by another rank, which saw it first. */
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

/* Ranks leave one after the other, rank 0 first: its server stays for them. */
static void leave_in_turn(int rank, void *arg)
{
    lk_control *control = join(arg, rank);
    meet(control);
    for (int r = 0; r < rank; r++)
        wait_for_leave(control, r);
    CHECK(lk__control_check(control) == LK_OK);
    lk__control_destroy(control);
}

static void leave_and_be_needed(int rank, void *arg)
{
    lk_control *control = join(arg, rank);
    if (rank != 1) {
        int all[8];
        wait_for_leave(control, 1);
        CHECK(lk__control_exchange(control, &rank, sizeof rank, all) == LK_STATUS_PEER);
        CHECK_TEXT(lk_error_detail(), "rank 1 (host ");
        CHECK_TEXT(lk_error_detail(), "left while other ranks were waiting for it");
    }
    lk__control_destroy(control);
}

static void test_leave(void **state)
{
    run_ranks(leave_in_turn, make_plan(3, 30), -1);
    run_ranks(leave_and_be_needed, make_plan(3, 30), -1);
}

static void stay_away(int rank, void *arg)
{
    lk_control *control = join(arg, rank);
    int all[8];
    if (rank == 1)
        CHECK(broken(control) == LK_STATUS_PEER);
    else
        CHECK(lk__control_exchange(control, &rank, sizeof rank, all) == LK_STATUS_PEER);
    CHECK_TEXT(lk_error_detail(), "rank 1 of 3 has not come to exchange addresses within 3 s");
    lk__control_destroy(control);
}

static void test_exchange_timeout(void **state)
{
    run_ranks(stay_away, make_plan(3, 3), -1);
}

static void abort_by_1(int rank, void *arg)
{
    lk_control *control = join(arg, rank);
    if (rank == 1)
        lk__control_abort(control, LK_STATUS_NONFINITE, "rank 1: the loss is not finite");
    CHECK(broken(control) == LK_STATUS_NONFINITE);
    CHECK(strcmp(lk_error_detail(), "rank 1: the loss is not finite") == 0);
    lk__control_destroy(control);
}

static void test_abort(void **state)
{
    run_ranks(abort_by_1, make_plan(3, 30), -1);
}

/* Ranks 0 and 1 agree on #41, rank 2 does not; one more call than is kept. */
static void report(lk_control *control)
{
    lk_call calls[LK_HISTORY + 1];
    int rank = lk__control_rank(control);
    for (uint32_t i = 0; i <= LK_HISTORY; i++)
        calls[i] = (lk_call){.number = i, .kind = LK_CALL_ALLREDUCE, .root = -1, .count = 1024};
    if (rank == 2)
        calls[41] = (lk_call){.number = 41, .kind = LK_CALL_BROADCAST, .root = 1, .count = 7};
    lk__control_report(control, calls, LK_HISTORY + 1);
}

static void check_mismatch(lk_control *control)
{
    CHECK_FAILS(broken(control), LK_STATUS_MISMATCH,
                " called allreduce #41 (1024 f32, sum), rank 2 called broadcast #41 (7 f32, ");
}

static void report_all(int rank, void *arg)
{
    lk_control *control = join(arg, rank);
    report(control);
    check_mismatch(control);
    lk__control_destroy(control);
}

static void test_reports(void **state)
{
    run_ranks(report_all, make_plan(3, 30), -1);
}

typedef struct control_threads {
    lk_control *controls[8];
    void (*fn)(lk_control *control);
} control_threads;

static void be_thread(int rank, void *arg)
{
    const control_threads *all = arg;
    CHECK(lk__control_rank(all->controls[rank]) == rank);
    all->fn(all->controls[rank]);
}

static void run_threads(int count, double timeout, void (*fn)(lk_control *control))
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
    lk__control_destroy(control);
}

static void thread_report(lk_control *control)
{
    report(control);
    check_mismatch(control);
    lk__control_destroy(control);
}

static void thread_abort(lk_control *control)
{
    int all[8], mine = 0;
    if (lk__control_rank(control) == 1)
        lk__control_abort(control, LK_STATUS_IO, "rank 1: the disk is full");
    else
        CHECK(lk__control_exchange(control, &mine, sizeof mine, all) == LK_STATUS_IO);
    CHECK_FAILS(lk__control_check(control), LK_STATUS_IO, "rank 1: the disk is full");
    lk__control_destroy(control);
}

static void thread_leave(lk_control *control)
{
    int all[8], mine = 0;
    if (lk__control_rank(control) != 1) {
        wait_for_leave(control, 1);
        CHECK(lk__control_exchange(control, &mine, sizeof mine, all) == LK_STATUS_PEER);
        CHECK_TEXT(lk_error_detail(), "left while other ranks were waiting for it");
    }
    lk__control_destroy(control);
}

static void thread_stay_away(lk_control *control)
{
    int all[8], mine = 0;
    if (lk__control_rank(control) == 1)
        CHECK(broken(control) == LK_STATUS_PEER);
    else
        CHECK(lk__control_exchange(control, &mine, sizeof mine, all) == LK_STATUS_PEER);
    CHECK_TEXT(lk_error_detail(), "rank 1 of 3 has not come to an exchange within 2 s");
    lk__control_destroy(control);
}

static void test_threads(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        run_threads(sizes[i], 30, thread_meet);
    run_threads(3, 30, thread_report);
    run_threads(3, 30, thread_abort);
    run_threads(3, 30, thread_leave);
    run_threads(3, 2, thread_stay_away);
    lk_control *none;
    assert_int_equal(lk__control_threads(0, NULL, &none), LK_STATUS_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchange), cmocka_unit_test(test_death),   cmocka_unit_test(test_death_before_all_joined),
        cmocka_unit_test(test_stopped),  cmocka_unit_test(test_leave),   cmocka_unit_test(test_exchange_timeout),
        cmocka_unit_test(test_abort),    cmocka_unit_test(test_reports), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
