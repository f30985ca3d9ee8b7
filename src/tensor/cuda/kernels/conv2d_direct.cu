/* conv2d_direct.cu - any convolution, by plain loops. Used if the libraries have no deterministic algorithm
 * (fp32 weight gradients of few channels) or do not support the layout (groups with padded channels, fewer than
 * 4 channels). */
#include "tensor/cuda/kernels/conv2d.h"
#include "tensor/cuda/kernels/leaf_part.cuh"
#include "tensor/cuda/kernels/vec4.cuh"
#include "tensor/cuda/kernels/weights.h"

enum { TILE = 32, PIXELS = 32, CHUNKS_A_PART = 32, FULL = 528 };

typedef struct direct_shape {
    int n, h, w, c, k, p, q, x_pitch, y_pitch;
    lk_cuda_window along_h, along_w;
    int groups, group_c, group_k; /* channels of a group; a single group includes the pads */
} direct_shape;

static direct_shape shape_of(const lk_cuda_problem *problem)
{
    direct_shape s;
    s.n = problem->n;
    s.h = problem->h;
    s.w = problem->w;
    s.c = problem->groups == 1 ? problem->x_pitch : problem->c;
    s.k = problem->groups == 1 ? problem->y_pitch : problem->k;
    s.p = problem->p;
    s.q = problem->q;
    s.along_h = problem->along_h;
    s.along_w = problem->along_w;
    s.x_pitch = problem->x_pitch;
    s.y_pitch = problem->y_pitch;
    s.groups = problem->groups;
    s.group_c = s.c / s.groups;
    s.group_k = s.k / s.groups;
    return s;
}

static __host__ __device__ __forceinline__ int taps_of(const direct_shape &s)
{
    return s.along_h.kernel * s.along_w.kernel;
}

/* The coordinate of x that a tap of an output reads, along one axis; it may be outside of x. */
static __device__ __forceinline__ int input_of(const lk_cuda_window &window, int out, int tap)
{
    return out * window.stride + tap * window.dilation - window.pad;
}

/* The output, of `outs`, whose tap reads coordinate `in` of x, along one axis; -1: there is none. */
static __device__ __forceinline__ int user_of(const lk_cuda_window &window, int in, int tap, int outs)
{
    int at = in + window.pad - tap * window.dilation, out = at / window.stride;
    return at >= 0 && out * window.stride == at && out < outs ? out : -1;
}

/* The first weight of tap (r, t) of output channel k. */
static __device__ __forceinline__ size_t weight_of(const direct_shape &s, int k, int r, int t)
{
    return (((size_t)k * s.along_h.kernel + r) * s.along_w.kernel + t) * (size_t)s.group_c;
}

/* The sum of an output channel at a pixel of y. */
template <class T>
static __device__ __forceinline__ float sum_window(const direct_shape &s, const T *x, const T *w, size_t pixel, int k)
{
    int image = (int)(pixel / ((size_t)s.p * s.q)), p = (int)(pixel / s.q % s.p), q = (int)(pixel % s.q);
    int base = k / s.group_k * s.group_c;
    float sum = 0.0f;
    for (int r = 0; r < s.along_h.kernel; r++)
        for (int t = 0; t < s.along_w.kernel; t++) {
            int h = input_of(s.along_h, p, r), col = input_of(s.along_w, q, t);
            if (h < 0 || h >= s.h || col < 0 || col >= s.w)
                continue;
            const T *in = x + (((size_t)image * s.h + h) * s.w + col) * (size_t)s.x_pitch + base;
            const T *f = w + weight_of(s, k, r, t);
            for (int c = 0; c < s.group_c; c++)
                sum = __fmaf_rn(lk__cuda_get1(in + c), lk__cuda_get1(f + c), sum);
        }
    return sum;
}

template <class T>
static __global__ void __launch_bounds__(LK_THREADS)
    direct_forward(direct_shape s, const T *x, const T *w, const T *b, bool relu, T *y)
{
    size_t id = lk__cuda_thread(), pixel = id / s.y_pitch;
    int k = (int)(id - pixel * s.y_pitch);
    if (pixel >= (size_t)s.n * s.p * s.q)
        return;
    float sum = 0.0f;
    if (k < s.k) {
        sum = sum_window(s, x, w, pixel, k);
        if (b)
            sum += lk__cuda_get1(b + k);
        if (relu)
            sum = lk__cuda_relu1(sum);
    }
    lk__cuda_put1(y + id, sum);
}

