/* keeper.c - forks the ranks, watches and ends them. Runs in a fork of a process that may have had threads;
 * it reports only through its sockets. */
#define _GNU_SOURCE /* sched_setaffinity, close_range */
#include "launch/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "launch/descendants.h"

extern char **environ;

/* Exit status of a rank that could not execute its program, as in shells. */
enum { CANNOT_RUN = 127 };

/* Seconds after SIGKILL. Processes that have not ended then (they may wait for a dead disk) are reported and
 * left. */
static const double KILL_TIMEOUT = 10;
/* Seconds after SIGKILL if there is no /proc. Processes that left the process group of their rank cannot be found then,
 * so more waiting does not help. */
static const double BLIND_TIMEOUT = 0.5;

typedef struct keeper {
    const lk_keeper_plan *plan;
    int control, children; /* socket to the launcher; signalfd for SIGCHLD */
    pid_t *pids;           /* (nproc) 0: ended */
    pid_t *groups;         /* (nproc) process groups of the ranks: the same numbers, never set to 0 */
    lk_processes processes;
    bool ending;
    double kill_at, give_up; /* lk__clock() times, used while ending */
    int rounds;              /* rounds of SIGKILL so far */
} keeper;

void lk__keeper_report_failure(const lk_keeper_plan *plan, int index, int error)
{
    lk_keeper_failure failure = {.index = index, .error = error};
    ssize_t n = write(plan->failures, &failure, sizeof failure);
    (void)n;
}

/* Ranks do not inherit the launcher's signal handlers and mask. */
static void reset_signals(void)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t none;
    for (int i = 1; i < NSIG; i++)
        sigaction(i, &plain, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static bool set_standard_fds(const lk_keeper_plan *plan, int index)
{
    int null = lk__output_fd_above_standard(open("/dev/null", O_RDONLY | O_CLOEXEC));
    bool done = null >= 0 && dup2(null, STDIN_FILENO) >= 0;
    for (int stream = STDOUT_FILENO; done && stream <= STDERR_FILENO; stream++)
        done = dup2(lk__output_pipe(plan->output, index, stream), stream) >= 0;
    if (null >= 0)
        close(null);
    return done;
}

void lk__keeper_close_above(int fd, unsigned flags)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, (unsigned)fd, UINT_MAX, flags) == 0)
        return;
#endif
    struct rlimit limit;
    int end = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 65536 ? (int)limit.rlim_cur : 65536;
    for (int i = fd; i < end; i++)
        if (flags != 0)
            fcntl(i, F_SETFD, FD_CLOEXEC);
        else
            close(i);
}

/* A rank that runs a function keeps the descriptors that its caller had opened. */
static void run_function(const keeper *k, int index)
{
    const lk_keeper_plan *plan = k->plan;
    close(k->children);
    for (size_t i = 0; i < plan->fd_count; i++)
        close(plan->fds[i]);
    int result = plan->opts->fn(plan->opts->first_rank + index, plan->opts->arg);
    fflush(NULL);
    _exit(result);
}

static void run_program(const lk_keeper_plan *plan, int index)
{
    enum { CLOEXEC = 1 << 2 }; /* CLOSE_RANGE_CLOEXEC of close_range(2) */
    lk__keeper_close_above(STDERR_FILENO + 1, CLOEXEC);
    execve(plan->path, plan->opts->argv, environ);
    lk__keeper_report_failure(plan, index, errno);
    _exit(CANNOT_RUN);
}

static _Noreturn void become_rank(const keeper *k, int index, pid_t keeper_pid)
{
    const lk_keeper_plan *plan = k->plan;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper_pid)
        _exit(CANNOT_RUN);
    const char *affinity = plan->affinity != NULL ? plan->affinity + (size_t)index * plan->affinity_bytes : NULL;
    if (!set_standard_fds(plan, index) ||
        (affinity != NULL && sched_setaffinity(0, plan->affinity_bytes, (const cpu_set_t *)(const void *)affinity))) {
        lk__keeper_report_failure(plan, index, errno);
        _exit(CANNOT_RUN);
    }
    setrlimit(RLIMIT_NOFILE, plan->files);
    environ = lk__environment_rank(plan->environment, index);
    reset_signals();
    if (plan->path != NULL)
        run_program(plan, index);
    else
        run_function(k, index);
    _exit(CANNOT_RUN);
}

static void send_news(const keeper *k, lk_keeper_news news)
{
    ssize_t n;
    do
        n = send(k->control, &news, sizeof news, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
}

static void start_ranks(keeper *k)
{
    const lk_keeper_plan *plan = k->plan;
    pid_t self = getpid();
    for (int i = 0; i < plan->opts->nproc; i++) {
        pid_t pid = fork();
        if (pid == 0)
            become_rank(k, i, self);
        if (pid < 0) {
            lk__keeper_report_failure(plan, -1, errno);
            return;
        }
        setpgid(pid, pid);
        k->pids[i] = k->groups[i] = pid;
        send_news(k, (lk_keeper_news){.event = LK_KEEPER_EVENT_STARTED, .index = i, .pid = pid});
    }
}

/* Closes all descriptors except the keeper's socket and signalfd: other processes may wait until an inherited
 * descriptor is closed. */
static void close_inherited(keeper *k)
{
    int low = k->control < k->children ? k->control : k->children;
    int high = k->control < k->children ? k->children : k->control;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; null >= 0 && fd <= STDERR_FILENO; fd++)
        dup2(null, fd);
    for (int fd = STDERR_FILENO + 1; fd < high; fd++)
        if (fd != low)
            close(fd);
    lk__keeper_close_above(high + 1, 0);
}

