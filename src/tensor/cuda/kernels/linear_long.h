/* linear_long.h - own kernels for linear layers with many inputs and few outputs, as behind a flattened image: one
 * launch with bias, ReLU, mask or dropout. A library divides such long sums among blocks and adds the parts in a second
 * launch. The bits of a sample do not depend on the number of samples of the call. */
#ifndef LK_TENSOR_CUDA_KERNELS_LINEAR_LONG_H
#define LK_TENSOR_CUDA_KERNELS_LINEAR_LONG_H

#include "tensor/cuda/kernels/plans.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In tf32 and bf16 on GPUs of compute capability 9.0: layers with more weights than those of linear_small.h, at least
 * 4,096 inputs and at most 256 outputs, whose pitches are multiples of 8. */
bool lk__cuda_linear_long_suits(const lk_cuda_problem *problem);
/* Enqueues the pass with its dropout, an input gradient with its mask (lk_cuda_io). Faults are kept with the device. */
void lk__cuda_linear_long(const lk_cuda_problem *problem, const lk_cuda_io *io);

#ifdef __cplusplus
}
#endif
#endif
