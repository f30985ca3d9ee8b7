/* linear_few.c - products of linear layers with few samples: y = x w^T + b, and the input gradient.
 *
 * Each weight is used for few multiply-adds, so memory is the limit: weights are not packed, and each is read once. In
 * the forward pass squares of V outputs and V terms are transposed in registers. Sums have the order of sums.h, so the
 * bits are those of lk__gemm. */
#include "base/mem.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/linear.h"
#include "tensor/cpu/sums.h"

enum {
    LINE = LK_ALIGN / sizeof(float), /* floats of a cache line */
    GROUP = 8,                       /* rows of weights that are read at once for the input gradient */
    SUMS = 4096,                     /* floats of sums that a task of the input gradient has in the first-level cache */
    LEAST = 8192                     /* weights of an input gradient; fewer stay in the first-level cache */
};

typedef struct few_product {
    lk_linear_few p;
    const float *a[LK_LINEAR_FEW]; /* samples of p.a; those that do not exist are the last one */
    size_t width;                  /* columns of a task of the input gradient */
} few_product;

/* Continues the chains of V outputs of each sample, whose weights begin at w, with terms [k, k + V). */
LK_INLINE void add_square(const few_product *few, const float *w, size_t k, v_f32 *sums, int samples)
{
    float square[V * V];
    v_transpose(w + k, few->p.len, square, V);
    LK_UNROLL for (int i = 0; i < V; i++)
    {
        v_f32 column = v_load(square + i * V);
        LK_UNROLL for (int s = 0; s < samples; s++) sums[s] = v_fma(v_set1(few->a[s][k + (size_t)i]), column, sums[s]);
    }
}

/* The same with the single term k. */
LK_INLINE void add_term(const few_product *few, const float *w, size_t k, v_f32 *sums, int samples)
{
    float column[V];
    for (size_t i = 0; i < V; i++)
        column[i] = w[i * few->p.len + k];
    LK_UNROLL for (int s = 0; s < samples; s++) sums[s] = v_fma(v_set1(few->a[s][k]), v_load(column), sums[s]);
}

/* Continues the chains of `vectors` times V outputs with terms [k, end), a block of the sum. Each square prefetches as
 * many lines of the next block, or of the next outputs' first one, as it has, row by row. */
LK_INLINE void add_block(const few_product *few, const float *w, size_t k, size_t end, v_f32 *sums, int samples,
                         int vectors)
{
    enum { ROW_LINES = LK_SUM_BLOCK / LINE, SQUARE_LINES = V * V > LINE ? V * V / LINE : 1 };
    size_t stride = few->p.len, line = 0, lines = (size_t)vectors * V * ROW_LINES;
    const float *next = end < stride ? w + end : w + (size_t)vectors * V * stride;
    for (; k + V <= end; k += V) {
        for (int i = 0; i < vectors * SQUARE_LINES && line < lines; i++, line++)
            __builtin_prefetch(next + line / ROW_LINES * stride + line % ROW_LINES * LINE, 0, 2);
        LK_UNROLL for (int v = 0; v < vectors; v++)
            add_square(few, w + (size_t)v * V * stride, k, sums + v * samples, samples);
    }
    for (; k < end; k++)
        LK_UNROLL for (int v = 0; v < vectors; v++)
            add_term(few, w + (size_t)v * V * stride, k, sums + v * samples, samples);
}

/* `vectors` times V outputs of all samples, from col on. */
LK_INLINE void forward_unit(const few_product *few, size_t col, float *out, int samples, int vectors)
{
    const lk_linear_few *p = &few->p;
    const float *w = p->w + col * p->len;
    int count = samples * vectors;
    v_f32 sums[LK_LINEAR_FEW], block[LK_LINEAR_FEW];
    LK_UNROLL for (int i = 0; i < count; i++) sums[i] = p->bias ? v_load(p->bias + col + i / samples * V) : v_zero();
    add_block(few, w, 0, lk__size_min(LK_SUM_BLOCK, p->len), sums, samples, vectors);
    for (size_t k = LK_SUM_BLOCK; k < p->len; k += LK_SUM_BLOCK) {
        LK_UNROLL for (int i = 0; i < count; i++) block[i] = v_zero();
        add_block(few, w, k, lk__size_min(k + LK_SUM_BLOCK, p->len), block, samples, vectors);
        LK_UNROLL for (int i = 0; i < count; i++) sums[i] = v_add(sums[i], block[i]);
    }
    LK_UNROLL for (int i = 0; i < count; i++)
        v_store(out + (i % samples * vectors + i / samples) * V, p->relu ? v_relu(sums[i]) : sums[i]);
}

/* Adds rows [k, k + count) of weights, which begin at w, to the sums of `width` columns; `first`: the sums begin. */
LK_INLINE void add_rows(const few_product *few, const float *w, size_t k, size_t count, bool first, size_t width,
                        float *sums, int samples)
{
    v_f32 acc[LK_LINEAR_FEW];
    for (size_t j = 0; j < width; j += V) {
        size_t n = lk__size_min(V, width - j);
        LK_UNROLL for (int s = 0; s < samples; s++) acc[s] =
            first ? v_zero() : v_load(sums + (size_t)s * few->width + j);
        LK_UNROLL for (size_t i = 0; i < count; i++)
        {
            v_f32 row = v_load_some(w + i * few->p.cols + j, n);
            if (j % LINE < V)
                __builtin_prefetch(w + (i + GROUP) * few->p.cols + j, 0, 2);
            LK_UNROLL for (int s = 0; s < samples; s++) acc[s] = v_fma(v_set1(few->a[s][k + i]), row, acc[s]);
        }
        LK_UNROLL for (int s = 0; s < samples; s++) v_store(sums + (size_t)s * few->width + j, acc[s]);
    }
}

