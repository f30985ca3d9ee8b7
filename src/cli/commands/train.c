/* train.c - `lockstep train`: starts ranks, or runs as one or several of them. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "cli/cli.h"
#include "cli/job/launch.h"
#include "cli/job/live.h"
#include "cli/job/plan.h"
#include "cli/job/requeue.h"
#include "cli/job/signals.h"
#include "cli/report/recording.h"
#include "cli/report/report.h"

/* Nanoseconds that a rank waits at the end if it has nothing new to print, so that its launcher reads the
 * output of the rank that failed first and ends this one. */
static const long LINGER_NS = 500 * 1000 * 1000;
/* Nanoseconds that a rank waits at the end if another rank received the signal that ends it. All ranks end by
 * agreement, so the launcher ends this one soon, unless the machine is very busy. */
static const long STOPPED_LINGER_NS = 5000 * 1000 * 1000L;
/* Nanoseconds that a rank waits at the end if it could only repeat the reason of another rank. */
static const long REPEATED_LINGER_NS = 5000 * 1000 * 1000L;

/* Nanoseconds that a process waits at the end until Slurm, which was asked to requeue the job, ends it: the lines
 * of the job's script after this one are for a run that is complete. */
static const long REQUEUED_LINGER_NS = 10 * 1000 * 1000 * 1000L;

/* Seconds for the last checkpoint that a launcher grants to ranks after a stop signal; a second signal ends
 * them at once. */
static const double SAVE_SECONDS = 600;

enum { SHOWN_CALLS = 5 };

/* The command, with the state of this process. */
typedef struct train_command {
    lk_args *args;
    lk_join join;
    lk_job_plan plan; /* made once, before there are ranks */
    bool data_given;
    double exec_at;
    lk_recording recording;
    lk_live live;      /* the page of --serve, in the process that is or starts rank 0 */
    int terminal;      /* on which a launcher draws the progress line of rank 0; -1: none */
    bool out_terminal; /* the launcher's stdout is a terminal */
    lk_screen *screen; /* NULL unless ranks run */
    int code;          /* the exit status after print_failure */
} train_command;

static void print_notice(void *arg, const char *text)
{
    train_command *t = arg;
    if (t->screen)
        lk__screen_begin_lines(t->screen);
    fprintf(stderr, "lockstep train: %s\n", lk__args_spell(text));
    if (t->screen)
        lk__screen_end_lines(t->screen);
}

static void linger(long nanoseconds)
{
    fflush(NULL);
    nanosleep(&(struct timespec){.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000}, NULL);
}

/* Prints the end of the group's history: the engine makes hundreds of calls in a second, and the last ones
 * matter. */
static void print_calls(const lk_train_failure *failure)
{
    const char *from = failure->history + strlen(failure->history);
    for (int lines = 0; from > failure->history; from--) {
        if (from[-1] == '\n' && lines++ == SHOWN_CALLS)
            break;
    }
    fprintf(stderr, "the last calls of rank %d:\n%s", failure->rank, from);
}

static bool is_launched(const train_command *t)
{
    return t->join.way == LK_JOIN_WAY_ENV;
}

/* Whether `lockstep run` or -n started this rank. Such a launcher prints the output of the ranks and names the
 * one that failed. */
static bool is_watched(const train_command *t)
{
    return is_launched(t) && getenv("LOCKSTEP_RUN_ID") != NULL;
}

/* Whether the failure is another rank's, which that rank prints itself: lk_group_abort. */
static bool is_repeated(const lk_train_failure *failure)
{
    int rank, end = 0;
    return failure->fault == LK_TRAIN_FAULT_PEER && sscanf(failure->detail, "rank %d gave up: %n", &rank, &end) == 1 &&
           end > 0;
}

/* If all ranks fail in the same way, rank 0 prints first, and a launcher ends the others before they repeat it.
 * A rank that could only repeat the failure of another rank prints only if the launcher has not ended it within
 * seconds. */
