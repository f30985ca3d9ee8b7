/* mem.h - host memory: sizes checked for overflow, alignment for the widest vector. */
#ifndef LK_BASE_MEM_H
#define LK_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Alignment of every block in bytes: a cache line and the widest vector. */
#define LK_ALIGN 64

/* Allocates count * size bytes, at least one: zeroed, aligned to LK_ALIGN, checked for overflow.
 * `what` names the memory in the error. Untouched pages of a large block cost nothing. Free with
 * lk__mem_free. */
lk_status lk__mem_alloc(size_t count, size_t size, const char *what, void **out) LK_CHECKED;
void lk__mem_free(void *block);
/* Doubles an array of *room elements of `size` bytes, of which the first `used` are kept; an array without room, *block
 * NULL, gets some. */
lk_status lk__mem_grow(size_t used, size_t size, const char *what, size_t *room, void **block) LK_CHECKED;
/* Copies a text; free with lk__mem_free. */
lk_status lk__mem_copy_text(const char *text, const char *what, char **out) LK_CHECKED;

/* Bytes rounded up to whole pages of memory, at least one. */
size_t lk__mem_whole_pages(size_t bytes);

/* The most memory that this process has used so far, in units of 10^6 bytes. */
double lk__mem_peak_mb(void);
/* The memory that this process uses now, in units of 10^6 bytes; 0 without /proc. */
double lk__mem_now_mb(void);

/* Typed form: LK_ALLOC(n, "labels", &labels) for an n-element array. */
#define LK_ALLOC(count, what, out) lk__mem_alloc((count), sizeof **(out), (what), (void **)(out))

/* LK_GROW(count, "labels", &room, &labels) */
#define LK_GROW(used, what, room, block) lk__mem_grow((used), sizeof **(block), (what), (room), (void **)(block))

static inline size_t lk__size_divide_up(size_t value, size_t by)
{
    return (value + by - 1) / by;
}

static inline size_t lk__size_round_up(size_t value, size_t multiple)
{
    return lk__size_divide_up(value, multiple) * multiple;
}

static inline size_t lk__size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The greatest common divisor; b is at least 1. */
static inline size_t lk__size_gcd(size_t a, size_t b)
{
    while (a > 0) {
        size_t rest = b % a;
        b = a;
        a = rest;
    }
    return b;
}

static inline size_t lk__size_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

#endif
