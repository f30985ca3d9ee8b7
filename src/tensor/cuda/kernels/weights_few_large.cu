/* weights_few_large.cu - weight gradients of large linear layers with few samples a shard: tensor cores under bf16 and
 * tf32, fused multiply-adds under fp32.
 *
 * A block computes a tile of SIDE x SIDE weights. The samples of a leaf, filled up with zeros to ROWS, are a slot of
 * shared memory; copies run SLOTS - 1 leaves ahead. A warp folds its sums in registers.
 *
 * Lane (g, t) = (lane / 4, lane % 4) has neighbouring rows of the warp's HIGH rows, beginning with row g HIGH / 8, and
 * of its WIDE columns those from 4 t and 16 + 4 t on. Tensor cores give it columns 2 t and 2 t + 1 of each of NJ tiles:
 * column q of tile j is column 4 unit_of(q) + j of the warp, so that all loads and stores are of neighbouring values.
 */
#include "tensor/cuda/kernels/mma.cuh"
#include "tensor/cuda/kernels/weights_few.cuh"

/* A warp computes HIGH x WIDE, for tensor cores MI x NJ tiles of 16 x 8. */
enum { SIDE = 64, HIGH = 32, WIDE = 32, ACROSS = SIDE / WIDE, THREADS = SIDE / HIGH * ACROSS * LK_WARP };
enum { MI = HIGH / 16, NJ = WIDE / 8, SUMS = MI * NJ * 4, STEP = 8, AT_ONCE = 4, MEMORY = 32768 };

static __device__ __forceinline__ int unit_of(int column)
{
    return column % 2 * 4 + column / 2;
}

/* T is the type of values in memory; ROWS, of a slot, is a multiple of STEP. */
template <class T_, bool MMA_, int ROWS_>
struct few_tile {
    typedef T_ T;
    enum {
        MMA = MMA_,
        TF32 = MMA && sizeof(T) == 4,
        ROWS = ROWS_,
        VEC = 16 / sizeof(T),
        UNITS = SIDE / VEC, /* of 16 bytes in a row */
        SLOT = 2 * ROWS * UNITS,
        COPIES = SLOT / THREADS,
        SLOTS = MEMORY / (SLOT * 16),
        RESIDENT = MMA && ROWS == STEP ? 3 : 2 /* blocks whose registers a multiprocessor has */
    };

    /* Units of a row are permuted so that tensor cores' loads of 4 rows have no bank conflicts. */
    static __device__ __forceinline__ int swizzle(int row)
    {
        return !MMA ? 0 : sizeof(T) == 2 ? row % 2 * 3 + row / 2 % 2 * 4 : row % 2 * 2 + row / 2 % 2 * 5;
    }

    /* The offset of a value in a slot's part of dy or x. */
    static __device__ __forceinline__ int place(int row, int column)
    {
        return (row * UNITS + ((column / VEC) ^ swizzle(row))) * 16 + column % VEC * (int)sizeof(T);
    }
};

template <int WORDS>
static __device__ __forceinline__ void load_words(const char *from, uint32_t (&v)[WORDS])
{
    if constexpr (WORDS == 2) {
        uint2 u = *(const uint2 *)from;
        v[0] = u.x, v[1] = u.y;
    } else {
        uint4 u = *(const uint4 *)from;
        v[0] = u.x, v[1] = u.y, v[2] = u.z, v[3] = u.w;
    }
}

/* d (16, 8) = c + a b, of a warp, with STEP rows of k. */
static __device__ __forceinline__ void multiply(float *d, const uint32_t (&a)[4], const uint32_t (&b)[2],
                                                const float *c)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

static __device__ __forceinline__ void multiply(float *d, const uint32_t (&a)[2], const uint32_t (&b)[1],
                                                const float *c)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b[0]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

/* Rounds words to tf32 for tensor cores, which ignore the last 13 bits. A NaN whose bits are all 1 would become 0, so a
 * word that is not finite turns `bad` into NaN. */
template <int WORDS>
static __device__ __forceinline__ void round_words(uint32_t (&v)[WORDS], float &bad)
{
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        bad = __fmaf_rn(__uint_as_float(v[i]), 0.0f, bad);
        v[i] = nudge_tf32(__uint_as_float(v[i]));
    }
}

/* Values i of two rows of bf16 as one word. */
template <int WORDS>
static __device__ __forceinline__ uint32_t pair_of(const uint32_t (&low)[WORDS], const uint32_t (&high)[WORDS], int i)
{
    return __byte_perm(low[i / 2], high[i / 2], i % 2 ? 0x7632 : 0x5410);
}

/* A 16-byte unit that a thread copies for every leaf. */
struct few_copy {
    const char *from; /* in sample 0 of the wave */
    uint32_t pitch;   /* bytes */
    uint32_t to;      /* in slot 0 */
    uint32_t row;     /* of the leaf; UINT32_MAX outside of the tensor */
};

