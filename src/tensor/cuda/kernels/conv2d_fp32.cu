/* conv2d_fp32.cu - forward passes and input gradients of convolutions in fp32 as products of dense matrices, by fused
 * multiply-adds.
 *
 * A row of the product is a pixel of the result, a column is one of its channels, and a sum goes over taps and channels
 * of the source, which is x, or dy for an input gradient. Each sum is one chain of additions, taps in the order of the
 * window and channels within a tap, so its bits depend on the layer only: neither the number of samples nor the size of
 * the tiles changes them, and tiles are chosen by the size of the whole call.
 *
 * With strides, a pixel of dx is read by some taps only. An input gradient has a launch for each class of pixels, whose
 * coordinates have the same remainders by the strides: all pixels of a class are read by the same taps.
 *
 * A block copies chunks of 32 steps of its sums to shared memory, one chunk ahead. A row of the source, and a column of
 * the weights in a forward pass, is a line of 128 bytes, in units of 16 bytes that are exchanged so that the lanes of a
 * warp read different banks. Weights of an input gradient are lines of columns, one for each step. */
#include "tensor/cuda/kernels/conv2d.h"
#include "tensor/cuda/kernels/mma.cuh"
#include "tensor/cuda/kernels/vec4.cuh"

enum { CHUNK = 32, LINE = 128, QUAD = 4, SLOTS = 2 };
enum { MOST_PIXELS = 1 << 30, MOST_SIDE = 1 << 14 }; /* of a launch; of an image, and of what a window covers */
enum { OUTSIDE = -2 * MOST_SIDE };                   /* a coordinate from which no tap reaches the image */
enum { MULTIPROCESSORS = 132 };                      /* of a large GPU */

/* One axis of a class of pixels of the result. Pixel i of the class is pixel first + i * step of the result. Its tap j
 * is tap tap + j * tap_step of the window, and reads pixel i * in_stride + in_first + j * in_step of the source. */
typedef struct conv_axis {
    int first, step, outs;
    int taps, tap, tap_step;
    int in_first, in_stride, in_step, ins;
} conv_axis;

/* A class of pixels. Channels include pads. */
typedef struct conv_class {
    conv_axis h, w;
    unsigned rows;      /* pixels of all samples */
    int height, width;  /* of the result */
    int columns;        /* channels of the result */
    int depth;          /* steps of a sum */
    int kernel_w, taps; /* of the weights */
    divisor channels;   /* of the source */
    divisor row_taps;   /* taps of a row of the class's window */
    divisor row, image; /* pixels of the class in a row and in a sample */
} conv_class;

/* The first tap of a pixel reads pixel (h, w) of the source, or a place outside of it, and `at` is that pixel's number
 * in all samples. Eight bytes, which are read at once; three blocks fit into a multiprocessor. */
struct __align__(8) source_row
{
    int at;
    unsigned place; /* h and w, 16 bits each */

    __device__ __forceinline__ void set(int number, int h, int w)
    {
        at = number;
        place = (unsigned)h << 16 | ((unsigned)w & 0xffffu);
    }

    __device__ __forceinline__ int h() const
    {
        return (int)place >> 16;
    }

    __device__ __forceinline__ int w() const
    {
        return (short)place;
    }
};

/* A block of THREADS computes M rows by N columns. A warp has LANES lanes along columns; a thread computes TM rows,
 * which are neighbours of those of other lanes, by TN columns in fours. WHOLE: pitches are multiples of 4. */
template <int M_, int N_, int TM_, int TN_, int LANES_, bool FORWARD_, bool WHOLE_>
struct conv_tile {
    enum {
        M = M_,
        N = N_,
        TM = TM_,
        TN = TN_,
        LANES = LANES_,
        FORWARD = FORWARD_,
        WHOLE = WHOLE_,
        DOWN = LK_WARP / LANES, /* lanes along rows */
        WM = TM * DOWN,         /* rows and columns of a warp */
        WN = TN * LANES,
        THREADS = M / WM * (N / WN) * LK_WARP,
        BLOCKS = 384 / THREADS, /* of a multiprocessor, as far as registers go; of 128 x 32, shared memory holds five */
        VEC = WHOLE ? QUAD : 1, /* floats of a copy */
        IN_BYTES = M * LINE,
        SLOT = (M + N) * LINE,
        BYTES = SLOTS * SLOT + M * (int)sizeof(source_row)
    };

