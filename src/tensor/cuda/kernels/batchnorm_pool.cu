/* batchnorm_pool.cu - batch normalisation with a max pooling behind it: the forward pass, which stores only the largest
 * values of windows, and the gradient of the input, which finds the gradient of each pixel in its windows. The values
 * of each channel are in shared memory. */
#include "tensor/cuda/kernels/batchnorm_pool.cuh"

#include "tensor/cuda/kernels/batchnorm_rows.cuh"

extern "C" bool lk__cuda_batchnorm_pools(const lk_pool2d_desc *windows)
{
    const lk_window *h = &windows->h, *w = &windows->w;
    size_t most = h->kernel == 3 ? 1 : 0; /* of the padding */
    return (h->kernel == 2 || h->kernel == 3) && w->kernel == h->kernel && h->stride == 2 && w->stride == 2 &&
           h->dilation == 1 && w->dilation == 1 && h->pad <= most && w->pad <= most;
}

/* N channels of a window: the largest of the values that it takes, in the order of their taps, as pool2d.cu takes them.
 * A ReLU before the pooling is applied to the largest value instead. Where that is 0, the index says that no gradient
 * passes, so it need not be the first of several such values. */
template <class T, int N, int RELU>
struct window_best {
    float best[N];
    int won[N];

    /* first: the first tap inside of the image. */
    __device__ __forceinline__ explicit window_best(int first)
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            best[i] = -INFINITY;
            won[i] = first;
        }
    }

    /* v as it is before it is stored. Values that are not inside of the image are repetitions of others. */
    __device__ __forceinline__ void take(const float (&v)[N], int tap, bool inside)
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            float stored = lk__bn_stored<T>(v[i]);
            bool tops = inside & (best[i] == best[i]) & !(stored <= best[i]);
            won[i] = tops ? tap : won[i];
            best[i] = tops ? stored : best[i];
        }
    }

    template <class P>
    __device__ __forceinline__ void finish(int at, P &y, unsigned &bytes) const
    {
        float out[N];
        bytes = 0;
#pragma unroll
        for (int i = 0; i < N; i++) {
            bool none = RELU != LK_BN_RELU_NONE && best[i] <= 0.0f;
            out[i] = none ? 0.0f : best[i];
            bytes |= (none ? (unsigned)LK_POOL2D_NO_GRADIENT : (unsigned)won[i]) << 8 * i;
        }
        y.set(at, out);
    }
};

/* bf16 with a ReLU takes fewer instructions: of values above 0, and of NaN, which are above all of them, the order is
 * that of their bits as integers. A value's bits are followed by a code that is larger for earlier taps. */
template <>
struct window_best<lk_bf16, 4, LK_BN_RELU_PLAIN> {
    enum { FIRST = 15, OUTSIDE = 0 }; /* codes: of tap 0; of a repetition, below that of each tap */
    int best[4];

    __device__ __forceinline__ explicit window_best(int)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            best[i] = INT_MIN;
    }

    __device__ __forceinline__ void take(const float (&v)[4], int tap, bool inside)
    {
        unsigned code = inside ? (unsigned)(FIRST - tap) : (unsigned)OUTSIDE;
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            unsigned pair = lk__cuda_pack_pair(v + i);
            best[i] = max(best[i], (int)(pair << 16 | code));
            best[i + 1] = max(best[i + 1], (int)((pair & 0xffff0000u) | code));
        }
    }

    __device__ __forceinline__ void finish(int at, lk_packed<lk_bf16, 8> &y, unsigned &bytes) const
    {
        unsigned bits[4];
        bytes = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bool none = best[i] < 1 << 16; /* 0, or less */
            bits[i] = none ? 0u : (unsigned)best[i];
            bytes |= (none ? (unsigned)LK_POOL2D_NO_GRADIENT : FIRST - (bits[i] & 15)) << 8 * i;
        }
        y.words[at / 2] = bits[0] >> 16 | (bits[1] & 0xffff0000u);
        y.words[at / 2 + 1] = bits[2] >> 16 | (bits[3] & 0xffff0000u);
    }
};

