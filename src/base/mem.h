/* mem.h - host memory: checked sizes, alignment for the widest vector. */
#ifndef LK_BASE_MEM_H
#define LK_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Alignment of every block: a cache line, and the widest vector. */
#define LK_ALIGN 64

/* Zeroed, aligned to LK_ALIGN, at least one byte; `what` goes into the error.
 * count * size is checked for overflow. Pages of a large block that are never
 * touched cost nothing. Free with lk__free. */
lk_status lk__alloc(size_t count, size_t size, const char *what, void **out) LK_CHECKED;
void lk__free(void *block);

/* Typed form: LK_ALLOC(n, "labels", &labels) for an n-element array. */
#define LK_ALLOC(count, what, out) lk__alloc((count), sizeof **(out), (what), (void **)(out))

static inline size_t lk__round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static inline size_t lk__min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t lk__max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

#endif
