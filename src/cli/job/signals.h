/* signals.h - what signals ask of a training run: SIGINT, SIGTERM and SIGHUP to stop
 * after the step at hand, SIGUSR1 to save and go on. The launcher's own signals are
 * in launch/signals.h.
 *
 * Signals that were ignored (nohup, background jobs) stay so. */
#ifndef LK_CLI_JOB_SIGNALS_H
#define LK_CLI_JOB_SIGNALS_H

#include <stdatomic.h>
#include <stdbool.h>

/* As soon as the process knows that it will train: until lk__job_signals_watch, SIGUSR1
 * does nothing rather than end the process. */
void lk__job_signals_prepare(void);

/* From here on the signals raise *wish to an LK_WISH, never lower it. A second one
 * to stop ends the process at once, by that signal; what follows the first within a
 * moment is the same wish, as timeout(1) and batch systems signal a
 * process and its group, and a launcher passes on what its ranks got as well. */
void lk__job_signals_watch(atomic_int *level);
/* Whether a signal to stop has come since then. */
bool lk__job_signals_stop(void);
/* The signals do again what they did before lk__job_signals_prepare or _watch. Not needed
 * before either. */
void lk__job_signals_end(void);

#endif
