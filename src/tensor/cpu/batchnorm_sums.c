/* batchnorm_sums.c - batch normalisation: the statistics of each shard, and the sums of its gradient.
 *
 * A sum over a shard's pixels runs in LANES chains: pixel p (counted over all samples of the shard) belongs to
 * chain p % LANES. A block (sums.h) of a chain has the chain's pixels of a tile, which is TILE consecutive pixels. The
 * chains are then added as a balanced tree. The result depends on LANES and TILE, but not on slabs or vectors. */
#include <string.h>

#include "tensor/cpu/batchnorm.h"
#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"

enum {
    LANES = LK_SLAB_FOLD, /* chains of a sum */
    TILE = 128,           /* pixels, a multiple of LANES */
    PANEL = 8             /* vectors of a row that are summed together, in registers */
};

/* What is summed: x; or the squares of x - mean; or dy, and dy * xhat. */
typedef enum addend { VALUES, SQUARES, PRODUCTS } addend;

typedef struct addends {
    const float *x, *dy; /* from the slab's first element on */
    lk_slab_rows rows;
    const lk_batchnorm_desc *desc;
    float *sum;               /* NULL, or dy, which first becomes mask <= 0 ? 0 : dy + part */
    const float *part, *mask; /* mask NULL: dy + part */
} addends;

/* Sums of a slab: (LANES, channels). `products` are those of dy * xhat. */
typedef struct chains {
    float sums[LANES * LK_SLAB_ROW], products[LANES * LK_SLAB_ROW];
} chains;

/* Columns [begin, end) of those rows of a tile that belong to the same chains. */
typedef struct strip {
    size_t at, rows, step; /* the first row's element in the slab; the number of rows; elements from one to the next */
    size_t begin, end;
    size_t next; /* elements from a row to the row that is read after the strip */
    bool first;  /* of the first tile */
} strip;

/* Adds n elements of the slab, from element `at` on, in column j of a row. */
LK_INLINE void add_vector(addend kind, const addends *a, size_t at, size_t j, size_t n, v_f32 *sum, v_f32 *product)
{
    v_f32 x = v_load_some(a->x + at, n);
    if (kind == VALUES) {
        *sum = v_add(*sum, x);
        return;
    }
    v_f32 d = v_sub(x, v_load_some(a->rows.mean + j, n));
    if (kind == SQUARES) {
        *sum = v_fma(d, d, *sum);
        return;
    }
    v_f32 xhat = v_mul(d, v_load_some(a->rows.scale + j, n)), dy = v_load_some(a->dy + at, n);
    if (a->desc->relu) {
        v_f32 y = v_fma(xhat, v_load_some(a->rows.gamma + j, n), v_load_some(a->rows.beta + j, n));
        dy = a->desc->six ? v_relu6_grad(y, dy) : v_relu_grad(y, dy);
    }
    *sum = v_add(*sum, dy);
    *product = v_fma(dy, xhat, *product);
}

/* The first tile stores its sums, so that nothing clears the chains before. An addition to 0 could give other bits: a
 * sum is -0 where a fused multiply-add has rounded a tiny negative product to 0, and 0 + -0 is 0. */
LK_INLINE void add_to(float *sums, v_f32 value, size_t n, bool first)
{
    v_store_some(sums, first ? value : v_add(v_load_some(sums, n), value), n);
}

/* Adds `vectors` vectors of n elements from column j on. Squares are of values that were read just before. */
LK_INLINE void add_panel(addend kind, const addends *a, const strip *s, size_t j, size_t vectors, size_t n, size_t next,
                         float *sums, float *products)
{
    v_f32 sum[PANEL], product[PANEL];
    LK_UNROLL for (size_t v = 0; v < vectors; v++) sum[v] = product[v] = v_zero();
    size_t at = s->at + j;
    for (size_t row = 0; row < s->rows; row++, at += s->step) {
        LK_UNROLL for (size_t v = 0; v < vectors; v++)
        {
            bool fetches = v * V % LK_SLAB_LINE == 0;
            if (fetches && kind != SQUARES)
                __builtin_prefetch(a->x + at + next + v * V);
            if (fetches && kind == PRODUCTS)
                __builtin_prefetch(a->dy + at + next + v * V);
            add_vector(kind, a, at + v * V, j + v * V, n, &sum[v], &product[v]);
        }
    }
    LK_UNROLL for (size_t v = 0; v < vectors; v++)
    {
        add_to(sums + j + v * V, sum[v], n, s->first);
        if (kind == PRODUCTS)
            add_to(products + j + v * V, product[v], n, s->first);
    }
}

LK_INLINE void add_strip(addend kind, const addends *a, const strip *s, float *sums, float *products)
{
    enum { COLUMNS = PANEL * V };
    size_t j = s->begin;
    for (; j + COLUMNS <= s->end; j += COLUMNS)
        add_panel(kind, a, s, j, PANEL, V, j + 2 * COLUMNS <= s->end ? COLUMNS : s->next - j, sums, products);
    for (; j + COLUMNS / 2 <= s->end; j += COLUMNS / 2)
        add_panel(kind, a, s, j, PANEL / 2, V, s->next, sums, products);
    for (; j + V <= s->end; j += V)
        add_panel(kind, a, s, j, 1, V, s->next, sums, products);
    if (j < s->end)
        add_panel(kind, a, s, j, 1, s->end - j, s->next, sums, products);
}