/* The sum of an input channel at a pixel of x, over the outputs that read it. */
template <class T>
static __device__ __forceinline__ float sum_users(const direct_shape &s, const T *dy, const T *w, size_t pixel, int c)
{
    int image = (int)(pixel / ((size_t)s.h * s.w)), h = (int)(pixel / s.w % s.h), col = (int)(pixel % s.w);
    int base = c / s.group_c * s.group_k, local = c % s.group_c;
    float sum = 0.0f;
    for (int r = 0; r < s.along_h.kernel; r++)
        for (int t = 0; t < s.along_w.kernel; t++) {
            int p = user_of(s.along_h, h, r, s.p), q = user_of(s.along_w, col, t, s.q);
            if (p < 0 || q < 0)
                continue;
            size_t at = ((size_t)image * s.p + p) * s.q + q;
            for (int k = base; k < base + s.group_k; k++)
                sum = __fmaf_rn(lk__cuda_get1(dy + at * (size_t)s.y_pitch + k),
                                lk__cuda_get1(w + weight_of(s, k, r, t) + local), sum);
        }
    return sum;
}

template <class T>
static __global__ void __launch_bounds__(LK_THREADS) direct_grad_input(direct_shape s, const T *dy, const T *w, T *dx)
{
    size_t id = lk__cuda_thread(), pixel = id / s.x_pitch;
    int c = (int)(id - pixel * s.x_pitch);
    if (pixel >= (size_t)s.n * s.h * s.w)
        return;
    lk__cuda_put1(dx + id, c < s.c ? sum_users(s, dy, w, pixel, c) : 0.0f);
}

/* A block of direct_grad_weight: a part of a leaf (leaves.h), one tap, 32 channels of y by 32 of x. */
typedef struct weight_tile {
    int group, k0, c0; /* k0 and c0 within the group */
    int r, t;          /* the tap */
    leaf_part pixels;  /* of y */
} weight_tile;

static __device__ __forceinline__ weight_tile tile_of(const direct_shape &s, const lk_cuda_leaves &leaves)
{
    int tiles_k = (s.group_k + TILE - 1) / TILE, tiles_c = (s.group_c + TILE - 1) / TILE, i = (int)blockIdx.x;
    weight_tile tile;
    tile.group = i / (tiles_k * tiles_c);
    tile.k0 = i / tiles_c % tiles_k * TILE;
    tile.c0 = i % tiles_c * TILE;
    tile.r = (int)blockIdx.y / s.along_w.kernel;
    tile.t = (int)blockIdx.y % s.along_w.kernel;
    tile.pixels = part_of(leaves, blockIdx.z, PIXELS);
    return tile;
}

/* One channel of dy and of x at 32 pixels; 0 beyond the end. */
template <class T>
static __device__ __forceinline__ void load_pixels(const direct_shape &s, const weight_tile &tile, size_t first,
                                                   const T *x, const T *dy, float ys[PIXELS][TILE],
                                                   float xs[PIXELS][TILE])
{
    int lane = (int)threadIdx.x % TILE, row = (int)threadIdx.x / TILE;
    for (int j = row; j < PIXELS; j += LK_THREADS / TILE) {
        size_t pixel = first + (size_t)j;
        float u = 0.0f, v = 0.0f;
        if (pixel < tile.pixels.end) {
            int image = (int)(pixel / ((size_t)s.p * s.q)), p = (int)(pixel / s.q % s.p), q = (int)(pixel % s.q);
            int h = input_of(s.along_h, p, tile.r), col = input_of(s.along_w, q, tile.t);
            int k = tile.k0 + lane, c = tile.c0 + lane;
            if (k < s.group_k)
                u = lk__cuda_get1(dy + pixel * (size_t)s.y_pitch + tile.group * s.group_k + k);
            if (c < s.group_c && h >= 0 && h < s.h && col >= 0 && col < s.w)
                v = lk__cuda_get1(x + (((size_t)image * s.h + h) * s.w + col) * (size_t)s.x_pitch +
                                  tile.group * s.group_c + c);
        }
        ys[j][lane] = u;
        xs[j][lane] = v;
    }
}

