/* clip.h - the norm of a model's gradient, and scaling it down.
 *
 * The norm's bits depend on the gradient alone: every parameter is cut into
 * blocks of LK_NORM_BLOCK elements, and the blocks' sums are added over the
 * canonical tree (base/tree.h) on their place in the whole model's flat order,
 * the last layer first. Neither threads nor stages show. */
#ifndef LK_PARALLEL_STEP_CLIP_H
#define LK_PARALLEL_STEP_CLIP_H

#include <lockstep/group.h>

#include "nn/params.h"

/* The 2-norm of the gradient (slot 0) of the whole model. pipe: the ranks that
 * hold its stages, in order; NULL: this one holds all. Together among them. */
lk_status lk__clip_norm(lk_params *params, lk_group *pipe, double *out) LK_CHECKED;

/* Scales the gradient (slot 0) so that a norm of `norm` becomes at most `limit`,
 * as PyTorch's clip_grad_norm_ does: by limit / (norm + 1e-6), at most 1. */
void lk__clip_gradient(lk_params *params, double norm, double limit);

/* The sum of values over the canonical tree on their indices; 0 of none. */
double lk__clip_tree_sum(const double *values, size_t count);

#endif
