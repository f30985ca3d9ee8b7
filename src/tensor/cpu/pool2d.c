/* pool2d.c - max pooling, average pooling, and global pooling by both.
 *
 * Lanes are channels. A maximum is the first NaN of its window, otherwise the first of the largest values
 * (v_tops); its gradient is one chain of additions over the windows that took a pixel, in the order (oy, ox), unless no
 * windows overlap. A mean is one chain of additions over the window in the order (ky, kx), then divided by the
 * window's size. Its gradient divides first: one chain of dy / size over the windows that contain a pixel, in
 * the order (oy, ox). */
#include <string.h>

#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/dropout.h"

/* Vectors of channels whose maxima are computed together. */
enum { MAX_VECTORS = 4 };

typedef struct pooling {
    lk_pool2d_desc pool;
    bool mask;
    float scale; /* factor of dy */
    lk_shape in, out;
    size_t outs; /* elements of out */
    const float *src;
    float *dst;
    uint8_t *index;           // (n, h, w, c) of out
    const uint8_t *index_src; // the same as an input
    int32_t *pixel;           // (n, c) of global max pooling
    const int32_t *pixel_src; // the same as an input
    size_t rows, cost;        /* independent parts of the work, and the floats of one part */
    void (*row)(const struct pooling *p, size_t row);
} pooling;

/* From x to y, or from dy to dx; in and out are the shapes of the forward pass. */
static pooling pooling_of(const lk_pool2d_desc *pool, lk_shape in, lk_shape out, const lk_tensor *src, lk_tensor *dst)
{
    return (pooling){.pool = *pool,
                     .in = in,
                     .out = out,
                     .outs = lk__shape_count(out),
                     .src = lk__tensor_f32(src),
                     .dst = lk__tensor_f32(dst)};
}

static void rows_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const pooling *p = arg;
    lk_chunk_range rows = lk__chunk(p->rows, lk__chunk_rows(p->cost), index);
    for (size_t row = rows.begin; row < rows.end; row++)
        p->row(p, row);
}

static void run(lk_device *dev, pooling p, size_t rows, size_t cost, void (*row)(const pooling *p, size_t row))
{
    p.rows = rows;
    p.cost = cost;
    p.row = row;
    lk__chunk_run_rows(dev, rows, cost, rows_task, &p);
}

/* The part of a window inside the input, along one axis: taps [begin, end). Tap k is at input coordinate
 * at + k * gap; `at` wraps if it is negative, the sum is correct. */
typedef struct inner {
    size_t at, begin, end, gap;
} inner;

static inner inner_of(const lk_window *w, size_t out, size_t size)
{
    size_t start = out * w->stride; /* in padded coordinates */
    inner taps = {.at = start - w->pad, .begin = 0, .end = w->kernel, .gap = w->dilation};
    if (start < w->pad)
        taps.begin = (w->pad - start + w->dilation - 1) / w->dilation;
    if (start + lk__window_extent(w) > size + w->pad)
        taps.end = lk__size_min(w->kernel, (size + w->pad - start + w->dilation - 1) / w->dilation);
    return taps;
}

static size_t coordinate(inner taps, size_t k)
{
    return taps.at + k * taps.gap;
}

/* Stores the taps of n channels; room: bytes that may be written, because later vectors write them again. */
LK_INLINE void store_taps(uint8_t *index, v_u32 taps, size_t n, size_t room)
{
    uint8_t bytes[V];
    if (n == V || room >= V) {
        vu_store8(index, taps);
        return;
    }
    vu_store8(bytes, taps);
    for (size_t i = 0; i < n; i++)
        index[i] = bytes[i];
}

/* nv vectors of n channels, which are x_step floats apart in x and y_step in y. Several vectors hide the latency of
 * comparisons. x: the first vector's sample, from its first channel on; wy and wx: its window; room: see store_taps.
 * Taps are integers in the bits of floats. */
