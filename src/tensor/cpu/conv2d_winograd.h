/* conv2d_winograd.h - Winograd's convolution for 3x3 windows with stride 1: the transforms along one axis, and the
 * calls of its passes.
 *
 * A tile of m by m outputs reads a patch of m + 2 by m + 2 pixels. With polynomial interpolation at m + 2 points the
 * tile takes (m + 2)^2 products for each pair of channels instead of 9 m^2: 16 instead of 36 with m = 2, 36 instead of
 * 144 with m = 4. The points are 0, 1, -1 and infinity with m = 2, and 0, 5/8, -5/8, 3/2, -3/2 and infinity with m = 4:
 * of the points whose powers are exact, these had the smallest errors in measurements (docs/performance.md).
 *
 * Each transform is a fixed sequence of operations, so the bits depend on the layer's shape alone; those of dw also on
 * the samples of the step's largest shard. */
#ifndef LK_TENSOR_CPU_CONV2D_WINOGRAD_H
#define LK_TENSOR_CPU_CONV2D_WINOGRAD_H

#include "tensor/cpu/conv2d.h"
#include "tensor/cpu/division.h"
#include "tensor/cpu/gemm.h"

/* The side of the largest patch, and the floats between planes of a point each: planes whose distance is a power of two
 * would share few lines of the cache. */
enum { LK_WINOGRAD_SIDE = 6, LK_WINOGRAD_SKEW = LK_ALIGN / sizeof(float) };

/* Terms of a block of the sums over input channels (sums.h). With 32 instead of LK_SUM_BLOCK the errors of 4x4 tiles
 * fall to as little as a half, and a step takes at most 2 % more time (docs/performance.md). */
enum { LK_WINOGRAD_SUM_BLOCK = 32 };

/* The fewest channels with which tiles of 4 and of 2 pixels are faster than the direct convolution; with fewer the
 * transforms take longer than the products. */
enum { LK_WINOGRAD_CHANNELS_4 = 16, LK_WINOGRAD_CHANNELS_2 = 64 };

/* Pixels of at most so many channels are prefetched. */
enum { LK_WINOGRAD_FETCH_CHANNELS = 16 };

/* The cost of a weight gradient's last transform, which is done once a shard, in products for each pair of channels;
 * from measurements (docs/performance.md). */
enum { LK_WINOGRAD_LEAF_4 = 416, LK_WINOGRAD_LEAF_2 = 192 };

/* Pixels of the side of a tile: 2 or 4; 1 if the direct convolution is faster. `in` is what the pass reads and `out`
 * what it computes: x and y, for the gradient of the input dy and dx. The tile depends on the layer's shape alone, not
 * on samples, threads or the instruction set. Larger tiles save more products, but compute more pixels outside of small
 * images. */
static inline size_t lk__winograd_tile(const lk_conv2d_desc *conv, lk_shape in, lk_shape out)
{
    const lk_window *h = &conv->h, *w = &conv->w;
    size_t channels = lk__size_min(in.c, out.c), side = lk__size_min(out.h, out.w);
    bool fits = h->kernel == 3 && w->kernel == 3 && h->stride == 1 && w->stride == 1 && h->dilation == 1 &&
                w->dilation == 1 && conv->groups == 1;
    if (!fits || conv->tile != LK_CONV2D_DESC_BY_SHAPE)
        return fits && conv->tile ? conv->tile : 1;
    if (side < 2)
        return 1;
    size_t small = lk__size_round_up(out.h, 2) * lk__size_round_up(out.w, 2);
    size_t large = lk__size_round_up(out.h, 4) * lk__size_round_up(out.w, 4);
    /* A small tile has 16 products, a large one 36; large ones must gain a fifth. */
    if (channels >= LK_WINOGRAD_CHANNELS_4 && 40 * small > 27 * large)
        return 4;
    return channels < LK_WINOGRAD_CHANNELS_2 ? 1 : 2;
}

/* As lk__winograd_tile, for the gradient of the weights: the tile with the fewest products for a leaf of `most`
 * samples, which the largest shard of the step has. `most` is the same on every rank. */
