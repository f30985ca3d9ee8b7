/* linear.c - y = x w^T + b and its input gradient: one blocked product.
 *
 * A task owns a block of rows and a group of panels. It processes the blocks of the sum one after the other: the packed
 * panels of a block fit into the second-level cache; the sum of each output continues from y. */
#include "tensor/cpu/linear.h"
#include "tensor/cpu/bf16_layer.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/pack.h"
#include "tensor/cpu/sums.h"

enum {
    GROUP_PANELS = 256 / V, /* panels packed at once, for a block of the sum; LK_NR is 2 V */
    LONG_ROW = 1024         /* from this many floats of a row on, wide tasks pay */
};

typedef struct product {
    size_t rows, len, cols;
    const float *a; // (rows, len)
    const float *w; // (cols, len) if transposed, else (len, cols)
    bool transposed;
    const float *bias; // (cols) or NULL
    bool relu;
    const float *mask; // (rows, cols) or NULL
    float *c;          // (rows, cols)
    size_t group, groups, block_rows;
    float *scratch;
    size_t thread_floats;
} product;

static size_t thread_floats(size_t group)
{
    return (size_t)LK_SUM_BLOCK * group * LK_NR + group * LK_NR;
}

static void pack_block(const product *p, size_t col, size_t cols, size_t k0, size_t len, float *panels)
{
    if (!p->transposed) {
        lk__pack_rows(p->w + k0 * p->cols + col, p->cols, cols, len, panels);
        return;
    }
    for (size_t j = 0; j < cols; j += LK_NR)
        lk__pack_transposed(p->w + (col + j) * p->len + k0, p->len, lk__size_min(cols - j, LK_NR), len, 1,
                            lk__panel_width(cols, j / LK_NR), panels + len * j);
}

static void product_task(void *arg, size_t index, int thread)
{
    const product *p = arg;
    size_t col = index % p->groups * p->group * LK_NR;
    size_t cols = lk__size_min(p->cols - col, p->group * LK_NR);
    size_t row0 = index / p->groups * p->block_rows;
    size_t row1 = lk__size_min(row0 + p->block_rows, p->rows);
    float *start = p->scratch + (size_t)thread * p->thread_floats;
    float *panels = start + p->group * LK_NR;
    memset(start, 0, p->group * LK_NR * sizeof *start);
    if (p->bias)
        memcpy(start, p->bias + col, cols * sizeof *start);

    for (size_t k0 = 0; k0 < p->len; k0 += LK_SUM_BLOCK) {
        size_t len = lk__size_min(LK_SUM_BLOCK, p->len - k0);
        pack_block(p, col, cols, k0, len, panels);
        lk_gemm gemm = {.ny = 1, .nx = row1 - row0, .len = len};
        gemm.runs_y = gemm.runs_x = 1;
        gemm.a = p->a + row0 * p->len + k0;
        gemm.a_x = p->len;
        gemm.panels = panels;
        gemm.start = k0 == 0 ? start : NULL;
        gemm.c = p->c + row0 * p->cols + col;
        gemm.c_x = p->cols;
        gemm.cols = cols;
        if (k0 + len == p->len) {
            gemm.relu = p->relu;
            gemm.mask = p->mask ? p->mask + row0 * p->cols + col : NULL;
        }
        lk__gemm(&gemm);
    }
}

static size_t row_splits(size_t threads, size_t group, size_t panels)
{
    size_t groups = (panels + group - 1) / group;
    return groups < threads ? (threads + groups - 1) / groups : 1;
}

/* Gives each thread equally many tasks. A task packs the panels of its columns and reads all of its rows, so where rows
 * are long a task of few columns and many rows becomes wider and shorter. */
static void split_product(product *p, size_t threads)
{
    size_t panels = lk__panel_count(p->cols), most = threads * GROUP_PANELS, rounds = (panels + most - 1) / most;
    size_t group = (panels + threads * rounds - 1) / (threads * rounds);
    while (p->len >= LONG_ROW && 2 * group <= lk__size_min(panels, GROUP_PANELS) &&
           2 * group * LK_NR < p->rows / row_splits(threads, 2 * group, panels))
        group *= 2;
    size_t splits = row_splits(threads, group, panels);
    p->group = group;
    p->groups = (panels + group - 1) / group;
    p->block_rows = lk__size_round_up((p->rows + splits - 1) / splits, LK_MR);
}

