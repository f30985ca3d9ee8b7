/* batchnorm.cuh - how the kernels of batch normalisation, and of a bias' gradient, divide a tensor. For nvcc only.
 *
 * A sum over a shard's pixels has three levels: a chain in each thread, a tree over the threads of a block that
 * have the same channels, and a sum of the blocks in double. How many pixels each level has depends only on the
 * shard's pixels and the pitch. Pixels are counted over all samples, in 32 bits. */
#ifndef LK_TENSOR_CUDA_KERNELS_BATCHNORM_CUH
#define LK_TENSOR_CUDA_KERNELS_BATCHNORM_CUH

#include "tensor/cuda/kernels/vec.cuh"

enum {
    LK_BN_RUNS = 64, /* shards of a launch */
    /* Most vectors of channels of a block: 256 bytes of a pixel. With more, a block would have fewer pixels: more
     * results of blocks, and more loads of the values of channels. */
    LK_BN_COLUMNS = 16,
    LK_BN_BLOCKS = 264, /* blocks of a shard to aim at: two for each multiprocessor */
    LK_BN_LEAST = 8,    /* pixels of a thread that sums: a multiple of this, at most LK_BN_MOST */
    LK_BN_MOST = 64,
    LK_BN_RESIDENT = 3, /* summing blocks on a multiprocessor: with more, loads would wait for registers */
    LK_BN_FOLD_CHANNELS = 8,
    LK_BN_FOLD_ROWS = 8,
    LK_BN_FOLD_RUNS = 16, /* runs that a folding block computes at once, at most */
    LK_BN_FOLD_THREADS = LK_BN_FOLD_CHANNELS * LK_BN_FOLD_ROWS * LK_BN_FOLD_RUNS,
    LK_BN_FOLD_AT_ONCE = 16
};

/* The ReLU after a normalisation. */
enum lk_bn_relu { LK_BN_RELU_NONE, LK_BN_RELU_PLAIN, LK_BN_RELU_SIX };

/* V values as they are in memory, so that many loads can be issued before the first value is needed: until then
 * a bf16 takes half a register. N values are read or written at a time. */
template <class T, int V>
struct lk_packed {
    static constexpr int N = 4;
    unsigned words[4];

    __device__ void load(const T *p)
    {
        uint4 u = *(const uint4 *)p;
        words[0] = u.x, words[1] = u.y, words[2] = u.z, words[3] = u.w;
    }

    __device__ void store(T *p) const
    {
        *(uint4 *)p = make_uint4(words[0], words[1], words[2], words[3]);
    }

    __device__ void get(int at, float (&v)[N]) const
    {
        if constexpr (sizeof(T) == 4) {
            for (int i = 0; i < N; i++)
                v[i] = __uint_as_float(words[i]);
        } else {
            lk__cuda_unpack_pair(words[at / 2], v);
            lk__cuda_unpack_pair(words[at / 2 + 1], v + 2);
        }
    }

    __device__ void get_all(float (&v)[V]) const
    {
        if constexpr (sizeof(T) == 4) {
            get(0, v);
        } else {
            for (int i = 0; i < N; i++)
                lk__cuda_unpack_pair(words[i], v + 2 * i);
        }
    }

    __device__ void set(int at, const float (&v)[N])
    {
        if constexpr (sizeof(T) == 4) {
            for (int i = 0; i < N; i++)
                words[i] = __float_as_uint(v[i]);
        } else {
            words[at / 2] = lk__cuda_pack_pair(v);
            words[at / 2 + 1] = lk__cuda_pack_pair(v + 2);
        }
    }
};

template <class T>
struct lk_packed<T, 1> {
    static constexpr int N = 1;
    T value;

    __device__ void load(const T *p)
    {
        value = *p;
    }

    __device__ void store(T *p) const
    {
        *p = value;
    }

    __device__ void get(int, float (&v)[N]) const
    {
        lk__cuda_load(&value, v);
    }

    __device__ void get_all(float (&v)[N]) const
    {
        get(0, v);
    }

    __device__ void set(int, const float (&v)[N])
    {
        lk__cuda_store(&value, v);
    }
};

