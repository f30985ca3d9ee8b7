/* tee.h - copies what this process prints on stdout and stderr to a function. */
#ifndef LK_CLI_REPORT_TEE_H
#define LK_CLI_REPORT_TEE_H

#include <stddef.h>

/* Gets text as it is printed, from any thread; must not print. */
typedef void (*lk_tee_fn)(void *arg, const char *text, size_t bytes);

/* Replaces stdout and stderr by streams that also call copy. Text that is written to their descriptors without stdio,
 * as the progress line, is not copied. Nothing happens if there is no memory for the streams. If the reader of a pipe
 * has closed it, calls broken, from any thread, before SIGPIPE ends the process. */
void lk__tee_begin(lk_tee_fn copy, void (*broken)(void *arg), void *arg);
/* Flushes and ends the copies; the streams stay until the process ends, so that an error of stdout is not lost. */
void lk__tee_end(void);

#endif