static void run_bf16(lk_device *dev, const product *p)
{
    lk_bf16_layer layer = {
        .groups = 1,
        .windows = lk__bf16_windows_linear(p->rows, p->len),
        .input = p->a,
        .weights = {p->w, 0, 0, p->transposed ? 1 : p->cols, p->transposed ? p->len : 1, 0},
        .cols = p->cols,
        .bias = p->bias,
        .relu = p->relu,
        .mask = p->mask,
        .output = p->c,
        .out_n = p->cols,
    };
    lk__bf16_layer_run(dev, &layer, false, p->scratch);
}

static bool run_few(lk_device *dev, const product *p)
{
    lk_linear_few few = {.rows = p->rows, .len = p->len, .cols = p->cols, .a = p->a, .w = p->w, .c = p->c};
    few.bias = p->bias;
    few.relu = p->relu;
    few.mask = p->mask;
    return p->transposed ? lk__linear_few_forward(dev, &few) : lk__linear_few_grad_input(dev, &few);
}

static void run_product(lk_device *dev, product *p)
{
    lk_pool *pool = lk__cpu_pool(dev);
    if (p->rows == 0)
        return;
    if (lk__bf16_of(dev)) {
        run_bf16(dev, p);
        return;
    }
    if (run_few(dev, p))
        return;
    split_product(p, (size_t)lk__pool_threads(pool));
    p->thread_floats = thread_floats(p->group);
    lk__pool_run(pool, p->groups * ((p->rows + p->block_rows - 1) / p->block_rows), product_task, p);
}

size_t LK_KERNEL(linear_scratch)(lk_device *dev, lk_shape x, lk_shape y)
{
    size_t threads = (size_t)lk__pool_threads(lk__cpu_pool(dev));
    size_t panels = lk__size_max(lk__panel_count(x.c), lk__panel_count(y.c));
    size_t floats = threads * thread_floats(lk__size_min(panels, GROUP_PANELS));
    if (lk__bf16_of(dev)) {
        lk_bf16_windows in = lk__bf16_windows_linear(x.n, x.c), out = lk__bf16_windows_linear(x.n, y.c);
        floats =
            lk__size_max(lk__bf16_layer_floats(&in, y.c, 1, threads), lk__bf16_layer_floats(&out, x.c, 1, threads));
        lk_division whole = lk__division(threads, 1);
        floats = lk__size_max(floats, lk__bf16_gradient_floats(&in, y.c, 1, &whole));
    }
    return lk__size_max(floats, lk__linear_weight_floats(x.n, y.c, threads)) * sizeof(float);
}

void LK_KERNEL(linear_forward)(lk_device *dev, const lk_tensor *x, const void *w, const void *b, bool relu,
                               const lk_dropout_desc *dropout, lk_tensor *y, void *scratch)
{
    product p = {.rows = x->shape.n, .len = x->shape.c, .cols = y->shape.c, .scratch = scratch};
    p.a = lk__tensor_f32(x);
    p.w = w;
    p.transposed = true;
    p.bias = b;
    p.relu = relu;
    p.c = lk__tensor_f32(y);
    run_product(dev, &p);
    if (dropout)
        LK_KERNEL(dropout)(dev, dropout, y, y);
}

void LK_KERNEL(linear_grad_input)(lk_device *dev, const lk_tensor *dy, const void *w, const lk_tensor *mask,
                                  const lk_dropout_desc *dropout, lk_tensor *dx, void *scratch)
{
    product p = {.rows = dy->shape.n, .len = dy->shape.c, .cols = dx->shape.c, .scratch = scratch};
    p.a = lk__tensor_f32(dy);
    p.w = w;
    p.mask = mask ? lk__tensor_f32(mask) : NULL;
    p.c = lk__tensor_f32(dx);
    run_product(dev, &p);
    if (dropout) {
        float factor = lk__dropout_desc_scale(dropout);
        LK_KERNEL(scale)(dev, NULL, p.rows * p.cols, &factor, p.c);
    }
}
