/* linear_grad_weight.c - dw = dy^T x and db, folded over shards tile by tile.
 *
 * A shard often has few samples, so a tile of dw is summed over all shards before the next tile starts: its
 * partial sums stay in the first-level cache. */
#include "tensor/cpu/bf16_layer.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/fold.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/linear.h"
#include "tensor/cpu/pack.h"

enum {
    ENTRY = LK_MR * LK_NR,           /* floats of a tile */
    LINE = LK_ALIGN / sizeof(float), /* floats of a cache line */
    PACKED = 1 << 16,                /* floats of x that are packed at once: a part of the second-level cache */
    UNROLLED = 4                     /* terms of a leaf that is summed without a loop */
};

typedef struct weight_job {
    size_t n, in, out;
    const lk_shards *shards;
    lk_fold_range fold;
    const float *x, *dy; // (n, in), (n, out)
    lk_partials dw;      // (out, in)
    size_t share;        /* panels of a task */
    float *strips;       // (out / LK_MR rounded up, n, LK_MR): dy in the order of tiles
    float *scratch;
    size_t thread_floats;
} weight_job;

/* A tile of dw. */
typedef struct weight_tile {
    const lk_shards *shards;
    const float *a; // (n, LK_MR)
    const float *b; // (n, width)
    float *top;     // (LK_MR, LK_NR) where the first leaf is summed, above the partial sums of earlier waves
    float *last;    // (rows, width) where the last sum of the wave is stored, with `step` floats from row to row
    size_t step;
} weight_tile;

/* Sums `count` <= LK_SUM_BLOCK terms. Shards often have UNROLLED samples, and a loop would take as long as the terms.
 */
LK_INLINE void sum_terms(const float *a, const float *b, size_t count, v_f32 (*acc)[2], int mr, int nv)
{
    lk__tile_zero(acc, mr, nv);
    if (count == UNROLLED) {
        LK_UNROLL for (int k = 0; k < UNROLLED; k++) lk__tile_multiply(a + k * LK_MR, b + k * nv * V, acc, mr, nv);
        return;
    }
    for (; count >= UNROLLED; count -= UNROLLED, a += UNROLLED * LK_MR, b += UNROLLED * nv * V)
        LK_UNROLL for (int k = 0; k < UNROLLED; k++) lk__tile_multiply(a + k * LK_MR, b + k * nv * V, acc, mr, nv);
    for (; count > 0; count--, a += LK_MR, b += nv * V)
        lk__tile_multiply(a, b, acc, mr, nv);
}

/* Sums a leaf of several blocks; top is free. */
LK_INLINE void sum_blocks(const float *a, const float *b, size_t count, float *top, v_f32 (*acc)[2], int mr, int nv)
{
    size_t block = lk__size_min(count, LK_SUM_BLOCK);
    sum_terms(a, b, block, acc, mr, nv);
    while ((count -= block) > 0) {
        a += block * LK_MR;
        b += block * (size_t)(nv * V);
        block = lk__size_min(count, LK_SUM_BLOCK);
        lk__tile_store(top, acc, mr, nv);
        sum_terms(a, b, block, acc, mr, nv);
        lk__tile_add(top, acc, mr, nv);
    }
}

/* single: every leaf is one block. */
LK_INLINE void sum_tile(const weight_tile *tile, bool single, int mr, int nv)
{
    v_f32 acc[LK_MR][2];
    const lk_shards *shards = tile->shards;
    const float *a = tile->a + shards->begin[0] * LK_MR, *b = tile->b + shards->begin[0] * (size_t)(nv * V);
    float *top = tile->top;
    for (int leaf = 0;; leaf++, top += ENTRY) {
        size_t count = shards->begin[leaf + 1] - shards->begin[leaf];
        if (single)
            sum_terms(a, b, count, acc, mr, nv);
        else
            sum_blocks(a, b, count, top, acc, mr, nv);
        a += count * LK_MR;
        b += count * (size_t)(nv * V);
        for (int merge = shards->merges[leaf]; merge > 0; merge--) {
            top -= ENTRY;
            lk__tile_add(top, acc, mr, nv);
        }
        if (leaf + 1 == shards->count)
            break;
        lk__tile_store(top, acc, mr, nv);
    }
    LK_UNROLL for (int i = 0; i < mr; i++)
    {
        v_store(tile->last + (size_t)i * tile->step, acc[i][0]);
        if (nv > 1)
            v_store(tile->last + (size_t)i * tile->step + V, acc[i][1]);
    }
}

#define TILE(mr, nv)                                        \
    static void blocks_##mr##x##nv(const weight_tile *tile) \
    {                                                       \
        sum_tile(tile, false, mr, nv);                      \
    }                                                       \
    static void single_##mr##x##nv(const weight_tile *tile) \
    {                                                       \
        sum_tile(tile, true, mr, nv);                       \
    }
LK_TILE_SIZES(TILE, 1)
LK_TILE_SIZES(TILE, 2)
#undef TILE

/* Instances, by number of rows, in falling order. */
static const struct {
    size_t rows;
    void (*fn[2][2])(const weight_tile *tile); /* by whether each leaf is one block, and by vectors */
} tiles[] = {
#define ENTRY_OF(mr, nv) {mr, {{blocks_##mr##x1, blocks_##mr##x2}, {single_##mr##x1, single_##mr##x2}}},
    LK_TILE_SIZES(ENTRY_OF, )
#undef ENTRY_OF
};

