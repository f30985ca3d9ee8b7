/* conv2d.h - the engines of convolutions: cuDNN, and own kernels for what cuDNN does not do, or does more
 * slowly. */
#ifndef LK_TENSOR_CUDA_KERNELS_CONV2D_H
#define LK_TENSOR_CUDA_KERNELS_CONV2D_H

#include "tensor/cuda/kernels/plans.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Own kernels enqueue a pass and keep faults with the device. Sums over samples have two levels: each block
 * sums its part in a fixed order into a row of the workspace, then the rows are folded; their number depends on
 * the shape only. The *_bytes functions return the workspace of one pass. */

/* For c <= 4, 3x3 without dilation, stride 1, pad 0 or 1 along each axis, one group, and a pitch of y that is a
 * multiple of 4 up to 256. Does not compute gradients of inputs. */
size_t lk__cuda_first_bytes(const lk_cuda_problem *problem);
void lk__cuda_first(const lk_cuda_problem *problem, const lk_cuda_io *io, void *workspace);

/* For one channel of x and y in each group, 3x3 without dilation, stride 1 or 2, pad 0 or 1 along each axis, and a
 * pitch that is a multiple of 4. */
size_t lk__cuda_depthwise_bytes(const lk_cuda_problem *problem);
void lk__cuda_depthwise(const lk_cuda_problem *problem, const lk_cuda_io *io, void *workspace);

/* For any convolution or linear layer; slower. Does not compute db. */
size_t lk__cuda_direct_bytes(const lk_cuda_problem *problem);
void lk__cuda_direct(const lk_cuda_problem *problem, const lk_cuda_io *io, void *workspace);

/* cuDNN's algorithms for a problem. They do not compute db. */
typedef struct lk_cuda_cudnn lk_cuda_cudnn;
/* *out is NULL if cuDNN has no deterministic algorithm. */
lk_status lk__cuda_cudnn_create(lk_cuda_libraries *libs, const lk_cuda_problem *problem,
                                lk_cuda_cudnn **out) LK_CHECKED;
void lk__cuda_cudnn_destroy(lk_cuda_cudnn *cudnn);
/* The first run tries one algorithm after the other until one runs; sets *refused if none does. */
lk_status lk__cuda_cudnn_run(lk_cuda_cudnn *cudnn, const lk_cuda_io *io, bool *refused) LK_CHECKED;

#ifdef __cplusplus
}
#endif
#endif
