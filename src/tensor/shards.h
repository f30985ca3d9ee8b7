/* shards.h - how kernels sum over samples.
 *
 * A wave is the run of whole shards that is in memory at once. A sum over
 * samples (a weight gradient, a statistic) is one leaf per shard, pushed on a
 * stack of partial sums that survives from wave to wave; base/tree.h says which
 * entries merge. Partial sum d lives in slot d of an lk_partials; when the last
 * shard of the step was pushed, slot 0 holds the sum and nothing else is live.
 *
 * Merging is slot[d-1] = slot[d-1] + slot[d], element by element. */
#ifndef LK_TENSOR_SHARDS_H
#define LK_TENSOR_SHARDS_H

#include <stddef.h>

#include "base/tree.h"

typedef struct lk_shards {
    int count;           /* shards in this wave */
    const size_t *begin; /* (count + 1) shard i is samples [begin[i], begin[i+1]) of the wave; may be empty */
    const int *merges;   /* (count) merges after leaf i */
    int depth;           /* partial sums alive when the wave starts */
    const size_t *rows;  /* (depth) samples under each of them */
} lk_shards;

/* depth after the wave's leaf i was pushed and merged: depth + i + 1 less all
 * merges so far. */

typedef struct lk_partials {
    float *slot0;
    size_t stride; /* elements from a slot to the next */
} lk_partials;

static inline float *lk__partials_slot(lk_partials partials, int depth)
{
    return partials.slot0 + partials.stride * (size_t)depth;
}

#endif
