/* fma_order.cuh - products of fragments by fused multiply-adds in an order that suits the register file, and what their
 * kernels need for copies. For nvcc only.
 *
 * The register file has two banks, of even and of odd registers, and each serves one factor or sum in a cycle; an
 * instruction may keep one of its factors for the next one. So a multiply-add is issued in each cycle only if it shares
 * a factor with the one before, and if its other factor and its sum are in different banks. add_products therefore goes
 * through the rows in turn and through the columns to and fro. Factors must come in aligned fours from shared memory,
 * columns of the same step as neighbours, and sums must be free to be in the other bank: `loosened`. */
#ifndef LK_TENSOR_CUDA_KERNELS_FMA_ORDER_CUH
#define LK_TENSOR_CUDA_KERNELS_FMA_ORDER_CUH

#include "tensor/cuda/kernels/vec.cuh"

enum { QUAD = 4 }; /* floats that are loaded together */

/* Copies 16 bytes to shared memory, or writes zeros there; then `from` is not read. */
static __device__ __forceinline__ void copy_quad(uint32_t to, const float *from, bool outside)
{
    asm volatile(
        "{.reg .pred none; setp.ne.b32 none, %2, 0; cp.async.cg.shared.global [%0], [%1], 16, none;}" ::"r"(to),
        "l"(from), "r"((int)outside));
}

/* from + count * pitch, by one instruction; pitch in bytes. */
static __device__ __forceinline__ const float *moved_by(const float *from, int count, int pitch)
{
    const float *to;
    asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(to) : "r"(count), "r"(pitch), "l"(from));
    return to;
}

/* Loads COUNT floats in fours; `apart` is the distance from four to four. */
template <int COUNT>
static __device__ __forceinline__ void load_quads(const float *from, int apart, float *v)
{
#pragma unroll
    for (int i = 0; i < COUNT; i += QUAD) {
        float4 f = *(const float4 *)(from + i / QUAD * apart);
        v[i] = f.x, v[i + 1] = f.y, v[i + 2] = f.z, v[i + 3] = f.w;
    }
}

/* Adds one step to all sums of a thread. */
template <int TM, int TN>
static __device__ __forceinline__ void add_products(float (&acc)[TM][TN], const float (&a)[TM], const float (&b)[TN])
{
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int at = 0; at < TN; at++) {
            int j = i % 2 ? TN - 1 - at : at;
            acc[i][j] = __fmaf_rn(a[i], b[j], acc[i][j]);
        }
}

/* Four sums. `zero` is 0, which the compiler does not know: otherwise it would keep the sums in registers as they are
 * stored, in aligned fours, and so in the banks of the factors. */
static __device__ __forceinline__ float4 loosened(const float *sums, unsigned zero)
{
    return make_float4(
        __uint_as_float(__float_as_uint(sums[0]) ^ zero), __uint_as_float(__float_as_uint(sums[1]) ^ zero),
        __uint_as_float(__float_as_uint(sums[2]) ^ zero), __uint_as_float(__float_as_uint(sums[3]) ^ zero));
}

#endif
