/* weights_rows.cu - weight gradients of first convolutions, whose images have few channels: dw (k, taps * c) = dy^T *
 * windows of x, by tensor cores (mma.sync).
 *
 * A row of a window is a run of kernel_w * c neighbouring values of x, and that of the next pixel of y begins stride *
 * c values later. So a block copies the rows of x that a segment of a row of y reads to shared memory, asynchronously
 * and SLOTS - 1 segments ahead, and takes the factors of all taps from there. A segment has as many pixels as a chunk
 * of the tile has rows; pixels behind the end of a row of y have a dy of 0. In tf32, a thread rounds what it copied. */
#include <type_traits>

#include "tensor/cuda/kernels/leaf_part.cuh"
#include "tensor/cuda/kernels/mma.cuh"
#include "tensor/cuda/kernels/weights.h"

enum {
    M = 64,
    SLOTS = 3,
    UNIT = 16,          /* bytes of a copy */
    LINE = 128,         /* bytes of a row of dy in shared memory */
    LEAST_PIXELS = 256, /* of a part */
    /* lk_cuda_cut.extra, in pixels: large images keep one round of blocks, as a second one saves less than the start of
     * its blocks and the fold of their parts cost. */
    EXTRA_PIXELS = 1024,
    MOST_BYTES = 200 * 1024,
    MULTIPROCESSORS = 132 /* of a large GPU */
};

typedef struct rows_shape {
    int h, w, p, q, k;             /* k: pitch of y */
    int values;                    /* of a row of x: w * c */
    int run, step, first;          /* values of a row of a window, to that of the next pixel, and before the image */
    int stride_h, pad_h, kernel_h; /* along h */
    int width;                     /* values of a window */
    int line;                      /* values of a row in shared memory */
    int shift;                     /* values of it before those of the first pixel */
    int tiles_n;
    divisor segments, rows, units; /* segments of a row of y, rows of a sample, units of a line */
} rows_shape;

/* For segments of `pixels` pixels, units of `unit` values and tiles of n columns. */
static rows_shape shape_of(const lk_cuda_problem *problem, int pixels, int unit, int n)
{
    rows_shape s = {};
    s.h = problem->h;
    s.w = problem->w;
    s.p = problem->p;
    s.q = problem->q;
    s.k = problem->y_pitch;
    s.values = s.w * problem->c;
    s.run = problem->along_w.kernel * problem->c;
    s.step = problem->along_w.stride * problem->c;
    s.first = problem->along_w.pad * problem->c;
    s.stride_h = problem->along_h.stride;
    s.pad_h = problem->along_h.pad;
    s.kernel_h = problem->along_h.kernel;
    s.width = s.kernel_h * s.run;
    s.line = divide_up(unit - 1 + (pixels - 1) * s.step + s.run, unit) * unit;
    s.shift = (unit - s.first % unit) % unit;
    s.tiles_n = divide_up(s.width, n);
    s.segments = divisor_of((unsigned)divide_up(s.q, pixels));
    s.rows = divisor_of((unsigned)s.p);
    s.units = divisor_of((unsigned)(s.line / unit));
    return s;
}

/* A warp has all M channels and 8 * NI columns. SPAN is rows_shape.step, or 0 if the compiler does not know it. */
template <class T_, int NI_, int SPAN_>
struct rows_tile : mma_tile<T_, M, 32 * NI_, M, 8 * NI_> {
    enum {
        SPAN = SPAN_,
        Y_BYTES = rows_tile::K * M * sizeof(T_),
        AT_ONCE = NI_ > 2 ? 3 : 7 /* blocks on a multiprocessor */
    };
};

/* Where a thread copies units of dy: unit `unit` of pixel `pixel` of a segment and of every DOWN-th pixel after it. */
template <class P>
struct y_units {
    enum { UNITS = M / P::VEC, DOWN = P::THREADS / UNITS };
    static_assert(DOWN % 8 == 0, "unit_at exchanges the units of these pixels alike");
    int pixel, unit;
    uint32_t at;

    __device__ __forceinline__ y_units(uint32_t slot)
        : pixel((int)threadIdx.x / UNITS), unit((int)threadIdx.x % UNITS), at(slot + unit_at<P::K>(pixel, unit))
    {
    }
};

