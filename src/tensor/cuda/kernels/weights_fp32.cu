/* weights_fp32.cu - weight gradients in fp32 as products of dense matrices by fused multiply-adds: dw (k, taps * c) =
 * dy^T (k, pixels) * windows of x (pixels, taps * c), and gradients of biases.
 *
 * A block computes a tile of M output channels by N columns, which are input channels of one or more taps. It copies
 * stages of pixels, asynchronously and SLOTS - 1 stages ahead, from dy and x to shared memory. Rows behind the end
 * of a leaf and pixels outside of the image are zero. Each sum is one chain of additions in the order of the pixels, so
 * its bits do not depend on the size of the tiles.
 *
 * The gradient of a bias is summed by one tile of columns of each part, which has dy in shared memory: sums of
 * stages, then these in order.
 *
 * A group has at most two leaves: the sums of the first one wait in the block's rows of the result. */
#include "tensor/cuda/kernels/fma_order.cuh"
#include "tensor/cuda/kernels/mma.cuh"
#include "tensor/cuda/kernels/vec4.cuh"
#include "tensor/cuda/kernels/weights.h"

/* Pixels that are copied between two barriers and added without a branch, and those of a chunk of a part. */
enum { STAGE = 8, CHUNK = 32 };
enum { MOST_TAPS = 15 };                        /* along an axis */
enum { MULTIPROCESSORS = 132, SCHEDULERS = 4 }; /* of a large GPU, and of a multiprocessor */
enum : unsigned { NO_TAP = 1u << 31 };

typedef struct sums_shape {
    int c, x_pitch, k, y_pitch; /* of a group; a single group includes the pads */
    int kernel_w, width;        /* taps * c */
    int h, w;
    unsigned zero; /* 0 */
    lk_cuda_window along_h, along_w;
    int tiles_n, tiles; /* of a group: along columns, and all */
    divisor q, pixels;  /* width of y, pixels of a sample of y */
    divisor dilation_h, dilation_w;
} sums_shape;

/* A thread computes TM x TN sums in squares of 4 x 4. A warp has LANES lanes along columns. */
template <int M_, int N_, int TM_, int TN_, int LANES_, int WARPS_, int SLOTS_>
struct sums_tile {
    enum {
        M = M_,
        N = N_,
        TM = TM_,
        TN = TN_,
        LANES = LANES_,
        SLOTS = SLOTS_, /* stages in shared memory */
        DOWN = LK_WARP / LANES,
        WM = TM * DOWN, /* of a warp */
        WN = TN * LANES,
        THREADS = M / WM * (N / WN) * LK_WARP,
        BLOCKS = WARPS_ * LK_WARP / THREADS, /* of a multiprocessor */
        Y_FLOATS = STAGE * M,
        SLOT = STAGE * (M + N), /* floats */
        BYTES = SLOTS * SLOT * 4
    };
    static_assert(M % WM == 0 && N % WN == 0, "whole warps");

    /* The lane's place along columns. Lanes i and i ^ 1 have the same row, and i and i ^ 2 the same column: shared
     * memory then serves 16 lanes that read 16 bytes each at once. */
    static __device__ __forceinline__ int across()
    {
        int lane = lk__cuda_lane();
        return lane % 2 + lane / 4 % (LANES / 2) * 2;
    }

    static __device__ __forceinline__ int first_m()
    {
        int lane = lk__cuda_lane(), warp = (int)threadIdx.x / LK_WARP;
        return warp / (N / WN) * WM + (lane / 2 % 2 + lane / (2 * LANES) * 2) * QUAD;
    }

    static __device__ __forceinline__ int first_n()
    {
        int warp = (int)threadIdx.x / LK_WARP;
        return warp % (N / WN) * WN + across() * QUAD;
    }
};

/* What a block computes: chunks from `from` on, of leaves [leaf, last), of channels from m0 and columns from n0. */
struct block_sums {
    int leaf, last, from;
    int group, m0, n0;
    bool bias; /* whether it sums the bias, too: one tile of columns, another one from part to part */

    template <class P>
    static __device__ __forceinline__ block_sums of(const sums_shape &s, const lk_cuda_leaves &leaves)
    {
        block_sums work;
        int part = (int)blockIdx.y % leaves.parts, row = (int)blockIdx.y / leaves.parts;
        int tile = (int)blockIdx.x % s.tiles;
        work.leaf = leaves.group[row];
        work.last = leaves.group[row + 1];
        work.from = leaves.parts > 1 ? part * leaves.chunks : 0;
        work.group = (int)blockIdx.x / s.tiles;
        work.m0 = tile / s.tiles_n * P::M;
        work.n0 = tile % s.tiles_n * P::N;
        work.bias = tile % s.tiles_n == (int)blockIdx.y % s.tiles_n;
        return work;
    }

