/* linear_grad_weight.c - dw = dy^T x and db, folded over shards tile by tile.
 *
 * A shard often has few samples, so a tile of dw goes through all shards before
 * the next one starts: its partial sums never leave the first-level cache. The
 * bias gradient is the same sum with a dy of ones and dy as x. */
#include "tensor/cpu/decls.h"
#include "tensor/cpu/fold.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/linear.h"
#include "tensor/cpu/pack.h"

enum { ENTRY = LK_MR * LK_NR };

typedef struct outer_sum {
    const float *left; // (n, rows), left_step floats from sample to sample
    size_t rows, left_step;
    const float *right; // (n, cols)
    size_t cols;
    lk_partials out; // (rows, cols)
} outer_sum;

typedef struct weight_job {
    outer_sum sum[2]; /* dw, db */
    size_t split;     /* tasks below are of dw, the others of db */
    size_t n;
    const lk_shards *shards;
    lk_fold fold;
    float *scratch;
    size_t thread_floats;
} weight_job;

size_t lk__linear_weight_floats(size_t n)
{
    return n * LK_NR + (size_t)LK_TREE_MAX_DEPTH * ENTRY;
}

static void copy_tile(const outer_sum *sum, size_t row, size_t col, int entry, bool store, float *tile)
{
    size_t rows = lk__min_size(LK_MR, sum->rows - row);
    size_t cols = lk__min_size(LK_NR, sum->cols - col);
    float *slot = lk__slot(sum->out, entry) + row * sum->cols + col;
    for (size_t i = 0; i < rows; i++) {
        if (store)
            memcpy(slot + i * sum->cols, tile + i * LK_NR, cols * sizeof *slot);
        else
            memcpy(tile + i * LK_NR, slot + i * sum->cols, cols * sizeof *slot);
    }
}

static void fold_tile(const weight_job *job, const outer_sum *sum, size_t row, lk_outer *outer, float *stack)
{
    const lk_shards *shards = job->shards;
    size_t rows = lk__min_size(LK_MR, sum->rows - row);
    const float *panel = outer->b;
    outer->top = stack + (size_t)(shards->depth - job->fold.low) * ENTRY;
    for (int s = 0; s < shards->count; s++) {
        size_t begin = shards->begin[s];
        const float *left = sum->left + begin * sum->left_step + row;
        const float *a[LK_MR];
        for (size_t i = 0; i < rows; i++)
            a[i] = left + i;
        outer->nx = shards->begin[s + 1] - begin;
        outer->b = panel + begin * outer->b_x;
        outer->merges = shards->merges[s];
        lk__outer(outer, rows, a);
        outer->top += ENTRY;
        outer->top -= (size_t)outer->merges * ENTRY;
    }
    outer->b = panel;
}

static void weight_task(void *arg, size_t index, int thread)
{
    const weight_job *job = arg;
    bool bias = index >= job->split;
    const outer_sum *sum = &job->sum[bias];
    size_t col = (bias ? index - job->split : index) * LK_NR;
    float *stack = job->scratch + (size_t)thread * job->thread_floats;
    float *panel = stack + LK_TREE_MAX_DEPTH * ENTRY;
    size_t width = lk__panel_width(sum->cols, col / LK_NR);
    lk__pack_rows(sum->right + col, sum->cols, lk__min_size(LK_NR, sum->cols - col), job->n, width, panel);
    lk_outer outer = {.ny = 1, .a_x = sum->left_step, .b = panel, .b_x = width, .width = width, .fresh = true};
    outer.entry = ENTRY;
    int low = job->fold.low;
    for (size_t row = 0; row < sum->rows; row += LK_MR) {
        for (int entry = low; entry < job->shards->depth; entry++)
            copy_tile(sum, row, col, entry, false, stack + (size_t)(entry - low) * ENTRY);
        fold_tile(job, sum, row, &outer, stack);
        for (int entry = low; entry < job->fold.end; entry++)
            copy_tile(sum, row, col, entry, true, stack + (size_t)(entry - low) * ENTRY);
    }
}

void LK_KERNEL(linear_grad_weight)(lk_device *dev, const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                                   lk_partials dw, lk_partials db, void *scratch)
{
    static const float one = 1.0f;
    size_t in = x->shape.c, out = dy->shape.c;
    weight_job job = {
        .sum = {{lk__f32(dy), out, out, lk__f32(x), in, dw}, {&one, 1, 0, lk__f32(dy), out, db}},
        .split = lk__panels(in),
        .n = x->shape.n,
        .shards = shards,
        .fold = lk__fold(shards),
        .scratch = scratch,
        .thread_floats = lk__linear_weight_floats(x->shape.n),
    };
    lk__pool_run(lk__cpu_pool(dev), job.split + (db.slot0 ? lk__panels(out) : 0), weight_task, &job);
}
