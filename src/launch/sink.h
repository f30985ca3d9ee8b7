/* sink.h - a file that many write to through one queue, never waiting: standard
 * output or error, whose reader may be slow, stalled or gone. */
#ifndef LK_LAUNCH_SINK_H
#define LK_LAUNCH_SINK_H

#include <stdbool.h>
#include <stddef.h>

typedef struct lk_sink {
    int fd;
    bool own;      /* fd was opened here */
    bool regular;  /* a file, which never makes a writer wait */
    bool closed;   /* was never open: all that is added is dropped */
    int error;     /* of a write that failed, EPIPE where nobody reads any more: the same */
    bool mid_line; /* what was written last did not end a line */
    char *data;
    size_t begin, end, capacity;
} lk_sink;

/* fd stays the caller's. */
void lk__sink_init(lk_sink *sink, int fd);
void lk__sink_fini(lk_sink *sink);

/* Puts bytes at the end of the queue; drops them where memory is short. */
void lk__sink_add(lk_sink *sink, const char *data, size_t bytes);
size_t lk__sink_pending(const lk_sink *sink);
/* Writes as much of the queue as can be without waiting, whole lines as far as
 * they are not longer than what can be written at once. */
void lk__sink_flush(lk_sink *sink);

#endif
