/* conv2d_first.cu - the first convolution of a model for small images: few input channels, 3x3, stride 1; forward
 * passes in fp32 only (conv2d_stem.cu has the others). It is bound by memory (y, dy); cuDNN takes several times as
 * long.
 *
 * A strip is four neighbouring pixels of a row of y. Forward: a thread computes one strip of four channels,
 * with the weights in shared memory as (tap, c, k). Weight gradient: a thread processes strips of V channels
 * with V * (9 C + 1) sums in registers; the sums of a block's lanes are added in order. A block computes a part of a
 * leaf (leaves.h). */
#include "tensor/cuda/kernels/conv2d.h"
#include "tensor/cuda/kernels/leaf_part.cuh"
#include "tensor/cuda/kernels/strips.cuh"
#include "tensor/cuda/kernels/vec4.cuh"
#include "tensor/cuda/kernels/weights.h"

enum { FORWARD_THREADS = 256, WEIGHT_THREADS = 128, STRIP = 4, TAPS = 9, STRIPS_A_LANE = 4, FULL = 528 };

typedef struct first_shape {
    int h, w, p, q, pad_h, pad_w, x_pitch, y_pitch, strips_a_row;
    unsigned strips;
} first_shape;

static first_shape shape_of(const lk_cuda_problem *problem)
{
    first_shape s;
    s.h = problem->h;
    s.w = problem->w;
    s.p = problem->p;
    s.q = problem->q;
    s.pad_h = problem->along_h.pad;
    s.pad_w = problem->along_w.pad;
    s.x_pitch = problem->x_pitch;
    s.y_pitch = problem->y_pitch;
    s.strips_a_row = (s.q + STRIP - 1) / STRIP;
    s.strips = (unsigned)problem->n * (unsigned)s.p * (unsigned)s.strips_a_row;
    return s;
}

/* The six values of channel c that tap row r of a strip reads. */
template <class T>
static __device__ __forceinline__ void load_row(const first_shape &s, const T *x, strip_position at, int r, int c,
                                                float v[STRIP + 2])
{
    int h = at.p + r - s.pad_h;
    bool inside = h >= 0 && h < s.h;
    const T *row = x + ((size_t)at.n * s.h + (inside ? h : 0)) * (size_t)s.w * s.x_pitch + c;
#pragma unroll
    for (int j = 0; j < STRIP + 2; j++) {
        int w = at.q + j - s.pad_w;
        v[j] = inside && w >= 0 && w < s.w ? lk__cuda_get1(row + w * s.x_pitch) : 0.0f;
    }
}

/* Copies the weights from (k, tap, c) to (tap, c, k). */
template <int C>
static __device__ __forceinline__ void share_weights(const first_shape &s, const float *w, float *shared)
{
    for (int i = (int)threadIdx.x; i < TAPS * C * s.y_pitch; i += FORWARD_THREADS) {
        int k = i % s.y_pitch, tap_c = i / s.y_pitch;
        shared[i] = lk__cuda_get1(w + ((size_t)k * TAPS + tap_c / C) * s.x_pitch + tap_c % C);
    }
    __syncthreads();
}

template <int C>
static __global__ void __launch_bounds__(FORWARD_THREADS)
    first_forward(first_shape s, const float *x, const float *w, const float *b, bool relu, float *y)
{
    lk__cuda_await_alone();
    extern __shared__ float4 weights[]; // (tap, c, k / 4)
    share_weights<C>(s, w, (float *)weights);
    unsigned quads = (unsigned)s.y_pitch / 4, id = blockIdx.x * FORWARD_THREADS + threadIdx.x;
    unsigned strip = id / quads, quad = id - strip * quads;
    if (strip >= s.strips)
        return;
    strip_position at = strip_at<STRIP>(s, strip);
    float4 acc[STRIP];
#pragma unroll
    for (int j = 0; j < STRIP; j++)
        acc[j] = lk__cuda_zero4();
#pragma unroll
    for (int r = 0; r < 3; r++)
#pragma unroll
        for (int c = 0; c < C; c++) {
            float v[STRIP + 2];
            load_row(s, x, at, r, c, v);
#pragma unroll
            for (int t = 0; t < 3; t++) {
                float4 f = weights[((r * 3 + t) * C + c) * (int)quads + (int)quad];
#pragma unroll
                for (int j = 0; j < STRIP; j++)
                    lk__cuda_fma4(acc[j], v[j + t], f);
            }
        }
    float4 bias = b ? lk__cuda_get4(b + 4 * quad) : lk__cuda_zero4();
    float *out = y + (((size_t)at.n * s.p + at.p) * s.q + at.q) * (size_t)s.y_pitch + 4 * quad;
#pragma unroll
    for (int j = 0; j < STRIP; j++)
        if (at.q + j < s.q) {
            float4 v = lk__cuda_add4(acc[j], bias);
            lk__cuda_put4(out + (size_t)j * s.y_pitch, relu ? lk__cuda_relu4(v) : v);
        }
}

