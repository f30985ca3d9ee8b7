/* append.c - appends to the files of a run folder. */
#include "record/append.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"

long long lk__record_length(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 ? (long long)info.st_size : -1;
}

void lk__record_cut_to(int fd, long long length)
{
    int error = errno;
    if (length >= 0 && ftruncate(fd, (off_t)length) != 0)
        errno = error;
}

bool lk__record_append(int fd, const void *data, size_t bytes)
{
    long long length = lk__record_length(fd);
    const char *before = lk__fault_enter("record");
    bool done = !lk__fault_write() && lk__fd_write(fd, data, bytes);
    if (!done)
        lk__record_cut_to(fd, length);
    lk__fault_leave(before);
    return done;
}
