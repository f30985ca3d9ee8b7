/* reduce.cu - combines two vectors of any type, element by element, for sums between ranks. The element
 * functions give the bits of the CPU's (tensor/cpu/reduce.c), except the bits of NaN. */
#include <assert.h>
#include <cuda_fp16.h>

#include "tensor/cuda/kernels/vec.cuh"

/* A bf16; all its NaNs become the same, as on the CPU. */
struct half_float {
    uint16_t bits;
};

static __device__ float widened(half_float x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}

static __device__ half_float rounded(float x)
{
    uint32_t bits = __float_as_uint(x), nearest = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    return {(uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : nearest)};
}

/* An f16; all its NaNs become the same, as on the CPU. */
struct ieee_half {
    uint16_t bits;
};

static __device__ float widened(ieee_half x)
{
    return __half2float(__ushort_as_half(x.bits));
}

static __device__ ieee_half narrowed(float x)
{
    return {x != x ? (uint16_t)0x7e00u : __half_as_ushort(__float2half_rn(x))};
}

/* clang-format off */
static __device__ float added(float a, float b) { return a + b; }
static __device__ double added(double a, double b) { return a + b; }
static __device__ half_float added(half_float a, half_float b) { return rounded(widened(a) + widened(b)); }
static __device__ ieee_half added(ieee_half a, ieee_half b) { return narrowed(widened(a) + widened(b)); }
static __device__ int64_t added(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static __device__ int32_t added(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
static __device__ uint8_t added(uint8_t a, uint8_t b) { return (uint8_t)(a + b); }

static __device__ float multiplied(float a, float b) { return a * b; }
static __device__ double multiplied(double a, double b) { return a * b; }
static __device__ half_float multiplied(half_float a, half_float b) { return rounded(widened(a) * widened(b)); }
static __device__ ieee_half multiplied(ieee_half a, ieee_half b) { return narrowed(widened(a) * widened(b)); }
static __device__ int64_t multiplied(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
static __device__ int32_t multiplied(int32_t a, int32_t b) { return (int32_t)((uint32_t)a * (uint32_t)b); }
static __device__ uint8_t multiplied(uint8_t a, uint8_t b) { return (uint8_t)(a * b); }

static __device__ float quotient(float x, int divisor) { return x / (float)divisor; }
static __device__ double quotient(double x, int divisor) { return x / (double)divisor; }
static __device__ half_float quotient(half_float x, int divisor) { return rounded(widened(x) / (float)divisor); }
static __device__ ieee_half quotient(ieee_half x, int divisor) { return narrowed(widened(x) / (float)divisor); }
static __device__ int64_t quotient(int64_t x, int divisor) { return x / divisor; }
static __device__ int32_t quotient(int32_t x, int divisor) { return x / divisor; }
static __device__ uint8_t quotient(uint8_t x, int divisor) { return (uint8_t)(x / divisor); }

/* Whether a is the smaller one, or NaN. */
template <class T> static __device__ bool least(T a, T b) { return a <= b || a != a; }
static __device__ bool least(half_float a, half_float b) { return least(widened(a), widened(b)); }
static __device__ bool least(ieee_half a, ieee_half b) { return least(widened(a), widened(b)); }
template <class T> static __device__ bool largest(T a, T b) { return a >= b || a != a; }
static __device__ bool largest(half_float a, half_float b) { return largest(widened(a), widened(b)); }
static __device__ bool largest(ieee_half a, ieee_half b) { return largest(widened(a), widened(b)); }
/* clang-format on */

template <lk_reduction OP, class T>
static __device__ T merged(T a, T b)
{
    if constexpr (OP == LK_REDUCTION_MIN)
        return least(a, b) ? a : b;
    else if constexpr (OP == LK_REDUCTION_MAX)
        return largest(a, b) ? a : b;
    else if constexpr (OP == LK_REDUCTION_PRODUCT)
        return multiplied(a, b);
    else
        return added(a, b);
}

/* 16 bytes of elements in one load and one store. */
template <class T>
union sixteen {
    uint4 whole;
    T each[lk__width<T>];
};

template <lk_reduction OP, class T>
static __device__ void merge_sixteen(const T *a, const T *b, T *out)
{
    sixteen<T> left, right;
    left.whole = *(const uint4 *)a;
    right.whole = *(const uint4 *)b;
#pragma unroll
    for (int k = 0; k < lk__width<T>; k++)
        left.each[k] = merged<OP>(left.each[k], right.each[k]);
    *(uint4 *)out = left.whole;
}

/* V is lk__width<T>, or 1 if the arrays are not aligned. */
template <lk_reduction OP, int V, class T>
static __global__ void merge_all(size_t count, const T *a, const T *b, T *out)
{
    lk__cuda_await();
    size_t i = lk__cuda_thread() * V;
    if (V > 1 && i + V <= count)
        merge_sixteen<OP>(a + i, b + i, out + i);
    else
        for (size_t end = i + V; i < end && i < count; i++)
            out[i] = merged<OP>(a[i], b[i]);
}

template <lk_reduction OP, class T>
static void run_op(cudaStream_t stream, size_t count, const T *a, const T *b, T *out)
{
    constexpr int V = lk__width<T>;
    if (lk__cuda_aligned(a) && lk__cuda_aligned(b) && lk__cuda_aligned(out))
        lk__cuda_follow({lk__cuda_blocks((count + V - 1) / V), LK_THREADS, 0, stream}, merge_all<OP, V, T>, count, a, b,
                        out);
    else
        lk__cuda_follow({lk__cuda_blocks(count), LK_THREADS, 0, stream}, merge_all<OP, 1, T>, count, a, b, out);
}

template <class T>
static void run_reduce(cudaStream_t stream, lk_reduction op, size_t count, const T *a, const T *b, T *out)
{
    if (op == LK_REDUCTION_MIN)
        run_op<LK_REDUCTION_MIN>(stream, count, a, b, out);
    else if (op == LK_REDUCTION_MAX)
        run_op<LK_REDUCTION_MAX>(stream, count, a, b, out);
    else if (op == LK_REDUCTION_PRODUCT)
        run_op<LK_REDUCTION_PRODUCT>(stream, count, a, b, out);
    else
        run_op<LK_REDUCTION_SUM>(stream, count, a, b, out);
}

/* Calls f with a value of the element type. */
template <class F>
static void by_type(lk_dtype dtype, F f)
{
    switch (dtype) {
    case LK_DTYPE_F32:
        return f(float());
    case LK_DTYPE_F64:
        return f(double());
    case LK_DTYPE_BF16:
        return f(half_float());
    case LK_DTYPE_F16:
        return f(ieee_half());
    case LK_DTYPE_I64:
        return f(int64_t());
    case LK_DTYPE_I32:
        return f(int32_t());
    case LK_DTYPE_U8:
        return f(uint8_t());
    default:
        assert(!"a type that is added up");
    }
}

void lk__cuda_reduce(lk_device *dev, lk_dtype dtype, lk_reduction op, size_t count, const void *a, const void *b,
                     void *out)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    if (count == 0)
        return;
    by_type(dtype, [&](auto type) {
        using T = decltype(type);
        run_reduce(stream, op, count, (const T *)a, (const T *)b, (T *)out);
    });
    lk__cuda_launched(dev, "reduce");
}

void lk__cuda_add_on(lk_device *dev, cudaStream_t stream, size_t count, const float *a, const float *b, float *out)
{
    run_op<LK_REDUCTION_SUM>(stream, count, a, b, out);
    lk__cuda_launched(dev, "reduce");
}

template <class T>
static __global__ void divide_all(size_t count, int divisor, T *x)
{
    lk__cuda_await();
    size_t i = lk__cuda_thread();
    if (i < count)
        x[i] = quotient(x[i], divisor);
}

void lk__cuda_divide(lk_device *dev, lk_dtype dtype, size_t count, int divisor, void *x)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    if (count == 0)
        return;
    by_type(dtype, [&](auto type) {
        using T = decltype(type);
        lk__cuda_follow({lk__cuda_blocks(count), LK_THREADS, 0, stream}, divide_all<T>, count, divisor, (T *)x);
    });
    lk__cuda_launched(dev, "divide");
}

void lk__cuda_copy_bytes(lk_device *dev, size_t bytes, const void *src, void *dst)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    if (bytes > 0)
        (void)lk__cuda_keep(dev, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, stream), "copy_bytes");
}

void lk__cuda_zero_bytes(lk_device *dev, size_t bytes, void *dst)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    if (bytes > 0)
        (void)lk__cuda_keep(dev, cudaMemsetAsync(dst, 0, bytes, stream), "zero_bytes");
}

void lk__cuda_run_parts(lk_device *dev, size_t count, lk_parts_fn work, void *arg)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    if (count == 0)
        return;
    work(arg, 0, count, stream);
    lk__cuda_launched(dev, "an op of the program");
}
