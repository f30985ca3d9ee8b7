/* bf16.c - products of bf16 matrices on vectors of fp32, rounding to bf16, and rows of windows. */
#include "tensor/cpu/bf16_layer.h"
#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"

/* Rows of a register tile: each has two accumulators. */
#if defined(LK_VEC_AVX512) || defined(LK_VEC_NEON)
enum { ROWS = 8 };
#else
enum { ROWS = 4 };
#endif
_Static_assert(LK_BF16_SIDE % ROWS == 0 && LK_BF16_SIDE % V == 0, "tiles are whole vectors and whole rows");

/* Blocks of A that are floats at once, and stay in the first-level cache. */
enum { BLOCKS = 16, TERMS = BLOCKS * LK_BF16_BLOCK };

/* to (ROWS, TERMS) = the factors of the first `count` terms of ROWS rows. */
static void expand(const uint16_t *a, size_t a_row, size_t count, float *to)
{
    for (size_t i = 0; i < ROWS; i++, a += a_row, to += TERMS) {
        for (size_t k = 0; k < count; k += V)
            v_store(to + k, v_from_bits(vu_shl16(vu_load16(a + k))));
    }
}

/* Adds the first `pairs` pairs of a block to ROWS rows and V columns of C, or replaces them if `first`. */
LK_INLINE void add_block(const float *a, const uint32_t *b, size_t pairs, bool first, float *c, size_t c_row)
{
    v_f32 even[ROWS], odd[ROWS];
    LK_UNROLL for (int i = 0; i < ROWS; i++) even[i] = odd[i] = v_zero();
    for (; pairs > 0; pairs--, b += LK_BF16_SIDE, a += 2) {
        v_u32 factors = vu_load(b);
        v_f32 b_even = v_from_bits(vu_shl16(factors)), b_odd = v_from_bits(vu_and(factors, vu_set1(0xffff0000u)));
        LK_UNROLL for (int i = 0; i < ROWS; i++)
        {
            even[i] = v_fma(v_set1(a[i * TERMS]), b_even, even[i]);
            odd[i] = v_fma(v_set1(a[i * TERMS + 1]), b_odd, odd[i]);
        }
    }
    LK_UNROLL for (int i = 0; i < ROWS; i++)
    {
        v_f32 sum = v_add(even[i], odd[i]);
        float *to = c + (size_t)i * c_row;
        v_store(to, first ? sum : v_add(v_load(to), sum));
    }
}

/* Adds blocks [block, end), which a has as floats, to ROWS rows and all columns of C. */
static void add_blocks(const lk_bf16_product *p, const float *a, size_t block, size_t end, float *c)
{
    bool first = block == 0 && !p->add;
    for (size_t col = 0; col < p->cols; col += V) {
        const uint32_t *b = p->b + col / LK_BF16_SIDE * p->b_panel + col % LK_BF16_SIDE;
        for (size_t i = block; i < end; i++) {
            size_t pairs = i + 1 < p->blocks ? LK_BF16_PAIRS : p->last;
            add_block(a + (i - block) * LK_BF16_BLOCK, b + i * LK_BF16_PAIRS * LK_BF16_SIDE, pairs, first && i == block,
                      c + col, p->c_row);
        }
    }
}

void LK_KERNEL(bf16_multiply)(const lk_bf16_product *product)
{
    float a[ROWS * TERMS];
    for (size_t row = 0; row < product->rows; row += ROWS) {
        float *c = product->c + row * product->c_row;
        for (size_t i = 0; product->blocks == 0 && !product->add && i < ROWS; i++)
            memset(c + i * product->c_row, 0, product->cols * sizeof *c);
        for (size_t block = 0; block < product->blocks; block += BLOCKS) {
            size_t end = lk__size_min(product->blocks, block + BLOCKS), count = (end - block) * LK_BF16_BLOCK;
            expand(product->a + row * product->a_row + block * LK_BF16_BLOCK, product->a_row, count, a);
            add_blocks(product, a, block, end, c);
        }
    }
}

typedef struct round_job {
    size_t count;
    const float *from;
    uint16_t *to;
} round_job;