    static __device__ __forceinline__ int first_row()
    {
        int warp = (int)threadIdx.x / LK_WARP;
        return warp / (N / WN) * WM + lk__cuda_lane() / LANES;
    }

    static __device__ __forceinline__ int first_column()
    {
        int warp = (int)threadIdx.x / LK_WARP;
        return warp % (N / WN) * WN + lk__cuda_lane() % LANES * QUAD;
    }

    /* The offset of a step of a row of the source in a slot. */
    static __device__ __forceinline__ uint32_t in_at(unsigned row, unsigned step)
    {
        return row * LINE + ((step / QUAD) ^ (row % DOWN)) * 16 + step % QUAD * 4;
    }

    /* The offset of a step of a column of the weights, behind the source. */
    static __device__ __forceinline__ uint32_t weight_at(unsigned column, unsigned step)
    {
        if constexpr (FORWARD)
            return IN_BYTES + column * LINE + ((step / QUAD) ^ (column / QUAD % LANES)) * 16 + step % QUAD * 4;
        else
            return IN_BYTES + (step * N + column) * 4;
    }
};

/* A pixel of a class: its sample and its place in the class. */
struct class_pixel {
    unsigned n;
    int i, j;

    __device__ __forceinline__ class_pixel(const conv_class &s, unsigned row)
    {
        n = quotient(row, s.image);
        unsigned rest = row - n * s.image.by, line = quotient(rest, s.row);
        i = (int)line;
        j = (int)(rest - line * s.row.by);
    }
};

template <class P>
static __device__ __forceinline__ void share_rows(const conv_class &s, unsigned m0, source_row *rows)
{
    for (int i = (int)threadIdx.x; i < P::M; i += P::THREADS) {
        int at = 0, h = OUTSIDE, w = OUTSIDE;
        if (m0 + i < s.rows) {
            class_pixel pixel(s, m0 + i);
            h = pixel.i * s.h.in_stride + s.h.in_first;
            w = pixel.j * s.w.in_stride + s.w.in_first;
            at = ((int)pixel.n * s.h.ins + h) * s.w.ins + w;
        }
        rows[i].set(at, h, w);
    }
}

/* Copies VEC floats to shared memory, or writes zeros there. */
template <int VEC>
static __device__ __forceinline__ void copy_floats(uint32_t to, const float *from, bool inside)
{
    if constexpr (VEC == QUAD)
        copy_unit(to, from, inside);
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(inside ? 4 : 0));
}

/* A step of the sums: its channel of the source, and the row and column of its tap in the class. */
struct sum_step {
    int r, t, channel;

    __device__ __forceinline__ sum_step(const conv_class &s, int step)
    {
        unsigned tap = quotient((unsigned)step, s.channels), row = quotient(tap, s.row_taps);
        channel = step - (int)(tap * s.channels.by);
        r = (int)row;
        t = (int)(tap - row * s.row_taps.by);
    }
};

/* `first` is the first step of the chunk. */
template <class P>
static __device__ __forceinline__ void copy_source(const conv_class &s, const float *in, const source_row *rows,
                                                   int first, uint32_t slot)
{
    enum { UNITS = CHUNK / P::VEC, STEP = P::THREADS / UNITS };
    int mine = (int)threadIdx.x / UNITS, step = (int)threadIdx.x % UNITS * P::VEC;
    sum_step at(s, first + step);
    bool used = first + step < s.depth;
    int h = used ? at.r * s.h.in_step : OUTSIDE, w = at.t * s.w.in_step, moved = h * s.w.ins + w;
    const float *channel = used ? in + at.channel : in;
#pragma unroll(P::WHOLE ? P::M / STEP : 4)
    for (int i = 0; i < P::M / STEP; i++) {
        int to = mine + i * STEP;
        int2 bits = *(const int2 *)(rows + to);
        source_row row = {bits.x, (unsigned)bits.y};
        bool inside = ((unsigned)(row.h() + h) < (unsigned)s.h.ins) & ((unsigned)(row.w() + w) < (unsigned)s.w.ins);
        unsigned pixel = inside ? (unsigned)(row.at + moved) : 0;
        copy_floats<P::VEC>(slot + P::in_at(to, step), channel + (size_t)pixel * s.channels.by, inside);
    }
}

/* Columns of a forward pass: steps are elements of (tap, c), which are contiguous in the weights. A thread copies up to
 * four neighbouring columns, which exchange units in the same way. */
