/* batchnorm.cu - batch normalisation: the statistics of each shard, their merging over the sum tree, and the
 * moments. batchnorm_sums.cu has the sums of the backward pass, batchnorm_pass.cu the passes over pixels.
 *
 * A block sums squared deviations from its first pixel. Over m values their error is at most about m roundings,
 * whatever the mean is. */
#include "tensor/cuda/kernels/batchnorm_fold.cuh"

/* A thread's result for its pixels: sums of deviations, then of their squares. */
template <int V>
struct deviations {
    float from[V], sums[2 * V];
};

template <class T, int V>
static __device__ void add_deviation(const lk_packed<T, V> &x, deviations<V> &d)
{
    float v[V];
    x.get_all(v);
#pragma unroll
    for (int i = 0; i < V; i++) {
        float away = v[i] - d.from[i];
        d.sums[i] += away;
        d.sums[V + i] = fmaf(away, away, d.sums[V + i]);
    }
}

/* AT_ONCE loads are issued together. A pixel beyond the end repeats the block's first one, whose deviation is 0. */
template <class T, int V>
static __device__ void add_deviations(const lk_bn_tiling &t, const lk_bn_spot &s, uint32_t begin, const T *x,
                                      deviations<V> &d)
{
    constexpr int AT_ONCE = LK_BN_LEAST;
    lk_packed<T, V> first;
    first.load(x + lk__bn_offset(t, s, begin, begin));
    for (uint32_t p = s.pixel; p < s.end; p += (uint32_t)(AT_ONCE * t.rows)) {
        lk_packed<T, V> v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            v[k].load(x + lk__bn_offset(t, s, begin, p + (uint32_t)(k * t.rows)));
        first.get_all(d.from);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            add_deviation(v[k], d);
    }
}

template <class T, int V>
static __global__ void __launch_bounds__(LK_THREADS, LK_BN_RESIDENT)
    stats_blocks(lk_bn_tiling t, lk_bn_runs r, const T *x, uint32_t spans, float *parts)
{
    lk__cuda_await();
    extern __shared__ __align__(16) float shared[];
    lk_bn_range range = lk__bn_range(t, r);
    if (range.begin == range.end)
        return;
    lk_bn_spot s = lk__bn_spot<V>(t, range.begin, range.end);
    deviations<V> d = {};
    add_deviations(t, s, range.begin, x, d);
    lk__bn_sum_rows(t, s, shared, d.sums);
    if (s.row > 0 || s.channel < 0)
        return;
    float mean[V], squares[V], count = (float)(range.end - range.begin);
#pragma unroll
    for (int i = 0; i < V; i++) {
        float shift = d.sums[i] / count;
        mean[i] = d.from[i] + shift;
        squares[i] = fmaxf(fmaf(-d.sums[i], shift, d.sums[V + i]), 0.0f);
    }
    float *part = lk__bn_part<2>(parts, t, lk__bn_run_index(t), spans, lk__bn_block(t));
    lk__bn_store_pairs(part + 2 * s.channel, mean, squares);
}

/* Chan's formula for entries of mean (x) and M2 (y). */
static __device__ __forceinline__ float2 merge_stats(const lk_bn_merge &how, float2 left, float2 right)
{
    float delta = right.x - left.x;
    if (how.empty)
        return make_float2(0.0f, 0.0f);
    return make_float2(fmaf(delta, how.mean_weight, left.x), fmaf(delta * delta, how.square_weight, left.y + right.y));
}

static __global__ void __launch_bounds__(LK_BN_FOLD_WARPS *LK_WARP)
    fold_stats(const __grid_constant__ lk_bn_merges m, int count, int c, const float *stats, lk_partials partials)
{
    lk__cuda_await();
    __shared__ lk_bn_fold fold;
    int channel = lk__bn_fold_channel();
    fold.begin(m, c, partials);
    for (int shard = lk__bn_fold_warp(); shard < count; shard += (int)(blockDim.y * blockDim.z)) {
        const float *entry = stats + (size_t)shard * 2 * (size_t)c + channel;
        if (lk__bn_fold_row() == 0 && channel < c)
            fold.nodes[m.depth + shard][lk__bn_fold_lane()] = make_float2(entry[0], entry[c]);
    }
    __syncthreads();
    if (lk__bn_fold_warp() > 0)
        return;
    fold.run(m, merge_stats);
    if (channel < c)
        fold.store(m, c, partials);
}

