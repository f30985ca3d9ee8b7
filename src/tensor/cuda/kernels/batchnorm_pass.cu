/* batchnorm_pass.cu - batch normalisation: the passes over pixels, which are the forward pass, the sums of the
 * backward pass, and the gradient.
 *
 * The values of each channel that a pass needs (in the backward pass they take a division) are computed once
 * for each block in shared memory, unless the pass sums. */
#include "tensor/cuda/kernels/batchnorm.cuh"

enum { PIXELS = 4 }; /* of a thread in a pass without sums: it loads all of them before it stores any */

struct sources {
    const float *mean, *scale; // (groups, c)
    const float *gamma, *beta; // (c)
    const float *sums;         // (groups, 2, c)
    bool shared;               /* one group for all runs */
};

static sources sources_of(const lk_moments *moments, int group, size_t c)
{
    size_t at = (size_t)group * c;
    return {moments->mean + at, moments->scale + at, nullptr, nullptr, nullptr, moments->groups == 1};
}

/* The first pixel of a block. The block has no pixels if this is not below the run's end. */
static __device__ uint32_t pass_begin(const lk_bn_tiling &t, const lk_bn_runs &r)
{
    return r.begin[blockIdx.z] + blockIdx.x * (uint32_t)(t.rows * PIXELS);
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

/* Calls f with the index of each channel in its block and in the tensor, then synchronises the block. */
template <int V, class F>
static __device__ void for_channels(const lk_bn_tiling &t, F f)
{
    int width = t.columns * V;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < width; i += (int)blockDim.x)
        f(i, (int)blockIdx.y * width + i);
    __syncthreads();
}

/* Rows of a block's channels in shared memory. */
enum { FORWARD_MEAN, FORWARD_SCALE, FORWARD_GAMMA, FORWARD_BETA, FORWARD_ROWS };

template <int V>
static __device__ void fill_forward(const lk_bn_tiling &t, const sources &from, float *rows)
{
    int width = t.columns * V;
    size_t group = from.shared ? 0 : blockIdx.z;
    for_channels<V>(t, [&](int i, int channel) {
        bool used = channel < t.c;
        size_t at = group * t.c + channel;
        rows[FORWARD_MEAN * width + i] = used ? from.mean[at] : 0.0f;
        rows[FORWARD_SCALE * width + i] = used ? from.scale[at] : 0.0f;
        rows[FORWARD_GAMMA * width + i] = used ? from.gamma[channel] : 0.0f;
        rows[FORWARD_BETA * width + i] = used ? from.beta[channel] : 0.0f;
    });
}

/* N channels from `at` on; own is where the thread's channels begin in the rows. */
template <class P>
static __device__ void normalise(const float *own, int width, int at, bool relu, P (&x)[PIXELS])
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
        for (int i = 0; i < N; i++) {
            float f = fmaf((v[i] - mean[i]) * scale[i], gamma[i], beta[i]);
            v[i] = relu ? lk__cuda_relu1(f) : f;
        }
        x[k].set(at, v);
    }
}

/* N channels from `at` on: x becomes the sum; both terms are rounded to the value type first. */
template <class P>
static __device__ void add_other(int at, bool relu, const P (&other)[PIXELS], P (&x)[PIXELS])
{
    constexpr int N = P::N;
#pragma unroll
    for (int k = 0; k < PIXELS; k++) {
        float v[N], o[N];
        x[k].get(at, v);
        other[k].get(at, o);
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = relu ? lk__cuda_relu1(v[i] + o[i]) : v[i] + o[i];
        x[k].set(at, v);
    }
}

template <class T, int V, bool RELU, bool ADD>
static __global__ void forward(lk_bn_tiling t, lk_bn_runs r, sources from, const T *x, addend<T> other, T *y)
{
    extern __shared__ __align__(16) float shared[];
    uint32_t begin = pass_begin(t, r), end = r.begin[blockIdx.z + 1];
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
        normalise(shared + own.spot.column * V, t.columns * V, at, RELU && !ADD, v);
        if (ADD)
            add_other(at, RELU, o, v);
    }
    own.store(v, y);
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
    return dim3((most + span - 1) / span, lk__bn_column_tiles(t), (unsigned)r.count);
}