static inline size_t lk__winograd_weight_tile(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t most)
{
    size_t tile = lk__winograd_tile(conv, x, y), channels = lk__size_min(x.c, y.c);
    if (tile == 1 || conv->tile != LK_CONV2D_DESC_BY_SHAPE)
        return tile;
    size_t tiles_2 = most * lk__size_divide_up(y.h, 2) * lk__size_divide_up(y.w, 2);
    size_t tiles_4 = most * lk__size_divide_up(y.h, 4) * lk__size_divide_up(y.w, 4);
    size_t direct = 9 * most * y.h * y.w, by_4 = 36 * tiles_4 + LK_WINOGRAD_LEAF_4;
    size_t by_2 = channels < LK_WINOGRAD_CHANNELS_2 ? SIZE_MAX : 16 * tiles_2 + LK_WINOGRAD_LEAF_2;
    if (by_4 < lk__size_min(by_2, direct))
        return 4;
    return by_2 < direct ? 2 : 1;
}

/* The points of the larger tile, and what the transforms multiply by. */
#define LK_WINOGRAD_A 0.625f
#define LK_WINOGRAD_B 1.5f
#define LK_WINOGRAD_A2 (LK_WINOGRAD_A * LK_WINOGRAD_A)
#define LK_WINOGRAD_B2 (LK_WINOGRAD_B * LK_WINOGRAD_B)
#define LK_WINOGRAD_A3 (LK_WINOGRAD_A2 * LK_WINOGRAD_A)
#define LK_WINOGRAD_B3 (LK_WINOGRAD_B2 * LK_WINOGRAD_B)

/* m + 2 pixels of a patch. */
LK_INLINE void lk__winograd_patch_line(int m, const v_f32 *d, v_f32 *out)
{
    if (m == 2) {
        out[0] = v_sub(d[0], d[2]);
        out[1] = v_add(d[1], d[2]);
        out[2] = v_sub(d[2], d[1]);
        out[3] = v_sub(d[3], d[1]);
        return;
    }
    v_f32 sum = v_set1(-(LK_WINOGRAD_A2 + LK_WINOGRAD_B2)), product = v_set1(LK_WINOGRAD_A2 * LK_WINOGRAD_B2);
    v_f32 a2 = v_set1(-LK_WINOGRAD_A2), b2 = v_set1(-LK_WINOGRAD_B2);
    v_f32 even_a = v_fma(b2, d[2], d[4]), odd_a = v_fma(b2, d[1], d[3]);
    v_f32 even_b = v_fma(a2, d[2], d[4]), odd_b = v_fma(a2, d[1], d[3]);
    out[0] = v_fma(product, d[0], v_fma(sum, d[2], d[4]));
    out[1] = v_fma(v_set1(LK_WINOGRAD_A), odd_a, even_a);
    out[2] = v_fma(v_set1(-LK_WINOGRAD_A), odd_a, even_a);
    out[3] = v_fma(v_set1(LK_WINOGRAD_B), odd_b, even_b);
    out[4] = v_fma(v_set1(-LK_WINOGRAD_B), odd_b, even_b);
    out[5] = v_fma(product, d[1], v_fma(sum, d[3], d[5]));
}

/* 1 / N of a point p, where N is the product of the differences from p to the other finite points. */
#define LK_WINOGRAD_SCALE_0 (1 / (LK_WINOGRAD_A2 * LK_WINOGRAD_B2))
#define LK_WINOGRAD_SCALE_A (1 / (2 * LK_WINOGRAD_A2 * (LK_WINOGRAD_A2 - LK_WINOGRAD_B2)))
#define LK_WINOGRAD_SCALE_B (1 / (2 * LK_WINOGRAD_B2 * (LK_WINOGRAD_B2 - LK_WINOGRAD_A2)))

