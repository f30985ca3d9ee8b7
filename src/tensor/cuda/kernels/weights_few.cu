/* weights_few.cu - weight gradients of linear layers with few samples a shard. The time goes into reading x and
 * writing dw, so leaves must not go to memory: a thread keeps 4 x 8 sums, walks over all leaves of its group, and folds
 * the tree in registers. Products are fused multiply-adds; under tf32 both factors are rounded first.
 *
 * A block computes M output features by N input features. It copies PIECE samples at a time to shared memory,
 * asynchronously and STAGES - 1 pieces ahead. */
#include "tensor/cuda/kernels/mma.cuh"
#include "tensor/cuda/kernels/weights.h"

enum { M = 32, N = 128, TM = 4, TN = 8, THREADS = M / TM * (N / TN), PIECE = 16, STAGES = 4, LEVELS = 5 };
enum { FULL = 264 };
enum { MOST_SAMPLES = 16, SMALL_ROWS = 128 }; /* of the largest shard, and of a group that is not divided */

typedef struct few_shape {
    int c, k; /* pitches */
    int tiles_n;
} few_shape;

/* The part of a tensor (samples, pitch) that a block reads: COLUMNS features from `column` on. */
template <class T, int COLUMNS>
static __device__ __forceinline__ void copy_piece(const T *from, int pitch, int column, uint32_t begin, uint32_t end,
                                                  T (*to)[COLUMNS])
{
    enum { VEC = 16 / sizeof(T), UNITS = COLUMNS / VEC };
#pragma unroll
    for (int i = (int)threadIdx.x; i < PIECE * UNITS; i += THREADS) {
        int row = i / UNITS, at = i % UNITS * VEC;
        bool inside = begin + row < end && column + at < pitch;
        copy_unit(shared_at(&to[row][at]), inside ? from + (size_t)(begin + row) * pitch + column + at : from, inside);
    }
}

template <bool TF32>
static __device__ __forceinline__ float factor(float v)
{
    return TF32 ? __uint_as_float(round_tf32(v)) : v;
}

/* Four neighbouring features. */
template <bool TF32, class T>
static __device__ __forceinline__ void load_factors(const T *from, float *v)
{
    float f[4];
    lk__cuda_load(from, f);
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = factor<TF32>(f[i]);
}

/* A thread's sums, and those of its leaves that are not merged yet. */
struct few_sums {
    float acc[TM][TN], saved[LEVELS][TM][TN];
    int count; /* of saved */

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++)
                acc[i][j] = 0.0f;
    }

    /* An index that the compiler knows keeps `saved` in registers. */
    template <class F>
    __device__ __forceinline__ void at_level(int level, F f)
    {
#pragma unroll
        for (int l = 0; l < LEVELS; l++)
            if (l == level) {
#pragma unroll
                for (int i = 0; i < TM; i++)
#pragma unroll
                    for (int j = 0; j < TN; j++)
                        f(acc[i][j], saved[l][i][j]);
            }
    }

    /* The end of a leaf. */
    __device__ __forceinline__ void fold(int merges, bool last)
    {
        for (int m = 0; m < merges; m++)
            at_level(--count, [](float &sum, float &left) { sum = left + sum; });
        if (last)
            return;
        at_level(count++, [](float &sum, float &left) {
            left = sum;
            sum = 0.0f;
        });
    }

    template <bool TF32, class T>
    __device__ __forceinline__ void add(const T *ys, const T *xs)
    {
        float a[TM], b[TN];
        load_factors<TF32>(ys, a);
        load_factors<TF32>(xs, b);
        load_factors<TF32>(xs + N / 2, b + 4);
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++)
                acc[i][j] = __fmaf_rn(a[i], b[j], acc[i][j]);
    }
};

template <class T>
struct few_memory {
    T xs[STAGES][PIECE][N], ys[STAGES][PIECE][M];
};

