/* batchnorm_pool_sums.cu - the blocks that sum dy and dy * xhat where dy is the gradient of a max pooling behind a
 * batch normalisation: a thread finds the gradient of each of its pixels in the windows over it. Blocks, threads and
 * the order of their pixels are those of batchnorm_sums.cu. */
#include "tensor/cuda/kernels/batchnorm_pool.cuh"

/* Rows of a block's channels in shared memory. */
enum { ROW_MEAN, ROW_SCALE, ROWS };

template <int V>
static __device__ void fill_rows(const lk_bn_tiling &t, const lk_bn_sources &from, float *rows)
{
    int width = t.columns * V;
    size_t group = from.shared ? 0 : (size_t)lk__bn_run_index(t) * t.c;
    lk__bn_for_channels<V>(t, [&](int i, int channel) {
        bool used = channel < t.c;
        rows[ROW_MEAN * width + i] = used ? from.mean[group + channel] : 0.0f;
        rows[ROW_SCALE * width + i] = used ? from.scale[group + channel] : 0.0f;
    });
}

/* A window that may span a pixel, along one axis, and its tap there; tap -1: it does not. */
struct window_over {
    int window, tap;
};

/* 2x2 windows: the only one. 3x3 windows: number j of two, in their order. */
template <int K>
static __device__ __forceinline__ window_over find_window(int pixel, int pad, int windows, int j)
{
    int padded = K == 2 ? pixel : pixel + pad;
    window_over over = {padded / 2, padded % 2};
    if (K == 3 && j == 0)
        over = {padded / 2 - 1, padded % 2 == 0 ? 2 : -1};
    if ((unsigned)over.window >= (unsigned)windows)
        over.tap = -1;
    return over;
}

/* A thread's pixels p, p + rows and so on: AT_ONCE, whose loads it issues together. */
template <class T, int V, int K>
struct pooled_pixels {
    static constexpr int AT_ONCE = K == 2 ? 4 : 2, AXIS = K - 1, WINDOWS = AXIS * AXIS, N = lk_packed<T, V>::N;
    lk_packed<T, V> x[AT_ONCE], dy[AT_ONCE][WINDOWS];
    lk_bn_winners<V> won[AT_ONCE][WINDOWS];
    /* As lk__bn_taps. LK_BN_NO_TAP: there is no such window; of 3x3 windows dy and won are not loaded then. */
    unsigned taps[AT_ONCE][WINDOWS];

    __device__ __forceinline__ void load(const lk_bn_tiling &t, const lk_bn_pool &p, const lk_bn_spot &s,
                                         uint32_t begin, uint32_t first, const T *from_x, const T *from_dy,
                                         const uint8_t *index)
    {
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            uint32_t pixel = first + (uint32_t)(k * t.rows);
            x[k].load(from_x + lk__bn_offset(t, s, begin, pixel));
            lk_bn_place at = lk__bn_place(p, pixel < s.end ? pixel : begin);
#pragma unroll
            for (int j = 0; j < WINDOWS; j++) {
                window_over row = find_window<K>(at.y, p.pad_h, p.oh, j / AXIS);
                window_over column = find_window<K>(at.x, p.pad_w, p.ow, j % AXIS);
                bool has = pixel < s.end && row.tap >= 0 && column.tap >= 0;
                size_t window = has ? lk__bn_window(p, at.sample, row.window, column.window) : 0;
                size_t offset = window * t.pitch + (size_t)max(s.channel, 0);
                taps[k][j] = lk__bn_taps(has ? row.tap * K + column.tap : (int)LK_BN_NO_TAP);
                if (K == 2 || has) {
                    dy[k][j].load(from_dy + offset);
                    won[k][j].load(index + offset);
                }
            }
        }
    }

    /* Of N channels of pixel k, from `at` on, as maxpool_grad_input stores it; 0 if there is no such pixel. */
    __device__ __forceinline__ void get(const lk_bn_pool &p, int k, int at, float (&sum)[N]) const
    {
#pragma unroll
        for (float &v : sum)
            v = 0.0f;
#pragma unroll
        for (int j = 0; j < WINDOWS; j++) {
            float v[N];
            if (K == 3 && taps[k][j] == lk__bn_taps(LK_BN_NO_TAP))
                continue;
            dy[k][j].get(at, v);
#pragma unroll
            for (int i = 0; i < N; i++) {
                float more = K == 2 ? p.zero + v[i] : sum[i] + v[i];
                sum[i] = lk__bn_won(won[k][j].words[at / 4], taps[k][j], i) ? more : sum[i];
            }
        }
#pragma unroll
        for (float &v : sum)
            v = lk__bn_stored<T>(v);
    }
};

/* Adds N channels from `at` on to sums: those of dy, then those of dy * xhat. own is where the thread's channels begin
 * in the rows. */
