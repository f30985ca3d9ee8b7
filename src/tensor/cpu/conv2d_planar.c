/* conv2d_planar.c - convolutions that compute few channels; see conv2d_planar.h. */
#include "tensor/cpu/conv2d_planar.h"

/* Channels and vectors of a tile, at most. */
enum { MOST_COLS = 8, MOST_VECTORS = 4, BLOCK_ROWS = V > MOST_COLS ? V : MOST_COLS };

/* A tile: all channels of some vectors of pixels. */
typedef struct planar_tile {
    const float *a[MOST_VECTORS];
    size_t out[MOST_VECTORS];    /* where its pixels begin, in floats of C */
    size_t pixels[MOST_VECTORS]; /* 0: there is no such vector, or it is a copy of another one */
    float *sums;                 // (cols, vectors, V) of the blocks so far
    float *block;                // (BLOCK_ROWS, V) two vectors that are stored
} planar_tile;

typedef void (*tile_fn)(const lk_gemm *gemm, const uint32_t *offsets, const planar_tile *tile);

/* Terms of the block of the sum that begins with term `at`. */
static size_t block_terms(const lk_gemm *gemm, size_t at)
{
    if (gemm->len > LK_SUM_BLOCK)
        return lk__size_min(gemm->len - at % gemm->len, LK_SUM_BLOCK);
    return lk__size_min(lk__gemm_depth(gemm) - at, LK_SUM_BLOCK / gemm->len * gemm->len);
}

/* Adds the terms [at, end). */
LK_INLINE void add_terms(const lk_gemm *gemm, const uint32_t *offsets, const planar_tile *tile, size_t at, size_t end,
                         v_f32 (*acc)[MOST_VECTORS], int mr, int nv)
{
    const float *a[MOST_VECTORS], *w = gemm->panels + at * V;
    LK_UNROLL for (int v = 0; v < nv; v++) a[v] = tile->a[v];
    for (; at < end; at++, w += V) {
        v_f32 x[MOST_VECTORS];
        LK_UNROLL for (int v = 0; v < nv; v++) x[v] = v_load(a[v] + offsets[at]);
        LK_UNROLL for (int i = 0; i < mr; i++)
        {
            v_f32 weight = v_set1(w[i]);
            LK_UNROLL for (int v = 0; v < nv; v++) acc[i][v] = v_fma(weight, x[v], acc[i][v]);
        }
    }
}

/* Stores vector v of a tile, whose pixels begin at `turned`. */
LK_INLINE void store_pixels(const lk_gemm *gemm, const planar_tile *tile, int v, const float *turned)
{
    size_t step = gemm->c_x, cols = gemm->cols, out = tile->out[v];
    float *c = gemm->c + out;
    const float *mask = gemm->mask ? gemm->mask + out : NULL;
    for (size_t i = tile->pixels[v]; i > 0; i--, turned += V, c += step) {
        v_f32 value = v_load_n(turned, cols);
        if (mask) {
            value = v_relu_grad(v_load_n(mask, cols), value);
            mask += step;
        }
        v_store_n(c, value, cols);
    }
}

/* Stores vectors v and v + 1, whose channels are in the lower and the upper half of the block. */
static void store_pair(const lk_gemm *gemm, const planar_tile *tile, int v)
{
    float turned[V * V];
    v_transpose(tile->block, V, turned, V);
    store_pixels(gemm, tile, v, turned);
    store_pixels(gemm, tile, v + 1, turned + V / 2);
}

LK_INLINE void sum_tile(const lk_gemm *gemm, const uint32_t *offsets, const planar_tile *tile, int mr, int nv)
{
    v_f32 acc[MOST_COLS][MOST_VECTORS];
    size_t depth = lk__gemm_depth(gemm), at = 0;
    do {
        size_t end = at + block_terms(gemm, at);
        LK_UNROLL for (int i = 0; i < mr; i++)
        {
            v_f32 first = at == 0 ? v_set1(gemm->start[i]) : v_zero();
            LK_UNROLL for (int v = 0; v < nv; v++) acc[i][v] = first;
        }
        add_terms(gemm, offsets, tile, at, end, acc, mr, nv);
        if (at > 0) {
            LK_UNROLL for (int i = 0; i < mr * nv; i++) acc[i / nv][i % nv] =
                v_add(v_load(tile->sums + i * V), acc[i / nv][i % nv]);
        }
        if (end < depth) {
            LK_UNROLL for (int i = 0; i < mr * nv; i++) v_store(tile->sums + i * V, acc[i / nv][i % nv]);
        }
        at = end;
    } while (at < depth);
    LK_UNROLL for (int v = 0; v < nv; v++)
    {
        float *half = tile->block + v % 2 * (V / 2 * V);
        LK_UNROLL for (int i = 0; i < mr; i++) v_store(half + i * V, gemm->relu ? v_relu(acc[i][v]) : acc[i][v]);
        if (v % 2 == 1 || v == nv - 1)
            store_pair(gemm, tile, v / 2 * 2);
    }
}

