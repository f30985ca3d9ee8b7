/* signals.h - the launcher's signals, taken as events while ranks run, and given
 * back afterwards as they were. */
#ifndef LK_LAUNCH_SIGNALS_H
#define LK_LAUNCH_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

#include "base/status.h"

typedef struct lk_signals {
    int fd; /* readable when a signal came; -1: not taken */
    sigset_t taken, mask;
    struct sigaction child; /* what SIGCHLD did before */
} lk_signals;

/* Takes SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP and, with user, SIGUSR1, except
 * those that are ignored (nohup, background jobs), and SIGPIPE. SIGCHLD does nothing
 * meanwhile, so that nobody else reaps the keeper. */
lk_status lk__signals_take(lk_signals *signals, bool user) LK_CHECKED;
/* The next signal that came, 0 for none. */
int lk__signals_next(const lk_signals *signals);
/* Drops a signal that came and was not read; whether it had come. */
bool lk__signals_forget(const lk_signals *signals, int signal);
/* Stops this process as SIGTSTP does, until it is continued. */
void lk__signals_suspend(void);
void lk__signals_restore(lk_signals *signals);

#endif