/* 3 weights. */
LK_INLINE void lk__winograd_weight_line(int m, const v_f32 *g, v_f32 *out)
{
    if (m == 2) {
        v_f32 half = v_set1(0.5f), even = v_mul(half, v_add(g[0], g[2])), odd = v_mul(half, g[1]);
        out[0] = g[0];
        out[1] = v_add(even, odd);
        out[2] = v_sub(even, odd);
        out[3] = g[2];
        return;
    }
    v_f32 even_a = v_mul(v_set1(LK_WINOGRAD_SCALE_A), v_fma(v_set1(LK_WINOGRAD_A2), g[2], g[0]));
    v_f32 even_b = v_mul(v_set1(LK_WINOGRAD_SCALE_B), v_fma(v_set1(LK_WINOGRAD_B2), g[2], g[0]));
    const float odd_a = LK_WINOGRAD_A * LK_WINOGRAD_SCALE_A, odd_b = LK_WINOGRAD_B * LK_WINOGRAD_SCALE_B;
    out[0] = v_mul(v_set1(LK_WINOGRAD_SCALE_0), g[0]);
    out[1] = v_fma(v_set1(odd_a), g[1], even_a);
    out[2] = v_fma(v_set1(-odd_a), g[1], even_a);
    out[3] = v_fma(v_set1(odd_b), g[1], even_b);
    out[4] = v_fma(v_set1(-odd_b), g[1], even_b);
    out[5] = g[2];
}

/* Transforms V columns of a weight. Taps are `step` floats apart. */
LK_INLINE void lk__winograd_weights(int m, const float *taps, ptrdiff_t step, float *u, size_t plane)
{
    v_f32 rows[LK_WINOGRAD_SIDE][3], line[3], out[LK_WINOGRAD_SIDE];
    const int side = m + 2;
    LK_UNROLL for (int x = 0; x < 3; x++)
    {
        LK_UNROLL for (int y = 0; y < 3; y++) line[y] = v_load(taps + (y * 3 + x) * step);
        lk__winograd_weight_line(m, line, out);
        LK_UNROLL for (int y = 0; y < side; y++) rows[y][x] = out[y];
    }
    LK_UNROLL for (int y = 0; y < side; y++)
    {
        lk__winograd_weight_line(m, rows[y], out);
        LK_UNROLL for (int x = 0; x < side; x++) v_store(u + (size_t)(y * side + x) * plane, out[x]);
    }
}

/* m + 2 products; gives m outputs. */
LK_INLINE void lk__winograd_output_line(int m, const v_f32 *p, v_f32 *out)
{
    v_f32 even = v_add(p[1], p[2]), odd = v_sub(p[1], p[2]);
    if (m == 2) {
        out[0] = v_add(p[0], even);
        out[1] = v_add(odd, p[3]);
        return;
    }
    v_f32 even_b = v_add(p[3], p[4]), odd_b = v_sub(p[3], p[4]);
    out[0] = v_add(v_add(p[0], even), even_b);
    out[1] = v_fma(v_set1(LK_WINOGRAD_B), odd_b, v_mul(v_set1(LK_WINOGRAD_A), odd));
    out[2] = v_fma(v_set1(LK_WINOGRAD_B2), even_b, v_mul(v_set1(LK_WINOGRAD_A2), even));
    out[3] = v_fma(v_set1(LK_WINOGRAD_B3), odd_b, v_fma(v_set1(LK_WINOGRAD_A3), odd, p[5]));
}

/* m elements of a tile of dy: the transpose of lk__winograd_output_line. */
LK_INLINE void lk__winograd_gradient_line(int m, const v_f32 *dy, v_f32 *out)
{
    if (m == 2) {
        out[0] = dy[0];
        out[1] = v_add(dy[0], dy[1]);
        out[2] = v_sub(dy[0], dy[1]);
        out[3] = dy[1];
        return;
    }
    v_f32 even_a = v_fma(v_set1(LK_WINOGRAD_A2), dy[2], dy[0]), odd_a = v_fma(v_set1(LK_WINOGRAD_A2), dy[3], dy[1]);
    v_f32 even_b = v_fma(v_set1(LK_WINOGRAD_B2), dy[2], dy[0]), odd_b = v_fma(v_set1(LK_WINOGRAD_B2), dy[3], dy[1]);
    out[0] = dy[0];
    out[1] = v_fma(v_set1(LK_WINOGRAD_A), odd_a, even_a);
    out[2] = v_fma(v_set1(-LK_WINOGRAD_A), odd_a, even_a);
    out[3] = v_fma(v_set1(LK_WINOGRAD_B), odd_b, even_b);
    out[4] = v_fma(v_set1(-LK_WINOGRAD_B), odd_b, even_b);
    out[5] = dy[3];
}