/* The pixels of a window, and which of them are inside of the image. The others are replaced by the window's first row
 * or column inside. */
template <int K>
struct window_pixels {
    int y, x; /* of tap 0 */
    bool inside_y[K], inside_x[K];

    __device__ __forceinline__ window_pixels(const lk_bn_pool &p, const lk_bn_place &at)
        : y(2 * at.y - p.pad_h), x(2 * at.x - p.pad_w)
    {
#pragma unroll
        for (int k = 0; k < K; k++) {
            inside_y[k] = (unsigned)(y + k) < (unsigned)p.h;
            inside_x[k] = (unsigned)(x + k) < (unsigned)p.w;
        }
    }

    __device__ __forceinline__ bool inside(int tap) const
    {
        return inside_y[tap / K] & inside_x[tap % K];
    }

    __device__ __forceinline__ size_t pixel(const lk_bn_pool &p, unsigned sample, int tap) const
    {
        int row = inside_y[tap / K] ? y + tap / K : max(y, 0), column = inside_x[tap % K] ? x + tap % K : max(x, 0);
        return lk__bn_pixel(p, sample, row, column);
    }

    __device__ __forceinline__ int first() const
    {
        return max(-y, 0) * K + max(-x, 0);
    }
};

/* N channels from `at` on; own is where the thread's channels begin in the rows. */
template <int K, int RELU, class T, int V>
static __device__ __forceinline__ void pool_channels(const float *own, int width, int at,
                                                     const window_pixels<K> &window, const lk_packed<T, V> (&x)[K * K],
                                                     lk_packed<T, V> &y, unsigned &bytes)
{
    constexpr int N = lk_packed<T, V>::N;
    float mean[N], scale[N], gamma[N], beta[N];
    window_best<T, N, RELU> best(window.first());
    lk__cuda_load(own + LK_BN_Y_MEAN * width + at, mean);
    lk__cuda_load(own + LK_BN_Y_SCALE * width + at, scale);
    lk__cuda_load(own + LK_BN_Y_GAMMA * width + at, gamma);
    lk__cuda_load(own + LK_BN_Y_BETA * width + at, beta);
#pragma unroll
    for (int tap = 0; tap < K * K; tap++) {
        float v[N];
        x[tap].get(at, v);
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = fmaf((v[i] - mean[i]) * scale[i], gamma[i], beta[i]);
        best.take(v, tap, window.inside(tap));
    }
    best.finish(at, y, bytes);
}

/* A thread has V channels of one window, whose pixels it loads together. */
template <class T, int V, int K, int RELU>
static __global__ void __launch_bounds__(LK_THREADS)
    pooled_forward(const __grid_constant__ lk_bn_tiling t, const __grid_constant__ lk_bn_runs r,
                   const __grid_constant__ lk_bn_sources from, const __grid_constant__ lk_bn_pool p,
                   const T *__restrict__ x, T *__restrict__ y, uint8_t *__restrict__ index)
{
    lk__cuda_await();
    constexpr int N = lk_packed<T, V>::N;
    extern __shared__ __align__(16) float shared[];
    uint32_t begin = lk__bn_pass_begin(t, r, (uint32_t)t.rows), end = r.begin[lk__bn_run_index(t) + 1];
    if (begin >= end)
        return;
    lk_bn_spot s = lk__bn_spot<V>(t, begin, end);
    bool has = s.channel >= 0 && s.pixel < end;
    int channel = max(s.channel, 0);
    lk_bn_place at = lk__bn_place(p, has ? s.pixel : begin);
    window_pixels<K> window(p, at);
    lk_packed<T, V> v[K * K], out;
    lk_bn_winners<V> won;
#pragma unroll
    for (int tap = 0; tap < K * K; tap++)
        v[tap].load(x + window.pixel(p, at.sample, tap) * (size_t)t.pitch + channel);
    lk__bn_fill_y<V>(t, from, shared);
#pragma unroll
    for (int i = 0; i < V; i += N)
        pool_channels<K, RELU>(shared + s.column * V, t.columns * V, i, window, v, out, won.words[i / 4]);
    if (!has)
        return;
    out.store(y + (size_t)s.pixel * t.pitch + channel);
    won.store(index + (size_t)s.pixel * t.pitch + channel);
}

