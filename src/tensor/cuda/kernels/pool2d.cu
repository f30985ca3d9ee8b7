/* pool2d.cu - max pooling and average pooling by windows.
 *
 * A maximum is the first NaN of its window, otherwise the first of the largest values. Sums are chains in the
 * order of the CPU's kernels. A gradient collects from all windows that contain its pixel. */
#include "tensor/cuda/kernels/dropout.cuh"
#include "tensor/cuda/kernels/mma.cuh"
#include "tensor/cuda/kernels/plans.h"
#include "tensor/cuda/kernels/vec.cuh"

struct pooling {
    int h, w, oh, ow; /* of the forward pass */
    unsigned pitch;   /* of all tensors */
    lk_cuda_window along_h, along_w;
    bool mask;
    float scale; /* factor of dy */
    size_t threads;
};

static pooling pooling_of(const lk_pool2d_desc *pool, const lk_tensor *in, const lk_tensor *out)
{
    return {.h = (int)in->shape.h,
            .w = (int)in->shape.w,
            .oh = (int)out->shape.h,
            .ow = (int)out->shape.w,
            .pitch = (unsigned)lk__tensor_pitch(in),
            .along_h = lk__cuda_window(&pool->h),
            .along_w = lk__cuda_window(&pool->w),
            .mask = false,
            .scale = 1.0f,
            .threads = 0};
}

/* A thread's vector: V channels of pixel (y, x) of a sample. */
struct position {
    unsigned sample;
    int y, x;
    unsigned channel;
};

template <int V>
static __device__ position position_of(unsigned index, unsigned pitch, unsigned height, unsigned width)
{
    unsigned columns = pitch / V, pixel = index / columns, row = pixel / width;
    return {.sample = row / height,
            .y = (int)(row % height),
            .x = (int)(pixel - row * width),
            .channel = (index - pixel * columns) * V};
}

/* Divisors of a thread's index: vectors of a pixel, pixels of a row, rows of a sample. */
struct grid_divisors {
    divisor pixel, row, rows;
};

static grid_divisors divisors_of(unsigned vectors, int height, int width)
{
    return {divisor_of(vectors), divisor_of((unsigned)width), divisor_of((unsigned)height)};
}

/* As position_of, without divisions. */
template <int V>
static __device__ __forceinline__ position position_by(unsigned index, const grid_divisors &by)
{
    unsigned pixel = quotient(index, by.pixel), row = quotient(pixel, by.row), sample = quotient(row, by.rows);
    return {.sample = sample,
            .y = (int)(row - sample * by.rows.by),
            .x = (int)(pixel - row * by.row.by),
            .channel = (index - pixel * by.pixel.by) * V};
}

/* Taps [begin, end) of a window that are inside the input, along one axis; tap k is at input coordinate at + k * gap.
 */
struct inner {
    int at, begin, end, gap;

    __device__ int coordinate(int tap) const
    {
        return at + tap * gap;
    }
};

static __device__ inner inner_of(const lk_cuda_window &w, int out, int size)
{
    int at = out * w.stride - w.pad, gap = w.dilation;
    inner taps = {at, 0, w.kernel, gap};
    if (at < 0)
        taps.begin = (gap - 1 - at) / gap;
    if (taps.coordinate(w.kernel - 1) >= size)
        taps.end = (size - at + gap - 1) / gap;
    return taps;
}

/* Row y of the sample, from the thread's channels on. */
template <class T>
static __device__ const T *row_of(const pooling &p, const T *x, const position &at, int y)
{
    return x + (((size_t)at.sample * p.h + y) * p.w) * p.pitch + at.channel;
}

/* Takes v where it is larger than best, or the first NaN; nothing of a tap that is not inside of the input. */
template <int V>
static __device__ __forceinline__ void take(const float (&v)[V], int tap, bool inside, float (&best)[V], int (&won)[V])
{
#pragma unroll
    for (int i = 0; i < V; i++) {
        bool tops = inside & (best[i] == best[i]) & !(v[i] <= best[i]);
        won[i] = tops ? tap : won[i];
        best[i] = tops ? v[i] : best[i];
    }
}

template <int V>
static __device__ __forceinline__ void mask_winners(const pooling &p, const float (&best)[V], int (&won)[V])
{
#pragma unroll
    for (int i = 0; i < V; i++)
        won[i] = p.mask && best[i] <= 0 ? LK_POOL2D_NO_GRADIENT : won[i];
}

