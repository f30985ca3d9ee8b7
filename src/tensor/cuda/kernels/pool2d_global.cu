/* pool2d_global.cu - global pooling: averages and maxima over all pixels of a sample.
 *
 * A maximum is the first NaN, otherwise the first of the largest values. In averages pixel p belongs to chain p % 8,
 * and the chains are added as a balanced tree, as by the CPU's kernels. */
#include "tensor/cuda/kernels/plans.h"
#include "tensor/cuda/kernels/vec.cuh"

enum { CHAINS = 8, COLUMNS = 32 };

/* The sum over the chains of a column; only chain 0 gets it. */
template <int V>
static __device__ void fold_chains(float (&sum)[V])
{
    __shared__ float chains[CHAINS][COLUMNS][V + 1];
    unsigned column = threadIdx.x, chain = threadIdx.y;
    for (unsigned half = CHAINS / 2; half > 0; half /= 2) {
#pragma unroll
        for (int i = 0; i < V; i++)
            chains[chain][column][i] = sum[i];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < V; i++)
            sum[i] = chain < half ? sum[i] + chains[chain + half][column][i] : sum[i];
        __syncthreads();
    }
}

/* A block computes COLUMNS vectors of channels of one sample. */
template <int V, class T>
static __global__ void global_avgpool(unsigned pixels, unsigned pitch, const T *__restrict__ x, T *__restrict__ y)
{
    lk__cuda_await();
    unsigned channel = (blockIdx.x * COLUMNS + threadIdx.x) * V;
    const T *from = x + (size_t)blockIdx.y * pixels * pitch + channel;
    float sum[V] = {};
#pragma unroll 4
    for (unsigned p = threadIdx.y; p < pixels && channel < pitch; p += CHAINS) {
        float v[V];
        lk__cuda_load(from + (size_t)p * pitch, v);
#pragma unroll
        for (int i = 0; i < V; i++)
            sum[i] += v[i];
    }
    fold_chains(sum);
    if (threadIdx.y > 0 || channel >= pitch)
        return;
#pragma unroll
    for (int i = 0; i < V; i++)
        sum[i] /= (float)pixels;
    lk__cuda_store(y + (size_t)blockIdx.y * pitch + channel, sum);
}

extern "C" void lk__cuda_global_avgpool_forward(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    unsigned pixels = (unsigned)(x->shape.h * x->shape.w), pitch = (unsigned)lk__tensor_pitch(x);
    if (lk__cuda_elements(x) == 0)
        return;
    cudaStream_t stream = lk__cuda_stream(dev);
    lk__cuda_by_kind(x, [&](auto kind) {
        constexpr int V = decltype(kind)::V;
        using T = typename decltype(kind)::T;
        dim3 grid((pitch / V + COLUMNS - 1) / COLUMNS, (unsigned)x->shape.n), block(COLUMNS, CHAINS);
        lk__cuda_follow({grid, block, 0, stream}, global_avgpool<V, T>, pixels, pitch, (const T *)x->data,
                        (T *)y->data);
    });
    lk__cuda_launched(dev, "global_avgpool_forward");
}

/* A thread computes V channels of one input pixel. */
template <int V, class T>
static __global__ void spread(size_t threads, unsigned pixels, unsigned pitch, const T *__restrict__ dy,
                              T *__restrict__ dx)
{
    lk__cuda_await();
    if (lk__cuda_thread() >= threads)
        return;
    unsigned index = (unsigned)lk__cuda_thread(), columns = pitch / V, pixel = index / columns;
    float v[V];
    lk__cuda_load(dy + (size_t)(pixel / pixels) * pitch + (index - pixel * columns) * V, v);
#pragma unroll
    for (int i = 0; i < V; i++)
        v[i] /= (float)pixels;
    lk__cuda_store(dx + lk__cuda_thread() * V, v);
}