template <int K_>
struct pool_kind {
    static constexpr int K = K_;
};

/* Calls f with the pool_kind of desc. */
template <class F>
static void by_pool(const lk_batchnorm_desc *desc, F f)
{
    if (lk__bn_pool_by_2(desc->pool))
        f(pool_kind<2>());
    else
        f(pool_kind<3>());
}

template <class T, int V, int K>
static void run_forward(cudaStream_t stream, const lk_bn_runs &r, const lk_bn_sources &from,
                        const lk_batchnorm_desc *desc, const lk_bn_pool &p, const lk_tensor *x, lk_tensor *y)
{
    lk_bn_tiling t = lk__bn_tiling(x, V);
    dim3 grid = lk__bn_pass_grid(t, r, (uint32_t)t.rows);
    size_t bytes = LK_BN_Y_ROWS * (size_t)t.columns * V * sizeof(float);
    auto kernel = desc->relu ? pooled_forward<T, V, K, LK_BN_RELU_PLAIN> : pooled_forward<T, V, K, LK_BN_RELU_NONE>;
    if (grid.x > 0)
        lk__cuda_follow({grid, lk__bn_threads(t), bytes, stream}, kernel, t, r, from, p, (const T *)x->data,
                        (T *)y->data, desc->index);
}

void lk__cuda_batchnorm_pool_forward(lk_device *dev, const lk_batchnorm_desc *desc, const lk_tensor *x,
                                     const lk_shards *shards, const lk_moments *moments, lk_tensor *y)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    size_t oh = y->shape.h, ow = y->shape.w;
    lk_bn_pool p = lk__bn_pool(desc->pool, x, y, oh, ow);
    lk__bn_by_groups(x->shape.n, oh * ow, shards, moments, [&](const lk_bn_runs &r, int group) {
        lk_bn_sources from = lk__bn_sources(desc, moments, group, x->shape.c);
        lk__cuda_by_kind(x, [&](auto kind) {
            by_pool(desc, [&](auto pool) {
                using K = decltype(kind);
                run_forward<typename K::T, K::V, decltype(pool)::K>(stream, r, from, desc, p, x, y);
            });
        });
    });
    lk__cuda_launched(dev, "batchnorm_forward");
}

/* A square: 2x2 pixels. With 2x2 windows it is one window. With 3x3 windows, along an axis it is spanned by two: the
 * first has tap 1 at the first pixel and tap 2 at the second, the next has tap 0 at the second. */
template <int K>
struct square {
    static constexpr int WINDOWS = K == 2 ? 1 : 4;
    int y, x;   /* of the first pixel */
    int wy, wx; /* of the first window */

    __device__ __forceinline__ square(const lk_bn_pool &p, const lk_bn_place &at)
        : y(2 * at.y), x(2 * at.x), wy(at.y), wx(at.x)
    {
        if (K == 3) {
            y += p.pad_h - 1, x += p.pad_w - 1;
            wy += p.pad_h - 1, wx += p.pad_w - 1;
        }
    }

    /* Rows, or columns, of the grid of squares. */
    static size_t along(size_t size, size_t pad)
    {
        return K == 2 ? (size + 1) / 2 : (size + 2 - pad) / 2;
    }

    /* The tap of window j at pixel k; -1: none. */
    static __device__ constexpr int tap(int j, int k)
    {
        if (K == 2)
            return k;
        int ty = j / 2 == 0 ? 1 + k / 2 : k / 2 - 1, tx = j % 2 == 0 ? 1 + k % 2 : k % 2 - 1;
        return ty < 0 || tx < 0 ? -1 : ty * 3 + tx;
    }

