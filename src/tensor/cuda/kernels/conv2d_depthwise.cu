/* conv2d_depthwise.cu - 3x3 convolutions where each channel has its own kernel, stride 1 or 2. They are bound by
 * memory. At stride 1 the gradient of the input is the forward pass with reversed taps.
 *
 * A thread computes four channels of a march: a strip of four pixels in each of several neighbouring rows, from top to
 * bottom. It reads each row of the input once and adds it to all sums that need it, so the sums of up to three rows of
 * the output are in registers. Weights are (k, 3, 3), so the 36 of a thread are neighbours. The order of an output's
 * sum does not depend on how rows are divided among marches. */
#include "tensor/cuda/kernels/conv2d.h"
#include "tensor/cuda/kernels/leaf_part.cuh"
#include "tensor/cuda/kernels/vec4.cuh"
#include "tensor/cuda/kernels/weights.h"

enum {
    THREADS = 128,
    BLOCKS_AT_ONCE = 4, /* on a multiprocessor, so a thread has 128 registers */
    STRIP = 4,
    TAPS = 9,
    SUMS = 4 * (TAPS + 1),
    ROW = SUMS + 1,
    FILL = 1 << 17,     /* threads that fill a large GPU twice */
    LEAST_ROWS = 4,     /* of a march, because it reads one or two more */
    WEIGHT_ROWS = 14,   /* of a march of a weight gradient; half as many in small images, which have few marches */
    WEIGHT_BLOCKS = 528 /* that fill a large GPU: four for each multiprocessor */
};

/* x is (n, h, w, pitch), y (n, p, q, pitch). Marches are numbered by (sample, piece of the rows, strip). */
typedef struct depthwise_shape {
    int h, w, p, q, pad_h, pad_w, pitch;
    int height; /* rows of all marches of a strip: of y, or pairs of rows of dx */
    int rows;   /* of a march, at most */
    unsigned strips, pieces, marches;
} depthwise_shape;

/* turned: the shape of the forward pass from dy to dx. The marches are not set. */
static depthwise_shape shape_of(const lk_cuda_problem *problem, bool turned)
{
    depthwise_shape s = {};
    s.h = turned ? problem->p : problem->h;
    s.w = turned ? problem->q : problem->w;
    s.p = turned ? problem->h : problem->p;
    s.q = turned ? problem->w : problem->q;
    s.pad_h = turned ? 2 - problem->along_h.pad : problem->along_h.pad;
    s.pad_w = turned ? 2 - problem->along_w.pad : problem->along_w.pad;
    s.pitch = problem->x_pitch;
    return s;
}

/* Divides each of n samples, height by width, into marches of at most `rows` rows. */
static void set_marches(depthwise_shape *s, int n, int height, int width, int rows)
{
    unsigned pieces = lk__cuda_parts((size_t)height, (size_t)rows);
    s->height = height;
    s->rows = (int)lk__cuda_parts((size_t)height, pieces);
    s->strips = lk__cuda_parts((size_t)width, STRIP);
    s->pieces = lk__cuda_parts((size_t)height, (size_t)s->rows);
    s->marches = (unsigned)n * s->pieces * s->strips;
}

/* As set_marches; marches are as long as possible while their threads fill the GPU. */
static void fill_marches(depthwise_shape *s, int n, int height, int width)
{
    size_t threads = (size_t)n * lk__cuda_parts((size_t)width, STRIP) * (size_t)(s->pitch / 4);
    int rows = (int)((size_t)height / lk__cuda_parts(FILL, threads));
    set_marches(s, n, height, width, rows > LEAST_ROWS ? rows : LEAST_ROWS);
}

static unsigned blocks_of(const depthwise_shape &s)
{
    return lk__cuda_parts((size_t)s.marches * (size_t)(s.pitch / 4), THREADS);
}

/* The march of a thread. p and q are its first row and its first column. */
typedef struct march {
    int n, p, q, rows;
} march;

static __device__ __forceinline__ march march_at(const depthwise_shape &s, unsigned index)
{
    march m;
    unsigned column = index / s.strips, n = column / s.pieces;
    m.n = (int)n;
    m.p = (int)(column - n * s.pieces) * s.rows;
    m.q = (int)(index - column * s.strips) * STRIP;
    m.rows = min(s.rows, s.height - m.p);
    return m;
}

/* Bit j: column + j is in a row of `width` pixels. */
template <int COUNT>
static __device__ __forceinline__ unsigned inside_of(int column, int width)
{
    unsigned inside = 0;
#pragma unroll
    for (int j = 0; j < COUNT; j++)
        inside |= column + j >= 0 && column + j < width ? 1u << j : 0u;
    return inside;
}

