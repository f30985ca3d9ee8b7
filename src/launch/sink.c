/* sink.c - writes without blocking to a descriptor that may block.
 *
 * The flags of the descriptor cannot be changed, because other processes share it. A pipe that poll(2)
 * reports as writable takes PIPE_BUF bytes at once; a terminal is opened again with O_NONBLOCK. */
#define _GNU_SOURCE /* memrchr */
#include "launch/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

void lk__sink_init(lk_sink *sink, int fd)
{
    struct stat info;
    *sink = (lk_sink){.fd = fd};
    sink->closed = fstat(fd, &info) != 0;
    sink->regular = !sink->closed && S_ISREG(info.st_mode);
    if (sink->closed || !isatty(fd))
        return;
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (again > STDERR_FILENO) {
        sink->fd = again;
        sink->own = true;
    } else if (again >= 0) {
        close(again);
    }
}

void lk__sink_fini(lk_sink *sink)
{
    if (sink->own)
        close(sink->fd);
    lk__mem_free(sink->data);
    *sink = (lk_sink){.fd = -1, .closed = true};
}

static bool reserve(lk_sink *sink, size_t bytes)
{
    size_t pending = lk__sink_pending(sink);
    if (sink->capacity - sink->end >= bytes)
        return true;
    if (sink->capacity - pending >= bytes && sink->begin >= pending) {
        memcpy(sink->data, sink->data + sink->begin, pending);
    } else {
        size_t capacity = lk__size_max(2 * sink->capacity, pending + bytes);
        char *data;
        if (LK_ALLOC(lk__size_max(capacity, 1 << 14), "output", &data) != LK_OK)
            return false;
        if (pending > 0)
            memcpy(data, sink->data + sink->begin, pending);
        lk__mem_free(sink->data);
        sink->data = data;
        sink->capacity = lk__size_max(capacity, 1 << 14);
    }
    sink->begin = 0;
    sink->end = pending;
    return true;
}

void lk__sink_add(lk_sink *sink, const char *data, size_t bytes)
{
    if (sink->closed || sink->error != 0 || bytes == 0 || !reserve(sink, bytes))
        return;
    memcpy(sink->data + sink->end, data, bytes);
    sink->end += bytes;
}

size_t lk__sink_pending(const lk_sink *sink)
{
    return sink->end - sink->begin;
}

static bool ready(const lk_sink *sink)
{
    struct pollfd fd = {.fd = sink->fd, .events = POLLOUT};
    return sink->regular || poll(&fd, 1, 0) > 0;
}

/* Returns the bytes to write at once. */
static size_t portion(const lk_sink *sink)
{
    size_t pending = lk__sink_pending(sink);
    if (sink->regular || pending <= PIPE_BUF)
        return pending;
    const char *begin = sink->data + sink->begin, *end = memrchr(begin, '\n', PIPE_BUF);
    return end != NULL ? (size_t)(end - begin) + 1 : PIPE_BUF;
}

void lk__sink_flush(lk_sink *sink)
{
    while (sink->error == 0 && lk__sink_pending(sink) > 0 && ready(sink)) {
        ssize_t n = write(sink->fd, sink->data + sink->begin, portion(sink));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            sink->error = errno;
            break;
        }
        sink->begin += (size_t)n;
        char last = sink->data[sink->begin - 1];
        sink->mid_line = last != '\n' && last != '\r';
    }
    if (sink->error != 0 || sink->begin == sink->end)
        sink->begin = sink->end = 0;
}
