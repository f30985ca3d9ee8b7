/* batchnorm_sums.cu - batch normalisation: the sums of dy and of dy * xhat of the backward pass, for each shard and
 * folded over the sum tree. dy may be completed by an addition on the way (add_kind). The values of each channel are in
 * shared memory. */
#include "tensor/cuda/kernels/batchnorm_fold.cuh"
#include "tensor/cuda/kernels/batchnorm_pool.cuh"

/* What completes dy: nothing, or an addition without a mask, with one, or with its signs. */
enum add_kind { ADD_NONE, ADD_ALL, ADD_MASK, ADD_SIGNS };

/* The gradient of a kernel: dy, or the sum of dy and part, 0 where a mask is <= 0, which replaces dy. */
template <class T>
struct gradient {
    const T *part, *mask;
    const uint8_t *signs;
    T *dy;
};

/* Rows of a block's channels in shared memory; the last two only with a ReLU. */
enum { ROW_MEAN, ROW_SCALE, ROW_GAMMA, ROW_BETA, ROWS };

template <int V, int RELU>
static __device__ void fill_rows(const lk_bn_tiling &t, const lk_bn_sources &from, float *rows)
{
    int width = t.columns * V;
    size_t group = from.shared ? 0 : (size_t)lk__bn_run_index(t) * t.c;
    lk__bn_for_channels<V>(t, [&](int i, int channel) {
        bool used = channel < t.c;
        rows[ROW_MEAN * width + i] = used ? from.mean[group + channel] : 0.0f;
        rows[ROW_SCALE * width + i] = used ? from.scale[group + channel] : 0.0f;
        if (RELU != LK_BN_RELU_NONE) {
            rows[ROW_GAMMA * width + i] = used ? from.gamma[channel] : 0.0f;
            rows[ROW_BETA * width + i] = used ? from.beta[channel] : 0.0f;
        }
    });
}

/* A thread's pixels p, p + rows and so on: AT_ONCE, whose loads it issues together, 8 of them. */
template <class T, int V, int ADD>
struct loaded {
    static constexpr int AT_ONCE = ADD == ADD_NONE ? 4 : 2;
    lk_packed<T, V> x[AT_ONCE], dy[AT_ONCE];
    lk_packed<T, V> part[AT_ONCE], mask[AT_ONCE]; /* for an addition */
    unsigned signs[AT_ONCE];

    /* With an addition, dy is loaded only where the pixel exists: another thread stores to the block's first pixel. */
    __device__ void load(const lk_bn_tiling &t, const lk_bn_spot &s, uint32_t begin, uint32_t p, const T *from_x,
                         const gradient<T> &from)
    {
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            uint32_t pixel = p + (uint32_t)(k * t.rows);
            size_t at = lk__bn_offset(t, s, begin, pixel);
            x[k].load(from_x + at);
            if (ADD != ADD_NONE) {
                part[k].load(from.part + at);
                dy[k] = {};
            }
            if (ADD == ADD_MASK)
                mask[k].load(from.mask + at);
            if (ADD == ADD_SIGNS)
                signs[k] = from.signs[at / V];
            if (ADD == ADD_NONE || pixel < s.end)
                dy[k].load(from.dy + at);
        }
    }

    /* Completes dy, rounded as it is stored. */
    __device__ void add(const lk_bn_tiling &t, const lk_bn_spot &s, uint32_t p, T *to)
    {
        constexpr int N = lk_packed<T, V>::N;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
#pragma unroll
            for (int at = 0; at < V; at += N) {
                float a[N], b[N], m[N] = {};
                dy[k].get(at, a);
                part[k].get(at, b);
                if (ADD == ADD_MASK)
                    mask[k].get(at, m);
#pragma unroll
                for (int i = 0; i < N; i++) {
                    bool passes = ADD == ADD_SIGNS ? signs[k] >> (at + i) & 1 : !(m[i] <= 0.0f);
                    passes = passes || ADD == ADD_ALL;
                    a[i] = passes ? a[i] + b[i] : 0.0f;
                }
                dy[k].set(at, a);
            }
            uint32_t pixel = p + (uint32_t)(k * t.rows);
            if (pixel < s.end)
                dy[k].store(to + lk__bn_offset(t, s, 0, pixel));
        }
    }
};

/* Adds N channels from `at` on to sums: those of dy, then those of dy * xhat. own is where the thread's channels begin
 * in the rows. `count` of the pixels exist. */