/* COUNT neighbouring pixels of the rows of an image, from a column on. */
template <class T, int COUNT>
struct row_reader {
    const T *first; /* the pixel of row 0, maybe outside of the image: the thread's channels */
    int down, right;
    unsigned inside;

    /* Sample n of images, each `height` by `width` pixels. */
    __device__ __forceinline__ row_reader(const T *images, size_t n, int height, int width, int pitch, int column)
        : first(images + ((ptrdiff_t)(n * (size_t)height * (size_t)width) + column) * pitch), down(width * pitch),
          right(pitch), inside(inside_of<COUNT>(column, width))
    {
    }

    /* Pixels outside of the image are 0. Rows from `end` on are outside. */
    __device__ __forceinline__ void read(int row, int end, float4 v[COUNT]) const
    {
        unsigned here = row >= 0 && row < end ? inside : 0;
        const T *from = first + (ptrdiff_t)row * down;
#pragma unroll
        for (int j = 0; j < COUNT; j++)
            v[j] = here >> j & 1 ? lk__cuda_get4(from + j * right) : lk__cuda_zero4();
    }
};

template <class T>
static __device__ __forceinline__ void load_weights(const T *w, int channel, float f[4 * TAPS])
{
#pragma unroll
    for (int i = 0; i < TAPS; i++) {
        float4 v = lk__cuda_get4(w + (size_t)channel * TAPS + 4 * i);
        f[4 * i] = v.x, f[4 * i + 1] = v.y, f[4 * i + 2] = v.z, f[4 * i + 3] = v.w;
    }
}

static __device__ __forceinline__ float4 tap_of(const float f[4 * TAPS], int tap)
{
    return make_float4(f[tap], f[TAPS + tap], f[2 * TAPS + tap], f[3 * TAPS + tap]);
}

/* Adds a row of x to the sums of a row of y, whose tap row r reads it. */
template <int STRIDE, bool TURNED>
static __device__ __forceinline__ void add_row(float4 acc[STRIP], const float4 v[STRIDE * (STRIP - 1) + 3],
                                               const float f[4 * TAPS], int r)
{
#pragma unroll
    for (int t = 0; t < 3; t++)
#pragma unroll
        for (int j = 0; j < STRIP; j++)
            lk__cuda_fma4(acc[j], v[STRIDE * j + t], tap_of(f, TURNED ? 8 - r * 3 - t : r * 3 + t));
}

template <class T>
static __device__ __forceinline__ void write_row(const depthwise_shape &s, const march &m, int p, int channel,
                                                 const float4 acc[STRIP], float4 bias, bool relu, T *y)
{
    T *out = y + (((size_t)m.n * s.p + p) * s.q + m.q) * (size_t)s.pitch + channel;
#pragma unroll
    for (int j = 0; j < STRIP; j++)
        if (m.q + j < s.q) {
            float4 v = lk__cuda_add4(acc[j], bias);
            lk__cuda_put4(out + (size_t)j * s.pitch, relu ? lk__cuda_relu4(v) : v);
        }
}

/* Step i of a march reads row STRIDE * (p + i) of x, where p is the march's first row, and at stride 2 the next row.
 * HELD rows of y need the first one: acc[HELD - 1] is row p + i. After it acc[0] is complete. */
template <class T, int STRIDE, bool TURNED>
static __global__ void __launch_bounds__(THREADS, BLOCKS_AT_ONCE)
    depthwise_forward(depthwise_shape s, const T *x, const T *w, const T *b, bool relu, T *y)
{
    lk__cuda_await();
    enum { HELD = 4 - STRIDE, COUNT = STRIDE * (STRIP - 1) + 3 };
    unsigned quads = (unsigned)s.pitch / 4, id = blockIdx.x * THREADS + threadIdx.x, index = id / quads;
    int channel = (int)(id - index * quads) * 4;
    if (index >= s.marches)
        return;
    march m = march_at(s, index);
    row_reader<T, COUNT> rows(x + channel, (size_t)m.n, s.h, s.w, s.pitch, m.q * STRIDE - s.pad_w);
    float f[4 * TAPS];
    load_weights(w, channel, f);
    float4 bias = b ? lk__cuda_get4(b + channel) : lk__cuda_zero4(), acc[HELD][STRIP] = {}, v[COUNT];
    for (int i = 0; i < m.rows + HELD - 1; i++) {
        int row = STRIDE * (m.p + i) - s.pad_h;
        rows.read(row, s.h, v);
#pragma unroll
        for (int k = 0; k < HELD; k++)
            add_row<STRIDE, TURNED>(acc[k], v, f, STRIDE * (HELD - 1 - k));
        if (i >= HELD - 1)
            write_row(s, m, m.p + i - (HELD - 1), channel, acc[0], bias, relu, y);
        if (STRIDE == 2 && i < m.rows) {
            rows.read(row + 1, s.h, v);
            add_row<STRIDE, TURNED>(acc[HELD - 1], v, f, 1);
        }
#pragma unroll
        for (int k = 0; k < HELD; k++)
#pragma unroll
            for (int j = 0; j < STRIP; j++)
                acc[k][j] = k + 1 < HELD ? acc[k + 1][j] : lk__cuda_zero4();
    }
}