/* Copies a segment of dy and its rows of x. */
template <class P>
static __device__ __forceinline__ void copy_segment(const rows_shape &s, uint32_t index, int m0,
                                                    const typename P::T *dy, const typename P::T *x, uint32_t to)
{
    typedef typename P::T T;
    unsigned row = quotient(index, s.segments), n = quotient(row, s.rows);
    int q0 = (int)(index - row * s.segments.by) * P::K;
    y_units<P> mine(to);
    const T *from = dy + ((size_t)row * s.q + q0 + mine.pixel) * (size_t)s.k + m0 + mine.unit * P::VEC;
    bool across = m0 + mine.unit * P::VEC < s.k;
#pragma unroll
    for (int i = 0; i < P::K; i += mine.DOWN) {
        bool inside = across && q0 + mine.pixel + i < s.q;
        copy_unit(mine.at + i * LINE, inside ? from + (unsigned)(i * s.k) : dy, inside);
    }
    int h0 = (int)(row - n * s.rows.by) * s.stride_h - s.pad_h, value0 = q0 * s.step - s.first - s.shift;
    const T *image = x + ((ptrdiff_t)n * s.h + h0) * s.values + value0;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < s.kernel_h * (int)s.units.by; i += P::THREADS) {
        int r = (int)quotient((unsigned)i, s.units), value = (i - r * (int)s.units.by) * P::VEC;
        bool inside = (unsigned)(h0 + r) < (unsigned)s.h && (unsigned)(value0 + value) < (unsigned)s.values;
        copy_unit(to + P::Y_BYTES + i * UNIT, inside ? image + (unsigned)(r * s.values + value) : x, inside);
    }
}

static __device__ __forceinline__ void round_unit(uint32_t at)
{
    float v[4];
    load_shared(v, at);
    store_unit(at, make_uint4(round_tf32(v[0]), round_tf32(v[1]), round_tf32(v[2]), round_tf32(v[3])));
}

/* Rounds the units that this thread has copied to tf32. */
template <class P>
static __device__ __forceinline__ void round_segment(const rows_shape &s, uint32_t at)
{
    y_units<P> mine(at);
#pragma unroll
    for (int i = 0; i < P::K; i += mine.DOWN)
        round_unit(mine.at + i * LINE);
    for (int i = (int)threadIdx.x; i < s.kernel_h * (int)s.units.by; i += P::THREADS)
        round_unit(at + P::Y_BYTES + i * UNIT);
}

/* The factors of dy from row k of the chunk on, which is at address ys of shared memory. k is a multiple of 8, so that
 * unit_at exchanges units as in row 0. */
template <class P>
static __device__ __forceinline__ void load_channels(uint32_t ys, int k, uint32_t (&a)[P::MI][4])
{
    int lane = lk__cuda_lane();
    if constexpr (sizeof(typename P::T) == 2) {
#pragma unroll
        for (int i = 0; i < P::MI; i++)
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(a[i][0]), "=r"(a[i][1]), "=r"(a[i][2]), "=r"(a[i][3])
                         : "r"(ys + unit_at<P::K>(lane / 16 * 8 + lane % 8, i * 2 + lane / 8 % 2) + k * LINE)
                         : "memory");
    } else {
#pragma unroll
        for (int i = 0; i < 4 * P::MI; i++) {
            int m = lane / 4 + i / 4 * 16 + i % 2 * 8;
            uint32_t at = unit_at<P::K>(lane % 4 * 2 + i / 2 % 2, m / P::VEC) + (uint32_t)(m % P::VEC) * 4;
            a[i / 4][i % 4] = __float_as_uint(load_shared(ys + at + k * LINE));
        }
    }
}

/* The factors of x for this lane's columns; column[j] is where a column begins for the lane's first row of the chunk,
 * and k is the row of the chunk. */
template <class P>
static __device__ __forceinline__ void load_windows(const rows_shape &s, const typename P::T *xs, int k,
                                                    const int (&column)[P::NI], uint32_t (&b)[P::NI][2])
{
    const int step = P::SPAN ? (int)P::SPAN : s.step;
#pragma unroll
    for (int j = 0; j < P::NI; j++) {
        const typename P::T *v = xs + column[j] + k * step;
        if constexpr (sizeof(typename P::T) == 2) {
            const uint16_t *bits = (const uint16_t *)v;
            b[j][0] = bits[0] | (uint32_t)bits[step] << 16;
            b[j][1] = bits[8 * step] | (uint32_t)bits[9 * step] << 16;
        } else {
            const uint32_t *bits = (const uint32_t *)v;
            b[j][0] = bits[0];
            b[j][1] = bits[step];
        }
    }
}

