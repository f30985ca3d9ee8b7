/* bias_rows.cu - a bias for each channel, for layers whose products do not add it; and the sums of dy for all shards at
 * once, summed as the sums of batch normalisation. */
#include "tensor/cuda/kernels/batchnorm_fold.cuh"

template <class T>
static __global__ void add(size_t count, size_t c, size_t pitch, const float *b, T *y)
{
    lk__cuda_await();
    size_t i = lk__cuda_thread();
    if (i < count && i % pitch < c)
        y[i] = (T)((float)y[i] + b[i % pitch]);
}

extern "C" void lk__cuda_bias_add(lk_device *dev, const float *b, lk_tensor *y)
{
    size_t count = lk__cuda_elements(y);
    if (count == 0)
        return;
    cudaStream_t stream = lk__cuda_stream(dev);
    lk__cuda_by_dtype(y->dtype, [&](auto kind) {
        using T = typename decltype(kind)::T;
        lk__cuda_follow({lk__cuda_blocks(count), LK_THREADS, 0, stream}, add<T>, count, y->shape.c, lk__tensor_pitch(y),
                        b, (T *)y->data);
    });
    lk__cuda_launched(dev, "bias_add");
}

template <class T, int V>
static __global__ void __launch_bounds__(LK_THREADS, LK_BN_RESIDENT)
    sum_blocks(lk_bn_tiling t, lk_bn_runs r, const T *dy, uint32_t spans, float *parts)
{
    lk__cuda_await();
    constexpr int AT_ONCE = LK_BN_LEAST;
    extern __shared__ __align__(16) float shared[];
    lk_bn_range range = lk__bn_range(t, r);
    if (range.begin == range.end)
        return;
    lk_bn_spot s = lk__bn_spot<V>(t, range.begin, range.end);
    float sums[V] = {};
    for (uint32_t p = s.pixel; p < s.end; p += (uint32_t)(AT_ONCE * t.rows)) {
        lk_packed<T, V> v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            v[k].load(dy + lk__bn_offset(t, s, range.begin, p + (uint32_t)(k * t.rows)));
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            float values[V];
            v[k].get_all(values);
#pragma unroll
            for (int i = 0; i < V; i++)
                sums[i] += p + (uint32_t)(k * t.rows) < s.end ? values[i] : 0.0f;
        }
    }
    lk__bn_sum_rows(t, s, shared, sums);
    if (s.row == 0 && s.channel >= 0)
        lk__cuda_store(lk__bn_part<1>(parts, t, lk__bn_run_index(t), spans, lk__bn_block(t)) + s.channel, sums);
}

struct bias_leaf {
    const lk_bn_pieces &pieces;
    int c;
    float *leaves; // (runs, c)

    __device__ float2 sum(const lk_bn_piece<1> &p) const
    {
        float sums[1];
        lk__bn_sum_piece(
            p, [] {}, sums);
        return make_float2(sums[0], 0.0f);
    }

    __device__ float2 join(const lk_bn_piece<1> &, const float2 (*results)[LK_BN_FOLD_CHANNELS]) const
    {
        float2 v = results[0][lk__bn_fold_lane()];
        for (int i = 1; i < pieces.count; i++)
            v.x += results[i][lk__bn_fold_lane()].x;
        return v;
    }

    __device__ void store(uint32_t run, int channel, float2 v) const
    {
        leaves[(size_t)run * (size_t)c + (size_t)channel] = v.x;
    }
};

static __global__ void __launch_bounds__(LK_BN_FOLD_WARPS *LK_WARP, 2)
    finish_sums(const __grid_constant__ lk_bn_tiling t, const __grid_constant__ lk_bn_runs r, uint32_t spans,
                const __grid_constant__ lk_bn_pieces pieces, const float *parts, float *leaves)
{
    lk__cuda_await();
    lk__bn_leaves<1>(t, r, spans, pieces, parts, bias_leaf{pieces, t.c, leaves});
}

template <class T, int V>
static void run_sums(lk_device *dev, const lk_tensor *dy, const lk_shards *shards, float *leaves)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    size_t pixels = dy->shape.h * dy->shape.w;
    lk_bn_tiling t = lk__bn_sum_tiling(dy, V, shards);
    lk_bn_pieces pieces = lk__bn_pieces(t, shards, pixels);
    float *parts = (float *)lk__cuda_scratch(dev, lk__bn_parts_bytes<1>(t, shards, pixels));
    if (!parts)
        return;
    unsigned threads = lk__bn_threads(t);
    for (int first = 0; first < shards->count; first += LK_BN_RUNS) {
        lk_bn_runs r = lk__bn_runs(shards, first, pixels);
        uint32_t spans = lk__bn_most_spans(t, r);
        if (spans > 0)
            lk__cuda_follow({lk__bn_grid(t, spans, r.count), threads, threads * V * sizeof(float), stream},
                            sum_blocks<T, V>, t, r, (const T *)dy->data, spans, parts);
        lk__cuda_follow({lk__bn_fold_blocks(t.c), lk__bn_fold_threads(pieces, r), 0, stream}, finish_sums, t, r, spans,
                        pieces, parts, leaves + (size_t)first * (size_t)t.c);
    }
}

extern "C" void lk__cuda_bias_sums(lk_device *dev, const lk_tensor *dy, const lk_shards *shards, float *leaves)
{
    lk__cuda_by_kind(dy, [&](auto kind) {
        using K = decltype(kind);
        run_sums<typename K::T, K::V>(dev, dy, shards, leaves);
    });
    lk__cuda_launched(dev, "bias_sums");
}
