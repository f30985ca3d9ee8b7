/* fold.h - the partial sums that a wave of shards changes.
 *
 * A weight gradient copies the stack entries that the wave pushes or merges into its thread's memory, and back
 * to their slots once for each wave: entries [low, depth) are read, [low, end) are written, and those below low
 * do not change. */
#ifndef LK_TENSOR_CPU_FOLD_H
#define LK_TENSOR_CPU_FOLD_H

#include "tensor/shards.h"

typedef struct lk_fold_range {
    int low; /* lowest entry that the wave changes */
    int end; /* entries on the stack after the wave */
} lk_fold_range;

static inline lk_fold_range lk__fold_range_of(const lk_shards *shards)
{
    lk_fold_range fold = {shards->depth, shards->depth};
    for (int i = 0; i < shards->count; i++) {
        fold.end += 1 - shards->merges[i];
        if (fold.end - 1 < fold.low)
            fold.low = fold.end - 1;
    }
    return fold;
}

#endif