template <int RELU, class T, int V, int ADD>
static __device__ void add_products(const float *own, int width, int at, int count, const loaded<T, V, ADD> &p,
                                    float (&sums)[2 * V])
{
    constexpr int N = lk_packed<T, V>::N;
    float mean[N], scale[N], gamma[N] = {}, beta[N] = {};
    lk__cuda_load(own + ROW_MEAN * width + at, mean);
    lk__cuda_load(own + ROW_SCALE * width + at, scale);
    if (RELU != LK_BN_RELU_NONE) {
        lk__cuda_load(own + ROW_GAMMA * width + at, gamma);
        lk__cuda_load(own + ROW_BETA * width + at, beta);
    }
#pragma unroll
    for (int k = 0; k < p.AT_ONCE; k++) {
        float v[N], d[N];
        p.x[k].get(at, v);
        p.dy[k].get(at, d);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float xhat = (v[i] - mean[i]) * scale[i];
            float dy = lk__bn_relu_grad<T, RELU>(fmaf(xhat, gamma[i], beta[i]), d[i]);
            dy = k < count ? dy : 0.0f;
            sums[at + i] += dy;
            sums[V + at + i] = fmaf(dy, xhat, sums[V + at + i]);
        }
    }
}

/* Blocks on a multiprocessor: eight channels and a ReLU take more than 85 registers. */
template <int V, int RELU>
constexpr int resident = V == 8 && RELU != LK_BN_RELU_NONE ? LK_BN_RESIDENT - 1 : LK_BN_RESIDENT;

