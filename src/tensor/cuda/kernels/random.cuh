/* random.cuh - base/rng.h on the GPU. For nvcc only. */
#ifndef LK_TENSOR_CUDA_KERNELS_RANDOM_CUH
#define LK_TENSOR_CUDA_KERNELS_RANDOM_CUH

#include <cuda_runtime.h>

#include "base/rng.h"

/* lk__rng_block of the stream for another sample and time. */
static __device__ __forceinline__ uint4 lk__cuda_philox(const lk_rng &rng, uint32_t sample, uint32_t time,
                                                        uint32_t block)
{
    uint32_t c0 = block, c1 = sample, c2 = time, c3 = rng.counter[3], k0 = rng.key[0], k1 = rng.key[1];
#pragma unroll
    for (int round = 0; round < LK_PHILOX_ROUNDS; round++) {
        uint32_t hi0 = __umulhi(LK_PHILOX_M0, c0), lo0 = LK_PHILOX_M0 * c0;
        uint32_t hi1 = __umulhi(LK_PHILOX_M1, c2), lo1 = LK_PHILOX_M1 * c2;
        c0 = hi1 ^ c1 ^ k0;
        c1 = lo1;
        c2 = hi0 ^ c3 ^ k1;
        c3 = lo0;
        k0 += LK_PHILOX_W0;
        k1 += LK_PHILOX_W1;
    }
    return make_uint4(c0, c1, c2, c3);
}

#endif