    /* Rows of a leaf that the block adds; at most 0 if there are none. */
    __device__ __forceinline__ int rows_of(const lk_cuda_leaves &leaves, int at) const
    {
        int rows = (int)(leaves.begin[at + 1] - leaves.begin[at]) - from * CHUNK;
        return leaves.parts > 1 ? min(rows, leaves.chunks * CHUNK) : rows;
    }
};

/* The taps of an axis that read a pixel outside of the image of this size, if the first one reads pixel `first`; bits
 * of taps that the window does not have mean nothing. */
static __device__ __forceinline__ unsigned outside_taps(divisor dilation, int first, int size)
{
    unsigned below = first < 0 ? quotient((unsigned)-first + dilation.by - 1, dilation) : 0;
    unsigned end = first < size ? quotient((unsigned)(size - first) + dilation.by - 1, dilation) : 0;
    unsigned inside = (1u << min(end, (unsigned)MOST_TAPS)) - (1u << min(below, (unsigned)MOST_TAPS));
    return end > below ? ~inside & ((1u << MOST_TAPS) - 1) : (1u << MOST_TAPS) - 1;
}

/* Copies the stages of a block to shared memory, one after the other, over all its leaves; behind the last leaf, zeros.
 * Units of 16 bytes are dealt out to threads row by row, first those of dy, then those of x. */
template <class P>
struct sums_loader {
    enum {
        UNITS_Y = P::M / QUAD,
        UNITS_X = P::N / QUAD,
        STEP_Y = P::THREADS / UNITS_Y, /* rows from one copy of a thread to its next */
        STEP_X = P::THREADS / UNITS_X,
        COUNT_Y = STAGE / STEP_Y,
        COUNT_X = STAGE / STEP_X
    };
    static_assert(STEP_Y * UNITS_Y == P::THREADS && STEP_X * UNITS_X == P::THREADS, "threads copy whole rows");
    static_assert(COUNT_Y * STEP_Y == STAGE && COUNT_X * STEP_X == STAGE, "threads copy whole stages");

    const float *dy, *x; /* the thread's first copy of the stage, and that of a window whose first pixel is 0 */
    uint32_t to;
    unsigned taps;  /* the bits of the tap of the thread's columns of x in `place` */
    int leaf, left; /* rows of the leaf from the stage on */
    uint32_t row;   /* the stage's first one */
    uint32_t y_end; /* of the leaf, less the thread's first row; 0 if its channels do not exist */
    int at, phase;  /* of the row of the chunk that is the lane's number: its window's first pixel of x, */
    unsigned place; /* and which taps of the window are outside of the image; phase: the stage's place in the chunk */

    /* The rows of a stage that the thread copies first. */
    static __device__ __forceinline__ int row_y()
    {
        return (int)threadIdx.x / UNITS_Y;
    }

    static __device__ __forceinline__ int row_x()
    {
        return (int)threadIdx.x / UNITS_X;
    }

    __device__ __forceinline__ void start(const sums_shape &s, const lk_cuda_leaves &leaves, const block_sums &work,
                                          const float *dy_, const float *x_, uint32_t memory)
    {
        int unit_x = (int)threadIdx.x % UNITS_X, column = work.n0 + unit_x * QUAD;
        to = memory + threadIdx.x * QUAD * 4;
        int tap = column / s.c, r = tap / s.kernel_w, t = tap - r * s.kernel_w;
        taps = column < s.width ? 1u << r | 1u << (MOST_TAPS + t) : NO_TAP;
        x = x_ + work.group * s.c + (column - tap * s.c);
        x = moved_by(x, r * s.along_h.dilation * s.w + t * s.along_w.dilation, s.x_pitch * 4);
        leaf = work.leaf;
        enter_leaf(s, leaves, work, dy_);
        enter_chunk(s, leaves);
    }

