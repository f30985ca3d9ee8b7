/* linear_small.cu - forward passes and input gradients of small linear layers, in one launch with bias, ReLU, mask or
 * dropout.
 *
 * The warps of a block compute the same tile of the result and divide its sums: warp w adds chunks w, w + WARPS and so
 * on, in order, straight from memory to registers; then the sums of the warps are added in order. So the order of a sum
 * follows from the layer alone, for any number of samples and any number of rows of a tile.
 *
 * For tensor cores, lane 4 g + t of a warp has rows g and g + 8 of a product's left factor and columns g of its right
 * one. Which terms of a chunk it has is free, as long as both factors agree: it has neighbours, so that it reads up to
 * 16 bytes at once. */
#include "tensor/cuda/kernels/dropout.cuh"
#include "tensor/cuda/kernels/linear_small.h"
#include "tensor/cuda/kernels/mma.cuh"

enum { WARPS = 8, BLOCK = WARPS * LK_WARP, MOST_WEIGHTS = 1 << 17, FEW_SAMPLES = 512 };

/* A matrix in memory; ld values from row to row. */
template <class T>
struct matrix {
    const T *at;
    int rows, ld;
};

typedef struct small_shape {
    int n, columns, terms; /* the result is (n, columns) */
} small_shape;

/* 16 bytes of a row, or 8 of bf16; zero outside of the matrix. */
template <class T>
static __device__ __forceinline__ uint4 load_16(const matrix<T> &m, int row, int column)
{
    return row < m.rows && column < m.ld ? *(const uint4 *)(m.at + (size_t)row * m.ld + column)
                                         : make_uint4(0, 0, 0, 0);
}

static __device__ __forceinline__ uint2 load_8(const matrix<lk_bf16> &m, int row, int column)
{
    return row < m.rows && column < m.ld ? *(const uint2 *)(m.at + (size_t)row * m.ld + column) : make_uint2(0, 0);
}

static __device__ __forceinline__ uint32_t rounded(uint32_t bits)
{
    return round_tf32(__uint_as_float(bits));
}

static __device__ __forceinline__ void read_4(const matrix<float> &m, int row, int column, float (&v)[4])
{
    uint4 bits = load_16(m, row, column);
    v[0] = __uint_as_float(bits.x), v[1] = __uint_as_float(bits.y);
    v[2] = __uint_as_float(bits.z), v[3] = __uint_as_float(bits.w);
}

/* A way to compute tiles of TALL parts of HEIGHT by COLUMNS: a chunk has CHUNK terms, `load` reads one, AHEAD of them
 * are read before the first is multiplied by `add`. After `finish` a lane has OWN sums, at the places of `place`: row
 * and column of sum i of a part. RESIDENT blocks fit on a multiprocessor at once. */

/* Lanes that have their sums whole. */
struct whole_sums {
    template <int SUMS>
    static __device__ __forceinline__ void finish(float (&)[SUMS])
    {
    }
};

/* y = x w^T by tensor cores. */
template <class T, int TALL_>
struct forward_mma : whole_sums {
    typedef T value;
    enum { TALL = TALL_, WIDE = 2, HEIGHT = 16, COLUMNS = 8 * WIDE, CHUNK = 64 / sizeof(T) };
    enum {
        SUMS = TALL * WIDE * 4,
        OWN = SUMS,
        AHEAD = TALL == 1 ? 4 : 2,
        RESIDENT = (TALL == 1 ? 2 : 1) * 4 / sizeof(T)
    };
    uint4 a[2 * TALL], b[WIDE];

    __device__ __forceinline__ void load(const matrix<T> &x, const matrix<T> &w, int row, int column, int chunk)
    {
        int g = lk__cuda_lane() / 4, k = chunk * CHUNK + lk__cuda_lane() % 4 * lk__width<T>;
#pragma unroll
        for (int i = 0; i < 2 * TALL; i++)
            a[i] = load_16(x, row + 8 * i + g, k);
#pragma unroll
        for (int j = 0; j < WIDE; j++)
            b[j] = load_16(w, column + 8 * j + g, k);
    }

