/* vec4.cuh - four neighbouring channels as a float4, f32 or bf16 in memory, for
 * kernels that keep many of them in registers. */
#ifndef LK_TENSOR_CUDA_KERNELS_VEC4_CUH
#define LK_TENSOR_CUDA_KERNELS_VEC4_CUH

#include "tensor/cuda/kernels/vec.cuh"

static __device__ __forceinline__ float lk__cuda_get1(const float *p)
{
    return __ldg(p);
}

static __device__ __forceinline__ float lk__cuda_get1(const lk_bf16 *p)
{
    return __bfloat162float(__ldg(p));
}

static __device__ __forceinline__ float2 lk__cuda_get2(const float *p)
{
    return *(const float2 *)p;
}

static __device__ __forceinline__ float2 lk__cuda_get2(const lk_bf16 *p)
{
    return __bfloat1622float2(*(const __nv_bfloat162 *)p);
}

template <class T>
static __device__ __forceinline__ float4 lk__cuda_get4(const T *p)
{
    float v[4];
    lk__cuda_load(p, v);
    return make_float4(v[0], v[1], v[2], v[3]);
}

template <class T>
static __device__ __forceinline__ void lk__cuda_put1(T *p, float v)
{
    lk__cuda_store<1>(p, {v});
}

template <class T>
static __device__ __forceinline__ void lk__cuda_put4(T *p, float4 v)
{
    lk__cuda_store<4>(p, {v.x, v.y, v.z, v.w});
}

static __device__ __forceinline__ float4 lk__cuda_relu4(float4 v)
{
    return make_float4(lk__cuda_relu1(v.x), lk__cuda_relu1(v.y), lk__cuda_relu1(v.z), lk__cuda_relu1(v.w));
}

static __device__ __forceinline__ float4 lk__cuda_zero4()
{
    return make_float4(0, 0, 0, 0);
}

static __device__ __forceinline__ float4 lk__cuda_add4(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

static __device__ __forceinline__ void lk__cuda_fma4(float4 &acc, float4 a, float4 b)
{
    acc.x = __fmaf_rn(a.x, b.x, acc.x);
    acc.y = __fmaf_rn(a.y, b.y, acc.y);
    acc.z = __fmaf_rn(a.z, b.z, acc.z);
    acc.w = __fmaf_rn(a.w, b.w, acc.w);
}

static __device__ __forceinline__ void lk__cuda_fma4(float4 &acc, float a, float4 b)
{
    lk__cuda_fma4(acc, make_float4(a, a, a, a), b);
}

/* Number of blocks of this many threads, or of parts of this many items. */
static inline unsigned lk__cuda_parts(size_t items, size_t each)
{
    return (unsigned)((items + each - 1) / each);
}

#endif