LK_INLINE void max_lanes(const pooling *p, const float *x, inner wy, inner wx, int nv, size_t n, size_t x_step,
                         size_t y_step, size_t room, float *y, uint8_t *index)
{
    size_t c = p->in.c, row = p->in.w * c, kw = p->pool.w.kernel;
    const float *from = x + coordinate(wy, wy.begin) * row + coordinate(wx, wx.begin) * c;
    v_u32 one = vu_set1(1), none = vu_set1(LK_POOL2D_NO_GRADIENT);
    v_f32 best[MAX_VECTORS], tap[MAX_VECTORS];
    LK_UNROLL for (int v = 0; v < nv; v++)
    {
        best[v] = v_load_some(from + (size_t)v * x_step, n);
        tap[v] = v_from_bits(vu_set1((uint32_t)(wy.begin * kw + wx.begin)));
    }
    for (size_t ky = wy.begin; ky < wy.end; ky++) {
        size_t first = ky == wy.begin ? wx.begin + 1 : wx.begin;
        v_u32 here = vu_set1((uint32_t)(ky * kw + first));
        for (size_t kx = first; kx < wx.end; kx++, here = vu_add(here, one)) {
            from = x + coordinate(wy, ky) * row + coordinate(wx, kx) * c;
            LK_UNROLL for (int v = 0; v < nv; v++)
            {
                v_f32 value = v_load_some(from + (size_t)v * x_step, n);
                v_mask tops = v_tops(value, best[v]);
                best[v] = v_select(tops, value, best[v]);
                tap[v] = v_select(tops, v_from_bits(here), tap[v]);
            }
        }
    }
    LK_UNROLL for (int v = 0; v < nv; v++)
    {
        size_t at = (size_t)v * y_step;
        v_f32 taps = p->mask ? v_select(v_le(best[v], v_zero()), v_from_bits(none), tap[v]) : tap[v];
        v_store_some(y + at, best[v], n);
        store_taps(index + at, v_bits(taps), n, room > at ? room - at : 0);
    }
}

/* Whether the windows of MAX_VECTORS output columns from ox on are inside the input. */
static bool all_inside(const lk_window *w, size_t ox, size_t size, size_t outs)
{
    size_t last = ox + MAX_VECTORS - 1;
    return last < outs && ox * w->stride >= w->pad && last * w->stride + lk__window_extent(w) <= size + w->pad;
}

/* Output rows are counted over all samples. The vectors of a loop are of one pixel, or of the same channels of
 * neighbouring pixels if these are few. */
static void max_row(const pooling *p, size_t row)
{
    size_t c = p->in.c, sample = row / p->out.h, wide = MAX_VECTORS * V, pixels, step = p->pool.w.stride * c;
    const float *x = p->src + sample * lk__shape_sample(p->in);
    inner wy = inner_of(&p->pool.h, row % p->out.h, p->in.h);
    for (size_t ox = 0; ox < p->out.w; ox += pixels) {
        inner wx = inner_of(&p->pool.w, ox, p->in.w);
        size_t at = (row * p->out.w + ox) * c, i = 0, room = c < V ? (p->out.w - ox) * c : 0;
        float *y = p->dst + at;
        uint8_t *index = p->index + at;
        bool several = c < wide && all_inside(&p->pool.w, ox, p->in.w, p->out.w);
        pixels = several ? MAX_VECTORS : 1;
        for (; i + wide <= c; i += wide)
            max_lanes(p, x + i, wy, wx, MAX_VECTORS, V, V, V, 0, y + i, index + i);
        for (; several && i + V <= c; i += V)
            max_lanes(p, x + i, wy, wx, MAX_VECTORS, V, step, c, 0, y + i, index + i);
        if (several && i < c)
            max_lanes(p, x + i, wy, wx, MAX_VECTORS, c - i, step, c, room, y + i, index + i);
        for (; !several && i < c; i += V)
            max_lanes(p, x + i, wy, wx, 1, lk__size_min(c - i, V), 0, 0, room, y + i, index + i);
    }
}

static size_t row_cost(const pooling *p)
{
    return p->in.w * p->in.c * p->pool.h.stride;
}

void LK_KERNEL(maxpool_forward)(lk_device *dev, const lk_pool2d_desc *pool, const lk_dropout_desc *dropout,
                                const lk_tensor *x, bool mask, lk_tensor *y, uint8_t *index)
{
    pooling p = pooling_of(pool, x->shape, y->shape, x, y);
    p.mask = mask;
    p.index = index;
    run(dev, p, p.out.n * p.out.h, row_cost(&p), max_row);
    if (dropout)
        LK_KERNEL(dropout_indexed)(dev, dropout, y, index);
}

