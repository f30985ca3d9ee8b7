/* conv2d_depthwise.cu - 3x3 convolutions where each channel has its own kernel, stride 1 or 2. A thread
 * computes four channels of a strip of four pixels in a row of the output. Weights are (k, 3, 3), so the 36 of
 * a thread are neighbours. At stride 1 the gradient of the input is the forward pass with reversed taps. */
#include "tensor/cuda/kernels/conv2d.h"
#include "tensor/cuda/kernels/leaf_part.cuh"
#include "tensor/cuda/kernels/strips.cuh"
#include "tensor/cuda/kernels/vec4.cuh"
#include "tensor/cuda/kernels/weights.h"

enum {
    WEIGHT_THREADS = 128,
    STRIP = 4,
    TAPS = 9,
    SUMS = 4 * (TAPS + 1),
    ROW = SUMS + 1,
    STRIPS_A_LANE = 8,
    FULL = 528
};

/* x is (n, h, w, pitch), y (n, p, q, pitch). */
typedef struct depthwise_shape {
    int h, w, p, q, pad_h, pad_w, pitch, strips_a_row;
    unsigned strips;
} depthwise_shape;

/* turned: the shape of the forward pass from dy to dx. */
static depthwise_shape shape_of(const lk_cuda_problem *problem, bool turned)
{
    depthwise_shape s;
    s.h = turned ? problem->p : problem->h;
    s.w = turned ? problem->q : problem->w;
    s.p = turned ? problem->h : problem->p;
    s.q = turned ? problem->w : problem->q;
    s.pad_h = turned ? 2 - problem->along_h.pad : problem->along_h.pad;
    s.pad_w = turned ? 2 - problem->along_w.pad : problem->along_w.pad;
    s.pitch = problem->x_pitch;
    s.strips_a_row = (s.q + STRIP - 1) / STRIP;
    s.strips = (unsigned)problem->n * (unsigned)s.p * (unsigned)s.strips_a_row;
    return s;
}

/* The values that tap row r of a strip reads. */
template <class T, int STRIDE>
static __device__ __forceinline__ void load_row(const depthwise_shape &s, const T *x, strip_position at, int r,
                                                int channel, float4 v[STRIDE * (STRIP - 1) + 3])
{
    int h = at.p * STRIDE + r - s.pad_h;
    bool inside = h >= 0 && h < s.h;
    const T *row = x + ((size_t)at.n * s.h + (inside ? h : 0)) * (size_t)s.w * s.pitch + channel;
#pragma unroll
    for (int j = 0; j < STRIDE * (STRIP - 1) + 3; j++) {
        int w = at.q * STRIDE + j - s.pad_w;
        v[j] = inside && w >= 0 && w < s.w ? lk__cuda_get4(row + (size_t)w * s.pitch) : lk__cuda_zero4();
    }
}

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

template <class T, int STRIDE, bool TURNED>
static __global__ void __launch_bounds__(LK_THREADS)
    depthwise_forward(depthwise_shape s, const T *x, const T *w, const T *b, bool relu, T *y)
{
    unsigned quads = (unsigned)s.pitch / 4, id = blockIdx.x * LK_THREADS + threadIdx.x;
    unsigned strip = id / quads;
    int channel = (int)(id - strip * quads) * 4;
    if (strip >= s.strips)
        return;
    strip_position at = strip_at<STRIP>(s, strip);
    float f[4 * TAPS];
    load_weights(w, channel, f);
    float4 acc[STRIP];
#pragma unroll
    for (int j = 0; j < STRIP; j++)
        acc[j] = lk__cuda_zero4();
#pragma unroll
    for (int r = 0; r < 3; r++) {
        float4 v[STRIDE * (STRIP - 1) + 3];
        load_row<T, STRIDE>(s, x, at, r, channel, v);
#pragma unroll
        for (int k = 0; k < 3; k++)
#pragma unroll
            for (int j = 0; j < STRIP; j++)
                lk__cuda_fma4(acc[j], v[STRIDE * j + k], tap_of(f, TURNED ? 8 - r * 3 - k : r * 3 + k));
    }
    float4 bias = b ? lk__cuda_get4(b + channel) : lk__cuda_zero4();
    T *out = y + (((size_t)at.n * s.p + at.p) * s.q + at.q) * (size_t)s.pitch + channel;
#pragma unroll
    for (int j = 0; j < STRIP; j++)
        if (at.q + j < s.q) {
            float4 v = lk__cuda_add4(acc[j], bias);
            lk__cuda_put4(out + (size_t)j * s.pitch, relu ? lk__cuda_relu4(v) : v);
        }
}

