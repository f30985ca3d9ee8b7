/* test_join.c - joining a job's control plane: who is missing, who comes twice or
 * with another idea of the job, and who is kept out. */
#include <sys/socket.h>

#include "comm/control_ranks.h"

static void miss_rank_2(int rank, void *arg)
{
    plan *job = arg;
    if (rank == 2)
        return;
    lk_group_opts opts = options(job, rank);
    lk_control *control = NULL;
    CHECK(lk__control_join(&opts, &control) == LK_STATUS_PEER);
    CHECK_TEXT(lk_error_detail(), "rank 2 of 4 has not joined within 3 s");
}

static void test_missing_rank(void **state)
{
    (void)state;
    run_ranks(miss_rank_2, make_plan(4, 3), -1);
}

static void hear_notice(int rank, void *arg)
{
    plan *job = arg;
    lk_group_opts opts = options(job, rank);
    lk_control *control = NULL;
    if (rank == 2)
        return;
    if (rank == 3) /* calls where nobody listens */
        opts.init_method = "tcp://127.0.0.1:1";
    CHECK(lk__control_join(&opts, &control) == LK_STATUS_PEER);
    CHECK(job->notices == 1);
    if (rank == 3)
        CHECK_TEXT(job->notice, "rank 0 of 4 at 127.0.0.1:1 does not answer, ");
    else
        CHECK_TEXT(job->notice, "ranks 2 and 3 of 4 have not joined, ");
    CHECK_TEXT(lk_error_detail(), rank == 3 ? "does not answer" : "ranks 2 and 3 of 4 have not joined within 6 s");
}

static void test_notice(void **state)
{
    (void)state;
    run_ranks(hear_notice, make_plan(4, 6), -1);
}

static int twin_pid; /* the first rank 1's */

static void come_twice(int rank, void *arg)
{
    lk_group_opts opts = options(arg, rank);
    lk_control *control = NULL;
    CHECK(lk__control_join(&opts, &control) == LK_STATUS_MISMATCH);
    CHECK_TEXT(lk_error_detail(), "two processes came as the same rank: rank 1 (host ");
}

static void test_same_rank_twice(void **state)
{
    (void)state;
    plan job = make_plan(3, 20);
    pid_t pids[] = {process_start(come_twice, 0, &job), process_start(come_twice, 1, &job),
                    process_start(come_twice, 1, &job)};
    for (int i = 0; i < 3; i++)
        assert_int_equal(process_wait(pids[i]), 0);
    give_back(&job);
}

static void late_twin(int rank, void *arg)
{
    char text[32];
    snprintf(text, sizeof text, "pid %d)", twin_pid);
    come_twice(rank, arg);
    CHECK_TEXT(lk_error_detail(), text);
}

/* A job at work refuses who comes late, and goes on. */
static void test_late_twin(void **state)
{
    (void)state;
    plan job = make_plan(2, 20);
    pid_t pids[2];
    start_ranks(work_until_told, &job, pids);
    await_workers(&job);
    twin_pid = pids[1];
    assert_int_equal(process_wait(process_start(late_twin, 1, &job)), 0);
    dismiss_workers(&job, pids);
}

static void mismatch_world(int rank, void *arg)
{
    plan *job = arg;
    job->size = rank == 1 ? 3 : 2;
    lk_group_opts opts = options(job, rank);
    lk_control *control = NULL;
    CHECK(lk__control_join(&opts, &control) == LK_STATUS_MISMATCH);
    CHECK_TEXT(lk_error_detail(), "was started for a world of 3, but rank 0 (host ");
    CHECK_TEXT(lk_error_detail(), "for a world of 2");
}

static void test_world_mismatch(void **state)
{
    (void)state;
    run_ranks(mismatch_world, make_plan(2, 20), -1);
}

static void mismatch_token(int rank, void *arg)
{
    plan *job = arg;
    job->token = rank == 1 ? "other" : "secret";
    lk_group_opts opts = options(job, rank);
    lk_control *control = NULL;
    CHECK(lk__control_join(&opts, &control) == LK_STATUS_PEER);
    CHECK_TEXT(lk_error_detail(), rank == 1 ? "token" : "rank 1 of 2 has not joined");
}

static void test_wrong_token(void **state)
{
    (void)state;
    run_ranks(mismatch_token, make_plan(2, 3), -1);
}

static int connect_stranger(int port)
{
    int fd = -1;
    double deadline = lk__clock() + 10;
    while (fd < 0 && lk__clock() < deadline)
        if (lk__net_connect("127.0.0.1", port, deadline, &fd, NULL) != LK_OK)
            sleep_ms(5);
    return fd;
}

static void join_and_meet(int rank, void *arg)
{
    lk_control *control = join(arg, rank);
    meet(control);
    lk__control_destroy(control);
}

/* Many silent ones, one that sends a byte now and then, one that sends noise. */
static void test_strangers(void **state)
{
    (void)state;
    enum { SILENT = 100 };
    plan job = make_plan(3, 20);
    int silent[SILENT];
    uint8_t noise[1 << 16];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)(i * 7919 >> 3);
    pid_t pids[3] = {process_start(join_and_meet, 0, &job)};
    int loud = connect_stranger(job.port);
    assert_true(loud >= 0);
    ssize_t sent = send(loud, noise, sizeof noise, MSG_NOSIGNAL | MSG_DONTWAIT);
    assert_true(sent > 0);
    for (int i = 0; i < SILENT; i++) {
        silent[i] = connect_stranger(job.port);
        assert_true(silent[i] >= 0);
    }
    pids[1] = process_start(join_and_meet, 1, &job);
    send(silent[SILENT - 1], "l", 1, MSG_NOSIGNAL);
    pids[2] = process_start(join_and_meet, 2, &job);
    for (int r = 0; r < 3; r++)
        assert_int_equal(process_wait(pids[r]), 0);
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    close(loud);
    give_back(&job);
}

/* Another job's rank 0 finds the port busy, its rank 1 does not get in. */
static void intrude(int rank, void *arg)
{
    plan *job = arg;
    job->token = "another job";
    job->timeout = 1;
    lk_group_opts opts = options(job, rank);
    lk_control *control = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", job->port);
    CHECK(lk__control_join(&opts, &control) == (rank == 0 ? LK_STATUS_IO : LK_STATUS_PEER));
    CHECK_TEXT(lk_error_detail(), rank == 0 ? port : "token");
}

static void test_two_jobs(void **state)
{
    (void)state;
    plan job = make_plan(2, 20);
    pid_t first = process_start(join_and_meet, 0, &job);
    int probe = connect_stranger(job.port);
    assert_true(probe >= 0);
    pid_t others[] = {process_start(intrude, 0, &job), process_start(intrude, 1, &job)};
    assert_int_equal(process_wait(others[0]), 0);
    assert_int_equal(process_wait(others[1]), 0);
    pid_t second = process_start(join_and_meet, 1, &job);
    assert_int_equal(process_wait(first), 0);
    assert_int_equal(process_wait(second), 0);
    close(probe);
    give_back(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_rank),    cmocka_unit_test(test_notice),
        cmocka_unit_test(test_same_rank_twice), cmocka_unit_test(test_late_twin),
        cmocka_unit_test(test_world_mismatch),  cmocka_unit_test(test_wrong_token),
        cmocka_unit_test(test_strangers),       cmocka_unit_test(test_two_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
