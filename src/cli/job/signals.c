/* signals.c - signal handlers, which only raise the signal level. They may run in any thread, and in several at
 * once: all shared data are atomic. */
#include "cli/job/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "train/train.h"

_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_POINTER_LOCK_FREE == 2, "handlers must not lock");

/* Milliseconds within which further signals count as the same request. */
static const unsigned SAME = 200;

static const int watched[] = {SIGUSR1, SIGINT, SIGTERM, SIGHUP};
enum { WATCHED = sizeof watched / sizeof *watched };

static struct {
    atomic_int *_Atomic level; /* NULL: nobody reads it */
    atomic_uint first_at; /* time of the first stop signal, in milliseconds; odd, so that it is never 0; 0: no signal */
    bool terminal;
    bool alone;        /* no launcher reports signals */
    bool user_stops;   /* SIGUSR1 stops the run */
    atomic_bool early; /* such a SIGUSR1 has come while nobody read the level */
    struct sigaction before[WATCHED];
    bool taken[WATCHED];
} state;

static unsigned milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned)now.tv_sec * 1000u + (unsigned)(now.tv_nsec / 1000000);
}

static void raise_level(int wanted)
{
    atomic_int *level = atomic_load(&state.level);
    if (!level)
        return;
    int now = atomic_load(level);
    while (now < wanted && !atomic_compare_exchange_weak(level, &now, wanted))
        ;
}

static void put(const char *text)
{
    size_t bytes = 0;
    while (text[bytes])
        bytes++;
    ssize_t n = write(STDERR_FILENO, text, bytes);
    (void)n;
}

/* Says what a stop signal does, with means that a handler may use. Takes the line of a terminal on which ^C or the
 * progress line is. */
static void print_notice(int number, const char *what)
{
    if (!state.terminal && !state.alone)
        return;
    put(state.terminal ? "\r\033[Klockstep train: interrupted by " : "lockstep train: interrupted by ");
    put(number == SIGINT ? "SIGINT" : number == SIGHUP ? "SIGHUP" : "SIGTERM");
    put(what);
}

static void on_stop(int number)
{
    int error = errno;
    unsigned now = milliseconds(), first = 0;
    if (atomic_compare_exchange_strong(&state.first_at, &first, now | 1)) {
        raise_level(LK_SIGNAL_LEVEL_STOP + number);
        print_notice(number, ": the step is finished first; a second signal ends the run at once\n");
    } else if ((int)(now - first) >= (int)SAME) {
        print_notice(number, " again: the run ends at once\n");
        /* Delivered when this handler returns. */
        signal(number, SIG_DFL);
        raise(number);
    }
    errno = error;
}

/* A repeated SIGUSR1 asks for the same again: Slurm signals a launcher and its ranks, and the launcher passes it on. */
static void on_user(int number)
{
    if (state.user_stops && !atomic_load(&state.level))
        atomic_store(&state.early, true);
    raise_level(state.user_stops ? LK_SIGNAL_LEVEL_STOP + number : LK_SIGNAL_LEVEL_SAVE);
}

static void take(int index, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, now;
    sigemptyset(&action.sa_mask);
    if (state.taken[index] || sigaction(watched[index], NULL, &now) != 0 || now.sa_handler == SIG_IGN)
        return;
    state.taken[index] = sigaction(watched[index], &action, &state.before[index]) == 0;
}

void lk__job_signals_prepare(bool user_stops)
{
    state.user_stops = user_stops;
    take(0, on_user);
}

void lk__job_signals_watch(atomic_int *level, bool alone)
{
    state.alone = alone;
    state.terminal = isatty(STDERR_FILENO) == 1;
    atomic_store(&state.first_at, 0);
    atomic_store(&state.level, level);
    take(0, on_user);
    if (atomic_exchange(&state.early, false))
        raise_level(LK_SIGNAL_LEVEL_STOP + SIGUSR1);
    for (int i = 1; i < WATCHED; i++)
        take(i, on_stop);
}

bool lk__job_signals_stop(void)
{
    return atomic_load(&state.first_at) != 0;
}

void lk__job_signals_end(void)
{
    for (int i = 0; i < WATCHED; i++)
        if (state.taken[i])
            sigaction(watched[i], &state.before[i], NULL);
    for (int i = 0; i < WATCHED; i++)
        state.taken[i] = false;
    state.user_stops = false;
    atomic_store(&state.early, false);
    atomic_store(&state.level, NULL);
}
