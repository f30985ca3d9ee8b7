/* bias.c - a bias for each channel, for layers whose products do not add it, and its gradient: one chain in double over
 * the pixels of a shard. */
#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"

enum { BLOCK = 64 };

typedef struct bias {
    size_t pixels, c, blocks; /* pixels of all samples, or of one; blocks of channels */
    const float *b, *dy;
    float *y;
    const lk_shards *shards;
    float *leaves; // (count, c)
} bias;

static void add_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const bias *p = arg;
    lk_chunk_range range = lk__chunk(p->pixels, lk__chunk_rows(p->c), index);
    for (size_t pixel = range.begin; pixel < range.end; pixel++)
        for (size_t i = 0; i < p->c; i += V) {
            size_t n = lk__size_min(V, p->c - i);
            float *y = p->y + pixel * p->c + i;
            v_store_some(y, v_add(v_load_some(y, n), v_load_some(p->b + i, n)), n);
        }
}

void LK_KERNEL(bias_add)(lk_device *dev, const float *b, lk_tensor *y)
{
    bias p = {.pixels = y->shape.n * y->shape.h * y->shape.w, .c = y->shape.c, .b = b, .y = lk__tensor_f32(y)};
    lk__chunk_run_rows(dev, p.pixels, p.c, add_task, &p);
}

static void sums_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const bias *p = arg;
    size_t shard = index / p->blocks, channel = index % p->blocks * BLOCK, n = lk__size_min(BLOCK, p->c - channel);
    double sums[BLOCK] = {0};
    for (size_t pixel = p->shards->begin[shard] * p->pixels; pixel < p->shards->begin[shard + 1] * p->pixels; pixel++)
        for (size_t i = 0; i < n; i++)
            sums[i] += (double)p->dy[pixel * p->c + channel + i];
    for (size_t i = 0; i < n; i++)
        p->leaves[shard * p->c + channel + i] = (float)sums[i];
}

void LK_KERNEL(bias_sums)(lk_device *dev, const lk_tensor *dy, const lk_shards *shards, float *leaves)
{
    bias p = {.pixels = dy->shape.h * dy->shape.w,
              .c = dy->shape.c,
              .blocks = (dy->shape.c + BLOCK - 1) / BLOCK,
              .dy = lk__tensor_f32(dy),
              .shards = shards,
              .leaves = leaves};
    lk__pool_run(lk__cpu_pool(dev), (size_t)shards->count * p.blocks, sums_task, &p);
}
