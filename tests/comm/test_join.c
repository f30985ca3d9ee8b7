/* test_join.c - joining a job: ranks that are missing, come twice or have other options, and
 * strangers, which are refused. */
#include <sys/socket.h>

#include "comm/control_ranks.h"
#include "temp_folder.h"

static void miss_rank_2(int rank, void *arg)
{
    if (rank != 2)
        join_fails(arg, rank, LK_STATUS_PEER, "rank 2 of 4 has not joined within 3 s");
}

static void test_missing_rank(void **state)
{
    run_ranks(miss_rank_2, make_plan(4, 3), -1);
}

static void hear_notice(int rank, void *arg)
{
    plan *job = arg;
    if (rank == 2)
        return;
    if (rank == 3) /* calls a port on which nobody listens */
        snprintf(job->method, sizeof job->method, "tcp://127.0.0.1:1");
    join_fails(job, rank, LK_STATUS_PEER,
               rank == 3 ? "does not answer" : "ranks 2 and 3 of 4 have not joined within 6 s");
    CHECK(job->notices == 1);
    CHECK_TEXT(job->notice,
               rank == 3 ? "rank 0 of 4 at 127.0.0.1:1 does not answer, " : "ranks 2 and 3 of 4 have not joined, ");
}

static void test_notice(void **state)
{
    run_ranks(hear_notice, make_plan(4, 6), -1);
}

static int twin_pid; /* of the process that joined first */

static void come_twice(int rank, void *arg)
{
    join_fails(arg, rank, LK_STATUS_MISMATCH, "two processes came as the same rank: rank 1 (host ");
}

static void test_same_rank_twice(void **state)
{
    plan job = make_plan(3, 20);
    pid_t pids[] = {process_start(come_twice, 0, &job), process_start(come_twice, 1, &job),
                    process_start(come_twice, 1, &job)};
    assert_true(processes_end(pids, 3, 0));
    give_back(&job);
}

/* The error names the first rank 0, and the first rank 0 works on. */
static void come_as_second_rank_0(int rank, void *arg)
{
    char text[64];
    join_fails(arg, rank, LK_STATUS_MISMATCH, "two processes came as the same rank: rank 0 (host ");
    snprintf(text, sizeof text, "pid %d) and rank 0 (host ", twin_pid);
    CHECK_TEXT(lk_error_detail(), text);
}

static void join_beside_a_twin(int rank, void *arg)
{
    plan *job = arg;
    char byte = 0;
    if (rank == 0) /* listens before the second rank 0 is started */
        CHECK(write(job->came[1], &byte, 1) == 1);
    lk_control *control = join(job, rank);
    if (rank == 0) {
        CHECK(job->notices == 1);
        CHECK_TEXT(job->notice, "two processes came as the same rank: rank 0 (host ");
    }
    meet(control);
    lk__control_destroy(control);
}

static int connect_stranger(int port);

static void test_rank_0_twice(void **state)
{
    plan job = make_plan(2, 20);
    pid_t first = process_start(join_beside_a_twin, 0, &job);
    int probe = connect_stranger(job.port);
    assert_true(probe >= 0);
    twin_pid = first;
    assert_int_equal(process_wait(process_start(come_as_second_rank_0, 0, &job)), 0);
    assert_true(processes_end((pid_t[]){first, process_start(join_beside_a_twin, 1, &job)}, 2, 0));
    close(probe);
    give_back(&job);
}

static void find_port_taken(int rank, void *arg)
{
    join_fails(arg, rank, LK_STATUS_IO, "Address already in use");
    CHECK_TEXT(lk_error_detail(), "another process of this job came as rank 0");
    CHECK_TEXT(lk_error_detail(), "choose another port");
}

/* A program that never answers listens on the port. */
static void test_port_taken(void **state)
{
    plan job = make_plan(2, 20);
    int fd = -1, port = 0;
    assert_int_equal(lk__net_listen("127.0.0.1", job.port, &fd, &port), LK_OK);
    assert_int_equal(process_wait(process_start(find_port_taken, 0, &job)), 0);
    close(fd);
    give_back(&job);
}

static void late_twin(int rank, void *arg)
{
    char text[32];
    snprintf(text, sizeof text, "pid %d)", twin_pid);
    come_twice(rank, arg);
    CHECK_TEXT(lk_error_detail(), text);
}

/* A job that has started refuses a second rank 1 and works on. */
static void test_late_twin(void **state)
{
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
    join_fails(job, rank, LK_STATUS_MISMATCH, "was started for a world of 3, but rank 0 (host ");
    CHECK_TEXT(lk_error_detail(), "for a world of 2");
}

static void test_world_mismatch(void **state)
{
    run_ranks(mismatch_world, make_plan(2, 20), -1);
}

static void mismatch_token(int rank, void *arg)
{
    plan *job = arg;
    job->token = rank == 1 ? "other" : "secret";
    join_fails(job, rank, LK_STATUS_PEER, rank == 1 ? "token" : "rank 1 of 2 has not joined");
    if (rank == 1)
        return;
    /* Rank 0 gets a notice at once, and the error at its timeout. */
    CHECK_TEXT(lk_error_detail(), "the peer at 127.0.0.1 has another job token");
    CHECK(job->notices == 1);
    CHECK_TEXT(job->notice, "the peer at 127.0.0.1 has another job token");
}

