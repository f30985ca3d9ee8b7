/* clip.h - the norm of a model's gradient, and scaling the gradient down.
 *
 * The bits of the norm depend only on the gradient, not on threads or stages: every parameter is cut into
 * blocks of LK_NORM_BLOCK elements, and the sums of the blocks are added over the tree (base/tree.h) in
 * the order of the whole model's flat array, the last layer first. */
#ifndef LK_PARALLEL_STEP_CLIP_H
#define LK_PARALLEL_STEP_CLIP_H

#include <lockstep/group.h>

#include "nn/params.h"

/* Allocates the device's memory for the norm, at its first call; before all other functions. */
lk_status lk__clip_prepare(lk_params *params) LK_CHECKED;
/* Enqueues the sums of the blocks that end in [begin,end), beside the update of this range, while it is in the cache.
 * Calls for ranges that together are [0,params->count), in order, sum all blocks. The gradient (slot 0) before `end`
 * must be final. */
void lk__clip_squares(lk_params *params, size_t begin, size_t end);
/* After that: enqueues the computation of params->norm, of the whole model. Its factor is that of PyTorch's
 * clip_grad_norm_, limit / (norm + 1e-6), at most 1; limit 0: 1. pipe: the ranks of the model's stages; the call is
 * collective over them and blocks. NULL: one stage; the call only enqueues. */
lk_status lk__clip_fold(lk_params *params, lk_group *pipe, double limit) LK_CHECKED;
/* Enqueues the product of the gradient (slot 0) and the factor of params->norm. A raised flag prevents it: a NaN would
 * also reach the gaps between tensors and stay there. flag is device memory, or NULL. */
void lk__clip_scale(lk_params *params, const lk_flag *flag);
/* Blocks until the device has done its work, and returns the 2-norm of the gradient before clipping. */
lk_status lk__clip_norm(lk_params *params, double *out) LK_CHECKED;
/* Blocks of the whole model. */
size_t lk__clip_blocks(const lk_params *params);

#endif
