/* fd.h - file descriptors that may be absent, and calls on them that are made again
 * when a signal interrupts them. */
#ifndef LK_BASE_FD_H
#define LK_BASE_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <unistd.h>

/* Closes *fd unless it is negative, and makes it -1. */
static inline void lk__fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* open(2) with O_CLOEXEC; negative on failure. The functions below set errno where
 * they fail. */
int lk__fd_open(const char *path, int flags, mode_t mode);
/* Writes all bytes, however many calls that takes. */
bool lk__fd_write(int fd, const void *data, size_t bytes);
bool lk__fd_sync(int fd);
/* pread(2). */
ssize_t lk__fd_read_at(int fd, void *out, size_t bytes, off_t at);
/* Closes a file that was written, and makes *fd -1; false where what was written may
 * be lost. A close that is interrupted has closed. */
bool lk__fd_finish(int *fd);

#endif
