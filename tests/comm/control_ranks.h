/* control_ranks.h - jobs whose ranks are processes on loopback, each with a connection to the control
 * server of rank 0. */
#ifndef TESTS_COMM_CONTROL_RANKS_H
#define TESTS_COMM_CONTROL_RANKS_H

#include <poll.h>

#include "base/clock.h"
#include "check.h"
#include "comm/control/control.h"
#include "net/socket.h"
#include "processes.h"

typedef void (*control_fn)(lk_control *control);

typedef struct plan {
    char method[128];
    int port, holder;
    int size;
    const char *token;
    double timeout;
    int notices;
    char notice[512];       /* the last one */
    int came[2], enough[2]; /* pipes with one byte for each rank: see work_until_told */
    control_fn fn;          /* of run_controls */
} plan;

static inline void count_notice(void *arg, const char *text)
{
    plan *job = arg;
    job->notices++;
    snprintf(job->notice, sizeof job->notice, "%s", text);
}

static inline plan make_plan(int size, double timeout)
{
    plan made = {.size = size, .token = "secret", .timeout = timeout};
    assert_int_equal(lk__net_reserve("127.0.0.1", &made.holder, &made.port), LK_OK);
    snprintf(made.method, sizeof made.method, "tcp://127.0.0.1:%d", made.port);
    assert_int_equal(pipe(made.came) | pipe(made.enough), 0);
    return made;
}

static inline void give_back(const plan *job)
{
    close(job->holder);
    for (int end = 0; end < 2; end++) {
        close(job->came[end]);
        close(job->enough[end]);
    }
}

static inline lk_group_opts options(plan *job, int rank)
{
    return (lk_group_opts){.init_method = job->method,
                           .rank = rank,
                           .world_size = job->size,
                           .token = job->token,
                           .timeout = job->timeout,
                           .notice = count_notice,
                           .notice_arg = job};
}

static inline lk_control *join(plan *job, int rank)
{
    lk_group_opts opts = options(job, rank);
    lk_control *control = NULL;
    CHECK(lk__control_join(&opts, NULL, &control) == LK_OK);
    return control;
}

static inline void join_fails(plan *job, int rank, lk_status status, const char *text)
{
    lk_group_opts opts = options(job, rank);
    lk_control *control = NULL;
    CHECK_FAILS(lk__control_join(&opts, NULL, &control), status, text);
}

/* Waits at most 20 s until the job has failed; returns its status. */
static inline lk_status broken(lk_control *control)
{
    double deadline = lk__clock() + 20;
    lk_status status = LK_OK;
    while (status == LK_OK && lk__clock() < deadline) {
        status = lk__control_check(control);
        sleep_ms(1);
    }
    return status;
}

/* Exchanges the ranks' numbers; returns when all ranks have called it. */
static inline void meet(lk_control *control)
{
    int mine = lk__control_rank(control), all[16];
    CHECK(lk__control_exchange(control, &mine, sizeof mine, all) == LK_OK);
    for (int r = 0; r < lk__control_size(control); r++)
        CHECK(all[r] == r);
}

static inline void start_ranks(process_fn fn, plan *job, pid_t *pids)
{
    for (int r = 0; r < job->size; r++)
        pids[r] = process_start(fn, r, job);
}

/* Runs fn on all ranks; rank `killed` must be ended by SIGKILL (-1: none), the others with 0. */
static inline void run_ranks(process_fn fn, plan job, int killed)
{
    assert_true(processes_run(job.size, fn, &job, killed < 0 ? 0 : 1u << killed));
    give_back(&job);
}

static inline void be_control(int rank, void *arg)
{
    plan *job = arg;
    lk_control *control = join(job, rank);
    job->fn(control);
    lk__control_destroy(control);
}

/* Runs fn on all ranks after they have joined. */
static inline void run_controls(control_fn fn, plan job, int killed)
{
    job.fn = fn;
    run_ranks(be_control, job, killed);
}

/* Joins, then works until dismiss_workers. */
static inline void work_until_told(int rank, void *arg)
{
    plan *job = arg;
    lk_control *control = join(job, rank);
    struct pollfd told = {.fd = job->enough[0], .events = POLLIN};
    char byte = 0;
    CHECK(write(job->came[1], &byte, 1) == 1);
    while (poll(&told, 1, 20) == 0)
        CHECK(lk__control_check(control) == LK_OK);
    CHECK(read(job->enough[0], &byte, 1) == 1);
    meet(control);
    lk__control_destroy(control);
}

static inline void await_workers(const plan *job)
{
    char byte;
    for (int r = 0; r < job->size; r++)
        assert_int_equal(read(job->came[0], &byte, 1), 1);
}

static inline void dismiss_workers(const plan *job, const pid_t *pids)
{
    for (int r = 0; r < job->size; r++)
        assert_int_equal(write(job->enough[1], "", 1), 1);
    assert_true(processes_end(pids, job->size, 0));
    give_back(job);
}

#endif