static void print_failure(void *arg, const lk_train_failure *failure)
{
    train_command *t = arg;
    bool alike = failure->fault == LK_TRAIN_FAULT_SETUP || failure->fault == LK_TRAIN_FAULT_COMMON;
    lk__job_signals_end(); /* a signal from the launcher must end this rank */
    lk__recording_failed(&t->recording, failure->detail);
    if (t->screen)
        lk__screen_fini(t->screen);
    if (is_launched(t) && alike && t->join.rank > 0)
        linger(LINGER_NS);
    bool repeated = is_watched(t) && is_repeated(failure);
    if (repeated) {
        lk__report_last(t->args, failure);
        linger(REPEATED_LINGER_NS);
    }
    if (failure->history)
        print_calls(failure);
    t->code = lk__cli_fail(lk__fail(failure->status, "%s", failure->detail));
    if (!repeated)
        lk__report_last(t->args, failure);
}

static int fail_setup(train_command *t, lk_status status)
{
    lk_train_failure failure = {.status = status, .fault = LK_TRAIN_FAULT_SETUP, .rank = -1};
    snprintf(failure.detail, sizeof failure.detail, "%s", lk_error_detail());
    print_failure(t, &failure);
    return t->code;
}

static _Noreturn void end_by(int number)
{
    fflush(NULL);
    signal(number, SIG_DFL);
    raise(number);
    _exit(128 + number); /* if the signal is blocked */
}

/* Whether this process asks Slurm to requeue: rank 0 and, if every task of a job array is a rank, each of them,
 * because a task of an array is a job of its own. */
static bool asks_requeue(const train_command *t)
{
    const char *task = getenv("SLURM_PROCID");
    bool array = getenv("SLURM_ARRAY_JOB_ID") && task && strcmp(task, "0") == 0;
    return t->join.rank == 0 || (array && t->join.way == LK_JOIN_WAY_HAND);
}

/* All that the run needs to go on was saved at rank 0 before any rank comes here. */
static int end_requeued(const train_command *t, const lk_train_outcome *result)
{
    if (asks_requeue(t)) {
        fprintf(stderr, "lockstep train: asks Slurm to requeue job %s\n", lk__requeue_job());
        lk_status status = lk__requeue_ask();
        if (status != LK_OK)
            return lk__cli_fail(lk__fail(status, "%s; submit the job again: it goes on from %s", lk_error_detail(),
                                         *result->checkpoint ? result->checkpoint : "its last checkpoint"));
    }
    linger(REQUEUED_LINGER_NS);
    return 128 + result->stop_signal;
}

/* Says at the start what would be an error hours later. */
static lk_status check_requeue(train_command *t)
{
    if (!t->args->requeue)
        return LK_OK;
    LK_TRY(lk__requeue_check());
    if (t->join.rank == 0 && lk__requeue_expect() != LK_OK)
        print_notice(t, lk_error_detail());
    return LK_OK;
}

/* A stopped run ends at every rank as its signal would have ended it. Under a launcher the rank that received
 * the signal dies by it. The other ranks wait, so that this rank ends first and the launcher names it. */
static int end_stopped(const train_command *t, const lk_train_outcome *result)
{
    int count = t->plan.devices.count, first = t->join.rank * count, number = result->stop_signal;
    if (t->args->requeue)
        return end_requeued(t, result);
    bool mine = result->stop_rank >= first && result->stop_rank < first + count;
    if (is_launched(t) && mine)
        end_by(number);
    if (is_launched(t) && !lk__job_signals_stop())
        linger(STOPPED_LINGER_NS);
    return 128 + number;
}

