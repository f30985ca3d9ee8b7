/* fd.h - file descriptors that may be absent. */
#ifndef LK_BASE_FD_H
#define LK_BASE_FD_H

#include <unistd.h>

/* Closes *fd unless it is negative, and makes it -1. */
static inline void lk__fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

#endif
