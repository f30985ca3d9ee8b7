/* node.c - the launcher's side of a node: starts guard and keeper, forwards output, handles signals, and
 * derives the node's state from the keeper's news. */
#define _GNU_SOURCE /* SOCK_CLOEXEC, pipe2 */
#include "launch/node.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "launch/bind.h"
#include "launch/cause.h"
#include "launch/descendants.h"
#include "launch/environment.h"
#include "launch/executable.h"
#include "launch/guard.h"
#include "launch/keeper.h"
#include "launch/output.h"
#include "launch/signals.h"

/* Seconds between the first failure and the judgement. Other ranks may fail in this time, and one of them may
 * be the cause: a rank that lost its peer often ends before the peer's death is known. */
static const double CAUSE_DELAY = 0.075;
static const double NOTICE_EVERY = 5;
/* Seconds between checks for ranks that a debugger has stopped, for which there is no signal. */
static const double TICK = 1;
/* Seconds that unread output delays the end. */
static const double OUTPUT_TIMEOUT = 1;
/* Seconds for the orphans of a killed keeper and guard to end after SIGKILL. */
static const double KILL_TIMEOUT = 10;
/* Seconds within which a second signal counts as the first one. */
static const double SAME_SIGNAL = 0.2;
/* Seconds for descendants of successful ranks to end by themselves. */
static const double LEFTOVER_GRACE = 1;

typedef struct rank {
    pid_t pid;
    bool running;
    double stopped_at, next_notice; /* lk__clock() times; 0: not stopped */
    int stop_signal;                /* 0: unknown */
    unsigned long long ticks;       /* CPU time at the last check */
} rank;

struct lk_launch_node {
    lk_launch_node_opts opts;
    char host[64];
    lk_environment *environment;
    lk_output_pump *output;
    lk_signals signals;
    lk_processes spared; /* the caller's other descendants, which are not ended */
    struct rlimit files; /* the limit before it was raised, which ranks get */
    int was_subreaper;
    void *affinity; /* (nproc sets of affinity_bytes) */
    size_t affinity_bytes;
    pid_t guard, keeper;      /* 0: none, or unknown */
    int control, failures[2]; /* -1: closed */
    int keeper_end;           /* the keeper's end of control */
    rank *ranks;              /* (nproc) */
    int started, running;     /* numbers of ranks */
    struct pollfd *fds;       /* (2 nproc + 5) */
    lk_launch_node_state state;
    bool state_reported; /* lk__launch_node_wait has returned the state */
    bool stopping, stopped, keeper_done, lost_keeper, hurried;
    int signal;
    double signal_at; /* lk__clock() time of the last signal */
    lk_cause cause;   /* the best cause so far, if failed */
    bool failed;
    double judge_at, tick_at;
};

static void set_state(lk_launch_node *node, lk_launch_node_state state)
{
    node->state = state;
    node->state_reported = false;
}

static void notice(const lk_launch_node *node, const char *text)
{
    if (node->opts.notice != NULL)
        node->opts.notice(node->opts.notice_arg, text);
}

static void order_keeper(const lk_launch_node *node, lk_keeper_order what)
{
    if (node->control >= 0 && send(node->control, &what, sizeof what, MSG_NOSIGNAL) < 0)
        return; /* the keeper is gone; the next read shows it */
}

static void blame(lk_launch_node *node, int index, int status)
{
    rank *r = &node->ranks[index];
    lk_cause cause = {.rank = node->opts.first_rank + index, .pid = r->pid, .status = status};
    if (status == -1)
        cause.stopped_for = lk__clock() - r->stopped_at;
    snprintf(cause.host, sizeof cause.host, "%s", node->host);
    lk__output_drain(node->output, index);
    lk__output_tail(node->output, index, cause.tail, sizeof cause.tail);
    if (node->failed && !lk__cause_before(&cause, &node->cause))
        return;
    if (!node->failed)
        node->judge_at = lk__clock() + CAUSE_DELAY;
    node->failed = true;
    node->cause = cause;
}