/* Adds the product of a segment, whose pixels from `pixels` on are zero. */
template <class P>
static __device__ __forceinline__ void add_segment(const rows_shape &s, uint32_t ys, const typename P::T *xs,
                                                   const int (&column)[P::NI], int pixels, float (&acc)[P::SUMS])
{
#pragma unroll
    for (int k = 0; k < P::K; k += P::STEP) {
        if (k >= pixels)
            break;
        uint32_t a[P::MI][4], b[P::NI][2];
        load_channels<P>(ys, k, a);
        load_windows<P>(s, xs, k, column, b);
#pragma unroll
        for (int i = 0; i < P::MI; i++)
#pragma unroll
            for (int j = 0; j < P::NI; j++)
                mma_add<typename P::T>(acc + (i * P::NI + j) * 4, a[i], b[j]);
    }
}

template <class P>
static __device__ __forceinline__ void write_tile(const rows_shape &s, int m0, int n0, const float (&acc)[P::SUMS],
                                                  float *out)
{
#pragma unroll
    for (int i = 0; i < P::SUMS; i++) {
        int m, n;
        P::place(i & ~1, &m, &n);
        m += m0;
        n += n0 + (i & 1);
        if (m < s.k && n < s.width)
            out[(size_t)m * s.width + n] = acc[i];
    }
}

/* Sets where the columns of this lane begin in a segment's rows of x, for the lane's first row of a chunk. */
template <class P>
static __device__ __forceinline__ void set_columns(const rows_shape &s, int n0, int (&column)[P::NI])
{
#pragma unroll
    for (int j = 0; j < P::NI; j++) {
        int n = n0 + P::warp_n() + j * 8 + lk__cuda_lane() / 4, r = n / s.run;
        column[j] = (n < s.width ? r * s.line + n - r * s.run : 0) + s.shift + lk__cuda_lane() % 4 * 2 * s.step;
    }
}

/* out: (block rows, k, width). */
template <class P>
static __global__ void __launch_bounds__(P::THREADS, P::AT_ONCE)
    rows_grad_weight(const __grid_constant__ rows_shape s, const __grid_constant__ lk_cuda_leaves leaves,
                     const typename P::T *dy, const typename P::T *x, float *out)
{
    lk__cuda_await_alone();
    typedef typename P::T T;
    extern __shared__ __align__(1024) char memory[];
    int slot_bytes = P::Y_BYTES + s.kernel_h * s.line * (int)sizeof(T);
    int m0 = (int)blockIdx.x / s.tiles_n * M, n0 = (int)blockIdx.x % s.tiles_n * P::N;
    leaf_part part = part_of(leaves, blockIdx.y, 1);
    int column[P::NI];
    set_columns<P>(s, n0, column);
    auto copy = [&](uint32_t index, int slot) {
        if (index < part.end)
            copy_segment<P>(s, index, m0, dy, x, shared_at(memory) + slot * slot_bytes);
        copies_commit();
    };
    for (int i = 0; i < SLOTS - 1; i++)
        copy(part.begin + i, i);
    float acc[P::SUMS];
#pragma unroll
    for (int i = 0; i < P::SUMS; i++)
        acc[i] = 0.0f;
    int slot = 0, q0 = (int)(part.begin - quotient(part.begin, s.segments) * s.segments.by) * P::K;
    for (uint32_t index = part.begin; index < part.end; index++) {
        copies_wait<SLOTS - 2>();
        if (sizeof(T) == 4)
            round_segment<P>(s, shared_at(memory) + slot * slot_bytes);
        __syncthreads();
        copy(index + SLOTS - 1, slot == 0 ? SLOTS - 1 : slot - 1);
        const char *here = memory + slot * slot_bytes;
        add_segment<P>(s, shared_at(here), (const T *)(here + P::Y_BYTES), column, s.q - q0, acc);
        q0 = q0 + P::K < s.q ? q0 + P::K : 0;
        slot = slot + 1 == SLOTS ? 0 : slot + 1;
    }
    write_tile<P>(s, m0, n0, acc, out + (size_t)blockIdx.y * s.k * s.width);
}

template <class P>
static rows_shape tile_shape(const lk_cuda_problem *problem)
{
    return shape_of(problem, P::K, P::VEC, P::N);
}

