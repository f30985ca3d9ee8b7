/* batchnorm_pass.cu - batch normalisation: the forward pass and the gradient of the input.
 *
 * The values of each channel that a pass needs (in the backward pass they take a division) are computed once
 * for each block in shared memory. */
#include "tensor/cuda/kernels/batchnorm_pool.cuh"
#include "tensor/cuda/kernels/batchnorm_rows.cuh"

enum { PIXELS = 4 }; /* of a thread: it loads all of them before it stores any */

/* The tensor that is added to the forward pass's result; pixels are `pitch` elements apart. */
template <class T>
struct addend {
    const T *data;
    int pitch;
};

/* A thread's pixels; the block's pixels are [begin, begin + rows * PIXELS), as far as they are below end. */
template <int V>
struct own_pixels {
    lk_bn_spot spot;
    size_t at[PIXELS]; /* offset of each pixel; that of the block's first pixel where has[] is false */
    bool has[PIXELS];

    __device__ own_pixels(const lk_bn_tiling &t, uint32_t begin, uint32_t end) : spot(lk__bn_spot<V>(t, begin, end))
    {
        for (int k = 0; k < PIXELS; k++) {
            uint32_t p = spot.pixel + (uint32_t)(k * t.rows);
            has[k] = spot.channel >= 0 && p < end;
            at[k] = has[k] ? (size_t)p * t.pitch + spot.channel : (size_t)begin * t.pitch;
        }
    }

    template <class T>
    __device__ void load(const T *x, lk_packed<T, V> (&v)[PIXELS]) const
    {
#pragma unroll
        for (int k = 0; k < PIXELS; k++)
            v[k].load(x + at[k]);
    }

    /* Zeros for channels that the other tensor does not have; its pads are zeros. */
    template <class T>
    __device__ void load(const lk_bn_tiling &t, uint32_t begin, const addend<T> &other,
                         lk_packed<T, V> (&v)[PIXELS]) const
    {
        bool there = spot.channel >= 0 && spot.channel < other.pitch;
#pragma unroll
        for (int k = 0; k < PIXELS; k++) {
            size_t pixel = has[k] ? spot.pixel + (uint32_t)(k * t.rows) : begin;
            v[k] = {};
            if (there)
                v[k].load(other.data + pixel * other.pitch + spot.channel);
        }
    }

    /* One byte for each vector; v is as it is stored. */
    template <class T>
    __device__ void store_signs(const lk_packed<T, V> (&v)[PIXELS], uint8_t *signs) const
    {
#pragma unroll
        for (int k = 0; k < PIXELS; k++) {
            float f[V];
            unsigned bits = 0;
            v[k].get_all(f);
#pragma unroll
            for (int i = 0; i < V; i++)
                bits |= f[i] <= 0.0f ? 0 : 1u << i;
            if (has[k])
                signs[at[k] / V] = (uint8_t)bits;
        }
    }

    template <class T>
    __device__ void store(const lk_packed<T, V> (&v)[PIXELS], T *y) const
    {
#pragma unroll
        for (int k = 0; k < PIXELS; k++) {
            if (has[k])
                v[k].store(y + at[k]);
        }
    }
};

/* N channels from `at` on; own is where the thread's channels begin in the rows. */
template <int RELU, class P>
static __device__ void normalise(const float *own, int width, int at, P (&x)[PIXELS])
{
    constexpr int N = P::N;
    float mean[N], scale[N], gamma[N], beta[N];
    lk__cuda_load(own + LK_BN_Y_MEAN * width + at, mean);
    lk__cuda_load(own + LK_BN_Y_SCALE * width + at, scale);
    lk__cuda_load(own + LK_BN_Y_GAMMA * width + at, gamma);
    lk__cuda_load(own + LK_BN_Y_BETA * width + at, beta);
#pragma unroll
    for (int k = 0; k < PIXELS; k++) {
        float v[N];
        x[k].get(at, v);
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = lk__bn_relu<RELU>(fmaf((v[i] - mean[i]) * scale[i], gamma[i], beta[i]));
        x[k].set(at, v);
    }
}