    static __device__ __forceinline__ uint32_t factor(uint32_t bits)
    {
        return sizeof(T) == 4 ? rounded(bits) : bits;
    }

    __device__ __forceinline__ void add(float (&acc)[SUMS]) const
    {
#pragma unroll
        for (int i = 0; i < TALL; i++) {
            const uint4 &low = a[2 * i], &high = a[2 * i + 1];
            uint32_t first[4] = {factor(low.x), factor(high.x), factor(low.y), factor(high.y)};
            uint32_t second[4] = {factor(low.z), factor(high.z), factor(low.w), factor(high.w)};
#pragma unroll
            for (int j = 0; j < WIDE; j++) {
                uint32_t left[2] = {factor(b[j].x), factor(b[j].y)}, right[2] = {factor(b[j].z), factor(b[j].w)};
                mma_add<T>(acc + (i * WIDE + j) * 4, first, left);
                mma_add<T>(acc + (i * WIDE + j) * 4, second, right);
            }
        }
    }

    static __device__ __forceinline__ void place(int i, int *row, int *column)
    {
        *row = lk__cuda_lane() / 4 + i / 2 % 2 * 8;
        *column = i / 4 * 8 + lk__cuda_lane() % 4 * 2 + i % 2;
    }
};

/* dx = dy w by tensor cores: a lane has four rows of w, and 16 bytes of each, which are columns of as many products. */
template <class T, int TALL_>
struct backward_mma;

template <int TALL_>
struct backward_mma<float, TALL_> : whole_sums {
    typedef float value;
    enum { TALL = TALL_, WIDE = 4, HEIGHT = 16, COLUMNS = 8 * WIDE, CHUNK = 16 };
    enum { SUMS = TALL * WIDE * 4, OWN = SUMS, AHEAD = TALL == 1 ? 4 : 2, RESIDENT = TALL == 1 ? 2 : 1 };
    uint4 a[2 * TALL], b[4];

    __device__ __forceinline__ void load(const matrix<float> &dy, const matrix<float> &w, int row, int column,
                                         int chunk)
    {
        int g = lk__cuda_lane() / 4, k = chunk * CHUNK + lk__cuda_lane() % 4 * 4;
#pragma unroll
        for (int i = 0; i < 2 * TALL; i++)
            a[i] = load_16(dy, row + 8 * i + g, k);
#pragma unroll
        for (int j = 0; j < 4; j++)
            b[j] = load_16(w, k + j, column + g * WIDE);
    }

    __device__ __forceinline__ void add(float (&acc)[SUMS]) const
    {
        const uint32_t right[4][WIDE] = {{rounded(b[0].x), rounded(b[0].y), rounded(b[0].z), rounded(b[0].w)},
                                         {rounded(b[1].x), rounded(b[1].y), rounded(b[1].z), rounded(b[1].w)},
                                         {rounded(b[2].x), rounded(b[2].y), rounded(b[2].z), rounded(b[2].w)},
                                         {rounded(b[3].x), rounded(b[3].y), rounded(b[3].z), rounded(b[3].w)}};
#pragma unroll
        for (int i = 0; i < TALL; i++) {
            const uint4 &low = a[2 * i], &high = a[2 * i + 1];
            uint32_t first[4] = {rounded(low.x), rounded(high.x), rounded(low.y), rounded(high.y)};
            uint32_t second[4] = {rounded(low.z), rounded(high.z), rounded(low.w), rounded(high.w)};
#pragma unroll
            for (int j = 0; j < WIDE; j++) {
                uint32_t even[2] = {right[0][j], right[1][j]}, odd[2] = {right[2][j], right[3][j]};
                mma_add<float>(acc + (i * WIDE + j) * 4, first, even);
                mma_add<float>(acc + (i * WIDE + j) * 4, second, odd);
            }
        }
    }

    static __device__ __forceinline__ void place(int i, int *row, int *column)
    {
        *row = lk__cuda_lane() / 4 + i / 2 % 2 * 8;
        *column = (lk__cuda_lane() % 4 * 2 + i % 2) * WIDE + i / 4;
    }
};

