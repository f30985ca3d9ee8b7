/* pipeline.h - the order in which a stage computes the waves of a step: pure arithmetic.
 *
 * The schedule is "one forward, one backward": a stage first computes the forward pass of as many waves as
 * there are stages after it, then alternates forward and backward. So a stage holds at most
 * stages - stage waves, and the last stage computes the backward pass of each wave directly after its
 * forward pass. Without pipelining, a wave is finished before the next one begins. The backward passes are
 * always in the order of the waves, because the sums over shards require it. */
#ifndef LK_PARALLEL_STEP_PIPELINE_H
#define LK_PARALLEL_STEP_PIPELINE_H

#include <stdbool.h>

typedef struct lk_pipeline_action {
    bool forward;
    int wave;
} lk_pipeline_action;

/* The number of waves that are under way at a stage in addition to the one whose backward pass is next. */
static inline int lk__pipeline_ahead(int stages, int stage, int waves, bool pipelined)
{
    int ahead = pipelined ? stages - 1 - stage : 0;
    return ahead < waves ? ahead : waves;
}

/* Action i of 2 * waves. */
static inline lk_pipeline_action lk__pipeline_action(int ahead, int waves, int i)
{
    int turn = i - ahead, turns = 2 * (waves - ahead);
    if (turn < 0)
        return (lk_pipeline_action){true, i};
    if (turn < turns)
        return turn % 2 == 0 ? (lk_pipeline_action){true, ahead + turn / 2} : (lk_pipeline_action){false, turn / 2};
    return (lk_pipeline_action){false, waves - ahead + turn - turns};
}

#endif
