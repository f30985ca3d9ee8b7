/* train.c - `lockstep train`: starts ranks, or is one or several of them. */
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
#include "cli/job/join.h"
#include "cli/job/launch.h"
#include "cli/job/mode.h"
#include "cli/job/signals.h"
#include "cli/report/report.h"

/* How long a rank with nothing new to say waits, so that its launcher hears the one
 * that failed first and ends this one meanwhile. */
static const long LINGER_NS = 500 * 1000 * 1000;
/* The same for a rank that ends because another one got a signal: all ranks end by
 * agreement, so this one is ended within a moment, unless the machine is very busy. */
static const long STOPPED_LINGER_NS = 5000 * 1000 * 1000L;
/* The same for a rank that could only repeat the reason of another. */
static const long REPEATED_LINGER_NS = 5000 * 1000 * 1000L;

/* What a launcher gives ranks that were told to stop for their last checkpoint; a
 * second signal ends them at once. */
static const double SAVE_SECONDS = 600;

enum { SHOWN_CALLS = 5 };

/* A run as this process sees it. */
typedef struct train_command {
    lk_args *args;
    lk_join join;
    lk_devices devices; /* of this process */
    lk_mode mode;
    bool data_given;
    double exec_at;
    lk_report_screen *screen; /* while ranks run */
    int code;                 /* the exit status of a failure that was printed */
} train_command;

static void print_notice(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "lockstep train: %s\n", text);
}

static lk_status choose_mode(train_command *t, int processes, int devices)
{
    lk_train_opts *opts = &t->args->train;
    lk_mode_facts facts = {.asked = (lk_args_parallel)t->args->parallel,
                           .processes = processes,
                           .alone = !t->join.told,
                           .devices = devices,
                           .stages = opts->stages,
                           .pipelined = opts->pipelined};
    return lk__mode_choose(&facts, &t->mode);
}

static lk_status take_devices(train_command *t, int local_rank, int local_size)
{
    bool dp = t->args->parallel == LK_PARALLEL_DP;
    return lk__devices_share(&t->args->devices, dp, local_rank, local_size, &t->devices);
}

static void linger(long nanoseconds)
{
    fflush(NULL);
    nanosleep(&(struct timespec){.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000}, NULL);
}

/* The end of the group's history: here the engine makes the calls, hundreds a
 * second, and those that matter are the last. */
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
    return t->join.way == LK_JOIN_ENV;
}

/* Whether `lockstep run` or -n started this rank: it prints what the ranks say, and
 * names the one that failed. */
static bool is_watched(const train_command *t)
{
    return is_launched(t) && getenv("LOCKSTEP_RUN_ID") != NULL;
}

/* Another rank's own failure, which that rank tells: lk_group_abort. */
static bool is_repeated(const lk_train_failure *failure)
{
    int rank, end = 0;
    return failure->fault == LK_FAULT_PEER && sscanf(failure->detail, "rank %d gave up: %n", &rank, &end) == 1 &&
           end > 0;
}

/* Of what all ranks fail at alike, rank 0 tells first; a launcher then ends the
 * others before they repeat it. The same for a rank that could only repeat what
 * another one tells: it speaks only if the launcher has not ended it for seconds. */
static void print_failure(void *arg, const lk_train_failure *failure)
{
    train_command *t = arg;
    bool alike = failure->fault == LK_FAULT_SETUP || failure->fault == LK_FAULT_COMMON;
    lk__wishes_end(); /* a launcher that ends this rank means it */
    if (t->screen)
        lk__report_screen_clear(t->screen);
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
    lk_train_failure failure = {.status = status, .fault = LK_FAULT_SETUP, .rank = -1};
    snprintf(failure.detail, sizeof failure.detail, "%s", lk_error_detail());
    print_failure(t, &failure);
    return t->code;
}

static _Noreturn void end_by(int number)
{
    fflush(NULL);
    signal(number, SIG_DFL);
    raise(number);
    _exit(128 + number); /* where the signal is blocked */
}

/* A run that was stopped ends as its signal would have ended it, at every rank. For a
 * launcher the rank that got the signal dies by it, and the others leave it time to
 * be the first that ends: so it is the one that the launcher names. */
static int end_stopped(const train_command *t, const lk_train_result *result)
{
    int first = t->join.rank * t->devices.count, number = result->stop_signal;
    bool mine = result->stop_rank >= first && result->stop_rank < first + t->devices.count;
    if (is_launched(t) && mine)
        end_by(number);
    if (is_launched(t) && !lk__wishes_stop())
        linger(STOPPED_LINGER_NS);
    return 128 + number;
}

/* Ranks stay as many, and their devices are read by these names. */
static void use_cpu(void *arg, const char *why)
{
    train_command *t = arg;
    lk__args_use_cpu(t->args);
    lk__devices_use_cpu(&t->devices);
    if (why)
        lk__args_print_cpu("train", why);
}

