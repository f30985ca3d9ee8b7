/* fold.h - which partial sums a wave of shards touches.
 *
 * A weight gradient keeps the entries of the stack that the wave pushes or
 * merges in its thread's memory and moves them from and to their slots once a
 * wave: entries [low, depth) come in, [low, end) go out, those below low stay
 * as they are. */
#ifndef LK_TENSOR_CPU_FOLD_H
#define LK_TENSOR_CPU_FOLD_H

#include "tensor/shards.h"

typedef struct lk_lanes {
    int low; /* lowest entry that the wave changes */
    int end; /* entries alive after the wave */
} lk_lanes;

static inline lk_lanes lk__lanes_fold(const lk_shards *shards)
{
    lk_lanes fold = {shards->depth, shards->depth};
    for (int i = 0; i < shards->count; i++) {
        fold.end += 1 - shards->merges[i];
        if (fold.end - 1 < fold.low)
            fold.low = fold.end - 1;
    }
    return fold;
}

#endif