/* The largest values of V channels of one output pixel, and their taps. K is the kernel if windows tile the
 * input without padding, otherwise 0. */
template <int K, int V, class T>
static __device__ void largest(const pooling &p, const position &at, const T *x, float (&best)[V], int (&won)[V])
{
    inner wy = {at.y * K, 0, K, 1}, wx = {at.x * K, 0, K, 1};
    if (K == 0)
        wy = inner_of(p.along_h, at.y, p.h), wx = inner_of(p.along_w, at.x, p.w);
    int kernel = K ? K : p.along_w.kernel;
    lk__cuda_load(row_of(p, x, at, wy.coordinate(wy.begin)) + (size_t)wx.coordinate(wx.begin) * p.pitch, best);
#pragma unroll
    for (int i = 0; i < V; i++)
        won[i] = wy.begin * kernel + wx.begin;
    for (int ky = wy.begin; ky < wy.end; ky++) {
        const T *row = row_of(p, x, at, wy.coordinate(ky));
        for (int kx = wx.begin; kx < wx.end; kx++) {
            float v[V];
            lk__cuda_load(row + (size_t)wx.coordinate(kx) * p.pitch, v);
            take(v, ky * kernel + kx, true, best, won);
        }
    }
    mask_winners(p, best, won);
}

/* A thread computes V channels of one output pixel. */
template <int K, int V, class T>
static __global__ void maxpool(pooling p, const T *__restrict__ x, T *__restrict__ y, uint8_t *__restrict__ index)
{
    lk__cuda_await();
    if (lk__cuda_thread() >= p.threads)
        return;
    float best[V];
    int won[V];
    largest<K>(p, position_of<V>((unsigned)lk__cuda_thread(), p.pitch, p.oh, p.ow), x, best, won);
    lk__cuda_store(y + lk__cuda_thread() * V, best);
    lk__cuda_store_bytes(index + lk__cuda_thread() * V, won);
}

/* As maxpool, for windows of 3x3 without dilation: all values are loaded before the first is compared. */
template <int V, class T>
static __global__ void __launch_bounds__(LK_THREADS)
    maxpool_3x3(const __grid_constant__ pooling p, const __grid_constant__ grid_divisors by, const T *__restrict__ x,
                T *__restrict__ y, uint8_t *__restrict__ index)
{
    lk__cuda_await();
    unsigned thread = (unsigned)lk__cuda_thread();
    if (thread >= p.threads)
        return;
    position at = position_by<V>(thread, by);
    int h = at.y * p.along_h.stride - p.along_h.pad, w = at.x * p.along_w.stride - p.along_w.pad, won[V];
    float v[9][V], best[V];
    bool inside_h[3], inside_w[3];
#pragma unroll
    for (int k = 0; k < 3; k++) {
        inside_h[k] = (unsigned)(h + k) < (unsigned)p.h;
        inside_w[k] = (unsigned)(w + k) < (unsigned)p.w;
    }
#pragma unroll
    for (int tap = 0; tap < 9; tap++) {
        int row = inside_h[tap / 3] ? h + tap / 3 : max(h, 0), column = inside_w[tap % 3] ? w + tap % 3 : max(w, 0);
        lk__cuda_load(row_of(p, x, at, row) + (size_t)column * p.pitch, v[tap]);
    }
#pragma unroll
    for (int i = 0; i < V; i++) {
        best[i] = -INFINITY;
        won[i] = max(-h, 0) * 3 + max(-w, 0); /* the first tap inside */
    }
#pragma unroll
    for (int tap = 0; tap < 9; tap++)
        take(v[tap], tap, inside_h[tap / 3] & inside_w[tap % 3], best, won);
    mask_winners(p, best, won);
    lk__cuda_store(y + (size_t)thread * V, best);
    lk__cuda_store_bytes(index + (size_t)thread * V, won);
}

static bool is_3(const lk_cuda_window &w)
{
    return w.kernel == 3 && w.dilation == 1;
}