static void zero(float *p, size_t count)
{
    memset(p, 0, count * sizeof *p);
}

/* The taps of n channels of output element `at`. */
LK_INLINE v_u32 load_taps(const pooling *p, size_t at, size_t n)
{
    if (n == V || at + V <= p->outs)
        return vu_load8(p->index_src + at);
    uint8_t bytes[V] = {0};
    for (size_t i = 0; i < n; i++)
        bytes[i] = p->index_src[at + i];
    return vu_load8(bytes);
}

/* dy where the tap is the given one, otherwise `other`. */
LK_INLINE v_f32 where_tap(v_u32 taps, size_t tap, v_f32 dy, v_f32 other)
{
    return v_select(vu_lt(vu_xor(taps, vu_set1((uint32_t)tap)), vu_set1(1)), dy, other);
}

/* The windows that contain an input coordinate, along one axis, in rising order; and the taps that it is of them. */
typedef struct cover {
    size_t count, window[LK_POOL2D_NO_GRADIENT], tap[LK_POOL2D_NO_GRADIENT];
} cover;

/* *first: a window that is not after the first of them. It is moved to the first one, or to one before it if taps are
 * apart, for the next coordinate. */
static void find_cover(const lk_window *w, size_t at, size_t outs, size_t *first, cover *out)
{
    size_t padded = at + w->pad;
    while (*first * w->stride + lk__window_extent(w) <= padded)
        ++*first;
    out->count = 0;
    for (size_t o = *first; o < outs && o * w->stride <= padded; o++) {
        size_t distance = padded - o * w->stride;
        if (w->dilation > 1 && distance % w->dilation > 0)
            continue;
        out->window[out->count] = o;
        out->tap[out->count++] = w->dilation > 1 ? distance / w->dilation : distance;
    }
}

/* nv vectors of channels of an input pixel, n of the last one; `at` is their place in the first output pixel. */
LK_INLINE void gather_lanes(const pooling *p, const cover *wy, const cover *wx, size_t at, int nv, size_t n, float *dx)
{
    v_f32 sum[MAX_VECTORS], scale = v_set1(p->scale);
    LK_UNROLL for (int v = 0; v < nv; v++) sum[v] = v_zero();
    for (size_t i = 0; i < wy->count; i++) {
        for (size_t j = 0; j < wx->count; j++) {
            size_t from = at + (wy->window[i] * p->out.w + wx->window[j]) * p->in.c;
            size_t tap = wy->tap[i] * p->pool.w.kernel + wx->tap[j];
            LK_UNROLL for (int v = 0; v < nv; v++)
            {
                size_t here = from + (size_t)v * V;
                v_f32 dy = v_mul(v_load_some(p->src + here, n), scale);
                sum[v] = where_tap(load_taps(p, here, n), tap, v_add(sum[v], dy), sum[v]);
            }
        }
    }
    LK_UNROLL for (int v = 0; v < nv; v++) v_store_some(dx + v * V, sum[v], n);
}

/* For windows that overlap or extend beyond the input: each pixel adds the gradients of the windows that took it, in
 * the order of the windows in memory. Input rows are counted over all samples. */
static void gather_row(const pooling *p, size_t row)
{
    size_t c = p->in.c, at = row / p->in.h * lk__shape_sample(p->out), first_y = 0, first_x = 0;
    cover wy, wx;
    find_cover(&p->pool.h, row % p->in.h, p->out.h, &first_y, &wy);
    for (size_t x = 0; x < p->in.w; x++) {
        float *dx = p->dst + (row * p->in.w + x) * c;
        size_t i = 0;
        find_cover(&p->pool.w, x, p->out.w, &first_x, &wx);
        for (; i + MAX_VECTORS * V <= c; i += MAX_VECTORS * V)
            gather_lanes(p, &wy, &wx, at + i, MAX_VECTORS, V, dx + i);
        for (; i + V <= c; i += V)
            gather_lanes(p, &wy, &wx, at + i, 1, V, dx + i);
        if (i < c)
            gather_lanes(p, &wy, &wx, at + i, 1, c - i, dx + i);
    }
}

