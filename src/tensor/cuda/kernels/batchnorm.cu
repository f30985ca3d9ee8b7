/* batchnorm.cu - batch normalisation: the statistics of each shard, their merging over the sum tree, and the
 * moments. batchnorm_pass.cu has the passes over pixels.
 *
 * A thread sums squared deviations from its own first value. Over m values their error is at most about m
 * roundings, whatever the mean is. */
#include "tensor/cuda/kernels/batchnorm.cuh"

/* A thread's result for its pixels: sums of deviations from its first value. */
template <int V>
struct deviations {
    float from[V], sum[V], squares[V];
};

template <class T, int V>
static __device__ void add_deviation(const lk_packed<T, V> &x, deviations<V> &d)
{
    float v[V];
    x.get_all(v);
#pragma unroll
    for (int i = 0; i < V; i++) {
        float away = v[i] - d.from[i];
        d.sum[i] += away;
        d.squares[i] = fmaf(away, away, d.squares[i]);
    }
}

/* AT_ONCE loads are issued together. A pixel beyond the end repeats the first one, whose deviation is 0. */
template <class T, int V>
static __device__ void add_deviations(const lk_bn_tiling &t, const lk_bn_spot &s, const T *x, deviations<V> &d)
{
    constexpr int AT_ONCE = 8;
    for (uint32_t p = s.pixel; p < s.end; p += (uint32_t)(AT_ONCE * t.rows)) {
        lk_packed<T, V> v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            uint32_t at = p + (uint32_t)(k * t.rows);
            v[k].load(x + (size_t)(at < s.end ? at : s.pixel) * t.pitch + s.channel);
        }
        if (p == s.pixel)
            v[0].get_all(d.from);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            add_deviation(v[k], d);
    }
}

/* Combines the threads' sums into the block's mean and, in d.squares, its M2. */
template <int V>
static __device__ void merge_rows(const lk_bn_tiling &t, const lk_bn_spot &s, uint32_t pixels, float *shared,
                                  deviations<V> &d, float (&mean)[V])
{
    float own = s.pixel < s.end ? (float)((s.end - s.pixel + t.rows - 1) / t.rows) : 0.0f, local[V];
#pragma unroll
    for (int i = 0; i < V; i++) {
        float shift = own > 0 ? d.sum[i] / own : 0.0f;
        local[i] = d.from[i] + shift;
        d.squares[i] = fmaxf(fmaf(-d.sum[i], shift, d.squares[i]), 0.0f);
        mean[i] = own * local[i];
    }
    lk__bn_sum_rows(t, s, shared, mean);
#pragma unroll
    for (int i = 0; i < V; i++) {
        mean[i] /= (float)pixels;
        float away = local[i] - mean[i];
        d.squares[i] = own > 0 ? fmaf(own * away, away, d.squares[i]) : 0.0f;
    }
    lk__bn_sum_rows(t, s, shared, d.squares);
}

template <class T, int V>
static __global__ void __launch_bounds__(LK_THREADS, LK_BN_RESIDENT)
    stats_blocks(lk_bn_tiling t, lk_bn_runs r, const T *x, uint32_t spans, float *parts)
{
    extern __shared__ float shared[];
    uint32_t run = blockIdx.z, first = r.begin[run], last = r.begin[run + 1], span = lk__bn_span(t, last - first);
    uint32_t begin = first + blockIdx.x * span, end = last - begin < span ? last : begin + span;
    if (begin >= last)
        return;
    lk_bn_spot s = lk__bn_spot<V>(t, begin, end);
    deviations<V> d = {};
    float mean[V];
    add_deviations(t, s, x, d);
    merge_rows(t, s, end - begin, shared, d, mean);
    if (s.row > 0 || s.channel < 0)
        return;
    float *part = lk__bn_part(parts, t, run, spans, blockIdx.x) + s.channel;
    lk__cuda_store(part, mean);
    lk__cuda_store(part + t.pitch, d.squares);
}

/* The blocks of a shard, for one thread's channel. */
struct shard_parts {
    uint32_t pixels, span, blocks;
    const float *row; /* row of block 0, from the channel on */

    /* Elements of a block; 0 beyond the last one. */
    __device__ double count(uint32_t b) const
    {
        return b >= blocks ? 0.0 : (double)(pixels - b * span < span ? pixels - b * span : span);
    }
};

static __device__ double sum_means(const lk_bn_tiling &t, const shard_parts &p)
{
    double sum = 0;
    for (uint32_t b = threadIdx.y; b < p.blocks; b += LK_BN_FOLD_AT_ONCE * LK_BN_FOLD_ROWS) {
        float mean[LK_BN_FOLD_AT_ONCE];
        lk__bn_load_parts(t, p.row, b, p.blocks, mean);
#pragma unroll
        for (int k = 0; k < LK_BN_FOLD_AT_ONCE; k++)
            sum += p.count(b + (uint32_t)(k * LK_BN_FOLD_ROWS)) * (double)mean[k];
    }
    return sum;
}