static __device__ float inverse_root(float squares, float count, float eps)
{
    return 1.0f / sqrtf(squares / count + eps);
}

/* The moments of one channel of a group with this many elements. */
static __device__ void write_moments(float2 entry, float count, float eps, float *mean, float *scale)
{
    *mean = count > 0 ? entry.x : 0.0f;
    *scale = count > 0 ? inverse_root(entry.y, count, eps) : 0.0f;
}

/* Results of a launch; as lk_batchnorm_stats, from the launch's first run on. */
struct stats_results {
    float *stats;
    lk_partials partials;
    float *mean, *scale; /* NULL: not wanted */
    bool by_shard;
    float eps;
    lk_bn_counts counts; /* elements of the groups */
};

enum { CHAINS = LK_BN_FOLD_GROUP };

static __device__ __forceinline__ float add_chains(const float (&v)[CHAINS])
{
    return lk__bn_add_rows((v[0] + v[1]) + (v[2] + v[3]));
}

/* The mean and M2 of shards; deviations of blocks' means are taken from a number close to the mean. */
struct stats_leaf {
    const lk_bn_pieces &pieces;
    const lk_bn_merges &m;
    const stats_results &out;
    lk_bn_fold &fold;
    int c;

    /* The last block of a shard may have fewer pixels than the others. */
    __device__ float2 sum(const lk_bn_piece<2> &p) const
    {
        float v[LK_BN_FOLD_AT_ONCE][2], sums[CHAINS] = {}, away[CHAINS] = {}, square[CHAINS] = {};
        float share = 1.0f / (float)max(p.pixels(), 1u), span = (float)p.span;
        float known = 1.0f / (float)max(min(p.end - p.begin, (uint32_t)LK_BN_FOLD_STEP), 1u);
        p.load(p.begin, v);
        fold.begin(m, c, out.partials); // while the loads are under way
        p.for_loads(p.begin, [&](int k) { sums[k % CHAINS] += v[k][0]; });
        float from = add_chains(sums) * known;
#pragma unroll 1
        for (uint32_t first = p.begin; first < p.end;) {
            p.for_loads(first, [&](int k) {
                uint32_t b = p.block(first, k);
                float delta = v[k][0] - from, pixels = b + 1 < p.blocks ? span : (float)p.rest;
                float weighted = b < p.end ? pixels * delta : 0.0f;
                away[k % CHAINS] += weighted;
                square[k % CHAINS] += fmaf(weighted, delta, v[k][1]);
            });
            first += LK_BN_FOLD_STEP;
            if (first < p.end)
                p.load(first, v);
        }
        float sum = add_chains(away), shift = sum * share, m2 = fmaf(-sum, shift, add_chains(square));
        return make_float2(from + shift, m2 < 0.0f ? 0.0f : m2);
    }

    __device__ float2 join(const lk_bn_piece<2> &p, const float2 (*results)[LK_BN_FOLD_CHANNELS]) const
    {
        int lane = lk__bn_fold_lane();
        double count = 0, mean = 0, m2 = 0;
#pragma unroll 1
        for (int i = 0; i < pieces.count; i++) {
            double pixels = (double)p.at(pieces, i).pixels();
            count += pixels;
            mean += pixels * (double)results[i][lane].x;
        }
        mean /= count > 0 ? count : 1.0;
#pragma unroll 1
        for (int i = 0; i < pieces.count; i++) {
            double away = (double)results[i][lane].x - mean;
            m2 += (double)results[i][lane].y + (double)p.at(pieces, i).pixels() * (away * away);
        }
        return make_float2((float)mean, (float)m2);
    }

    __device__ void store(uint32_t run, int channel, float2 v) const
    {
        size_t at = (size_t)run * (size_t)c + (size_t)channel;
        fold.nodes[m.depth + (int)run][lk__bn_fold_lane()] = v;
        out.stats[at + (size_t)run * (size_t)c] = v.x;
        out.stats[at + (size_t)(run + 1) * (size_t)c] = v.y;
        if (out.mean && out.by_shard)
            write_moments(v, out.counts.of[run], out.eps, out.mean + at, out.scale + at);
    }
};

