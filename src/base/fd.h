/* fd.h - file descriptors, -1 for none, and system calls on them that are repeated when a signal
 * interrupts them. */
#ifndef LK_BASE_FD_H
#define LK_BASE_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

/* Closes *fd unless it is negative, and sets it to -1. */
static inline void lk__fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* open(2) with O_CLOEXEC; negative on failure. This function and those below set errno on failure. */
int lk__fd_open(const char *path, int flags, mode_t mode);
/* Writes all bytes, in as many calls as needed. */
bool lk__fd_write(int fd, const void *data, size_t bytes);
bool lk__fd_sync(int fd);
/* pread(2). */
ssize_t lk__fd_read_at(int fd, void *out, size_t bytes, off_t at);
/* Closes a written file and sets *fd to -1; false if written data may be lost. An interrupted close
 * has closed the file. */
bool lk__fd_finish(int *fd);
/* Raises this process's limit of open files to `wanted` if it is lower, as far as the system allows. *old is the limit
 * before. */
void lk__fd_raise_limit(rlim_t wanted, struct rlimit *old);

#endif
