/* parts.c - runs functions of the program on the threads of the pool. */
#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"

/* Parts for each thread: more than one, so that a thread that is late leaves its share to others. */
enum { PARTS = 4 };

typedef struct parts {
    size_t count, size;
    lk_parts_fn work;
    void *arg;
} parts;

static void part_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const parts *p = arg;
    lk_chunk_range range = lk__chunk(p->count, p->size, index);
    p->work(p->arg, range.begin, range.end, NULL);
}

void LK_KERNEL(run_parts)(lk_device *dev, size_t count, lk_parts_fn work, void *arg)
{
    lk_pool *pool = lk__cpu_pool(dev);
    size_t threads = (size_t)lk__pool_threads(pool), most = threads > 1 ? threads * PARTS : 1;
    if (count == 0)
        return;
    parts p = {.count = count, .size = (count + most - 1) / most, .work = work, .arg = arg};
    lk__pool_run(pool, (count + p.size - 1) / p.size, part_task, &p);
}