template <class P>
static __device__ __forceinline__ void copy_columns(const conv_class &s, const float *weights, int n0, int first,
                                                    uint32_t slot)
{
    enum { UNITS = CHUNK / P::VEC, STEP = P::THREADS / UNITS, NEAR = P::N / STEP < QUAD ? P::N / STEP : QUAD };
    int mine = (int)threadIdx.x / UNITS, step = (int)threadIdx.x % UNITS * P::VEC;
    bool used = first + step < s.depth;
    const float *from = used ? weights + first + step : weights;
#pragma unroll(P::WHOLE ? P::N / STEP : 4)
    for (int i = 0; i < P::N / STEP; i++) {
        int column = mine * NEAR + i / NEAR * NEAR * STEP + i % NEAR;
        bool inside = used & (n0 + column < s.columns);
        unsigned from_column = inside ? (unsigned)(n0 + column) : 0;
        copy_floats<P::VEC>(slot + P::weight_at(column, step), from + (size_t)from_column * (unsigned)s.depth, inside);
    }
}

/* Steps of an input gradient: columns are channels of x, which are contiguous in the weights. */
template <class P>
static __device__ __forceinline__ void copy_steps(const conv_class &s, const float *weights, int n0, int first,
                                                  uint32_t slot)
{
    enum { UNITS = P::N / P::VEC, STEP = P::THREADS / UNITS };
    static_assert(P::THREADS % UNITS == 0 && CHUNK % STEP == 0, "a thread copies the same columns of all steps");
    int mine = (int)threadIdx.x / UNITS, column = (int)threadIdx.x % UNITS * P::VEC;
    bool used = n0 + column < s.columns;
    const float *from = used ? weights + n0 + column : weights;
#pragma unroll(P::WHOLE ? CHUNK / STEP : 4)
    for (int i = 0; i < CHUNK / STEP; i++) {
        int step = mine + i * STEP;
        sum_step at(s, first + step);
        int tap = (s.h.tap + at.r * s.h.tap_step) * s.kernel_w + s.w.tap + at.t * s.w.tap_step;
        bool inside = used & (first + step < s.depth);
        unsigned line = inside ? (unsigned)(at.channel * s.taps + tap) : 0;
        copy_floats<P::VEC>(slot + P::weight_at(column, step), from + (size_t)line * (unsigned)s.columns, inside);
    }
}

template <class P>
static __device__ __forceinline__ void copy_chunk(const conv_class &s, const float *in, const float *weights,
                                                  const source_row *rows, int n0, int first, uint32_t slot)
{
    copy_source<P>(s, in, rows, first, slot);
    if constexpr (P::FORWARD)
        copy_columns<P>(s, weights, n0, first, slot);
    else
        copy_steps<P>(s, weights, n0, first, slot);
    copies_commit();
}

/* Four steps of a thread's columns. */
template <class P>
static __device__ __forceinline__ void load_weights(const char *slot, int column, int step, float (&b)[QUAD][P::TN])
{
#pragma unroll
    for (int j = 0; j < P::TN; j += QUAD)
#pragma unroll
        for (int i = 0; i < QUAD; i++) {
            int near = P::FORWARD ? column + i : column, at = P::FORWARD ? step : step + i;
            float4 v = *(const float4 *)(slot + P::weight_at(near, at) + j * P::LANES * (P::FORWARD ? LINE : 4));
            const float values[QUAD] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int e = 0; e < QUAD; e++)
                b[P::FORWARD ? e : i][j + (P::FORWARD ? i : e)] = values[e];
        }
}

/* Adds the first `steps` steps of a chunk, rounded up to 8; those behind the end of the sums are zero. */
template <class P>
static __device__ __forceinline__ void add_chunk(float (&acc)[P::TM][P::TN], const char *slot, int steps)
{
    int row = P::first_row(), column = P::first_column();
#pragma unroll 1
    for (int pair = 0; pair < steps; pair += 2 * QUAD)
#pragma unroll
        for (int step = pair; step < pair + 2 * QUAD; step += QUAD) {
            float b[QUAD][P::TN];
            load_weights<P>(slot, column, step, b);
#pragma unroll
            for (int i = 0; i < P::TM; i++) {
                float4 v = *(const float4 *)(slot + P::in_at(row, step) + i * P::DOWN * LINE);
                const float a[QUAD] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (int e = 0; e < QUAD; e++)
#pragma unroll
                    for (int j = 0; j < P::TN; j++)
                        acc[i][j] = __fmaf_rn(a[e], b[e][j], acc[i][j]);
            }
        }
}