template <int TALL_>
struct backward_mma<lk_bf16, TALL_> : whole_sums {
    typedef lk_bf16 value;
    enum { TALL = TALL_, WIDE = 8, HEIGHT = 16, COLUMNS = 8 * WIDE, CHUNK = 16 };
    enum { SUMS = TALL * WIDE * 4, OWN = SUMS, AHEAD = TALL == 1 ? 4 : 2, RESIDENT = TALL == 1 ? 2 : 1 };
    uint2 a[2 * TALL];
    uint4 b[4];

    __device__ __forceinline__ void load(const matrix<lk_bf16> &dy, const matrix<lk_bf16> &w, int row, int column,
                                         int chunk)
    {
        int g = lk__cuda_lane() / 4, k = chunk * CHUNK + lk__cuda_lane() % 4 * 4;
#pragma unroll
        for (int i = 0; i < 2 * TALL; i++)
            a[i] = load_8(dy, row + 8 * i + g, k);
#pragma unroll
        for (int j = 0; j < 4; j++)
            b[j] = load_16(w, k + j, column + g * WIDE);
    }

    /* The values of an even or odd column of two rows. */
    static __device__ __forceinline__ uint32_t pair(uint32_t upper, uint32_t lower, int odd)
    {
        return __byte_perm(upper, lower, odd ? 0x7632 : 0x5410);
    }

    static __device__ __forceinline__ uint32_t word(const uint4 &v, int i)
    {
        return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
    }

    __device__ __forceinline__ void add(float (&acc)[SUMS]) const
    {
#pragma unroll
        for (int j = 0; j < WIDE; j++) {
            uint32_t right[2] = {pair(word(b[0], j / 2), word(b[1], j / 2), j % 2),
                                 pair(word(b[2], j / 2), word(b[3], j / 2), j % 2)};
#pragma unroll
            for (int i = 0; i < TALL; i++) {
                uint32_t left[4] = {a[2 * i].x, a[2 * i + 1].x, a[2 * i].y, a[2 * i + 1].y};
                mma_add<lk_bf16>(acc + (i * WIDE + j) * 4, left, right);
            }
        }
    }

    static __device__ __forceinline__ void place(int i, int *row, int *column)
    {
        *row = lk__cuda_lane() / 4 + i / 2 % 2 * 8;
        *column = (lk__cuda_lane() % 4 * 2 + i % 2) * WIDE + i / 4;
    }
};

/* fp32, y = x w^T: a lane has neighbouring terms of all rows and columns of the tile; its sums are added over the lanes
 * at the end. */
struct forward_fma {
    typedef float value;
    enum { TALL = 1, HEIGHT = 8, COLUMNS = 8, CHUNK = 4 * LK_WARP, SUMS = HEIGHT * COLUMNS, AHEAD = 2, RESIDENT = 1 };
    float a[HEIGHT][4], b[COLUMNS][4];

    __device__ __forceinline__ void load(const matrix<float> &x, const matrix<float> &w, int row, int column, int chunk)
    {
        int k = chunk * CHUNK + lk__cuda_lane() * 4;
#pragma unroll
        for (int i = 0; i < HEIGHT; i++)
            read_4(x, row + i, k, a[i]);
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
            read_4(w, column + j, k, b[j]);
    }

    __device__ __forceinline__ void add(float (&acc)[SUMS]) const
    {
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int i = 0; i < SUMS; i++)
                acc[i] = __fmaf_rn(a[i / COLUMNS][k], b[i % COLUMNS][k], acc[i]);
    }

    enum { OWN = SUMS / LK_WARP };

    /* Of 2 * COUNT sums, half of the lanes keeps the first half and gets those of the other lanes for it, which keep
     * the second half. */
    template <int COUNT>
    static __device__ __forceinline__ void halve(float (&acc)[SUMS])
    {
        constexpr int apart = COUNT / OWN;
        bool upper = lk__cuda_lane() & apart;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            float kept = upper ? acc[i + COUNT] : acc[i], given = upper ? acc[i] : acc[i + COUNT];
            acc[i] = kept + __shfl_xor_sync(~0u, given, apart);
        }
        if constexpr (COUNT > OWN)
            halve<COUNT / 2>(acc);
    }

    static __device__ __forceinline__ void finish(float (&acc)[SUMS])
    {
        halve<SUMS / 2>(acc);
    }

    static __device__ __forceinline__ void place(int i, int *row, int *column)
    {
        int at = lk__cuda_lane() * OWN + i;
        *row = at / COLUMNS;
        *column = at % COLUMNS;
    }
};

