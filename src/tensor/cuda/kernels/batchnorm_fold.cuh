/* batchnorm_fold.cuh - combines the results of summing blocks (batchnorm.cuh) into a leaf for each shard, and folds
 * leaves over the sum tree. For nvcc only.
 *
 * A folding block has 8 channels and all shards of a launch. A warp combines a piece of a shard's blocks: its threads
 * issue all loads at once and add in trees. Then one warp merges the leaves of all shards; merges that do not depend on
 * each other are made side by side. The time is that of one load and a few additions. */
#ifndef LK_TENSOR_CUDA_KERNELS_BATCHNORM_FOLD_CUH
#define LK_TENSOR_CUDA_KERNELS_BATCHNORM_FOLD_CUH

#include "tensor/cuda/kernels/batchnorm.cuh"

enum {
    LK_BN_FOLD_CHANNELS = 8,
    LK_BN_FOLD_ROWS = LK_WARP / LK_BN_FOLD_CHANNELS,
    LK_BN_FOLD_WARPS = 16,
    LK_BN_FOLD_AT_ONCE = 16, /* loads that a thread issues together, in groups: of 4, as far as there are blocks */
    LK_BN_FOLD_GROUP = 4,
    LK_BN_FOLD_STEP = LK_BN_FOLD_ROWS * LK_BN_FOLD_AT_ONCE,
    LK_BN_NODES = LK_BN_RUNS + LK_TREE_MAX_DEPTH
};

/* How a shard's blocks are divided into pieces: each has `size` blocks, the last one all that remain. The same for all
 * shards of a step. */
struct lk_bn_pieces {
    int count;
    uint32_t size;
};

static inline lk_bn_pieces lk__bn_pieces(const lk_bn_tiling &t, const lk_shards *shards, size_t pixels)
{
    unsigned blocks = lk__cuda_parts(shards->most * pixels, t.span);
    unsigned size = lk__cuda_parts(blocks, LK_BN_FOLD_WARPS);
    size = size < LK_BN_FOLD_STEP ? (unsigned)LK_BN_FOLD_STEP : size;
    return {blocks > size ? (int)lk__cuda_parts(blocks, size) : 1, size};
}

/* A warp has threadIdx.x; threadIdx.y is its piece, threadIdx.z its shard. */
static inline dim3 lk__bn_fold_threads(const lk_bn_pieces &pieces, const lk_bn_runs &r)
{
    int runs = LK_BN_FOLD_WARPS / pieces.count;
    return dim3(LK_WARP, (unsigned)pieces.count, (unsigned)(r.count < runs ? r.count : runs));
}

static inline unsigned lk__bn_fold_blocks(int c)
{
    return lk__cuda_parts((size_t)c, LK_BN_FOLD_CHANNELS);
}

/* A thread's channel in its block, and in the tensor. */
static inline __device__ int lk__bn_fold_lane()
{
    return (int)threadIdx.x % LK_BN_FOLD_CHANNELS;
}

static inline __device__ int lk__bn_fold_channel()
{
    return (int)blockIdx.x * LK_BN_FOLD_CHANNELS + lk__bn_fold_lane();
}

static inline __device__ int lk__bn_fold_row()
{
    return (int)threadIdx.x / LK_BN_FOLD_CHANNELS;
}

static inline __device__ int lk__bn_fold_warp()
{
    return (int)(threadIdx.z * blockDim.y + threadIdx.y);
}

/* Blocks [begin, end) of a shard, with N results for each channel. */
template <int N>
struct lk_bn_piece {
    const float *part; /* of block 0, from the thread's channel on */
    uint32_t stride;   /* floats from one block to the next */
    uint32_t begin, end;
    uint32_t blocks, span, rest; /* of the shard; pixels of a block, and of the last one */

    /* The blocks of piece i instead of this one's. */
    __device__ lk_bn_piece at(const lk_bn_pieces &pieces, int i) const
    {
        lk_bn_piece p = *this;
        p.begin = min((uint32_t)i * pieces.size, blocks);
        p.end = i + 1 == pieces.count ? blocks : min(p.begin + pieces.size, blocks);
        return p;
    }

