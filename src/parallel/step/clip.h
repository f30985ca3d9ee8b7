/* clip.h - the norm of a model's gradient, and scaling the gradient down.
 *
 * The bits of the norm depend only on the gradient, not on threads or stages: every parameter is cut into
 * blocks of LK_NORM_BLOCK elements, and the sums of the blocks are added over the tree (base/tree.h) in
 * the order of the whole model's flat array, the last layer first. */
#ifndef LK_PARALLEL_STEP_CLIP_H
#define LK_PARALLEL_STEP_CLIP_H

#include <lockstep/group.h>

#include "nn/params.h"

/* The 2-norm of the gradient (slot 0) of the whole model. Collective over pipe, the ranks of the model's
 * stages; NULL: one stage. */
lk_status lk__clip_norm(lk_params *params, lk_group *pipe, double *out) LK_CHECKED;

/* The same in parts, beside the update of each range, while the range is in the cache. First lk__clip_prepare; it
 * allocates at its first call. Then lk__clip_squares for ranges that together are [0,params->count), in order: enqueues
 * the sums of the blocks that end in [begin,end); the gradient before `end` must be final. At last lk__clip_finish,
 * which waits for the device and is collective as lk__clip_norm; or, for a device that sums the blocks itself,
 * params->squares has lk__clip_blocks(params) of them. */
lk_status lk__clip_prepare(lk_params *params) LK_CHECKED;
void lk__clip_squares(lk_params *params, size_t begin, size_t end);
lk_status lk__clip_finish(lk_params *params, lk_group *pipe, double *out) LK_CHECKED;
/* Blocks of the whole model. */
size_t lk__clip_blocks(const lk_params *params);

/* Scales the gradient (slot 0), whose norm is `norm`, as PyTorch's clip_grad_norm_ does: by
 * limit / (norm + 1e-6), at most 1. */
void lk__clip_gradient(lk_params *params, double norm, double limit);

/* The sum of values over the tree on their indices; 0 if count is 0. */
double lk__clip_tree_sum(const double *values, size_t count);

#endif