static int run_ranks(train_command *t)
{
    static atomic_int wish;
    lk_args *args = t->args;
    lk_report reports[LK_DEVICES_MAX];
    lk_train_events events[LK_DEVICES_MAX];
    const char *devices[LK_DEVICES_MAX];
    lk_report_screen screen = {.lock = PTHREAD_MUTEX_INITIALIZER, .terminal = isatty(STDERR_FILENO) == 1};
    for (int i = 0; i < t->devices.count; i++) {
        reports[i] = (lk_report){.args = args,
                                 .parallel = t->mode.parallel,
                                 .data_given = t->data_given,
                                 .by_hand = i == 0 && t->join.way == LK_JOIN_HAND,
                                 .exec_at = t->exec_at,
                                 .screen = &screen,
                                 .wish = i == 0 ? &wish : NULL};
        events[i] = lk__report_events(&reports[i]);
        devices[i] = t->devices.name[i];
    }
    lk_train_ranks ranks = {.opts = &args->train,
                            .count = t->devices.count,
                            .first = t->join.rank * t->devices.count,
                            .devices = devices,
                            .group = &t->join.group,
                            .alone = t->join.way == LK_JOIN_ALONE,
                            .events = events,
                            .wish = &wish,
                            .failed = print_failure,
                            .use_cpu = t->devices.named ? NULL : use_cpu,
                            .arg = t};
    lk_train_result result;
    lk_train_failure failure;
    t->screen = &screen;
    lk__wishes_prepare();
    lk_status status = lk__train(&ranks, &result, &failure);
    lk__wishes_end();
    t->screen = NULL;
    lk__report_screen_clear(&screen);
    if (status == LK_OK)
        return result.stopped ? end_stopped(t, &result) : LK_EXIT_DONE;
    if (is_launched(t) && failure.fault == LK_FAULT_PEER)
        linger(LINGER_NS);
    lk__train_failure_fini(&failure);
    return t->code;
}

/* What would be ignored is refused. */
static lk_status check_backend(const train_command *t)
{
    bool threads = t->join.way == LK_JOIN_ALONE && t->devices.count > 1;
    const lk_device_type *type = lk__device_find(t->devices.name[0]);
    /* Where gradients could be summed on the devices, it says that the host does it. */
    if (!t->args->backend || !threads || strcmp(t->args->backend, "auto") == 0 || (type && type->channels))
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE,
                    "--backend %s is for ranks of several processes, and threads of one process need no backend: leave "
                    "it out, or start processes with -n 2",
                    t->args->backend);
}

static int train_here(train_command *t)
{
    lk_status status = take_devices(t, t->join.local_rank, t->join.local_size);
    if (status == LK_OK)
        status = choose_mode(t, t->join.processes, t->devices.count);
    if (status == LK_OK)
        status = check_backend(t);
    if (status != LK_OK)
        return fail_setup(t, status);
    if (*t->mode.whole)
        t->args->train.stages = t->mode.whole;
    lk__args_choose_shards(t->args, t->devices.name[0], t->join.processes * t->devices.count);
    t->join.group.notice = print_notice;
    return run_ranks(t);
}

/* A rank, in a fork of the process that was started with -n. */
static int rank_main(int rank, void *arg)
{
    train_command *t = arg;
    lk_args_run *run = &t->args->run;
    lk__fault_set_process(rank);
    /* As in main: a write past the limit of file sizes fails, and is told. */
    signal(SIGXFSZ, SIG_IGN);
    /* The launcher has used these; the rank finds the rest in its environment. */
    *run = (lk_args_run){.timeout = run->timeout};
    lk_status status = lk__join_find(t->args, &t->join);
    return status == LK_OK ? train_here(t) : fail_setup(t, status);
}

/* GPUs that "auto" found are too few: ranks that share one are far slower than one
 * rank on it. */
static void spare_gpus(train_command *t, int nproc)
{
    lk_args *args = t->args;
    char why[128];
    int gpus = args->devices.count;
    if (!lk__devices_crowded(&args->devices, args->parallel == LK_PARALLEL_DP, nproc))
        return;
    snprintf(why, sizeof why, "%d ranks would share %d GPU%s, for which '-n gpu' starts one each", nproc, gpus,
             gpus == 1 ? "" : "s");
    lk__args_print_cpu("train", why);
    if (args->parallel != LK_PARALLEL_DP)
        args->devices.count = 1; /* every rank's */
    lk__args_use_cpu(args);
}

/* What would fail at every rank is told before there are any. Of several nodes,
 * only the ranks know how many they are. */
static lk_status check_ranks(train_command *t, const lk_launch_opts *opts)
{
    spare_gpus(t, opts->nproc);
    LK_TRY(take_devices(t, 0, opts->nproc));
    return opts->nnodes == 1 ? choose_mode(t, opts->nproc, t->devices.count) : LK_OK;
}

/* One rank needs no launcher, unless there is something that only a launcher
 * does or checks. */
static bool needs_launcher(const train_command *t, const lk_launch_opts *opts)
{
    return opts->nproc > 1 || opts->nnodes > 1 || opts->init_method || opts->master_addr || opts->master_port ||
           t->args->run.bind_given;
}

static int launch(train_command *t)
{
    lk_launch_opts opts;
    lk_status status = lk__cli_launch_options("train", t->args, &opts);
    if (status == LK_OK)
        status = check_ranks(t, &opts);
    if (status != LK_OK)
        return lk__cli_fail(status);
    if (!needs_launcher(t, &opts)) {
        t->join.way = LK_JOIN_ALONE;
        return train_here(t);
    }
    opts.fn = rank_main;
    opts.fn_arg = t;
    opts.plain = true;
    opts.grace = opts.timeout + SAVE_SECONDS; /* ranks finish a step and save */
    return lk__cli_launch("train", &opts);
}

int lk__cmd_train(lk_args *args)
{
    train_command t = {.args = args, .data_given = args->train.data != NULL};
    t.exec_at = lk__clock() - lk__clock_since_exec();
    lk_status status = lk__args_complete(args);
    if (status == LK_OK)
        status = lk__join_find(args, &t.join);
    if (status != LK_OK)
        return fail_setup(&t, status);
    return t.join.way == LK_JOIN_LAUNCH ? launch(&t) : train_here(&t);
}
