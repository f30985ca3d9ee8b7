/* unary.cu - sigmoid, tanh, SiLU and GELU, and their gradients. */
#include <type_traits>

#include "tensor/cuda/kernels/map.cuh"

#define ROOT_TWO_OVER_PI 0.797884561f
#define ONE_OVER_ROOT_TWO_PI 0.398942280f
#define CUBIC 0.044715f

static __device__ __forceinline__ float sigmoid(float x)
{
    float e = expf(x > 0 ? -x : x);
    return (x > 0 ? 1.0f : e) / (1.0f + e);
}

/* The logistic function's argument in GELU's approximation: twice tanh's. */
static __device__ __forceinline__ float gelu_argument(float x)
{
    return 2.0f * ROOT_TWO_OVER_PI * __fmaf_rn(CUBIC * x * x, x, x);
}

/* Each struct has f, and its slope: f'(x) from y = f(x) for sigmoid and tanh, from x for the others. */
template <lk_unary F>
struct unary;

template <>
struct unary<LK_UNARY_SIGMOID> {
    static __device__ float value(float x)
    {
        return sigmoid(x);
    }
    static __device__ float slope(float y)
    {
        return y * (1.0f - y);
    }
};

template <>
struct unary<LK_UNARY_TANH> {
    static __device__ float value(float x)
    {
        return tanhf(x);
    }
    static __device__ float slope(float y)
    {
        return __fmaf_rn(-y, y, 1.0f);
    }
};

template <>
struct unary<LK_UNARY_SILU> {
    static __device__ float value(float x)
    {
        return x * sigmoid(x);
    }
    static __device__ float slope(float x)
    {
        float s = sigmoid(x);
        return s * __fmaf_rn(x, 1.0f - s, 1.0f);
    }
};

template <>
struct unary<LK_UNARY_GELU> {
    static __device__ float value(float x)
    {
        return x * normcdff(x);
    }
    static __device__ float slope(float x)
    {
        return __fmaf_rn(x, ONE_OVER_ROOT_TWO_PI * expf(-0.5f * x * x), normcdff(x));
    }
};

template <>
struct unary<LK_UNARY_GELU_TANH> {
    static __device__ float value(float x)
    {
        return x * sigmoid(gelu_argument(x));
    }
    /* Where the sigmoid is 0 or 1, the factor of the second term may overflow. */
    static __device__ float slope(float x)
    {
        float s = sigmoid(gelu_argument(x)), rest = s * (1.0f - s);
        float argument_slope = 2.0f * ROOT_TWO_OVER_PI * __fmaf_rn(3.0f * CUBIC * x, x, 1.0f);
        return rest == 0.0f ? s : __fmaf_rn(x * argument_slope, rest, s);
    }
};

template <lk_unary F>
struct value_op {
    __device__ float operator()(float x) const
    {
        return unary<F>::value(x);
    }
};

template <lk_unary F>
struct grad_op {
    __device__ float operator()(float v, float dy) const
    {
        return dy * unary<F>::slope(v);
    }
};

/* Sets the pads of y to 0: sigmoid(0) is not 0. */
template <class T>
static __global__ void clear_pads(size_t pads, size_t width, size_t c, size_t pitch, T *y)
{
    size_t i = lk__cuda_thread();
    if (i < pads)
        y[i / width * pitch + c + i % width] = (T)0.0f;
}

static void run_clear_pads(lk_device *dev, const lk_tensor *y)
{
    size_t c = y->shape.c, pitch = lk__tensor_pitch(y), width = pitch - c, pads = lk__cuda_pixels(y) * width;
    if (pads == 0)
        return;
    lk__cuda_by_dtype(y->dtype, [&](auto kind) {
        using T = typename decltype(kind)::T;
        clear_pads<<<lk__cuda_blocks(pads), LK_THREADS, 0, lk__cuda_stream(dev)>>>(pads, width, c, pitch, (T *)y->data);
    });
    lk__cuda_launched(dev, "unary_forward");
}

/* Calls run with the function as a constant. */
template <class R>
static void by_function(lk_unary f, R run)
{
    switch (f) {
    case LK_UNARY_SIGMOID:
        return run(std::integral_constant<lk_unary, LK_UNARY_SIGMOID>());
    case LK_UNARY_TANH:
        return run(std::integral_constant<lk_unary, LK_UNARY_TANH>());
    case LK_UNARY_SILU:
        return run(std::integral_constant<lk_unary, LK_UNARY_SILU>());
    case LK_UNARY_GELU:
        return run(std::integral_constant<lk_unary, LK_UNARY_GELU>());
    default:
        return run(std::integral_constant<lk_unary, LK_UNARY_GELU_TANH>());
    }
}

extern "C" void lk__cuda_unary_forward(lk_device *dev, lk_unary f, const lk_tensor *x, lk_tensor *y)
{
    by_function(f, [&](auto which) { run_map(dev, "unary_forward", x, y, value_op<decltype(which)::value>()); });
    if (f == LK_UNARY_SIGMOID)
        run_clear_pads(dev, y);
}

extern "C" void lk__cuda_unary_grad_input(lk_device *dev, lk_unary f, const lk_tensor *v, const lk_tensor *dy,
                                          lk_tensor *dx)
{
    by_function(f,
                [&](auto which) { run_map2(dev, "unary_grad_input", v, dy, dx, grad_op<decltype(which)::value>()); });
}