/* N channels from `at` on: x becomes the sum; both terms are rounded to the value type first. */
template <int RELU, class P>
static __device__ void add_other(int at, const P (&other)[PIXELS], P (&x)[PIXELS])
{
    constexpr int N = P::N;
#pragma unroll
    for (int k = 0; k < PIXELS; k++) {
        float v[N], o[N];
        x[k].get(at, v);
        other[k].get(at, o);
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = lk__bn_relu<RELU>(v[i] + o[i]);
        x[k].set(at, v);
    }
}

template <class T, int V, int RELU, bool ADD>
static __global__ void forward(lk_bn_tiling t, lk_bn_runs r, lk_bn_sources from, const T *x, addend<T> other, T *y,
                               uint8_t *signs)
{
    lk__cuda_await();
    extern __shared__ __align__(16) float shared[];
    uint32_t begin = lk__bn_pass_begin(t, r, (uint32_t)(t.rows * PIXELS)), end = r.begin[lk__bn_run_index(t) + 1];
    if (begin >= end)
        return;
    own_pixels<V> own(t, begin, end);
    lk_packed<T, V> v[PIXELS];
    lk_packed<T, V> o[PIXELS];
    own.load(x, v);
    if (ADD)
        own.load(t, begin, other, o);
    lk__bn_fill_y<V>(t, from, shared);
#pragma unroll
    for (int at = 0; at < V; at += lk_packed<T, V>::N) {
        normalise<ADD ? (int)LK_BN_RELU_NONE : RELU>(shared + own.spot.column * V, t.columns * V, at, v);
        if (ADD)
            add_other<RELU>(at, o, v);
    }
    own.store(v, y);
    if (ADD && RELU == LK_BN_RELU_PLAIN && signs)
        own.store_signs(v, signs);
}

template <class T, int V, int RELU>
static void run_forward(cudaStream_t stream, const lk_bn_runs &r, const lk_bn_sources &from,
                        const lk_batchnorm_desc *desc, const lk_tensor *x, lk_tensor *y)
{
    lk_bn_tiling t = lk__bn_tiling(x, V);
    dim3 grid = lk__bn_pass_grid(t, r, (uint32_t)(t.rows * PIXELS));
    size_t bytes = LK_BN_Y_ROWS * (size_t)t.columns * V * sizeof(float);
    addend<T> other = {nullptr, 0};
    if (desc->other)
        other = {(const T *)desc->other->data, (int)lk__tensor_pitch(desc->other)};
    auto kernel = desc->other ? forward<T, V, RELU, true> : forward<T, V, RELU, false>;
    if (grid.x > 0)
        lk__cuda_follow({grid, lk__bn_threads(t), bytes, stream}, kernel, t, r, from, (const T *)x->data, other,
                        (T *)y->data, desc->signs);
}

void lk__cuda_batchnorm_forward(lk_device *dev, const lk_batchnorm_desc *desc, const lk_tensor *x,
                                const lk_shards *shards, const lk_moments *moments, lk_tensor *y)
{
    if (desc->pool) {
        lk__cuda_batchnorm_pool_forward(dev, desc, x, shards, moments, y);
        return;
    }
    cudaStream_t stream = lk__cuda_stream(dev);
    const lk_tensor *narrow = desc->other && lk__tensor_pitch(desc->other) < lk__tensor_pitch(x) ? desc->other : x;
    lk__bn_by_groups(x->shape.n, x->shape.h * x->shape.w, shards, moments, [&](const lk_bn_runs &r, int group) {
        lk_bn_sources from = lk__bn_sources(desc, moments, group, x->shape.c);
        lk__cuda_by_kind(narrow, [&](auto kind) {
            lk__bn_by_relu(desc, [&](auto relu) {
                using K = decltype(kind);
                run_forward<typename K::T, K::V, decltype(relu)::RELU>(stream, r, from, desc, x, y);
            });
        });
    });
    lk__cuda_launched(dev, "batchnorm_forward");
}

