/* bias.h - own kernels around the products of convolutions and linear layers: bias, ReLU, gradient of the bias,
 * widening, and the folds of sums. Tensors are treated as matrices of (rows, pitch). All functions enqueue on
 * io's stream and keep faults with its device. */
#ifndef LK_TENSOR_CUDA_KERNELS_BIAS_H
#define LK_TENSOR_CUDA_KERNELS_BIAS_H

#include "tensor/cuda/kernels/plans.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = y + b, then max(y, 0) if problem->relu; in place. b may be NULL. */
void lk__cuda_bias_relu(const lk_cuda_problem *problem, const lk_cuda_io *io);
/* dx = mask <= 0 ? 0 : dx; in place. */
void lk__cuda_relu_mask(const lk_cuda_problem *problem, const lk_cuda_io *io);
/* db = the sums of the columns of dy, in an order that depends on rows and pitch only. */
lk_status lk__cuda_bias_grad(const lk_cuda_problem *problem, const lk_cuda_io *io) LK_CHECKED;

/* dw = narrow: all weights, from bf16 to f32. */
void lk__cuda_widen(const lk_cuda_problem *problem, const lk_cuda_io *io, const void *narrow);
/* out[i] = the sum over the rows of parts (rows, width), in a fixed order. Columns from `split` on are written
 * to rest, or dropped if rest is NULL. */
void lk__cuda_fold_parts(const lk_cuda_io *io, const float *parts, int rows, int width, float *out, int split,
                         float *rest);
/* Merges slot `top` into the slots below it, `merges` times, for dw and db (shards.h). */
void lk__cuda_merge_slots(const lk_cuda_problem *problem, const lk_cuda_io *io, lk_partials dw, lk_partials db, int top,
                          int merges);

#ifdef __cplusplus
}
#endif
#endif