/* Adds the tile that begins at pixel p. Of chains with a pixel of an incomplete last row, the rows are one more. */
LK_INLINE void add_tile(addend kind, const addends *a, const lk_slab *s, size_t p, chains *out)
{
    size_t pixels = lk__size_min(TILE, s->pixels - p), lanes = LANES / s->fold, width = s->fold * s->channels;
    size_t rows = pixels / s->fold, rest = pixels % s->fold * s->channels;
    for (size_t lane = 0; lane < lanes; lane++) {
        strip t = {.at = (p / s->fold + lane) * s->stride,
                   .rows = (rows + lanes - 1 - lane) / lanes,
                   .step = lanes * s->stride,
                   .end = width,
                   .next = lane + 1 < lanes ? s->stride : (TILE / s->fold + 1 - lanes) * s->stride,
                   .first = p == 0};
        float *sums = out->sums + lane * width, *products = out->products + lane * width;
        if (rest > 0 && lane == rows % lanes) {
            strip longer = t;
            longer.rows++;
            longer.end = t.begin = rest;
            add_strip(kind, a, &longer, sums, products);
        }
        add_strip(kind, a, &t, sums, products);
    }
}

LK_INLINE void fold_chains(size_t channels, const float *sums, float *out)
{
    for (size_t i = 0; i < channels; i += V) {
        size_t n = lk__size_min(V, channels - i);
        v_f32 s[LANES];
        for (size_t l = 0; l < LANES; l++)
            s[l] = v_load_some(sums + l * channels + i, n);
        v_f32 low = v_add(v_add(s[0], s[1]), v_add(s[2], s[3]));
        v_f32 high = v_add(v_add(s[4], s[5]), v_add(s[6], s[7]));
        v_store_some(out + i, v_add(low, high), n);
    }
}

/* Completes dy of the tile that begins at pixel p, just before it is summed. */
static void complete_tile(const addends *a, const lk_slab *s, size_t p)
{
    size_t pixels = lk__size_min(TILE, s->pixels - p);
    for (size_t done = 0; done < pixels; done += s->fold) {
        size_t at = (p + done) / s->fold * s->stride, end = at + lk__size_min(s->fold, pixels - done) * s->channels;
        for (size_t n = V; at < end; at += n) {
            n = lk__size_min(V, end - at);
            __builtin_prefetch(a->part + at + s->stride);
            __builtin_prefetch(a->sum + at + s->stride, 1);
            v_f32 sum = v_add(v_load_some(a->sum + at, n), v_load_some(a->part + at, n));
            if (a->mask) {
                __builtin_prefetch(a->mask + at + s->stride);
                sum = v_relu_grad(v_load_some(a->mask + at, n), sum);
            }
            v_store_some(a->sum + at, sum, n);
        }
    }
}

/* sum and product are (channels); product is of PRODUCTS only. */
LK_INLINE void sum_slab(addend kind, const addends *a, const lk_slab *s, float *sum, float *product)
{
    chains total;
    size_t p = 0;
    do { /* also if there are no pixels */
        if (kind == PRODUCTS && a->sum)
            complete_tile(a, s, p);
        add_tile(kind, a, s, p, &total);
        p += TILE;
    } while (p < s->pixels);
    fold_chains(s->channels, total.sums, sum);
    if (kind == PRODUCTS)
        fold_chains(s->channels, total.products, product);
}

/* Sums for each shard and channel, over x alone or over x and dy. desc, rest and moments are for the latter. */
typedef struct reduction {
    lk_shape shape;
    const float *x, *dy; // (n, h, w, c)
    const lk_shards *shards;
    const lk_batchnorm_desc *desc;
    const lk_batchnorm_addition *rest; /* of dy, or NULL */
    const lk_moments *moments;
    size_t width; /* channels of a slab */
    size_t tasks;
    float *out; // (count, 2, c)
} reduction;

/* Divides the work into slabs of shards, so many that faster threads can take those of slower ones. */
static void divide(lk_device *dev, reduction *r)
{
    size_t c = r->shape.c, threads = (size_t)lk__pool_threads(lk__cpu_pool(dev));
    size_t filled = lk__size_max(lk__size_min((size_t)r->shards->count, r->shape.n), 1);
    r->width = lk__slab_width(c, lk__size_divide_up(lk__cpu_tasks(threads, 2), filled));
    r->tasks = (size_t)r->shards->count * lk__size_divide_up(c, r->width);
}

/* What a task sums. */
typedef struct part {
    size_t shard, channel;
    lk_slab slab;
} part;