static void rank_ended(lk_launch_node *node, const lk_keeper_news *news)
{
    rank *r = &node->ranks[news->index];
    if (!r->running)
        return;
    r->running = false;
    r->stopped_at = 0;
    node->running--;
    if (news->status == 0)
        lk__environment_exited(node->environment, news->index);
    if (news->status != 0 && !node->stopping && node->state == LK_LAUNCH_NODE_STATE_RUNNING)
        blame(node, news->index, news->status);
}

static void notice_stopped(lk_launch_node *node, int index, char state, double now)
{
    rank *r = &node->ranks[index];
    char text[160], why[32] = "SIGSTOP", left[48] = "";
    if (state == 't')
        snprintf(why, sizeof why, "in a debugger");
    else if (r->stop_signal != 0)
        lk__cause_signal_name(r->stop_signal, why, sizeof why);
    if (node->opts.timeout > 0)
        snprintf(left, sizeof left, ", %.0f s left", node->opts.timeout - (now - r->stopped_at));
    snprintf(text, sizeof text, "rank %d (pid %d) is stopped (%s); awaited%s", node->opts.first_rank + index,
             (int)r->pid, why, left);
    notice(node, text);
}

/* A rank counts as stopped if /proc says so and it uses no CPU time: a traced rank also appears as stopped at
 * every system call. */
static void look_at(lk_launch_node *node, int index, double now)
{
    rank *r = &node->ranks[index];
    double deadline = node->opts.timeout > 0 ? node->opts.timeout : INFINITY;
    lk_process seen;
    if (!lk__process_read(r->pid, &seen))
        return;
    bool stopped = lk__process_stopped(&seen) && (seen.ticks == r->ticks || r->stopped_at == 0);
    r->ticks = seen.ticks;
    if (!stopped) {
        r->stopped_at = 0;
        return;
    }
    if (r->stopped_at == 0) {
        r->stopped_at = now;
        r->next_notice = now + NOTICE_EVERY;
    }
    deadline += r->stopped_at;
    if (now >= deadline) {
        blame(node, index, -1);
        return;
    }
    if (now >= r->next_notice) {
        notice_stopped(node, index, seen.state, now);
        r->next_notice += NOTICE_EVERY;
    }
    node->tick_at = fmin(node->tick_at, fmin(deadline, r->next_notice));
}

static void notice_left(const lk_launch_node *node, int count)
{
    char text[192] =
        "without /proc, processes that left the process group of their rank cannot be found: some are left";
    if (count > 0)
        snprintf(text, sizeof text, "%d processes do not end although they were killed; ps shows what they wait for",
                 count);
    notice(node, text);
}

static void handle_news(lk_launch_node *node, const lk_keeper_news *news)
{
    rank *r = &node->ranks[news->index];
    switch (news->event) {
    case LK_KEEPER_EVENT_READY:
        node->keeper = news->pid;
        break;
    case LK_KEEPER_EVENT_STARTED:
        *r = (rank){.pid = news->pid, .running = true};
        node->started++;
        node->running++;
        break;
    case LK_KEEPER_EVENT_ENDED:
        rank_ended(node, news);
        break;
    case LK_KEEPER_EVENT_STOPPED:
        r->stop_signal = news->status;
        if (!node->stopping && node->state == LK_LAUNCH_NODE_STATE_RUNNING)
            look_at(node, news->index, lk__clock());
        break;
    case LK_KEEPER_EVENT_CONTINUED:
        r->stopped_at = 0;
        r->stop_signal = 0;
        break;
    case LK_KEEPER_EVENT_LEFT:
        node->keeper_done = true;
        notice_left(node, news->status);
        break;
    case LK_KEEPER_EVENT_DONE:
        node->keeper_done = true;
        break;
    }
}

/* The guard exits as the keeper did, unless the guard was killed: then the keeper is our child, and
 * keeper_done says whether it had finished. If both were killed, their orphans are ours and are ended here. */
