/* fd.c - system calls on file descriptors, repeated when a signal interrupts them. */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>

int lk__fd_open(const char *path, int flags, mode_t mode)
{
    int fd;
    do
        fd = open(path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

bool lk__fd_write(int fd, const void *data, size_t bytes)
{
    /* Some systems refuse writes of 2 GiB and more. */
    const size_t most = (size_t)1 << 30;
    for (size_t done = 0; done < bytes;) {
        size_t left = bytes - done;
        ssize_t n = write(fd, (const uint8_t *)data + done, left < most ? left : most);
        if (n < 0 && errno != EINTR)
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

bool lk__fd_sync(int fd)
{
    int result;
    do
        result = fsync(fd);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

bool lk__fd_finish(int *fd)
{
    int closed = close(*fd);
    *fd = -1;
    return closed == 0 || errno == EINTR;
}

void lk__fd_raise_limit(rlim_t wanted, struct rlimit *old)
{
    getrlimit(RLIMIT_NOFILE, old);
    if (old->rlim_cur >= wanted)
        return;
    struct rlimit limit = *old;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

ssize_t lk__fd_read_at(int fd, void *out, size_t bytes, off_t at)
{
    ssize_t n;
    do
        n = pread(fd, out, bytes, at);
    while (n < 0 && errno == EINTR);
    return n;
}
