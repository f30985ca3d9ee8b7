/* linear_long_hopper.cu - forward passes and input gradients of linear layers with many inputs and few outputs, in tf32
 * and bf16, on GPUs of compute capability 9.0.
 *
 * The few results of a forward pass are long sums. So a cluster of blocks computes a tile: each block sums one part of
 * the terms, then each adds the parts of its share of the tile, in the order of the blocks, from their shared memory. A
 * block alone computes a tile of an input gradient, whose sums are short.
 *
 * A lane multiplies terms as in linear_small.cu. The part of a term, and the order of the terms in a part, follow from
 * the layer alone. Larger tiles read less for a result, but are too few for a small number of samples; the size of a
 * tile changes no bit. */
#include "tensor/cuda/kernels/hopper.cuh"
#include "tensor/cuda/kernels/linear_end.cuh"
#include "tensor/cuda/kernels/linear_long.h"
#include "tensor/cuda/kernels/mma.cuh"

enum { LINE = 128, UNIT = 16, UNITS = LINE / UNIT }; /* bytes; units of a line */
enum { PARTS = 16 };                                 /* blocks of a cluster */
enum { LEAST_TERMS = 4096, MOST_TERMS = 1 << 20, MOST_OUTPUTS = 256, MOST_SMALL = 1 << 17 };
enum { LEAST_BLOCKS = 64 }; /* about half of the multiprocessors */

static const char what[] = "linear layer with long sums";

/* A matrix in memory; ld values from row to row. */
template <class T>
struct matrix {
    const T *at;
    int rows, ld;
};

typedef struct long_shape {
    int n, columns; /* of the result */
    int chunks;     /* of all terms */
    int part;       /* chunks of a part */
} long_shape;

/* A tile of M by N results, of which a warp computes WM by WN. A chunk is a line of terms for each row of the tile. The
 * left factor of the product has its terms in lines, as has the right one of a forward pass; that of an input gradient
 * has a row of N values for each term. SLOTS chunks are in shared memory at once; RESIDENT blocks fit on a
 * multiprocessor. */
template <class T_, int M_, int N_, int WM, int WN, int SLOTS_, int RESIDENT_>
struct long_tile {
    typedef T_ T;
    enum {
        M = M_,
        N = N_,
        SLOTS = SLOTS_,
        RESIDENT = RESIDENT_,
        ACROSS = N / WN, /* warps along the columns */
        THREADS = M / WM * ACROSS * LK_WARP,
        MI = WM / 16,
        NI = WN / 8,
        SUMS = MI * NI * 4, /* of a lane */
        VEC = UNIT / sizeof(T),
        CHUNK = LINE / sizeof(T),
        SLOT = (M + N) * LINE,
        BYTES = SLOTS * SLOT
    };

    static __device__ __forceinline__ int warp_m()
    {
        return (int)threadIdx.x / LK_WARP / ACROSS * WM;
    }

    static __device__ __forceinline__ int warp_n()
    {
        return (int)threadIdx.x / LK_WARP % ACROSS * WN;
    }
};

/* The offset of a unit of a line. The halves of odd lines are exchanged, so that 8 lanes that read 4 units of 2 lines
 * use all banks. */
static __device__ __forceinline__ int line_at(int row, int unit)
{
    return row * LINE + (unit ^ (row & 1) * 4) * UNIT;
}

/* The offset of a unit in a row of N values, for each term. 8 lanes read 2 units of 4 rows, which are 4 apart. */
template <class P>
static __device__ __forceinline__ int row_at(int term, int unit)
{
    return term * (int)(P::N * sizeof(typename P::T)) + (unit ^ term / 4 % 4 * 2) * UNIT;
}

