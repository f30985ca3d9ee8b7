/* signals.h - the launcher's signals as events while ranks run; restored afterwards. */
#ifndef LK_LAUNCH_SIGNALS_H
#define LK_LAUNCH_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

#include "base/status.h"

typedef struct lk_signals {
    int fd; /* readable when a signal has come; -1: signals are not taken */
    sigset_t taken, mask;
    struct sigaction child; /* the previous action of SIGCHLD */
} lk_signals;

/* Takes SIGPIPE and, unless they are ignored (nohup, background jobs), SIGINT, SIGTERM, SIGHUP, SIGQUIT,
 * SIGTSTP and, with user, SIGUSR1. Sets SIGCHLD to its default action, so that nobody else reaps the keeper. */
lk_status lk__signals_take(lk_signals *signals, bool user) LK_CHECKED;
/* Returns the next signal; 0: none. */
int lk__signals_next(const lk_signals *signals);
/* Drops a pending signal; returns whether there was one. */
bool lk__signals_forget(const lk_signals *signals, int signal);
/* Stops this process as SIGTSTP does; returns when it is continued. */
void lk__signals_suspend(void);
void lk__signals_restore(lk_signals *signals);

#endif