/* Pooling, then dropout. A thread computes V channels of Q output pixels: the pixels of one draw. */
template <lk_drawing D, int K, int V, class T>
static __global__ void maxpool_drop(pooling p, lk_drop d, const T *__restrict__ x, T *__restrict__ y,
                                    uint8_t *__restrict__ index)
{
    lk__cuda_await();
    constexpr int Q = lk__quad<D>;
    if (lk__cuda_thread() >= p.threads)
        return;
    lk_drop_spot spot = lk__cuda_drop_spot<D, V>(d);
    bool keep[Q][V];
    lk__cuda_draw<D>(d, spot, keep);
    size_t to = ((size_t)spot.sample * d.pixels + spot.pixel) * p.pitch + spot.channel;
#pragma unroll
    for (int q = 0; q < Q; q++, to += p.pitch) {
        int pixel = (int)spot.pixel + q, row = pixel / p.ow, won[V];
        float best[V];
        largest<K>(p, {spot.sample, row, pixel - row * p.ow, spot.channel}, x, best, won);
#pragma unroll
        for (int i = 0; i < V; i++) {
            best[i] = lk__cuda_dropped(d, keep[q][i], best[i]);
            won[i] = keep[q][i] ? won[i] : LK_POOL2D_NO_GRADIENT;
        }
        lk__cuda_store(y + to, best);
        lk__cuda_store_bytes(index + to, won);
    }
}

static bool tiles_axis_by_2(const lk_cuda_window &w, int size, int outs)
{
    return w.kernel == 2 && w.stride == 2 && w.pad == 0 && w.dilation == 1 && 2 * outs <= size;
}

/* Every window of the forward pass is inside the input, and no two windows overlap. */
static bool tiles_by_2(const pooling &p)
{
    return tiles_axis_by_2(p.along_h, p.h, p.oh) && tiles_axis_by_2(p.along_w, p.w, p.ow);
}

static void run_maxpool_drop(cudaStream_t stream, pooling p, const lk_dropout_desc *dropout, const lk_tensor *x,
                             lk_tensor *y, uint8_t *index)
{
    lk_drop d = lk__cuda_drop(dropout, y->shape.h * y->shape.w, lk__tensor_pitch(y));
    lk__cuda_by_drawing(dropout, d.pixels, [&](auto drawing) {
        lk__cuda_by_kind(x, [&](auto kind) {
            constexpr lk_drawing D = decltype(drawing)::D;
            constexpr int V = decltype(kind)::V;
            using T = typename decltype(kind)::T;
            auto kernel = tiles_by_2(p) ? maxpool_drop<D, 2, V, T> : maxpool_drop<D, 0, V, T>;
            p.threads = lk__cuda_elements(y) / V / lk__quad<D>;
            lk__cuda_follow({lk__cuda_blocks(p.threads), LK_THREADS, 0, stream}, kernel, p, d, (const T *)x->data,
                            (T *)y->data, index);
        });
    });
}

static void run_maxpool(cudaStream_t stream, pooling p, const lk_tensor *x, lk_tensor *y, uint8_t *index)
{
    lk__cuda_by_kind(x, [&](auto kind) {
        constexpr int V = decltype(kind)::V;
        using T = typename decltype(kind)::T;
        const T *from = (const T *)x->data;
        T *to = (T *)y->data;
        p.threads = lk__cuda_elements(y) / V;
        if (tiles_by_2(p))
            lk__cuda_follow({lk__cuda_blocks(p.threads), LK_THREADS, 0, stream}, maxpool<2, V, T>, p, from, to, index);
        else if (is_3(p.along_h) && is_3(p.along_w))
            lk__cuda_follow({lk__cuda_blocks(p.threads), LK_THREADS, 0, stream}, maxpool_3x3<V, T>, p,
                            divisors_of(p.pitch / V, p.oh, p.ow), from, to, index);
        else
            lk__cuda_follow({lk__cuda_blocks(p.threads), LK_THREADS, 0, stream}, maxpool<0, V, T>, p, from, to, index);
    });
}

extern "C" void lk__cuda_maxpool_forward(lk_device *dev, const lk_pool2d_desc *pool, const lk_dropout_desc *dropout,
                                         const lk_tensor *x, bool mask, lk_tensor *y, uint8_t *index)
{
    pooling p = pooling_of(pool, x, y);
    p.mask = mask;
    if (lk__cuda_elements(y) == 0)
        return;
    if (dropout)
        run_maxpool_drop(lk__cuda_stream(dev), p, dropout, x, y, index);
    else
        run_maxpool(lk__cuda_stream(dev), p, x, y, index);
    lk__cuda_launched(dev, "maxpool_forward");
}

/* Windows [begin, end) that span an input coordinate, along one axis. */
struct windows {
    int begin, end;
};

static __device__ windows windows_over(const lk_cuda_window &w, int at, int outs)
{
    int padded = at + w.pad, end = padded / w.stride + 1, extent = (w.kernel - 1) * w.dilation + 1;
    return {padded < extent ? 0 : (padded - extent) / w.stride + 1, end < outs ? end : outs};
}