/* Run i is pixels [begin[i], begin[i+1]): those of one shard, or all. */
struct lk_bn_runs {
    int count;
    uint32_t begin[LK_BN_RUNS + 1];
};

/* How blocks cover (pixels, vectors of channels). The tiles of columns of the same pixels are neighbours in the grid.
 */
struct lk_bn_tiling {
    int columns, rows; /* of a block */
    int all;           /* columns of the tensor */
    int tiles;         /* blocks that cover them */
    int pitch, c;
};

static inline lk_bn_tiling lk__bn_tiling(const lk_tensor *x, int width)
{
    lk_bn_tiling t;
    t.pitch = (int)lk__tensor_pitch(x);
    t.c = (int)x->shape.c;
    t.all = t.pitch / width;
    t.tiles = (t.all + LK_BN_COLUMNS - 1) / LK_BN_COLUMNS;
    t.columns = (t.all + t.tiles - 1) / t.tiles;
    t.rows = LK_THREADS / t.columns;
    return t;
}

/* `blocks` blocks of pixels for each run. */
static inline dim3 lk__bn_grid(const lk_bn_tiling &t, uint32_t blocks, int runs)
{
    return dim3(blocks * (uint32_t)t.tiles, 1, (unsigned)runs);
}

/* The number of this block among those of its columns, and its first column. */
static inline __device__ uint32_t lk__bn_block(const lk_bn_tiling &t)
{
    return blockIdx.x / (uint32_t)t.tiles;
}

static inline __device__ int lk__bn_column(const lk_bn_tiling &t)
{
    return (int)(blockIdx.x % (uint32_t)t.tiles) * t.columns;
}

static inline unsigned lk__bn_threads(const lk_bn_tiling &t)
{
    return (unsigned)(t.columns * t.rows);
}

/* Pixels of a summing block. */
static inline __host__ __device__ uint32_t lk__bn_span(const lk_bn_tiling &t, uint32_t pixels)
{
    uint32_t each = pixels / (uint32_t)(t.rows * LK_BN_BLOCKS) / LK_BN_LEAST * LK_BN_LEAST;
    each = each < LK_BN_LEAST ? (uint32_t)LK_BN_LEAST : each > LK_BN_MOST ? (uint32_t)LK_BN_MOST : each;
    return each * (uint32_t)t.rows;
}

static inline __host__ __device__ uint32_t lk__bn_spans(const lk_bn_tiling &t, uint32_t pixels)
{
    return (pixels + lk__bn_span(t, pixels) - 1) / lk__bn_span(t, pixels);
}

/* Shards [first, first + LK_BN_RUNS) of a wave; a sample has `pixels` pixels. */
static inline lk_bn_runs lk__bn_runs(const lk_shards *shards, int first, size_t pixels)
{
    lk_bn_runs r = {};
    r.count = shards->count - first < LK_BN_RUNS ? shards->count - first : (int)LK_BN_RUNS;
    for (int i = 0; i <= r.count; i++)
        r.begin[i] = (uint32_t)(shards->begin[first + i] * pixels);
    return r;
}

/* The largest number of blocks of a run; a run with more pixels may have fewer blocks. */
static inline uint32_t lk__bn_most_spans(const lk_bn_tiling &t, const lk_bn_runs &r)
{
    uint32_t most = 0;
    for (int i = 0; i < r.count; i++) {
        uint32_t spans = lk__bn_spans(t, r.begin[i + 1] - r.begin[i]);
        most = spans > most ? spans : most;
    }
    return most;
}

/* Bytes for the results of all blocks of one launch; the maximum over a wave's launches. */
static inline size_t lk__bn_parts_bytes(const lk_bn_tiling &t, const lk_shards *shards, size_t pixels)
{
    size_t most = 1;
    for (int first = 0; first < shards->count; first += LK_BN_RUNS) {
        lk_bn_runs r = lk__bn_runs(shards, first, pixels);
        size_t blocks = (size_t)r.count * lk__bn_most_spans(t, r);
        most = blocks > most ? blocks : most;
    }
    return most * 2 * (size_t)t.pitch * sizeof(float);
}