/* All that follows after the blocks: stats, partials and moments. */
static __global__ void __launch_bounds__(LK_BN_FOLD_WARPS *LK_WARP, 2)
    finish_stats(const __grid_constant__ lk_bn_tiling t, const __grid_constant__ lk_bn_runs r, uint32_t spans,
                 const __grid_constant__ lk_bn_pieces pieces, const float *parts,
                 const __grid_constant__ lk_bn_merges m, const __grid_constant__ stats_results out)
{
    lk__cuda_await();
    __shared__ lk_bn_fold fold;
    int channel = lk__bn_fold_channel();
    lk__bn_leaves<2>(t, r, spans, pieces, parts, stats_leaf{pieces, m, out, fold, t.c});
    __syncthreads();
    if (lk__bn_fold_warp() > 0 || !out.partials.slot0)
        return;
    fold.run(m, merge_stats);
    if (channel >= t.c)
        return;
    fold.store(m, t.c, out.partials);
    if (out.mean && !out.by_shard && lk__bn_fold_row() == 0)
        write_moments(fold.entry(m, t.c, out.partials, 0), out.counts.of[0], out.eps, out.mean + channel,
                      out.scale + channel);
}

/* The results of shards [first, first + count). Moments of all shards together follow after the last one. */
static stats_results results_of(const lk_batchnorm_stats *out, const lk_tensor *x, int first, int count, bool last)
{
    size_t c = x->shape.c, pixels = x->shape.h * x->shape.w;
    stats_results results = {};
    results.stats = out->stats + (size_t)first * 2 * c;
    results.partials = out->partials;
    results.by_shard = out->by_shard;
    results.eps = out->eps;
    if (!out->moments || !(out->by_shard || last))
        return results;
    size_t group = out->by_shard ? (size_t)first : 0;
    results.mean = out->moments->mean + group * c;
    results.scale = out->moments->scale + group * c;
    results.counts = lk__bn_counts(out->rows, (int)group, out->by_shard ? first + count : 1, pixels);
    return results;
}

template <class T, int V>
static void run_stats(lk_device *dev, const lk_tensor *x, const lk_shards *shards, const lk_batchnorm_stats *out)
{
    size_t pixels = x->shape.h * x->shape.w;
    lk_bn_tiling t = lk__bn_sum_tiling(x, V, shards);
    lk_bn_pieces pieces = lk__bn_pieces(t, shards, pixels);
    cudaStream_t stream = lk__cuda_stream(dev);
    float *parts = (float *)lk__cuda_scratch(dev, lk__bn_parts_bytes<2>(t, shards, pixels));
    if (!parts)
        return;
    unsigned threads = lk__bn_threads(t);
    lk_bn_stack stack = lk__bn_stack(shards);
    for (int first = 0; first < shards->count; first += LK_BN_RUNS) {
        lk_bn_runs r = lk__bn_runs(shards, first, pixels);
        uint32_t spans = lk__bn_most_spans(t, r);
        lk_bn_merges m = lk__bn_merges(shards, first, pixels, &stack);
        stats_results results = results_of(out, x, first, r.count, first + r.count == shards->count);
        if (spans > 0)
            lk__cuda_follow({lk__bn_grid(t, spans, r.count), threads, threads * 2 * V * sizeof(float), stream},
                            stats_blocks<T, V>, t, r, (const T *)x->data, spans, parts);
        lk__cuda_follow({lk__bn_fold_blocks(t.c), lk__bn_fold_threads(pieces, r), 0, stream}, finish_stats, t, r, spans,
                        pieces, parts, m, results);
    }
}

void lk__cuda_batchnorm_stats(lk_device *dev, const lk_tensor *x, const lk_shards *shards,
                              const lk_batchnorm_stats *out)
{
    lk__cuda_by_kind(x, [&](auto kind) {
        using K = decltype(kind);
        run_stats<typename K::T, K::V>(dev, x, shards, out);
    });
    lk__cuda_launched(dev, "batchnorm_stats");
}

