/* map.cuh - applies a function to each element of one, two or three tensors. For nvcc only. */
#ifndef LK_TENSOR_CUDA_KERNELS_MAP_CUH
#define LK_TENSOR_CUDA_KERNELS_MAP_CUH

#include "tensor/cuda/kernels/vec.cuh"

template <int V, class TX, class TY, class F>
static __device__ void map_at(const TX *x, TY *y, F f)
{
    float v[V];
    lk__cuda_load(x, v);
#pragma unroll
    for (int i = 0; i < V; i++)
        v[i] = f(v[i]);
    lk__cuda_store(y, v);
}

/* Pads are processed as elements: every operation turns zeros into 0. */
template <int V, class TX, class TY, class F>
static __global__ void map(size_t count, const TX *x, TY *y, F f)
{
    lk__cuda_await();
    size_t i = lk__cuda_thread() * V;
    if (i + V <= count)
        map_at<V>(x + i, y + i, f);
    else
        for (; i < count; i++)
            map_at<1>(x + i, y + i, f);
}

template <int V, class T, class F>
static __device__ void map2_at(const T *a, const T *b, T *y, F f)
{
    float u[V], v[V];
    lk__cuda_load(a, u);
    lk__cuda_load(b, v);
#pragma unroll
    for (int i = 0; i < V; i++)
        v[i] = f(u[i], v[i]);
    lk__cuda_store(y, v);
}

template <int V, class T, class F>
static __global__ void map2(size_t count, const T *a, const T *b, T *y, F f)
{
    lk__cuda_await();
    size_t i = lk__cuda_thread() * V;
    if (i + V <= count)
        map2_at<V>(a + i, b + i, y + i, f);
    else
        for (; i < count; i++)
            map2_at<1>(a + i, b + i, y + i, f);
}

/* y = f(m, a, b). */
template <int V, class T, class F>
static __device__ void map3_at(const T *m, const T *a, const T *b, T *y, F f)
{
    float w[V], u[V], v[V];
    lk__cuda_load(m, w);
    lk__cuda_load(a, u);
    lk__cuda_load(b, v);
#pragma unroll
    for (int i = 0; i < V; i++)
        v[i] = f(w[i], u[i], v[i]);
    lk__cuda_store(y, v);
}

template <int V, class T, class F>
static __global__ void map3(size_t count, const T *m, const T *a, const T *b, T *y, F f)
{
    lk__cuda_await();
    size_t i = lk__cuda_thread() * V;
    if (i + V <= count)
        map3_at<V>(m + i, a + i, b + i, y + i, f);
    else
        for (; i < count; i++)
            map3_at<1>(m + i, a + i, b + i, y + i, f);
}

/* Samples of images, whose pitch is their number of channels, may begin at any address. */
template <int V, class TX, class TY, class F>
static void launch_map(cudaStream_t stream, size_t count, const TX *x, TY *y, F f)
{
    if (lk__cuda_aligned(x) && lk__cuda_aligned(y))
        lk__cuda_follow({lk__cuda_blocks((count + V - 1) / V), LK_THREADS, 0, stream}, map<V, TX, TY, F>, count, x, y,
                        f);
    else
        lk__cuda_follow({lk__cuda_blocks(count), LK_THREADS, 0, stream}, map<1, TX, TY, F>, count, x, y, f);
}

template <int V, class T, class F>
static void launch_map2(cudaStream_t stream, size_t count, const T *a, const T *b, T *y, F f)
{
    if (lk__cuda_aligned(a) && lk__cuda_aligned(b) && lk__cuda_aligned(y))
        lk__cuda_follow({lk__cuda_blocks((count + V - 1) / V), LK_THREADS, 0, stream}, map2<V, T, F>, count, a, b, y,
                        f);
    else
        lk__cuda_follow({lk__cuda_blocks(count), LK_THREADS, 0, stream}, map2<1, T, F>, count, a, b, y, f);
}

template <class F>
static void run_map(lk_device *dev, const char *what, const lk_tensor *x, lk_tensor *y, F f)
{
    size_t count = lk__cuda_elements(x);
    if (count == 0)
        return;
    lk__cuda_by_dtype(x->dtype, [&](auto kind) {
        using T = typename decltype(kind)::T;
        launch_map<lk__width<T>>(lk__cuda_stream(dev), count, (const T *)x->data, (T *)y->data, f);
    });
    lk__cuda_launched(dev, what);
}

template <class F>
static void run_map2(lk_device *dev, const char *what, const lk_tensor *a, const lk_tensor *b, lk_tensor *y, F f)
{
    size_t count = lk__cuda_elements(a);
    if (count == 0)
        return;
    lk__cuda_by_dtype(a->dtype, [&](auto kind) {
        using T = typename decltype(kind)::T;
        launch_map2<lk__width<T>>(lk__cuda_stream(dev), count, (const T *)a->data, (const T *)b->data, (T *)y->data, f);
    });
    lk__cuda_launched(dev, what);
}

template <class F>
static void run_map3(lk_device *dev, const char *what, const lk_tensor *m, const lk_tensor *a, const lk_tensor *b,
                     lk_tensor *y, F f)
{
    size_t count = lk__cuda_elements(a);
    bool aligned = lk__cuda_aligned(m->data) && lk__cuda_aligned(a->data) && lk__cuda_aligned(b->data) &&
                   lk__cuda_aligned(y->data);
    if (count == 0)
        return;
    lk__cuda_by_dtype(a->dtype, [&](auto kind) {
        using T = typename decltype(kind)::T;
        constexpr int V = lk__width<T>;
        auto kernel = aligned ? map3<V, T, F> : map3<1, T, F>;
        size_t vectors = aligned ? (count + V - 1) / V : count;
        lk__cuda_follow({lk__cuda_blocks(vectors), LK_THREADS, 0, lk__cuda_stream(dev)}, kernel, count,
                        (const T *)m->data, (const T *)a->data, (const T *)b->data, (T *)y->data, f);
    });
    lk__cuda_launched(dev, what);
}

#endif