/* Copies lines of ROWS rows; zeros outside of the matrix. */
template <class P, int ROWS>
static __device__ __forceinline__ void fetch_lines(const matrix<typename P::T> &m, int row, int term, uint32_t to)
{
    enum { STEP = P::THREADS / UNITS };
    static_assert(ROWS % STEP == 0);
    int first = (int)threadIdx.x / UNITS, unit = (int)threadIdx.x % UNITS, k = term + unit * P::VEC;
    const typename P::T *from = m.at + (size_t)(row + first) * m.ld + k;
#pragma unroll
    for (int i = 0; i < ROWS; i += STEP) {
        bool inside = row + first + i < m.rows && k < m.ld;
        copy_unit(to + (uint32_t)line_at(first + i, unit), inside ? from + (size_t)i * m.ld : m.at, inside);
    }
}

/* Copies rows of N values for the terms of a chunk; zeros outside of the matrix. */
template <class P>
static __device__ __forceinline__ void fetch_rows(const matrix<typename P::T> &m, int term, int column, uint32_t to)
{
    enum { WIDE = P::N / P::VEC, STEP = P::THREADS / WIDE };
    static_assert(P::CHUNK % STEP == 0);
    int first = (int)threadIdx.x / WIDE, unit = (int)threadIdx.x % WIDE, c = column + unit * P::VEC;
    const typename P::T *from = m.at + (size_t)(term + first) * m.ld + c;
#pragma unroll
    for (int i = 0; i < P::CHUNK; i += STEP) {
        bool inside = term + first + i < m.rows && c < m.ld;
        copy_unit(to + (uint32_t)row_at<P>(first + i, unit), inside ? from + (size_t)i * m.ld : m.at, inside);
    }
}

template <class T>
static __device__ __forceinline__ uint32_t factor(uint32_t bits)
{
    return sizeof(T) == 4 ? round_tf32(__uint_as_float(bits)) : bits;
}

/* y = x w^T. */
template <class P>
struct long_forward {
    typedef typename P::T T;

    static __device__ __forceinline__ void fetch(const matrix<T> &x, const matrix<T> &w, int row, int column, int term,
                                                 uint32_t to)
    {
        fetch_lines<P, P::M>(x, row, term, to);
        fetch_lines<P, P::N>(w, column, term, to + P::M * LINE);
    }

    /* Half of a line has the terms of two products. */
    static __device__ __forceinline__ void add(const char *slot, float (&acc)[P::SUMS])
    {
        int g = lk__cuda_lane() / 4, t = lk__cuda_lane() % 4;
        const char *lines = slot + P::M * LINE;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t right[P::NI][2][2];
#pragma unroll
            for (int j = 0; j < P::NI; j++) {
                uint4 v = *(const uint4 *)(lines + line_at(P::warp_n() + 8 * j + g, half * 4 + t));
                right[j][0][0] = factor<T>(v.x), right[j][0][1] = factor<T>(v.y);
                right[j][1][0] = factor<T>(v.z), right[j][1][1] = factor<T>(v.w);
            }
#pragma unroll
            for (int i = 0; i < P::MI; i++) {
                uint4 low = *(const uint4 *)(slot + line_at(P::warp_m() + 16 * i + g, half * 4 + t));
                uint4 high = *(const uint4 *)(slot + line_at(P::warp_m() + 16 * i + 8 + g, half * 4 + t));
                uint32_t first[4] = {factor<T>(low.x), factor<T>(high.x), factor<T>(low.y), factor<T>(high.y)};
                uint32_t second[4] = {factor<T>(low.z), factor<T>(high.z), factor<T>(low.w), factor<T>(high.w)};
#pragma unroll
                for (int j = 0; j < P::NI; j++) {
                    mma_add<T>(acc + (i * P::NI + j) * 4, first, right[j][0]);
                    mma_add<T>(acc + (i * P::NI + j) * 4, second, right[j][1]);
                }
            }
        }
    }
};

/* dx = dy w: a lane has VEC neighbouring columns of each row, which are columns of as many products. */
template <class P>
struct long_backward {
    typedef typename P::T T;
    enum { GROUP = 8 * P::VEC, GROUPS = P::NI / P::VEC, STEP = 16 }; /* columns of VEC products; terms */

    static __device__ __forceinline__ void fetch(const matrix<T> &dy, const matrix<T> &w, int row, int column, int term,
                                                 uint32_t to)
    {
        fetch_lines<P, P::M>(dy, row, term, to);
        fetch_rows<P>(w, term, column, to + P::M * LINE);
    }