/* All channels of the input pixel that is tap `tap` of the output pixel at element `at`. */
static void tile_pixel(const pooling *p, size_t at, size_t tap, float *dx)
{
    size_t c = p->in.c, i = 0;
    v_f32 scale = v_set1(p->scale);
    for (; i + V <= c; i += V)
        v_store(dx + i,
                where_tap(vu_load8(p->index_src + at + i), tap, v_mul(v_load(p->src + at + i), scale), v_zero()));
    if (i < c) {
        v_f32 dy = v_mul(v_load_n(p->src + at + i, c - i), scale);
        v_store_n(dx + i, where_tap(load_taps(p, at + i, c - i), tap, dy, v_zero()), c - i);
    }
}

/* The input pixels under a row of windows, if they have at most V channels; `tap` is the first tap of the row, `at` the
 * first output element. */
LK_INLINE void tile_pixels(const pooling *p, size_t at, size_t tap, float *dx)
{
    size_t c = p->in.c, kw = p->pool.w.kernel, end = at + p->out.w * c;
    v_f32 scale = v_set1(p->scale);
    for (const float *from = p->src + at; at < end; at += c, from += c) {
        v_u32 taps = load_taps(p, at, c);
        v_f32 dy = v_mul(v_load_n(from, c), scale);
        for (size_t k = tap; k < tap + kw; k++, dx += c)
            v_store_n(dx, where_tap(taps, k, dy, v_zero()), c);
    }
}

/* For windows that tile the input: writes every pixel once, row by row. Pixels right of and below the last
 * windows are zero. */
static void tile_row(const pooling *p, size_t row)
{
    size_t c = p->in.c, width = p->in.w * c, kh = p->pool.h.kernel, kw = p->pool.w.kernel;
    size_t sample = row / p->out.h, oy = row % p->out.h, outs = p->out.w;
    float *dx = p->dst + sample * lk__shape_sample(p->in) + oy * kh * width;
    for (size_t ky = 0; ky < kh; ky++, dx += width) {
        size_t at = row * outs * c;
        if (c <= V)
            tile_pixels(p, at, ky * kw, dx);
        for (size_t k = 0; c > V && k < outs * kw; k++)
            tile_pixel(p, at + k / kw * c, ky * kw + k % kw, dx + k * c);
        zero(dx + outs * kw * c, width - outs * kw * c);
    }
    if (oy + 1 == p->out.h)
        zero(dx, (p->in.h - p->out.h * kh) * width);
}

/* Whether windows neither overlap nor leave gaps nor extend beyond the input, along one axis. */
static bool tiles(const lk_window *w, size_t size, size_t outs)
{
    return w->kernel == w->stride && w->pad == 0 && w->dilation == 1 && outs * w->kernel <= size;
}

void LK_KERNEL(maxpool_grad_input)(lk_device *dev, const lk_pool2d_desc *pool, const lk_dropout_desc *dropout,
                                   const lk_tensor *dy, const uint8_t *index, lk_tensor *dx)
{
    pooling p = pooling_of(pool, dx->shape, dy->shape, dy, dx);
    p.scale = dropout ? lk__dropout_desc_scale(dropout) : 1.0f;
    p.index_src = index;
    if (tiles(&p.pool.h, p.in.h, p.out.h) && tiles(&p.pool.w, p.in.w, p.out.w))
        run(dev, p, p.out.n * p.out.h, row_cost(&p), tile_row);
    else
        run(dev, p, p.in.n * p.in.h, p.in.w * p.in.c, gather_row);
}

/* Taps of a window that count in a mean, along one axis: those in the input and its padding. */
static size_t counted(const lk_window *w, size_t out, size_t size)
{
    return lk__size_min(w->kernel, size + 2 * w->pad - out * w->stride);
}

/* n channels of one output pixel; x is its sample from channel i on. */
static inline v_f32 mean(const pooling *p, const float *x, inner wy, inner wx, v_f32 size, size_t n)
{
    size_t c = p->in.c, row = p->in.w * c;
    v_f32 sum = v_zero();
    for (size_t ky = wy.begin; ky < wy.end; ky++)
        for (size_t kx = wx.begin; kx < wx.end; kx++)
            sum = v_add(sum, v_load_some(x + coordinate(wy, ky) * row + coordinate(wx, kx) * c, n));
    return v_div(sum, size);
}