static part find_part(const reduction *r, size_t index)
{
    size_t c = r->shape.c, pixels = r->shape.h * r->shape.w, slabs = lk__size_divide_up(c, r->width);
    size_t shard = index / slabs, channel = index % slabs * r->width;
    size_t begin = r->shards->begin[shard], end = r->shards->begin[shard + 1];
    return (part){.shard = shard,
                  .channel = channel,
                  .slab = lk__slab_make(c, begin * pixels, (end - begin) * pixels, channel,
                                        lk__size_min(r->width, c - channel), true)};
}

static void stats_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const reduction *r = arg;
    part p = find_part(r, index);
    float *mean = r->out + p.shard * 2 * r->shape.c + p.channel, *squares = mean + r->shape.c;
    addends a;
    a.x = r->x + p.slab.at;
    sum_slab(VALUES, &a, &p.slab, mean, NULL);
    if (p.slab.pixels)
        for (size_t i = 0; i < p.slab.channels; i++)
            mean[i] /= (float)p.slab.pixels;
    a.rows.mean = lk__slab_repeat(&p.slab, mean, a.rows.copies[0]);
    sum_slab(SQUARES, &a, &p.slab, squares, NULL);
}

static void sums_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const reduction *r = arg;
    part p = find_part(r, index);
    size_t c = r->shape.c, group = r->moments->groups == 1 ? 0 : p.shard;
    float *sum = r->out + p.shard * 2 * c + p.channel, *product = sum + c;
    addends a;
    a.x = r->x + p.slab.at;
    a.dy = r->dy + p.slab.at;
    a.desc = r->desc;
    a.sum = r->rest ? (float *)(uintptr_t)a.dy : NULL;
    a.part = r->rest ? lk__tensor_f32(&r->rest->part) + p.slab.at : NULL;
    a.mask = r->rest && r->rest->mask.data ? lk__tensor_f32(&r->rest->mask) + p.slab.at : NULL;
    lk__slab_rows(&p.slab, r->desc, r->moments, group * c + p.channel, p.channel, &a.rows);
    sum_slab(PRODUCTS, &a, &p.slab, sum, product);
}

/* Copies the entries that are on the stack after the wave. */
static void copy_entries(size_t c, const lk_shards *shards, const lk_batchnorm_sums *out)
{
    int end = shards->depth;
    for (int i = 0; i < shards->count; i++)
        end += 1 - shards->merges[i];
    for (int slot = 0; slot < end; slot++) {
        const float *entry = lk__partials_slot(out->partials, slot);
        if (out->dgamma.slot0)
            memcpy(lk__partials_slot(out->dgamma, slot), entry + c, c * sizeof *entry);
        if (out->dbeta.slot0)
            memcpy(lk__partials_slot(out->dbeta, slot), entry, c * sizeof *entry);
    }
}

static void run_sums(lk_device *dev, reduction *r, const lk_batchnorm_sums *out)
{
    size_t c = r->shape.c;
    r->out = out->sums;
    divide(dev, r);
    lk__pool_run(lk__cpu_pool(dev), r->tasks, sums_task, r);
    if (!out->partials.slot0)
        return;
    LK_KERNEL(rows_fold)(dev, 2 * c, out->sums, 2 * c, r->shards, out->partials);
    copy_entries(c, r->shards, out);
}

void LK_KERNEL(batchnorm_sums)(lk_device *dev, const lk_batchnorm_desc *desc, const lk_tensor *x, const lk_tensor *dy,
                               const lk_shards *shards, const lk_moments *moments, const lk_batchnorm_sums *out)
{
    reduction r = {.shape = x->shape,
                   .x = lk__tensor_f32(x),
                   .dy = lk__tensor_f32(dy),
                   .shards = shards,
                   .desc = desc,
                   .moments = moments};
    run_sums(dev, &r, out);
}

void LK_KERNEL(batchnorm_add_sums)(lk_device *dev, const lk_batchnorm_desc *desc, const lk_batchnorm_addition *add,
                                   const lk_tensor *x, const lk_shards *shards, const lk_moments *moments,
                                   lk_tensor *dy, const lk_batchnorm_sums *out)
{
    reduction r = {.shape = x->shape,
                   .x = lk__tensor_f32(x),
                   .dy = lk__tensor_f32(dy),
                   .shards = shards,
                   .desc = desc,
                   .rest = add,
                   .moments = moments};
    run_sums(dev, &r, out);
}

void LK_KERNEL(batchnorm_stats)(lk_device *dev, const lk_tensor *x, const lk_shards *shards,
                                const lk_batchnorm_stats *out)
{
    size_t c = x->shape.c, pixels = x->shape.h * x->shape.w;
    reduction r = {.shape = x->shape, .x = lk__tensor_f32(x), .shards = shards, .out = out->stats};
    divide(dev, &r);
    /* x has just been written: what each thread wrote last is still in its cache. */
    lk__pool_run_backwards(lk__cpu_pool(dev), r.tasks, stats_task, &r);
    if (out->partials.slot0)
        LK_KERNEL(batchnorm_fold)(dev, c, pixels, shards, out->stats, out->partials);
    if (out->moments)
        LK_KERNEL(batchnorm_moments)
    (dev, c, pixels, out->by_shard ? out->stats : out->partials.slot0, out->rows, out->eps, out->moments);
}