void lk__cuda_batchnorm_fold(lk_device *dev, size_t c, size_t pixels, const lk_shards *shards, const float *stats,
                             lk_partials moments)
{
    lk_bn_stack stack = lk__bn_stack(shards);
    cudaStream_t stream = lk__cuda_stream(dev);
    for (int first = 0; first < shards->count; first += LK_BN_RUNS) {
        lk_bn_merges m = lk__bn_merges(shards, first, pixels, &stack);
        int count = shards->count - first < LK_BN_RUNS ? shards->count - first : (int)LK_BN_RUNS;
        unsigned warps = (unsigned)(count < LK_BN_FOLD_WARPS ? count : (int)LK_BN_FOLD_WARPS);
        lk__cuda_follow({lk__bn_fold_blocks((int)c), dim3(LK_WARP, warps), 0, stream}, fold_stats, m, count, (int)c,
                        stats + (size_t)first * 2 * c, moments);
    }
    lk__cuda_launched(dev, "batchnorm_fold");
}

static __global__ void make_moments(lk_bn_counts k, size_t c, const float *stats, float eps, float *mean, float *scale)
{
    lk__cuda_await();
    size_t i = lk__cuda_thread(), g = blockIdx.y, at = g * c + i;
    if (i < c)
        write_moments(make_float2(stats[at + g * c], stats[at + (g + 1) * c]), k.of[g], eps, mean + at, scale + at);
}

void lk__cuda_batchnorm_moments(lk_device *dev, size_t c, size_t pixels, const float *stats, const size_t *rows,
                                float eps, lk_moments *moments)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    for (int first = 0; first < moments->groups; first += LK_BN_RUNS) {
        int count = moments->groups - first < LK_BN_RUNS ? moments->groups - first : (int)LK_BN_RUNS;
        lk_bn_counts k = lk__bn_counts(rows, first, moments->groups, pixels);
        size_t at = (size_t)first * c;
        lk__cuda_follow({dim3(lk__cuda_blocks(c), (unsigned)count), LK_THREADS, 0, stream}, make_moments, k, c,
                        stats + 2 * at, eps, moments->mean + at, moments->scale + at);
    }
    lk__cuda_launched(dev, "batchnorm_moments");
}

static __global__ void running_moments(size_t c, const float *mean, const float *variance, float eps, float *to_mean,
                                       float *to_scale)
{
    lk__cuda_await();
    size_t i = lk__cuda_thread();
    if (i >= c)
        return;
    to_mean[i] = mean[i];
    to_scale[i] = inverse_root(variance[i], 1.0f, eps);
}

void lk__cuda_batchnorm_running_moments(lk_device *dev, size_t c, const float *mean, const float *variance, float eps,
                                        lk_moments *moments)
{
    lk__cuda_follow({lk__cuda_blocks(c), LK_THREADS, 0, lk__cuda_stream(dev)}, running_moments, c, mean, variance, eps,
                    moments->mean, moments->scale);
    lk__cuda_launched(dev, "batchnorm_running_moments");
}

enum { UPDATES = 64 }; /* layers of a launch, whose description is an argument of the kernel */

struct running_updates {
    lk_batchnorm_update of[UPDATES];
};

/* Blocks (x, i) have layer i. */
static __global__ void running_update(const __grid_constant__ running_updates updates, const lk_flag *flag)
{
    lk__cuda_await();
    const lk_batchnorm_update &u = updates.of[blockIdx.y];
    size_t i = lk__cuda_thread();
    if (i >= u.c || (flag && flag->bad))
        return;
    float old = 1.0f - u.momentum;
    if (u.elements > 0)
        u.mean[i] = fmaf(u.momentum, u.entry[i], old * u.mean[i]);
    if (u.elements > 1)
        u.variance[i] = fmaf(u.momentum, u.entry[u.c + i] / (float)(u.elements - 1), old * u.variance[i]);
}

void lk__cuda_batchnorm_running_update(lk_device *dev, size_t count, const lk_batchnorm_update *updates,
                                       const lk_flag *flag)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    for (size_t first = 0; first < count; first += UPDATES) {
        running_updates some = {};
        unsigned layers = (unsigned)(count - first < UPDATES ? count - first : (size_t)UPDATES);
        size_t most = 1;
        for (unsigned i = 0; i < layers; i++) {
            some.of[i] = updates[first + i];
            most = some.of[i].c > most ? some.of[i].c : most;
        }
        lk__cuda_follow({dim3(lk__cuda_blocks(most), layers), LK_THREADS, 0, stream}, running_update, some, flag);
    }
    lk__cuda_launched(dev, "batchnorm_running_update");
}
