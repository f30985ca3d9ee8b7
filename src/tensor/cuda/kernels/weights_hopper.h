/* weights_hopper.h - how long weights_hopper.cu takes, for kernels that compute some of its layers in another way. */
#ifndef LK_TENSOR_CUDA_KERNELS_WEIGHTS_HOPPER_H
#define LK_TENSOR_CUDA_KERNELS_WEIGHTS_HOPPER_H

#include "tensor/cuda/kernels/plans.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Cycles of a multiprocessor for a layer, times the factor of lk__cuda_leaves_time: comparable with such a time of
 * another kernel. For LK_CUDA_USUAL_SHARDS shards of `most` samples. 0 in tf32 where leaves are so small that folding
 * them in registers, which only this kernel does, saves more than faster products. SIZE_MAX if the kernel does not
 * compute the layer. */
size_t lk__cuda_weights_hopper_time(const lk_cuda_problem *problem, size_t most);

#ifdef __cplusplus
}
#endif
#endif
