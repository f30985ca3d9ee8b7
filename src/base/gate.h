/* gate.h - one call at a time on an object, and only in the process that created it.
 *
 * Objects with threads or connections have a gate. It only detects a caller's mistake: no call
 * waits for another one. */
#ifndef LK_BASE_GATE_H
#define LK_BASE_GATE_H

#include <stdbool.h>

#include "base/status.h"

typedef struct lk_gate {
    const char *what; /* name in messages: "engine"; static */
    unsigned forks;   /* lk__forks() when the object was created */
    bool busy;        /* atomic */
} lk_gate;

void lk__gate_init(lk_gate *gate, const char *what);
/* Begins a call. USAGE, and no call has begun, if another call on the object has not ended or if
 * the object is inherited. */
lk_status lk__gate_enter(lk_gate *gate) LK_CHECKED;
void lk__gate_leave(lk_gate *gate);

/* Whether this process was forked from the one that created the object: the object's threads do not
 * exist here, and its connections belong to the other process. */
bool lk__gate_inherited(const lk_gate *gate);

#endif
