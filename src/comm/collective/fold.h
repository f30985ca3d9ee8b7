/* fold.h - merging partial sums over the canonical tree.
 *
 * A fold plan is made once from the subtrees that are at hand and those that are
 * wanted, and is then run over spans. */
#ifndef LK_COMM_COLLECTIVE_FOLD_H
#define LK_COMM_COLLECTIVE_FOLD_H

#include "comm/collective/schedule.h"
#include "tensor/device.h"

typedef struct lk_fold_plan lk_fold_plan;

/* inputs: (in_count) subtrees of the tree over [0,shards), in any order;
 * outputs: (out_count) subtrees that the inputs make up, each covered by
 * inputs exactly once. An empty range of shards has no subtree. */
lk_status lk__fold_plan_create(int shards, const lk_schedule_subtree *inputs, int in_count,
                               const lk_schedule_subtree *outputs, int out_count, lk_fold_plan **out) LK_CHECKED;
void lk__fold_plan_destroy(lk_fold_plan *plan);

/* How output `output` is made on a stack of vectors: a step pushes the input of that index, or merges the two topmost
 * entries (lower entry + upper entry). Borrowed from the plan. */
enum { LK_FOLD_MERGE = -1 };
const int *lk__fold_plan_steps(const lk_fold_plan *plan, int output, int *count);

typedef struct lk_fold {
    lk_device *device; /* whose memory the vectors are in */
    lk_dtype dtype;
    lk_reduction op; /* MEAN divides outputs by divisor at the end where `last`, else it is SUM */
    bool last;
    int divisor;
    size_t count;              /* elements */
    const void *const *inputs; /* (in_count) vectors of count elements */
    void *const *outputs;      /* (out_count); each may be the same address as an input, never overlap otherwise */
} lk_fold;

/* Element by element; blocks stay in cache. */
void lk__fold_run(const lk_fold_plan *plan, const lk_fold *fold);

#endif