    static __device__ __forceinline__ uint32_t word(const uint4 &v, int i)
    {
        return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
    }

    /* The factors of column c in four rows: of two products in tf32, of one in bf16. */
    static __device__ __forceinline__ void column_of(const uint4 (&rows)[4], int c, uint32_t (&right)[2][2])
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if constexpr (sizeof(T) == 4)
                right[i / 2][i % 2] = factor<T>(word(rows[i], c));
            else if (i % 2 == 0)
                right[0][i / 2] = __byte_perm(word(rows[i], c / 2), word(rows[i + 1], c / 2), c % 2 ? 0x7632 : 0x5410);
        }
    }

    /* Four terms of rows `row` and row + 8. */
    static __device__ __forceinline__ void left_of(const char *slot, int row, int step, uint32_t (&left)[2][4])
    {
        int t = lk__cuda_lane() % 4;
        if constexpr (sizeof(T) == 4) {
            uint4 low = *(const uint4 *)(slot + line_at(row, step * 4 + t));
            uint4 high = *(const uint4 *)(slot + line_at(row + 8, step * 4 + t));
            left[0][0] = factor<T>(low.x), left[0][1] = factor<T>(high.x);
            left[0][2] = factor<T>(low.y), left[0][3] = factor<T>(high.y);
            left[1][0] = factor<T>(low.z), left[1][1] = factor<T>(high.z);
            left[1][2] = factor<T>(low.w), left[1][3] = factor<T>(high.w);
        } else {
            uint2 low = *(const uint2 *)(slot + line_at(row, step * 2 + t / 2) + t % 2 * 8);
            uint2 high = *(const uint2 *)(slot + line_at(row + 8, step * 2 + t / 2) + t % 2 * 8);
            left[0][0] = low.x, left[0][1] = high.x, left[0][2] = low.y, left[0][3] = high.y;
        }
    }

    static __device__ __forceinline__ void add(const char *slot, float (&acc)[P::SUMS])
    {
        int g = lk__cuda_lane() / 4, t = lk__cuda_lane() % 4;
#pragma unroll
        for (int step = 0; step < P::CHUNK / STEP; step++) {
#pragma unroll
            for (int group = 0; group < GROUPS; group++) {
                int unit = (P::warp_n() + group * GROUP) / P::VEC + g;
                uint4 rows[4];
                uint32_t right[P::VEC][2][2];
#pragma unroll
                for (int i = 0; i < 4; i++)
                    rows[i] = *(const uint4 *)(slot + P::M * LINE + row_at<P>(step * STEP + 4 * t + i, unit));
#pragma unroll
                for (int c = 0; c < P::VEC; c++)
                    column_of(rows, c, right[c]);
#pragma unroll
                for (int i = 0; i < P::MI; i++) {
                    uint32_t left[2][4];
                    left_of(slot, P::warp_m() + 16 * i + g, step, left);
#pragma unroll
                    for (int c = 0; c < P::VEC; c++) {
                        float *sums = acc + (i * P::NI + group * P::VEC + c) * 4;
                        mma_add<T>(sums, left[0], right[c][0]);
                        if constexpr (sizeof(T) == 4)
                            mma_add<T>(sums, left[1], right[c][1]);
                    }
                }
            }
        }
    }
};

/* Sums `count` chunks of terms from chunk `first` on. Chunks come to shared memory SLOTS - 1 ahead. */
template <class P, class Product>
static __device__ __forceinline__ void sum_chunks(const matrix<typename P::T> &left, const matrix<typename P::T> &right,
                                                  int row, int column, int first, int count, char *memory,
                                                  float (&acc)[P::SUMS])
{
    uint32_t to = shared_at(memory);
#pragma unroll
    for (int i = 0; i < P::SLOTS - 1; i++) {
        if (i < count)
            Product::fetch(left, right, row, column, (first + i) * P::CHUNK, to + (uint32_t)(i * P::SLOT));
        copies_commit();
    }
    for (int i = 0; i < count; i++) {
        int next = i + P::SLOTS - 1;
        copies_wait<P::SLOTS - 2>();
        __syncthreads(); /* all have the chunk, and have done with the slot of the one before */
        if (next < count)
            Product::fetch(left, right, row, column, (first + next) * P::CHUNK,
                           to + (uint32_t)(next % P::SLOTS * P::SLOT));
        copies_commit();
        Product::add(memory + i % P::SLOTS * P::SLOT, acc);
    }
}