static void mean_row(const pooling *p, size_t row)
{
    size_t c = p->in.c, oy = row % p->out.h;
    const float *x = p->src + row / p->out.h * lk__shape_sample(p->in);
    inner wy = inner_of(&p->pool.h, oy, p->in.h);
    for (size_t ox = 0; ox < p->out.w; ox++) {
        inner wx = inner_of(&p->pool.w, ox, p->in.w);
        v_f32 size = v_set1((float)(counted(&p->pool.h, oy, p->in.h) * counted(&p->pool.w, ox, p->in.w)));
        float *y = p->dst + (row * p->out.w + ox) * c;
        size_t i = 0;
        for (; i + V <= c; i += V)
            v_store(y + i, mean(p, x + i, wy, wx, size, V));
        if (i < c)
            v_store_n(y + i, mean(p, x + i, wy, wx, size, c - i), c - i);
    }
}

void LK_KERNEL(avgpool_forward)(lk_device *dev, const lk_pool2d_desc *pool, const lk_tensor *x, lk_tensor *y)
{
    pooling p = pooling_of(pool, x->shape, y->shape, x, y);
    run(dev, p, p.out.n * p.out.h, row_cost(&p), mean_row);
}

/* Moves a range of windows, without dilation, to those that contain input coordinate `at`, along one axis. The range
 * was that of a lower coordinate, or is empty at 0. */
static void move_windows(const lk_window *w, size_t at, size_t outs, lk_chunk_range *over)
{
    size_t padded = at + w->pad;
    while (over->begin * w->stride + w->kernel <= padded)
        over->begin++;
    while (over->end < outs && over->end * w->stride <= padded)
        over->end++;
}

/* n channels of one input pixel; dy is its sample from channel i on. */
static inline v_f32 mean_grad(const pooling *p, const float *dy, lk_chunk_range over_y, lk_chunk_range over_x, size_t n)
{
    v_f32 sum = v_zero();
    for (size_t oy = over_y.begin; oy < over_y.end; oy++) {
        size_t rows = counted(&p->pool.h, oy, p->in.h);
        for (size_t ox = over_x.begin; ox < over_x.end; ox++) {
            v_f32 size = v_set1((float)(rows * counted(&p->pool.w, ox, p->in.w)));
            sum = v_add(sum, v_div(v_load_some(dy + (oy * p->out.w + ox) * p->in.c, n), size));
        }
    }
    return sum;
}

/* Input rows are counted over all samples. */
static void mean_grad_row(const pooling *p, size_t row)
{
    size_t c = p->in.c;
    const float *dy = p->src + row / p->in.h * lk__shape_sample(p->out);
    lk_chunk_range over_y = {0, 0}, over_x = {0, 0};
    move_windows(&p->pool.h, row % p->in.h, p->out.h, &over_y);
    for (size_t x = 0; x < p->in.w; x++) {
        float *dx = p->dst + (row * p->in.w + x) * c;
        lk_chunk_range last = over_x;
        size_t i = 0;
        move_windows(&p->pool.w, x, p->out.w, &over_x);
        /* Neighbours under the same windows have the same gradient. */
        bool same = x > 0 && last.begin == over_x.begin && last.end == over_x.end;
        for (; i + V <= c; i += V)
            v_store(dx + i, same ? v_load(dx + i - c) : mean_grad(p, dy + i, over_y, over_x, V));
        if (i < c)
            v_store_n(dx + i, same ? v_load_n(dx + i - c, c - i) : mean_grad(p, dy + i, over_y, over_x, c - i), c - i);
    }
}

void LK_KERNEL(avgpool_grad_input)(lk_device *dev, const lk_pool2d_desc *pool, const lk_tensor *dy, lk_tensor *dx)
{
    pooling p = pooling_of(pool, dx->shape, dy->shape, dy, dx);
    run(dev, p, p.in.n * p.in.h, p.in.w * p.in.c, mean_grad_row);
}

/* n channels of a sample's average: one chain over its pixels. */
static inline v_f32 average(const float *x, size_t c, size_t pixels, size_t n)
{
    v_f32 sum = v_zero();
    for (size_t k = 0; k < pixels; k++)
        sum = v_add(sum, v_load_some(x + k * c, n));
    return v_div(sum, v_set1((float)pixels));
}