/* Where block b of a run writes its two rows of pitch floats. */
static inline __device__ float *lk__bn_part(float *parts, const lk_bn_tiling &t, uint32_t run, uint32_t spans,
                                            uint32_t b)
{
    return parts + ((size_t)run * spans + b) * 2 * t.pitch;
}

/* A thread's part of a block. */
struct lk_bn_spot {
    int row, column;     /* position in the block */
    int channel;         /* its first channel; -1 if the thread has none */
    uint32_t pixel, end; /* its first pixel, and the block's end; equal if the thread has none */
};

/* The spot of this thread in a block with the pixels [begin, end). */
template <int V>
static __device__ lk_bn_spot lk__bn_spot(const lk_bn_tiling &t, uint32_t begin, uint32_t end)
{
    int row = (int)threadIdx.x / t.columns, column = (int)threadIdx.x % t.columns;
    int at = lk__bn_column(t) + column;
    return {row, column, at < t.all ? at * V : -1, at < t.all ? begin + row : end, end};
}

/* The pixels [begin, end) of a summing block. */
struct lk_bn_range {
    uint32_t begin, end;
};

static inline __device__ lk_bn_range lk__bn_range(const lk_bn_tiling &t, const lk_bn_runs &r)
{
    uint32_t first = r.begin[blockIdx.z], last = r.begin[blockIdx.z + 1], span = lk__bn_span(t, last - first);
    uint32_t begin = first + lk__bn_block(t) * span;
    if (begin >= last)
        return {last, last};
    return {begin, last - begin < span ? last : begin + span};
}

/* The offset of a thread's pixel in the tensor; that of the block's first pixel if the thread does not have it. */
static inline __device__ size_t lk__bn_offset(const lk_bn_tiling &t, const lk_bn_spot &s, uint32_t begin,
                                              uint32_t pixel)
{
    return (size_t)(pixel < s.end ? pixel : begin) * t.pitch + (s.channel < 0 ? 0 : s.channel);
}

/* Gives row 0 of the block the sums of all rows of its columns. shared has N floats for each thread. */
template <int N>
static __device__ void lk__bn_sum_rows(const lk_bn_tiling &t, const lk_bn_spot &s, float *shared, float (&v)[N])
{
    int threads = t.columns * t.rows, half = 1;
    float *own = shared + threadIdx.x;
    while (half < t.rows)
        half *= 2;
#pragma unroll
    for (int i = 0; i < N; i++)
        own[i * threads] = v[i];
    __syncthreads();
    for (half /= 2; half > 0; half /= 2) {
        if (s.row < half && s.row + half < t.rows) {
#pragma unroll
            for (int i = 0; i < N; i++)
                own[i * threads] = v[i] = v[i] + own[i * threads + half * t.columns];
        }
        __syncthreads();
    }
}

/* Values of channels that a pass reads. */
struct lk_bn_sources {
    const float *mean, *scale; // (groups, c)
    const float *gamma, *beta; // (c)
    const float *sums;         // (groups, 2, c)
    bool shared;               /* one group for all runs */
};

static inline lk_bn_sources lk__bn_sources(const lk_batchnorm_desc *desc, const lk_moments *moments, int group,
                                           size_t c)
{
    size_t at = (size_t)group * c;
    return {moments->mean + at, moments->scale + at, desc->gamma, desc->beta, nullptr, moments->groups == 1};
}

/* Calls f with the index of each channel in its block and in the tensor, then synchronises the block. */
template <int V, class F>
static __device__ void lk__bn_for_channels(const lk_bn_tiling &t, F f)
{
    int width = t.columns * V;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < width; i += (int)blockDim.x)
        f(i, lk__bn_column(t) * V + i);
    __syncthreads();
}

/* x as it is when it has been stored. */
template <class T>
static __device__ __forceinline__ float lk__bn_stored(float x)
{
    if constexpr (sizeof(T) == 2)
        return __bfloat162float(__float2bfloat16_rn(x));
    else
        return x;
}