static __device__ double sum_squares(const lk_bn_tiling &t, const shard_parts &p, double around)
{
    double sum = 0;
    for (uint32_t b = threadIdx.y; b < p.blocks; b += LK_BN_FOLD_AT_ONCE * LK_BN_FOLD_ROWS) {
        float mean[LK_BN_FOLD_AT_ONCE], squares[LK_BN_FOLD_AT_ONCE];
        lk__bn_load_parts(t, p.row, b, p.blocks, mean);
        lk__bn_load_parts(t, p.row + t.pitch, b, p.blocks, squares);
#pragma unroll
        for (int k = 0; k < LK_BN_FOLD_AT_ONCE; k++) {
            double count = p.count(b + (uint32_t)(k * LK_BN_FOLD_ROWS)), away = (double)mean[k] - around;
            sum += count > 0 ? (double)squares[k] + count * (away * away) : 0.0;
        }
    }
    return sum;
}

/* Combines the blocks of a shard into its mean and M2: first the mean, then the squares around it. */
static __global__ void __launch_bounds__(LK_BN_FOLD_THREADS, 1)
    stats_fold(lk_bn_tiling t, lk_bn_runs r, uint32_t spans, float *parts, float *stats)
{
    uint32_t run = blockIdx.y, pixels = r.begin[run + 1] - r.begin[run];
    int channel = (int)(blockIdx.x * LK_BN_FOLD_CHANNELS + threadIdx.x);
    bool used = channel < t.c;
    shard_parts p = {pixels, lk__bn_span(t, pixels), used ? lk__bn_spans(t, pixels) : 0,
                     lk__bn_part(parts, t, run, spans, 0) + channel};
    double mean = lk__bn_sum_fold_rows(sum_means(t, p)) / (double)(pixels ? pixels : 1);
    double squares = lk__bn_sum_fold_rows(sum_squares(t, p, mean));
    if (threadIdx.y > 0 || !used)
        return;
    stats[(size_t)run * 2 * t.c + channel] = (float)mean;
    stats[((size_t)run * 2 + 1) * t.c + channel] = (float)squares;
}

template <class T, int V>
static void run_stats(lk_device *dev, const lk_tensor *x, const lk_shards *shards, float *stats)
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
        if (spans > 0)
            stats_blocks<T, V><<<grid, threads, shared, stream>>>(t, r, (const T *)x->data, spans, parts);
        stats_fold<<<lk__bn_fold_grid(t, r), lk__bn_fold_threads(), 0, stream>>>(t, r, spans, parts,
                                                                                 stats + (size_t)first * 2 * t.c);
    }
}

void lk__cuda_batchnorm_stats(lk_device *dev, const lk_tensor *x, const lk_shards *shards, float *stats)
{
    lk__cuda_by_kind(x, [&](auto kind) {
        using K = decltype(kind);
        run_stats<typename K::T, K::V>(dev, x, shards, stats);
    });
    lk__cuda_launched(dev, "batchnorm_stats");
}

enum { MERGES = (int)LK_BN_RUNS + LK_TREE_MAX_DEPTH };

/* The merges of some shards: entry d-1 with entry d, in the order of execution. */
struct merges {
    int depth, count;
    uint8_t after[LK_BN_RUNS]; /* shard i */
    float mean_weight[MERGES], square_weight[MERGES];
    bool empty[MERGES];
};

/* A thread processes one channel; the slots are its stack. */
static __global__ void fold_stats(merges m, size_t c, const float *stats, lk_partials partials)
{
    size_t i = lk__cuda_thread();
    if (i >= c)
        return;
    int depth = m.depth, merge = 0;
    for (int shard = 0; shard < m.count; shard++, depth++) {
        float *slot = partials.slot0 + partials.stride * (size_t)depth + i;
        float mean = stats[(size_t)shard * 2 * c + i], squares = stats[((size_t)shard * 2 + 1) * c + i];
        for (int k = 0; k < m.after[shard]; k++, depth--, merge++) {
            slot -= partials.stride;
            float delta = mean - slot[0];
            squares = fmaf(delta * delta, m.square_weight[merge], slot[c] + squares);
            mean = fmaf(delta, m.mean_weight[merge], slot[0]);
            if (m.empty[merge])
                mean = squares = 0.0f;
        }
        slot[0] = mean;
        slot[c] = squares;
    }
}

static void weigh(merges *m, int merge, size_t left, size_t right)
{
    float share = left + right ? (float)right / (float)(left + right) : 0.0f;
    m->mean_weight[merge] = share;
    m->square_weight[merge] = (float)left * share;
    m->empty[merge] = left + right == 0;
}

/* The merges of shards [first, first + LK_BN_RUNS). rows is the stack of sample counts with *depth entries;
 * both are updated to the state after these shards. */
