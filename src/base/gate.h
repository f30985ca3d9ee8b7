/* gate.h - who may use an object: one call at a time, in the process that made it.
 *
 * Objects with threads or connections of their own have a gate. It finds a caller's
 * mistake and does no more: no call waits for another. */
#ifndef LK_BASE_GATE_H
#define LK_BASE_GATE_H

#include <stdbool.h>

#include "base/status.h"

typedef struct lk_gate {
    const char *what; /* "engine"; static */
    unsigned forks;   /* lk__forks() where the object was made */
    bool busy;        /* atomic */
} lk_gate;

void lk__gate_init(lk_gate *gate, const char *what);
/* Begins a call; USAGE, and nothing has begun, while another call of the object has not
 * ended, or in a process where the object is inherited. */
lk_status lk__gate_enter(lk_gate *gate) LK_CHECKED;
void lk__gate_leave(lk_gate *gate);

/* Whether this process was forked from the one that made the object: its threads are not
 * here, and its connections are the other process's. */
bool lk__gate_inherited(const lk_gate *gate);

#endif