template <int RELU>
static __device__ __forceinline__ float lk__bn_relu(float x)
{
    if constexpr (RELU == LK_BN_RELU_SIX)
        return x >= 6.0f ? 6.0f : lk__cuda_relu1(x);
    else
        return RELU == LK_BN_RELU_NONE ? x : lk__cuda_relu1(x);
}

/* The gradient dy of the ReLU after a normalisation whose result is y before it is stored. The ReLU's result is above
 * 0 (below 6) where the stored y is. */
template <class T, int RELU>
static __device__ __forceinline__ float lk__bn_relu_grad(float y, float dy)
{
    if constexpr (RELU == LK_BN_RELU_NONE)
        return dy;
    else if constexpr (RELU == LK_BN_RELU_PLAIN)
        return lk__cuda_relu_grad1(lk__bn_stored<T>(y), dy);
    else
        return lk__bn_stored<T>(y) >= 6.0f ? 0.0f : lk__cuda_relu_grad1(lk__bn_stored<T>(y), dy);
}

template <int RELU_>
struct lk_bn_relu_kind {
    static constexpr int RELU = RELU_;
};

/* Calls f with the lk_bn_relu_kind of desc. */
template <class F>
static void lk__bn_by_relu(const lk_batchnorm_desc *desc, F f)
{
    if (!desc->relu)
        f(lk_bn_relu_kind<LK_BN_RELU_NONE>());
    else if (!desc->six)
        f(lk_bn_relu_kind<LK_BN_RELU_PLAIN>());
    else
        f(lk_bn_relu_kind<LK_BN_RELU_SIX>());
}

/* A thread reads blocks b, b + LK_BN_FOLD_ROWS and so on of a run; LK_BN_FOLD_AT_ONCE loads are issued
 * together. row belongs to block 0. Beyond the last block, block b is read again. */
static inline __device__ void lk__bn_load_parts(const lk_bn_tiling &t, const float *row, uint32_t b, uint32_t blocks,
                                                float (&v)[LK_BN_FOLD_AT_ONCE])
{
#pragma unroll
    for (int k = 0; k < LK_BN_FOLD_AT_ONCE; k++) {
        uint32_t at = b + (uint32_t)(k * LK_BN_FOLD_ROWS);
        v[k] = row[(size_t)(at < blocks ? at : b) * 2 * t.pitch];
    }
}

/* A thread's sum over the blocks of a run. */
static inline __device__ double lk__bn_sum_parts(const lk_bn_tiling &t, const float *row, uint32_t blocks)
{
    double sum = 0;
    for (uint32_t b = threadIdx.y; b < blocks; b += LK_BN_FOLD_AT_ONCE * LK_BN_FOLD_ROWS) {
        float v[LK_BN_FOLD_AT_ONCE];
        lk__bn_load_parts(t, row, b, blocks, v);
#pragma unroll
        for (int k = 0; k < LK_BN_FOLD_AT_ONCE; k++) // conversions are slow: those that are not needed are left out
            if (b + (uint32_t)(k * LK_BN_FOLD_ROWS) < blocks)
                sum += (double)v[k];
    }
    return sum;
}

/* Gives every thread the sum over the rows of its channel and run, in a block of lk__bn_fold_threads. */
static inline __device__ double lk__bn_sum_fold_rows(double v)
{
    enum { WARP_ROWS = LK_WARP / LK_BN_FOLD_CHANNELS, WARPS = LK_BN_FOLD_ROWS / WARP_ROWS };
    static_assert(WARPS == 2, "a channel and run has two warps");
    __shared__ double rows[LK_BN_FOLD_RUNS][WARPS][LK_BN_FOLD_CHANNELS];
    int run = threadIdx.z, row = threadIdx.y, lane = threadIdx.x;
    for (int step = LK_BN_FOLD_CHANNELS; step < LK_WARP; step *= 2)
        v += __shfl_xor_sync(0xffffffffu, v, step);
    if (row % WARP_ROWS == 0)
        rows[run][row / WARP_ROWS][lane] = v;
    __syncthreads();
    v = rows[run][0][lane] + rows[run][1][lane];
    __syncthreads();
    return v;
}

