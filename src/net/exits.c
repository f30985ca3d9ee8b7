/* exits.c - notes of a launcher about its ranks, in memory without a name (memfd). */
#define _GNU_SOURCE /* memfd_create */
#include "net/exits.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"

/* The memory begins with this: another process may have got the launcher's pid. */
static const char head[16] = "lockstep exits\n";

void lk__exits_init(int port, int ranks, lk_exits *exits)
{
    *exits = (lk_exits){.fd = memfd_create("lockstep-exits", MFD_CLOEXEC)};
    if (exits->fd < 0)
        return;
    if (ftruncate(exits->fd, (off_t)sizeof head + ranks) != 0 ||
        pwrite(exits->fd, head, sizeof head, 0) != (ssize_t)sizeof head) {
        lk__fd_close(&exits->fd);
        return;
    }
    snprintf(exits->text, sizeof exits->text, "%d /proc/%ld/fd/%d", port, (long)getpid(), exits->fd);
}

void lk__exits_fini(lk_exits *exits)
{
    lk__fd_close(&exits->fd);
}

void lk__exits_note(const lk_exits *exits, int rank)
{
    const uint8_t one = 1;
    if (exits->fd >= 0 && pwrite(exits->fd, &one, 1, (off_t)sizeof head + rank) != 1)
        return; /* the others wait until the timeout */
}

void lk__exits_find(int port, char path[LK_EXITS_TEXT])
{
    const char *text = getenv(LK_EXITS_VARIABLE);
    int number = 0;
    if (!text || sscanf(text, "%d %63s", &number, path) != 2 || number != port)
        *path = '\0';
}

bool lk__exits_read(const char *path, int count, uint8_t *gone)
{
    char begin[sizeof head];
    int fd = *path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
    if (fd < 0)
        return false;
    bool known = pread(fd, begin, sizeof begin, 0) == (ssize_t)sizeof begin && memcmp(begin, head, sizeof head) == 0 &&
                 lseek(fd, 0, SEEK_END) == (off_t)sizeof head + count &&
                 pread(fd, gone, (size_t)count, (off_t)sizeof head) == (ssize_t)count;
    lk__fd_close(&fd);
    return known && memchr(gone, 1, (size_t)count);
}