template <class T, int V>
static void run_forward(cudaStream_t stream, const lk_bn_runs &r, const sources &from, const lk_batchnorm_desc *desc,
                        const lk_tensor *x, lk_tensor *y)
{
    lk_bn_tiling t = lk__bn_tiling(x, V);
    dim3 grid = pass_grid(t, r);
    size_t bytes = FORWARD_ROWS * (size_t)t.columns * V * sizeof(float);
    addend<T> other = {nullptr, 0};
    if (desc->other)
        other = {(const T *)desc->other->data, (int)lk__tensor_pitch(desc->other)};
    auto kernel = desc->relu ? forward<T, V, true, false> : forward<T, V, false, false>;
    if (desc->other)
        kernel = desc->relu ? forward<T, V, true, true> : forward<T, V, false, true>;
    if (grid.x > 0)
        kernel<<<grid, lk__bn_threads(t), bytes, stream>>>(t, r, from, (const T *)x->data, other, (T *)y->data);
}

void lk__cuda_batchnorm_forward(lk_device *dev, const lk_batchnorm_desc *desc, const lk_tensor *x,
                                const lk_shards *shards, const lk_moments *moments, lk_tensor *y)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    const lk_tensor *narrow = desc->other && lk__tensor_pitch(desc->other) < lk__tensor_pitch(x) ? desc->other : x;
    by_groups(x, shards, moments, [&](const lk_bn_runs &r, int group) {
        sources from = sources_of(moments, group, x->shape.c);
        from.gamma = desc->gamma;
        from.beta = desc->beta;
        lk__cuda_by_kind(narrow, [&](auto kind) {
            using K = decltype(kind);
            run_forward<typename K::T, K::V>(stream, r, from, desc, x, y);
        });
    });
    lk__cuda_launched(dev, "batchnorm_forward");
}

/* V floats of a row of c; zeros beyond it. */
template <int V>
static __device__ void load_row(const float *row, int c, int channel, float (&v)[V])
{
#pragma unroll
    for (int i = 0; i < V; i++)
        v[i] = channel + i < c ? row[channel + i] : 0.0f;
}

/* A thread's sums over its pixels. */
template <int V>
struct products {
    float mean[V], scale[V];
    float sum[V], product[V]; /* sums of dy, and of dy * xhat */
};

template <class T, int V>
static __device__ void add_product(const lk_packed<T, V> &x, const lk_packed<T, V> &dy, bool has, products<V> &p)
{
    float v[V], d[V];
    x.get_all(v);
    dy.get_all(d);
#pragma unroll
    for (int i = 0; i < V; i++) {
        float xhat = (v[i] - p.mean[i]) * p.scale[i];
        d[i] = has ? d[i] : 0.0f;
        p.sum[i] += d[i];
        p.product[i] = fmaf(d[i], xhat, p.product[i]);
    }
}

/* AT_ONCE loads of each tensor are issued together. A pixel beyond the end repeats the first one, with a dy of
 * 0. */
