/* bias.h - own kernels around the products of convolutions and linear layers: bias and ReLU. Tensors are treated as
 * matrices of (rows, pitch). All functions enqueue on io's stream and keep faults with its device. */
#ifndef LK_TENSOR_CUDA_KERNELS_BIAS_H
#define LK_TENSOR_CUDA_KERNELS_BIAS_H

#include "tensor/cuda/kernels/plans.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = y + b, then max(y, 0) if problem->relu; in place. b may be NULL. */
void lk__cuda_bias_relu(const lk_cuda_problem *problem, const lk_cuda_io *io);
/* dx = mask <= 0 ? 0 : dx, times the scale of a dropout before the layer; in place. */
void lk__cuda_relu_mask(const lk_cuda_problem *problem, const lk_cuda_io *io);

#ifdef __cplusplus
}
#endif
#endif