    __device__ uint32_t pixels() const
    {
        return begin == end ? 0 : (end - begin - 1) * span + (end == blocks ? rest : span);
    }

    /* The block of a thread's load k, if its first one is that of row 0 plus the thread's row. */
    static __device__ __forceinline__ uint32_t block(uint32_t first, int k)
    {
        return first + (uint32_t)(lk__bn_fold_row() + k * LK_BN_FOLD_ROWS);
    }

    /* Calls f(k) for all loads of a warp that begins with block `first`; f may be called for blocks beyond the end. */
    template <class F>
    __device__ __forceinline__ void for_loads(uint32_t first, F f) const
    {
#pragma unroll
        for (int group = 0; group < LK_BN_FOLD_AT_ONCE; group += LK_BN_FOLD_GROUP) {
            if (first + (uint32_t)(group * LK_BN_FOLD_ROWS) >= end)
                break;
#pragma unroll
            for (int k = group; k < group + LK_BN_FOLD_GROUP; k++)
                f(k);
        }
    }

    /* Zeros beyond the end. */
    __device__ __forceinline__ void load(uint32_t first, float (&v)[LK_BN_FOLD_AT_ONCE][N]) const
    {
        for_loads(first, [&](int k) {
            const float *from = part + block(first, k) * stride;
            bool there = block(first, k) < end;
            if constexpr (N == 1) {
                v[k][0] = there ? *from : 0.0f;
            } else {
                float2 pair = there ? *(const float2 *)from : make_float2(0.0f, 0.0f);
                v[k][0] = pair.x, v[k][1] = pair.y;
            }
        });
    }
};

/* This warp's piece of a run; of no blocks if it is not used. */
template <int N>
static __device__ lk_bn_piece<N> lk__bn_piece(const lk_bn_tiling &t, const lk_bn_runs &r, uint32_t spans,
                                              const lk_bn_pieces &pieces, const float *parts, uint32_t run, bool used)
{
    uint32_t pixels = used ? r.begin[run + 1] - r.begin[run] : 0, blocks = lk__bn_spans(t, pixels);
    uint32_t stride = (uint32_t)(N * t.pitch), rest = blocks > 0 ? pixels - (blocks - 1) * t.span : 0;
    const float *part = parts + (size_t)run * spans * stride + N * lk__bn_fold_channel();
    lk_bn_piece<N> p = {part, stride, 0, 0, blocks, t.span, rest};
    return p.at(pieces, (int)threadIdx.y);
}

/* Gives all rows of a warp the sum over its rows. */
static inline __device__ float lk__bn_add_rows(float v)
{
#pragma unroll
    for (int step = LK_BN_FOLD_CHANNELS; step < LK_WARP; step *= 2)
        v += __shfl_xor_sync(~0u, v, step);
    return v;
}

/* The sums of a piece's blocks; all threads of the warp take part. Calls `meanwhile` while the first loads are under
 * way. */
template <int N, class F>
static __device__ void lk__bn_sum_piece(const lk_bn_piece<N> &p, F meanwhile, float (&sums)[N])
{
    enum { CHAINS = LK_BN_FOLD_GROUP };
    float chains[CHAINS][N] = {}, v[LK_BN_FOLD_AT_ONCE][N];
    p.load(p.begin, v);
    meanwhile();
#pragma unroll 1
    for (uint32_t first = p.begin; first < p.end;) {
        p.for_loads(first, [&](int k) {
            for (int n = 0; n < N; n++)
                chains[k % CHAINS][n] += v[k][n];
        });
        first += LK_BN_FOLD_STEP;
        if (first < p.end)
            p.load(first, v);
    }
#pragma unroll
    for (int n = 0; n < N; n++)
        sums[n] = lk__bn_add_rows((chains[0][n] + chains[1][n]) + (chains[2][n] + chains[3][n]));
}