/* V channels of dy for each pixel of a strip; 0 beyond the end of the row. */
template <int V, class T>
static __device__ __forceinline__ void load_strip(const first_shape &s, const T *dy, strip_position at, int channel,
                                                  float d[STRIP][V])
{
    const T *row = dy + (((size_t)at.n * s.p + at.p) * s.q + at.q) * (size_t)s.y_pitch + channel;
#pragma unroll
    for (int j = 0; j < STRIP; j++) {
        bool inside = at.q + j < s.q;
        if constexpr (V == 4) {
            float4 f = inside ? lk__cuda_get4(row + (size_t)j * s.y_pitch) : lk__cuda_zero4();
            d[j][0] = f.x, d[j][1] = f.y, d[j][2] = f.z, d[j][3] = f.w;
        } else {
            float2 f = inside ? lk__cuda_get2(row + (size_t)j * s.y_pitch) : make_float2(0, 0);
            d[j][0] = f.x, d[j][1] = f.y;
        }
    }
}

/* Adds a strip to the sums of V channels: those of each (tap, c), then that of dy itself. */
template <class T, int C, int V>
static __device__ __forceinline__ void add_strip(const first_shape &s, const T *x, const T *dy, strip_position at,
                                                 int channel, float acc[V][TAPS * C + 1])
{
    float d[STRIP][V];
    load_strip<V>(s, dy, at, channel, d);
#pragma unroll
    for (int j = 0; j < STRIP; j++)
#pragma unroll
        for (int v = 0; v < V; v++)
            acc[v][TAPS * C] += d[j][v];
#pragma unroll
    for (int r = 0; r < 3; r++)
#pragma unroll
        for (int c = 0; c < C; c++) {
            float u[STRIP + 2];
            load_row(s, x, at, r, c, u);
#pragma unroll
            for (int k = 0; k < 3; k++)
#pragma unroll
                for (int v = 0; v < V; v++)
#pragma unroll
                    for (int j = 0; j < STRIP; j++)
                        acc[v][(r * 3 + k) * C + c] = __fmaf_rn(d[j][v], u[j + k], acc[v][(r * 3 + k) * C + c]);
        }
}

/* Writes the block's sums over its lanes, in the order of the weights, then those of the bias. */
template <int C, int V>
static __device__ __forceinline__ void write_sums(const first_shape &s, const float *sums, int row, float *out)
{
    int wide = s.y_pitch / V, lanes = WEIGHT_THREADS / wide;
    int weights = s.y_pitch * TAPS * s.x_pitch, width = weights + s.y_pitch;
    for (int i = (int)threadIdx.x; i < width; i += WEIGHT_THREADS) {
        int k = i - weights, at = TAPS * C;
        bool used = true;
        if (i < weights) {
            int tap = i / s.x_pitch, c = i - tap * s.x_pitch;
            k = tap / TAPS;
            at = (tap - k * TAPS) * C + c;
            used = c < C;
        }
        float sum = 0.0f;
        if (used)
            for (int l = 0; l < lanes; l++)
                sum += sums[(l * wide + k / V) * row + k % V * (TAPS * C + 1) + at];
        out[i] = sum;
    }
}

