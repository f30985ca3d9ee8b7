/* weights_mma.cu - weight gradients as products of dense matrices: dw (k, taps * c) = dy^T (k, pixels) * windows of x
 * (pixels, taps * c), for bf16 and tf32 by tensor cores (mma.sync). For fp32, weights_fp32.cu does this where it suits,
 * and this file cuts its leaves; the other layers use fused multiply-adds here.
 *
 * A block computes a tile of M output channels by N columns, which are input channels of one or more taps. It copies
 * chunks of 128 bytes of each row, asynchronously and SLOTS - 1 chunks ahead, from dy and x to shared memory. Rows
 * behind the end of a leaf and pixels outside of the image are zero. In shared memory a row of a chunk has 128 bytes,
 * in units of 16 bytes that are exchanged by the row's last three bits, so that reads along rows and columns use
 * all banks.
 *
 * Leaves of a group are folded in registers: a tile product has LEVELS saved sums. */
#include "tensor/cuda/kernels/mma.cuh"
#include "tensor/cuda/kernels/vec4.cuh"
#include "tensor/cuda/kernels/weights.h"

enum { UNIT = 16, LINE = 128 };            /* bytes of a vector copy, and of a row of a chunk */
enum { FEW_ROWS = 256, SMALL_ROWS = 128 }; /* of the largest leaf, and of a group that is not divided */

/* A group of channels of the convolution; a single group includes the pads. */
typedef struct product_shape {
    int h, w, c, x_pitch, k, y_pitch;
    int kernel_w, width; /* taps * c */
    lk_cuda_window along_h, along_w;
    int tiles_n, tiles; /* of a group: along columns, and all */
    divisor q, pixels;  /* width of y, pixels of a sample of y */
} product_shape;

/* What a block computes: chunks [from, to) of leaves [leaf, last), of channels from k0 and columns from n0. */
typedef struct block_work {
    int leaf, last, from, to;
    int group, m0, n0;
} block_work;

template <class P>
static __device__ __forceinline__ block_work work_of(const product_shape &s, const lk_cuda_leaves &leaves)
{
    int part = (int)blockIdx.y % leaves.parts, row = (int)blockIdx.y / leaves.parts;
    int tile = (int)blockIdx.x % s.tiles;
    block_work work;
    work.leaf = leaves.group[row];
    work.last = leaves.group[row + 1];
    work.from = leaves.parts > 1 ? part * leaves.chunks : 0;
    work.to = leaves.parts > 1 ? work.from + leaves.chunks : INT_MAX;
    work.group = (int)blockIdx.x / s.tiles;
    work.m0 = tile / s.tiles_n * P::M;
    work.n0 = tile % s.tiles_n * P::N;
    return work;
}

/* The end of the block's chunks of a leaf. There is at least one chunk, which is zero if the leaf is empty. */
template <class P>
static __device__ __forceinline__ int end_of(const block_work &work, const lk_cuda_leaves &leaves, int leaf)
{
    int chunks = (int)((leaves.begin[leaf + 1] - leaves.begin[leaf] + P::K - 1) / P::K);
    return max(min(chunks, work.to), work.from + 1);
}

/* The columns of x that a thread copies, and their tap. */
struct x_column {
    int channel, y_offset, x_offset;
    bool inside;

    __device__ __forceinline__ void set(const product_shape &s, int column)
    {
        int tap = column / s.c, row = tap / s.kernel_w;
        inside = column < s.width;
        channel = column - tap * s.c;
        y_offset = row * s.along_h.dilation - s.along_h.pad;
        x_offset = (tap - row * s.kernel_w) * s.along_w.dilation - s.along_w.pad;
    }
};

/* A pixel of y. */
struct y_pixel {
    unsigned n, p, q;

    __device__ __forceinline__ y_pixel(const product_shape &s, unsigned pixel)
    {
        n = quotient(pixel, s.pixels);
        unsigned rest = pixel - n * s.pixels.by;
        p = quotient(rest, s.q);
        q = rest - p * s.q.by;
    }
};

/* The element of x that a tap reads. Without branches: threads whose taps are outside of the image do not delay
 * others. */
struct x_element {
    bool inside;
    size_t at; /* 0 outside of the image */

    __device__ __forceinline__ x_element(const product_shape &s, const y_pixel &pixel, const x_column &column,
                                         bool used)
    {
        int row = (int)pixel.p * s.along_h.stride + column.y_offset;
        int col = (int)pixel.q * s.along_w.stride + column.x_offset;
        inside = used & column.inside & ((unsigned)row < (unsigned)s.h) & ((unsigned)col < (unsigned)s.w);
        unsigned line = inside ? pixel.n * (unsigned)s.h + (unsigned)row : 0, place = inside ? (unsigned)col : 0;
        at = ((size_t)line * (unsigned)s.w + place) * (unsigned)s.x_pitch + (inside ? (unsigned)column.channel : 0);
    }
};