/* Computes the leaves of all runs; all threads of the block take part. leaf.sum(p) is the result of a piece,
 * leaf.join(p, results) that of a shard from those of its pieces, for a thread's channel. leaf.store(run, channel, v)
 * is called by one thread. */
template <int N, class L>
static __device__ void lk__bn_leaves(const lk_bn_tiling &t, const lk_bn_runs &r, uint32_t spans,
                                     const lk_bn_pieces &pieces, const float *parts, const L &leaf)
{
    __shared__ float2 results[LK_BN_FOLD_WARPS][LK_BN_FOLD_CHANNELS];
    int channel = lk__bn_fold_channel(), warp = lk__bn_fold_warp();
#pragma unroll 1
    for (uint32_t first = 0; first < (uint32_t)r.count; first += blockDim.z) {
        uint32_t run = first + threadIdx.z;
        bool used = channel < t.c && run < (uint32_t)r.count;
        lk_bn_piece<N> p = lk__bn_piece<N>(t, r, spans, pieces, parts, run, used);
        float2 v = leaf.sum(p);
        if (pieces.count > 1) {
            if (lk__bn_fold_row() == 0)
                results[warp][lk__bn_fold_lane()] = v;
            __syncthreads();
            if (threadIdx.y == 0)
                v = leaf.join(p, results + warp);
            __syncthreads();
        }
        if (threadIdx.y == 0 && lk__bn_fold_row() == 0 && used)
            leaf.store(run, channel, v);
    }
}

/* Node `left` becomes the sum of itself and of node `right`. Merges [i, end) do not depend on each other. */
struct alignas(16) lk_bn_merge {
    uint8_t left, right, end;
    bool empty;                       /* neither node has elements */
    float mean_weight, square_weight; /* for statistics */
};

/* The merges of some shards. Nodes are the entries that are on the stack before the shards, then the shards. Merges are
 * in the order of their levels in the tree. */
struct lk_bn_merges {
    int depth;                /* entries before the shards */
    int kept;                 /* of them, those that no merge takes: they stay in their slots */
    int tops;                 /* entries above them after the shards */
    int count;                /* merges */
    uint8_t top[LK_BN_NODES]; /* node of each of the tops, bottom first */
    lk_bn_merge merge[LK_BN_NODES];
};

/* The stack of sample counts. */
struct lk_bn_stack {
    int depth;
    size_t rows[LK_BN_NODES];
};

static inline lk_bn_stack lk__bn_stack(const lk_shards *shards)
{
    lk_bn_stack s = {};
    s.depth = shards->depth;
    for (int d = 0; d < s.depth; d++)
        s.rows[d] = shards->rows[d];
    return s;
}

static inline lk_bn_merge lk__bn_merge(uint8_t left, uint8_t right, size_t left_count, size_t right_count)
{
    size_t count = left_count + right_count;
    float share = count ? (float)right_count / (float)count : 0.0f;
    return {left, right, 0, count == 0, share, (float)left_count * share};
}

/* Orders merges, whose levels are from 1 on, by level. */
static inline void lk__bn_order(const lk_bn_merge *merges, const int *levels, lk_bn_merges *m)
{
    for (int level = 1, done = 0; done < m->count; level++) {
        int begin = done;
        for (int i = 0; i < m->count; i++)
            if (levels[i] == level)
                m->merge[done++] = merges[i];
        for (int i = begin; i < done; i++)
            m->merge[i].end = (uint8_t)done;
    }
}

