/* batchnorm_pass.cu - batch normalisation: the forward pass and the gradient of the input.
 *
 * The values of each channel that a pass needs (in the backward pass they take a division) are computed once
 * for each block in shared memory. */
#include "tensor/cuda/kernels/batchnorm.cuh"

enum { PIXELS = 4 }; /* of a thread: it loads all of them before it stores any */

/* The first pixel of a block. The block has no pixels if this is not below the run's end. */
static __device__ uint32_t pass_begin(const lk_bn_tiling &t, const lk_bn_runs &r)
{
    return r.begin[lk__bn_run_index(t)] + lk__bn_block(t) * (uint32_t)(t.rows * PIXELS);
}

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

/* Rows of a block's channels in shared memory. */
enum { FORWARD_MEAN, FORWARD_SCALE, FORWARD_GAMMA, FORWARD_BETA, FORWARD_ROWS };

template <int V>
static __device__ void fill_forward(const lk_bn_tiling &t, const lk_bn_sources &from, float *rows)
{
    int width = t.columns * V;
    size_t group = from.shared ? 0 : lk__bn_run_index(t);
    lk__bn_for_channels<V>(t, [&](int i, int channel) {
        bool used = channel < t.c;
        size_t at = group * t.c + channel;
        rows[FORWARD_MEAN * width + i] = used ? from.mean[at] : 0.0f;
        rows[FORWARD_SCALE * width + i] = used ? from.scale[at] : 0.0f;
        rows[FORWARD_GAMMA * width + i] = used ? from.gamma[channel] : 0.0f;
        rows[FORWARD_BETA * width + i] = used ? from.beta[channel] : 0.0f;
    });
}