/* Copies the chunks of a block to shared memory, one after the other, over all its leaves. */
template <class P>
struct chunk_loader {
    typedef typename P::T T;
    enum {
        VEC = UNIT / sizeof(T),
        UNITS_Y = P::M / VEC,
        UNITS_X = P::N / VEC,
        STEP_Y = P::THREADS / UNITS_Y, /* rows from one copy of a thread to its next */
        STEP_X = P::THREADS / UNITS_X,
        COLUMNS = P::WHOLE ? 1 : VEC /* of x that are copied together have their own taps */
    };
    static_assert(STEP_Y % 8 == 0 && STEP_X % 8 == 0, "all rows of a thread exchange units in the same way");

    const T *dy, *x;
    uint32_t to_y, to_x;
    int row_y, row_x, channel; /* of y */
    bool has_y;
    x_column columns[COLUMNS];
    int leaf, chunk, end, slot;
    uint32_t first, last; /* rows of the leaf */

    __device__ __forceinline__ void start(const product_shape &s, const lk_cuda_leaves &leaves, const block_work &work,
                                          const T *dy_, const T *x_, uint32_t memory)
    {
        int unit_y = (int)threadIdx.x % UNITS_Y, unit_x = (int)threadIdx.x % UNITS_X;
        row_y = (int)threadIdx.x / UNITS_Y;
        row_x = (int)threadIdx.x / UNITS_X;
        to_y = memory + unit_at<P::K>(row_y, unit_y);
        to_x = memory + P::SLOTS * P::K * P::M * (int)sizeof(T) + unit_at<P::K>(row_x, unit_x);
        channel = work.m0 + unit_y * VEC;
        has_y = channel < s.k;
        dy = dy_ + work.group * s.k + channel;
        x = x_ + work.group * s.c;
#pragma unroll
        for (int i = 0; i < COLUMNS; i++)
            columns[i].set(s, work.n0 + unit_x * VEC + i);
        slot = 0;
        leaf = work.leaf;
        enter(leaves, work);
    }

    __device__ __forceinline__ void enter(const lk_cuda_leaves &leaves, const block_work &work)
    {
        chunk = work.from;
        end = end_of<P>(work, leaves, leaf);
        first = leaves.begin[leaf];
        last = leaves.begin[leaf + 1];
    }

    __device__ __forceinline__ void load_y(const product_shape &s, uint32_t begin)
    {
        uint32_t to = to_y + slot * (P::K * P::M * (int)sizeof(T));
#pragma unroll
        for (int i = 0; i < P::K / STEP_Y; i++) {
            uint32_t pixel = begin + row_y + i * STEP_Y;
            bool inside = has_y & (pixel < last);
            copy_unit(to + i * STEP_Y * LINE, dy + (size_t)(inside ? pixel : 0) * (unsigned)s.y_pitch, inside);
        }
    }

    __device__ __forceinline__ void load_x(const product_shape &s, uint32_t begin)
    {
        uint32_t to = to_x + slot * (P::K * P::N * (int)sizeof(T));
        if constexpr (P::WHOLE)
            copy_x(s, begin, to);
        else
            gather_x(s, begin, to);
    }

    __device__ __forceinline__ void copy_x(const product_shape &s, uint32_t begin, uint32_t to)
    {
#pragma unroll
        for (int i = 0; i < P::K / STEP_X; i++) {
            uint32_t pixel = begin + row_x + i * STEP_X;
            x_element from(s, y_pixel(s, pixel), columns[0], pixel < last);
            copy_unit(to + i * STEP_X * LINE, x + from.at, from.inside);
        }
    }

    /* Units whose elements are not neighbours in x. All are read before the first is written, so that the thread waits
     * for memory once. */
    __device__ __forceinline__ void gather_x(const product_shape &s, uint32_t begin, uint32_t to)
    {
        union {
            T value[VEC];
            uint4 bits;
        } units[P::K / STEP_X];
#pragma unroll
        for (int i = 0; i < P::K / STEP_X; i++) {
            uint32_t pixel = begin + row_x + i * STEP_X;
            y_pixel at(s, pixel);
            units[i].bits = make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                x_element from(s, at, columns[j], pixel < last);
                if (from.inside)
                    units[i].value[j] = x[from.at];
            }
        }
#pragma unroll
        for (int i = 0; i < P::K / STEP_X; i++)
            store_unit(to + i * STEP_X * LINE, units[i].bits);
    }

    /* Starts the copies of the next chunk, if there is one. */
    __device__ __forceinline__ void next(const product_shape &s, const lk_cuda_leaves &leaves, const block_work &work)
    {
        if (leaf < work.last) {
            uint32_t begin = first + (uint32_t)chunk * P::K;
            load_y(s, begin);
            load_x(s, begin);
            slot = slot + 1 == P::SLOTS ? 0 : slot + 1;
            if (++chunk == end && ++leaf < work.last)
                enter(leaves, work);
        }
        copies_commit();
    }
};