/* m + 2 sums of products; gives the gradients of 3 weights: the transpose of lk__winograd_weight_line. */
LK_INLINE void lk__winograd_sum_line(int m, const v_f32 *p, v_f32 *out)
{
    v_f32 even = v_add(p[1], p[2]), odd = v_sub(p[1], p[2]);
    if (m == 2) {
        v_f32 half = v_set1(0.5f);
        out[0] = v_fma(half, even, p[0]);
        out[1] = v_mul(half, odd);
        out[2] = v_fma(half, even, p[3]);
        return;
    }
    v_f32 even_a = v_mul(v_set1(LK_WINOGRAD_SCALE_A), even), odd_a = v_mul(v_set1(LK_WINOGRAD_SCALE_A), odd);
    v_f32 even_b = v_mul(v_set1(LK_WINOGRAD_SCALE_B), v_add(p[3], p[4]));
    v_f32 odd_b = v_mul(v_set1(LK_WINOGRAD_SCALE_B), v_sub(p[3], p[4]));
    out[0] = v_fma(v_set1(LK_WINOGRAD_SCALE_0), p[0], v_add(even_a, even_b));
    out[1] = v_fma(v_set1(LK_WINOGRAD_B), odd_b, v_mul(v_set1(LK_WINOGRAD_A), odd_a));
    out[2] = v_fma(v_set1(LK_WINOGRAD_B2), even_b, v_fma(v_set1(LK_WINOGRAD_A2), even_a, p[5]));
}

/* Where a tile begins in the result: a pixel of a sample. */
typedef struct lk_winograd_place {
    size_t sample, y, x;
} lk_winograd_place;

/* The place of a tile; a sample has `down` rows of `across` tiles. */
LK_INLINE lk_winograd_place lk__winograd_place(size_t tile, size_t down, size_t across, size_t index)
{
    size_t row = index / across;
    return (lk_winograd_place){row / down, row % down * tile, index % across * tile};
}

/* Moves a place to the next tile; `out` is the shape of the result. */
LK_INLINE void lk__winograd_next(size_t tile, lk_shape out, lk_winograd_place *place)
{
    place->x += tile;
    if (place->x < out.w)
        return;
    place->x = 0;
    place->y += tile;
    if (place->y < out.h)
        return;
    place->y = 0;
    place->sample++;
}

/* Prefetches m by m pixels, `below` rows below a place: what a tile of the next row of tiles reads or writes. Rows of
 * few channels are shorter than what hardware prefetches well. */
LK_INLINE void lk__winograd_fetch(int m, const float *image, lk_shape shape, lk_winograd_place at, int below,
                                  bool write)
{
    size_t row = at.sample * shape.h + at.y + (size_t)below;
    if (shape.c > LK_WINOGRAD_FETCH_CHANNELS || row + (size_t)m > shape.n * shape.h)
        return;
    const float *from = image + (row * shape.w + at.x) * shape.c;
    for (int y = 0; y < m; y++, from += shape.w * shape.c) {
        for (size_t i = 0; i < (size_t)m * shape.c; i += LK_ALIGN / sizeof(float))
            write ? __builtin_prefetch(from + i, 1, 2) : __builtin_prefetch(from + i, 0, 2);
    }
}

/* A square of pixels of an image. Columns [left, right) are in the image; the others are zero. */
typedef struct lk_winograd_square {
    const float *rows[LK_WINOGRAD_SIDE]; /* at column `left`; rows that are not in the image point to zeros */
    size_t left, right;
    size_t pixel; /* floats of a pixel */
    bool inside;  /* all pixels are in the image */
} lk_winograd_square;

/* The square of side * side pixels at (y, x) of a sample of an image, from channel `first` on. `zeros` has room for the
 * channels of `side` pixels. */
LK_INLINE lk_winograd_square lk__winograd_square(const float *image, lk_shape shape, size_t sample, ptrdiff_t y,
                                                 ptrdiff_t x, size_t first, int side, const float *zeros)
{
    ptrdiff_t h = (ptrdiff_t)shape.h, w = (ptrdiff_t)shape.w;
    size_t row = shape.w * shape.c, at = (sample * shape.h + (size_t)y) * row + first;
    lk_winograd_square to = {.right = (size_t)side, .pixel = shape.c};
    to.inside = y >= 0 && y + side <= h && x >= 0 && x + side <= w;
    if (to.inside) {
        LK_UNROLL for (int i = 0; i < side; i++, at += row) to.rows[i] = image + at + (size_t)x * shape.c;
        return to;
    }
    to.left = x < 0 ? (size_t)-x : 0;
    to.right = x + side <= w ? (size_t)side : w <= x ? 0 : (size_t)(w - x);
    if (x > 0)
        at += (size_t)x * shape.c;
    LK_UNROLL for (int i = 0; i < side; i++, at += row) to.rows[i] = y + i >= 0 && y + i < h ? image + at : zeros;
    return to;
}

