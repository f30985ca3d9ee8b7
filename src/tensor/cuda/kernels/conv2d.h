/* conv2d.h - the engines of convolutions: cuDNN, and own kernels for what it does not
 * do, or slower. */
#ifndef LK_TENSOR_CUDA_KERNELS_CONV2D_H
#define LK_TENSOR_CUDA_KERNELS_CONV2D_H

#include "tensor/cuda/kernels/plans.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Own kernels enqueue a pass and keep faults with the device. Sums over samples have
 * two levels: each block sums its part in a fixed order into a row of the workspace,
 * then the rows are folded; how many there are depends on the shape alone. The bytes
 * of the workspace are for one pass. */

/* c <= 4, 3x3, stride 1, pad 0 or 1, one group, y's pitch a multiple of 4 up to 256;
 * not for gradients of inputs. */
size_t lk__cuda_first_bytes(const lk_cuda_problem *problem);
void lk__cuda_first(const lk_cuda_problem *problem, const lk_cuda_io *io, void *workspace);

/* A group a channel on both sides, 3x3, stride 1 or 2, pad 0 or 1, pitch a multiple of 4. */
size_t lk__cuda_depthwise_bytes(const lk_cuda_problem *problem);
void lk__cuda_depthwise(const lk_cuda_problem *problem, const lk_cuda_io *io, void *workspace);

/* Any convolution or linear layer, slower. Leaves db alone. */
size_t lk__cuda_direct_bytes(const lk_cuda_problem *problem);
void lk__cuda_direct(const lk_cuda_problem *problem, const lk_cuda_io *io, void *workspace);

/* cuDNN's algorithms for a problem. Leaves db alone. */
typedef struct lk_cuda_cudnn lk_cuda_cudnn;
/* NULL where cuDNN has no deterministic algorithm. */
lk_status lk__cuda_cudnn_create(lk_cuda_libraries *libs, const lk_cuda_problem *problem,
                                lk_cuda_cudnn **out) LK_CHECKED;
void lk__cuda_cudnn_destroy(lk_cuda_cudnn *cudnn);
/* The first run goes from algorithm to algorithm to one that runs; *refused when
 * there is none. */
lk_status lk__cuda_cudnn_run(lk_cuda_cudnn *cudnn, const lk_cuda_io *io, bool *refused) LK_CHECKED;

#ifdef __cplusplus
}
#endif
#endif