/* A thread computes two channels of y by two channels of x. */
template <class T>
static __global__ void __launch_bounds__(LK_THREADS)
    direct_grad_weight(direct_shape s, const __grid_constant__ lk_cuda_leaves leaves, const T *x, const T *dy,
                       float *parts)
{
    __shared__ __align__(16) float ys[PIXELS][TILE], xs[PIXELS][TILE];
    weight_tile tile = tile_of(s, leaves);
    int mine_k = 2 * ((int)threadIdx.x / (TILE / 2)), mine_c = 2 * ((int)threadIdx.x % (TILE / 2));
    float sums[2][2] = {{0, 0}, {0, 0}};
    for (size_t first = tile.pixels.begin; first < tile.pixels.end; first += PIXELS) {
        load_pixels(s, tile, first, x, dy, ys, xs);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < PIXELS; j++) {
            float2 u = *(const float2 *)&ys[j][mine_k], v = *(const float2 *)&xs[j][mine_c];
            sums[0][0] = __fmaf_rn(u.x, v.x, sums[0][0]);
            sums[0][1] = __fmaf_rn(u.x, v.y, sums[0][1]);
            sums[1][0] = __fmaf_rn(u.y, v.x, sums[1][0]);
            sums[1][1] = __fmaf_rn(u.y, v.y, sums[1][1]);
        }
        __syncthreads();
    }
    size_t taps = (size_t)taps_of(s);
    float *out = parts + blockIdx.z * (size_t)s.k * taps * (size_t)s.group_c;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            int k = tile.k0 + mine_k + i, c = tile.c0 + mine_c + j;
            if (k < s.group_k && c < s.group_c)
                out[((size_t)(tile.group * s.group_k + k) * taps + blockIdx.y) * (size_t)s.group_c + c] = sums[i][j];
        }
}

static unsigned tiles_of(const direct_shape &s)
{
    return (unsigned)s.groups * lk__cuda_parts((size_t)s.group_k, TILE) * lk__cuda_parts((size_t)s.group_c, TILE);
}

static bool suits(const lk_cuda_problem *problem, size_t most)
{
    (void)problem, (void)most;
    return true;
}

static lk_cuda_cut cut_of(const lk_cuda_problem *problem, size_t most)
{
    direct_shape s = shape_of(problem);
    lk_cuda_cut cut = {};
    (void)most;
    cut.rows = (size_t)s.p * (size_t)s.q;
    cut.chunk = PIXELS;
    cut.least = CHUNKS_A_PART;
    cut.full = FULL;
    cut.tiles = (size_t)tiles_of(s) * (size_t)taps_of(s);
    cut.weights = (size_t)s.k * (size_t)taps_of(s) * (size_t)s.group_c;
    return cut;
}

template <class T>
static void forward(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    unsigned blocks = lk__cuda_blocks(lk__cuda_rows(problem) * (size_t)problem->y_pitch);
    direct_forward<T><<<blocks, LK_THREADS, 0, io->stream>>>(shape_of(problem), (const T *)io->x, (const T *)io->w,
                                                             (const T *)io->b, problem->relu, (T *)io->y);
}

template <class T>
static void grad_input(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    size_t pixels = (size_t)problem->n * (size_t)problem->h * (size_t)problem->w;
    unsigned blocks = lk__cuda_blocks(pixels * (size_t)problem->x_pitch);
    direct_grad_input<T>
        <<<blocks, LK_THREADS, 0, io->stream>>>(shape_of(problem), (const T *)io->dy, (const T *)io->w, (T *)io->dx);
}

template <class T>
static void grad_weight(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves, float *out)
{
    direct_shape s = shape_of(problem);
    dim3 blocks(tiles_of(s), (unsigned)taps_of(s), (unsigned)(leaves->groups * leaves->parts));
    direct_grad_weight<T><<<blocks, LK_THREADS, 0, io->stream>>>(s, *leaves, (const T *)io->x, (const T *)io->dy, out);
    lk__cuda_launched(io->dev, "gradient of the weights of a convolution");
}

template <class T>
static void run(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    if (problem->pass == LK_CUDA_PASS_FORWARD)
        forward<T>(problem, io);
    else
        grad_input<T>(problem, io);
    lk__cuda_launched(io->dev, "convolution");
}

void lk__cuda_direct(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    if (problem->values == LK_DTYPE_F32)
        run<float>(problem, io);
    else
        run<lk_bf16>(problem, io);
}

static void launch_leaves(const lk_cuda_problem *problem, const lk_cuda_io *io, const lk_cuda_leaves *leaves,
                          size_t most, float *out)
{
    (void)most;
    if (problem->values == LK_DTYPE_F32)
        grad_weight<float>(problem, io, leaves, out);
    else
        grad_weight<lk_bf16>(problem, io, leaves, out);
}

const lk_cuda_leaf_kernel lk__cuda_weights_direct = {"all other layers", suits, cut_of, launch_leaves, NULL};