template <class T, int C, int V>
static __global__ void __launch_bounds__(WEIGHT_THREADS)
    first_grad_weight(first_shape s, const __grid_constant__ lk_cuda_leaves leaves, const T *x, const T *dy,
                      float *parts)
{
    lk__cuda_await_alone();
    enum { SUMS = TAPS * C + 1, ROW = V * SUMS | 1 };
    __shared__ float sums[WEIGHT_THREADS * ROW];
    int wide = s.y_pitch / V, lanes = WEIGHT_THREADS / wide;
    int t = (int)threadIdx.x % wide, lane = (int)threadIdx.x / wide;
    float acc[V][SUMS];
#pragma unroll
    for (int v = 0; v < V; v++)
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            acc[v][i] = 0.0f;
    leaf_part part = part_of(leaves, blockIdx.x, (uint32_t)lanes);
    for (unsigned strip = part.begin + (unsigned)lane; lane < lanes && strip < part.end; strip += (unsigned)lanes)
        add_strip<T, C, V>(s, x, dy, strip_at<STRIP>(s, strip), V * t, acc);
#pragma unroll
    for (int v = 0; v < V; v++)
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            sums[(int)threadIdx.x * ROW + v * SUMS + i] = acc[v][i];
    __syncthreads();
    size_t width = (size_t)s.y_pitch * (size_t)(TAPS * s.x_pitch + 1);
    write_sums<C, V>(s, sums, ROW, parts + (size_t)blockIdx.x * width);
}

/* Channels of a thread of first_grad_weight: as many as fit into registers. */
static constexpr int channels_a_thread(int c)
{
    return c == 1 ? 4 : 2;
}

static int lanes_of(const lk_cuda_problem *problem)
{
    return WEIGHT_THREADS / (problem->y_pitch / channels_a_thread(problem->c));
}

static bool suits(const lk_cuda_problem *problem, size_t most)
{
    (void)most;
    return problem->pass != LK_CUDA_PASS_GRAD_INPUT && problem->c <= 4 && lk__cuda_is_3x3(problem, 1) &&
           problem->groups == 1 && problem->y_pitch <= 256 && problem->y_pitch % 8 == 0;
}

static lk_cuda_cut cut_of(const lk_cuda_problem *problem, size_t most)
{
    first_shape s = shape_of(problem);
    lk_cuda_cut cut = {};
    (void)most;
    cut.rows = (size_t)s.p * (size_t)s.strips_a_row;
    cut.chunk = (size_t)lanes_of(problem);
    cut.least = STRIPS_A_LANE;
    cut.tiles = 1;
    cut.full = FULL;
    cut.weights = (size_t)s.y_pitch * TAPS * (size_t)s.x_pitch;
    cut.bias = (size_t)s.y_pitch;
    return cut;
}

template <int C>
static void forward(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    first_shape s = shape_of(problem);
    size_t bytes = sizeof(float) * TAPS * C * (size_t)s.y_pitch;
    unsigned blocks = lk__cuda_parts((size_t)s.strips * (size_t)(s.y_pitch / 4), FORWARD_THREADS);
    lk__cuda_follow({blocks, FORWARD_THREADS, bytes, io->stream}, first_forward<C>, s, (const float *)io->x,
                    (const float *)io->w, (const float *)io->b, problem->relu, (float *)io->y);
    lk__cuda_launched(io->dev, "convolution of few channels");
}

template <class T, int C>
static void grad_weight(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, float *out)
{
    unsigned blocks = (unsigned)(leaves->groups * leaves->parts);
    lk__cuda_follow({blocks, WEIGHT_THREADS, 0, io->stream}, first_grad_weight<T, C, channels_a_thread(C)>,
                    shape_of(problem), *leaves, (const T *)io->x, (const T *)io->dy, out);
    lk__cuda_launched(io->dev, "gradient of the weights of few channels");
}

template <class T>
static void by_channels(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, float *out)
{
    switch (problem->c) {
    case 1:
        return grad_weight<T, 1>(problem, io, leaves, out);
    case 2:
        return grad_weight<T, 2>(problem, io, leaves, out);
    case 3:
        return grad_weight<T, 3>(problem, io, leaves, out);
    default:
        return grad_weight<T, 4>(problem, io, leaves, out);
    }
}

static void launch_leaves(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                          size_t most, float *out)
{
    (void)most;
    if (problem->values == LK_DTYPE_F32)
        by_channels<float>(problem, io, leaves, out);
    else
        by_channels<lk_bf16>(problem, io, leaves, out);
}

const lk_cuda_leaf_kernel lk__cuda_weights_first = {"few input channels", suits, cut_of, launch_leaves, NULL};

void lk__cuda_first(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    static void (*const by_c[])(const lk_cuda_problem *, const lk_cuda_io *) = {forward<1>, forward<2>, forward<3>,
                                                                                forward<4>};
    by_c[problem->c - 1](problem, io);
}
