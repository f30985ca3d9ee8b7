/* signals.c - blocks signals and reads them from a descriptor. */
#include "launch/signals.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "launch/output.h"

static void choose(sigset_t *set, bool user)
{
    static const int wanted[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGUSR1};
    sigemptyset(set);
    sigaddset(set, SIGPIPE);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct sigaction action;
        if (wanted[i] == SIGUSR1 && !user)
            continue;
        if (sigaction(wanted[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(set, wanted[i]);
    }
}

lk_status lk__signals_take(lk_signals *s, bool user)
{
    choose(&s->taken, user);
    s->fd = lk__output_fd_above_standard(signalfd(-1, &s->taken, SFD_NONBLOCK | SFD_CLOEXEC));
    if (s->fd < 0)
        return lk__fail(LK_STATUS_IO, "cannot take signals: %s", strerror(errno));
    struct sigaction none = {.sa_handler = SIG_DFL};
    pthread_sigmask(SIG_BLOCK, &s->taken, &s->mask);
    sigaction(SIGCHLD, &none, &s->child);
    return LK_OK;
}

int lk__signals_next(const lk_signals *s)
{
    struct signalfd_siginfo info;
    if (s->fd < 0 || read(s->fd, &info, sizeof info) != (ssize_t)sizeof info)
        return 0;
    return (int)info.ssi_signo;
}

bool lk__signals_forget(const lk_signals *s, int signal)
{
    const struct timespec now = {0};
    sigset_t set;
    bool any = false;
    sigemptyset(&set);
    sigaddset(&set, signal);
    if (sigismember(&s->taken, signal) && !sigismember(&s->mask, signal))
        while (sigtimedwait(&set, NULL, &now) > 0)
            any = true;
    return any;
}

/* Uses SIGTSTP and not SIGSTOP: the kernel does not stop a process by SIGTSTP if no shell could continue it. */
void lk__signals_suspend(void)
{
    struct sigaction plain = {.sa_handler = SIG_DFL}, before;
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    sigaction(SIGTSTP, &plain, &before);
    raise(SIGTSTP);
    pthread_sigmask(SIG_UNBLOCK, &stop, NULL);
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
    sigaction(SIGTSTP, &before, NULL);
}

void lk__signals_restore(lk_signals *s)
{
    if (s->fd < 0)
        return;
    /* SIGPIPE was reported, and SIGUSR1 is for ranks that have ended: neither may take effect now. */
    (void)lk__signals_forget(s, SIGPIPE);
    (void)lk__signals_forget(s, SIGUSR1);
    sigaction(SIGCHLD, &s->child, NULL);
    pthread_sigmask(SIG_SETMASK, &s->mask, NULL);
    close(s->fd);
    s->fd = -1;
}
