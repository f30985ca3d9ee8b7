/* mma.cuh - products of tiles in shared memory, the asynchronous copies that fill them, and division by constants, for
 * kernels of convolutions and of weight gradients. For nvcc only.
 *
 * A tile type has T, M, N, K (rows of a chunk), THREADS, SUMS (of a thread), and
 * - add(acc, ys, xs, rows): adds the product of a chunk's (K, M) and (K, N), whose rows from `rows` on are zero;
 * - place(i, m, n): the element of sums i and i + 1, for even i.
 * The order of a sum's additions depends on the tile type only. */
#ifndef LK_TENSOR_CUDA_KERNELS_MMA_CUH
#define LK_TENSOR_CUDA_KERNELS_MMA_CUH

#include <limits.h>

#include "tensor/cuda/kernels/vec.cuh"

/* Division by a constant that is known at the launch: a multiplication and two shifts. */
typedef struct divisor {
    unsigned by, factor, shift;
} divisor;

static inline int divide_up(int value, int by)
{
    return (value + by - 1) / by;
}

static inline divisor divisor_of(unsigned by)
{
    divisor d = {by, 0, 0};
    while ((1ull << d.shift) < by)
        d.shift++;
    d.factor = (unsigned)((((1ull << d.shift) - by) << 32) / by + 1);
    return d;
}

static __device__ __forceinline__ unsigned quotient(unsigned value, divisor d)
{
    if (d.by == 1)
        return value;
    unsigned high = __umulhi(value, d.factor);
    return (high + ((value - high) >> 1)) >> (d.shift - 1);
}

static __device__ __forceinline__ uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Copies 16 bytes to shared memory, or writes zeros there. */
static __device__ __forceinline__ void copy_unit(uint32_t to, const void *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0));
}

static __device__ __forceinline__ void store_unit(uint32_t to, uint4 v)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

static __device__ __forceinline__ void copies_commit()
{
    asm volatile("cp.async.commit_group;");
}

/* Waits until at most COUNT of the thread's committed groups of copies are incomplete. */
template <int COUNT>
static __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(COUNT) : "memory");
}

/* The offset of 16-byte unit `unit` of a row: 8 units are a line of 128 bytes, and all ROWS first lines of the rows
 * come before the second ones. */
template <int ROWS>
static __device__ __forceinline__ uint32_t unit_at(int row, int unit)
{
    return (uint32_t)((unit / 8 * ROWS + row) * 128 + ((unit % 8) ^ (row & 7)) * 16);
}

static __device__ __forceinline__ uint32_t round_tf32(float x)
{
    uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}

/* The bits of x with half of the last place of tf32 added, away from zero: tensor cores ignore the bits behind that
 * place, so they read round_tf32(x) if x is finite. NaN may become a number. */
static __device__ __forceinline__ uint32_t nudge_tf32(float x)
{
    return __float_as_uint(x) + 0x1000;
}

/* As nudge_tf32, but a number that is not finite stays as it is. */
static __device__ __forceinline__ uint32_t nudge_finite(float x)
{
    return fabsf(x) < INFINITY ? nudge_tf32(x) : __float_as_uint(x);
}

/* The sums of a block's leaves that are not merged yet. */
template <int COUNT, int LEVELS>
struct sum_levels {
    float saved[LEVELS > 0 ? LEVELS : 1][COUNT];

    __device__ __forceinline__ void fold(float (&acc)[COUNT], int merges, bool last)
    {
        for (int m = 0; m < merges; m++) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                acc[i] = saved[0][i] + acc[i];
#pragma unroll
                for (int l = 0; l + 1 < LEVELS; l++)
                    saved[l][i] = saved[l + 1][i];
            }
        }
        if (last)
            return;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
#pragma unroll
            for (int l = LEVELS - 1; l > 0; l--)
                saved[l][i] = saved[l - 1][i];
            saved[0][i] = acc[i];
        }
    }
};

static __device__ __forceinline__ float load_shared(uint32_t at)
{
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at) : "memory");
    return v;
}

static __device__ __forceinline__ void load_shared(float (&v)[2], uint32_t at)
{
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v[0]), "=f"(v[1]) : "r"(at) : "memory");
}

static __device__ __forceinline__ void load_shared(float (&v)[4], uint32_t at)
{
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                 : "r"(at)
                 : "memory");
}

static __device__ __forceinline__ uint2 load_pair(uint32_t at)
{
    uint2 v;
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at) : "memory");
    return v;
}

static __device__ __forceinline__ void store_shared(uint32_t to, float v)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory");
}