/* Columns that are packed at once. Long pieces of rows come faster from memory and go faster to it. */
static size_t group_columns(size_t n)
{
    size_t least = 128, most = 1024;
    return lk__size_max(least, lk__size_min(PACKED / lk__size_max(n, 1), most)) / LK_NR * LK_NR;
}

static size_t thread_floats(size_t n)
{
    return n * group_columns(n) + (size_t)LK_TREE_MAX_DEPTH * ENTRY;
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

/* Sums a tile of rows and columns of dw, in parts that have instances. */
static void run_tile(const weight_tile *tile, size_t rows, size_t width)
{
    weight_tile part = *tile;
    for (size_t size = 0; rows > 0;) {
        if (tiles[size].rows > rows) {
            size++;
            continue;
        }
        size_t done = tiles[size].rows;
        tiles[size].fn[tile->shards->most <= LK_SUM_BLOCK][width > V](&part);
        part.a += done;
        part.top += done * LK_NR;
        part.last += done * part.step;
        rows -= done;
    }
}

/* The tile of rows from `row` on and a panel of columns from `col` on, over all shards of the wave. */
static void fold_tile(const weight_job *job, size_t row, size_t col, const float *panel, size_t width, float *stack)
{
    size_t rows = lk__size_min(LK_MR, job->out - row), cols = lk__size_min(width, job->in - col);
    size_t at = row * job->in + col;
    int low = job->fold.low, last = job->fold.end - 1;
    bool whole = cols == width; /* the last sum is stored at its place at once */
    float *out = lk__partials_slot(job->dw, last) + at;
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j += LINE)
            __builtin_prefetch(out + i * job->in + j, 1);
    }
    for (int entry = low; entry < job->shards->depth; entry++)
        copy_rows(lk__partials_slot(job->dw, entry) + at, job->in, rows, cols, stack + (entry - low) * ENTRY, LK_NR);
    weight_tile tile = {.shards = job->shards, .a = job->strips + row * job->n, .b = panel};
    tile.top = stack + (job->shards->depth - low) * ENTRY;
    tile.last = whole ? out : stack + (last - low) * ENTRY;
    tile.step = whole ? job->in : LK_NR;
    run_tile(&tile, rows, width);
    for (int entry = low; entry < last + !whole; entry++)
        copy_rows(stack + (entry - low) * ENTRY, LK_NR, rows, cols, lk__partials_slot(job->dw, entry) + at, job->in);
}

static void strip_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const weight_job *job = arg;
    size_t row = index * LK_MR;
    copy_rows(job->dy + row, job->out, job->n, lk__size_min(LK_MR, job->out - row), job->strips + row * job->n, LK_MR);
}

static void weight_task(void *arg, size_t index, int thread)
{
    const weight_job *job = arg;
    size_t group = group_columns(job->n), begin = index * job->share * LK_NR;
    size_t end = lk__size_min(begin + job->share * LK_NR, job->in);
    float *stack = job->scratch + (size_t)thread * job->thread_floats;
    float *panels = stack + LK_TREE_MAX_DEPTH * ENTRY;
    for (size_t col = begin, cols; col < end; col += cols) {
        cols = lk__size_min(group, end - col);
        lk__pack_rows(job->x + col, job->in, cols, job->n, panels);
        for (size_t row = 0; row < job->out; row += LK_MR) {
            for (size_t j = 0; j < cols; j += LK_NR)
                fold_tile(job, row, col + j, panels + j * job->n, lk__panel_width(cols, j / LK_NR), stack);
        }
    }
}

static void sum_weights(lk_device *dev, const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                        lk_partials dw, float *scratch)
{
    size_t n = x->shape.n, in = x->shape.c, out = dy->shape.c;
    lk_pool *pool = lk__cpu_pool(dev);
    size_t tasks = lk__cpu_tasks((size_t)lk__pool_threads(pool), 4);
    weight_job job = {
        .n = n,
        .in = in,
        .out = out,
        .shards = shards,
        .fold = lk__fold_range_of(shards),
        .x = lk__tensor_f32(x),
        .dy = lk__tensor_f32(dy),
        .dw = dw,
        .share = lk__size_max(lk__panel_count(in) / tasks, 1),
        .strips = scratch,
        .scratch = scratch + strip_floats(n, out),
        .thread_floats = thread_floats(n),
    };
    lk__pool_run(pool, lk__size_divide_up(out, LK_MR), strip_task, &job);
    lk__pool_run(pool, lk__size_divide_up(in, job.share * LK_NR), weight_task, &job);
}

void LK_KERNEL(linear_grad_weight)(lk_device *dev, const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                                   lk_partials dw, lk_partials db, void *scratch)
{
    size_t n = x->shape.n, in = x->shape.c, out = dy->shape.c;
    if (lk__bf16_of(dev)) {
        lk_subtree wave = lk__subtree(shards, dw, (lk_partials){0});
        lk_division division = lk__division_whole((size_t)lk__pool_threads(lk__cpu_pool(dev)), &wave);
        lk_bf16_gradient gradient = {
            .groups = 1,
            .windows = lk__bf16_windows_linear(n, in),
            .input = lk__tensor_f32(x),
            .dy = lk__tensor_f32(dy),
            .cols = out,
            .division = &division,
        };
        lk__bf16_gradient_run(dev, &gradient, scratch);
    } else if (!lk__linear_few_grad_weight(dev, x, dy, shards, dw)) {
        sum_weights(dev, x, dy, shards, dw, scratch);
    }
    if (db.slot0)
        lk__linear_grad_bias(dev, dy, shards, db);
}