/* Runs the ranks of a plan. joined as in lk_train_ranks. */
static lk_status run_plan(train_command *t, const lk_job_plan *plan, lk_train_crew **joined, lk_train_outcome *out,
                          lk_train_failure *failure)
{
    static atomic_int level;
    lk_report reports[LK_DEVICES_MAX];
    lk_train_hooks hooks[LK_DEVICES_MAX];
    const char *devices[LK_DEVICES_MAX];
    lk_group_opts group = plan->join.group;
    group.notice = print_notice;
    group.notice_arg = t;
    for (int i = 0; i < plan->devices.count; i++) {
        reports[i] = (lk_report){.args = t->args,
                                 .plan = plan,
                                 .data_given = t->data_given,
                                 .by_hand = i == 0 && plan->join.way == LK_JOIN_WAY_HAND,
                                 .exec_at = t->exec_at,
                                 .screen = t->screen,
                                 .draws = i == 0 && t->screen->terminal >= 0,
                                 .redrawn = t->screen->terminal >= 0 && t->out_terminal,
                                 .level = i == 0 ? &level : NULL};
        hooks[i] = lk__report_hooks(&reports[i]);
        hooks[i].norm_every = t->args->json || t->args->log_dir ? t->args->log_interval : 0;
        if (i == 0)
            lk__recording_listen(&t->recording, plan, t->screen, &hooks[i]);
        devices[i] = plan->devices.name[i];
    }
    lk_train_ranks ranks = {.opts = &plan->train,
                            .resume_exact = t->args->resume_exact,
                            .run_name = *t->recording.name ? t->recording.name : NULL,
                            .count = plan->devices.count,
                            .first = plan->join.rank * plan->devices.count,
                            .devices = devices,
                            .group = &group,
                            .one_process = plan->join.way == LK_JOIN_WAY_ALONE,
                            .hooks = hooks,
                            .signal_level = &level,
                            .failed = print_failure,
                            .arg = t,
                            .joined = plan->devices.named ? NULL : joined};
    return lk__train(&ranks, out, failure);
}

/* If the ranks of the job find that a GPU cannot be used, they continue with a second plan; one process prints
 * the reason. */
static lk_status run_plans(train_command *t, lk_train_outcome *out, lk_train_failure *failure)
{
    lk_train_crew *joined = NULL;
    lk_job_plan cpu;
    lk_status status = run_plan(t, &t->plan, &joined, out, failure);
    if (status == LK_OK || failure->fault != LK_TRAIN_FAULT_DEVICE)
        return status;
    if (failure->speaker)
        lk__job_plan_print_cpu("train", failure->detail);
    lk__job_plan_on_cpu(t->args, &t->plan, &cpu);
    return run_plan(t, &cpu, &joined, out, failure);
}

/* Runs the plans, and keeps a run folder if --log-dir asks for one. */
static lk_status run_recorded(train_command *t, lk_train_outcome *out, lk_train_failure *failure)
{
    lk_status status = lk__recording_open(&t->recording, t->args, &t->plan);
    if (status != LK_OK) {
        *failure = (lk_train_failure){.status = status, .fault = LK_TRAIN_FAULT_SETUP, .rank = -1};
        snprintf(failure->detail, sizeof failure->detail, "%s", lk_error_detail());
        print_failure(t, failure);
    } else
        status = run_plans(t, out, failure);
    lk__recording_close(&t->recording);
    return status;
}

/* The process of rank 0 has the progress line: on its own terminal, or through the launcher on that one's. */
static void init_screen(train_command *t, lk_screen *screen)
{
    bool draws = t->join.rank == 0 && !t->args->quiet, piped = t->terminal >= 0;
    if (!piped)
        t->out_terminal = isatty(STDOUT_FILENO) == 1;
    lk__screen_init(screen, !draws ? -1 : piped ? t->terminal : lk__screen_terminal(), piped);
}

static int run_ranks(train_command *t)
{
    lk_screen screen;
    lk_train_outcome result;
    lk_train_failure failure;
    init_screen(t, &screen);
    t->screen = &screen;
    lk__job_signals_prepare(t->args->requeue);
    lk_status status = run_recorded(t, &result, &failure);
    lk__job_signals_end();
    t->screen = NULL;
    lk__screen_fini(&screen);
    if (status == LK_OK && result.stopped)
        return end_stopped(t, &result);
    if (status == LK_OK) {
        lk__report_faults(t->join.rank * t->plan.devices.count, t->plan.devices.count, result.ranks);
        return LK_EXIT_DONE;
    }
    if (is_launched(t) && failure.fault == LK_TRAIN_FAULT_PEER)
        linger(LINGER_NS);
    lk__train_failure_fini(&failure);
    return t->code;
}

