/* guard.h - who may use an object: one call at a time, in the process that made it.
 *
 * Objects with threads or connections of their own have a guard. It finds a caller's
 * mistake and does no more: no call waits for another. */
#ifndef LK_BASE_GUARD_H
#define LK_BASE_GUARD_H

#include <stdbool.h>

#include "base/status.h"

typedef struct lk_guard {
    const char *what; /* "engine"; static */
    unsigned forks;   /* lk__forks() where the object was made */
    bool busy;        /* atomic */
} lk_guard;

void lk__guard_init(lk_guard *guard, const char *what);
/* Begins a call; USAGE, and nothing has begun, while another call of the object has not
 * ended, or where lk__guard_check fails. */
lk_status lk__guard_enter(lk_guard *guard) LK_CHECKED;
void lk__guard_leave(lk_guard *guard);

/* Whether this process was forked from the one that made the object: its threads are not
 * here, and its connections are the other process's. */
bool lk__guard_inherited(const lk_guard *guard);
/* USAGE where it was. */
lk_status lk__guard_check(const lk_guard *guard) LK_CHECKED;

#endif
