/* pipeline.h - the order in which a stage works on the waves of a step: pure.
 *
 * One forward, one backward: a stage starts as many waves ahead as there are
 * stages behind it, then takes turns. So it holds at most stages - stage waves,
 * and the last stage gives a gradient back as soon as it has a wave. Without
 * pipelining a wave goes forward and backward before the next. Either way the
 * waves go backward in their order, as the sums over shards need it. */
#ifndef LK_PARALLEL_STEP_PIPELINE_H
#define LK_PARALLEL_STEP_PIPELINE_H

#include <stdbool.h>

typedef struct lk_pipeline_action {
    bool forward;
    int wave;
} lk_pipeline_action;

/* Waves that a stage starts before its first backward, beyond that one. */
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