static void keeper_gone(lk_launch_node *node)
{
    lk__fd_close(&node->control);
    kill(node->guard, SIGCONT); /* a stopped guard would not end */
    bool killed = !WIFEXITED(lk__process_await(node->guard));
    if (killed && node->keeper_done) {
        (void)lk__process_await(node->keeper);
    } else if (killed) {
        node->lost_keeper = true;
        lk__descendants_end(&node->spared, KILL_TIMEOUT);
        node->running = 0;
    }
    if (node->lost_keeper || node->stopping)
        node->state_reported = false;
}

static void read_keeper(lk_launch_node *node)
{
    lk_keeper_news news;
    while (node->control >= 0) {
        ssize_t n = recv(node->control, &news, sizeof news, MSG_DONTWAIT);
        if (n == (ssize_t)sizeof news)
            handle_news(node, &news);
        else if (n < 0 && errno == EINTR)
            continue;
        else if (n < 0 && errno == EAGAIN)
            return;
        else
            keeper_gone(node);
    }
}

/* Ctrl-Z: stops the ranks, then this process; continues all together. */
static void suspend(lk_launch_node *node)
{
    order_keeper(node, (lk_keeper_order){.signal = SIGSTOP});
    lk__signals_suspend();
    order_keeper(node, (lk_keeper_order){.signal = SIGCONT});
    for (int i = 0; i < node->opts.nproc; i++)
        node->ranks[i].stopped_at = 0;
}

/* Gives no notice for a closed reader, which has seen enough; gives one for an error such as a full disk. */
static void notice_unwritten(const lk_launch_node *node, int error)
{
    char text[160];
    if (error == EPIPE)
        return;
    snprintf(text, sizeof text, "what the ranks print cannot be written, so they are ended: %s", strerror(error));
    notice(node, text);
}

/* Passes SIGUSR1 on while the ranks run, but not while they are being ended: a rank that does not handle the signal
 * would die of it. */
static void pass_user(const lk_launch_node *node)
{
    if (!node->stopping && node->state == LK_LAUNCH_NODE_STATE_RUNNING)
        order_keeper(node, (lk_keeper_order){.signal = SIGUSR1, .ranks_only = true});
}

static void take_signals(lk_launch_node *node)
{
    int error = node->signal == 0 ? lk__output_error(node->output) : 0;
    int signal = error != 0 ? SIGPIPE : 0;
    if (error != 0)
        notice_unwritten(node, error);
    for (int next; (next = lk__signals_next(&node->signals)) != 0;) {
        if (next == SIGTSTP)
            suspend(node);
        else if (next == SIGUSR1)
            pass_user(node);
        else if (next != SIGPIPE)
            signal = next;
    }
    double now = lk__clock();
    if (signal == 0 || (node->signal != 0 && now - node->signal_at < SAME_SIGNAL))
        return;
    node->hurried = node->signal != 0;
    if (node->hurried)
        order_keeper(node, (lk_keeper_order){.signal = SIGKILL, .end = true});
    /* The first signal is the reason. */
    if (node->signal == 0)
        node->signal = signal;
    node->signal_at = now;
    set_state(node, node->state == LK_LAUNCH_NODE_STATE_FAILED ? LK_LAUNCH_NODE_STATE_FAILED
                                                               : LK_LAUNCH_NODE_STATE_INTERRUPTED);
}

static void tick(lk_launch_node *node)
{
    double now = lk__clock();
    if (now < node->tick_at)
        return;
    node->tick_at = now + TICK;
    for (int i = 0; i < node->opts.nproc; i++)
        if (node->ranks[i].running && !node->stopping && node->state == LK_LAUNCH_NODE_STATE_RUNNING)
            look_at(node, i, now);
    lk_process keeper;
    if (node->control >= 0 && node->keeper > 0 && lk__process_read(node->keeper, &keeper) &&
        lk__process_stopped(&keeper))
        kill(node->keeper, SIGCONT); /* nobody has a reason to stop the keeper */
}