template <class T, int V>
static __device__ void add_products(const lk_bn_tiling &t, const lk_bn_spot &s, const T *x, const T *dy,
                                    products<V> &sums)
{
    constexpr int AT_ONCE = 4;
    for (uint32_t p = s.pixel; p < s.end; p += (uint32_t)(AT_ONCE * t.rows)) {
        lk_packed<T, V> v[AT_ONCE], d[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            uint32_t pixel = p + (uint32_t)(k * t.rows);
            size_t at = (size_t)(pixel < s.end ? pixel : s.pixel) * t.pitch + s.channel;
            v[k].load(x + at);
            d[k].load(dy + at);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            add_product(v[k], d[k], p + (uint32_t)(k * t.rows) < s.end, sums);
    }
}

template <class T, int V>
static __global__ void __launch_bounds__(LK_THREADS, LK_BN_RESIDENT)
    sums_blocks(lk_bn_tiling t, lk_bn_runs r, sources from, const T *x, const T *dy, uint32_t spans, float *parts)
{
    extern __shared__ __align__(16) float shared[];
    uint32_t run = blockIdx.z, first = r.begin[run], last = r.begin[run + 1], span = lk__bn_span(t, last - first);
    uint32_t begin = first + blockIdx.x * span, end = last - begin < span ? last : begin + span;
    if (begin >= last)
        return;
    lk_bn_spot s = lk__bn_spot<V>(t, begin, end);
    products<V> p = {};
    if (s.channel >= 0) {
        size_t group = from.shared ? 0 : (size_t)run * t.c;
        load_row(from.mean + group, t.c, s.channel, p.mean);
        load_row(from.scale + group, t.c, s.channel, p.scale);
        add_products(t, s, x, dy, p);
    }
    lk__bn_sum_rows(t, s, shared, p.sum);
    lk__bn_sum_rows(t, s, shared, p.product);
    if (s.row > 0 || s.channel < 0)
        return;
    float *part = lk__bn_part(parts, t, run, spans, blockIdx.x) + s.channel;
    lk__cuda_store(part, p.sum);
    lk__cuda_store(part + t.pitch, p.product);
}

static __device__ double sum_parts(const lk_bn_tiling &t, const float *row, uint32_t blocks)
{
    double sum = 0;
    for (uint32_t b = threadIdx.y; b < blocks; b += LK_BN_FOLD_AT_ONCE * LK_BN_FOLD_ROWS) {
        float v[LK_BN_FOLD_AT_ONCE];
        lk__bn_load_parts(t, row, b, blocks, v);
#pragma unroll
        for (int k = 0; k < LK_BN_FOLD_AT_ONCE; k++)
            sum += b + (uint32_t)(k * LK_BN_FOLD_ROWS) < blocks ? (double)v[k] : 0.0;
    }
    return sum;
}

static __global__ void __launch_bounds__(LK_BN_FOLD_THREADS, 1)
    sums_fold(lk_bn_tiling t, lk_bn_runs r, uint32_t spans, float *parts, float *sums)
{
    int channel = (int)(blockIdx.x * LK_BN_FOLD_CHANNELS + threadIdx.x);
    bool used = channel < t.c;
    uint32_t run = blockIdx.y, blocks = used ? lk__bn_spans(t, r.begin[run + 1] - r.begin[run]) : 0;
    const float *row = lk__bn_part(parts, t, run, spans, 0) + channel;
    double sum = sum_parts(t, row, blocks), product = sum_parts(t, row + t.pitch, blocks);
    sum = lk__bn_sum_fold_rows(sum);
    product = lk__bn_sum_fold_rows(product);
    if (threadIdx.y > 0 || !used)
        return;
    sums[(size_t)run * 2 * t.c + channel] = (float)sum;
    sums[((size_t)run * 2 + 1) * t.c + channel] = (float)product;
}

template <class T, int V>
static void run_sums(lk_device *dev, const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                     const lk_moments *moments, float *sums)
{
    size_t pixels = x->shape.h * x->shape.w;
    lk_bn_tiling t = lk__bn_tiling(x, V);
    cudaStream_t stream = lk__cuda_stream(dev);
    float *parts = (float *)lk__cuda_scratch(dev, lk__bn_parts_bytes(t, shards, pixels));
    if (!parts)
        return;
    unsigned threads = lk__bn_threads(t);
    size_t shared = threads * V * sizeof(float);
    for (int first = 0; first < shards->count; first += LK_BN_RUNS) {
        lk_bn_runs r = lk__bn_runs(shards, first, pixels);
        uint32_t spans = lk__bn_most_spans(t, r);
        dim3 grid(spans, lk__bn_column_tiles(t), (unsigned)r.count);
        sources from = sources_of(moments, moments->groups == 1 ? 0 : first, x->shape.c);
        if (spans > 0)
            sums_blocks<T, V>
                <<<grid, threads, shared, stream>>>(t, r, from, (const T *)x->data, (const T *)dy->data, spans, parts);
        sums_fold<<<lk__bn_fold_grid(t, r), lk__bn_fold_threads(), 0, stream>>>(t, r, spans, parts,
                                                                                sums + (size_t)first * 2 * t.c);
    }
}

void lk__cuda_batchnorm_sums(lk_device *dev, const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                             const lk_moments *moments, float *sums)
{
    lk__cuda_by_kind(x, [&](auto kind) {
        using K = decltype(kind);
        run_sums<typename K::T, K::V>(dev, x, dy, shards, moments, sums);
    });
    lk__cuda_launched(dev, "batchnorm_sums");
}

/* dx = factor * (dy - shift + xhat * slope) */
enum { GRAD_MEAN, GRAD_SCALE, GRAD_FACTOR, GRAD_SHIFT, GRAD_SLOPE, GRAD_ROWS };

template <int V>
static __device__ void fill_grad(const lk_bn_tiling &t, const sources &from, const lk_bn_counts &counts, float *rows)
{
    int width = t.columns * V;
    size_t group = from.shared ? 0 : blockIdx.z;
    float count = counts.of[group];
    for_channels<V>(t, [&](int i, int channel) {
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
    });
}

/* N channels from `at` on; dy becomes dx. */
template <class P>
static __device__ void differentiate(const float *own, int width, int at, const P (&x)[PIXELS], P (&dy)[PIXELS])
{
    constexpr int N = P::N;
    float mean[N], scale[N], factor[N], shift[N], slope[N];
    lk__cuda_load(own + GRAD_MEAN * width + at, mean);
    lk__cuda_load(own + GRAD_SCALE * width + at, scale);
    lk__cuda_load(own + GRAD_FACTOR * width + at, factor);
    lk__cuda_load(own + GRAD_SHIFT * width + at, shift);
    lk__cuda_load(own + GRAD_SLOPE * width + at, slope);
#pragma unroll
    for (int k = 0; k < PIXELS; k++) {
        float v[N], d[N];
        x[k].get(at, v);
        dy[k].get(at, d);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float xhat = (v[i] - mean[i]) * scale[i];
            d[i] = factor[i] * fmaf(xhat, slope[i], d[i] - shift[i]);
        }
        dy[k].set(at, d);
    }
}