static void average_sample(const pooling *p, size_t sample)
{
    size_t c = p->in.c, pixels = p->in.h * p->in.w, i = 0;
    const float *x = p->src + sample * c * pixels;
    float *y = p->dst + sample * c;
    for (; i + V <= c; i += V)
        v_store(y + i, average(x + i, c, pixels, V));
    if (i < c)
        v_store_n(y + i, average(x + i, c, pixels, c - i), c - i);
}

void LK_KERNEL(global_avgpool_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    pooling p = {.in = x->shape, .out = y->shape, .src = lk__tensor_f32(x), .dst = lk__tensor_f32(y)};
    run(dev, p, p.in.n, lk__shape_sample(p.in), average_sample);
}

static void spread_sample(const pooling *p, size_t sample)
{
    size_t c = p->in.c, pixels = p->in.h * p->in.w;
    v_f32 count = v_set1((float)pixels);
    const float *dy = p->src + sample * c;
    float *dx = p->dst + sample * c * pixels;
    for (size_t i = 0; i < c; i += V) {
        size_t lanes = lk__size_min(V, c - i);
        v_store_n(dx + i, v_div(v_load_some(dy + i, lanes), count), lanes);
    }
    for (size_t k = 1; k < pixels; k++)
        memcpy(dx + k * c, dx, c * sizeof *dx);
}

void LK_KERNEL(global_avgpool_grad_input)(lk_device *dev, const lk_tensor *dy, lk_tensor *dx)
{
    pooling p = {.in = dx->shape, .out = dy->shape, .src = lk__tensor_f32(dy), .dst = lk__tensor_f32(dx)};
    run(dev, p, p.in.n, lk__shape_sample(p.in), spread_sample);
}

/* n channels of a sample's maximum. Pixel numbers are below 2^24, exact as floats. */
static void largest_lanes(const float *x, size_t c, size_t pixels, size_t n, float *y, int32_t *pixel)
{
    v_f32 best = v_load_some(x, n), at = v_zero(), here = v_zero(), one = v_set1(1.0f);
    for (size_t k = 1; k < pixels; k++) {
        v_f32 value = v_load_some(x + k * c, n);
        v_mask tops = v_tops(value, best);
        here = v_add(here, one);
        best = v_select(tops, value, best);
        at = v_select(tops, here, at);
    }
    v_store_some(y, best, n);
    v_store_some((float *)(void *)pixel, at, n);
    for (size_t i = 0; i < n; i++) {
        float number;
        memcpy(&number, &pixel[i], sizeof number);
        pixel[i] = (int32_t)number;
    }
}

static void largest_sample(const pooling *p, size_t sample)
{
    size_t c = p->in.c, pixels = p->in.h * p->in.w;
    const float *x = p->src + sample * c * pixels;
    for (size_t i = 0; i < c; i += V)
        largest_lanes(x + i, c, pixels, lk__size_min(V, c - i), p->dst + sample * c + i, p->pixel + sample * c + i);
}

void LK_KERNEL(global_maxpool_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y, int32_t *index)
{
    pooling p = {.in = x->shape, .out = y->shape, .src = lk__tensor_f32(x), .dst = lk__tensor_f32(y), .pixel = index};
    run(dev, p, p.in.n, lk__shape_sample(p.in), largest_sample);
}

static void place_sample(const pooling *p, size_t sample)
{
    size_t c = p->in.c, pixels = p->in.h * p->in.w;
    float *dx = p->dst + sample * c * pixels;
    zero(dx, c * pixels);
    for (size_t i = 0; i < c; i++)
        dx[(size_t)p->pixel_src[sample * c + i] * c + i] = p->src[sample * c + i];
}

void LK_KERNEL(global_maxpool_grad_input)(lk_device *dev, const lk_tensor *dy, const int32_t *index, lk_tensor *dx)
{
    pooling p = {
        .in = dx->shape, .out = dy->shape, .src = lk__tensor_f32(dy), .dst = lk__tensor_f32(dx), .pixel_src = index};
    run(dev, p, p.in.n, lk__shape_sample(p.in), place_sample);
}
