/* available.h - how much memory may still be taken, as far as the system tells:
 * by all processes of this host together, and by this process.
 *
 * A block of memory costs nothing before it is used, so asking for one says
 * little; a process that then uses more than there is gets killed. */
#ifndef LK_BASE_AVAILABLE_H
#define LK_BASE_AVAILABLE_H

#include <stddef.h>

/* Bytes; SIZE_MAX where there is no limit, or none that can be seen. `limit` is
 * what to call the one that counts, for messages. */
typedef struct lk_available_room {
    size_t bytes;
    const char *limit;
} lk_available_room;

typedef struct lk_available {
    lk_available_room
        host; /* free memory and swap, or what the cgroup has left; files in the page cache count as free */
    lk_available_room process; /* what ulimit -v and ulimit -d leave */
} lk_available;

lk_available lk__available(void);

/* The host's room as the files below root (root/proc/meminfo ...) tell it. */
lk_available_room lk__available_below(const char *root);

#endif
