/* cause.h - signals by name. What a cause is and how it reads: node.h. */
#ifndef LK_LAUNCH_CAUSE_H
#define LK_LAUNCH_CAUSE_H

#include <stddef.h>

/* "SIGKILL", or "signal 35" where it has no name. */
void lk__cause_signal_name(int signal, char *text, size_t bytes);

#endif
