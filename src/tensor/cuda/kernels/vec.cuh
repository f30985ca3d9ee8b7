/* vec.cuh - the basis of CUDA kernels: V values of f32 or bf16 in memory as floats in registers, and indexes of
 * threads. For nvcc only.
 *
 * A stored bf16 is rounded to nearest, ties to even. A thread has 16 bytes of a tensor if the pitch allows (a
 * multiple of 8), otherwise one value. Kernels count the vectors of a tensor in 32 bits: a tensor has fewer
 * than 2^32 of them. */
#ifndef LK_TENSOR_CUDA_KERNELS_VEC_CUH
#define LK_TENSOR_CUDA_KERNELS_VEC_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "tensor/cuda/kernels/follow.cuh"
#include "tensor/cuda/runtime/cuda.h"

typedef __nv_bfloat16 lk_bf16;

enum { LK_THREADS = 256, LK_WARP = 32 };

/* Values in 16 bytes. */
template <class T>
constexpr int lk__width = 16 / (int)sizeof(T);

template <int V>
static __device__ __forceinline__ void lk__cuda_load(const float *p, float (&v)[V])
{
    static_assert(V == 1 || V == 4 || V == 8);
    if constexpr (V == 1) {
        v[0] = p[0];
    } else {
#pragma unroll
        for (int i = 0; i < V; i += 4) {
            float4 f = *(const float4 *)(p + i);
            v[i] = f.x, v[i + 1] = f.y, v[i + 2] = f.z, v[i + 3] = f.w;
        }
    }
}

static __device__ __forceinline__ void lk__cuda_unpack_pair(unsigned pair, float *v)
{
    v[0] = __uint_as_float(pair << 16);
    v[1] = __uint_as_float(pair & 0xffff0000u);
}

static __device__ __forceinline__ unsigned lk__cuda_pack_pair(const float *v)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(v[0], v[1]);
    return *(unsigned *)&pair;
}

template <int V>
static __device__ __forceinline__ void lk__cuda_load(const lk_bf16 *p, float (&v)[V])
{
    static_assert(V == 1 || V == 4 || V == 8);
    if constexpr (V == 1) {
        v[0] = __bfloat162float(p[0]);
    } else if constexpr (V == 4) {
        uint2 u = *(const uint2 *)p;
        lk__cuda_unpack_pair(u.x, v), lk__cuda_unpack_pair(u.y, v + 2);
    } else {
        uint4 u = *(const uint4 *)p;
        lk__cuda_unpack_pair(u.x, v), lk__cuda_unpack_pair(u.y, v + 2);
        lk__cuda_unpack_pair(u.z, v + 4), lk__cuda_unpack_pair(u.w, v + 6);
    }
}

template <int V>
static __device__ __forceinline__ void lk__cuda_store(float *p, const float (&v)[V])
{
    static_assert(V == 1 || V == 4 || V == 8);
    if constexpr (V == 1) {
        p[0] = v[0];
    } else {
#pragma unroll
        for (int i = 0; i < V; i += 4)
            *(float4 *)(p + i) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
    }
}

template <int V>
static __device__ __forceinline__ void lk__cuda_store(lk_bf16 *p, const float (&v)[V])
{
    static_assert(V == 1 || V == 4 || V == 8);
    if constexpr (V == 1)
        p[0] = __float2bfloat16_rn(v[0]);
    else if constexpr (V == 4)
        *(uint2 *)p = make_uint2(lk__cuda_pack_pair(v), lk__cuda_pack_pair(v + 2));
    else
        *(uint4 *)p = make_uint4(lk__cuda_pack_pair(v), lk__cuda_pack_pair(v + 2), lk__cuda_pack_pair(v + 4),
                                 lk__cuda_pack_pair(v + 6));
}