/* A block at work on a group. */
template <class P>
struct few_block {
    typedef typename P::T T;
    const few_work &work;
    const lk_cuda_leaves &leaves;
    char *memory;     /* (SLOTS, 2, ROWS, SIDE) of T: dy, then x */
    int first, count; /* leaves */
    int k0, c0;
    int m, n; /* of the warp, in the tile */
    int g, t;
    float bad; /* under tf32: NaN if a factor that this lane read was not finite, which makes the warp's sums NaN */
    few_copy copies[P::COPIES];

    __device__ __forceinline__ void init_copies(const T *dy, const T *x)
    {
#pragma unroll
        for (int i = 0; i < P::COPIES; i++) {
            uint32_t at = threadIdx.x + i * THREADS, row = at / P::UNITS % P::ROWS, unit = at % P::UNITS;
            bool of_x = at >= P::SLOT / 2;
            int pitch = of_x ? work.c : work.k, column = (of_x ? c0 : k0) + (int)unit * P::VEC;
            bool inside = column < pitch;
            copies[i].from = (const char *)((of_x ? x : dy) + (inside ? (size_t)row * pitch + column : 0));
            copies[i].pitch = (uint32_t)pitch * (uint32_t)sizeof(T);
            copies[i].to = shared_at(memory) + (at - unit + (unit ^ P::swizzle((int)row))) * 16;
            copies[i].row = inside ? row : UINT32_MAX;
        }
    }

    /* Starts the copies of a leaf; one that the group does not have is empty. Nothing is read where zeros are
     * written. */
    __device__ __forceinline__ void copy(int leaf)
    {
        if (leaf < GROUP_LEAVES) {
            uint32_t begin = leaves.begin[first + min(leaf, count)];
            uint32_t rows = leaves.begin[first + min(leaf + 1, count)] - begin;
#pragma unroll
            for (int i = 0; i < P::COPIES; i++)
                copy_unit(copies[i].to + leaf % P::SLOTS * (P::SLOT * 16),
                          copies[i].from + (size_t)begin * copies[i].pitch, copies[i].row < rows);
        }
        copies_commit();
    }

    /* Rows [row, row + STEP) of a slot. */
    __device__ __forceinline__ void multiply_step(const char *ys, const char *xs, int row, const float *from,
                                                  float (&sum)[SUMS])
    {
        enum { WORDS = (int)sizeof(T), FACTORS = WORDS / 2 };
        uint32_t y_low[WORDS], y_high[WORDS], x_low[WORDS], x_high[WORDS], a[MI][2 * FACTORS], b[NJ][FACTORS];
        int y_at = P::place(t, m + 4 * g), x_at = P::place(t, n + 4 * unit_of(g));
        load_words(ys + y_at + row * P::UNITS * 16, y_low);
        load_words(ys + y_at + (row + STEP / 2) * P::UNITS * 16, y_high);
        load_words(xs + x_at + row * P::UNITS * 16, x_low);
        load_words(xs + x_at + (row + STEP / 2) * P::UNITS * 16, x_high);
        if constexpr (sizeof(T) == 2) {
#pragma unroll
            for (int i = 0; i < MI * 2; i++)
                a[i / 2][i % 2] = pair_of(y_low, y_high, i);
#pragma unroll
            for (int j = 0; j < NJ; j++)
                b[j][0] = pair_of(x_low, x_high, j);
        } else {
            round_words(y_low, bad), round_words(y_high, bad);
            round_words(x_low, bad), round_words(x_high, bad);
#pragma unroll
            for (int i = 0; i < MI * 2; i++)
                a[i / 2][i % 2] = y_low[i], a[i / 2][i % 2 + 2] = y_high[i];
#pragma unroll
            for (int j = 0; j < NJ; j++)
                b[j][0] = x_low[j], b[j][1] = x_high[j];
        }
#pragma unroll
        for (int i = 0; i < MI * NJ; i++)
            multiply(sum + i * 4, a[i / NJ], b[i % NJ], from + i * 4);
    }

    __device__ __forceinline__ void add_row(const char *ys, const char *xs, int row, float (&sum)[SUMS])
    {
        uint32_t a[4], b[4], c[4];
        load_words(ys + P::place(row, m + 4 * g), a);
        load_words(xs + P::place(row, n + 4 * t), b);
        load_words(xs + P::place(row, n + 16 + 4 * t), c);
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            sum[i] = __fmaf_rn(__uint_as_float(a[i / (NJ * 4) * 2 + i % 4 / 2]),
                               __uint_as_float((i % 2 ? c : b)[i / 4 % NJ]), sum[i]);
    }

