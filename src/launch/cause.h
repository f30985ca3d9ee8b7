/* cause.h - names of signals. node.h has lk_cause and its texts. */
#ifndef LK_LAUNCH_CAUSE_H
#define LK_LAUNCH_CAUSE_H

#include <stddef.h>

/* Writes "SIGKILL", or "signal 35" for a signal without a name. */
void lk__cause_signal_name(int signal, char *text, size_t bytes);

#endif