/* A folding block has all runs of its channels. */
static inline dim3 lk__bn_fold_threads(const lk_bn_runs &r)
{
    return dim3(LK_BN_FOLD_CHANNELS, LK_BN_FOLD_ROWS,
                (unsigned)(r.count < LK_BN_FOLD_RUNS ? r.count : LK_BN_FOLD_RUNS));
}

static inline unsigned lk__bn_fold_blocks(const lk_bn_tiling &t)
{
    return (unsigned)((t.c + LK_BN_FOLD_CHANNELS - 1) / LK_BN_FOLD_CHANNELS);
}

static inline __device__ int lk__bn_fold_channel()
{
    return (int)(blockIdx.x * LK_BN_FOLD_CHANNELS + threadIdx.x);
}

/* The two results of each run for the channels of a folding block. */
struct lk_bn_entries {
    float first[LK_BN_RUNS][LK_BN_FOLD_CHANNELS], second[LK_BN_RUNS][LK_BN_FOLD_CHANNELS];
};

/* The stack of partial sums of a channel, for the thread that folds it. Entries of this launch take the place of its
 * leaves in shared memory, because every merge would wait for memory otherwise; those below them are in slots. */
struct lk_bn_stack {
    lk_bn_entries &entries;
    size_t c, channel;
    const lk_partials &partials;
    int below, count; /* entries in slots, and of this launch */

    __device__ lk_bn_stack(int depth, lk_bn_entries &e, size_t c_, size_t channel_, const lk_partials &p)
        : entries(e), c(c_), channel(channel_), partials(p), below(depth), count(0)
    {
    }

    __device__ float *slot(int depth) const
    {
        return partials.slot0 + partials.stride * (size_t)depth + channel;
    }

    /* The leaf of a shard, before any later one is pushed. */
    __device__ float2 leaf(int shard) const
    {
        return make_float2(entries.first[shard][threadIdx.x], entries.second[shard][threadIdx.x]);
    }

    __device__ float2 stored(int depth) const
    {
        const float *entry = slot(depth);
        return make_float2(entry[0], entry[c]);
    }

    __device__ float2 pop()
    {
        return count > 0 ? leaf(--count) : stored(--below);
    }

    __device__ float2 bottom() const
    {
        return below > 0 ? stored(0) : leaf(0);
    }

    __device__ void push(float2 entry)
    {
        entries.first[count][threadIdx.x] = entry.x;
        entries.second[count++][threadIdx.x] = entry.y;
    }

    __device__ void store() const
    {
        for (int i = 0; i < count; i++) {
            float2 entry = leaf(i);
            float *to = slot(below + i);
            to[0] = entry.x;
            to[c] = entry.y;
        }
    }
};

/* The merges of shards [first, first + LK_BN_RUNS); `depth` entries are on the stack before them. */
struct lk_bn_merges {
    int depth, count;
    uint8_t after[LK_BN_RUNS]; /* shard i */
};

static inline lk_bn_merges lk__bn_merges(const lk_shards *shards, int first, int depth)
{
    lk_bn_merges m = {};
    m.depth = depth;
    m.count = shards->count - first < LK_BN_RUNS ? shards->count - first : (int)LK_BN_RUNS;
    for (int i = 0; i < m.count; i++)
        m.after[i] = (uint8_t)shards->merges[first + i];
    return m;
}

/* Entries on the stack after the shards. */
static inline int lk__bn_depth_after(const lk_bn_merges &m)
{
    int depth = m.depth;
    for (int i = 0; i < m.count; i++)
        depth += 1 - m.after[i];
    return depth;
}

/* Elements of each group; 0 for an empty group. */
struct lk_bn_counts {
    float of[LK_BN_RUNS];
};

/* The elements of groups [first, first + LK_BN_RUNS). */
static inline lk_bn_counts lk__bn_counts(const size_t *rows, int first, int groups, size_t pixels)
{
    lk_bn_counts k = {};
    for (int i = 0; i < LK_BN_RUNS && first + i < groups; i++)
        k.of[i] = (float)(rows[first + i] * pixels);
    return k;
}

#endif
