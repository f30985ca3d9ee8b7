/* arena.h - assigns offsets in one memory to blocks, by their lifetimes. */
#ifndef LK_NN_ARENA_H
#define LK_NN_ARENA_H

#include <stddef.h>

#include "base/status.h"

/* A block that is in use from time first to time last, both included. */
typedef struct lk_arena_block {
    size_t bytes;
    int first, last;
    size_t offset; /* the result, a multiple of LK_ALIGN */
} lk_arena_block;

/* Gives each block an offset such that blocks in use at the same time do not overlap; *total is the end of the
 * highest block. Larger blocks are assigned first, each to the lowest offset that is free throughout its life. */
lk_status lk__arena_pack(lk_arena_block *blocks, size_t count, size_t *total) LK_CHECKED;

#endif
