/* leaf_part.cuh - the rows that a block of a kernel of leaves adds, where groups are single leaves. For nvcc only. */
#ifndef LK_TENSOR_CUDA_KERNELS_LEAF_PART_CUH
#define LK_TENSOR_CUDA_KERNELS_LEAF_PART_CUH

#include "tensor/cuda/kernels/leaves.h"

typedef struct leaf_part {
    uint32_t begin, end;
} leaf_part;

/* For a block row of the launch and the cut's chunk; nothing for a part that the leaf does not have. */
static __device__ __forceinline__ leaf_part part_of(const lk_cuda_leaves &leaves, unsigned row, uint32_t chunk)
{
    unsigned leaf = row / (unsigned)leaves.parts, index = row % (unsigned)leaves.parts;
    leaf_part part = {leaves.begin[leaf], leaves.begin[leaf + 1]};
    if (leaves.parts > 1) {
        uint32_t rows = (uint32_t)leaves.chunks * chunk;
        part.begin = min(part.begin + index * rows, part.end);
        part.end = min(part.begin + rows, part.end);
    }
    return part;
}

#endif
