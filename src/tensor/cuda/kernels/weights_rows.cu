/* weights_rows.cu - weight gradients of first convolutions, whose images have few channels: dw (k, taps * c) = dy^T *
 * windows of x, by tensor cores (mma.sync).
 *
 * A row of a window is a run of kernel_w * c neighbouring values of x, and that of the next pixel of y begins stride *
 * c values later. So a block copies the rows of x that a segment of a row of y reads to shared memory, asynchronously
 * and STAGES - 1 segments ahead, and takes the factors of all taps from there. A segment has as many pixels as a chunk
 * of the tile has rows; pixels behind the end of a row of y have a dy of 0. */
#include <type_traits>

#include "tensor/cuda/kernels/leaf_part.cuh"
#include "tensor/cuda/kernels/mma.cuh"
#include "tensor/cuda/kernels/weights.h"

enum { M = 64, STAGES = 3, UNIT = 16, FULL = 264, LEAST_PIXELS = 2048, MOST_BYTES = 200 * 1024 };

typedef struct rows_shape {
    int h, w, p, q, k;             /* k: pitch of y */
    int values;                    /* of a row of x: w * c */
    int run, step, first;          /* values of a row of a window, to that of the next pixel, and before the image */
    int stride_h, pad_h, kernel_h; /* along h */
    int width;                     /* values of a window */
    int line;                      /* values of a row in shared memory */
    int tiles_n;
    divisor segments, sample; /* of a row of y, and of a sample */
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
    s.tiles_n = divide_up(s.width, n);
    s.segments = divisor_of((unsigned)divide_up(s.q, pixels));
    s.sample = divisor_of((unsigned)s.p * s.segments.by);
    return s;
}

/* A warp has all M channels and 8 * NI columns. */
template <class T_, int NI_>
struct rows_tile : mma_tile<T_, M, 32 * NI_, M, 8 * NI_> {
    enum { Y_BYTES = rows_tile::K * M * sizeof(T_) };
};

/* A segment of a row of y. */
struct segment {
    int n, p, q0, shift; /* shift: of the first pixel's values in a row of shared memory */
    int from;            /* the first value of a row of x that is copied; may be negative */

    template <class P>
    __device__ __forceinline__ void set(const rows_shape &s, uint32_t index)
    {
        n = (int)quotient(index, s.sample);
        unsigned rest = index - (unsigned)n * s.sample.by;
        p = (int)quotient(rest, s.segments);
        q0 = (int)(rest - (unsigned)p * s.segments.by) * P::K;
        int value = q0 * s.step - s.first;
        from = value & -(int)P::VEC;
        shift = value - from;
    }
};

/* Copies a segment of dy and its rows of x. */
template <class P>
static __device__ __forceinline__ void copy_segment(const rows_shape &s, const segment &at, int m0,
                                                    const typename P::T *dy, const typename P::T *x, uint32_t to)
{
    enum { UNITS = M / P::VEC };
    const typename P::T *row = dy + ((size_t)(at.n * s.p + at.p) * s.q + at.q0) * (size_t)s.k + m0;
#pragma unroll
    for (int i = (int)threadIdx.x; i < P::K * UNITS; i += P::THREADS) {
        int pixel = i / UNITS, unit = i % UNITS;
        bool inside = at.q0 + pixel < s.q && m0 + unit * P::VEC < s.k;
        copy_unit(to + unit_at<P::K>(pixel, unit), inside ? row + (size_t)pixel * s.k + unit * P::VEC : dy, inside);
    }
    int units = s.line / P::VEC;
    for (int r = (int)threadIdx.x / 32; r < s.kernel_h; r += P::THREADS / 32) {
        int h = at.p * s.stride_h + r - s.pad_h;
        const typename P::T *line = x + (size_t)(at.n * s.h + h) * s.values;
        for (int u = (int)threadIdx.x % 32; u < units; u += 32) {
            int value = at.from + u * P::VEC;
            bool inside = (unsigned)h < (unsigned)s.h && (unsigned)value < (unsigned)s.values;
            copy_unit(to + P::Y_BYTES + (r * units + u) * UNIT, inside ? line + value : x, inside);
        }
    }
}