/* fp32, dx = dy w: a lane has four rows of each part and four neighbouring columns. */
template <int TALL_>
struct backward_fma : whole_sums {
    typedef float value;
    enum {
        TALL = TALL_,
        HEIGHT = 16,
        COLUMNS = 32,
        CHUNK = 4,
        SUMS = TALL * 16,
        OWN = SUMS,
        AHEAD = 4 / TALL,
        RESIDENT = 1
    };
    float a[4 * TALL][4], b[4][4];

    __device__ __forceinline__ void load(const matrix<float> &dy, const matrix<float> &w, int row, int column,
                                         int chunk)
    {
        int down = lk__cuda_lane() / 8, across = lk__cuda_lane() % 8, k = chunk * CHUNK;
#pragma unroll
        for (int i = 0; i < 4 * TALL; i++)
            read_4(dy, row + 4 * i + down, k, a[i]);
#pragma unroll
        for (int j = 0; j < 4; j++)
            read_4(w, k + j, column + 4 * across, b[j]);
    }

    __device__ __forceinline__ void add(float (&acc)[SUMS]) const
    {
#pragma unroll
        for (int k = 0; k < CHUNK; k++)
#pragma unroll
            for (int i = 0; i < SUMS; i++)
                acc[i] = __fmaf_rn(a[i / 4][k], b[k][i % 4], acc[i]);
    }

    static __device__ __forceinline__ void place(int i, int *row, int *column)
    {
        *row = i / 4 * 4 + lk__cuda_lane() / 8;
        *column = lk__cuda_lane() % 8 * 4 + i % 4;
    }
};

/* What follows the product. The first result is rounded as if it had been stored before the dropout. */
template <class T>
struct small_end {
    const T *bias; /* of the columns, or NULL */
    const T *mask; /* as the result, or NULL: the result is 0 where the mask is not above 0 */
    bool relu;
    lk_drop drop; /* of a forward pass; its ids are NULL if nothing is dropped */
    float scale;  /* with a mask: of the dropout that made it, or 1 */

    __device__ __forceinline__ float apply(float sum, int row, int column, size_t at) const
    {
        float v[1];
        if (bias) {
            lk__cuda_load(bias + column, v);
            sum += v[0];
        }
        if (relu)
            sum = lk__cuda_relu1(sum);
        if (drop.ids)
            sum = lk__cuda_drop_one(drop, row, column, (float)(T)sum);
        if (mask) {
            lk__cuda_load(mask + at, v);
            sum = lk__cuda_relu_grad1(v[0], (float)(T)sum * scale);
        }
        return sum;
    }
};

/* Adds the sums of the warps, part by part, and writes the results. */
template <class P, class T>
static __device__ __forceinline__ void write_tile(const small_shape &s, const small_end<T> &end,
                                                  const float (&acc)[P::SUMS], int row, int column, T *out)
{
    enum { PART = P::HEIGHT * P::COLUMNS, SUMS = P::OWN / P::TALL };
    __shared__ float sums[WARPS][PART];
    int warp = (int)threadIdx.x / LK_WARP;
#pragma unroll
    for (int part = 0; part < P::TALL; part++) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < SUMS; i++) {
            int r, c;
            P::place(i, &r, &c);
            sums[warp][r * P::COLUMNS + c] = acc[part * SUMS + i];
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < PART; i += BLOCK) {
            int r = row + part * P::HEIGHT + i / P::COLUMNS, c = column + i % P::COLUMNS;
            size_t at = (size_t)r * s.columns + c;
            float sum = sums[0][i];
#pragma unroll
            for (int w = 1; w < WARPS; w++)
                sum += sums[w][i];
            if (r >= s.n || c >= s.columns)
                continue;
            float v[1] = {end.apply(sum, r, c, at)};
            lk__cuda_store(out + at, v);
        }
    }
}

