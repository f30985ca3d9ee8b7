/* batchnorm.cuh - how the kernels of batch normalisation divide a tensor. For nvcc only.
 *
 * A sum over a shard's pixels has three levels: a chain in each thread, a tree over the threads of a block that
 * have the same channels, and a sum of the blocks in double. How many pixels each level has depends only on the
 * shard's pixels and the pitch. Pixels are counted over all samples, in 32 bits. */
#ifndef LK_TENSOR_CUDA_KERNELS_BATCHNORM_CUH
#define LK_TENSOR_CUDA_KERNELS_BATCHNORM_CUH

#include "tensor/cuda/kernels/vec.cuh"

enum {
    LK_BN_RUNS = 64,    /* shards of a launch */
    LK_BN_COLUMNS = 64, /* most vectors of channels of a block */
    LK_BN_BLOCKS = 264, /* blocks of a shard to aim at: two for each multiprocessor */
    LK_BN_LEAST = 4,    /* least pixels of a thread that sums */
    LK_BN_MOST = 64,
    LK_BN_RESIDENT = 3, /* summing blocks on a multiprocessor: with more, loads would wait for registers */
    LK_BN_FOLD_CHANNELS = 32,
    LK_BN_FOLD_ROWS = 16,
    LK_BN_FOLD_THREADS = LK_BN_FOLD_CHANNELS * LK_BN_FOLD_ROWS,
    LK_BN_FOLD_AT_ONCE = 8
};

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

/* How blocks cover (pixels, vectors of channels). */
struct lk_bn_tiling {
    int columns, rows; /* of a block */
    int all;           /* columns of the tensor */
    int pitch, c;
};

static inline lk_bn_tiling lk__bn_tiling(const lk_tensor *x, int width)
{
    lk_bn_tiling t;
    t.pitch = (int)lk__tensor_pitch(x);
    t.c = (int)x->shape.c;
    t.all = t.pitch / width;
    t.columns = t.all < LK_BN_COLUMNS ? t.all : (int)LK_BN_COLUMNS;
    t.rows = LK_THREADS / t.columns;
    return t;
}

static inline unsigned lk__bn_threads(const lk_bn_tiling &t)
{
    return (unsigned)(t.columns * t.rows);
}

static inline unsigned lk__bn_column_tiles(const lk_bn_tiling &t)
{
    return (unsigned)((t.all + t.columns - 1) / t.columns);
}

/* Pixels of a summing block. */
static inline __host__ __device__ uint32_t lk__bn_span(const lk_bn_tiling &t, uint32_t pixels)
{
    uint32_t each = pixels / (uint32_t)(t.rows * LK_BN_BLOCKS);
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
    int at = (int)blockIdx.y * t.columns + column;
    return {row, column, at < t.all ? at * V : -1, at < t.all ? begin + row : end, end};
}

/* Gives every thread the sum of all rows of its column. */
template <int V>
static __device__ void lk__bn_sum_rows(const lk_bn_tiling &t, const lk_bn_spot &s, float *shared, float (&v)[V])
{
    float *own = shared + (s.row * t.columns + s.column) * V;
    int half = 1;
    while (half < t.rows)
        half *= 2;
#pragma unroll
    for (int i = 0; i < V; i++)
        own[i] = v[i];
    __syncthreads();
    for (half /= 2; half > 0; half /= 2) {
        if (s.row < half && s.row + half < t.rows) {
#pragma unroll
            for (int i = 0; i < V; i++)
                own[i] += own[half * t.columns * V + i];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        v[i] = shared[s.column * V + i];
    __syncthreads();
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

/* Gives every thread the sum over the rows of a block of LK_BN_FOLD_CHANNELS x LK_BN_FOLD_ROWS threads. */
static inline __device__ double lk__bn_sum_fold_rows(double v)
{
    __shared__ double rows[LK_BN_FOLD_ROWS][LK_BN_FOLD_CHANNELS];
    int row = threadIdx.y, lane = threadIdx.x;
    rows[row][lane] = v;
    __syncthreads();
    for (int half = LK_BN_FOLD_ROWS / 2; half > 0; half /= 2) {
        if (row < half)
            rows[row][lane] += rows[row + half][lane];
        __syncthreads();
    }
    v = rows[0][lane];
    __syncthreads();
    return v;
}

static inline dim3 lk__bn_fold_threads()
{
    return dim3(LK_BN_FOLD_CHANNELS, LK_BN_FOLD_ROWS);
}

static inline dim3 lk__bn_fold_grid(const lk_bn_tiling &t, const lk_bn_runs &r)
{
    return dim3((unsigned)((t.c + LK_BN_FOLD_CHANNELS - 1) / LK_BN_FOLD_CHANNELS), (unsigned)r.count);
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
