/* output.h - what the ranks of a node write: a pipe for each stream, whole lines
 * with a prefix to standard output and error, whole lines without to log files,
 * and the last lines of stderr kept for the cause.
 *
 * Nothing waits: reading stops while the queue towards the terminal is full. */
#ifndef LK_LAUNCH_OUTPUT_H
#define LK_LAUNCH_OUTPUT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "launch/node.h"

enum {
    LK_OUTPUT_LINE = 64 * 1024, /* longer lines are cut */
    LK_OUTPUT_TAIL_LINES = 10
};

typedef struct lk_output lk_output;

/* Makes pipes and log files. host is named in prefixes where opts say so. */
lk_status lk__output_create(const lk_launch_node_opts *opts, const char *host, lk_output **out) LK_CHECKED;
void lk__output_destroy(lk_output *output);

/* The write end of a rank's stdout (stream 1) or stderr (2), until started. */
int lk__output_pipe(const lk_output *output, int index, int stream);
/* Closes the write ends, once the ranks have theirs. */
void lk__output_started(lk_output *output);
/* All descriptors that were opened here, at most 5 a rank and two more. */
size_t lk__output_fds(const lk_output *output, int *fds);

/* What to wait for, at most 2 a rank and two more; then what came of it. */
size_t lk__output_poll(lk_output *output, struct pollfd *fds);
void lk__output_pump(lk_output *output, const struct pollfd *fds, size_t count);
/* Reads what a rank (-1: all) has written up to now. */
void lk__output_drain(lk_output *output, int index);
/* All writers are gone: drains, ends unfinished lines, and waits for the queues
 * to empty as long as somebody reads them: not for more than `seconds` in which
 * nothing goes, those before this call included. */
void lk__output_finish(lk_output *output, double seconds);

/* Why standard output or error cannot be written any more: EPIPE where its reader
 * closed it; 0 while it can. */
int lk__output_error(const lk_output *output);
/* The last lines that a rank wrote to stderr. */
void lk__output_tail(const lk_output *output, int index, char *text, size_t bytes);
/* Whether the last line that standard error got is one that this rank wrote there: a
 * reader sees its last lines at the end without a repetition. */
bool lk__output_shows(const lk_output *output, int index);

/* Moves fd above the standard ones, which a caller may have closed; -1 stays. */
int lk__output_fd_above_standard(int fd);

#endif