    __device__ __forceinline__ bool has_window(const lk_bn_pool &p, int j) const
    {
        return (unsigned)(wy + j / 2) < (unsigned)p.oh && (unsigned)(wx + j % 2) < (unsigned)p.ow;
    }

    __device__ __forceinline__ bool has_pixel(const lk_bn_pool &p, int k) const
    {
        return (unsigned)(y + k / 2) < (unsigned)p.h && (unsigned)(x + k % 2) < (unsigned)p.w;
    }
};

/* The gradients of a square's windows. */
template <class T, int V, int K>
struct square_grads {
    static constexpr int N = lk_packed<T, V>::N;
    lk_packed<T, V> dy[square<K>::WINDOWS];
    lk_bn_winners<V> won[square<K>::WINDOWS];

    __device__ __forceinline__ void load(const lk_bn_pool &p, const lk_bn_place &at, const square<K> &sq, size_t pitch,
                                         int channel, const T *from, const uint8_t *index)
    {
#pragma unroll
        for (int j = 0; j < square<K>::WINDOWS; j++) {
            bool has = sq.has_window(p, j);
            size_t offset = has ? lk__bn_window(p, at.sample, sq.wy + j / 2, sq.wx + j % 2) * pitch : 0;
            dy[j].load(from + offset + channel);
            won[j].load(index + offset + channel);
#pragma unroll
            for (unsigned &word : won[j].words)
                word = has ? word : lk__bn_taps(LK_BN_NO_TAP);
        }
    }

    /* Of N channels of pixel k, from `at` on, as maxpool_grad_input stores it. */
    __device__ __forceinline__ void of_pixel(const lk_bn_pool &p, int k, int at, float (&sum)[N]) const
    {
#pragma unroll
        for (float &v : sum)
            v = 0.0f;
#pragma unroll
        for (int j = 0; j < square<K>::WINDOWS; j++) {
            const int tap = square<K>::tap(j, k);
            float v[N];
            if (tap < 0)
                continue;
            dy[j].get(at, v);
#pragma unroll
            for (int i = 0; i < N; i++) {
                float more = K == 2 ? p.zero + v[i] : sum[i] + v[i];
                sum[i] = lk__bn_won(won[j].words[at / 4], lk__bn_taps(tap), i) ? more : sum[i];
            }
        }
#pragma unroll
        for (float &v : sum)
            v = lk__bn_stored<T>(v);
    }
};

/* N channels of the pixels of a square, from `at` on; x becomes dx. */
template <class T, int V, int K>
static __device__ __forceinline__ void differentiate(const float *own, int width, int at, const lk_bn_pool &p,
                                                     const square_grads<T, V, K> &grads, lk_packed<T, V> (&x)[4])
{
    constexpr int N = lk_packed<T, V>::N;
    float mean[N], scale[N], factor[N], shift[N], slope[N];
    lk__cuda_load(own + LK_BN_DX_MEAN * width + at, mean);
    lk__cuda_load(own + LK_BN_DX_SCALE * width + at, scale);
    lk__cuda_load(own + LK_BN_DX_FACTOR * width + at, factor);
    lk__cuda_load(own + LK_BN_DX_SHIFT * width + at, shift);
    lk__cuda_load(own + LK_BN_DX_SLOPE * width + at, slope);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float v[N], d[N];
        x[k].get(at, v);
        grads.of_pixel(p, k, at, d);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float xhat = (v[i] - mean[i]) * scale[i];
            d[i] = factor[i] * fmaf(xhat, slope[i], d[i] - shift[i]);
        }
        x[k].set(at, d);
    }
}

