/* batchnorm.cu - batch normalisation: the statistics of each shard, their merging over the sum tree, and the
 * moments. batchnorm_sums.cu has the sums of the backward pass, batchnorm_pass.cu the passes over pixels.
 *
 * A block sums squared deviations from its first pixel. Over m values their error is at most about m roundings,
 * whatever the mean is. */
#include "tensor/cuda/kernels/batchnorm.cuh"
#include "tensor/cuda/kernels/vec4.cuh"

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
    float *part = lk__bn_part(parts, t, blockIdx.z, spans, lk__bn_block(t)) + s.channel;
    lk__cuda_store(part, mean);
    lk__cuda_store(part + t.pitch, squares);
}

/* The blocks of a shard, for one thread's channel. */
struct shard_parts {
    uint32_t blocks;
    double span, rest; /* elements of a block, and of the last one */
    const float *row;  /* row of block 0, from the channel on */

    __device__ double count(uint32_t b) const
    {
        return b + 1 < blocks ? span : rest;
    }
};

static __device__ double sum_means(const lk_bn_tiling &t, const shard_parts &p)
{
    double sum = 0;
    for (uint32_t b = threadIdx.y; b < p.blocks; b += LK_BN_FOLD_AT_ONCE * LK_BN_FOLD_ROWS) {
        float mean[LK_BN_FOLD_AT_ONCE];
        lk__bn_load_parts(t, p.row, b, p.blocks, mean);
#pragma unroll
        for (int k = 0; k < LK_BN_FOLD_AT_ONCE; k++) {
            uint32_t block = b + (uint32_t)(k * LK_BN_FOLD_ROWS);
            if (block < p.blocks)
                sum += p.count(block) * (double)mean[k];
        }
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
            uint32_t block = b + (uint32_t)(k * LK_BN_FOLD_ROWS);
            if (block >= p.blocks)
                break;
            double away = (double)mean[k] - around;
            sum += (double)squares[k] + p.count(block) * (away * away);
        }
    }
    return sum;
}

enum { MERGES = (int)LK_BN_RUNS + LK_TREE_MAX_DEPTH };

/* The merges of some shards: entry d-1 with entry d, in the order of execution. */
struct merges {
    int depth, count;
    uint8_t after[LK_BN_RUNS]; /* shard i */
    float mean_weight[MERGES], square_weight[MERGES];
    bool empty[MERGES];
};

/* Folds one channel, whose entries are mean (x) and M2 (y). Returns the first entry of the stack. */
static __device__ float2 fold_channel(const merges &m, lk_bn_entries &entries, size_t c, size_t channel,
                                      const lk_partials &partials)
{
    lk_bn_stack stack(m.depth, entries, c, channel, partials);
    int merge = 0;
    for (int shard = 0; shard < m.count; shard++) {
        float2 entry = stack.leaf(shard);
        for (int k = 0; k < m.after[shard]; k++, merge++) {
            float2 left = stack.pop();
            float delta = entry.x - left.x;
            entry.y = fmaf(delta * delta, m.square_weight[merge], left.y + entry.y);
            entry.x = fmaf(delta, m.mean_weight[merge], left.x);
            if (m.empty[merge])
                entry.x = entry.y = 0.0f;
        }
        stack.push(entry);
    }
    stack.store();
    return stack.bottom();
}