/* The tap of a window that reads an input coordinate which the window spans, along one axis; -1: it is between taps. */
static __device__ int tap_at(const lk_cuda_window &w, int at, int out)
{
    int offset = at + w.pad - out * w.stride, tap = w.dilation == 1 ? offset : offset / w.dilation;
    return tap * w.dilation == offset ? tap : -1;
}

/* The thread's channels of output pixel (oy, ox). */
static __device__ size_t output_of(const pooling &p, const position &at, int oy, int ox)
{
    return (((size_t)at.sample * p.oh + oy) * p.ow + ox) * p.pitch + at.channel;
}

/* V values of dy after the gradient of a dropout that follows the pooling, rounded to the value type. */
template <int V, class T>
static __device__ void load_scaled(const pooling &p, const T *dy, float (&v)[V])
{
    lk__cuda_load(dy, v);
#pragma unroll
    for (int i = 0; i < V; i++)
        v[i] = (float)(T)(v[i] * p.scale);
}

/* A thread computes V channels of one input pixel. */
template <int V, class T>
static __global__ void maxpool_grad(pooling p, const T *__restrict__ dy, const uint8_t *__restrict__ index,
                                    T *__restrict__ dx)
{
    lk__cuda_await();
    if (lk__cuda_thread() >= p.threads)
        return;
    position at = position_of<V>((unsigned)lk__cuda_thread(), p.pitch, p.h, p.w);
    windows over_y = windows_over(p.along_h, at.y, p.oh), over_x = windows_over(p.along_w, at.x, p.ow);
    float sum[V] = {};
    for (int oy = over_y.begin; oy < over_y.end; oy++)
        for (int ox = over_x.begin; ox < over_x.end; ox++) {
            size_t from = output_of(p, at, oy, ox);
            int ty = tap_at(p.along_h, at.y, oy), tx = tap_at(p.along_w, at.x, ox);
            int tap = ty < 0 || tx < 0 ? -1 : ty * p.along_w.kernel + tx, won[V];
            float v[V];
            lk__cuda_load_bytes(index + from, won);
            load_scaled(p, dy + from, v);
#pragma unroll
            for (int i = 0; i < V; i++)
                sum[i] = won[i] == tap ? sum[i] + v[i] : sum[i];
        }
    lk__cuda_store(dx + lk__cuda_thread() * V, sum);
}

/* If 2x2 windows tile the whole input: a thread computes V channels of one window. */
template <int V, class T>
static __global__ void maxpool_grad_tiles(pooling p, const T *__restrict__ dy, const uint8_t *__restrict__ index,
                                          T *__restrict__ dx)
{
    lk__cuda_await();
    if (lk__cuda_thread() >= p.threads)
        return;
    position at = position_of<V>((unsigned)lk__cuda_thread(), p.pitch, p.oh, p.ow);
    float v[V];
    int won[V];
    load_scaled(p, dy + lk__cuda_thread() * V, v);
    lk__cuda_load_bytes(index + lk__cuda_thread() * V, won);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float part[V];
#pragma unroll
        for (int i = 0; i < V; i++)
            part[i] = won[i] == k ? v[i] : 0.0f;
        size_t to = (((size_t)at.sample * p.h + 2 * at.y + k / 2) * p.w + 2 * at.x + k % 2) * p.pitch + at.channel;
        lk__cuda_store(dx + to, part);
    }
}

/* Squares along an axis. The first one begins at pad - 1. */
static int squares_along(const lk_cuda_window &w, int size)
{
    return (size + 2 - w.pad) / 2;
}

/* The tap of window j at pixel k of a square, along one axis; -1: none. */
static __device__ constexpr int tap_of(int j, int k)
{
    return j == 0 ? 1 + k : k - 1;
}

/* The indices of V channels, as bytes in words. */
template <int V>
struct winners {
    unsigned word[(V + 3) / 4];

    __device__ __forceinline__ void load(const uint8_t *p)
    {
        if constexpr (V == 1) {
            word[0] = p[0];
        } else {
#pragma unroll
            for (int i = 0; i < V / 4; i++)
                word[i] = ((const unsigned *)p)[i];
        }
    }

    __device__ __forceinline__ int at(int i) const
    {
        return (int)(word[i / 4] >> i % 4 * 8 & 255);
    }
};