/* For any stride: each pixel of dx collects from the outputs that read it. */
template <class T>
static __global__ void __launch_bounds__(LK_THREADS)
    depthwise_gather(depthwise_shape s, int n, int stride, const T *dy, const T *w, T *dx)
{
    size_t quads = (size_t)s.pitch / 4, id = lk__cuda_thread();
    size_t pixel = id / quads;
    int channel = (int)(id - pixel * quads) * 4;
    if (pixel >= (size_t)n * s.h * s.w)
        return;
    int image = (int)(pixel / ((size_t)s.h * s.w)), h = (int)(pixel / s.w % s.h), col = (int)(pixel % s.w);
    float f[4 * TAPS];
    load_weights(w, channel, f);
    float4 acc = lk__cuda_zero4();
#pragma unroll
    for (int r = 0; r < 3; r++)
#pragma unroll
        for (int k = 0; k < 3; k++) {
            int p = h + s.pad_h - r, q = col + s.pad_w - k;
            if (p >= 0 && q >= 0 && p % stride == 0 && q % stride == 0 && p / stride < s.p && q / stride < s.q) {
                size_t at = ((size_t)image * s.p + p / stride) * s.q + q / stride;
                lk__cuda_fma4(acc, lk__cuda_get4(dy + at * (size_t)s.pitch + channel), tap_of(f, r * 3 + k));
            }
        }
    lk__cuda_put4(dx + pixel * (size_t)s.pitch + channel, acc);
}

/* Adds a strip to the sums of four channels: those of each tap, then that of dy itself. */
template <class T, int STRIDE>
static __device__ __forceinline__ void add_strip(const depthwise_shape &s, const T *x, const T *dy, strip_position at,
                                                 int channel, float4 acc[TAPS + 1])
{
    const T *row = dy + (((size_t)at.n * s.p + at.p) * s.q + at.q) * (size_t)s.pitch + channel;
    float4 d[STRIP];
#pragma unroll
    for (int j = 0; j < STRIP; j++) {
        d[j] = at.q + j < s.q ? lk__cuda_get4(row + (size_t)j * s.pitch) : lk__cuda_zero4();
        acc[TAPS] = lk__cuda_add4(acc[TAPS], d[j]);
    }
#pragma unroll
    for (int r = 0; r < 3; r++) {
        float4 v[STRIDE * (STRIP - 1) + 3];
        load_row<T, STRIDE>(s, x, at, r, channel, v);
#pragma unroll
        for (int k = 0; k < 3; k++)
#pragma unroll
            for (int j = 0; j < STRIP; j++)
                lk__cuda_fma4(acc[r * 3 + k], d[j], v[STRIDE * j + k]);
    }
}