    __device__ __forceinline__ void enter_leaf(const sums_shape &s, const lk_cuda_leaves &leaves,
                                               const block_sums &work, const float *dy_)
    {
        int channel = work.m0 + (int)threadIdx.x % UNITS_Y * QUAD;
        left = work.rows_of(leaves, leaf);
        row = leaves.begin[leaf] + (uint32_t)work.from * CHUNK;
        y_end = channel < s.k ? leaves.begin[leaf + 1] - (uint32_t)row_y() : 0;
        dy = moved_by(dy_ + work.group * s.k + channel, (int)row + row_y(), s.y_pitch * 4);
        phase = 0;
    }

    /* Finds the windows of the next CHUNK rows, each lane one. */
    __device__ __forceinline__ void enter_chunk(const sums_shape &s, const lk_cuda_leaves &leaves)
    {
        uint32_t pixel = row + lk__cuda_lane();
        unsigned n = quotient(pixel, s.pixels), rest = pixel - n * s.pixels.by, p = quotient(rest, s.q);
        int h = (int)p * s.along_h.stride - s.along_h.pad;
        int w = (int)(rest - p * s.q.by) * s.along_w.stride - s.along_w.pad;
        at = ((int)n * s.h + h) * s.w + w;
        place = outside_taps(s.dilation_h, h, s.h) | outside_taps(s.dilation_w, w, s.w) << MOST_TAPS | NO_TAP;
        place = pixel < leaves.begin[leaf + 1] ? place : ~0u;
    }

    /* All copies of the stage are together: an instruction that copies behind one that reads shared memory costs some
     * empty ones. */
    __device__ __forceinline__ void copy(const sums_shape &s) const
    {
        int inside = (int)(y_end - row); /* rows from the thread's first one on */
        int at_row[COUNT_X];
        unsigned place_row[COUNT_X];
#pragma unroll
        for (int i = 0; i < COUNT_X; i++) {
            at_row[i] = __shfl_sync(~0u, at, phase + row_x() + i * STEP_X);
            place_row[i] = __shfl_sync(~0u, place, phase + row_x() + i * STEP_X);
        }
#pragma unroll
        for (int i = 0; i < COUNT_Y; i++)
            copy_quad(to + (uint32_t)(i * STEP_Y * P::M) * 4, moved_by(dy, i * STEP_Y, s.y_pitch * 4),
                      i * STEP_Y >= inside);
#pragma unroll
        for (int i = 0; i < COUNT_X; i++)
            copy_quad(to + (uint32_t)(P::Y_FLOATS + i * STEP_X * P::N) * 4, moved_by(x, at_row[i], s.x_pitch * 4),
                      (place_row[i] & taps) != 0);
    }

    /* Begins the next stage; `memory` is where the first slot of a thread begins. */
    __device__ __forceinline__ void next(const sums_shape &s, const lk_cuda_leaves &leaves, const block_sums &work,
                                         const float *dy_, uint32_t memory)
    {
        copies_commit();
        to += P::SLOT * 4;
        if (to >= memory + P::BYTES)
            to -= P::BYTES;
        row += STAGE;
        left -= STAGE;
        phase += STAGE;
        dy = moved_by(dy, STAGE, s.y_pitch * 4);
        if (left <= 0 && leaf < work.last) {
            if (++leaf < work.last)
                enter_leaf(s, leaves, work, dy_);
            else
                y_end = 0, place = ~0u, phase = INT_MIN;
        }
        if (phase == CHUNK)
            phase = 0;
        if (phase == 0)
            enter_chunk(s, leaves);
    }
};

/* A thread's factors of two rows: one is multiplied while the other one is loaded. */
template <class P>
struct fragments {
    float a[2][P::TM], b[2][P::TN];

    __device__ __forceinline__ void load(const float *stage, int row)
    {
        const float *x = stage + P::Y_FLOATS + row * P::N;
        load_quads<P::TM>(stage + row * P::M + P::first_m(), P::DOWN * QUAD, a[row % 2]);
        load_quads<P::TN>(x + P::first_n(), P::LANES * QUAD, b[row % 2]);
    }
};

/* The sums of a leaf, or of the block's part of it. */
template <class P>
struct leaf_sums {
    enum { EACH = (P::M + P::THREADS - 1) / P::THREADS }; /* channels of the bias */

    float acc[P::TM][P::TN], bias[EACH];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < P::TM; i++)
#pragma unroll
            for (int j = 0; j < P::TN; j++)
                acc[i][j] = 0.0f;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            bias[i] = 0.0f;
    }

    /* Adds a stage to the sums of the bias. */
    __device__ __forceinline__ void add_bias(const float *stage)
    {
        static_assert(STAGE == 8, "a tree of eight");
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int channel = (int)threadIdx.x + i * P::THREADS;
            if (channel >= P::M)
                break;
            float v[STAGE];
#pragma unroll
            for (int row = 0; row < STAGE; row++)
                v[row] = stage[row * P::M + channel];
            bias[i] += ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
        }
    }
};