/* Adds the sums of a block to the output, or writes them if the block is the first one. */
static void end_block(const few_product *few, size_t col, size_t width, bool first, bool last, const float *sums)
{
    const lk_linear_few *p = &few->p;
    for (size_t s = 0; s < p->rows; s++, sums += few->width) {
        size_t at = s * p->cols + col;
        for (size_t j = 0; j < width; j += V) {
            size_t n = lk__size_min(V, width - j);
            v_f32 sum = v_load(sums + j);
            if (!first)
                sum = v_add(v_load_some(p->c + at + j, n), sum);
            if (last && p->mask)
                sum = v_relu_grad(v_load_some(p->mask + at + j, n), sum);
            v_store_some(p->c + at + j, sum, n);
        }
    }
}

/* Columns [col, col + width) of the input gradient of all samples. */
LK_INLINE void backward_unit(const few_product *few, size_t col, size_t width, int samples)
{
    _Alignas(LK_ALIGN) float sums[SUMS];
    const lk_linear_few *p = &few->p;
    for (size_t k0 = 0; k0 < p->len; k0 += LK_SUM_BLOCK) {
        size_t end = lk__size_min(k0 + LK_SUM_BLOCK, p->len), k = k0;
        for (; k + GROUP <= end; k += GROUP)
            add_rows(few, p->w + k * p->cols + col, k, GROUP, k == k0, width, sums, samples);
        for (; k < end; k++)
            add_rows(few, p->w + k * p->cols + col, k, 1, k == k0, width, sums, samples);
        end_block(few, col, width, k0 == 0, end == p->len, sums);
    }
}

/* A task of the forward pass. The last one computes some outputs of the task before it too, and leaves them out. */
LK_INLINE void forward_task(const few_product *few, size_t index, int samples, int vectors)
{
    float out[LK_LINEAR_FEW * V];
    size_t unit = (size_t)vectors * V, begin = index * unit, from = lk__size_min(begin, few->p.cols - unit);
    forward_unit(few, from, out, samples, vectors);
    for (size_t s = 0; s < few->p.rows; s++)
        memcpy(few->p.c + s * few->p.cols + begin, out + s * unit + (begin - from),
               (from + unit - begin) * sizeof *out);
}

#define INSTANCE(samples, vectors)                                                     \
    static void forward_##samples(void *arg, size_t index, int thread)                 \
    {                                                                                  \
        (void)thread;                                                                  \
        forward_task(arg, index, samples, vectors);                                    \
    }                                                                                  \
    static void backward_##samples(void *arg, size_t index, int thread)                \
    {                                                                                  \
        (void)thread;                                                                  \
        const few_product *few = arg;                                                  \
        size_t col = index * few->width;                                               \
        backward_unit(few, col, lk__size_min(few->width, few->p.cols - col), samples); \
    }
/* By number of samples, in rising order. An addition waits for the one before it in its chain, so short vectors have
 * several chains; with more than 16 rows of weights, rows would evict each other from the first-level cache. */
#define INSTANCES(X) X(1, V < 8 ? 4 : 1) X(2, V < 8 ? 2 : 1) X(4, 1) X(8, 1)
INSTANCES(INSTANCE)
#undef INSTANCE

static const struct {
    size_t samples, vectors;
    lk_pool_fn forward, backward;
} instances[] = {
#define ENTRY(samples, vectors) {samples, vectors, forward_##samples, backward_##samples},
    INSTANCES(ENTRY)
#undef ENTRY
};

/* Chooses the smallest instance for the samples whose vectors fit into `cols` outputs. */
static size_t begin_product(few_product *few, size_t cols)
{
    size_t size = 0;
    while (instances[size].samples < few->p.rows || instances[size].vectors * V > cols)
        size++;
    for (size_t s = 0; s < LK_LINEAR_FEW; s++)
        few->a[s] = few->p.a + lk__size_min(s, few->p.rows - 1) * few->p.len;
    return size;
}

bool lk__linear_few_forward(lk_device *dev, const lk_linear_few *p)
{
    few_product few = {.p = *p};
    if (p->rows == 0 || p->rows > LK_LINEAR_FEW || p->cols < V)
        return false;
    size_t size = begin_product(&few, p->cols);
    lk__pool_run(lk__cpu_pool(dev), lk__size_divide_up(p->cols, instances[size].vectors * V), instances[size].forward,
                 &few);
    return true;
}

bool lk__linear_few_grad_input(lk_device *dev, const lk_linear_few *p)
{
    few_product few = {.p = *p};
    if (p->rows == 0 || p->rows > LK_LINEAR_FEW || p->len * p->cols < LEAST)
        return false;
    lk_pool *pool = lk__cpu_pool(dev);
    size_t size = begin_product(&few, SIZE_MAX);
    size_t share = lk__size_divide_up(p->cols, (size_t)lk__pool_threads(pool));
    few.width = lk__size_min(lk__size_round_up(share, LINE), SUMS / instances[size].samples);
    lk__pool_run(pool, lk__size_divide_up(p->cols, few.width), instances[size].backward, &few);
    return true;
}
