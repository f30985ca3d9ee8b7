/* rows.c - adds short rows, one for each shard, over the sum tree: sums of BatchNorm, losses. Large gradients
 * are folded by their own kernels while they are in cache. */
#include <string.h>

#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"

/* Columns of a chunk, at least; a multiple of every vector width. */
enum { LEAST_COLUMNS = 256, CHUNKS_A_THREAD = 2 };

typedef struct fold {
    size_t width, row;
    size_t chunk;        /* columns of a task */
    const float *leaves; // (count, row)
    const lk_shards *shards;
    lk_partials sums;
} fold;

static void merge(size_t width, float *left, const float *right)
{
    size_t i = 0;
    for (; i + V <= width; i += V)
        v_store(left + i, v_add(v_load(left + i), v_load(right + i)));
    if (i < width)
        v_store_n(left + i, v_add(v_load_n(left + i, width - i), v_load_n(right + i, width - i)), width - i);
}

static void fold_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const fold *f = arg;
    lk_chunk_range range = lk__chunk(f->width, f->chunk, index);
    size_t width = range.end - range.begin;
    int depth = f->shards->depth;
    for (int shard = 0; shard < f->shards->count; shard++) {
        const float *leaf = f->leaves + (size_t)shard * f->row + range.begin;
        memcpy(lk__partials_slot(f->sums, depth) + range.begin, leaf, width * sizeof *leaf);
        for (int i = 0; i < f->shards->merges[shard]; i++, depth--)
            merge(width, lk__partials_slot(f->sums, depth - 1) + range.begin,
                  lk__partials_slot(f->sums, depth) + range.begin);
        depth++;
    }
}

void LK_KERNEL(rows_fold)(lk_device *dev, size_t width, const float *leaves, size_t row, const lk_shards *shards,
                          lk_partials sums)
{
    lk_pool *pool = lk__cpu_pool(dev);
    size_t chunks = (size_t)lk__pool_threads(pool) * CHUNKS_A_THREAD;
    size_t chunk = lk__size_round_up(lk__size_divide_up(width, chunks), LEAST_COLUMNS);
    fold f = {.width = width, .row = row, .leaves = leaves, .shards = shards, .sums = sums};
    f.chunk = lk__size_min(lk__size_max(chunk, LEAST_COLUMNS), LK_CHUNK);
    lk__pool_run(pool, lk__size_divide_up(width, f.chunk), fold_task, &f);
}
