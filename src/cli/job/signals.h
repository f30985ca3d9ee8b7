/* signals.h - signals of a training run: SIGINT, SIGTERM and SIGHUP stop it after the current step, SIGUSR1
 * saves a checkpoint or, with --requeue, stops the run too. The launcher's own signals are in launch/signals.h.
 *
 * Signals that were ignored at the start (nohup, background jobs) stay ignored. */
#ifndef LK_CLI_JOB_SIGNALS_H
#define LK_CLI_JOB_SIGNALS_H

#include <stdatomic.h>
#include <stdbool.h>

/* Called as soon as the process knows that it will train: until lk__job_signals_watch, SIGUSR1 has no effect
 * instead of ending the process. user_stops: SIGUSR1 stops the run; one that comes before lk__job_signals_watch
 * is kept until then. */
void lk__job_signals_prepare(bool user_stops);

/* From now on signals raise *level to an LK_SIGNAL_LEVEL_ value and never lower it. A second stop signal ends the
 * process at once, by that signal; SIGUSR1 never does. Signals shortly after the first count as the same one, because
 * timeout(1) and batch systems signal a process and also its group, and a launcher passes on signals that its ranks
 * have received already. Each of the two signals is reported on stderr if that is a terminal, or if the process is
 * alone: a launcher reports the signals of its ranks itself. */
void lk__job_signals_watch(atomic_int *level, bool alone);
/* Whether SIGINT, SIGTERM or SIGHUP has come since then. */
bool lk__job_signals_stop(void);
/* Restores the signals' former handlers. May also be called before lk__job_signals_prepare. */
void lk__job_signals_end(void);

#endif