/* Bytes from row to row of a tile of sums: the pairs of 16 lanes are in different banks. */
template <class P>
static constexpr int sums_pitch = (P::N + 8) * (int)sizeof(float);

/* Writes the lane's sums to its block's tile. */
template <class P>
static __device__ __forceinline__ void keep_sums(const float (&acc)[P::SUMS], char *tile)
{
    int g = lk__cuda_lane() / 4, t = lk__cuda_lane() % 4;
#pragma unroll
    for (int i = 0; i < P::SUMS; i += 2) {
        int row = P::warp_m() + i / 4 / P::NI * 16 + i / 2 % 2 * 8 + g,
            column = P::warp_n() + i / 4 % P::NI * 8 + 2 * t;
        *(float2 *)(tile + row * sums_pitch<P> + column * (int)sizeof(float)) = make_float2(acc[i], acc[i + 1]);
    }
}

/* Adds the parts of this block's share of the tile, and writes the results. */
template <class P>
static __device__ __forceinline__ void add_parts(const long_shape &s, const linear_end<typename P::T> &end, int part,
                                                 int row, int column, const char *tile, typename P::T *y)
{
    enum { SHARE = P::M * P::N / PARTS };
    for (int i = (int)threadIdx.x; i < SHARE; i += P::THREADS) {
        int r = (part * SHARE + i) / P::N, c = (part * SHARE + i) % P::N;
        uint32_t at = shared_at(tile) + (uint32_t)(r * sums_pitch<P> + c * (int)sizeof(float));
        float parts[PARTS], sum;
#pragma unroll
        for (int p = 0; p < PARTS; p++)
            parts[p] = load_cluster(cluster_at(at, p));
        sum = parts[0];
#pragma unroll
        for (int p = 1; p < PARTS; p++)
            sum += parts[p];
        if (row + r >= s.n || column + c >= s.columns)
            continue;
        size_t to = (size_t)(row + r) * s.columns + column + c;
        float v[1] = {end.apply(sum, row + r, column + c, to)};
        lk__cuda_store(y + to, v);
    }
}

/* Blocks of a cluster. */
struct forward_pass {
    enum { BLOCKS = PARTS };
};
struct backward_pass {
    enum { BLOCKS = 1 };
};

/* Blocks of a cluster are neighbours along x. */
template <class P>
static __global__ void __launch_bounds__(P::THREADS, P::RESIDENT)
    sum_forward(const __grid_constant__ long_shape s, const __grid_constant__ matrix<typename P::T> x,
                const __grid_constant__ matrix<typename P::T> w, const __grid_constant__ linear_end<typename P::T> end,
                typename P::T *y)
{
    static_assert(P::M * sums_pitch<P> <= P::BYTES);
    extern __shared__ __align__(LINE) char memory[];
    lk__cuda_await();
    int part = (int)blockIdx.x % PARTS, row = (int)blockIdx.x / PARTS * P::M, column = (int)blockIdx.y * P::N;
    int first = part * s.part, count = min(s.part, s.chunks - first);
    float acc[P::SUMS] = {};
    sum_chunks<P, long_forward<P>>(x, w, row, column, first, count, memory, acc);
    __syncthreads();
    keep_sums<P>(acc, memory);
    cluster_sync();
    add_parts<P>(s, end, part, row, column, memory, y);
    cluster_sync(); /* a block stays until the others have read its sums */
}