static void judge(lk_launch_node *node)
{
    if (node->state != LK_LAUNCH_NODE_STATE_RUNNING || node->stopping)
        return;
    if (node->failed && (node->running == 0 || lk__clock() >= node->judge_at)) {
        set_state(node, LK_LAUNCH_NODE_STATE_FAILED);
    } else if (!node->failed && node->started == node->opts.nproc && node->running == 0 && !node->lost_keeper) {
        lk__output_drain(node->output, -1);
        set_state(node, LK_LAUNCH_NODE_STATE_DONE);
    }
}

/* Sleeps once until an event, at most until deadline, and handles it. Returns whether extra_fd is readable. */
static bool turn(lk_launch_node *node, int extra_fd, double deadline)
{
    size_t count = lk__output_poll(node->output, node->fds), others = count;
    node->fds[count++] = (struct pollfd){.fd = node->control, .events = POLLIN};
    node->fds[count++] = (struct pollfd){.fd = node->signals.fd, .events = POLLIN};
    node->fds[count++] = (struct pollfd){.fd = extra_fd, .events = POLLIN};
    double until = node->control >= 0 && node->tick_at < deadline ? node->tick_at : deadline;
    if (node->failed && node->state == LK_LAUNCH_NODE_STATE_RUNNING && node->judge_at < until)
        until = node->judge_at;
    double left = until - lk__clock();
    int wait = left <= 0 ? 0 : left > 3600 ? 3600000 : (int)(1000 * left) + 1;
    if (poll(node->fds, count, wait) < 0)
        return false;
    lk__output_pump(node->output, node->fds, others);
    read_keeper(node);
    take_signals(node);
    tick(node);
    judge(node);
    return node->fds[others + 2].revents != 0;
}

lk_status lk__launch_node_wait(lk_launch_node *node, int extra_fd, double seconds, lk_launch_node_state *out)
{
    double deadline = lk__clock() + seconds;
    if (seconds <= 0)
        node->judge_at = 0; /* report a known failure now, although a better cause may follow */
    judge(node);
    while (node->state_reported && !turn(node, extra_fd, deadline) && lk__clock() < deadline)
        ;
    if (node->lost_keeper && !node->stopping)
        return lk__fail(LK_STATUS_PEER, "the keeper of the ranks (pid %d) was killed; all ranks were ended",
                        (int)node->keeper);
    node->state_reported = true;
    *out = node->state;
    return LK_OK;
}

const lk_cause *lk__launch_node_cause(const lk_launch_node *node)
{
    return &node->cause;
}

int lk__launch_node_signal(const lk_launch_node *node)
{
    return node->signal;
}

bool lk__launch_node_unwritten(const lk_launch_node *node)
{
    return lk__output_error(node->output) != 0 && lk__output_error(node->output) != EPIPE;
}

bool lk__launch_node_hurried(const lk_launch_node *node)
{
    return node->hurried;
}

void lk__launch_node_end(lk_launch_node *node, int signal, double grace)
{
    node->stopping = true;
    order_keeper(node, (lk_keeper_order){.signal = signal, .end = true, .grace = grace});
}

bool lk__launch_node_stopped(const lk_launch_node *node)
{
    return node->stopping && node->control < 0;
}

void lk__launch_node_stop(lk_launch_node *node, int signal, double grace)
{
    lk__launch_node_end(node, signal, grace);
    while (node->control >= 0)
        turn(node, -1, lk__clock() + 3600);
    lk__output_finish(node->output, OUTPUT_TIMEOUT);
    node->cause.shown = lk__output_shows(node->output, node->cause.rank - node->opts.first_rank);
    node->stopped = true;
}