/* Waits for the next stage; all threads are behind the one before it. */
template <class P>
static __device__ __forceinline__ void await_stage()
{
    copies_wait<P::SLOTS - 2>();
    __syncthreads();
}

/* Writes the sums of a leaf; with `add`, those that were written before come first in an addition. */
template <class P>
static __device__ __forceinline__ void write_sums(const sums_shape &s, const block_sums &work,
                                                  const float (&acc)[P::TM][P::TN], bool add, float *out)
{
    out += (size_t)work.group * s.k * s.width;
#pragma unroll
    for (int i = 0; i < P::TM; i++) {
        int m = work.m0 + P::first_m() + i / QUAD * QUAD * P::DOWN + i % QUAD;
        float *line = out + (size_t)m * s.width;
        if (m >= s.k)
            continue;
#pragma unroll
        for (int j = 0; j < P::TN; j += QUAD) {
            int n = work.n0 + P::first_n() + j * P::LANES;
            if (n >= s.width)
                continue;
            float4 v = loosened(&acc[i][j], s.zero);
            *(float4 *)(line + n) = add ? lk__cuda_add4(*(const float4 *)(line + n), v) : v;
        }
    }
}

template <class P>
static __device__ __forceinline__ void write_bias(const sums_shape &s, const block_sums &work, const float *sums,
                                                  bool add, float *out)
{
#pragma unroll
    for (int i = 0; i < leaf_sums<P>::EACH; i++) {
        int channel = (int)threadIdx.x + i * P::THREADS, m = work.m0 + channel;
        if (channel < P::M && m < s.k)
            out[m] = add ? out[m] + sums[i] : sums[i];
    }
}

/* Adds the stages of a block's leaves. The barrier comes before the last row of a stage: its factors are in registers
 * already, and the first ones of the next stage are loaded behind the barrier. An empty leaf has one stage, which is
 * zero. */
template <class P>
static __device__ __forceinline__ void add_leaves(const sums_shape &s, const lk_cuda_leaves &leaves,
                                                  const block_sums &work, const float *dy, const float *x,
                                                  const lk_cuda_rows &out, const float *memory)
{
    bool with_bias = work.bias && out.bias;
    const float *stage = memory;
    uint32_t begin = shared_at(memory);
    sums_loader<P> loader;
    fragments<P> f;
    leaf_sums<P> sums;
    loader.start(s, leaves, work, dy, x, begin);
#pragma unroll 1
    for (int i = 0; i < P::SLOTS - 1; i++) {
        loader.copy(s);
        loader.next(s, leaves, work, dy, begin);
    }
    await_stage<P>();
    f.load(stage, 0);
#pragma unroll 1
    for (int leaf = work.leaf; leaf < work.last; leaf++) {
        int left = work.rows_of(leaves, leaf);
        sums.clear();
#pragma unroll 1
        do {
            if (with_bias)
                sums.add_bias(stage);
#pragma unroll
            for (int i = 0; i < STAGE - 1; i++) {
                f.load(stage, i + 1);
                if (i == 1)
                    loader.copy(s);
                add_products(sums.acc, f.a[i % 2], f.b[i % 2]);
            }
            loader.next(s, leaves, work, dy, begin);
            stage = stage == memory + (P::SLOTS - 1) * P::SLOT ? memory : stage + P::SLOT;
            await_stage<P>();
            f.load(stage, 0);
            add_products(sums.acc, f.a[(STAGE - 1) % 2], f.b[(STAGE - 1) % 2]);
            left -= STAGE;
        } while (left > 0);
        bool add = leaves.inner[leaf] > 0;
        write_sums<P>(s, work, sums.acc, add, out.weights + blockIdx.y * out.row);
        if (with_bias)
            write_bias<P>(s, work, sums.bias, add, out.bias + blockIdx.y * out.row);
    }
}

template <class P>
static __global__ void __launch_bounds__(P::THREADS, P::BLOCKS)
    sum_pixels(const __grid_constant__ sums_shape s, const __grid_constant__ lk_cuda_leaves leaves, const float *dy,
               const float *x, const __grid_constant__ lk_cuda_rows out)
{
    lk__cuda_await_alone();
    extern __shared__ __align__(1024) float memory[];
    block_sums work = block_sums::of<P>(s, leaves);
    if (work.from == 0 || work.rows_of(leaves, work.leaf) > 0) /* otherwise the leaf has fewer parts */
        add_leaves<P>(s, leaves, work, dy, x, out, memory);
}