/* Where windows are 3x3 with stride 2: a thread computes V channels of a square, which is 2x2 input pixels. Along an
 * axis it is spanned by two windows: the first has tap 1 at the first pixel and tap 2 at the second, the next has tap 0
 * at the second. Sums have the order of maxpool_grad. */
template <int V, class T>
static __global__ void __launch_bounds__(LK_THREADS)
    maxpool_grad_squares(const __grid_constant__ pooling p, const __grid_constant__ grid_divisors by,
                         const T *__restrict__ dy, const uint8_t *__restrict__ index, T *__restrict__ dx)
{
    lk__cuda_await();
    unsigned thread = (unsigned)lk__cuda_thread();
    if (thread >= p.threads)
        return;
    position at = position_by<V>(thread, by); /* in squares */
    int oy = at.y - 1 + p.along_h.pad, y = 2 * oy + 1 - p.along_h.pad;
    int ox = at.x - 1 + p.along_w.pad, x = 2 * ox + 1 - p.along_w.pad;
    float v[4][V], sum[4][V] = {};
    winners<V> won[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int wy = oy + j / 2, wx = ox + j % 2;
        bool inside = (unsigned)wy < (unsigned)p.oh && (unsigned)wx < (unsigned)p.ow;
        size_t from = inside ? output_of(p, at, wy, wx) : 0;
        lk__cuda_load(dy + from, v[j]);
        won[j].load(index + from);
#pragma unroll
        for (unsigned &word : won[j].word)
            word = inside ? word : ~0u; /* no tap is 255 */
    }
    if (p.scale != 1.0f)
#pragma unroll
        for (int i = 0; i < 4 * V; i++)
            v[i / V][i % V] = (float)(T)(v[i / V][i % V] * p.scale);
#pragma unroll
    for (int i = 0; i < 16 * V; i++) {
        const int j = i / (4 * V), k = i / V % 4, c = i % V, ty = tap_of(j / 2, k / 2), tx = tap_of(j % 2, k % 2);
        if (ty >= 0 && tx >= 0)
            sum[k][c] = won[j].at(c) == ty * 3 + tx ? sum[k][c] + v[j][c] : sum[k][c];
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int to_y = y + k / 2, to_x = x + k % 2;
        if ((unsigned)to_y < (unsigned)p.h && (unsigned)to_x < (unsigned)p.w)
            lk__cuda_store(dx + (((size_t)at.sample * p.h + to_y) * p.w + to_x) * p.pitch + at.channel, sum[k]);
    }
}

static bool has_squares(const lk_cuda_window &w)
{
    return w.kernel == 3 && w.stride == 2 && w.pad <= 1 && w.dilation == 1;
}

template <int V, class T>
static void run_grad_squares(cudaStream_t stream, pooling p, size_t samples, const T *dy, const uint8_t *index, T *dx)
{
    int rows = squares_along(p.along_h, p.h), columns = squares_along(p.along_w, p.w);
    grid_divisors by = divisors_of(p.pitch / V, rows, columns);
    p.threads = samples * (size_t)rows * (size_t)columns * by.pixel.by;
    lk__cuda_follow({lk__cuda_blocks(p.threads), LK_THREADS, 0, stream}, maxpool_grad_squares<V, T>, p, by, dy, index,
                    dx);
}

extern "C" void lk__cuda_maxpool_grad_input(lk_device *dev, const lk_pool2d_desc *pool, const lk_dropout_desc *dropout,
                                            const lk_tensor *dy, const uint8_t *index, lk_tensor *dx)
{
    pooling p = pooling_of(pool, dx, dy);
    p.scale = dropout ? lk__dropout_desc_scale(dropout) : 1.0f;
    bool tiles = tiles_by_2(p) && p.h == 2 * p.oh && p.w == 2 * p.ow;
    if (lk__cuda_elements(dx) == 0)
        return;
    cudaStream_t stream = lk__cuda_stream(dev);
    lk__cuda_by_kind(dx, [&](auto kind) {
        constexpr int V = decltype(kind)::V;
        using T = typename decltype(kind)::T;
        const T *from = (const T *)dy->data;
        T *to = (T *)dx->data;
        p.threads = lk__cuda_elements(tiles ? dy : dx) / V;
        if (has_squares(p.along_h) && has_squares(p.along_w))
            run_grad_squares<V>(stream, p, dx->shape.n, from, index, to);
        else if (tiles)
            lk__cuda_follow({lk__cuda_blocks(p.threads), LK_THREADS, 0, stream}, maxpool_grad_tiles<V, T>, p, from,
                            index, to);
        else
            lk__cuda_follow({lk__cuda_blocks(p.threads), LK_THREADS, 0, stream}, maxpool_grad<V, T>, p, from, index,
                            to);
    });
    lk__cuda_launched(dev, "maxpool_grad_input");
}