/* Pixels (0, 0) to (1, 1) of a square of dx that begins at even places of the padded x: an even row or column is read
 * by taps 0 and 2 of dy's pixels, an odd one by tap 1. v[1] is dy's pixel for tap (0, 0), held[1] the one above it;
 * v[0] and held[0] are those on the left. */
static __device__ __forceinline__ void square_of(const float4 *held, const float4 *v, const float f[4 * TAPS],
                                                 float4 sums[2][2])
{
    lk__cuda_fma4(sums[0][0], v[1], tap_of(f, 0));
    lk__cuda_fma4(sums[0][0], v[0], tap_of(f, 2));
    lk__cuda_fma4(sums[0][0], held[1], tap_of(f, 6));
    lk__cuda_fma4(sums[0][0], held[0], tap_of(f, 8));
    lk__cuda_fma4(sums[0][1], v[1], tap_of(f, 1));
    lk__cuda_fma4(sums[0][1], held[1], tap_of(f, 7));
    lk__cuda_fma4(sums[1][0], v[1], tap_of(f, 3));
    lk__cuda_fma4(sums[1][0], v[0], tap_of(f, 5));
    lk__cuda_fma4(sums[1][1], v[1], tap_of(f, 4));
}

/* Squares in a row of dx: their first pixel, which may be outside of the image, and which pixels are in it. */
template <class T>
struct square_row {
    T *out;
    ptrdiff_t down, right; /* elements from a pixel to the one below, and to the next */
    bool rows[2];
    unsigned columns; /* bit i: column i of the strip */

    __device__ __forceinline__ void write(int square, const float4 sums[2][2]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int column = 2 * square + i % 2;
            if (rows[i / 2] && columns >> column & 1)
                lk__cuda_put4(out + (i / 2 * down + column * right), sums[i / 2][i % 2]);
        }
    }
};

/* The gradient of the input at stride 2. A march computes a strip of squares in each of its rows. */
template <class T>
static __global__ void __launch_bounds__(THREADS, BLOCKS_AT_ONCE)
    depthwise_squares(depthwise_shape s, const T *dy, const T *w, T *dx)
{
    lk__cuda_await();
    unsigned quads = (unsigned)s.pitch / 4, id = blockIdx.x * THREADS + threadIdx.x, index = id / quads;
    int channel = (int)(id - index * quads) * 4;
    if (index >= s.marches)
        return;
    march m = march_at(s, index);
    int h = 2 * m.p - s.pad_h, column = 2 * m.q - s.pad_w;
    row_reader<T, STRIP + 1> rows(dy + channel, (size_t)m.n, s.p, s.q, s.pitch, m.q - 1);
    square_row<T> to;
    to.right = s.pitch;
    to.down = (ptrdiff_t)s.w * s.pitch;
    to.out = dx + (((ptrdiff_t)m.n * s.h + h) * to.down + column * to.right + channel);
    to.columns = inside_of<2 * STRIP>(column, s.w);
    float f[4 * TAPS];
    load_weights(w, channel, f);
    float4 held[STRIP + 1], v[STRIP + 1];
    rows.read(m.p - 1, s.p, held);
    for (int i = 0; i < m.rows; i++, h += 2, to.out += 2 * to.down) {
        rows.read(m.p + i, s.p, v);
        to.rows[0] = h >= 0;
        to.rows[1] = h + 1 < s.h;
#pragma unroll
        for (int j = 0; j < STRIP; j++) {
            float4 sums[2][2] = {};
            square_of(held + j, v + j, f, sums);
            to.write(j, sums);
        }
#pragma unroll
        for (int j = 0; j <= STRIP; j++)
            held[j] = v[j];
    }
}