/* Writes a lane's results: VEC neighbours at once. */
template <class P>
static __device__ __forceinline__ void write_grads(const long_shape &s, const linear_end<typename P::T> &end, int row,
                                                   int column, const float (&acc)[P::SUMS], typename P::T *dx)
{
    enum { VEC = P::VEC, GROUP = 8 * VEC };
    int g = lk__cuda_lane() / 4, t = lk__cuda_lane() % 4;
#pragma unroll
    for (int i = 0; i < P::SUMS / VEC; i++) {
        int pair = i % 4, group = i / 4 % (P::NI / VEC), tall = i / 4 / (P::NI / VEC); /* pair: row, then column */
        int r = row + P::warp_m() + 16 * tall + pair / 2 * 8 + g;
        int c = column + P::warp_n() + group * GROUP + (2 * t + pair % 2) * VEC;
        size_t at = (size_t)r * s.columns + c;
        float v[VEC], above[VEC];
        if (r >= s.n || c >= s.columns)
            continue;
#pragma unroll
        for (int k = 0; k < VEC; k++)
            v[k] = acc[(tall * P::NI + group * VEC + k) * 4 + pair];
        if (end.mask) {
            lk__cuda_load(end.mask + at, above);
#pragma unroll
            for (int k = 0; k < VEC; k++)
                v[k] = end.masked(above[k], v[k]);
        }
        lk__cuda_store(dx + at, v);
    }
}

template <class P>
static __global__ void __launch_bounds__(P::THREADS, P::RESIDENT)
    sum_backward(const __grid_constant__ long_shape s, const __grid_constant__ matrix<typename P::T> dy,
                 const __grid_constant__ matrix<typename P::T> w, const __grid_constant__ linear_end<typename P::T> end,
                 typename P::T *dx)
{
    extern __shared__ __align__(LINE) char memory[];
    lk__cuda_await();
    int row = (int)blockIdx.x * P::M, column = (int)blockIdx.y * P::N;
    float acc[P::SUMS] = {};
    sum_chunks<P, long_backward<P>>(dy, w, row, column, 0, s.chunks, memory, acc);
    write_grads<P>(s, end, row, column, acc, dx);
}

template <class P>
static long_shape shape_of(const lk_cuda_problem *problem)
{
    bool forward = problem->pass == LK_CUDA_PASS_FORWARD;
    int in = problem->x_pitch, out = problem->y_pitch, chunks = divide_up(forward ? in : out, P::CHUNK);
    return {problem->n, forward ? out : in, chunks, divide_up(chunks, PARTS)};
}

template <class P>
static constexpr auto kernel_of(forward_pass)
{
    return sum_forward<P>;
}

template <class P>
static constexpr auto kernel_of(backward_pass)
{
    return sum_backward<P>;
}

/* Row tiles are along x, with the blocks of their clusters. */
template <class P, class Pass>
static lk_cuda_launch launch_of(const long_shape &s, cudaStream_t stream)
{
    dim3 grid((unsigned)divide_up(s.n, P::M) * Pass::BLOCKS, (unsigned)divide_up(s.columns, P::N));
    lk_cuda_launch how = {grid, P::THREADS, P::BYTES, stream};
    how.cluster = Pass::BLOCKS;
    return how;
}

/* Lets a kernel use its shared memory, and clusters of more than 8 blocks. */
template <class P, class Pass>
static cudaError_t allow()
{
    const void *kernel = (const void *)kernel_of<P>(Pass());
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, P::BYTES);
    return error == cudaSuccess ? cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1)
                                : error;
}

template <class P, class Pass>
static void launch(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    typedef typename P::T T;
    bool forward = problem->pass == LK_CUDA_PASS_FORWARD;
    long_shape s = shape_of<P>(problem);
    matrix<T> w = {(const T *)io->w, problem->y_pitch, problem->x_pitch};
    matrix<T> left = {(const T *)(forward ? io->x : io->dy), s.n, forward ? problem->x_pitch : problem->y_pitch};
    if (!lk__cuda_keep(io->dev, allow<P, Pass>(), what))
        return;
    lk__cuda_follow(launch_of<P, Pass>(s, io->stream), kernel_of<P>(Pass()), s, left, w, linear_end_of<T>(problem, io),
                    (T *)(forward ? io->y : io->dx));
    lk__cuda_launched(io->dev, what);
}