template <class T, int V, int K>
static __device__ __forceinline__ void add_products(const float *own, int width, int at, const lk_bn_pool &pool,
                                                    const pooled_pixels<T, V, K> &pixels, float (&sums)[2 * V])
{
    constexpr int N = lk_packed<T, V>::N;
    float mean[N], scale[N];
    lk__cuda_load(own + ROW_MEAN * width + at, mean);
    lk__cuda_load(own + ROW_SCALE * width + at, scale);
#pragma unroll
    for (int k = 0; k < pixels.AT_ONCE; k++) {
        float v[N], dy[N];
        pixels.x[k].get(at, v);
        pixels.get(pool, k, at, dy);
#pragma unroll
        for (int i = 0; i < N; i++) {
            sums[at + i] += dy[i];
            sums[V + at + i] = fmaf(dy[i], (v[i] - mean[i]) * scale[i], sums[V + at + i]);
        }
    }
}

/* The spot of this thread. With 3x3 windows the first threads have the rows 0, 2, 4 and so on: in images of even width
 * the pixels of a warp then have the same windows along an image's row. */
template <int V, int K>
static __device__ lk_bn_spot spot_of(const lk_bn_tiling &t, const lk_bn_range &range)
{
    lk_bn_spot s = lk__bn_spot<V>(t, range.begin, range.end);
    if (K == 3) {
        int even = (t.rows + 1) / 2;
        s.row = s.row < even ? 2 * s.row : 2 * (s.row - even) + 1;
        s.pixel = s.channel < 0 ? range.end : range.begin + (uint32_t)s.row;
    }
    return s;
}

/* Blocks on a multiprocessor: eight channels, or four windows, take more than 85 registers. */
template <int V, int K>
constexpr int resident = V == 8 || K == 3 ? LK_BN_RESIDENT - 1 : LK_BN_RESIDENT;

template <class T, int V, int K>
static __global__ void __launch_bounds__(LK_THREADS, (resident<V, K>))
    pooled_sums(const __grid_constant__ lk_bn_tiling t, const __grid_constant__ lk_bn_runs r,
                const __grid_constant__ lk_bn_sources from, const __grid_constant__ lk_bn_pool p,
                const T *__restrict__ x, const T *__restrict__ dy, const uint8_t *__restrict__ index, uint32_t spans,
                float *parts)
{
    lk__cuda_await();
    extern __shared__ __align__(16) float shared[];
    lk_bn_range range = lk__bn_range(t, r);
    if (range.begin == range.end)
        return;
    lk_bn_spot s = spot_of<V, K>(t, range);
    float sums[2 * V] = {};
    pooled_pixels<T, V, K> pixels;
    pixels.load(t, p, s, range.begin, s.pixel, x, dy, index);
    fill_rows<V>(t, from, shared);
    for (uint32_t pixel = s.pixel; pixel < s.end;) {
#pragma unroll
        for (int at = 0; at < V; at += lk_packed<T, V>::N)
            add_products(shared + s.column * V, t.columns * V, at, p, pixels, sums);
        pixel += (uint32_t)(pixels.AT_ONCE * t.rows);
        if (pixel < s.end)
            pixels.load(t, p, s, range.begin, pixel, x, dy, index);
    }
    lk__bn_sum_rows(t, s, shared + ROWS * t.columns * V, sums);
    if (s.row > 0 || s.channel < 0)
        return;
    float first[V], second[V];
#pragma unroll
    for (int i = 0; i < V; i++) {
        first[i] = sums[i];
        second[i] = sums[V + i];
    }
    float *part = lk__bn_part<2>(parts, t, lk__bn_run_index(t), spans, lk__bn_block(t));
    lk__bn_store_pairs(part + 2 * s.channel, first, second);
}

void lk__cuda_batchnorm_pool_sums(cudaStream_t stream, const lk_bn_pool_sums &sums)
{
    const lk_tensor *x = sums.x;
    const lk_bn_tiling &t = *sums.tiling;
    lk_bn_pool p = lk__bn_pool(sums.pool, x, sums.dy, x->shape.h, x->shape.w);
    lk__cuda_by_kind(x, [&](auto kind) {
        using T = typename decltype(kind)::T;
        constexpr int V = decltype(kind)::V;
        unsigned threads = lk__bn_threads(t);
        size_t shared = (ROWS * (size_t)t.columns + 2 * threads) * V * sizeof(float);
        auto kernel = lk__bn_pool_by_2(sums.pool) ? pooled_sums<T, V, 2> : pooled_sums<T, V, 3>;
        lk__cuda_follow({lk__bn_grid(t, sums.spans, sums.runs->count), threads, shared, stream}, kernel, t, *sums.runs,
                        sums.from, p, (const T *)x->data, (const T *)sums.dy->data, sums.index, sums.spans, sums.parts);
    });
}