/* Adds a row of x to the sums of four channels: those of tap row r, for the row of dy that reads it by these taps. */
template <int STRIDE>
static __device__ __forceinline__ void add_products(float4 acc[TAPS + 1], const float4 d[STRIP],
                                                    const float4 v[STRIDE * (STRIP - 1) + 3], int r)
{
#pragma unroll
    for (int t = 0; t < 3; t++)
#pragma unroll
        for (int j = 0; j < STRIP; j++)
            lk__cuda_fma4(acc[r * 3 + t], d[j], v[STRIDE * j + t]);
}

/* Adds a march to the sums of four channels: those of each tap, then that of dy itself. Steps are as in
 * depthwise_forward: d[HELD - 1] is row p + i of dy, and 0 outside of the march. */
template <class T, int STRIDE>
static __device__ __forceinline__ void add_march(const depthwise_shape &s, const T *x, const T *dy, const march &m,
                                                 int channel, float4 acc[TAPS + 1])
{
    enum { HELD = 4 - STRIDE, COUNT = STRIDE * (STRIP - 1) + 3 };
    row_reader<T, COUNT> x_rows(x + channel, (size_t)m.n, s.h, s.w, s.pitch, m.q * STRIDE - s.pad_w);
    row_reader<T, STRIP> dy_rows(dy + channel, (size_t)m.n, s.p, s.q, s.pitch, m.q);
    float4 d[HELD][STRIP] = {}, v[COUNT];
    for (int i = 0; i < m.rows + HELD - 1; i++) {
        int row = STRIDE * (m.p + i) - s.pad_h;
        dy_rows.read(m.p + i, m.p + m.rows, d[HELD - 1]);
        x_rows.read(row, s.h, v);
#pragma unroll
        for (int j = 0; j < STRIP; j++)
            acc[TAPS] = lk__cuda_add4(acc[TAPS], d[HELD - 1][j]);
#pragma unroll
        for (int k = 0; k < HELD; k++)
            add_products<STRIDE>(acc, d[k], v, STRIDE * (HELD - 1 - k));
        if (STRIDE == 2 && i < m.rows) {
            x_rows.read(row + 1, s.h, v);
            add_products<STRIDE>(acc, d[HELD - 1], v, 1);
        }
#pragma unroll
        for (int k = 0; k + 1 < HELD; k++)
#pragma unroll
            for (int j = 0; j < STRIP; j++)
                d[k][j] = d[k + 1][j];
    }
}

/* Writes the block's sums over its lanes: those of the weights, (pitch, 9), then those of the bias. */
static __device__ __forceinline__ void write_sums(const depthwise_shape &s, const float *sums, int wide, float *out)
{
    int lanes = THREADS / wide;
    for (int i = (int)threadIdx.x; i < wide * SUMS; i += THREADS) {
        int local = i / (TAPS + 1), tap = i - local * (TAPS + 1), k = (int)blockIdx.x * wide * 4 + local;
        if (k >= s.pitch)
            continue;
        float sum = 0.0f;
        for (int l = 0; l < lanes; l++)
            sum += sums[(l * wide + local / 4) * ROW + local % 4 * (TAPS + 1) + tap];
        out[tap < TAPS ? k * TAPS + tap : s.pitch * TAPS + k] = sum;
    }
}

template <class T, int STRIDE>
static __global__ void __launch_bounds__(THREADS)
    depthwise_grad_weight(depthwise_shape s, int wide, const __grid_constant__ lk_cuda_leaves leaves, const T *x,
                          const T *dy, float *parts)
{
    lk__cuda_await();
    __shared__ float sums[THREADS * ROW];
    int lanes = THREADS / wide, t = (int)threadIdx.x % wide, lane = (int)threadIdx.x / wide;
    int channel = ((int)blockIdx.x * wide + t) * 4;
    float4 acc[TAPS + 1];
#pragma unroll
    for (int i = 0; i <= TAPS; i++)
        acc[i] = lk__cuda_zero4();
    leaf_part part = part_of(leaves, blockIdx.y, (uint32_t)lanes);
    if (lane < lanes && channel < s.pitch)
        for (unsigned index = part.begin + (unsigned)lane; index < part.end; index += (unsigned)lanes)
            add_march<T, STRIDE>(s, x, dy, march_at(s, index), channel, acc);
    float *mine = sums + (int)threadIdx.x * ROW; // (4 channels, 10)
#pragma unroll
    for (int i = 0; i <= TAPS; i++) {
        mine[i] = acc[i].x;
        mine[TAPS + 1 + i] = acc[i].y;
        mine[2 * (TAPS + 1) + i] = acc[i].z;
        mine[3 * (TAPS + 1) + i] = acc[i].w;
    }
    __syncthreads();
    write_sums(s, sums, wide, parts + (size_t)blockIdx.y * (size_t)(s.pitch * (TAPS + 1)));
}

