/* matmul.c - products of matrices, one for each sample and height; exchange of axes, and reshaping.
 *
 * A task computes some rows and columns. It packs COLS columns of the second factor and one block of the sum (sums.h)
 * at a time; y has the sum of the blocks so far. */
#include <string.h>

#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/sums.h"

enum { COLS = 16, LENGTH = LK_SUM_BLOCK, ROWS = 64, TILE = 4, VECTORS = COLS / V };

typedef struct product {
    size_t rows, cols, len; /* of y; terms of a sum */
    size_t row_blocks, col_blocks;
    const float *a, *b;    /* matrices one after another */
    size_t a_row, a_k;     /* floats between neighbouring elements of a: along rows of y, along the sum */
    size_t b_k, b_col;     /* the same for b: along the sum, along columns of y */
    size_t a_size, b_size; /* floats of a matrix */
    float *y;              // (matrices, rows, cols)
} product;

/* panel (len, COLS) = columns [col, col + cols) of the second factor; missing columns are 0. */
static void pack(const product *p, const float *b, size_t cols, size_t len, float *panel)
{
    for (size_t k = 0; k < len; k++, panel += COLS)
        for (size_t j = 0; j < COLS; j++)
            panel[j] = j < cols ? b[k * p->b_k + j * p->b_col] : 0.0f;
}

/* Floats of vector v that exist. */
static size_t lanes_of(size_t cols, size_t v)
{
    return cols > v * V ? lk__size_min(V, cols - v * V) : 0;
}

/* Adds a block of len terms to `rows` <= TILE rows of y; `first`: the sums begin. */
LK_INLINE void tile(const product *p, const float *a, const float *panel, size_t rows, size_t cols, size_t len,
                    bool first, float *y)
{
    v_f32 sum[TILE][VECTORS];
    for (size_t r = 0; r < rows; r++)
        for (size_t v = 0; v < VECTORS; v++)
            sum[r][v] = v_zero();
    for (size_t k = 0; k < len; k++)
        for (size_t r = 0; r < rows; r++) {
            v_f32 factor = v_set1(a[r * p->a_row + k * p->a_k]);
            for (size_t v = 0; v < VECTORS; v++)
                sum[r][v] = v_fma(factor, v_load(panel + k * COLS + v * V), sum[r][v]);
        }
    for (size_t r = 0; r < rows; r++)
        for (size_t v = 0; v < VECTORS; v++) {
            size_t lanes = lanes_of(cols, v);
            float *at = y + r * p->cols + v * V;
            v_store_n(at, first ? sum[r][v] : v_add(v_load_n(at, lanes), sum[r][v]), lanes);
        }
}

static void product_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const product *p = arg;
    size_t col = index % p->col_blocks * COLS, block = index / p->col_blocks % p->row_blocks;
    size_t matrix = index / p->col_blocks / p->row_blocks, cols = lk__size_min(COLS, p->cols - col);
    lk_chunk_range range = lk__chunk(p->rows, ROWS, block);
    const float *a = p->a + matrix * p->a_size, *b = p->b + matrix * p->b_size + col * p->b_col;
    float *y = p->y + matrix * p->rows * p->cols + col, panel[LENGTH * COLS];
    for (size_t k = 0; k < p->len; k += LENGTH) {
        size_t len = lk__size_min(LENGTH, p->len - k), row = range.begin;
        pack(p, b + k * p->b_k, cols, len, panel);
        for (; row + TILE <= range.end; row += TILE)
            tile(p, a + row * p->a_row + k * p->a_k, panel, TILE, cols, len, k == 0, y + row * p->cols);
        for (; row < range.end; row++)
            tile(p, a + row * p->a_row + k * p->a_k, panel, 1, cols, len, k == 0, y + row * p->cols);
    }
}

void LK_KERNEL(matmul)(lk_device *dev, const lk_matmul_desc *desc, const lk_tensor *a, const lk_tensor *b, lk_tensor *y)
{
    product p = {.rows = y->shape.w,
                 .cols = y->shape.c,
                 .len = desc->transpose_a ? a->shape.w : a->shape.c,
                 .row_blocks = (y->shape.w + ROWS - 1) / ROWS,
                 .col_blocks = (y->shape.c + COLS - 1) / COLS,
                 .a = lk__tensor_f32(a),
                 .b = lk__tensor_f32(b),
                 .a_row = desc->transpose_a ? 1 : a->shape.c,
                 .a_k = desc->transpose_a ? a->shape.c : 1,
                 .b_k = desc->transpose_b ? 1 : b->shape.c,
                 .b_col = desc->transpose_b ? b->shape.c : 1,
                 .a_size = a->shape.w * a->shape.c,
                 .b_size = b->shape.w * b->shape.c,
                 .y = lk__tensor_f32(y)};
    lk__pool_run(lk__cpu_pool(dev), y->shape.n * y->shape.h * p.row_blocks * p.col_blocks, product_task, &p);
}

typedef struct exchange {
    lk_shape to;
    size_t step[3]; /* floats of x between neighbours along the height, width and channels of y */
    const float *x;
    float *y;
} exchange;

static void exchange_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const exchange *e = arg;
    size_t c = e->to.c, sample = lk__shape_sample(e->to);
    lk_chunk_range range = lk__chunk(e->to.n * e->to.h * e->to.w, lk__chunk_rows(c), index);
    for (size_t pixel = range.begin; pixel < range.end; pixel++) {
        size_t w = pixel % e->to.w, h = pixel / e->to.w % e->to.h, n = pixel / e->to.w / e->to.h;
        const float *x = e->x + n * sample + h * e->step[0] + w * e->step[1];
        for (size_t i = 0; i < c; i++)
            e->y[pixel * c + i] = x[i * e->step[2]];
    }
}

void LK_KERNEL(swap_axes)(lk_device *dev, int a, int b, const lk_tensor *x, lk_tensor *y)
{
    exchange e = {.to = y->shape,
                  .step = {x->shape.w * x->shape.c, x->shape.c, 1},
                  .x = lk__tensor_f32(x),
                  .y = lk__tensor_f32(y)};
    size_t step = e.step[a - 1];
    e.step[a - 1] = e.step[b - 1];
    e.step[b - 1] = step;
    lk__chunk_run_rows(dev, e.to.n * e.to.h * e.to.w, e.to.c, exchange_task, &e);
}

void LK_KERNEL(reshape)(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    lk_tensor same = *y;
    same.shape = x->shape;
    LK_KERNEL(copy)(dev, x, &same);
}