    /* The sums of a leaf. Tensor cores take all rows of the slot, as many as the largest shard has. */
    __device__ __forceinline__ void compute_leaf(int leaf, float (&sum)[SUMS])
    {
        const char *ys = memory + leaf % P::SLOTS * (P::SLOT * 16), *xs = ys + P::SLOT / 2 * 16;
        copies_wait<P::SLOTS - 2>();
        __syncthreads();
        copy(leaf + P::SLOTS - 1);
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            sum[i] = 0.0f;
        if constexpr (P::MMA) {
#pragma unroll
            for (int row = 0; row < P::ROWS; row += STEP)
                multiply_step(ys, xs, row, sum, sum);
        } else {
            int rows = (int)(leaves.begin[first + leaf + 1] - leaves.begin[first + leaf]);
#pragma unroll 1
            for (int row = 0; row < rows; row += AT_ONCE)
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++)
                    add_row(ys, xs, row + i, sum);
        }
    }

    /* The root of leaves [leaf, leaf + (1 << LEVEL)), as far as the group has them. */
    template <int LEVEL>
    __device__ __forceinline__ void compute_tree(int leaf, float (&sum)[SUMS])
    {
        if constexpr (LEVEL == 0) {
            compute_leaf(leaf, sum);
        } else {
            enum { HALF = 1 << (LEVEL - 1) };
            compute_tree<LEVEL - 1>(leaf, sum);
            if (leaf + HALF < count) {
                float right[SUMS];
                compute_tree<LEVEL - 1>(leaf + HALF, right);
#pragma unroll
                for (int i = 0; i < SUMS; i++)
                    sum[i] += right[i];
            }
        }
    }

    __device__ __forceinline__ void store(const float (&sum)[SUMS])
    {
        float *out = work.weights + blockIdx.y * work.row;
#pragma unroll
        for (int i = 0; i < MI * 2; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int k = k0 + m + g * MI * 2 + i, c = c0 + n + half * 16 + t * 4;
                const float *v = sum + i / 2 * (NJ * 4) + i % 2 * 2 + half;
                if (k < work.k && c < work.c)
                    *(float4 *)(out + (size_t)k * work.c + c) = make_float4(v[0], v[4], v[8], v[12]);
            }
    }
};

template <class P>
static __global__ void __launch_bounds__(THREADS, P::RESIDENT)
    few_large(const __grid_constant__ few_work work, const __grid_constant__ lk_cuda_leaves leaves,
              const typename P::T *dy, const typename P::T *x)
{
    lk__cuda_await_alone();
    __shared__ __align__(16) char memory[MEMORY];
    if ((int)blockIdx.x >= work.tiles) {
        sum_columns(work, leaves, dy);
        return;
    }
    int warp = (int)threadIdx.x / LK_WARP, lane = lk__cuda_lane();
    few_block<P> block = {work, leaves, memory};
    block.first = leaves.group[blockIdx.y];
    block.count = leaves.group[blockIdx.y + 1] - block.first;
    block.k0 = (int)blockIdx.x / work.tiles_n * SIDE;
    block.c0 = (int)blockIdx.x % work.tiles_n * SIDE;
    block.m = warp / ACROSS * HIGH;
    block.n = warp % ACROSS * WIDE;
    block.g = lane / 4;
    block.t = lane % 4;
    block.bad = 0.0f;
    block.init_copies(dy, x);
#pragma unroll
    for (int leaf = 0; leaf < P::SLOTS - 1; leaf++)
        block.copy(leaf);
    float sum[SUMS];
    block.template compute_tree<GROUP_LEVELS>(0, sum);
    if constexpr (P::TF32) {
        bool poisoned = __any_sync(~0u, isnan(block.bad));
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            sum[i] = poisoned ? __int_as_float(0x7fffffff) : sum[i];
    }
    block.store(sum);
}

template <class P>
static void launch(const lk_cuda_io *io, const lk_cuda_leaves *leaves, few_work work)
{
    typedef typename P::T T;
    dim3 blocks(few_blocks(&work, SIDE, SIDE, THREADS), (unsigned)leaves->groups);
    lk__cuda_follow({blocks, THREADS, 0, io->stream}, few_large<P>, work, *leaves, (const T *)io->dy, (const T *)io->x);
    lk__cuda_launched(io->dev, "gradient of the weights of a linear layer");
}

template <int ROWS>
static void launch_rows(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                        few_work work)
{
    if (problem->values == LK_DTYPE_BF16)
        launch<few_tile<lk_bf16, true, ROWS>>(io, leaves, work);
    else if (problem->precision == LK_PRECISION_TF32)
        launch<few_tile<float, true, ROWS>>(io, leaves, work);
    else
        launch<few_tile<float, false, ROWS>>(io, leaves, work);
}

void lk__cuda_few_large(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                        few_work work)
{
    (io->shards->most > STEP ? launch_rows<MOST_SAMPLES> : launch_rows<STEP>)(problem, io, leaves, work);
}