static void report(keeper *k, pid_t pid, int status)
{
    for (int i = 0; i < k->plan->opts->nproc; i++) {
        if (k->pids[i] != pid)
            continue;
        lk_keeper_news news = {.event = LK_KEEPER_EVENT_ENDED, .index = i, .pid = pid, .status = status};
        if (WIFSTOPPED(status))
            news.event = LK_KEEPER_EVENT_STOPPED, news.status = WSTOPSIG(status);
        else if (WIFCONTINUED(status))
            news.event = LK_KEEPER_EVENT_CONTINUED;
        else
            k->pids[i] = 0;
        send_news(k, news);
    }
}

/* Reports and reaps ended children. Returns whether descendants are left: every descendant has a living
 * ancestor that is the keeper's child. */
static bool reap(keeper *k)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
        if (pid > 0)
            report(k, pid, status);
        else if (pid == 0 || errno != EINTR)
            return pid == 0;
    }
}

/* Without /proc only the ranks and their process groups are known. A number that a rank had still names its
 * group as long as no process has it. */
static void signal_groups(const keeper *k, int signal)
{
    for (int i = 0; i < k->plan->opts->nproc; i++) {
        pid_t group = k->groups[i];
        if (group > 0 && (k->pids[i] > 0 || kill(group, 0) != 0))
            kill(-group, signal);
    }
}

/* Sends signal to all descendants. Returns their number; 0: unknown. */
static size_t signal_all(keeper *k, int signal)
{
    lk__processes_read(&k->processes);
    if (k->processes.count == 0)
        signal_groups(k, signal);
    size_t count = lk__processes_mark(&k->processes, getpid(), NULL);
    lk__processes_signal(&k->processes, signal);
    return count;
}

/* Only signals ranks that were not reaped: their numbers cannot belong to other processes. */
static void signal_ranks(const keeper *k, int signal)
{
    for (int i = 0; i < k->plan->opts->nproc; i++)
        if (k->pids[i] > 0)
            kill(k->pids[i], signal);
}

/* Continues stopped processes, which would not handle the signal otherwise. */
static void wake(const keeper *k)
{
    if (k->processes.count == 0)
        signal_groups(k, SIGCONT);
    for (size_t i = 0; i < k->processes.count; i++)
        if (k->processes.list[i].marked && lk__process_stopped(&k->processes.list[i]))
            kill(k->processes.list[i].pid, SIGCONT);
}

static void obey(keeper *k, const lk_keeper_order *order)
{
    if (order->ranks_only) {
        signal_ranks(k, order->signal);
    } else if (order->signal != SIGKILL) {
        signal_all(k, order->signal);
        if (order->end)
            wake(k);
    }
    if (!order->end)
        return;
    double at = lk__clock() + (order->signal == SIGKILL ? 0 : order->grace);
    k->kill_at = k->ending && k->kill_at < at ? k->kill_at : at;
    k->give_up = k->kill_at + KILL_TIMEOUT;
    k->ending = true;
}

static void listen_to_launcher(keeper *k)
{
    lk_keeper_order order;
    ssize_t n = recv(k->control, &order, sizeof order, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != (ssize_t)sizeof order) {
        /* The launcher is gone. */
        close(k->control);
        k->control = -1;
        order = (lk_keeper_order){.signal = SIGKILL, .end = true};
    }
    obey(k, &order);
}

/* Kills all descendants that exist now. It is called repeatedly, because they may fork meanwhile. Returns the
 * milliseconds until the next call. */
static int kill_round(keeper *k)
{
    double now = lk__clock();
    if (now < k->kill_at)
        return (int)(1000 * (k->kill_at - now)) + 1;
    size_t count = signal_all(k, SIGKILL);
    bool blind = k->processes.count == 0;
    if (now > (blind ? k->kill_at + BLIND_TIMEOUT : k->give_up)) {
        send_news(k, (lk_keeper_news){.event = LK_KEEPER_EVENT_LEFT, .status = (int)count});
        _exit(1);
    }
    return k->rounds++ < 200 ? 2 : 50;
}

static void watch(keeper *k)
{
    while (reap(k)) {
        struct pollfd fds[] = {{.fd = k->control, .events = POLLIN}, {.fd = k->children, .events = POLLIN}};
        struct signalfd_siginfo info[8];
        poll(fds, 2, k->ending ? kill_round(k) : -1);
        if (fds[1].revents != 0) {
            ssize_t n = read(k->children, info, sizeof info);
            (void)n;
        }
        if (fds[0].revents != 0)
            listen_to_launcher(k);
    }
}

void lk__keeper_run(const lk_keeper_plan *plan)
{
    keeper k = {.plan = plan, .control = plan->control};
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t all, child;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    sigaction(SIGCHLD, &plain, NULL);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    setpgid(0, 0);
    k.children = lk__output_fd_above_standard(signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC));
    if (k.children < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 ||
        LK_ALLOC((size_t)plan->opts->nproc, "the ranks", &k.pids) != LK_OK ||
        LK_ALLOC((size_t)plan->opts->nproc, "the ranks", &k.groups) != LK_OK) {
        lk__keeper_report_failure(plan, -1, errno);
        _exit(1);
    }
    send_news(&k, (lk_keeper_news){.event = LK_KEEPER_EVENT_READY, .pid = getpid()});
    start_ranks(&k);
    prctl(PR_SET_NAME, "lockstep-keeper");
    close_inherited(&k);
    watch(&k);
    send_news(&k, (lk_keeper_news){.event = LK_KEEPER_EVENT_DONE});
    _exit(0);
}