/* The first loads are issued before the values of the channels are needed. */
template <class T, int V, int RELU, int ADD>
static __global__ void __launch_bounds__(LK_THREADS, (resident<V, RELU>))
    sums_blocks(lk_bn_tiling t, lk_bn_runs r, lk_bn_sources from, const T *x, gradient<T> g, uint32_t spans,
                float *parts)
{
    lk__cuda_await();
    extern __shared__ __align__(16) float shared[];
    lk_bn_range range = lk__bn_range(t, r);
    if (range.begin == range.end)
        return;
    lk_bn_spot s = lk__bn_spot<V>(t, range.begin, range.end);
    float sums[2 * V] = {};
    loaded<T, V, ADD> p;
    p.load(t, s, range.begin, s.pixel, x, g);
    fill_rows<V, RELU>(t, from, shared);
    for (uint32_t pixel = s.pixel; pixel < s.end;) {
        int count = (int)((s.end - pixel + t.rows - 1) / t.rows);
        if (ADD != ADD_NONE)
            p.add(t, s, pixel, g.dy);
#pragma unroll
        for (int at = 0; at < V; at += lk_packed<T, V>::N)
            add_products<RELU>(shared + s.column * V, t.columns * V, at, count, p, sums);
        pixel += (uint32_t)(p.AT_ONCE * t.rows);
        if (pixel < s.end)
            p.load(t, s, range.begin, pixel, x, g);
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

/* Copies the first `depth` entries of a channel; called by the warp that has merged. */
static __device__ void copy_entries(int depth, const lk_bn_merges &m, int c, const lk_bn_fold &fold,
                                    const lk_batchnorm_sums &out)
{
    int channel = lk__bn_fold_channel();
#pragma unroll 1
    for (int slot = lk__bn_fold_row(); slot < depth; slot += LK_BN_FOLD_ROWS) {
        float2 entry = fold.entry(m, c, out.partials, slot);
        if (out.dgamma.slot0)
            out.dgamma.slot0[out.dgamma.stride * (size_t)slot + channel] = entry.y;
        if (out.dbeta.slot0)
            out.dbeta.slot0[out.dbeta.stride * (size_t)slot + channel] = entry.x;
    }
}

struct sums_leaf {
    const lk_bn_pieces &pieces;
    const lk_bn_merges &m;
    const lk_batchnorm_sums &out;
    lk_bn_fold &fold;
    int c;

    __device__ float2 sum(const lk_bn_piece<2> &p) const
    {
        float sums[2];
        lk__bn_sum_piece(
            p, [&] { fold.begin(m, c, out.partials); }, sums);
        return make_float2(sums[0], sums[1]);
    }

    __device__ float2 join(const lk_bn_piece<2> &, const float2 (*results)[LK_BN_FOLD_CHANNELS]) const
    {
        float2 v = results[0][lk__bn_fold_lane()];
        for (int i = 1; i < pieces.count; i++) {
            v.x += results[i][lk__bn_fold_lane()].x;
            v.y += results[i][lk__bn_fold_lane()].y;
        }
        return v;
    }

    __device__ void store(uint32_t run, int channel, float2 v) const
    {
        float *sums = out.sums + (size_t)run * 2 * (size_t)c + channel;
        fold.nodes[m.depth + (int)run][lk__bn_fold_lane()] = v;
        sums[0] = v.x;
        sums[c] = v.y;
    }
};

static __device__ __forceinline__ float2 merge_sums(const lk_bn_merge &, float2 left, float2 right)
{
    return make_float2(left.x + right.x, left.y + right.y);
}

/* All that follows after the blocks. out.sums begins at the launch's first run; `copied` entries are copied. */
static __global__ void __launch_bounds__(LK_BN_FOLD_WARPS *LK_WARP, 2)
    finish_sums(const __grid_constant__ lk_bn_tiling t, const __grid_constant__ lk_bn_runs r, uint32_t spans,
                const __grid_constant__ lk_bn_pieces pieces, const float *parts, const __grid_constant__ lk_bn_merges m,
                const __grid_constant__ lk_batchnorm_sums out, int copied)
{
    lk__cuda_await();
    __shared__ lk_bn_fold fold;
    lk__bn_leaves<2>(t, r, spans, pieces, parts, sums_leaf{pieces, m, out, fold, t.c});
    __syncthreads();
    if (lk__bn_fold_warp() > 0 || !out.partials.slot0)
        return;
    fold.run(m, merge_sums);
    if (lk__bn_fold_channel() >= t.c)
        return;
    fold.store(m, t.c, out.partials);
    copy_entries(copied, m, t.c, fold, out);
}

/* The arguments of the slots. */
struct sums_call {
    const lk_batchnorm_desc *desc;
    const lk_batchnorm_addition *add; /* or NULL */
    const lk_tensor *x, *dy;
    const lk_shards *shards;
    const lk_moments *moments;
    const lk_batchnorm_sums *out;
};

template <class T>
static gradient<T> gradient_of(const sums_call &call)
{
    gradient<T> g = {nullptr, nullptr, nullptr, (T *)call.dy->data};
    if (call.add) {
        g.part = (const T *)call.add->part.data;
        g.mask = (const T *)call.add->mask.data;
        g.signs = call.add->signs;
    }
    return g;
}

template <class T, int V, int RELU, int ADD>
static void run_sums(lk_device *dev, const sums_call &call)
{
    const lk_shards *shards = call.shards;
    size_t pixels = call.x->shape.h * call.x->shape.w;
    lk_bn_tiling t = lk__bn_sum_tiling(call.x, V, shards);
    lk_bn_pieces pieces = lk__bn_pieces(t, shards, pixels);
    cudaStream_t stream = lk__cuda_ahead(dev);
    float *parts = (float *)lk__cuda_scratch(dev, lk__bn_parts_bytes<2>(t, shards, pixels));
    if (!parts)
        return;
    unsigned threads = lk__bn_threads(t);
    size_t shared = (ROWS * (size_t)t.columns + 2 * threads) * V * sizeof(float);
    lk_bn_stack stack = lk__bn_stack(shards);
    for (int first = 0; first < shards->count; first += LK_BN_RUNS) {
        lk_bn_runs r = lk__bn_runs(shards, first, pixels);
        uint32_t spans = lk__bn_most_spans(t, r);
        lk_bn_merges m = lk__bn_merges(shards, first, pixels, &stack);
        lk_batchnorm_sums out = *call.out;
        int group = call.moments->groups == 1 ? 0 : first;
        lk_bn_sources from = lk__bn_sources(call.desc, call.moments, group, (size_t)t.c);
        out.sums += (size_t)first * 2 * t.c;
        if (spans > 0 && call.desc->pool)
            lk__cuda_batchnorm_pool_sums(
                stream, {&t, &r, from, call.desc->pool, call.desc->index, call.x, call.dy, spans, parts});
        else if (spans > 0)
            lk__cuda_follow({lk__bn_grid(t, spans, r.count), threads, shared, stream}, sums_blocks<T, V, RELU, ADD>, t,
                            r, from, (const T *)call.x->data, gradient_of<T>(call), spans, parts);
        lk__cuda_follow({lk__bn_fold_blocks(t.c), lk__bn_fold_threads(pieces, r), 0, stream}, finish_sums, t, r, spans,
                        pieces, parts, m, out, first + r.count == shards->count ? stack.depth : 0);
    }
}

void lk__cuda_batchnorm_sums(lk_device *dev, const lk_batchnorm_desc *desc, const lk_tensor *x, const lk_tensor *dy,
                             const lk_shards *shards, const lk_moments *moments, const lk_batchnorm_sums *out)
{
    sums_call call = {desc, nullptr, x, dy, shards, moments, out};
    lk__cuda_by_kind(x, [&](auto kind) {
        lk__bn_by_relu(desc, [&](auto relu) {
            using K = decltype(kind);
            run_sums<typename K::T, K::V, decltype(relu)::RELU, ADD_NONE>(dev, call);
        });
    });
    lk__cuda_launched(dev, "batchnorm_sums");
}

void lk__cuda_batchnorm_add_sums(lk_device *dev, const lk_batchnorm_desc *desc, const lk_batchnorm_addition *add,
                                 const lk_tensor *x, const lk_shards *shards, const lk_moments *moments, lk_tensor *dy,
                                 const lk_batchnorm_sums *out)
{
    sums_call call = {desc, add, x, dy, shards, moments, out};
    lk__cuda_by_kind(x, [&](auto kind) {
        using K = decltype(kind);
        if (add->signs)
            run_sums<typename K::T, K::V, LK_BN_RELU_NONE, ADD_SIGNS>(dev, call);
        else if (add->mask.data)
            run_sums<typename K::T, K::V, LK_BN_RELU_NONE, ADD_MASK>(dev, call);
        else
            lk__bn_by_relu(desc,
                           [&](auto relu) { run_sums<typename K::T, K::V, decltype(relu)::RELU, ADD_ALL>(dev, call); });
    });
    lk__cuda_launched(dev, "batchnorm_add_sums");
}
