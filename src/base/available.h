/* available.h - how much memory can still be used, as far as the system says: by all processes of
 * this host together, and by this process.
 *
 * A successful allocation proves little: pages cost nothing before they are touched, and a process
 * that touches more than the host has is killed. */
#ifndef LK_BASE_AVAILABLE_H
#define LK_BASE_AVAILABLE_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes; SIZE_MAX if there is no limit or none is visible. `limit` names the limit, for messages. */
typedef struct lk_available_room {
    size_t bytes;
    const char *limit;
    bool unshared; /* memory that is shared with other processes does not count */
} lk_available_room;

typedef struct lk_available {
    lk_available_room host;    /* free memory and swap, or what the cgroup has left; the page cache counts as free */
    lk_available_room process; /* what ulimit -v and ulimit -d leave */
} lk_available;

lk_available lk__available(void);

/* The host's memory according to the files below root (root/proc/meminfo ...). */
lk_available_room lk__available_below(const char *root);

#endif