/* Writes the block's sums over its lanes: those of the weights, (pitch, 9), then those of the bias. */
static __device__ __forceinline__ void write_sums(const depthwise_shape &s, const float *sums, int wide, float *out)
{
    int lanes = WEIGHT_THREADS / wide;
    for (int i = (int)threadIdx.x; i < wide * SUMS; i += WEIGHT_THREADS) {
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
static __global__ void __launch_bounds__(WEIGHT_THREADS)
    depthwise_grad_weight(depthwise_shape s, int wide, const __grid_constant__ lk_cuda_leaves leaves, const T *x,
                          const T *dy, float *parts)
{
    __shared__ float sums[WEIGHT_THREADS * ROW];
    int lanes = WEIGHT_THREADS / wide, t = (int)threadIdx.x % wide, lane = (int)threadIdx.x / wide;
    int channel = ((int)blockIdx.x * wide + t) * 4;
    float4 acc[TAPS + 1];
#pragma unroll
    for (int i = 0; i <= TAPS; i++)
        acc[i] = lk__cuda_zero4();
    leaf_part part = part_of(leaves, blockIdx.y, (uint32_t)lanes);
    if (lane < lanes && channel < s.pitch)
        for (unsigned strip = part.begin + (unsigned)lane; strip < part.end; strip += (unsigned)lanes)
            add_strip<T, STRIDE>(s, x, dy, strip_at<STRIP>(s, strip), channel, acc);
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

/* Threads of a block across channels. */
static int wide_of(const lk_cuda_problem *problem)
{
    return problem->x_pitch / 4 < 32 ? problem->x_pitch / 4 : 32;
}

static bool suits(const lk_cuda_problem *problem, size_t most)
{
    (void)most;
    return problem->groups > 1 && problem->groups == problem->c && problem->c == problem->k &&
           problem->x_pitch % 8 == 0 && lk__cuda_is_3x3(problem, 2);
}

static lk_cuda_cut cut_of(const lk_cuda_problem *problem, size_t most)
{
    depthwise_shape s = shape_of(problem, false);
    lk_cuda_cut cut = {};
    int wide = wide_of(problem);
    (void)most;
    cut.rows = (size_t)s.p * (size_t)s.strips_a_row;
    cut.chunk = (size_t)(WEIGHT_THREADS / wide);
    cut.least = STRIPS_A_LANE;
    cut.tiles = lk__cuda_parts((size_t)s.pitch / 4, (size_t)wide);
    cut.full = FULL;
    cut.weights = (size_t)s.pitch * TAPS;
    cut.bias = (size_t)s.pitch;
    return cut;
}

template <class T, int STRIDE>
static void forward(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    depthwise_shape s = shape_of(problem, false);
    unsigned blocks = lk__cuda_blocks((size_t)s.strips * (size_t)(s.pitch / 4));
    depthwise_forward<T, STRIDE, false><<<blocks, LK_THREADS, 0, io->stream>>>(
        s, (const T *)io->x, (const T *)io->w, (const T *)io->b, problem->relu, (T *)io->y);
}

template <class T, int STRIDE>
static void grad_input(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    depthwise_shape s = shape_of(problem, STRIDE == 1);
    const T *dy = (const T *)io->dy, *w = (const T *)io->w;
    if (STRIDE == 1) {
        unsigned blocks = lk__cuda_blocks((size_t)s.strips * (size_t)(s.pitch / 4));
        depthwise_forward<T, 1, true>
            <<<blocks, LK_THREADS, 0, io->stream>>>(s, dy, w, (const T *)NULL, false, (T *)io->dx);
        return;
    }
    size_t threads = (size_t)problem->n * (size_t)(s.h * s.w) * (size_t)(s.pitch / 4);
    depthwise_gather<T>
        <<<lk__cuda_blocks(threads), LK_THREADS, 0, io->stream>>>(s, problem->n, STRIDE, dy, w, (T *)io->dx);
}

template <class T, int STRIDE>
static void grad_weight(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, float *out)
{
    depthwise_shape s = shape_of(problem, false);
    int wide = wide_of(problem);
    dim3 blocks(lk__cuda_parts((size_t)s.pitch / 4, (size_t)wide), (unsigned)(leaves->groups * leaves->parts));
    depthwise_grad_weight<T, STRIDE>
        <<<blocks, WEIGHT_THREADS, 0, io->stream>>>(s, wide, *leaves, (const T *)io->x, (const T *)io->dy, out);
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
