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

/* Scales the gradient (slot 0), whose norm is `norm`, as PyTorch's clip_grad_norm_ does: by
 * limit / (norm + 1e-6), at most 1. */
void lk__clip_gradient(lk_params *params, double norm, double limit);

/* The sum of values over the tree on their indices; 0 if count is 0. */
double lk__clip_tree_sum(const double *values, size_t count);

#endif