template <class P>
static __device__ __forceinline__ void write_tile(const product_shape &s, const block_work &work,
                                                  const float (&acc)[P::SUMS], float *out)
{
    out += (size_t)work.group * s.k * s.width;
#pragma unroll
    for (int i = 0; i < P::SUMS; i += 2) {
        int m, n;
        P::place(i, &m, &n);
        m += work.m0;
        n += work.n0;
        float *to = out + (size_t)m * s.width + n;
        if (m >= s.k || n >= s.width)
            continue;
        if constexpr (P::WHOLE) {
            *(float2 *)to = make_float2(acc[i], acc[i + 1]);
        } else {
            to[0] = acc[i];
            if (n + 1 < s.width)
                to[1] = acc[i + 1];
        }
    }
}

/* out: (block rows, groups * k * width). */
template <class P>
static __global__ void __launch_bounds__(P::THREADS)
    product(const __grid_constant__ product_shape s, const __grid_constant__ lk_cuda_leaves leaves,
            const typename P::T *dy, const typename P::T *x, size_t row, float *out)
{
    lk__cuda_await_alone();
    typedef typename P::T T;
    extern __shared__ __align__(1024) char memory[];
    T *ys = (T *)memory, *xs = ys + P::SLOTS * P::K * P::M;
    block_work work = work_of<P>(s, leaves);
    if (work.from > 0 && (unsigned)work.from >= (leaves.begin[work.last] - leaves.begin[work.leaf] + P::K - 1) / P::K)
        return;
    chunk_loader<P> loader;
    loader.start(s, leaves, work, dy, x, shared_at(memory));
    for (int i = 0; i < P::SLOTS - 1; i++)
        loader.next(s, leaves, work);
    float acc[P::SUMS];
    sum_levels<P::SUMS, P::LEVELS> sums;
    int slot = 0;
    for (int leaf = work.leaf; leaf < work.last; leaf++) {
        int rows = (int)(leaves.begin[leaf + 1] - leaves.begin[leaf]), end = end_of<P>(work, leaves, leaf);
#pragma unroll
        for (int i = 0; i < P::SUMS; i++)
            acc[i] = 0.0f;
        for (int chunk = work.from; chunk < end; chunk++) {
            copies_wait<P::SLOTS - 2>();
            __syncthreads();
            loader.next(s, leaves, work);
            P::add(acc, ys + slot * P::K * P::M, xs + slot * P::K * P::N, rows - chunk * P::K);
            slot = slot + 1 == P::SLOTS ? 0 : slot + 1;
        }
        if constexpr (P::LEVELS > 0)
            sums.fold(acc, leaves.inner[leaf], leaf + 1 == work.last);
    }
    write_tile<P>(s, work, acc, out + blockIdx.y * row);
}

template <class Tile, int SLOTS_, int LEVELS_, bool WHOLE_>
struct variant : Tile {
    enum { SLOTS = SLOTS_, LEVELS = LEVELS_, WHOLE = WHOLE_ };
};

static product_shape shape_of(const lk_cuda_problem *problem, int m, int n)
{
    bool one = problem->groups == 1;
    product_shape s = {};
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
    s.tiles_n = (s.width + n - 1) / n;
    s.tiles = (s.k + m - 1) / m * s.tiles_n;
    s.q = divisor_of((unsigned)problem->q);
    s.pixels = divisor_of((unsigned)problem->p * (unsigned)problem->q);
    return s;
}