static sums_shape shape_of(const lk_cuda_problem *problem, int m, int n)
{
    bool one = problem->groups == 1;
    sums_shape s = {};
    s.h = problem->h;
    s.w = problem->w;
    s.c = one ? problem->x_pitch : problem->c / problem->groups;
    s.x_pitch = problem->x_pitch;
    s.k = one ? problem->y_pitch : problem->k / problem->groups;
    s.y_pitch = problem->y_pitch;
    s.kernel_w = problem->along_w.kernel;
    s.width = problem->along_h.kernel * s.kernel_w * s.c;
    s.along_h = problem->along_h;
    s.along_w = problem->along_w;
    s.dilation_h = divisor_of((unsigned)problem->along_h.dilation);
    s.dilation_w = divisor_of((unsigned)problem->along_w.dilation);
    s.tiles_n = (s.width + n - 1) / n;
    s.tiles = (s.k + m - 1) / m * s.tiles_n;
    s.q = divisor_of((unsigned)problem->q);
    s.pixels = divisor_of((unsigned)problem->p * (unsigned)problem->q);
    return s;
}

template <class P>
static void launch(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                   const lk_cuda_rows *out)
{
    sums_shape s = shape_of(problem, P::M, P::N);
    dim3 blocks((unsigned)(s.tiles * problem->groups), (unsigned)(leaves->groups * leaves->parts));
    (void)lk__cuda_keep(io->dev,
                        cudaFuncSetAttribute(sum_pixels<P>, cudaFuncAttributeMaxDynamicSharedMemorySize, P::BYTES),
                        "gradient of weights in fp32");
    lk__cuda_follow({blocks, P::THREADS, P::BYTES, io->stream}, sum_pixels<P>, s, *leaves, (const float *)io->dy,
                    (const float *)io->x, *out);
    lk__cuda_launched(io->dev, "gradient of weights in fp32");
}

/* A size of tiles. A pixel takes a multiprocessor first + each * n cycles if each of its schedulers has n warps. */
typedef struct sums_size {
    int m, n, threads;
    int blocks; /* of a multiprocessor, at most */
    double first, each;
    void (*launch)(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                   const lk_cuda_rows *out);
} sums_size;

template <class P>
static constexpr sums_size size_of(double first, double each)
{
    return {P::M, P::N, P::THREADS, P::BLOCKS, first, each, launch<P>};
}

static const sums_size sizes[] = {
    size_of<sums_tile<64, 64, 8, 8, 4, 16, 4>>(47, 76),
    size_of<sums_tile<64, 32, 8, 8, 4, 16, 4>>(56, 88),
    size_of<sums_tile<64, 32, 4, 8, 4, 20, 4>>(40, 46),
};

/* Cycles for a pixel of each of this many parts: full rounds of blocks, then what is left. */
static double cycles_of(const sums_size *size, const lk_cuda_problem *problem, size_t parts)
{
    sums_shape s = shape_of(problem, size->m, size->n);
    size_t blocks = lk__cuda_parts((size_t)s.tiles * (size_t)problem->groups * parts, MULTIPROCESSORS);
    size_t warps = (size_t)size->threads / LK_WARP, full = (size_t)size->blocks, rest = blocks % full;
    double cycles = (double)(blocks / full) * (size->first + size->each * lk__cuda_parts(full * warps, SCHEDULERS));
    return rest ? cycles + size->first + size->each * lk__cuda_parts(rest * warps, SCHEDULERS) : cycles;
}

bool lk__cuda_weights_fp32_suits(const lk_cuda_problem *problem)
{
    return shape_of(problem, 1, 1).c % QUAD == 0 && problem->along_h.kernel <= MOST_TAPS &&
           problem->along_w.kernel <= MOST_TAPS;
}

void lk__cuda_weights_fp32(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                           const lk_cuda_rows *out)
{
    const sums_size *best = &sizes[0];
    size_t parts = (size_t)io->shards->all * (size_t)leaves->parts; /* of a step */
    for (const sums_size *size = sizes; size < sizes + sizeof sizes / sizeof *sizes; size++)
        if (cycles_of(size, problem, parts) < cycles_of(best, problem, parts))
            best = size;
    best->launch(problem, io, leaves, out);
}
