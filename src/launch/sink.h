/* sink.h - a queue of bytes for standard output or error, written without blocking: the reader may be slow,
 * stopped or gone. */
#ifndef LK_LAUNCH_SINK_H
#define LK_LAUNCH_SINK_H

#include <stdbool.h>
#include <stddef.h>

typedef struct lk_sink {
    int fd;
    bool own;      /* fd was opened by the sink */
    bool regular;  /* a regular file, which never blocks a writer */
    bool closed;   /* fd was not open: everything added is dropped */
    int error;     /* errno of a failed write (EPIPE: no reader): everything added is dropped; 0: none */
    bool mid_line; /* the last byte written did not end a line */
    char *data;
    size_t begin, end, capacity;
} lk_sink;

/* The caller keeps the ownership of fd. */
void lk__sink_init(lk_sink *sink, int fd);
void lk__sink_fini(lk_sink *sink);

/* Appends bytes to the queue; drops them if memory is short. */
void lk__sink_add(lk_sink *sink, const char *data, size_t bytes);
size_t lk__sink_pending(const lk_sink *sink);
/* Writes as much of the queue as possible without blocking: whole lines, unless a line is longer than one
 * write. */
void lk__sink_flush(lk_sink *sink);

#endif