/* V bytes, one for each value. */
template <int V>
static __device__ __forceinline__ void lk__cuda_load_bytes(const uint8_t *p, int (&v)[V])
{
    static_assert(V == 1 || V % 4 == 0);
    if constexpr (V == 1) {
        v[0] = p[0];
    } else {
#pragma unroll
        for (int i = 0; i < V; i += 4) {
            unsigned u = *(const unsigned *)(p + i);
            v[i] = u & 255, v[i + 1] = u >> 8 & 255, v[i + 2] = u >> 16 & 255, v[i + 3] = u >> 24;
        }
    }
}

template <int V>
static __device__ __forceinline__ void lk__cuda_store_bytes(uint8_t *p, const int (&v)[V])
{
    static_assert(V == 1 || V % 4 == 0);
    if constexpr (V == 1) {
        p[0] = (uint8_t)v[0];
    } else {
#pragma unroll
        for (int i = 0; i < V; i += 4)
            *(unsigned *)(p + i) =
                (unsigned)v[i] | (unsigned)v[i + 1] << 8 | (unsigned)v[i + 2] << 16 | (unsigned)v[i + 3] << 24;
    }
}

/* max(v, 0): -0.0 becomes 0, NaN stays NaN (fmaxf would drop it). */
static __device__ __forceinline__ float lk__cuda_relu1(float v)
{
    return v <= 0.0f ? 0.0f : v;
}

/* The gradient dy of a ReLU whose result was y; dy passes if y is NaN. */
static __device__ __forceinline__ float lk__cuda_relu_grad1(float y, float dy)
{
    return y <= 0.0f ? 0.0f : dy;
}

/* The index of this thread in a one-dimensional grid. */
static __device__ __forceinline__ size_t lk__cuda_thread()
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* a / b. A 64-bit division takes several times as long as a 32-bit one. */
static __device__ __forceinline__ size_t lk__cuda_quotient(size_t a, size_t b)
{
    return (a | b) >> 32 ? a / b : (size_t)((uint32_t)a / (uint32_t)b);
}

static __device__ __forceinline__ int lk__cuda_lane()
{
    return (int)(threadIdx.x % LK_WARP);
}

/* The sum over the lanes of a warp, by a butterfly: all lanes take part, and all get the sum. */
template <class N>
static __device__ __forceinline__ N lk__cuda_warp_sum(N v)
{
#pragma unroll
    for (int half = LK_WARP / 2; half > 0; half /= 2)
        v += __shfl_xor_sync(~0u, v, half);
    return v;
}

/* Number of blocks of LK_THREADS threads. */
static inline unsigned lk__cuda_blocks(size_t threads)
{
    return (unsigned)((threads + LK_THREADS - 1) / LK_THREADS);
}

static inline size_t lk__cuda_pixels(const lk_tensor *tensor)
{
    return tensor->shape.n * tensor->shape.h * tensor->shape.w;
}

/* Elements of the tensor's memory, pads included. */
static inline size_t lk__cuda_elements(const lk_tensor *tensor)
{
    return lk__cuda_pixels(tensor) * lk__tensor_pitch(tensor);
}

/* Whether vectors of 16 bytes may begin at p. */
static inline bool lk__cuda_aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

template <class T_, int V_>
struct lk_kind {
    using T = T_;
    static constexpr int V = V_;
};

/* Calls f with the lk_kind that fits the tensor's pixels. */
template <class F>
static void lk__cuda_by_kind(const lk_tensor *tensor, F f)
{
    bool whole = lk__tensor_pitch(tensor) % 8 == 0;
    if (tensor->dtype == LK_DTYPE_F32)
        whole ? f(lk_kind<float, 4>()) : f(lk_kind<float, 1>());
    else
        whole ? f(lk_kind<lk_bf16, 8>()) : f(lk_kind<lk_bf16, 1>());
}

/* As lk__cuda_by_kind, for a flat array that is aligned to a vector and has no pixels. */
template <class F>
static void lk__cuda_by_dtype(lk_dtype dtype, F f)
{
    if (dtype == LK_DTYPE_F32)
        f(lk_kind<float, 4>());
    else
        f(lk_kind<lk_bf16, 8>());
}

#endif