/* Instances, by channels and vectors; LK_PLANAR_COLS is the most channels. */
#if defined(LK_VEC_AVX512)
#define PLANAR_SIZES(X) X(2, 4) X(4, 4) X(6, 4) X(8, 3)
#elif defined(LK_VEC_AVX2)
#define PLANAR_SIZES(X) X(2, 4) X(4, 3)
#else
#define PLANAR_SIZES(X) X(2, 4)
#endif

#define PLANAR(mr, nv)                                                                                 \
    static void sum_##mr##x##nv(const lk_gemm *gemm, const uint32_t *offsets, const planar_tile *tile) \
    {                                                                                                  \
        sum_tile(gemm, offsets, tile, mr, nv);                                                         \
    }
PLANAR_SIZES(PLANAR)
#undef PLANAR

static const struct {
    size_t cols, vectors;
    tile_fn fn;
} table[] = {
#define ENTRY(mr, nv) {mr, nv, sum_##mr##x##nv},
    PLANAR_SIZES(ENTRY)
#undef ENTRY
};

void lk__planar_gemm(const lk_gemm *gemm, const uint32_t *offsets)
{
    float sums[MOST_COLS * MOST_VECTORS * V], block[BLOCK_ROWS * V] = {0};
    planar_tile tile = {.sums = sums, .block = block};
    size_t size = 0, x = 0, y = 0;
    while (table[size].cols < gemm->cols)
        size++;
    while (y < gemm->ny) {
        for (size_t v = 0; v < table[size].vectors; v++) {
            bool more = y < gemm->ny;
            tile.a[v] = more ? gemm->a + y * gemm->a_y + x : tile.a[0];
            tile.out[v] = y * gemm->c_y + x * gemm->c_x;
            tile.pixels[v] = more ? lk__size_min(gemm->nx - x, V) : 0;
            x += V;
            if (x >= gemm->nx) {
                x = 0;
                y++;
            }
        }
        table[size].fn(gemm, offsets, &tile);
    }
}

void lk__planar_offsets(const lk_gemm *gemm, size_t channels, size_t width, uint32_t *offsets)
{
    size_t gap = gemm->run_x / channels;
    for (size_t run = 0; run < gemm->runs_y * gemm->runs_x; run++) {
        size_t at = run / gemm->runs_x * gemm->run_y + run % gemm->runs_x * gap;
        for (size_t i = 0; i < gemm->len; i++)
            *offsets++ = (uint32_t)(at + i / channels + i % channels * width);
    }
}

/* Copies `count` pixels of an image, `pixel` floats apart, to rows of channels that are `width` floats apart. */
static void copy_pixels(const float *src, size_t pixel, size_t channels, size_t count, float *dst, size_t width)
{
    size_t whole = channels / V * V, x = 0;
    if (pixel == 1) {
        memcpy(dst, src, count * sizeof *dst);
        return;
    }
    for (; x + V <= count; x += V) {
        for (size_t c = 0; c < whole; c += V)
            v_transpose(src + x * pixel + c, pixel, dst + c * width + x, width);
        for (size_t c = whole; c < channels; c++) {
            for (size_t i = x; i < x + V; i++)
                dst[c * width + i] = src[i * pixel + c];
        }
    }
    for (; x < count; x++) {
        for (size_t c = 0; c < channels; c++)
            dst[c * width + x] = src[x * pixel + c];
    }
}

lk_box_window lk__planar_box(const float *image, lk_shape shape, lk_box box, float *buffer)
{
    size_t row = box.w * box.channels;
    ptrdiff_t end = box.x + (ptrdiff_t)box.w, width = (ptrdiff_t)shape.w;
    size_t x0 = (size_t)(box.x < 0 ? -box.x : 0), x1 = box.w - (size_t)(end > width ? end - width : 0);
    memset(buffer + box.h * row, 0, LK_PLANAR_SLACK * sizeof *buffer);
    for (size_t y = 0; y < box.h; y++) {
        float *dst = buffer + y * row;
        ptrdiff_t from = box.y + (ptrdiff_t)y;
        if (box.x < 0 || end > width || from < 0 || from >= (ptrdiff_t)shape.h)
            memset(dst, 0, row * sizeof *dst);
        if (from < 0 || from >= (ptrdiff_t)shape.h || x0 >= x1)
            continue;
        size_t at = (size_t)from * shape.w + (size_t)(box.x + (ptrdiff_t)x0);
        copy_pixels(image + at * shape.c + box.first, shape.c, box.channels, x1 - x0, dst + x0, box.w);
    }
    return (lk_box_window){buffer, row};
}