/* The factors of x for this lane's columns, from row k of the chunk on; column[j] is where a column begins. */
template <class P>
static __device__ __forceinline__ void load_windows(const rows_shape &s, const typename P::T *xs, int k,
                                                    const int (&column)[P::NI], uint32_t (&b)[P::NI][2])
{
    int lane = lk__cuda_lane();
    const typename P::T *at = xs + (k + lane % 4 * 2) * s.step;
#pragma unroll
    for (int j = 0; j < P::NI; j++) {
        const typename P::T *v = at + column[j];
        if constexpr (sizeof(typename P::T) == 2) {
            const uint16_t *bits = (const uint16_t *)v;
            b[j][0] = bits[0] | (uint32_t)bits[s.step] << 16;
            b[j][1] = bits[8 * s.step] | (uint32_t)bits[9 * s.step] << 16;
        } else {
            b[j][0] = round_tf32(v[0]);
            b[j][1] = round_tf32(v[s.step]);
        }
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

/* out: (block rows, k, width). */
template <class P>
static __global__ void __launch_bounds__(P::THREADS)
    rows_grad_weight(const __grid_constant__ rows_shape s, const __grid_constant__ lk_cuda_leaves leaves,
                     const typename P::T *dy, const typename P::T *x, float *out)
{
    typedef typename P::T T;
    extern __shared__ __align__(1024) char memory[];
    int stage_bytes = P::Y_BYTES + s.kernel_h * s.line * (int)sizeof(T);
    int m0 = (int)blockIdx.x / s.tiles_n * M, n0 = (int)blockIdx.x % s.tiles_n * P::N;
    leaf_part part = part_of(leaves, blockIdx.y, 1);
    int column[P::NI];
#pragma unroll
    for (int j = 0; j < P::NI; j++) {
        int n = n0 + P::warp_n() + j * 8 + lk__cuda_lane() / 4, r = n / s.run;
        column[j] = n < s.width ? r * s.line + n - r * s.run : 0;
    }
    auto copy = [&](uint32_t index, int stage) {
        if (index < part.end) {
            segment at;
            at.set<P>(s, index);
            copy_segment<P>(s, at, m0, dy, x, shared_at(memory) + stage * stage_bytes);
        }
        copies_commit();
    };
    for (int i = 0; i < STAGES - 1; i++)
        copy(part.begin + i, i);
    float acc[P::SUMS];
#pragma unroll
    for (int i = 0; i < P::SUMS; i++)
        acc[i] = 0.0f;
    int stage = 0;
    for (uint32_t index = part.begin; index < part.end; index++) {
        copies_wait<STAGES - 2>();
        __syncthreads();
        copy(index + STAGES - 1, stage == 0 ? STAGES - 1 : stage - 1);
        segment at;
        at.set<P>(s, index);
        const T *ys = (const T *)(memory + stage * stage_bytes), *xs = ys + P::K * M + at.shift;
        for (int k = 0; k < P::K && at.q0 + k < s.q; k += P::STEP) {
            uint32_t a[P::MI][4], b[P::NI][2];
            P::load_m(ys, k, a);
            load_windows<P>(s, xs, k, column, b);
#pragma unroll
            for (int i = 0; i < P::MI; i++)
#pragma unroll
                for (int j = 0; j < P::NI; j++)
                    mma_add<T>(acc + (i * P::NI + j) * 4, a[i], b[j]);
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
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
    return STAGES * (P::Y_BYTES + s.kernel_h * s.line * (int)sizeof(typename P::T));
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
    rows_grad_weight<P>
        <<<blocks, P::THREADS, bytes, io->stream>>>(s, *leaves, (const T *)io->dy, (const T *)io->x, out);
    lk__cuda_launched(io->dev, what);
}

/* Calls f with a null pointer to the tile type of a problem. */
template <class F>
static auto by_tile(const lk_cuda_problem *problem, F f)
{
    enum { NARROW = 1, WIDE = 5 }; /* in columns of 32: 3x3 windows of 3 channels (27), 7x7 of 3 channels (147) */
    bool narrow = problem->along_h.kernel * problem->along_w.kernel * problem->c <= 32 * NARROW;
    if (problem->values == LK_DTYPE_BF16)
        return narrow ? f((rows_tile<lk_bf16, NARROW> *)nullptr) : f((rows_tile<lk_bf16, WIDE> *)nullptr);
    return narrow ? f((rows_tile<float, NARROW> *)nullptr) : f((rows_tile<float, WIDE> *)nullptr);
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
        cut.rows = s.sample.by;
        cut.chunk = 1;
        cut.least = LEAST_PIXELS / P::K;
        cut.tiles = (size_t)divide_up(s.k, M) * (size_t)s.tiles_n;
        cut.full = FULL;
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