/* The merges of shards [first, first + LK_BN_RUNS); s becomes the stack after these shards. */
static inline lk_bn_merges lk__bn_merges(const lk_shards *shards, int first, size_t pixels, lk_bn_stack *s)
{
    lk_bn_merges m = {};
    lk_bn_merge merges[LK_BN_NODES];
    int levels[LK_BN_NODES], height[LK_BN_NODES] = {}; /* of merges and nodes */
    uint8_t node[LK_BN_NODES];                         /* of each entry of the stack */
    int count = shards->count - first < LK_BN_RUNS ? shards->count - first : (int)LK_BN_RUNS;
    m.depth = m.kept = s->depth;
    for (int d = 0; d < m.depth; d++)
        node[d] = (uint8_t)d;
    for (int i = 0; i < count; i++) {
        int shard = first + i, d = s->depth;
        node[d] = (uint8_t)(m.depth + i);
        s->rows[d] = shards->begin[shard + 1] - shards->begin[shard];
        for (int k = 0; k < shards->merges[shard]; k++, d--) {
            uint8_t left = node[d - 1], right = node[d];
            int level = 1 + (height[left] > height[right] ? height[left] : height[right]);
            merges[m.count] = lk__bn_merge(left, right, s->rows[d - 1] * pixels, s->rows[d] * pixels);
            levels[m.count++] = height[left] = level;
            s->rows[d - 1] += s->rows[d];
            m.kept = d - 1 < m.kept ? d - 1 : m.kept;
        }
        s->depth = d + 1;
    }
    m.tops = s->depth - m.kept;
    for (int i = 0; i < m.tops; i++)
        m.top[i] = node[m.kept + i];
    lk__bn_order(merges, levels, &m);
    return m;
}

/* The stack of partial sums for the channels of a folding block, in shared memory. Entries have two rows of c. */
struct lk_bn_fold {
    float2 nodes[LK_BN_NODES][LK_BN_FOLD_CHANNELS];
    lk_bn_merge merges[LK_BN_NODES];

    static __device__ float2 stored(const lk_partials &from, int c, int slot)
    {
        const float *entry = from.slot0 + from.stride * (size_t)slot + lk__bn_fold_channel();
        return make_float2(entry[0], entry[c]);
    }

    /* Reads what the merges need; nothing if there are no slots. The block is synchronised before `run`. A second call
     * changes nothing. */
    __device__ void begin(const lk_bn_merges &m, int c, const lk_partials &from)
    {
        if (!from.slot0)
            return;
        int warp = lk__bn_fold_warp(), warps = (int)(blockDim.y * blockDim.z), lane = lk__bn_fold_lane();
#pragma unroll 1
        for (int i = warp; i < m.count; i += warps)
            *(uint4 *)&merges[i] = *(const uint4 *)&m.merge[i]; // all lanes write the same
#pragma unroll 1
        for (int slot = m.kept + warp; slot < m.depth; slot += warps)
            if (threadIdx.x < LK_BN_FOLD_CHANNELS && lk__bn_fold_channel() < c)
                nodes[slot][lane] = stored(from, c, slot);
    }

    /* Called by one warp. merge(how, left, right) is the sum of two nodes. */
    template <class F>
    __device__ void run(const lk_bn_merges &m, F merge)
    {
        int lane = lk__bn_fold_lane();
#pragma unroll 1
        for (int first = 0, end; first < m.count; first = end) {
            end = merges[first].end;
#pragma unroll 1
            for (int i = first + lk__bn_fold_row(); i < end; i += LK_BN_FOLD_ROWS) {
                uint4 words = *(const uint4 *)&merges[i];
                lk_bn_merge how;
                memcpy(&how, &words, sizeof how);
                nodes[how.left][lane] = merge(how, nodes[how.left][lane], nodes[how.right][lane]);
            }
            __syncwarp();
        }
    }

    /* Entry `slot` of the stack after the merges. */
    __device__ float2 entry(const lk_bn_merges &m, int c, const lk_partials &from, int slot) const
    {
        return slot < m.kept ? stored(from, c, slot) : nodes[m.top[slot - m.kept]][lk__bn_fold_lane()];
    }

    /* Called by the warp that has merged, for channels below c. */
    __device__ void store(const lk_bn_merges &m, int c, const lk_partials &to) const
    {
#pragma unroll 1
        for (int i = lk__bn_fold_row(); i < m.tops; i += LK_BN_FOLD_ROWS) {
            float2 v = nodes[m.top[i]][lk__bn_fold_lane()];
            float *entry = to.slot0 + to.stride * (size_t)(m.kept + i) + lk__bn_fold_channel();
            entry[0] = v.x;
            entry[c] = v.y;
        }
    }
};

#endif
