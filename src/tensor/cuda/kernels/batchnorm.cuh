/* batchnorm.cuh - how the kernels of batch normalisation, and of a bias' gradient, divide a tensor. For nvcc only.
 *
 * A sum over a shard's pixels has three levels: a chain in each thread, a tree over the threads of a block that
 * have the same channels, and a sum of the blocks (batchnorm_fold.cuh). How many pixels each level has depends only on
 * the shard's pixels, the pitch, and the largest shard and the number of shards of the step, which are the same for
 * every rank. Pixels are counted over all samples, in 32 bits. */
#ifndef LK_TENSOR_CUDA_KERNELS_BATCHNORM_CUH
#define LK_TENSOR_CUDA_KERNELS_BATCHNORM_CUH

#include "tensor/cuda/kernels/vec4.cuh"

enum {
    LK_BN_RUNS = 64, /* shards of a launch */
    /* Most vectors of channels of a block: 256 bytes of a pixel. With more, a block would have fewer pixels: more
     * results of blocks, and more loads of the values of channels. */
    LK_BN_COLUMNS = 16,
    /* Summing blocks of all shards of a step to aim at. More blocks mean more results to combine; with fewer the GPU
     * would not be filled: this is twice as many as 132 multiprocessors hold. */
    LK_BN_BLOCKS = 792,
    LK_BN_LEAST = 8, /* pixels of a thread that sums: a multiple of this, at most LK_BN_MOST */
    LK_BN_MOST = 128,
    LK_BN_RESIDENT = 3 /* summing blocks on a multiprocessor: with more, loads would wait for registers */
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
    uint32_t span;  /* pixels of a summing block; 0 in kernels that do not sum */
    bool backwards; /* the first blocks have the last pixels, which the kernel before wrote last: they may be cached */
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
    t.span = 0;
    t.backwards = false;
    return t;
}

/* The tiling of kernels that sum. A block has the same pixels in all shards of the step. */
static inline lk_bn_tiling lk__bn_sum_tiling(const lk_tensor *x, int width, const lk_shards *shards)
{
    lk_bn_tiling t = lk__bn_tiling(x, width);
    size_t blocks = lk__cuda_parts(LK_BN_BLOCKS, (size_t)t.tiles * (size_t)shards->all);
    size_t each = lk__cuda_parts(shards->most * x->shape.h * x->shape.w, blocks * (size_t)t.rows * LK_BN_LEAST);
    each = LK_BN_LEAST * (each ? each : 1);
    t.span = (uint32_t)(each < LK_BN_MOST ? each : (size_t)LK_BN_MOST) * (uint32_t)t.rows;
    t.backwards = true;
    return t;
}

/* `blocks` blocks of pixels for each run. */
static inline dim3 lk__bn_grid(const lk_bn_tiling &t, uint32_t blocks, int runs)
{
    return dim3(blocks * (uint32_t)t.tiles, 1, (unsigned)runs);
}

/* The number of this block's run. */
static inline __device__ uint32_t lk__bn_run_index(const lk_bn_tiling &t)
{
    return t.backwards ? gridDim.z - 1 - blockIdx.z : blockIdx.z;
}

/* The number of this block among those of its columns in the run. */
static inline __device__ uint32_t lk__bn_block(const lk_bn_tiling &t)
{
    return (t.backwards ? gridDim.x - 1 - blockIdx.x : blockIdx.x) / (uint32_t)t.tiles;
}

/* The first column of this block. */
static inline __device__ int lk__bn_column(const lk_bn_tiling &t)
{
    return (int)(blockIdx.x % (uint32_t)t.tiles) * t.columns;
}

static inline unsigned lk__bn_threads(const lk_bn_tiling &t)
{
    return (unsigned)(t.columns * t.rows);
}

/* Summing blocks of a shard. */
static inline __host__ __device__ uint32_t lk__bn_spans(const lk_bn_tiling &t, uint32_t pixels)
{
    return pixels / t.span + (pixels % t.span != 0);
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

/* The largest number of blocks of a run. */
static inline uint32_t lk__bn_most_spans(const lk_bn_tiling &t, const lk_bn_runs &r)
{
    uint32_t most = 0;
    for (int i = 0; i < r.count; i++) {
        uint32_t spans = lk__bn_spans(t, r.begin[i + 1] - r.begin[i]);
        most = spans > most ? spans : most;
    }
    return most;
}

/* Bytes for the results of all blocks of one launch, N for each channel; the maximum over a wave's launches. */
template <int N>
static inline size_t lk__bn_parts_bytes(const lk_bn_tiling &t, const lk_shards *shards, size_t pixels)
{
    size_t most = 1;
    for (int first = 0; first < shards->count; first += LK_BN_RUNS) {
        lk_bn_runs r = lk__bn_runs(shards, first, pixels);
        size_t blocks = (size_t)r.count * lk__bn_most_spans(t, r);
        most = blocks > most ? blocks : most;
    }
    return most * N * (size_t)t.pitch * sizeof(float);
}

/* Where block b of a run writes its results, N for each channel. */
template <int N>
static inline __device__ float *lk__bn_part(float *parts, const lk_bn_tiling &t, uint32_t run, uint32_t spans,
                                            uint32_t b)
{
    return parts + ((size_t)run * spans + b) * (size_t)(N * t.pitch);
}

/* Writes the two results of a thread's channels. */
template <int V>
static __device__ void lk__bn_store_pairs(float *part, const float (&first)[V], const float (&second)[V])
{
    if constexpr (V == 1) {
        *(float2 *)part = make_float2(first[0], second[0]);
    } else {
#pragma unroll
        for (int i = 0; i < V; i += 2)
            *(float4 *)(part + 2 * i) = make_float4(first[i], second[i], first[i + 1], second[i + 1]);
    }
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
    uint32_t run = lk__bn_run_index(t), first = r.begin[run], last = r.begin[run + 1];
    uint32_t begin = first + lk__bn_block(t) * t.span;
    if (begin >= last)
        return {last, last};
    return {begin, last - begin < t.span ? last : begin + t.span};
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
    float *own = shared + s.row * t.columns + s.column;
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
