/* table.c - the kernels of the CUDA device. */
#include "tensor/cuda/runtime/cuda.h"

#define ROW(slot) .slot = lk__cuda_##slot,
const lk_kernels lk__cuda_kernels = {LK_KERNEL_LIST(ROW)};
#undef ROW