template <class P>
static int bytes_of(const rows_shape &s)
{
    return SLOTS * (P::Y_BYTES + s.kernel_h * s.line * (int)sizeof(typename P::T));
}

template <class P>
static void launch(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, float *out)
{
    typedef typename P::T T;
    static const char what[] = "gradient of the weights of a first convolution";
    rows_shape s = tile_shape<P>(problem);
    int bytes = bytes_of<P>(s);
    dim3 blocks((unsigned)(divide_up(s.k, M) * s.tiles_n), (unsigned)(leaves->groups * leaves->parts));
    (void)lk__cuda_keep(
        io->dev, cudaFuncSetAttribute(rows_grad_weight<P>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), what);
    lk__cuda_follow({blocks, P::THREADS, (size_t)bytes, io->stream}, rows_grad_weight<P>, s, *leaves, (const T *)io->dy,
                    (const T *)io->x, out);
    lk__cuda_launched(io->dev, what);
}

/* Calls f with a null pointer to the tile type of a problem. Its steps between pixels are those of 3 channels with
 * stride 1 or 2, or any; they change no bit. */
template <class T, int NI, class F>
static auto by_step(const lk_cuda_problem *problem, F f)
{
    int step = problem->along_w.stride * problem->c;
    if (step == 6)
        return f((rows_tile<T, NI, 6> *)nullptr);
    if constexpr (NI == 1)
        if (step == 3)
            return f((rows_tile<T, NI, 3> *)nullptr);
    return f((rows_tile<T, NI, 0> *)nullptr);
}

template <class F>
static auto by_tile(const lk_cuda_problem *problem, F f)
{
    enum { NARROW = 1, WIDE = 5 }; /* in columns of 32: 3x3 windows of 3 channels (27), 7x7 of 3 channels (147) */
    bool narrow = problem->along_h.kernel * problem->along_w.kernel * problem->c <= 32 * NARROW;
    if (problem->values == LK_DTYPE_BF16)
        return narrow ? by_step<lk_bf16, NARROW>(problem, f) : by_step<lk_bf16, WIDE>(problem, f);
    return narrow ? by_step<float, NARROW>(problem, f) : by_step<float, WIDE>(problem, f);
}

/* Whole units of 16 bytes are inside or outside of the image. Windows of up to 3 x 3 of one channel are left to
 * conv2d_first.cu, whose bias costs nothing. */
static bool suits(const lk_cuda_problem *problem, size_t most)
{
    const lk_cuda_window *h = &problem->along_h, *w = &problem->along_w;
    (void)most;
    if (problem->groups != 1 || problem->x_pitch != problem->c || problem->c > 4 || problem->y_pitch % 8 != 0 ||
        h->dilation != 1 || w->dilation != 1 || (problem->c == 1 && h->kernel * w->kernel <= 9))
        return false;
    if (problem->values != LK_DTYPE_BF16 && problem->precision != LK_PRECISION_TF32)
        return false;
    return by_tile(problem, [&](auto *tile) {
        typedef std::remove_pointer_t<decltype(tile)> P;
        return (size_t)problem->w * (size_t)problem->c % P::VEC == 0 &&
               bytes_of<P>(tile_shape<P>(problem)) <= MOST_BYTES;
    });
}

static lk_cuda_cut cut_of(const lk_cuda_problem *problem, size_t most)
{
    (void)most;
    return by_tile(problem, [&](auto *tile) {
        typedef std::remove_pointer_t<decltype(tile)> P;
        rows_shape s = tile_shape<P>(problem);
        lk_cuda_cut cut = {};
        cut.rows = (size_t)s.p * s.segments.by;
        cut.chunk = 1;
        cut.least = LEAST_PIXELS / P::K;
        cut.tiles = (size_t)divide_up(s.k, M) * (size_t)s.tiles_n;
        cut.full = 2 * MULTIPROCESSORS * P::AT_ONCE;
        cut.extra = EXTRA_PIXELS / P::K;
        cut.weights = (size_t)s.k * (size_t)s.width;
        return cut;
    });
}

static void launch_leaves(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                          size_t most, float *out)
{
    (void)most;
    by_tile(problem, [&](auto *tile) { launch<std::remove_pointer_t<decltype(tile)>>(problem, io, leaves, out); });
}

const lk_cuda_leaf_kernel lk__cuda_weights_rows = {"windows of few channels", suits, cut_of, launch_leaves, NULL};