/* A thread has V channels of one square. */
template <class T, int V, int K>
static __global__ void __launch_bounds__(LK_THREADS)
    pooled_grad(const __grid_constant__ lk_bn_tiling t, const __grid_constant__ lk_bn_runs r,
                const __grid_constant__ lk_bn_sources from, const __grid_constant__ lk_bn_counts counts,
                const __grid_constant__ lk_bn_pool p, const T *__restrict__ x, const T *__restrict__ dy,
                const uint8_t *__restrict__ index, T *__restrict__ dx)
{
    lk__cuda_await();
    extern __shared__ __align__(16) float shared[];
    uint32_t begin = lk__bn_pass_begin(t, r, (uint32_t)t.rows), end = r.begin[lk__bn_run_index(t) + 1];
    if (begin >= end)
        return;
    lk_bn_spot s = lk__bn_spot<V>(t, begin, end);
    bool has = s.channel >= 0 && s.pixel < end;
    int channel = max(s.channel, 0);
    lk_bn_place at = lk__bn_place(p, has ? s.pixel : begin);
    square<K> sq(p, at);
    lk_packed<T, V> v[4];
    square_grads<T, V, K> grads;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int row = min(max(sq.y + k / 2, 0), p.h - 1), column = min(max(sq.x + k % 2, 0), p.w - 1);
        v[k].load(x + lk__bn_pixel(p, at.sample, row, column) * t.pitch + channel);
    }
    grads.load(p, at, sq, (size_t)t.pitch, channel, dy, index);
    lk__bn_fill_dx<V>(t, from, counts, shared);
#pragma unroll
    for (int i = 0; i < V; i += lk_packed<T, V>::N)
        differentiate(shared + s.column * V, t.columns * V, i, p, grads, v);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (has && sq.has_pixel(p, k))
            v[k].store(dx + lk__bn_pixel(p, at.sample, sq.y + k / 2, sq.x + k % 2) * t.pitch + channel);
    }
}

/* The arguments of the slot. */
struct grad_call {
    cudaStream_t stream;
    const lk_batchnorm_desc *desc;
    const lk_batchnorm_grad *grad;
    const lk_tensor *x, *dy;
    const lk_shards *shards;
    const lk_moments *moments;
    lk_tensor *dx;
};

template <class T, int V, int K>
static void run_grad(const grad_call &call)
{
    const lk_tensor *x = call.x;
    const lk_window *h = &call.desc->pool->h, *w = &call.desc->pool->w;
    size_t height = square<K>::along(x->shape.h, h->pad), width = square<K>::along(x->shape.w, w->pad);
    lk_bn_pool p = lk__bn_pool(call.desc->pool, x, call.dy, height, width);
    lk_bn_tiling t = lk__bn_tiling(x, V);
    size_t bytes = LK_BN_DX_ROWS * (size_t)t.columns * V * sizeof(float);
    lk__bn_by_groups(x->shape.n, height * width, call.shards, call.moments, [&](const lk_bn_runs &r, int group) {
        lk_bn_counts counts = lk__bn_counts(call.grad->rows, group, call.moments->groups, x->shape.h * x->shape.w);
        lk_bn_sources from = lk__bn_sources(call.desc, call.moments, group, x->shape.c);
        dim3 grid = lk__bn_pass_grid(t, r, (uint32_t)t.rows);
        from.sums = call.grad->sums + (size_t)group * 2 * x->shape.c;
        if (grid.x > 0)
            lk__cuda_follow({grid, lk__bn_threads(t), bytes, call.stream}, pooled_grad<T, V, K>, t, r, from, counts, p,
                            (const T *)x->data, (const T *)call.dy->data, (const uint8_t *)call.desc->index,
                            (T *)call.dx->data);
    });
}

void lk__cuda_batchnorm_pool_grad(lk_device *dev, const lk_batchnorm_desc *desc, const lk_batchnorm_grad *grad,
                                  const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                                  const lk_moments *moments, lk_tensor *dx)
{
    grad_call call = {lk__cuda_ahead(dev), desc, grad, x, dy, shards, moments, dx};
    lk__cuda_by_kind(x, [&](auto kind) {
        by_pool(desc, [&](auto pool) {
            using K = decltype(kind);
            run_grad<typename K::T, K::V, decltype(pool)::K>(call);
        });
    });
    lk__cuda_launched(dev, "batchnorm_grad_input");
}