/* Whether tiles of this size occupy the GPU. */
template <class P, class Pass>
static bool has_blocks(const lk_cuda_problem *problem)
{
    dim3 grid = launch_of<P, Pass>(shape_of<P>(problem), NULL).grid;
    return (size_t)grid.x * grid.y >= LEAST_BLOCKS;
}

/* Tries sizes from the last one to the second; the first one is for few samples. */
template <class Pass, class P, class... Larger>
static bool launch_largest(const lk_cuda_problem *problem, const lk_cuda_io *io, bool any)
{
    if constexpr (sizeof...(Larger) > 0)
        if (launch_largest<Pass, Larger...>(problem, io, false))
            return true;
    if (!any && !has_blocks<P, Pass>(problem))
        return false;
    launch<P, Pass>(problem, io);
    return true;
}

/* Whether the device can run a cluster of this size's blocks. */
template <class P>
static bool holds_cluster()
{
    cudaLaunchAttribute cluster = {};
    cudaLaunchConfig_t config = {};
    int count = 0;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = PARTS;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.gridDim = PARTS;
    config.blockDim = P::THREADS;
    config.dynamicSmemBytes = P::BYTES;
    config.attrs = &cluster;
    config.numAttrs = 1;
    bool holds = allow<P, forward_pass>() == cudaSuccess &&
                 cudaOccupancyMaxActiveClusters(&count, sum_forward<P>, &config) == cudaSuccess && count > 0;
    if (!holds)
        (void)cudaGetLastError(); /* not to be found by a later call */
    return holds;
}

/* Sizes of tiles. */
template <class T>
struct forward_tiles {
    typedef long_tile<T, 32, 32, 16, 16, 8, 2> low;
    typedef long_tile<T, 64, 64, 32, 16, 5, 2> middle;
    typedef long_tile<T, 128, 128, 64, 32, 4, 1> tall;
};

template <class T>
struct backward_tiles;

template <>
struct backward_tiles<float> {
    typedef long_tile<float, 64, 64, 16, 32, 4, 2> low;
    typedef long_tile<float, 128, 128, 64, 32, 4, 1> tall;
};

template <>
struct backward_tiles<lk_bf16> {
    typedef long_tile<lk_bf16, 64, 64, 16, 64, 3, 4> low;
    typedef long_tile<lk_bf16, 128, 128, 32, 64, 4, 1> tall;
};

template <class T>
static void launch_pass(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    typedef forward_tiles<T> forward;
    typedef backward_tiles<T> backward;
    if (problem->pass == LK_CUDA_PASS_FORWARD)
        launch_largest<forward_pass, typename forward::low, typename forward::middle, typename forward::tall>(problem,
                                                                                                              io, true);
    else
        launch_largest<backward_pass, typename backward::low, typename backward::tall>(problem, io, true);
}

template <class T>
static bool holds_clusters()
{
    typedef forward_tiles<T> tiles;
    return holds_cluster<typename tiles::low>() && holds_cluster<typename tiles::middle>() &&
           holds_cluster<typename tiles::tall>();
}

bool lk__cuda_linear_long_suits(const lk_cuda_problem *problem)
{
    int64_t in = problem->x_pitch, out = problem->y_pitch;
    bool bf16 = problem->values == LK_DTYPE_BF16;
    return problem->linear && (bf16 || problem->precision == LK_PRECISION_TF32) && in % 8 == 0 && out % 8 == 0 &&
           in * out > MOST_SMALL && in >= LEAST_TERMS && in <= MOST_TERMS && out <= MOST_OUTPUTS && is_hopper() &&
           (bf16 ? holds_clusters<lk_bf16>() : holds_clusters<float>());
}

void lk__cuda_linear_long(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    if (problem->values == LK_DTYPE_BF16)
        launch_pass<lk_bf16>(problem, io);
    else
        launch_pass<float>(problem, io);
}