static void round_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const round_job *job = arg;
    lk_chunk_range range = lk__chunk(job->count, LK_CHUNK, index);
    size_t i = range.begin;
    for (; i + V <= range.end; i += V)
        vu_store16(job->to + i, lk__bf16_bits(v_load(job->from + i)));
    if (i < range.end) {
        uint16_t rest[V];
        vu_store16(rest, lk__bf16_bits(v_load_n(job->from + i, range.end - i)));
        memcpy(job->to + i, rest, (range.end - i) * sizeof *rest);
    }
}

void lk__bf16_round(lk_device *dev, const float *from, size_t count, uint16_t *to)
{
    round_job job = {count, from, to};
    lk__chunk_run(dev, count, round_task, &job);
}

/* Elements that are copied at once, without a loop. */
enum { PIECE = 32 };

static void copy_elements(const uint16_t *from, size_t count, uint16_t *to)
{
    for (; count >= PIECE; count -= PIECE, from += PIECE, to += PIECE)
        memcpy(to, from, PIECE * sizeof *to);
    if (count > 0)
        memcpy(to, from, count * sizeof *to);
}

/* Copies elements [at, at + count) of a row of `size` elements; those outside of it are 0. */
static void copy_clipped(const uint16_t *row, ptrdiff_t at, size_t count, size_t size, uint16_t *to)
{
    if (at >= 0 && (size_t)at + count <= size) {
        copy_elements(row + at, count, to);
        return;
    }
    size_t before = at < 0 ? lk__size_min((size_t)-at, count) : 0;
    size_t from = at < 0 ? 0 : (size_t)at, left = from < size ? size - from : 0;
    size_t inside = lk__size_min(count - before, left);
    memset(to, 0, before * sizeof *to);
    memcpy(to + before, row + from, inside * sizeof *to);
    memset(to + before + inside, 0, (count - before - inside) * sizeof *to);
}

/* A run of elements of a window: it begins dy rows and dx pixels after the window's first pixel, and `at` elements
 * after that. */
typedef struct window_run {
    size_t dy, dx, at, count;
} window_run;

/* Copies a run of `rows` windows, from window (sample, y, x) on. */
static void copy_runs(const lk_bf16_windows *windows, const window_run *run, size_t sample, size_t y, size_t x,
                      size_t rows, uint16_t *to, size_t to_row)
{
    lk_shape shape = windows->shape;
    const uint16_t *image = windows->images + sample * lk__shape_sample(shape);
    for (; rows > 0; rows--, to += to_row) {
        ptrdiff_t pixel_y = windows->y.first + (ptrdiff_t)(y * windows->y.step + run->dy);
        ptrdiff_t pixel_x = windows->x.first + (ptrdiff_t)(x * windows->x.step + run->dx);
        if (pixel_y < 0 || pixel_y >= (ptrdiff_t)shape.h)
            memset(to, 0, run->count * sizeof *to);
        else
            copy_clipped(image + (size_t)pixel_y * shape.w * shape.c, pixel_x * (ptrdiff_t)shape.c + (ptrdiff_t)run->at,
                         run->count, shape.w * shape.c, to);
        if (++x < windows->x.count)
            continue;
        x = 0;
        if (++y < windows->y.count)
            continue;
        y = 0;
        image += lk__shape_sample(shape);
    }
}

void lk__bf16_window_rows(const lk_bf16_windows *windows, size_t row, size_t rows, size_t begin, size_t end,
                          uint16_t *to, size_t to_row)
{
    const lk_bf16_axis *y = &windows->y, *x = &windows->x;
    if (begin == end)
        return;
    /* Neighbouring taps with all channels are one run. */
    bool together = x->gap == 1 && windows->channels == windows->shape.c;
    size_t runs = together ? 1 : x->taps, len = together ? x->taps * windows->shape.c : windows->channels;
    size_t sample = row / (y->count * x->count), at_y = row / x->count % y->count, at_x = row % x->count;
    for (size_t k = begin, number = begin / len, at = begin % len; k < end; number++, at = 0) {
        window_run run = {number / runs * y->gap, number % runs * x->gap, windows->first + at,
                          lk__size_min(len - at, end - k)};
        copy_runs(windows, &run, sample, at_y, at_x, rows, to, to_row);
        to += run.count;
        k += run.count;
    }
}