/* N channels from `at` on; own is where the thread's channels begin in the rows. */
template <int RELU, class P>
static __device__ void normalise(const float *own, int width, int at, P (&x)[PIXELS])
{
    constexpr int N = P::N;
    float mean[N], scale[N], gamma[N], beta[N];
    lk__cuda_load(own + FORWARD_MEAN * width + at, mean);
    lk__cuda_load(own + FORWARD_SCALE * width + at, scale);
    lk__cuda_load(own + FORWARD_GAMMA * width + at, gamma);
    lk__cuda_load(own + FORWARD_BETA * width + at, beta);
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
    uint32_t begin = pass_begin(t, r), end = r.begin[lk__bn_run_index(t) + 1];
    if (begin >= end)
        return;
    own_pixels<V> own(t, begin, end);
    lk_packed<T, V> v[PIXELS];
    lk_packed<T, V> o[PIXELS];
    own.load(x, v);
    if (ADD)
        own.load(t, begin, other, o);
    fill_forward<V>(t, from, shared);
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

/* Calls f with runs of pixels that belong to one group each, and the group of the first run. */
template <class F>
static void by_groups(const lk_tensor *x, const lk_shards *shards, const lk_moments *moments, F f)
{
    if (moments->groups == 1) {
        lk_bn_runs r = {};
        r.count = 1;
        r.begin[1] = (uint32_t)lk__cuda_pixels(x);
        f(r, 0);
        return;
    }
    for (int first = 0; first < shards->count; first += LK_BN_RUNS)
        f(lk__bn_runs(shards, first, x->shape.h * x->shape.w), first);
}

static dim3 pass_grid(const lk_bn_tiling &t, const lk_bn_runs &r)
{
    uint32_t most = 0, span = (uint32_t)(t.rows * PIXELS);
    for (int i = 0; i < r.count; i++)
        most = r.begin[i + 1] - r.begin[i] > most ? r.begin[i + 1] - r.begin[i] : most;
    return lk__bn_grid(t, (most + span - 1) / span, r.count);
}

template <class T, int V, int RELU>
static void run_forward(cudaStream_t stream, const lk_bn_runs &r, const lk_bn_sources &from,
                        const lk_batchnorm_desc *desc, const lk_tensor *x, lk_tensor *y)
{
    lk_bn_tiling t = lk__bn_tiling(x, V);
    dim3 grid = pass_grid(t, r);
    size_t bytes = FORWARD_ROWS * (size_t)t.columns * V * sizeof(float);
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
    cudaStream_t stream = lk__cuda_stream(dev);
    const lk_tensor *narrow = desc->other && lk__tensor_pitch(desc->other) < lk__tensor_pitch(x) ? desc->other : x;
    by_groups(x, shards, moments, [&](const lk_bn_runs &r, int group) {
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

/* dx = factor * (dy - shift + xhat * slope); gamma and beta are for the gradient of a ReLU. */
enum { GRAD_MEAN, GRAD_SCALE, GRAD_FACTOR, GRAD_SHIFT, GRAD_SLOPE, GRAD_GAMMA, GRAD_BETA, GRAD_ROWS };

template <int V>
static __device__ void fill_grad(const lk_bn_tiling &t, const lk_bn_sources &from, const lk_bn_counts &counts,
                                 float *rows)
{
    int width = t.columns * V;
    size_t group = from.shared ? 0 : lk__bn_run_index(t);
    float count = counts.of[group];
    lk__bn_for_channels<V>(t, [&](int i, int channel) {
        bool used = channel < t.c;
        size_t at = group * t.c + channel;
        const float *sums = from.sums + group * 2 * t.c + channel;
        float mean = used ? from.mean[at] : 0.0f, scale = used ? from.scale[at] : 0.0f;
        float gamma = used ? from.gamma[channel] : 0.0f;
        float sum = used ? sums[0] : 0.0f, product = used ? sums[t.c] : 0.0f;
        rows[GRAD_MEAN * width + i] = mean;
        rows[GRAD_SCALE * width + i] = scale;
        rows[GRAD_FACTOR * width + i] = gamma * scale;
        rows[GRAD_SHIFT * width + i] = sum / count;
        rows[GRAD_SLOPE * width + i] = 0.0f - product / count;
        rows[GRAD_GAMMA * width + i] = gamma;
        rows[GRAD_BETA * width + i] = used ? from.beta[channel] : 0.0f;
    });
}

/* N channels from `at` on; dy becomes dx. */
template <class T, int RELU, class P>
static __device__ void differentiate(const float *own, int width, int at, const P (&x)[PIXELS], P (&dy)[PIXELS])
{
    constexpr int N = P::N;
    float mean[N], scale[N], factor[N], shift[N], slope[N], gamma[N] = {}, beta[N] = {};
    lk__cuda_load(own + GRAD_MEAN * width + at, mean);
    lk__cuda_load(own + GRAD_SCALE * width + at, scale);
    lk__cuda_load(own + GRAD_FACTOR * width + at, factor);
    lk__cuda_load(own + GRAD_SHIFT * width + at, shift);
    lk__cuda_load(own + GRAD_SLOPE * width + at, slope);
    if (RELU != LK_BN_RELU_NONE) {
        lk__cuda_load(own + GRAD_GAMMA * width + at, gamma);
        lk__cuda_load(own + GRAD_BETA * width + at, beta);
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
    uint32_t begin = pass_begin(t, r), end = r.begin[lk__bn_run_index(t) + 1];
    if (begin >= end)
        return;
    own_pixels<V> own(t, begin, end);
    lk_packed<T, V> v[PIXELS], d[PIXELS], sum[PIXELS];
    own.load(x, v);
    own.load(dy, d);
    if (ADD)
        own.load(dx, sum);
    fill_grad<V>(t, from, counts, shared);
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
    dim3 grid = pass_grid(t, r);
    size_t bytes = GRAD_ROWS * (size_t)t.columns * V * sizeof(float);
    auto kernel = add ? grad_input<T, V, RELU, true> : grad_input<T, V, RELU, false>;
    if (grid.x > 0)
        lk__cuda_follow({grid, lk__bn_threads(t), bytes, stream}, kernel, t, r, from, counts, (const T *)x->data,
                        (const T *)dy->data, (T *)dx->data);
}

void lk__cuda_batchnorm_grad_input(lk_device *dev, const lk_batchnorm_desc *desc, const lk_batchnorm_grad *grad,
                                   const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                                   const lk_moments *moments, lk_tensor *dx)
{
    cudaStream_t stream = lk__cuda_ahead(dev);
    by_groups(x, shards, moments, [&](const lk_bn_runs &r, int group) {
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
