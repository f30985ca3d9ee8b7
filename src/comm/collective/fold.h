/* fold.h - merges partial sums over the tree of shards.
 *
 * A fold plan is made once from the subtrees whose sums are available and the subtrees that are wanted. It is
 * then run over spans of vectors. */
#ifndef LK_COMM_COLLECTIVE_FOLD_H
#define LK_COMM_COLLECTIVE_FOLD_H

#include "comm/collective/schedule.h"
#include "tensor/device.h"

typedef struct lk_fold_plan lk_fold_plan;

/* inputs: (in_count) subtrees of the tree over [0,shards), in any order. outputs: (out_count) subtrees; each
 * is covered by inputs exactly once. An empty range of shards has no subtree. */
lk_status lk__fold_plan_create(int shards, const lk_schedule_subtree *inputs, int in_count,
                               const lk_schedule_subtree *outputs, int out_count, lk_fold_plan **out) LK_CHECKED;
void lk__fold_plan_destroy(lk_fold_plan *plan);

/* The steps that make an output on a stack of vectors. A step is the index of an input to push, or
 * LK_FOLD_MERGE: replace the two topmost entries by lower entry + upper entry. Borrowed from the plan. */
enum { LK_FOLD_MERGE = -1 };
const int *lk__fold_plan_steps(const lk_fold_plan *plan, int output, int *count);

typedef struct lk_fold {
    lk_device *device; /* has the vectors in its memory */
    lk_dtype dtype;
    lk_reduction op; /* if `last`, MEAN divides the outputs by divisor; otherwise MEAN is SUM */
    bool last;
    int divisor;
    size_t count;              /* elements */
    const void *const *inputs; /* (in_count) vectors of count elements */
    void *const *outputs;      /* (out_count) each may be equal to an input, but must not overlap one otherwise */
} lk_fold;

/* Runs the plan block by block, so that intermediate sums stay in the cache. */
void lk__fold_run(const lk_fold_plan *plan, const lk_fold *fold);

#endif