/* Loads column x of a square of side * side pixels: V channels, of which `lanes` exist. whole: all of them exist;
 * inside: all pixels are in the image. `at` is the channel of column 0, and moves on with each column in the image. */
LK_INLINE void lk__winograd_column(bool whole, bool inside, const lk_winograd_square *square, int x, size_t lanes,
                                   int side, size_t *at, v_f32 *line)
{
    if (!inside && ((size_t)x < square->left || (size_t)x >= square->right)) {
        LK_UNROLL for (int y = 0; y < side; y++) line[y] = v_zero();
        return;
    }
    LK_UNROLL for (int y = 0; y < side; y++)
    {
        const float *from = square->rows[y] + *at;
        line[y] = whole ? v_load(from) : v_load_n(from, lanes);
    }
    *at += square->pixel;
}

/* Transforms V channels of a patch, of which `lanes` exist, from `channel` on. whole, inside: as above. */
LK_INLINE void lk__winograd_patch(int m, bool whole, bool inside, const lk_winograd_square *square, size_t channel,
                                  size_t lanes, float *v, size_t plane)
{
    v_f32 rows[LK_WINOGRAD_SIDE][LK_WINOGRAD_SIDE], line[LK_WINOGRAD_SIDE], out[LK_WINOGRAD_SIDE];
    const int side = m + 2;
    size_t at = channel;
    LK_UNROLL for (int x = 0; x < side; x++)
    {
        lk__winograd_column(whole, inside, square, x, lanes, side, &at, line);
        lk__winograd_patch_line(m, line, out);
        LK_UNROLL for (int y = 0; y < side; y++) rows[y][x] = out[y];
    }
    LK_UNROLL for (int y = 0; y < side; y++)
    {
        lk__winograd_patch_line(m, rows[y], out);
        LK_UNROLL for (int x = 0; x < side; x++) v_store(v + (size_t)(y * side + x) * plane, out[x]);
    }
}

/* Transforms `channels` channels of a patch from `first` on, which follow each other in v. */
LK_INLINE void lk__winograd_patch_run(int m, const lk_winograd_square *square, size_t first, size_t channels, float *v,
                                      size_t plane)
{
    size_t end = first + channels;
    for (; end - first >= V; first += V, v += V) {
        if (square->inside)
            lk__winograd_patch(m, true, true, square, first, V, v, plane);
        else
            lk__winograd_patch(m, true, false, square, first, V, v, plane);
    }
    if (first < end)
        lk__winograd_patch(m, false, false, square, first, end - first, v, plane);
}

/* Floats of scratch for as many samples as `out` has, or fewer: of the forward pass, and of the input's gradient, where
 * in and out change places. */
#define lk__winograd_floats LK_KERNEL(winograd_floats)
size_t lk__winograd_floats(size_t tile, lk_shape in, lk_shape out, size_t threads);
#define lk__winograd_forward LK_KERNEL(winograd_forward)
__typeof__(*((const lk_kernels *)0)->conv2d_forward) lk__winograd_forward;
#define lk__winograd_grad_input LK_KERNEL(winograd_grad_input)
__typeof__(*((const lk_kernels *)0)->conv2d_grad_input) lk__winograd_grad_input;
#define lk__winograd_weight_floats LK_KERNEL(winograd_weight_floats)
size_t lk__winograd_weight_floats(size_t tile, lk_shape x, lk_shape y, const lk_division *division);

/* Writes dw with the tile of lk__winograd_weight_tile. */
#define lk__winograd_grad_weight LK_KERNEL(winograd_grad_weight)
void lk__winograd_grad_weight(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const lk_tensor *dy,
                              const lk_division *division, void *scratch);

#endif