template <class P>
static void launch(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, float *out)
{
    typedef typename P::T T;
    product_shape s = shape_of(problem, P::M, P::N);
    int bytes = P::SLOTS * P::K * (P::M + P::N) * (int)sizeof(T);
    dim3 blocks((unsigned)(s.tiles * problem->groups), (unsigned)(leaves->groups * leaves->parts));
    size_t row = (size_t)problem->groups * (size_t)s.k * (size_t)s.width;
    (void)lk__cuda_keep(io->dev, cudaFuncSetAttribute(product<P>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                        "gradient of weights");
    lk__cuda_follow({blocks, P::THREADS, (size_t)bytes, io->stream}, product<P>, s, *leaves, (const T *)io->dy,
                    (const T *)io->x, row, out);
    lk__cuda_launched(io->dev, "gradient of weights");
}

/* A size of tiles for one type of products. Rows without a launch describe the work of weights_fp32.cu. */
typedef struct tile_row {
    int m, n, chunk, least, full, levels;
    void (*launch)(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, float *out);
} tile_row;

typedef enum tile_size { TILE_LARGE, TILE_SMALL, TILE_GATHER, TILE_SIZES } tile_size;

static const tile_row tiles[][TILE_SIZES] = {
    /* LK_PRECISION_FP32 */
    {{128, 128, 32, 32, 264, 1, NULL},
     {64, 64, 32, 32, 528, 1, NULL},
     {64, 64, 32, 32, 528, 2, launch<variant<fma_tile<64, 64, 4>, 3, 2, false>>}},
    /* LK_PRECISION_TF32 */
    {{128, 128, 32, 32, 264, 1, launch<variant<mma_tile<float, 128, 128, 64, 32>, 3, 1, true>>},
     {64, 64, 32, 32, 528, 2, launch<variant<mma_tile<float, 64, 64, 32, 32>, 3, 2, true>>},
     {64, 64, 32, 32, 528, 2, launch<variant<mma_tile<float, 64, 64, 32, 32>, 3, 2, false>>}},
    /* LK_PRECISION_BF16 */
    {{128, 128, 64, 16, 264, 1, launch<variant<mma_tile<lk_bf16, 128, 128, 64, 32>, 3, 1, true>>},
     {64, 64, 64, 16, 528, 2, launch<variant<mma_tile<lk_bf16, 64, 64, 32, 32>, 3, 2, true>>},
     {64, 64, 64, 16, 528, 2, launch<variant<mma_tile<lk_bf16, 64, 64, 32, 32>, 3, 2, false>>}},
};

static int round_up(int value, int to)
{
    return (value + to - 1) / to * to;
}

/* Large tiles read less from memory for each product. Small ones are better if a quarter of the large ones would be
 * empty, or if a leaf has so few rows that large ones cannot occupy the GPU. */
static const tile_row *tile_of(const lk_cuda_problem *problem, size_t most)
{
    const tile_row *row = tiles[problem->values == LK_DTYPE_BF16 ? 2 : problem->precision == LK_PRECISION_TF32 ? 1 : 0];
    product_shape s = shape_of(problem, 1, 1);
    if (s.c % 8 != 0)
        return &row[TILE_GATHER];
    double large = (double)round_up(s.k, 128) * round_up(s.width, 128);
    double small = (double)round_up(s.k, 64) * round_up(s.width, 64);
    bool idle = most * s.pixels.by <= FEW_ROWS && large / (128 * 128) < row[TILE_LARGE].full / 2;
    return &row[s.k > 64 && large <= 1.25 * small && !idle ? TILE_LARGE : TILE_SMALL];
}

static bool suits(const lk_cuda_problem *problem, size_t most)
{
    (void)most;
    return shape_of(problem, 1, 1).k % 8 == 0;
}

static bool is_fp32(const lk_cuda_problem *problem, const tile_row *tile)
{
    return !tile->launch && lk__cuda_weights_fp32_suits(problem);
}

static lk_cuda_cut cut_of(const lk_cuda_problem *problem, size_t most)
{
    const tile_row *tile = tile_of(problem, most);
    product_shape s = shape_of(problem, tile->m, tile->n);
    lk_cuda_cut cut = {};
    cut.rows = s.pixels.by;
    cut.chunk = (size_t)tile->chunk;
    cut.least = (size_t)tile->least;
    cut.tiles = (size_t)s.tiles * (size_t)problem->groups;
    cut.full = (size_t)tile->full;
    cut.levels = tile->levels;
    cut.small = SMALL_ROWS;
    cut.weights = (size_t)problem->groups * (size_t)s.k * (size_t)s.width;
    cut.bias = is_fp32(problem, tile) && problem->groups == 1 && problem->bias ? (size_t)s.k : 0;
    return cut;
}

static void launch_rows(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, size_t most,
                        const lk_cuda_rows *out)
{
    const tile_row *tile = tile_of(problem, most);
    if (is_fp32(problem, tile)) {
        lk__cuda_weights_fp32(problem, io, leaves, out);
        return;
    }
    if (!tile->launch)
        tile = &tiles[0][TILE_GATHER]; /* the size of tiles changes no bits */
    tile->launch(problem, io, leaves, out->weights);
}

static void launch_leaves(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                          size_t most, float *out)
{
    lk_cuda_cut cut = cut_of(problem, most);
    lk_cuda_rows to = {out, cut.bias ? out + cut.weights : NULL, cut.weights + cut.bias};
    launch_rows(problem, io, leaves, most, &to);
}

static void launch_sum(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, size_t most,
                       float *dw, float *db)
{
    lk_cuda_rows to = {dw, db, cut_of(problem, most).weights};
    launch_rows(problem, io, leaves, most, &to);
}

const lk_cuda_leaf_kernel lk__cuda_weights_mma = {"dense products", suits, cut_of, launch_leaves, launch_sum};