/* A rank, in a fork of the process that was started with -n. */
static int rank_main(int rank, void *arg)
{
    train_command *t = arg;
    lk_job_plan launcher = t->plan;
    lk__fault_set_process(rank);
    /* As in main: a write beyond the limit of file sizes fails and is reported. */
    signal(SIGXFSZ, SIG_IGN);
    lk_status status = lk__join_launched(t->args, &t->join);
    if (status == LK_OK)
        status = lk__job_plan_inherit(t->args, &launcher, &t->join, &t->plan);
    return status == LK_OK ? run_ranks(t) : fail_setup(t, status);
}

/* One rank needs no launcher, except for things that only a launcher does or checks. */
static bool needs_launcher(const train_command *t, const lk_launch_opts *opts)
{
    return opts->nproc > 1 || opts->nnodes > 1 || opts->init_method || opts->master_addr || opts->master_port ||
           t->args->run.bind_given;
}

/* Reports what would fail at every rank before there are ranks. With several nodes only the ranks know their
 * number. */
static lk_status plan_ranks(train_command *t, const lk_launch_opts *opts)
{
    lk_devices host = lk__job_plan_host("train", t->args, opts->nproc);
    t->join.way = needs_launcher(t, opts) ? LK_JOIN_WAY_LAUNCH : LK_JOIN_WAY_ALONE;
    t->join.processes = opts->nnodes == 1 ? opts->nproc : 0;
    t->join.local_size = opts->nproc;
    return lk__job_plan_make(t->args, &host, &t->join, &t->plan);
}

/* Before ranks, threads and devices are started: the page is a fork of this process. */
static lk_status begin_live(train_command *t, bool first)
{
    if (!t->args->serve || !first)
        return LK_OK;
    return lk__live_begin(t->args->log_dir, t->args->serve, &t->live);
}

/* Ranks write into pipes; rank 0 asks the terminal for its width and sends progress lines for it. */
static void take_terminal(train_command *t, lk_launch_opts *opts)
{
    if (opts->node_rank > 0)
        lk__screen_unhint();
    if (t->args->quiet || opts->node_rank > 0 || lk__screen_terminal() < 0)
        return;
    t->out_terminal = isatty(STDOUT_FILENO) == 1;
    t->terminal = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    opts->progress = t->terminal >= 0;
}

static int launch(train_command *t)
{
    lk_launch_opts opts;
    lk_status status = lk__cli_launch_options("train", t->args, &opts);
    if (status == LK_OK)
        status = plan_ranks(t, &opts);
    if (status == LK_OK)
        status = begin_live(t, opts.node_rank == 0);
    if (status != LK_OK)
        return lk__cli_fail(status);
    if (t->join.way == LK_JOIN_WAY_ALONE)
        return run_ranks(t);
    opts.fn = rank_main;
    opts.fn_arg = t;
    opts.plain = true;
    take_terminal(t, &opts);
    opts.grace = opts.timeout + SAVE_SECONDS; /* ranks finish a step and save */
    return lk__cli_launch("train", &opts);
}

static int run_command(train_command *t)
{
    lk_status status = lk__args_complete(t->args);
    if (status == LK_OK)
        status = lk__join_find(t->args, &t->join);
    if (status == LK_OK)
        status = check_requeue(t);
    if (status == LK_OK && t->join.way == LK_JOIN_WAY_LAUNCH)
        return launch(t);
    if (status == LK_OK)
        status = lk__job_plan_make(t->args, &t->args->devices, &t->join, &t->plan);
    if (status == LK_OK)
        status = begin_live(t, t->join.rank == 0);
    return status == LK_OK ? run_ranks(t) : fail_setup(t, status);
}

int lk__cmd_train(lk_args *args)
{
    train_command t = {.args = args, .data_given = args->train.data != NULL, .terminal = -1};
    t.exec_at = lk__clock() - lk__clock_since_exec();
    if (!args->quiet)
        lk__screen_hint();
    int code = run_command(&t);
    lk__live_end(&t.live);
    return code;
}