static __device__ __forceinline__ float4 masked(float4 v, float4 mask)
{
    return make_float4(lk__cuda_relu_grad1(mask.x, v.x), lk__cuda_relu_grad1(mask.y, v.y),
                       lk__cuda_relu_grad1(mask.z, v.z), lk__cuda_relu_grad1(mask.w, v.w));
}

/* What happens to a sum before it is written; pointers may be NULL. */
typedef struct conv_end {
    const float *b;    // (columns)
    const float *mask; // as the result, which becomes 0 where the mask is not above 0
    bool relu;
} conv_end;

/* Writes the sums of columns of a pixel; `pixel` is its first element. */
template <class P>
static __device__ __forceinline__ void write_four(const conv_class &s, float4 v, const conv_end &end, size_t pixel,
                                                  int column, float *out)
{
    if constexpr (P::WHOLE) {
        if (end.b)
            v = lk__cuda_add4(v, lk__cuda_get4(end.b + column));
        if (end.mask)
            v = masked(v, lk__cuda_get4(end.mask + pixel + column));
        lk__cuda_put4(out + pixel + column, end.relu ? lk__cuda_relu4(v) : v);
    } else {
        const float values[QUAD] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int e = 0; e < QUAD; e++)
            if (column + e < s.columns) {
                float sum = end.b ? values[e] + lk__cuda_get1(end.b + column + e) : values[e];
                if (end.mask)
                    sum = lk__cuda_relu_grad1(lk__cuda_get1(end.mask + pixel + column + e), sum);
                out[pixel + column + e] = end.relu ? lk__cuda_relu1(sum) : sum;
            }
    }
}

template <class P>
static __device__ __forceinline__ void write_tile(const conv_class &s, const float (&acc)[P::TM][P::TN], unsigned m0,
                                                  int n0, const conv_end &end, float *out)
{
#pragma unroll
    for (int i = 0; i < P::TM; i++) {
        unsigned row = m0 + P::first_row() + i * P::DOWN;
        if (row >= s.rows)
            break;
        class_pixel pixel(s, row);
        size_t line = (size_t)pixel.n * s.height + s.h.first + pixel.i * s.h.step;
        size_t to = (line * s.width + s.w.first + pixel.j * s.w.step) * (size_t)s.columns;
#pragma unroll
        for (int j = 0; j < P::TN; j += QUAD) {
            int column = n0 + P::first_column() + j * P::LANES;
            if (column < s.columns)
                write_four<P>(s, make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]), end, to, column,
                              out);
        }
    }
}

/* in: (n, ins of h, ins of w, channels), weights: (k, taps, c), out: (n, height, width, columns). */
template <class P>
static __global__ void __launch_bounds__(P::THREADS, P::BLOCKS)
    convolve(const __grid_constant__ conv_class s, const __grid_constant__ conv_end end, const float *in,
             const float *weights, float *out)
{
    lk__cuda_await_alone();
    extern __shared__ __align__(1024) char memory[];
    source_row *rows = (source_row *)(memory + SLOTS * P::SLOT);
    unsigned tiles = (unsigned)(s.columns + P::N - 1) / P::N, m0 = blockIdx.x / tiles * P::M;
    int n0 = (int)(blockIdx.x % tiles) * P::N;
    float acc[P::TM][P::TN];
#pragma unroll
    for (int i = 0; i < P::TM; i++)
#pragma unroll
        for (int j = 0; j < P::TN; j++)
            acc[i][j] = 0.0f;
    share_rows<P>(s, m0, rows);
    __syncthreads();
    uint32_t at = shared_at(memory);
    int slot = 0;
    if (s.depth > 0)
        copy_chunk<P>(s, in, weights, rows, n0, 0, at);
#pragma unroll 1
    for (int first = 0; first < s.depth; first += CHUNK) {
        copies_wait<0>();
        __syncthreads();
        if (first + CHUNK < s.depth)
            copy_chunk<P>(s, in, weights, rows, n0, first + CHUNK, at + (uint32_t)(P::SLOT - slot));
        add_chunk<P>(acc, memory + slot, min(CHUNK, s.depth - first));
        slot = P::SLOT - slot;
    }
    write_tile<P>(s, acc, m0, n0, end, out);
}