template <class T, int V, bool ADD>
static __global__ void grad_input(lk_bn_tiling t, lk_bn_runs r, sources from, lk_bn_counts counts, const T *x,
                                  const T *dy, T *dx)
{
    extern __shared__ __align__(16) float shared[];
    uint32_t begin = pass_begin(t, r), end = r.begin[blockIdx.z + 1];
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
        differentiate(shared + own.spot.column * V, t.columns * V, at, v, d);
        if (ADD)
            add_other(at, false, sum, d);
    }
    own.store(d, dx);
}

template <class T, int V>
static void run_grad_input(cudaStream_t stream, const lk_bn_runs &r, const sources &from, const lk_bn_counts &counts,
                           bool add, const lk_tensor *x, const lk_tensor *dy, lk_tensor *dx)
{
    lk_bn_tiling t = lk__bn_tiling(x, V);
    dim3 grid = pass_grid(t, r);
    size_t bytes = GRAD_ROWS * (size_t)t.columns * V * sizeof(float);
    auto kernel = add ? grad_input<T, V, true> : grad_input<T, V, false>;
    if (grid.x > 0)
        kernel<<<grid, lk__bn_threads(t), bytes, stream>>>(t, r, from, counts, (const T *)x->data, (const T *)dy->data,
                                                           (T *)dx->data);
}

void lk__cuda_batchnorm_grad_input(lk_device *dev, const lk_batchnorm_grad *grad, const lk_tensor *x,
                                   const lk_tensor *dy, const lk_shards *shards, const lk_moments *moments,
                                   lk_tensor *dx)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    by_groups(x, shards, moments, [&](const lk_bn_runs &r, int group) {
        lk_bn_counts counts = lk__bn_counts(grad->rows, group, moments->groups, x->shape.h * x->shape.w);
        sources from = sources_of(moments, group, x->shape.c);
        from.gamma = grad->gamma;
        from.sums = grad->sums + (size_t)group * 2 * x->shape.c;
        lk__cuda_by_kind(x, [&](auto kind) {
            using K = decltype(kind);
            run_grad_input<typename K::T, K::V>(stream, r, from, counts, grad->add, x, dy, dx);
        });
    });
    lk__cuda_launched(dev, "batchnorm_grad_input");
}