/* out: (groups, k, c). */
template <class T, bool TF32>
static __global__ void __launch_bounds__(THREADS, 2)
    few_grad_weight(const __grid_constant__ few_shape s, const __grid_constant__ lk_cuda_leaves leaves, const T *dy,
                    const T *x, float *out)
{
    __shared__ __align__(16) few_memory<T> memory;
    int k0 = (int)blockIdx.x / s.tiles_n * M, c0 = (int)blockIdx.x % s.tiles_n * N;
    int mine_k = (int)threadIdx.x / (N / TN) * TM, mine_c = (int)threadIdx.x % (N / TN) * 4;
    int leaf = leaves.group[blockIdx.y], last = leaves.group[blockIdx.y + 1];
    uint32_t begin = leaves.begin[leaf], end = leaves.begin[last];
    auto copy = [&](uint32_t piece) {
        if (begin + piece * PIECE < end) {
            copy_piece<T, N>(x, s.c, c0, begin + piece * PIECE, end, memory.xs[piece % STAGES]);
            copy_piece<T, M>(dy, s.k, k0, begin + piece * PIECE, end, memory.ys[piece % STAGES]);
        }
        copies_commit();
    };
    for (uint32_t piece = 0; piece < STAGES - 1; piece++)
        copy(piece);
    few_sums sums;
    sums.clear();
    sums.count = 0;
    uint32_t row = begin;
    auto close = [&]() { // all leaves that end at this row
        for (; leaf < last && leaves.begin[leaf + 1] == row; leaf++)
            sums.fold(leaves.inner[leaf], leaf + 1 == last);
    };
    close();
    for (uint32_t piece = 0; row < end; piece++) {
        uint32_t stop = min(begin + (piece + 1) * PIECE, end);
        copies_wait<STAGES - 2>();
        __syncthreads();
        copy(piece + STAGES - 1);
        while (row < stop) {
            uint32_t until = min(stop, leaves.begin[leaf + 1]);
#pragma unroll 2
            for (; row < until; row++) {
                uint32_t at = row - begin - piece * PIECE;
                sums.add<TF32>(&memory.ys[piece % STAGES][at][mine_k], &memory.xs[piece % STAGES][at][mine_c]);
            }
            close();
        }
    }
    out += (size_t)blockIdx.y * s.k * s.c;
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int k = k0 + mine_k + i, c = c0 + mine_c + half * (N / 2);
            const float *v = &sums.acc[i][half * 4];
            if (k < s.k && c < s.c)
                *(float4 *)(out + (size_t)k * s.c + c) = make_float4(v[0], v[1], v[2], v[3]);
        }
}

static few_shape shape_of(const lk_cuda_problem *problem)
{
    few_shape s;
    s.c = problem->x_pitch;
    s.k = problem->y_pitch;
    s.tiles_n = (s.c + N - 1) / N;
    return s;
}

static size_t tiles_of(few_shape s)
{
    return (size_t)s.tiles_n * (size_t)((s.k + M - 1) / M);
}

static bool suits(const lk_cuda_problem *problem, size_t most)
{
    return problem->linear && problem->x_pitch % 8 == 0 && problem->y_pitch % 8 == 0 && most <= MOST_SAMPLES;
}

static lk_cuda_cut cut_of(const lk_cuda_problem *problem, size_t most)
{
    lk_cuda_cut cut = {};
    (void)most;
    cut.rows = 1;
    cut.chunk = PIECE;
    cut.least = MOST_SAMPLES; /* one part */
    cut.tiles = tiles_of(shape_of(problem));
    cut.full = FULL;
    cut.levels = LEVELS;
    cut.small = SMALL_ROWS;
    cut.weights = lk__cuda_weights(problem);
    return cut;
}

template <class T, bool TF32>
static void launch(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, float *out)
{
    few_shape s = shape_of(problem);
    dim3 blocks((unsigned)tiles_of(s), (unsigned)leaves->groups);
    few_grad_weight<T, TF32><<<blocks, THREADS, 0, io->stream>>>(s, *leaves, (const T *)io->dy, (const T *)io->x, out);
    lk__cuda_launched(io->dev, "gradient of the weights of a linear layer");
}

static void launch_leaves(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                          size_t most, float *out)
{
    (void)most;
    if (problem->values == LK_DTYPE_BF16)
        launch<lk_bf16, false>(problem, io, leaves, out);
    else if (problem->precision == LK_PRECISION_TF32)
        launch<float, true>(problem, io, leaves, out);
    else
        launch<float, false>(problem, io, leaves, out);
}

const lk_cuda_leaf_kernel lk__cuda_weights_few = {"few samples a shard", suits, cut_of, launch_leaves};
