/* linear_grad_weight.c - dw = dy^T x and db, folded over shards tile by tile.
 *
 * A shard often has few samples, so a tile of dw is summed over all shards before the next tile starts: its
 * partial sums stay in the first-level cache. The bias gradient is computed as ones^T dy, by the same code. */
#include "tensor/cpu/bf16_layer.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/fold.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/linear.h"
#include "tensor/cpu/pack.h"

/* Floats of a tile, and panels that a task packs at once. */
enum { ENTRY = LK_MR * LK_NR, GROUP = 4 };

typedef struct outer_sum {
    const float *left; // (rows / LK_MR rounded up, n, left_step)
    size_t rows, left_step;
    const float *right; // (n, cols)
    size_t cols;
    lk_partials out; // (rows, cols)
} outer_sum;

typedef struct weight_job {
    outer_sum sum[2]; /* dw, db */
    size_t group;     /* panels of a task */
    size_t split;     /* tasks below this index compute dw, the others db */
    size_t n;
    const lk_shards *shards;
    lk_lanes fold;
    const float *dy; // (n, rows of dw)
    float *strips;   // (rows / LK_MR rounded up, n, LK_MR): dy in the order of tiles
    float *scratch;
    size_t thread_floats;
} weight_job;

static size_t thread_floats(size_t n)
{
    return n * GROUP * LK_NR + (size_t)LK_TREE_MAX_DEPTH * ENTRY;
}

static size_t strip_floats(size_t n, size_t out)
{
    return lk__size_round_up(n * lk__size_round_up(out, LK_MR), LK_ALIGN);
}

size_t lk__linear_weight_floats(size_t n, size_t out, size_t threads)
{
    return strip_floats(n, out) + threads * thread_floats(n);
}

/* Copies rows of cols floats, `from_step` and `to_step` apart. */
static void copy_rows(const float *from, size_t from_step, size_t rows, size_t cols, float *to, size_t to_step)
{
    for (size_t i = 0; i < rows; i++, from += from_step, to += to_step) {
        size_t j = 0;
        for (; j + V <= cols; j += V)
            v_store(to + j, v_load(from + j));
        if (j < cols)
            v_store_n(to + j, v_load_n(from + j, cols - j), cols - j);
    }
}

/* The tile of rows from `row` on, over all shards of the wave. */
static void fold_tile(const weight_job *job, const outer_sum *sum, size_t row, size_t col, const lk_gemm_outer *outer,
                      float *stack)
{
    size_t rows = lk__size_min(LK_MR, sum->rows - row), cols = lk__size_min(LK_NR, sum->cols - col);
    size_t at = row * sum->cols + col;
    int low = job->fold.low;
    /* Brings the cache lines of the stores at the end. */
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j += LK_ALIGN / sizeof(float))
            __builtin_prefetch(lk__partials_slot(sum->out, low) + at + i * sum->cols + j, 1);
    }
    for (int entry = low; entry < job->shards->depth; entry++)
        copy_rows(lk__partials_slot(sum->out, entry) + at, sum->cols, rows, cols, stack + (entry - low) * ENTRY, LK_NR);
    const float *a[LK_MR];
    for (size_t i = 0; i < rows; i++)
        a[i] = sum->left + row * job->n + i;
    lk__gemm_outer(outer, rows, a);
    for (int entry = low; entry < job->fold.end; entry++)
        copy_rows(stack + (entry - low) * ENTRY, LK_NR, rows, cols, lk__partials_slot(sum->out, entry) + at, sum->cols);
}

static void strip_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const weight_job *job = arg;
    size_t row = index * LK_MR, out = job->sum[0].rows;
    copy_rows(job->dy + row, out, job->n, lk__size_min(LK_MR, out - row), job->strips + row * job->n, LK_MR);
}

static void weight_task(void *arg, size_t index, int thread)
{
    const weight_job *job = arg;
    bool bias = index >= job->split;
    const outer_sum *sum = &job->sum[bias];
    size_t col = (bias ? index - job->split : index) * job->group * LK_NR;
    size_t cols = lk__size_min(job->group * LK_NR, sum->cols - col);
    float *stack = job->scratch + (size_t)thread * job->thread_floats;
    float *panels = stack + LK_TREE_MAX_DEPTH * ENTRY;
    lk__pack_rows(sum->right + col, sum->cols, cols, job->n, panels);
    lk_gemm_outer outer = {
        .nz = 1,
        .ny = 1,
        .block = {1, 1},
        .single = job->shards->most <= LK_SUM_BLOCK,
        .a_x = sum->left_step,
        .leaves = job->shards->count,
        .begin = job->shards->begin,
        .merges = job->shards->merges,
        .top = stack + (job->shards->depth - job->fold.low) * ENTRY,
        .entry = ENTRY,
        .fresh = true,
    };
    for (size_t row = 0; row < sum->rows; row += LK_MR) {
        for (size_t panel = 0; panel < lk__panel_count(cols); panel++) {
            outer.b = panels + panel * job->n * LK_NR;
            outer.b_x = outer.width = lk__panel_width(cols, panel);
            fold_tile(job, sum, row, col + panel * LK_NR, &outer, stack);
        }
    }
}

void LK_KERNEL(linear_grad_weight)(lk_device *dev, const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                                   lk_partials dw, lk_partials db, void *scratch)
{
    static const float one = 1.0f;
    size_t in = x->shape.c, out = dy->shape.c;
    lk_pool *pool = lk__cpu_pool(dev);
    size_t share = lk__panel_count(in) / (4 * (size_t)lk__pool_threads(pool));
    size_t group = lk__size_min(lk__size_max(share, 1), GROUP), wide = group * LK_NR;
    float *strips = scratch;
    weight_job job = {
        .sum = {{strips, out, LK_MR, lk__tensor_f32(x), in, dw}, {&one, 1, 0, lk__tensor_f32(dy), out, db}},
        .group = group,
        .split = (in + wide - 1) / wide,
        .n = x->shape.n,
        .shards = shards,
        .fold = lk__lanes_fold(shards),
        .dy = lk__tensor_f32(dy),
        .strips = strips,
        .scratch = strips + strip_floats(x->shape.n, out),
        .thread_floats = thread_floats(x->shape.n),
    };
    if (lk__bf16_of(dev)) {
        lk_subtree wave = lk__subtree(shards, dw, (lk_partials){0});
        lk_division division = lk__division_whole((size_t)lk__pool_threads(pool), &wave);
        lk_bf16_gradient gradient = {1, lk__bf16_windows_linear(job.n, in), lk__tensor_f32(x), job.dy, out, &division};
        lk__bf16_gradient_run(dev, &gradient, scratch);
        job.split = 0; /* db alone is left */
    } else if (lk__linear_few_grad_weight(dev, x, dy, shards, dw)) {
        job.split = 0;
    } else {
        lk__pool_run(pool, (out + LK_MR - 1) / LK_MR, strip_task, &job);
    }
    lk__pool_run(pool, job.split + (db.slot0 ? (out + wide - 1) / wide : 0), weight_task, &job);
}
