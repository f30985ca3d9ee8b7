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

/* The factors of even and of odd terms of pairs. */
static inline v_f32 even_of(v_u32 pairs)
{
    return v_from_bits(vu_shl16(pairs));
}

static inline v_f32 odd_of(v_u32 pairs)
{
    return v_from_bits(vu_and(pairs, vu_set1(0xffff0000u)));
}

/* Adds one block to ROWS rows and V columns of C, or replaces them if `first`. */
LK_INLINE void add_block(const lk_bf16_product *p, const uint16_t *a, const uint32_t *b, bool first, float *c)
{
    v_f32 even[ROWS], odd[ROWS];
    LK_UNROLL for (int i = 0; i < ROWS; i++) even[i] = odd[i] = v_zero();
    for (size_t pair = 0; pair < LK_BF16_PAIRS; pair++, b += LK_BF16_SIDE, a += 2) {
        v_u32 factors = vu_load(b);
        v_f32 b_even = even_of(factors), b_odd = odd_of(factors);
        LK_UNROLL for (int i = 0; i < ROWS; i++)
        {
            uint32_t both;
            memcpy(&both, a + (size_t)i * p->a_row, sizeof both);
            v_u32 row = vu_set1(both);
            even[i] = v_fma(even_of(row), b_even, even[i]);
            odd[i] = v_fma(odd_of(row), b_odd, odd[i]);
        }
    }
    LK_UNROLL for (int i = 0; i < ROWS; i++)
    {
        v_f32 sum = v_add(even[i], odd[i]);
        float *to = c + (size_t)i * p->c_row;
        v_store(to, first ? sum : v_add(v_load(to), sum));
    }
}

/* Rows [row, row + ROWS) and columns [col, col + V). */
static void multiply_tile(const lk_bf16_product *p, size_t row, size_t col)
{
    const uint16_t *a = p->a + row * p->a_row;
    const uint32_t *b = p->b + col / LK_BF16_SIDE * p->b_panel + col % LK_BF16_SIDE;
    float *c = p->c + row * p->c_row + col;
    for (size_t i = 0; p->blocks == 0 && !p->add && i < ROWS; i++)
        v_store(c + i * p->c_row, v_zero());
    for (size_t block = 0; block < p->blocks; block++) {
        add_block(p, a, b, block == 0 && !p->add, c);
        a += LK_BF16_BLOCK;
        b += LK_BF16_PAIRS * LK_BF16_SIDE;
    }
}

void LK_KERNEL(bf16_multiply)(const lk_bf16_product *product)
{
    for (size_t col = 0; col < product->cols; col += V) {
        for (size_t row = 0; row < product->rows; row += ROWS)
            multiply_tile(product, row, col);
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

/* Copies elements [at, at + count) of a row of `size` elements; those outside of it are 0. */
static void copy_clipped(const uint16_t *row, ptrdiff_t at, size_t count, size_t size, uint16_t *to)
{
    size_t before = at < 0 ? lk__size_min((size_t)-at, count) : 0;
    size_t from = at < 0 ? 0 : (size_t)at, left = from < size ? size - from : 0;
    size_t inside = lk__size_min(count - before, left);
    memset(to, 0, before * sizeof *to);
    memcpy(to + before, row + from, inside * sizeof *to);
    memset(to + before + inside, 0, (count - before - inside) * sizeof *to);
}

void lk__bf16_window(const lk_bf16_windows *windows, size_t row, size_t begin, size_t end, uint16_t *to)
{
    const lk_bf16_axis *y = &windows->y, *x = &windows->x;
    lk_shape shape = windows->shape;
    size_t sample = row / (y->count * x->count), at_y = row / x->count % y->count, at_x = row % x->count;
    ptrdiff_t top = y->first + (ptrdiff_t)(at_y * y->step), left = x->first + (ptrdiff_t)(at_x * x->step);
    /* Neighbouring taps with all channels are one run. */
    bool together = x->gap == 1 && windows->channels == shape.c;
    size_t runs = together ? 1 : x->taps, len = together ? x->taps * shape.c : windows->channels;
    for (size_t k = begin, run = begin / len, at = begin % len; k < end; run++, at = 0) {
        size_t count = lk__size_min(len - at, end - k);
        ptrdiff_t pixel_y = top + (ptrdiff_t)(run / runs * y->gap), pixel_x = left + (ptrdiff_t)(run % runs * x->gap);
        if (pixel_y < 0 || pixel_y >= (ptrdiff_t)shape.h)
            memset(to, 0, count * sizeof *to);
        else
            copy_clipped(windows->images + (sample * shape.h + (size_t)pixel_y) * shape.w * shape.c,
                         pixel_x * (ptrdiff_t)shape.c + (ptrdiff_t)(windows->first + at), count, shape.w * shape.c, to);
        to += count;
        k += count;
    }
}