/* Taps of a window that count in a mean, along one axis: those in the input and its padding. */
static __device__ int counted(const lk_cuda_window &w, int out, int size)
{
    int rest = size + 2 * w.pad - out * w.stride;
    return rest < w.kernel ? rest : w.kernel;
}

/* A thread computes V channels of one output pixel. */
template <int V, class T>
static __global__ void avgpool(pooling p, const T *__restrict__ x, T *__restrict__ y)
{
    lk__cuda_await();
    if (lk__cuda_thread() >= p.threads)
        return;
    position at = position_of<V>((unsigned)lk__cuda_thread(), p.pitch, p.oh, p.ow);
    inner wy = inner_of(p.along_h, at.y, p.h), wx = inner_of(p.along_w, at.x, p.w);
    float sum[V] = {}, size = (float)(counted(p.along_h, at.y, p.h) * counted(p.along_w, at.x, p.w));
    for (int ky = wy.begin; ky < wy.end; ky++) {
        const T *row = row_of(p, x, at, wy.coordinate(ky));
        for (int kx = wx.begin; kx < wx.end; kx++) {
            float v[V];
            lk__cuda_load(row + (size_t)wx.coordinate(kx) * p.pitch, v);
#pragma unroll
            for (int i = 0; i < V; i++)
                sum[i] += v[i];
        }
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        sum[i] /= size;
    lk__cuda_store(y + lk__cuda_thread() * V, sum);
}

/* A thread computes V channels of one input pixel. */
template <int V, class T>
static __global__ void avgpool_grad(pooling p, const T *__restrict__ dy, T *__restrict__ dx)
{
    lk__cuda_await();
    if (lk__cuda_thread() >= p.threads)
        return;
    position at = position_of<V>((unsigned)lk__cuda_thread(), p.pitch, p.h, p.w);
    windows over_y = windows_over(p.along_h, at.y, p.oh), over_x = windows_over(p.along_w, at.x, p.ow);
    float sum[V] = {};
    for (int oy = over_y.begin; oy < over_y.end; oy++)
        for (int ox = over_x.begin; ox < over_x.end; ox++) {
            float v[V], size = (float)(counted(p.along_h, oy, p.h) * counted(p.along_w, ox, p.w));
            lk__cuda_load(dy + output_of(p, at, oy, ox), v);
#pragma unroll
            for (int i = 0; i < V; i++)
                sum[i] += v[i] / size;
        }
    lk__cuda_store(dx + lk__cuda_thread() * V, sum);
}

extern "C" void lk__cuda_avgpool_forward(lk_device *dev, const lk_pool2d_desc *pool, const lk_tensor *x, lk_tensor *y)
{
    pooling p = pooling_of(pool, x, y);
    if (lk__cuda_elements(y) == 0)
        return;
    cudaStream_t stream = lk__cuda_stream(dev);
    lk__cuda_by_kind(x, [&](auto kind) {
        constexpr int V = decltype(kind)::V;
        using T = typename decltype(kind)::T;
        p.threads = lk__cuda_elements(y) / V;
        lk__cuda_follow({lk__cuda_blocks(p.threads), LK_THREADS, 0, stream}, avgpool<V, T>, p, (const T *)x->data,
                        (T *)y->data);
    });
    lk__cuda_launched(dev, "avgpool_forward");
}

extern "C" void lk__cuda_avgpool_grad_input(lk_device *dev, const lk_pool2d_desc *pool, const lk_tensor *dy,
                                            lk_tensor *dx)
{
    pooling p = pooling_of(pool, dx, dy);
    if (lk__cuda_elements(dx) == 0)
        return;
    cudaStream_t stream = lk__cuda_stream(dev);
    lk__cuda_by_kind(dx, [&](auto kind) {
        constexpr int V = decltype(kind)::V;
        using T = typename decltype(kind)::T;
        p.threads = lk__cuda_elements(dx) / V;
        lk__cuda_follow({lk__cuda_blocks(p.threads), LK_THREADS, 0, stream}, avgpool_grad<V, T>, p, (const T *)dy->data,
                        (T *)dx->data);
    });
    lk__cuda_launched(dev, "avgpool_grad_input");
}
