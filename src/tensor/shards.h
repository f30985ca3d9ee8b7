/* shards.h - how kernels sum over samples.
 *
 * A wave is the run of whole shards that is in memory at once. A sum over samples (a weight gradient, a
 * statistic) has one leaf for each shard. Leaves are pushed on a stack of partial sums that is kept from wave
 * to wave; base/tree.h says which entries merge. Partial sum d is in slot d of an lk_partials. After the last
 * shard of the step slot 0 holds the sum, and no other slot is in use.
 *
 * Merging is slot[d-1] = slot[d-1] + slot[d], element by element. */
#ifndef LK_TENSOR_SHARDS_H
#define LK_TENSOR_SHARDS_H

#include <stddef.h>

#include "base/tree.h"

typedef struct lk_shards {
    int count;           /* shards in this wave */
    const size_t *begin; /* (count + 1) shard i is samples [begin[i], begin[i+1]) of the wave; may be empty */
    /* Samples of a shard of the step at most, in all waves of all ranks; at least 1. Every rank has the same value, so
     * kernels may choose by it how they compute a leaf. */
    size_t most;
    int all;            /* shards of the step, in all waves of all ranks; at least 1, the same for every rank */
    const int *merges;  /* (count) number of merges after leaf i */
    int depth;          /* partial sums on the stack when the wave starts */
    const size_t *rows; /* (depth) samples in each of them */
} lk_shards;

/* After leaf i of the wave the stack has depth + i + 1 entries, less all merges so far. */

typedef struct lk_partials {
    float *slot0;
    size_t stride; /* elements from one slot to the next */
} lk_partials;

static inline float *lk__partials_slot(lk_partials partials, int depth)
{
    return partials.slot0 + partials.stride * (size_t)depth;
}

#endif
