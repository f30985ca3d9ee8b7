/* linear_small.h - own kernels for small linear layers: one launch with its bias, ReLU, mask or dropout, where a
 * library needs two to four. The bits of a sample do not depend on the number of samples of the call. */
#ifndef LK_TENSOR_CUDA_KERNELS_LINEAR_SMALL_H
#define LK_TENSOR_CUDA_KERNELS_LINEAR_SMALL_H

#include "tensor/cuda/kernels/plans.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Layers with at most 2^17 weights, whose pitches are multiples of 8. */
bool lk__cuda_linear_small_suits(const lk_cuda_problem *problem);
/* Enqueues the pass with its dropout, an input gradient with its mask (lk_cuda_io). Faults are kept with the device. */
void lk__cuda_linear_small(const lk_cuda_problem *problem, const lk_cuda_io *io);

#ifdef __cplusplus
}
#endif
#endif