/* Blocks that compute one part of a weight gradient, and the threads of each across channels. */
static unsigned tiles_of(const lk_cuda_problem *problem)
{
    return lk__cuda_parts((size_t)problem->x_pitch / 4, LK_WARP);
}

static int wide_of(const lk_cuda_problem *problem)
{
    return (int)lk__cuda_parts((size_t)problem->x_pitch / 4, tiles_of(problem));
}

static depthwise_shape weight_shape(const lk_cuda_problem *problem)
{
    depthwise_shape s = shape_of(problem, false);
    set_marches(&s, problem->n, s.p, s.q, s.p > 2 * WEIGHT_ROWS ? WEIGHT_ROWS : WEIGHT_ROWS / 2);
    return s;
}

static bool suits(const lk_cuda_problem *problem, size_t most)
{
    (void)most;
    return problem->groups > 1 && problem->groups == problem->c && problem->c == problem->k &&
           problem->x_pitch % 8 == 0 && lk__cuda_is_3x3(problem, 2);
}

static lk_cuda_cut cut_of(const lk_cuda_problem *problem, size_t most)
{
    depthwise_shape s = weight_shape(problem);
    lk_cuda_cut cut = {};
    (void)most;
    cut.rows = (size_t)s.pieces * s.strips;
    cut.chunk = (size_t)(THREADS / wide_of(problem));
    cut.least = 1;
    cut.tiles = tiles_of(problem);
    cut.full = WEIGHT_BLOCKS;
    cut.weights = (size_t)s.pitch * TAPS;
    cut.bias = (size_t)s.pitch;
    return cut;
}

template <class T, int STRIDE>
static void forward(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    depthwise_shape s = shape_of(problem, false);
    fill_marches(&s, problem->n, s.p, s.q);
    lk__cuda_follow({blocks_of(s), THREADS, 0, io->stream}, depthwise_forward<T, STRIDE, false>, s, (const T *)io->x,
                    (const T *)io->w, (const T *)io->b, problem->relu, (T *)io->y);
}

template <class T, int STRIDE>
static void grad_input(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    depthwise_shape s = shape_of(problem, STRIDE == 1);
    const T *dy = (const T *)io->dy, *w = (const T *)io->w;
    if constexpr (STRIDE == 1) {
        fill_marches(&s, problem->n, s.p, s.q);
        lk__cuda_follow({blocks_of(s), THREADS, 0, io->stream}, depthwise_forward<T, 1, true>, s, dy, w,
                        (const T *)NULL, false, (T *)io->dx);
    } else {
        fill_marches(&s, problem->n, (s.h - 1 + s.pad_h) / 2 + 1, (s.w - 1 + s.pad_w) / 2 + 1);
        lk__cuda_follow({blocks_of(s), THREADS, 0, io->stream}, depthwise_squares<T>, s, dy, w, (T *)io->dx);
    }
}

template <class T, int STRIDE>
static void grad_weight(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, float *out)
{
    dim3 blocks(tiles_of(problem), (unsigned)(leaves->groups * leaves->parts));
    lk__cuda_follow({blocks, THREADS, 0, io->stream}, depthwise_grad_weight<T, STRIDE>, weight_shape(problem),
                    wide_of(problem), *leaves, (const T *)io->x, (const T *)io->dy, out);
    lk__cuda_launched(io->dev, "gradient of depthwise weights");
}

template <class T, int STRIDE>
static void run(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    if (problem->pass == LK_CUDA_PASS_FORWARD)
        forward<T, STRIDE>(problem, io);
    else
        grad_input<T, STRIDE>(problem, io);
    lk__cuda_launched(io->dev, "depthwise convolution");
}

void lk__cuda_depthwise(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    if (problem->values == LK_DTYPE_F32)
        problem->along_h.stride == 1 ? run<float, 1>(problem, io) : run<float, 2>(problem, io);
    else
        problem->along_h.stride == 1 ? run<lk_bf16, 1>(problem, io) : run<lk_bf16, 2>(problem, io);
}

static void launch_leaves(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                          size_t most, float *out)
{
    bool one = problem->along_h.stride == 1;
    (void)most;
    if (problem->values == LK_DTYPE_F32)
        (one ? grad_weight<float, 1> : grad_weight<float, 2>)(problem, io, leaves, out);
    else
        (one ? grad_weight<lk_bf16, 1> : grad_weight<lk_bf16, 2>)(problem, io, leaves, out);
}

const lk_cuda_leaf_kernel lk__cuda_weights_depthwise = {"depthwise convolutions", suits, cut_of, launch_leaves, NULL};