/* N channels from `at` on; dy becomes dx. */
template <class T, int RELU, class P>
static __device__ void differentiate(const float *own, int width, int at, const P (&x)[PIXELS], P (&dy)[PIXELS])
{
    constexpr int N = P::N;
    float mean[N], scale[N], factor[N], shift[N], slope[N], gamma[N] = {}, beta[N] = {};
    lk__cuda_load(own + LK_BN_DX_MEAN * width + at, mean);
    lk__cuda_load(own + LK_BN_DX_SCALE * width + at, scale);
    lk__cuda_load(own + LK_BN_DX_FACTOR * width + at, factor);
    lk__cuda_load(own + LK_BN_DX_SHIFT * width + at, shift);
    lk__cuda_load(own + LK_BN_DX_SLOPE * width + at, slope);
    if (RELU != LK_BN_RELU_NONE) {
        lk__cuda_load(own + LK_BN_DX_GAMMA * width + at, gamma);
        lk__cuda_load(own + LK_BN_DX_BETA * width + at, beta);
    }
#pragma unroll
    for (int k = 0; k < PIXELS; k++) {
        float v[N], d[N];
        x[k].get(at, v);
        dy[k].get(at, d);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float xhat = (v[i] - mean[i]) * scale[i];
            float g = lk__bn_relu_grad<T, RELU>(fmaf(xhat, gamma[i], beta[i]), d[i]);
            d[i] = factor[i] * fmaf(xhat, slope[i], g - shift[i]);
        }
        dy[k].set(at, d);
    }
}

template <class T, int V, int RELU, bool ADD>
static __global__ void grad_input(lk_bn_tiling t, lk_bn_runs r, lk_bn_sources from, lk_bn_counts counts, const T *x,
                                  const T *dy, T *dx)
{
    lk__cuda_await();
    extern __shared__ __align__(16) float shared[];
    uint32_t begin = lk__bn_pass_begin(t, r, (uint32_t)(t.rows * PIXELS)), end = r.begin[lk__bn_run_index(t) + 1];
    if (begin >= end)
        return;
    own_pixels<V> own(t, begin, end);
    lk_packed<T, V> v[PIXELS], d[PIXELS], sum[PIXELS];
    own.load(x, v);
    own.load(dy, d);
    if (ADD)
        own.load(dx, sum);
    lk__bn_fill_dx<V>(t, from, counts, shared);
#pragma unroll
    for (int at = 0; at < V; at += lk_packed<T, V>::N) {
        differentiate<T, RELU>(shared + own.spot.column * V, t.columns * V, at, v, d);
        if (ADD)
            add_other<LK_BN_RELU_NONE>(at, sum, d);
    }
    own.store(d, dx);
}

template <class T, int V, int RELU>
static void run_grad_input(cudaStream_t stream, const lk_bn_runs &r, const lk_bn_sources &from,
                           const lk_bn_counts &counts, bool add, const lk_tensor *x, const lk_tensor *dy, lk_tensor *dx)
{
    lk_bn_tiling t = lk__bn_tiling(x, V);
    dim3 grid = lk__bn_pass_grid(t, r, (uint32_t)(t.rows * PIXELS));
    size_t bytes = LK_BN_DX_ROWS * (size_t)t.columns * V * sizeof(float);
    auto kernel = add ? grad_input<T, V, RELU, true> : grad_input<T, V, RELU, false>;
    if (grid.x > 0)
        lk__cuda_follow({grid, lk__bn_threads(t), bytes, stream}, kernel, t, r, from, counts, (const T *)x->data,
                        (const T *)dy->data, (T *)dx->data);
}

void lk__cuda_batchnorm_grad_input(lk_device *dev, const lk_batchnorm_desc *desc, const lk_batchnorm_grad *grad,
                                   const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                                   const lk_moments *moments, lk_tensor *dx)
{
    if (desc->pool) {
        lk__cuda_batchnorm_pool_grad(dev, desc, grad, x, dy, shards, moments, dx);
        return;
    }
    cudaStream_t stream = lk__cuda_ahead(dev);
    lk__bn_by_groups(x->shape.n, x->shape.h * x->shape.w, shards, moments, [&](const lk_bn_runs &r, int group) {
        lk_bn_counts counts = lk__bn_counts(grad->rows, group, moments->groups, x->shape.h * x->shape.w);
        lk_bn_sources from = lk__bn_sources(desc, moments, group, x->shape.c);
        from.sums = grad->sums + (size_t)group * 2 * x->shape.c;
        lk__cuda_by_kind(x, [&](auto kind) {
            lk__bn_by_relu(desc, [&](auto relu) {
                using K = decltype(kind);
                run_grad_input<typename K::T, K::V, decltype(relu)::RELU>(stream, r, from, counts, grad->add, x, dy,
                                                                          dx);
            });
        });
    });
    lk__cuda_launched(dev, "batchnorm_grad_input");
}