extern "C" void lk__cuda_global_avgpool_grad_input(lk_device *dev, const lk_tensor *dy, lk_tensor *dx)
{
    unsigned pixels = (unsigned)(dx->shape.h * dx->shape.w), pitch = (unsigned)lk__tensor_pitch(dx);
    if (lk__cuda_elements(dx) == 0)
        return;
    cudaStream_t stream = lk__cuda_stream(dev);
    lk__cuda_by_kind(dx, [&](auto kind) {
        constexpr int V = decltype(kind)::V;
        using T = typename decltype(kind)::T;
        size_t threads = lk__cuda_elements(dx) / V;
        lk__cuda_follow({lk__cuda_blocks(threads), LK_THREADS, 0, stream}, spread<V, T>, threads, pixels, pitch,
                        (const T *)dy->data, (T *)dx->data);
    });
    lk__cuda_launched(dev, "global_avgpool_grad_input");
}

/* A thread computes one channel of a sample. Pads of x are 0, and so are those of y. */
template <class T>
static __global__ void global_maxpool(size_t threads, unsigned pixels, unsigned pitch, const T *__restrict__ x,
                                      T *__restrict__ y, int32_t *__restrict__ index)
{
    lk__cuda_await();
    size_t at = lk__cuda_thread();
    if (at >= threads)
        return;
    const T *from = x + at / pitch * pixels * pitch + at % pitch;
    float best = (float)from[0];
    int found = 0;
    for (unsigned p = 1; p < pixels; p++) {
        float value = (float)from[(size_t)p * pitch];
        if (!(value <= best) && best == best) {
            best = value;
            found = (int)p;
        }
    }
    y[at] = (T)best;
    index[at] = found;
}

extern "C" void lk__cuda_global_maxpool_forward(lk_device *dev, const lk_tensor *x, lk_tensor *y, int32_t *index)
{
    unsigned pixels = (unsigned)(x->shape.h * x->shape.w), pitch = (unsigned)lk__tensor_pitch(x);
    size_t threads = lk__cuda_elements(y);
    if (threads == 0)
        return;
    cudaStream_t stream = lk__cuda_stream(dev);
    lk__cuda_by_dtype(x->dtype, [&](auto kind) {
        using T = typename decltype(kind)::T;
        lk__cuda_follow({lk__cuda_blocks(threads), LK_THREADS, 0, stream}, global_maxpool<T>, threads, pixels, pitch,
                        (const T *)x->data, (T *)y->data, index);
    });
    lk__cuda_launched(dev, "global_maxpool_forward");
}

/* A thread writes one element of dx. */
template <class T>
static __global__ void global_maxpool_grad(size_t threads, unsigned pixels, unsigned pitch, const T *__restrict__ dy,
                                           const int32_t *__restrict__ index, T *__restrict__ dx)
{
    lk__cuda_await();
    size_t at = lk__cuda_thread();
    if (at >= threads)
        return;
    size_t pixel = at / pitch, from = pixel / pixels * pitch + at % pitch;
    dx[at] = (size_t)index[from] == pixel % pixels ? dy[from] : (T)0.0f;
}

extern "C" void lk__cuda_global_maxpool_grad_input(lk_device *dev, const lk_tensor *dy, const int32_t *index,
                                                   lk_tensor *dx)
{
    unsigned pixels = (unsigned)(dx->shape.h * dx->shape.w), pitch = (unsigned)lk__tensor_pitch(dx);
    size_t threads = lk__cuda_elements(dx);
    if (threads == 0)
        return;
    cudaStream_t stream = lk__cuda_stream(dev);
    lk__cuda_by_dtype(dx->dtype, [&](auto kind) {
        using T = typename decltype(kind)::T;
        lk__cuda_follow({lk__cuda_blocks(threads), LK_THREADS, 0, stream}, global_maxpool_grad<T>, threads, pixels,
                        pitch, (const T *)dy->data, index, (T *)dx->data);
    });
    lk__cuda_launched(dev, "global_maxpool_grad_input");
}
