/* live.c - the live page as a child process. Its death, its memory and its use of processors leave the run alone. */
#define _GNU_SOURCE /* pipe2 */
#include "cli/job/live.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/spec.h"
#include "net/socket.h"

enum { HOST_BYTES = 256, LOWEST_PRIORITY = 19 };
static const double START_SECONDS = 30, END_SECONDS = 5;

/* What the child reports about its start. */
typedef struct started {
    lk_status status;
    char text[1024]; /* the address, or why there is none */
} started;

void lk__live_yield(void)
{
    (void)setpriority(PRIO_PROCESS, 0, LOWEST_PRIORITY);
}

static void ending_signals(bool interrupts, sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    if (!interrupts)
        return;
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
}

void lk__live_block(bool interrupts)
{
    sigset_t set;
    ending_signals(interrupts, &set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void lk__live_await(bool interrupts)
{
    sigset_t set;
    int number;
    ending_signals(interrupts, &set);
    sigwait(&set, &number);
}

/* "6061", "0.0.0.0:6061" or "". host has HOST_BYTES. */
static lk_status read_where(const char *where, char *host, lk_serve_opts *opts)
{
    long long port;
    if (!*where)
        return LK_OK;
    if (lk__number_parse_int(where, 1, 65535, &port)) {
        opts->port = (int)port;
        return LK_OK;
    }
    if (lk__net_split(where, host, HOST_BYTES, &opts->port) != LK_OK)
        return lk__fail(LK_STATUS_USAGE,
                        "`serve` '%s' must be PORT or HOST:PORT, as in `serve` 6061 or `serve` 0.0.0.0:6061", where);
    opts->host = host;
    return LK_OK;
}

/* Ctrl-C is for the run, which may take a while to save. */
static _Noreturn void child_main(const lk_serve_opts *opts, pid_t parent, int tell)
{
    lk_serve *serve = NULL;
    started news = {0};
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    prctl(PR_SET_NAME, "lk-serve");
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    int nothing = lk__fd_open("/dev/null", O_RDWR, 0);
    if (nothing >= 0) {
        dup2(nothing, STDIN_FILENO);
        dup2(nothing, STDOUT_FILENO); /* the reader of the run's output sees its end */
    }
    lk__live_yield();
    lk__live_block(false);
    news.status = lk__serve_start(opts, &serve);
    snprintf(news.text, sizeof news.text, "%s", news.status == LK_OK ? lk__serve_address(serve) : lk_error_detail());
    bool told = lk__fd_write(tell, &news, sizeof news);
    close(tell);
    if (told && news.status == LK_OK && getppid() == parent)
        lk__live_await(false);
    _exit(0);
}

/* Reads what the child reports; a child that dies or says nothing is a failure, too. */
static lk_status hear(int fd, started *out)
{
    size_t got = 0;
    double deadline = lk__clock() + START_SECONDS;
    while (got < sizeof *out && lk__net_wait(fd, POLLIN, deadline) != 0) {
        ssize_t n = read(fd, (char *)out + got, sizeof *out - got);
        if (n == 0 || (n < 0 && errno != EINTR))
            break;
        got += n > 0 ? (size_t)n : 0;
    }
    if (got < sizeof *out)
        return lk__fail(LK_STATUS_IO, "the process of the live page (`serve`) did not start");
    return out->status == LK_OK ? LK_OK : lk__fail(out->status, "%s", out->text);
}

static lk_status start(const lk_serve_opts *opts, lk_live *live, started *news)
{
    int ends[2];
    pid_t parent = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0)
        return lk__fail(lk__status_of(errno), "cannot start the live page (`serve`): %s", strerror(errno));
    fflush(NULL); /* otherwise the child would have the buffered text, too */
    pid_t pid = fork();
    int error = errno;
    if (pid == 0) {
        close(ends[0]);
        child_main(opts, parent, ends[1]);
    }
    close(ends[1]);
    live->pid = pid > 0 ? pid : 0;
    lk_status status =
        pid > 0 ? hear(ends[0], news)
                : lk__fail(lk__status_of(error), "cannot start the live page (`serve`): %s", strerror(error));
    close(ends[0]);
    return status;
}

lk_status lk__live_begin(const char *folder, const char *where, lk_live *out)
{
    char host[HOST_BYTES];
    lk_serve_opts opts = {.folder = folder};
    lk_live live = {0};
    started news;
    LK_TRY(read_where(where, host, &opts));
    lk_status status = start(&opts, &live, &news);
    if (status != LK_OK) {
        lk__live_end(&live);
        return status;
    }
    fprintf(stderr, "Live page: %s\n", news.text);
    *out = live;
    return LK_OK;
}

void lk__live_end(lk_live *live)
{
    double deadline = lk__clock() + END_SECONDS;
    int signal_sent = SIGTERM;
    if (live->pid <= 0)
        return;
    kill(live->pid, signal_sent);
    while (waitpid(live->pid, NULL, WNOHANG) == 0) {
        if (lk__clock() > deadline && signal_sent == SIGTERM)
            kill(live->pid, signal_sent = SIGKILL);
        poll(NULL, 0, 5);
    }
    live->pid = 0;
}