static void test_wrong_token(void **state)
{
    run_ranks(mismatch_token, make_plan(2, 3), -1);
}

/* Gives this process a home folder: of all ranks, or of its rank alone. No token is set. */
static void move_home(plan *job, int rank)
{
    char home[TEMP_FOLDER_BYTES + 16];
    snprintf(home, sizeof home, "%s/home%d", temp_folder, rank);
    setenv("XDG_CONFIG_HOME", home, 1);
    unsetenv("LOCKSTEP_TOKEN");
    unsetenv("LOCKSTEP_TOKEN_FILE");
    job->token = NULL;
}

static void join_by_secret(int rank, void *arg)
{
    plan *job = arg;
    move_home(job, 9);
    lk_control *control = join(job, rank);
    CHECK(job->notices == 0);
    meet(control);
    lk__control_destroy(control);
}

static void test_same_secret(void **state)
{
    run_ranks(join_by_secret, make_plan(5, 20), -1);
}

static void mismatch_secret(int rank, void *arg)
{
    plan *job = arg;
    move_home(job, rank);
    join_fails(job, rank, LK_STATUS_PEER,
               rank == 1 ? "closed the connection when it saw our proof: it has another secret than yours ("
                         : "rank 1 of 2 has not joined");
    CHECK_TEXT(lk_error_detail(), "it belongs to another user, or its HOME");
    if (rank == 1)
        return;
    CHECK(job->notices == 1);
    CHECK_TEXT(job->notice, "the peer at 127.0.0.1 has another secret than yours (");
}

static void test_other_secret(void **state)
{
    run_ranks(mismatch_secret, make_plan(2, 3), -1);
}

/* On request no secret is needed, and rank 0 says what that means. */
static void join_openly(int rank, void *arg)
{
    plan *job = arg;
    char text[64];
    move_home(job, 10 + rank);
    setenv("LOCKSTEP_INSECURE", "1", 1);
    lk_control *control = join(job, rank);
    CHECK(job->notices == (rank == 0));
    snprintf(text, sizeof text, "anyone who can reach 127.0.0.1:%d may join", job->port);
    if (rank == 0)
        CHECK_TEXT(job->notice, text);
    meet(control);
    lk__control_destroy(control);
    CHECK(access(getenv("XDG_CONFIG_HOME"), F_OK) != 0);
}

static void test_insecure(void **state)
{
    run_ranks(join_openly, make_plan(3, 20), -1);
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

/* A hundred clients that are silent, one of which sends a byte, and one that sends noise. */
static void test_strangers(void **state)
{
    enum { SILENT = 100 };
    plan job = make_plan(3, 20);
    job.fn = meet;
    int silent[SILENT];
    uint8_t noise[1 << 16];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)(i * 7919 >> 3);
    pid_t pids[3] = {process_start(be_control, 0, &job)};
    int loud = connect_stranger(job.port);
    assert_true(loud >= 0);
    ssize_t sent = send(loud, noise, sizeof noise, MSG_NOSIGNAL | MSG_DONTWAIT);
    assert_true(sent > 0);
    for (int i = 0; i < SILENT; i++) {
        silent[i] = connect_stranger(job.port);
        assert_true(silent[i] >= 0);
    }
    pids[1] = process_start(be_control, 1, &job);
    send(silent[SILENT - 1], "l", 1, MSG_NOSIGNAL);
    pids[2] = process_start(be_control, 2, &job);
    assert_true(processes_end(pids, 3, 0));
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    close(loud);
    give_back(&job);
}

/* Rank 0 of another job finds the port in use; its rank 1 is refused. */
static void intrude(int rank, void *arg)
{
    plan *job = arg;
    job->token = "another job";
    job->timeout = 1;
    char port[16];
    snprintf(port, sizeof port, "%d", job->port);
    join_fails(job, rank, rank == 0 ? LK_STATUS_IO : LK_STATUS_PEER, rank == 0 ? port : "token");
}

static void test_two_jobs(void **state)
{
    plan job = make_plan(2, 20);
    job.fn = meet;
    pid_t first = process_start(be_control, 0, &job);
    int probe = connect_stranger(job.port);
    assert_true(probe >= 0);
    pid_t others[] = {process_start(intrude, 0, &job), process_start(intrude, 1, &job)};
    assert_true(processes_end(others, 2, 0));
    assert_true(processes_end((pid_t[]){first, process_start(be_control, 1, &job)}, 2, 0));
    close(probe);
    give_back(&job);
}

TEST_MAIN(temp_folder_set_up, temp_folder_tear_down, TEST(test_missing_rank), TEST(test_notice),
          TEST(test_same_rank_twice), TEST(test_late_twin), TEST(test_rank_0_twice), TEST(test_port_taken),
          TEST(test_world_mismatch), TEST(test_wrong_token), TEST(test_strangers), TEST(test_two_jobs),
          TEST(test_same_secret), TEST(test_other_secret), TEST(test_insecure))
