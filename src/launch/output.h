/* output.h - the output of a node's ranks: a pipe for each stream; whole lines with a prefix to standard
 * output and error; whole lines without prefix to log files; the last lines of stderr for the cause.
 *
 * Nothing here blocks except lk__output_finish: reading pauses while the queue to the terminal is full. */
#ifndef LK_LAUNCH_OUTPUT_H
#define LK_LAUNCH_OUTPUT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "launch/node.h"

/* What a rank's progress line begins with ("erase to the end of the line"); it ends with \r. With
 * lk_launch_node_opts.progress, the last one of rank 0 stays below all lines until an empty one replaces it or the rank
 * ends. It is in no log file and not among the last lines of stderr. */
#define LK_OUTPUT_PROGRESS "\033[K"

enum {
    LK_OUTPUT_LINE = 64 * 1024, /* longer lines are divided */
    LK_OUTPUT_TAIL_LINES = 10
};

/* Open files of a launcher: the pipes and the log file of each rank, and all others. */
enum { LK_OUTPUT_FILES_PER_RANK = 5, LK_OUTPUT_OTHER_FILES = 128 };

typedef struct lk_output_pump lk_output_pump;

/* Makes pipes and log files. host is used in prefixes if opts say so. */
lk_status lk__output_create(const lk_launch_node_opts *opts, const char *host, lk_output_pump **out) LK_CHECKED;
void lk__output_destroy(lk_output_pump *output);

/* The write end of a rank's stdout (stream 1) or stderr (2); valid until started. */
int lk__output_pipe(const lk_output_pump *output, int index, int stream);
/* Closes the write ends after the ranks have been forked. */
void lk__output_started(lk_output_pump *output);
/* Writes all descriptors opened here, at most LK_OUTPUT_FILES_PER_RANK for each rank and two more; returns their
 * count. */
size_t lk__output_fds(const lk_output_pump *output, int *fds);

/* poll writes the events to wait for, at most 2 for each rank and two more, and returns their count. pump
 * handles them. */
size_t lk__output_poll(lk_output_pump *output, struct pollfd *fds);
void lk__output_pump(lk_output_pump *output, const struct pollfd *fds, size_t count);
/* Reads what a rank (-1: all) has written so far. */
void lk__output_drain(lk_output_pump *output, int index);
/* Called when all writers are gone. Reads the rest, ends unfinished lines, and blocks until the queues are
 * empty, or until nothing could be written for `seconds`, counted from before this call. */
void lk__output_finish(lk_output_pump *output, double seconds);

/* errno of a failed write to standard output or error: EPIPE if its reader closed it; 0: none. */
int lk__output_error(const lk_output_pump *output);
/* Writes the last lines that a rank wrote to stderr. */
void lk__output_tail(const lk_output_pump *output, int index, char *text, size_t bytes);
/* Whether this rank wrote the last line on standard error: then its last lines need no repetition. */
bool lk__output_shows(const lk_output_pump *output, int index);

/* Duplicates fd to a number above the standard ones, which a caller may have closed, and closes the old one;
 * -1 stays. */
int lk__output_fd_above_standard(int fd);

#endif