static __global__ void __launch_bounds__(LK_BN_FOLD_CHANNELS)
    fold_stats(merges m, size_t c, const float *stats, lk_partials partials)
{
    __shared__ lk_bn_entries entries;
    size_t channel = lk__cuda_thread();
    if (channel >= c)
        return;
    for (int shard = 0; shard < m.count; shard++) {
        const float *entry = stats + (size_t)shard * 2 * c + channel;
        entries.first[shard][threadIdx.x] = entry[0];
        entries.second[shard][threadIdx.x] = entry[c];
    }
    fold_channel(m, entries, c, channel, partials);
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

/* Combines the blocks of a shard into its mean and M2: first the mean, then the squares around it. */
static __device__ float2 shard_stats(const lk_bn_tiling &t, const lk_bn_runs &r, uint32_t spans, float *parts,
                                     uint32_t run, bool used)
{
    uint32_t pixels = used ? r.begin[run + 1] - r.begin[run] : 0;
    uint32_t span = lk__bn_span(t, pixels), blocks = lk__bn_spans(t, pixels);
    shard_parts p = {blocks, (double)span, (double)(pixels - (blocks ? blocks - 1 : 0) * span),
                     lk__bn_part(parts, t, run, spans, 0) + lk__bn_fold_channel()};
    double mean = lk__bn_sum_fold_rows(sum_means(t, p)) / (double)(pixels ? pixels : 1);
    double squares = lk__bn_sum_fold_rows(sum_squares(t, p, mean));
    return make_float2((float)mean, (float)squares);
}

/* All that follows after the blocks: stats, partials and moments. */
static __global__ void __launch_bounds__(LK_BN_FOLD_THREADS, 1)
    finish_stats(lk_bn_tiling t, lk_bn_runs r, uint32_t spans, float *parts, merges m, stats_results out)
{
    __shared__ lk_bn_entries entries;
    int channel = lk__bn_fold_channel(), lane = threadIdx.x;
    for (uint32_t first = 0; first < (uint32_t)r.count; first += blockDim.z) {
        uint32_t run = first + threadIdx.z;
        bool used = channel < t.c && run < (uint32_t)r.count;
        float2 entry = shard_stats(t, r, spans, parts, run, used);
        if (threadIdx.y > 0 || !used)
            continue;
        size_t at = (size_t)run * t.c + channel;
        entries.first[run][lane] = out.stats[at + (size_t)run * t.c] = entry.x;
        entries.second[run][lane] = out.stats[at + (size_t)(run + 1) * t.c] = entry.y;
        if (out.mean && out.by_shard)
            write_moments(entry, out.counts.of[run], out.eps, out.mean + at, out.scale + at);
    }
    __syncthreads();
    if (threadIdx.y + threadIdx.z > 0 || channel >= t.c || !out.partials.slot0)
        return;
    float2 all = fold_channel(m, entries, (size_t)t.c, (size_t)channel, out.partials);
    if (out.mean && !out.by_shard)
        write_moments(all, out.counts.of[0], out.eps, out.mean + channel, out.scale + channel);
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

/* The stack of sample counts before the shards; returns its depth. */
static int rows_before(const lk_shards *shards, size_t rows[LK_TREE_MAX_DEPTH + 1])
{
    for (int d = 0; d < shards->depth; d++)
        rows[d] = shards->rows[d];
    return shards->depth;
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
    size_t pixels = x->shape.h * x->shape.w, rows[LK_TREE_MAX_DEPTH + 1];
    lk_bn_tiling t = lk__bn_tiling(x, V);
    cudaStream_t stream = lk__cuda_stream(dev);
    float *parts = (float *)lk__cuda_scratch(dev, lk__bn_parts_bytes(t, shards, pixels));
    if (!parts)
        return;
    unsigned threads = lk__bn_threads(t);
    int depth = rows_before(shards, rows);
    for (int first = 0; first < shards->count; first += LK_BN_RUNS) {
        lk_bn_runs r = lk__bn_runs(shards, first, pixels);
        uint32_t spans = lk__bn_most_spans(t, r);
        merges m = merges_of(shards, first, pixels, &depth, rows);
        stats_results results = results_of(out, x, first, r.count, first + r.count == shards->count);
        if (spans > 0)
            stats_blocks<T, V><<<lk__bn_grid(t, spans, r.count), threads, threads * 2 * V * sizeof(float), stream>>>(
                t, r, (const T *)x->data, spans, parts);
        finish_stats<<<lk__bn_fold_blocks(t), lk__bn_fold_threads(r), 0, stream>>>(t, r, spans, parts, m, results);
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
    size_t rows[LK_TREE_MAX_DEPTH + 1];
    int depth = rows_before(shards, rows);
    cudaStream_t stream = lk__cuda_stream(dev);
    for (int first = 0; first < shards->count; first += LK_BN_RUNS) {
        merges m = merges_of(shards, first, pixels, &depth, rows);
        fold_stats<<<lk__cuda_parts(c, LK_BN_FOLD_CHANNELS), LK_BN_FOLD_CHANNELS, 0, stream>>>(
            m, c, stats + (size_t)first * 2 * c, moments);
    }
    lk__cuda_launched(dev, "batchnorm_fold");
}

static __global__ void make_moments(lk_bn_counts k, size_t c, const float *stats, float eps, float *mean, float *scale)
{
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