static merges merges_of(const lk_shards *shards, int first, size_t pixels, int *depth, size_t *rows)
{
    merges m = {};
    m.depth = *depth;
    m.count = shards->count - first < LK_BN_RUNS ? shards->count - first : (int)LK_BN_RUNS;
    int merge = 0;
    for (int i = 0; i < m.count; i++) {
        int shard = first + i;
        m.after[i] = (uint8_t)shards->merges[shard];
        rows[*depth] = shards->begin[shard + 1] - shards->begin[shard];
        for (int k = 0; k < shards->merges[shard]; k++, --*depth) {
            weigh(&m, merge++, rows[*depth - 1] * pixels, rows[*depth] * pixels);
            rows[*depth - 1] += rows[*depth];
        }
        ++*depth;
    }
    return m;
}

void lk__cuda_batchnorm_fold(lk_device *dev, size_t c, size_t pixels, const lk_shards *shards, const float *stats,
                             lk_partials moments)
{
    size_t rows[LK_TREE_MAX_DEPTH + 1];
    int depth = shards->depth;
    for (int d = 0; d < depth; d++)
        rows[d] = shards->rows[d];
    cudaStream_t stream = lk__cuda_stream(dev);
    for (int first = 0; first < shards->count; first += LK_BN_RUNS) {
        merges m = merges_of(shards, first, pixels, &depth, rows);
        fold_stats<<<lk__cuda_blocks(c), LK_THREADS, 0, stream>>>(m, c, stats + (size_t)first * 2 * c, moments);
    }
    lk__cuda_launched(dev, "batchnorm_fold");
}

static __device__ float inverse_root(float squares, float count, float eps)
{
    return 1.0f / sqrtf(squares / count + eps);
}

static __global__ void make_moments(lk_bn_counts k, size_t c, const float *stats, float eps, float *mean, float *scale)
{
    size_t i = lk__cuda_thread(), g = blockIdx.y;
    if (i >= c)
        return;
    bool any = k.of[g] > 0;
    mean[g * c + i] = any ? stats[g * 2 * c + i] : 0.0f;
    scale[g * c + i] = any ? inverse_root(stats[(g * 2 + 1) * c + i], k.of[g], eps) : 0.0f;
}

void lk__cuda_batchnorm_moments(lk_device *dev, size_t c, size_t pixels, const float *stats, const size_t *rows,
                                float eps, lk_moments *moments)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    for (int first = 0; first < moments->groups; first += LK_BN_RUNS) {
        int count = moments->groups - first < LK_BN_RUNS ? moments->groups - first : (int)LK_BN_RUNS;
        lk_bn_counts k = lk__bn_counts(rows, first, moments->groups, pixels);
        size_t at = (size_t)first * c;
        make_moments<<<dim3(lk__cuda_blocks(c), (unsigned)count), LK_THREADS, 0, stream>>>(
            k, c, stats + 2 * at, eps, moments->mean + at, moments->scale + at);
    }
    lk__cuda_launched(dev, "batchnorm_moments");
}

static __global__ void running_moments(size_t c, const float *mean, const float *variance, float eps, float *to_mean,
                                       float *to_scale)
{
    size_t i = lk__cuda_thread();
    if (i >= c)
        return;
    to_mean[i] = mean[i];
    to_scale[i] = inverse_root(variance[i], 1.0f, eps);
}

void lk__cuda_batchnorm_running_moments(lk_device *dev, size_t c, const float *mean, const float *variance, float eps,
                                        lk_moments *moments)
{
    running_moments<<<lk__cuda_blocks(c), LK_THREADS, 0, lk__cuda_stream(dev)>>>(c, mean, variance, eps, moments->mean,
                                                                                 moments->scale);
    lk__cuda_launched(dev, "batchnorm_running_moments");
}

/* entry is (mean, M2) of `elements` elements. */
static __global__ void running_update(size_t c, const float *entry, size_t elements, float momentum,
                                      const lk_flag *flag, float *mean, float *variance)
{
    size_t i = lk__cuda_thread();
    if (i >= c || (flag && flag->bad))
        return;
    float old = 1.0f - momentum;
    if (elements > 0)
        mean[i] = fmaf(momentum, entry[i], old * mean[i]);
    if (elements > 1)
        variance[i] = fmaf(momentum, entry[c + i] / (float)(elements - 1), old * variance[i]);
}

void lk__cuda_batchnorm_running_update(lk_device *dev, size_t c, const float *entry, size_t elements, float momentum,
                                       const lk_flag *flag, float *mean, float *variance)
{
    running_update<<<lk__cuda_blocks(c), LK_THREADS, 0, lk__cuda_stream(dev)>>>(c, entry, elements, momentum, flag,
                                                                                mean, variance);
    lk__cuda_launched(dev, "batchnorm_running_update");
}