static lk_status make_sockets(lk_launch_node *node)
{
    int pair[2], pipe[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return lk__fail(LK_STATUS_IO, "cannot make a socket for the keeper: %s", strerror(errno));
    node->control = lk__output_fd_above_standard(pair[0]);
    node->keeper_end = lk__output_fd_above_standard(pair[1]);
    if (pipe2(pipe, O_CLOEXEC) != 0)
        return lk__fail(LK_STATUS_IO, "cannot make a pipe for the keeper: %s", strerror(errno));
    node->failures[0] = lk__output_fd_above_standard(pipe[0]);
    node->failures[1] = lk__output_fd_above_standard(pipe[1]);
    if (node->control < 0 || node->keeper_end < 0 || node->failures[0] < 0 || node->failures[1] < 0)
        return lk__fail(LK_STATUS_IO, "cannot make a pipe for the keeper: %s", strerror(errno));
    return LK_OK;
}

/* Remembers the descendants that the caller already has, which are not ended. */
static void remember_children(lk_launch_node *node)
{
    siginfo_t info;
    if (waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) != 0)
        return;
    lk__descendants_read(&node->spared);
}

static lk_status bind_ranks(lk_launch_node *node)
{
    int cores = 0;
    char text[128];
    if (node->opts.bind == LK_BIND_POLICY_NONE)
        return LK_OK;
    LK_TRY(lk__bind_plan(node->opts.nproc, &node->affinity, &node->affinity_bytes, &cores));
    if (node->opts.nproc > cores) {
        snprintf(text, sizeof text, "%d ranks share %d core%s of this machine", node->opts.nproc, cores,
                 cores == 1 ? "" : "s");
        notice(node, text);
    }
    return LK_OK;
}

static lk_status fork_guard(lk_launch_node *node, const char *path)
{
    int *fds;
    LK_TRY(LK_ALLOC(LK_OUTPUT_FILES_PER_RANK * (size_t)node->opts.nproc + 8, "descriptors", &fds));
    size_t count = lk__output_fds(node->output, fds);
    const int others[] = {node->control, node->keeper_end, node->failures[0], node->failures[1], node->signals.fd};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        fds[count++] = others[i];
    lk_keeper_plan plan = {.opts = &node->opts,
                           .path = path,
                           .environment = node->environment,
                           .output = node->output,
                           .affinity = node->affinity,
                           .affinity_bytes = node->affinity_bytes,
                           .files = &node->files,
                           .control = node->keeper_end,
                           .failures = node->failures[1],
                           .fds = fds,
                           .fd_count = count};
    pid_t pid = fork();
    if (pid == 0) {
        close(node->control);
        lk__guard_run(&plan);
    }
    lk__mem_free(fds);
    if (pid < 0)
        return lk__fail(LK_STATUS_IO, "cannot start a process: %s", strerror(errno));
    setpgid(pid, pid);
    node->guard = pid;
    return LK_OK;
}

/* Waits until all ranks have executed their program, which closes the pipe, or a signal comes. Reads the
 * keeper's news meanwhile, because the keeper blocks when the socket is full. SIGUSR1 does not end the wait: the
 * ranks get it afterwards, because some of them may already run. Returns whether a failure was read. */
static bool read_failure(lk_launch_node *node, lk_keeper_failure *failure)
{
    struct pollfd fds[3];
    bool user = false;
    do {
        fds[0] = (struct pollfd){.fd = node->failures[0], .events = POLLIN};
        fds[1] = (struct pollfd){.fd = node->signals.fd, .events = POLLIN};
        fds[2] = (struct pollfd){.fd = node->control, .events = POLLIN};
        if (poll(fds, 3, -1) > 0)
            read_keeper(node);
        if (fds[1].revents != 0 && lk__signals_forget(&node->signals, SIGUSR1))
            user = true, fds[1].revents = 0;
    } while (fds[0].revents == 0 && fds[1].revents == 0);
    if (user)
        pass_user(node);
    return fds[0].revents != 0 && read(node->failures[0], failure, sizeof *failure) == (ssize_t)sizeof *failure;
}