template <class P, class T>
static __global__ void __launch_bounds__(BLOCK, P::RESIDENT)
    small_product(small_shape s, matrix<T> left, matrix<T> right, small_end<T> end, T *out)
{
    lk__cuda_await();
    enum { AHEAD = P::AHEAD };
    int row = (int)blockIdx.x * P::HEIGHT * P::TALL, column = (int)blockIdx.y * P::COLUMNS;
    int chunks = (s.terms + P::CHUNK - 1) / P::CHUNK;
    float acc[P::SUMS] = {};
    for (int first = (int)threadIdx.x / LK_WARP; first < chunks; first += AHEAD * WARPS) {
        P products[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            products[i].load(left, right, row, column, first + i * WARPS);
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (first + i * WARPS < chunks) /* adding zeros would change the sign of a zero */
                products[i].add(acc);
    }
    P::finish(acc);
    write_tile<P, T>(s, end, acc, row, column, out);
}

template <class T>
static small_end<T> end_of(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    small_end<T> end = {};
    if (problem->pass == LK_CUDA_PASS_GRAD_INPUT) {
        end.mask = (const T *)io->mask;
        end.scale = io->dropout ? lk__dropout_desc_scale(io->dropout) : 1.0f;
        return end;
    }
    end.bias = (const T *)(problem->bias ? io->b : NULL);
    end.relu = problem->relu;
    if (io->dropout)
        end.drop = lk__cuda_drop(io->dropout, 1, (size_t)problem->y_pitch);
    return end;
}

template <class P>
static void launch(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    typedef typename P::value T;
    bool forward = problem->pass == LK_CUDA_PASS_FORWARD;
    int in = problem->x_pitch, out = problem->y_pitch;
    small_shape s = {problem->n, forward ? out : in, forward ? in : out};
    matrix<T> left = {(const T *)(forward ? io->x : io->dy), s.n, s.terms}, right = {(const T *)io->w, out, in};
    dim3 grid((unsigned)divide_up(s.n, P::HEIGHT * P::TALL), (unsigned)divide_up(s.columns, P::COLUMNS));
    lk__cuda_follow({grid, BLOCK, 0, io->stream}, small_product<P, T>, s, left, right, end_of<T>(problem, io),
                    (T *)(forward ? io->y : io->dx));
    lk__cuda_launched(io->dev, "small linear layer");
}

/* Tall tiles read less for a result, but are too few for a small number of samples. */
template <class Low, class Tall>
static void launch_either(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    if (problem->n <= FEW_SAMPLES)
        launch<Low>(problem, io);
    else
        launch<Tall>(problem, io);
}

template <class T>
static void launch_mma(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    if (problem->pass == LK_CUDA_PASS_FORWARD)
        launch_either<forward_mma<T, 1>, forward_mma<T, 4>>(problem, io);
    else
        launch_either<backward_mma<T, 1>, backward_mma<T, 4>>(problem, io);
}

bool lk__cuda_linear_small_suits(const lk_cuda_problem *problem)
{
    int64_t in = problem->x_pitch, out = problem->y_pitch;
    return problem->linear && in % 8 == 0 && out % 8 == 0 && in * out <= MOST_WEIGHTS;
}

void lk__cuda_linear_small(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    if (problem->values == LK_DTYPE_BF16)
        launch_mma<lk_bf16>(problem, io);
    else if (problem->precision == LK_PRECISION_TF32)
        launch_mma<float>(problem, io);
    else if (problem->pass == LK_CUDA_PASS_FORWARD)
        launch<forward_fma>(problem, io);
    else
        launch_either<backward_fma<1>, backward_fma<2>>(problem, io);
}
