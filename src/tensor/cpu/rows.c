/* rows.c - adds rows, one for each shard or subtree, over the sum tree: BatchNorm's sums, sums of subtrees
 * (conv2d_subtrees.h), gradients of depthwise convolutions, of own ops and of other layers with small leaves. */
#include <string.h>

#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/fold.h"

/* Columns of a block, whose partial sums stay in the first-level cache; a multiple of every vector width. A task has
 * whole blocks. */
enum { BLOCK = 256 };

typedef struct fold {
    size_t width, row;
    size_t columns;      /* of a task */
    const float *leaves; // (count, row)
    const lk_shards *shards;
    lk_partials sums;
    lk_fold_range range;
} fold;

static void merge(size_t width, float *left, const float *right)
{
    size_t i = 0;
    for (; i + V <= width; i += V)
        v_store(left + i, v_add(v_load(left + i), v_load(right + i)));
    if (i < width)
        v_store_n(left + i, v_add(v_load_n(left + i, width - i), v_load_n(right + i, width - i)), width - i);
}

/* Columns [at, at + width). */
static void fold_block(const fold *f, size_t at, size_t width)
{
    float stack[LK_TREE_MAX_DEPTH + 1][BLOCK];
    int low = f->range.low, top = f->shards->depth - low;
    for (int i = 0; i < top; i++)
        memcpy(stack[i], lk__partials_slot(f->sums, low + i) + at, width * sizeof **stack);
    for (int shard = 0; shard < f->shards->count; shard++, top++) {
        memcpy(stack[top], f->leaves + (size_t)shard * f->row + at, width * sizeof **stack);
        for (int i = 0; i < f->shards->merges[shard]; i++, top--)
            merge(width, stack[top - 1], stack[top]);
    }
    for (int i = 0; i < top; i++)
        memcpy(lk__partials_slot(f->sums, low + i) + at, stack[i], width * sizeof **stack);
}

static void fold_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const fold *f = arg;
    lk_chunk_range range = lk__chunk(f->width, f->columns, index);
    for (size_t at = range.begin; at < range.end; at += BLOCK)
        fold_block(f, at, lk__size_min(range.end - at, BLOCK));
}

void LK_KERNEL(rows_fold)(lk_device *dev, size_t width, const float *leaves, size_t row, const lk_shards *shards,
                          lk_partials sums)
{
    lk_pool *pool = lk__cpu_pool(dev);
    size_t tasks = lk__cpu_tasks((size_t)lk__pool_threads(pool), 1);
    fold f = {.width = width, .row = row, .leaves = leaves, .shards = shards, .sums = sums};
    f.range = lk__fold_range_of(shards);
    f.columns = lk__size_round_up(lk__size_divide_up(width, tasks), BLOCK);
    if (width > 0)
        lk__pool_run(pool, lk__size_divide_up(width, f.columns), fold_task, &f);
}
