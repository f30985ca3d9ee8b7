/* chunks.h - splits elementwise work among the threads of the pool.
 *
 * A chunk is large enough to pay for starting a task. Its size is a multiple of every vector width, so only the
 * last chunk has a tail. */
#ifndef LK_TENSOR_CPU_CHUNKS_H
#define LK_TENSOR_CPU_CHUNKS_H

#include "base/mem.h"
#include "tensor/cpu/cpu.h"

enum { LK_CHUNK = 16384 };

typedef struct lk_chunk_range {
    size_t begin, end;
} lk_chunk_range;

static inline lk_chunk_range lk__chunk(size_t count, size_t size, size_t index)
{
    return (lk_chunk_range){index * size, lk__size_min(count, (index + 1) * size)};
}

/* Runs task for each chunk of count elements. The task gets its range from lk__chunk(count, LK_CHUNK, index). */
static inline void lk__chunk_run(lk_device *dev, size_t count, lk_pool_fn task, void *arg)
{
    lk__pool_run(lk__cpu_pool(dev), (count + LK_CHUNK - 1) / LK_CHUNK, task, arg);
}

/* Rows of `row` elements that make about one chunk; at least 1. */
static inline size_t lk__chunk_rows(size_t row)
{
    return row < LK_CHUNK ? LK_CHUNK / lk__size_max(row, 1) : 1;
}

/* Runs task for each group of rows. The task gets its rows from lk__chunk(rows, lk__chunk_rows(row), index). */
static inline void lk__chunk_run_rows(lk_device *dev, size_t rows, size_t row, lk_pool_fn task, void *arg)
{
    size_t size = lk__chunk_rows(row);
    lk__pool_run(lk__cpu_pool(dev), (rows + size - 1) / size, task, arg);
}

#endif