/* d (16, 8) = d + a b, of a warp, with 16 rows of k for bf16 and 8 for tf32. */
template <class T>
static __device__ __forceinline__ void mma_add(float *d, const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    if constexpr (sizeof(T) == 2)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Tensor cores by mma.sync; a warp computes WM x WN. */
template <class T_, int M_, int N_, int WM, int WN>
struct mma_tile {
    typedef T_ T;
    enum {
        M = M_,
        N = N_,
        K = 128 / sizeof(T),
        ACROSS = N / WN, /* warps along n */
        THREADS = M / WM * ACROSS * LK_WARP,
        MI = WM / 16,
        NI = WN / 8,
        SUMS = MI * NI * 4,
        STEP = sizeof(T) == 2 ? 16 : 8, /* rows of one instruction */
        VEC = 16 / sizeof(T)
    };

    static __device__ __forceinline__ int warp_m()
    {
        return (int)threadIdx.x / LK_WARP / ACROSS * WM;
    }

    static __device__ __forceinline__ int warp_n()
    {
        return (int)threadIdx.x / LK_WARP % ACROSS * WN;
    }

    /* Four transposed 8x8 matrices; this lane gives the address of one of their rows. */
    static __device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const T *tile, int row, int column)
    {
        uint32_t at = shared_at(tile) + unit_at<K>(row, column / VEC);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at)
                     : "memory");
    }

    static __device__ __forceinline__ uint32_t load_one(const T *tile, int row, int column)
    {
        return round_tf32(*(const float *)((const char *)tile + unit_at<K>(row, column / VEC) + column % VEC * 4));
    }

    static __device__ __forceinline__ void load_m(const T *ys, int k, uint32_t (&a)[MI][4])
    {
        int lane = lk__cuda_lane();
#pragma unroll
        for (int i = 0; i < MI; i++) {
            int m = warp_m() + i * 16;
            if constexpr (sizeof(T) == 2) {
                load_matrices(a[i], ys, k + lane / 16 * 8 + lane % 8, m + lane / 8 % 2 * 8);
            } else {
                int row = k + lane % 4 * 2, column = m + lane / 4;
                a[i][0] = load_one(ys, row, column);
                a[i][1] = load_one(ys, row, column + 8);
                a[i][2] = load_one(ys, row + 1, column);
                a[i][3] = load_one(ys, row + 1, column + 8);
            }
        }
    }

    static __device__ __forceinline__ void load_n(const T *xs, int k, uint32_t (&b)[NI][2])
    {
        int lane = lk__cuda_lane();
        if constexpr (sizeof(T) == 2) {
#pragma unroll
            for (int j = 0; j < NI; j += 2) {
                uint32_t r[4];
                load_matrices(r, xs, k + lane / 8 % 2 * 8 + lane % 8, warp_n() + j * 8 + lane / 16 * 8);
                b[j][0] = r[0], b[j][1] = r[1];
                b[j + 1][0] = r[2], b[j + 1][1] = r[3];
            }
        } else {
#pragma unroll
            for (int j = 0; j < NI; j++) {
                int row = k + lane % 4 * 2, column = warp_n() + j * 8 + lane / 4;
                b[j][0] = load_one(xs, row, column);
                b[j][1] = load_one(xs, row + 1, column);
            }
        }
    }

    static __device__ __forceinline__ void add(float (&acc)[SUMS], const T *ys, const T *xs, int rows)
    {
#pragma unroll
        for (int k = 0; k < K; k += STEP) {
            if (k >= rows)
                break;
            uint32_t a[MI][4], b[NI][2];
            load_m(ys, k, a);
            load_n(xs, k, b);
#pragma unroll
            for (int i = 0; i < MI; i++)
#pragma unroll
                for (int j = 0; j < NI; j++)
                    mma_add<T>(acc + (i * NI + j) * 4, a[i], b[j]);
        }
    }

    static __device__ __forceinline__ void place(int i, int *m, int *n)
    {
        int lane = lk__cuda_lane(), at = i / 4;
        *m = warp_m() + at / NI * 16 + lane / 4 + (i & 2 ? 8 : 0);
        *n = warp_n() + at % NI * 8 + lane % 4 * 2;
    }
};

/* fp32; a thread computes TM x N / 16 sums, in squares of 4 x 4. A larger TM reads fewer values for a sum. */
template <int M_, int N_, int TM_>
struct fma_tile {
    typedef float T;
    enum {
        M = M_,
        N = N_,
        K = 32,
        TM = TM_,
        TN = N / 16,
        SUMS = TM * TN,
        DOWN = M / TM,
        THREADS = DOWN * 16,
        ROWS = 8,   /* whose units are exchanged differently */
        FLOATS = 32 /* of a line */
    };

    static __device__ __forceinline__ void load(const float *tile, int row, int column, float *v)
    {
        float4 f = *(const float4 *)((const char *)tile + unit_at<K>(row, column / 4));
        v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
    }

    static __device__ __forceinline__ void add_row(float (&acc)[SUMS], const float *ys, const float *xs, int k)
    {
        int tm = (int)threadIdx.x / 16 * 4, tn = (int)threadIdx.x % 16 * 4;
        float a[TM], b[TN];
#pragma unroll
        for (int i = 0; i < TM; i += 4)
            load(ys, k, i * DOWN + tm, a + i);
#pragma unroll
        for (int j = 0; j < TN; j += 4)
            load(xs, k, j * 16 + tn, b + j);
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++)
                acc[i * TN + j] = __fmaf_rn(a[i], b[j], acc[i * TN + j]);
    }

    /* Adds eight rows at a time, whose offsets are known to the compiler. */
    static __device__ __forceinline__ void add(float (&acc)[SUMS], const float *ys, const float *xs, int rows)
    {
#pragma unroll 1
        for (int first = 0; first < K && first < rows; first += ROWS)
#pragma unroll
            for (int k = 0; k < ROWS; k++)
                add_row(acc, ys + first * FLOATS, xs + first * FLOATS, k);
    }

    static __device__ __forceinline__ void place(int i, int *m, int *n)
    {
        int row = i / TN, column = i % TN;
        *m = row / 4 * 4 * DOWN + (int)threadIdx.x / 16 * 4 + row % 4;
        *n = column / 4 * 64 + (int)threadIdx.x % 16 * 4 + column % 4;
    }
};

#endif
