/* cause.c - texts for the end of a rank, and which of several ends is the cause. */
#define _GNU_SOURCE /* WCOREDUMP, SIGSTKFLT */
#include "launch/cause.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "launch/node.h"

static const struct {
    int number;
    const char *name, *meaning;
} signals[] = {
    {SIGHUP, "SIGHUP", "the terminal was closed"},
    {SIGINT, "SIGINT", "interrupted"},
    {SIGQUIT, "SIGQUIT", "quit"},
    {SIGILL, "SIGILL", "illegal instruction; was it built for another processor?"},
    {SIGTRAP, "SIGTRAP", "trap"},
    {SIGABRT, "SIGABRT", "aborted"},
    {SIGBUS, "SIGBUS", "bus error; is /dev/shm or a mapped file's disk full?"},
    {SIGFPE, "SIGFPE", "arithmetic error"},
    {SIGKILL, "SIGKILL", "by hand, or because memory ran out"},
    {SIGUSR1, "SIGUSR1", "user signal 1"},
    {SIGSEGV, "SIGSEGV", "segmentation fault"},
    {SIGUSR2, "SIGUSR2", "user signal 2"},
    {SIGPIPE, "SIGPIPE", "broken pipe"},
    {SIGALRM, "SIGALRM", "alarm"},
    {SIGTERM, "SIGTERM", "told to stop"},
    {SIGSTOP, "SIGSTOP", "stopped"},
    {SIGTSTP, "SIGTSTP", "stopped from the terminal"},
    {SIGTTIN, "SIGTTIN", "stopped reading the terminal"},
    {SIGTTOU, "SIGTTOU", "stopped writing the terminal"},
    {SIGXCPU, "SIGXCPU", "limit of CPU time"},
    {SIGXFSZ, "SIGXFSZ", "limit of file size"},
    {SIGVTALRM, "SIGVTALRM", "virtual alarm"},
    {SIGPROF, "SIGPROF", "profiling alarm"},
    {SIGIO, "SIGIO", "input or output is possible"},
    {SIGSYS, "SIGSYS", "forbidden system call"},
};

enum { SIGNAL_COUNT = sizeof signals / sizeof *signals };

static int find(int number)
{
    for (int i = 0; i < SIGNAL_COUNT; i++)
        if (signals[i].number == number)
            return i;
    return -1;
}

void lk__cause_signal_name(int number, char *text, size_t bytes)
{
    int i = find(number);
    if (i >= 0)
        snprintf(text, bytes, "%s", signals[i].name);
    else
        snprintf(text, bytes, "signal %d", number);
}

/* SIGTERM, SIGINT and SIGHUP are requests to end, not crashes. */
static void killed_text(int status, char *text, size_t bytes)
{
    int number = WTERMSIG(status), i = find(number);
    const char *core = WCOREDUMP(status) ? ", core dumped" : "";
    bool asked = number == SIGTERM || number == SIGINT || number == SIGHUP;
    if (i >= 0)
        snprintf(text, bytes, asked ? "got %s (%s) and ended%s" : "was killed by %s (%s)%s", signals[i].name,
                 signals[i].meaning, core);
    else
        snprintf(text, bytes, "was killed by signal %d%s", number, core);
}

/* A program that handles a signal and ends exits with 128 + signal, as shells do. */
static void exited_text(int code, char *text, size_t bytes)
{
    int i = code > 128 ? find(code - 128) : -1;
    if (i >= 0)
        snprintf(text, bytes, "exited with status %d, as after %s", code, signals[i].name);
    else
        snprintf(text, bytes, "exited with status %d", code);
}

void lk__cause_text(const lk_cause *cause, char *text, size_t bytes)
{
    if (cause->status == -1)
        snprintf(text, bytes, "stayed stopped for %.0f s", cause->stopped_for);
    else if (WIFSIGNALED(cause->status))
        killed_text(cause->status, text, bytes);
    else
        exited_text(WEXITSTATUS(cause->status), text, bytes);
}

static bool by_signal(const lk_cause *cause)
{
    return cause->status != -1 && WIFSIGNALED(cause->status);
}

int lk__cause_exit(const lk_cause *cause)
{
    if (by_signal(cause))
        return 128 + WTERMSIG(cause->status);
    if (cause->status == -1 || WEXITSTATUS(cause->status) == 0)
        return 1;
    return WEXITSTATUS(cause->status);
}

/* Whether the last lines of a say that b died, in the words of lk_group. A rank that had not joined yet knows
 * neither b's host nor its process id. */
static bool reports_death_of(const lk_cause *a, const lk_cause *b)
{
    char known[128], unknown[32];
    snprintf(known, sizeof known, "rank %d (host %s, pid %ld) died", b->rank, b->host, (long)b->pid);
    snprintf(unknown, sizeof unknown, "rank %d died", b->rank);
    return strstr(a->tail, known) != NULL || strstr(a->tail, unknown) != NULL;
}

/* Whether the last lines of a say that some rank died; nothing may be known here about that rank's host yet. */
static bool reports_a_death(const lk_cause *a)
{
    for (const char *at = a->tail; (at = strstr(at, "rank ")) != NULL; at++) {
        int rank = -1, pid = 0, end = 0;
        char host[64];
        if (sscanf(at, "rank %d (host %63[^,], pid %d) died%n", &rank, host, &pid, &end) == 3 && end > 0)
            return true;
        if (sscanf(at, "rank %d died%n", &rank, &end) == 1 && end > 0)
            return true;
    }
    return false;
}

bool lk__cause_before(const lk_cause *a, const lk_cause *b)
{
    if (reports_a_death(a) != reports_a_death(b))
        return reports_a_death(b);
    if (reports_death_of(a, b) != reports_death_of(b, a))
        return reports_death_of(b, a);
    return by_signal(a) && !by_signal(b);
}