static lk_status confirm_start(lk_launch_node *node, const char *path)
{
    lk_keeper_failure failure;
    lk__fd_close(&node->keeper_end);
    lk__fd_close(&node->failures[1]);
    lk__output_started(node->output);
    bool refused = read_failure(node, &failure);
    lk__fd_close(&node->failures[0]);
    read_keeper(node);
    if (!refused)
        return LK_OK;
    if (failure.index < 0)
        return lk__fail(LK_STATUS_IO, "cannot start %d processes: %s", node->opts.nproc, strerror(failure.error));
    if (path == NULL)
        return lk__fail(LK_STATUS_IO, "cannot prepare rank %d: %s", node->opts.first_rank + failure.index,
                        strerror(failure.error));
    return lk__executable_refused(path, failure.error);
}

static lk_status prepare(lk_launch_node *node, char path[LK_EXECUTABLE_BYTES])
{
    size_t count = (size_t)node->opts.nproc;
    if (node->opts.argv != NULL)
        LK_TRY(lk__executable_find(node->opts.argv[0], path));
    gethostname(node->host, sizeof node->host - 1);
    lk__fd_raise_limit(LK_OUTPUT_OTHER_FILES + LK_OUTPUT_FILES_PER_RANK * (rlim_t)count, &node->files);
    LK_TRY(LK_ALLOC(count, "the ranks", &node->ranks));
    LK_TRY(LK_ALLOC(2 * count + 5, "the ranks", &node->fds));
    LK_TRY(lk__environment_create(&node->opts, &node->environment));
    LK_TRY(bind_ranks(node));
    LK_TRY(lk__output_create(&node->opts, node->host, &node->output));
    LK_TRY(make_sockets(node));
    remember_children(node);
    if (prctl(PR_GET_CHILD_SUBREAPER, &node->was_subreaper) != 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        return lk__fail(LK_STATUS_UNSUPPORTED, "this system has no subreapers: %s", strerror(errno));
    return lk__signals_take(&node->signals, node->opts.pass_user);
}

lk_status lk__launch_node_start(const lk_launch_node_opts *opts, lk_launch_node **out)
{
    char path[LK_EXECUTABLE_BYTES];
    lk_launch_node *node;
    lk_status status;
    if (opts->nproc < 1 || (opts->argv == NULL) == (opts->fn == NULL))
        return lk__fail(LK_STATUS_USAGE, "%d ranks cannot be started; at least one must run something", opts->nproc);
    LK_TRY(LK_ALLOC(1, "the ranks", &node));
    node->opts = *opts;
    node->control = node->keeper_end = node->failures[0] = node->failures[1] = node->signals.fd = -1;
    node->was_subreaper = 1;
    node->state_reported = true;
    const char *program = opts->argv != NULL ? path : NULL;
    LK_TRY_GOTO(prepare(node, path), destroy_node);
    LK_TRY_GOTO(fork_guard(node, program), destroy_node);
    LK_TRY_GOTO(confirm_start(node, program), destroy_node);
    *out = node;
    return LK_OK;
destroy_node:
    lk__launch_node_destroy(node);
    return status;
}

void lk__launch_node_destroy(lk_launch_node *node)
{
    if (node == NULL)
        return;
    lk__fd_close(&node->keeper_end);
    if (node->guard > 0 && !node->stopped)
        lk__launch_node_stop(node, node->state == LK_LAUNCH_NODE_STATE_DONE ? SIGTERM : SIGKILL, LEFTOVER_GRACE);
    lk__fd_close(&node->control);
    lk__fd_close(&node->failures[0]);
    lk__fd_close(&node->failures[1]);
    lk__signals_restore(&node->signals);
    if (node->was_subreaper == 0)
        prctl(PR_SET_CHILD_SUBREAPER, 0);
    if (node->files.rlim_cur != 0)
        setrlimit(RLIMIT_NOFILE, &node->files);
    lk__output_destroy(node->output);
    lk__environment_destroy(node->environment);
    lk__processes_fini(&node->spared);
    lk__mem_free(node->affinity);
    lk__mem_free(node->ranks);
    lk__mem_free(node->fds);
    lk__mem_free(node);
}