static conv_axis forward_axis(const lk_cuda_window *window, int ins, int outs)
{
    conv_axis axis = {};
    axis.step = 1;
    axis.outs = outs;
    axis.taps = window->kernel;
    axis.tap_step = 1;
    axis.in_first = -window->pad;
    axis.in_stride = window->stride;
    axis.in_step = window->dilation;
    axis.ins = ins;
    return axis;
}

static int common_divisor(int a, int b)
{
    while (b) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Pixels of dx whose coordinates have this remainder. Tap r of pixel (in + pad - r * dilation) / stride of y reads
 * pixel `in` of x, if that is whole. The first such r is below tap_step, or there is none. */
static conv_axis class_axis(const lk_cuda_window *window, int ins, int outs, int remainder)
{
    int common = common_divisor(window->stride, window->dilation), moved = remainder + window->pad;
    conv_axis axis = {};
    axis.first = remainder;
    axis.step = window->stride;
    axis.outs = (outs - remainder + window->stride - 1) / window->stride;
    axis.tap_step = window->stride / common;
    while (axis.tap < axis.tap_step && (moved - axis.tap * window->dilation) % window->stride != 0)
        axis.tap++;
    if (axis.tap < axis.tap_step && axis.tap < window->kernel)
        axis.taps = (window->kernel - axis.tap + axis.tap_step - 1) / axis.tap_step;
    axis.in_first = (moved - axis.tap * window->dilation) / window->stride;
    axis.in_stride = 1;
    axis.in_step = -window->dilation / common;
    axis.ins = ins;
    return axis;
}

/* The class with these axes, of this many samples. */
static conv_class class_of(const lk_cuda_problem *problem, conv_axis h, conv_axis w, int samples)
{
    bool forward = problem->pass == LK_CUDA_PASS_FORWARD;
    int channels = forward ? problem->x_pitch : problem->y_pitch;
    conv_class s = {};
    s.h = h;
    s.w = w;
    s.rows = (unsigned)samples * (unsigned)h.outs * (unsigned)w.outs;
    s.height = forward ? problem->p : problem->h;
    s.width = forward ? problem->q : problem->w;
    s.columns = forward ? problem->y_pitch : problem->x_pitch;
    s.depth = h.taps * w.taps * channels;
    s.kernel_w = problem->along_w.kernel;
    s.taps = problem->along_h.kernel * problem->along_w.kernel;
    s.channels = divisor_of((unsigned)channels);
    s.row_taps = divisor_of(w.taps > 0 ? (unsigned)w.taps : 1);
    s.row = divisor_of((unsigned)w.outs);
    s.image = divisor_of((unsigned)h.outs * (unsigned)w.outs);
    return s;
}

/* The arguments of a launch. */
typedef struct conv_call {
    lk_device *dev;
    cudaStream_t stream;
    const float *in, *weights;
    conv_end end;
    float *out;
} conv_call;

template <class P>
static void launch(const conv_class *s, const conv_call *call)
{
    unsigned blocks = lk__cuda_parts(s->rows, P::M) * lk__cuda_parts((size_t)s->columns, P::N);
    (void)lk__cuda_keep(call->dev,
                        cudaFuncSetAttribute(convolve<P>, cudaFuncAttributeMaxDynamicSharedMemorySize, P::BYTES),
                        "convolution in fp32");
    lk__cuda_follow({blocks, P::THREADS, P::BYTES, call->stream, !P::FORWARD}, convolve<P>, *s, call->end, call->in,
                    call->weights, call->out);
    lk__cuda_launched(call->dev, "convolution in fp32");
}

/* A size of tiles. */
typedef struct conv_size {
    int m, n;
    int sums;    /* of a thread */
    double rate; /* the part of the multiprocessor's products that full tiles reach */
    void (*launch[2][2])(const conv_class *s, const conv_call *call); /* input gradient, forward; pitches: any, whole */
} conv_size;

#define LAUNCH(m, n, tm, tn, lanes, forward)                                                                          \
    {                                                                                                                 \
        launch<conv_tile<m, n, tm, tn, lanes, forward, false>>, launch<conv_tile<m, n, tm, tn, lanes, forward, true>> \
    }
#define SIZE(m, n, tm, tn, lanes, rate)                                           \
    {                                                                             \
        m, n, tm *tn, rate,                                                       \
        {                                                                         \
            LAUNCH(m, n, tm, tn, lanes, false), LAUNCH(m, n, tm, tn, lanes, true) \
        }                                                                         \
    }
static const conv_size sizes[] = {
    SIZE(128, 64, 8, 8, 8, 1.0), SIZE(256, 32, 8, 8, 4, 0.9), SIZE(128, 32, 8, 8, 4, 0.85),
    SIZE(64, 64, 8, 8, 8, 0.9),  SIZE(32, 32, 4, 4, 8, 0.6),
};
#undef SIZE
#undef LAUNCH

/* Cycles for a step of the sums: those of a multiprocessor for its blocks, or those of a single block, whose warps wait
 * for memory half as long again as they compute. */
static double cycles_of(const conv_size *size, const conv_class *s)
{
    size_t blocks =
        (size_t)lk__cuda_parts(s->rows, (size_t)size->m) * lk__cuda_parts((size_t)s->columns, (size_t)size->n);
    double all = (double)lk__cuda_parts(blocks, MULTIPROCESSORS) * size->m * size->n / (128 * size->rate);
    double alone = 1.5 * size->sums;
    return all > alone ? all : alone;
}

static void run_class(const lk_cuda_problem *problem, const conv_class *s, const conv_call *call)
{
    const conv_size *best = &sizes[0];
    bool forward = problem->pass == LK_CUDA_PASS_FORWARD;
    bool whole = problem->x_pitch % QUAD == 0 && problem->y_pitch % QUAD == 0;
    if (s->rows == 0)
        return;
    for (const conv_size *size = sizes; size < sizes + sizeof sizes / sizeof *sizes; size++)
        if (cycles_of(size, s) < cycles_of(best, s))
            best = size;
    best->launch[forward][whole](s, call);
}

static void run_samples(const lk_cuda_problem *problem, int samples, const conv_call *call)
{
    const lk_cuda_window *h = &problem->along_h, *w = &problem->along_w;
    if (problem->pass == LK_CUDA_PASS_FORWARD) {
        conv_class all = class_of(problem, forward_axis(h, problem->h, problem->p),
                                  forward_axis(w, problem->w, problem->q), samples);
        run_class(problem, &all, call);
        return;
    }
    for (int i = 0; i < h->stride && i < problem->h; i++)
        for (int j = 0; j < w->stride && j < problem->w; j++) {
            conv_class some = class_of(problem, class_axis(h, problem->p, problem->h, i),
                                       class_axis(w, problem->q, problem->w, j), samples);
            run_class(problem, &some, call);
        }
}

static bool is_short(const lk_cuda_window *window, int x, int y)
{
    return x <= MOST_SIDE && y <= MOST_SIDE && window->pad <= MOST_SIDE && window->stride <= MOST_SIDE &&
           window->kernel <= MOST_SIDE / window->dilation;
}

bool lk__cuda_fp32_suits(const lk_cuda_problem *problem)
{
    return problem->values == LK_DTYPE_F32 && problem->precision == LK_PRECISION_FP32 && problem->groups == 1 &&
           is_short(&problem->along_h, problem->h, problem->p) && is_short(&problem->along_w, problem->w, problem->q);
}

void lk__cuda_fp32(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    bool forward = problem->pass == LK_CUDA_PASS_FORWARD;
    size_t x = (size_t)problem->h * (size_t)problem->w, y = (size_t)problem->p * (size_t)problem->q;
    size_t in = (forward ? x : y) * (size_t)(forward ? problem->x_pitch : problem->y_pitch);
    size_t out = (forward ? y : x) * (size_t)(forward ? problem->y_pitch : problem->x_pitch);
    int most = MOST_PIXELS / (int)(x > y ? x : y);
    conv_call call = {};
    call.dev = io->dev;
    call.stream = io->stream;
    call.weights = (const float *)io->w;
    call.end.b = (const float *)io->b;
    call.end.relu = problem->relu;
    for (int first = 0; first < problem->n; first += most) {
        call.in = (const float *)(forward ? io->x : io->dy) + (size_t)first * in;
        call.out = (float *)(forward ? io->y : io->dx) + (size_t)first * out;
        call.end.mask = io->mask ? (const float *)io->mask + (size_t)first * out : NULL;
        run_samples(problem, problem->n - first < most ? problem->n - first : most, &call);
    }
}
