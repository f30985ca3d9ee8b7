/* dropout.cu - dropout by the address of each element (base/rng.h), with the same masks as on the CPU. */
#include "tensor/cuda/kernels/dropout.cuh"

template <lk_drawing D, int V, class T>
static __global__ void drop(lk_drop d, size_t threads, const T *x, T *y)
{
    lk__cuda_await();
    constexpr int Q = lk__quad<D>;
    if (lk__cuda_thread() >= threads)
        return;
    lk_drop_spot spot = lk__cuda_drop_spot<D, V>(d);
    bool keep[Q][V];
    lk__cuda_draw<D>(d, spot, keep);
    size_t at = ((size_t)spot.sample * d.pixels + spot.pixel) * d.pitch + spot.channel;
#pragma unroll
    for (int q = 0; q < Q; q++) {
        float v[V];
        lk__cuda_load(x + at + (size_t)q * d.pitch, v);
#pragma unroll
        for (int i = 0; i < V; i++)
            v[i] = lk__cuda_dropped(d, keep[q][i], v[i]);
        lk__cuda_store(y + at + (size_t)q * d.pitch, v);
    }
}

extern "C" void lk__cuda_dropout(lk_device *dev, const lk_dropout_desc *dropout, const lk_tensor *x, lk_tensor *y)
{
    lk_drop d = lk__cuda_drop(dropout, x->shape.h * x->shape.w, lk__tensor_pitch(x));
    if (lk__cuda_elements(x) == 0)
        return;
    cudaStream_t stream = lk__cuda_stream(dev);
    lk__cuda_by_drawing(dropout, d.pixels, [&](auto drawing) {
        lk__cuda_by_kind(x, [&](auto kind) {
            constexpr lk_drawing D = decltype(drawing)::D;
            constexpr int V = decltype(kind)::V;
            using T = typename decltype(kind)::T;
            size_t threads = lk__cuda_elements(x) / V / lk__quad<D>;
            lk__cuda_follow({lk__cuda_blocks(threads), LK_THREADS, 0, stream}, drop<D, V, T>, d, threads,
                            (const T *)x->data, (T *)y->data);
        });
    });
    lk__cuda_launched(dev, "dropout");
}
