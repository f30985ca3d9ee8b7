/* batchnorm.c - batch normalisation: the statistics of each shard, their merging over the sum tree, and the
 * forward and backward passes.
 *
 * A sum over a shard's pixels runs in LANES chains: pixel p (counted over all samples of the shard) belongs to
 * chain p % LANES. The chains are then added as a balanced tree. The result depends on LANES, but not on tiles
 * or vectors. */
#include <string.h>

#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"

enum {
    LANES = 8,  /* chains of a sum */
    BLOCK = 16, /* channels of a task, a multiple of every V */
    TILE = 128  /* pixels that stay in cache while all vectors of a block are processed; a multiple of LANES */
};

typedef float chains[LANES][BLOCK];

/* The gradient of the ReLU after the normalisation, from the ReLU's argument. */
static inline v_f32 relu_grad(const lk_batchnorm_desc *desc, v_f32 y, v_f32 dy)
{
    return desc->six ? v_relu6_grad(y, dy) : v_relu_grad(y, dy);
}

/* Runs body with l = 0 .. LANES-1 for pixels p + l of a tile. l is a constant in each copy, so the chains stay
 * in registers. */
#define FOR_PIXELS(p, pixels, body)                                                           \
    do {                                                                                      \
        size_t p = 0;                                                                         \
        for (; p + LANES <= (pixels); p += LANES) {                                           \
            _Pragma("GCC unroll 8") for (size_t l = 0; l < LANES; l++) body                   \
        }                                                                                     \
        _Pragma("GCC unroll 8") for (size_t l = 0; l < LANES; l++) if (p + l < (pixels)) body \
    } while (0)

/* Adds the sum of a tile, which is a block (sums.h) of chain l. */
LK_INLINE void add_chain(chains sums, size_t l, size_t at, v_f32 sum)
{
    v_store(sums[l] + at, v_add(v_load(sums[l] + at), sum));
}

/* Adds n channels (at most V) of a tile. */
static inline void add_values(const float *x, size_t c, size_t pixels, size_t n, size_t at, chains sums)
{
    v_f32 sum[LANES];
    for (size_t l = 0; l < LANES; l++)
        sum[l] = v_zero();
    FOR_PIXELS(p, pixels, { sum[l] = v_add(sum[l], v_load_some(x + (p + l) * c, n)); });
    for (size_t l = 0; l < LANES; l++)
        add_chain(sums, l, at, sum[l]);
}

static inline void add_squares(const float *x, size_t c, size_t pixels, size_t n, size_t at, const float *means,
                               chains sums)
{
    v_f32 sum[LANES], mean = v_load(means + at);
    for (size_t l = 0; l < LANES; l++)
        sum[l] = v_zero();
    FOR_PIXELS(p, pixels, {
        v_f32 d = v_sub(v_load_some(x + (p + l) * c, n), mean);
        sum[l] = v_fma(d, d, sum[l]);
    });
    for (size_t l = 0; l < LANES; l++)
        add_chain(sums, l, at, sum[l]);
}

static void fold_chains(chains sums, float out[BLOCK])
{
    for (size_t at = 0; at < BLOCK; at += V) {
        v_f32 s[LANES];
        for (size_t l = 0; l < LANES; l++)
            s[l] = v_load(sums[l] + at);
        v_f32 low = v_add(v_add(s[0], s[1]), v_add(s[2], s[3]));
        v_f32 high = v_add(v_add(s[4], s[5]), v_add(s[6], s[7]));
        v_store(out + at, v_add(low, high));
    }
}

/* `width` channels (at most BLOCK) of one shard. */
typedef struct block {
    size_t c, pixels, width;
    const float *x;  // (pixels, c), from the block's first channel
    const float *dy; // the same, or NULL
} block;

static void block_values(const block *b, float out[BLOCK])
{
    chains sums = {{0}};
    for (size_t p = 0; p < b->pixels; p += TILE) {
        size_t pixels = lk__size_min(TILE, b->pixels - p);
        for (size_t at = 0; at < b->width; at += V) {
            const float *x = b->x + p * b->c + at;
            if (b->width - at >= V)
                add_values(x, b->c, pixels, V, at, sums);
            else
                add_values(x, b->c, pixels, b->width - at, at, sums);
        }
    }
    fold_chains(sums, out);
}

static void block_squares(const block *b, const float means[BLOCK], float out[BLOCK])
{
    chains sums = {{0}};
    for (size_t p = 0; p < b->pixels; p += TILE) {
        size_t pixels = lk__size_min(TILE, b->pixels - p);
        for (size_t at = 0; at < b->width; at += V) {
            const float *x = b->x + p * b->c + at;
            if (b->width - at >= V)
                add_squares(x, b->c, pixels, V, at, means, sums);
            else
                add_squares(x, b->c, pixels, b->width - at, at, means, sums);
        }
    }
    fold_chains(sums, out);
}

/* One sum for each shard and channel, over x alone or over x and dy. desc and moments are for the latter. */
typedef struct reduction {
    lk_shape shape;
    const float *x, *dy; // (n, h, w, c)
    const lk_shards *shards;
    const lk_batchnorm_desc *desc;
    const lk_moments *moments;
    size_t blocks; /* blocks of channels */
    float *out;    // (count, 2, c)
} reduction;

static block reduction_block(const reduction *r, size_t shard, size_t channel)
{
    size_t pixels = r->shape.h * r->shape.w, c = r->shape.c;
    size_t begin = r->shards->begin[shard], end = r->shards->begin[shard + 1];
    size_t offset = begin * pixels * c + channel;
    return (block){.c = c,
                   .pixels = (end - begin) * pixels,
                   .width = lk__size_min(BLOCK, c - channel),
                   .x = r->x + offset,
                   .dy = r->dy ? r->dy + offset : NULL};
}

static void stats_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const reduction *r = arg;
    size_t shard = index / r->blocks, channel = index % r->blocks * BLOCK;
    block b = reduction_block(r, shard, channel);
    float mean[BLOCK] = {0}, squares[BLOCK] = {0};
    if (b.pixels) {
        block_values(&b, mean);
        for (size_t i = 0; i < BLOCK; i++)
            mean[i] /= (float)b.pixels;
        block_squares(&b, mean, squares);
    }
    float *out = r->out + shard * 2 * b.c + channel;
    memcpy(out, mean, b.width * sizeof *out);
    memcpy(out + b.c, squares, b.width * sizeof *out);
}

/* The values of a block's channels that its gradient needs. */
typedef struct channel_rows {
    float mean[BLOCK], scale[BLOCK], gamma[BLOCK], beta[BLOCK];
} channel_rows;

static inline void add_products(const float *x, const float *dy, size_t c, size_t pixels, size_t n, size_t at,
                                const lk_batchnorm_desc *desc, const channel_rows *rows, chains sums, chains products)
{
    v_f32 sum[LANES], product[LANES], mean = v_load(rows->mean + at), scale = v_load(rows->scale + at);
    v_f32 gamma = v_load(rows->gamma + at), beta = v_load(rows->beta + at);
    for (size_t l = 0; l < LANES; l++) {
        sum[l] = product[l] = v_zero();
    }
    FOR_PIXELS(p, pixels, {
        v_f32 d = v_load_some(dy + (p + l) * c, n);
        v_f32 xhat = v_mul(v_sub(v_load_some(x + (p + l) * c, n), mean), scale);
        d = desc->relu ? relu_grad(desc, v_fma(xhat, gamma, beta), d) : d;
        sum[l] = v_add(sum[l], d);
        product[l] = v_fma(d, xhat, product[l]);
    });
    for (size_t l = 0; l < LANES; l++) {
        add_chain(sums, l, at, sum[l]);
        add_chain(products, l, at, product[l]);
    }
}

static void block_products(const block *b, const lk_batchnorm_desc *desc, const channel_rows *rows, float sum[BLOCK],
                           float product[BLOCK])
{
    chains sums = {{0}}, products = {{0}};
    for (size_t p = 0; p < b->pixels; p += TILE) {
        size_t pixels = lk__size_min(TILE, b->pixels - p);
        for (size_t at = 0; at < b->width; at += V) {
            const float *x = b->x + p * b->c + at, *dy = b->dy + p * b->c + at;
            if (b->width - at >= V)
                add_products(x, dy, b->c, pixels, V, at, desc, rows, sums, products);
            else
                add_products(x, dy, b->c, pixels, b->width - at, at, desc, rows, sums, products);
        }
    }
    fold_chains(sums, sum);
    fold_chains(products, product);
}

static size_t group_row(const lk_moments *moments, size_t shard)
{
    return moments->groups == 1 ? 0 : shard;
}

static void sums_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const reduction *r = arg;
    size_t shard = index / r->blocks, channel = index % r->blocks * BLOCK;
    block b = reduction_block(r, shard, channel);
    size_t row = group_row(r->moments, shard) * b.c + channel, bytes = b.width * sizeof(float);
    channel_rows rows = {{0}};
    float sum[BLOCK], product[BLOCK];
    memcpy(rows.mean, r->moments->mean + row, bytes);
    memcpy(rows.scale, r->moments->scale + row, bytes);
    memcpy(rows.gamma, r->desc->gamma + channel, bytes);
    memcpy(rows.beta, r->desc->beta + channel, bytes);
    block_products(&b, r->desc, &rows, sum, product);
    float *out = r->out + shard * 2 * b.c + channel;
    memcpy(out, sum, bytes);
    memcpy(out + b.c, product, bytes);
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

void LK_KERNEL(batchnorm_sums)(lk_device *dev, const lk_batchnorm_desc *desc, const lk_tensor *x, const lk_tensor *dy,
                               const lk_shards *shards, const lk_moments *moments, const lk_batchnorm_sums *out)
{
    size_t c = x->shape.c;
    reduction r = {.shape = x->shape,
                   .x = lk__tensor_f32(x),
                   .dy = lk__tensor_f32(dy),
                   .shards = shards,
                   .desc = desc,
                   .moments = moments,
                   .blocks = (c + BLOCK - 1) / BLOCK,
                   .out = out->sums};
    lk__pool_run(lk__cpu_pool(dev), (size_t)shards->count * r.blocks, sums_task, &r);
    if (!out->partials.slot0)
        return;
    LK_KERNEL(rows_fold)(dev, 2 * c, out->sums, 2 * c, shards, out->partials);
    copy_entries(c, shards, out);
}

/* Merges two (mean, M2) entries over so many elements each into left. */
static void merge_moments(size_t c, size_t left_count, size_t right_count, float *left, const float *right)
{
    size_t count = left_count + right_count;
    if (count == 0) {
        memset(left, 0, 2 * c * sizeof *left);
        return;
    }
    float share = (float)right_count / (float)count;
    v_f32 mean_weight = v_set1(share), square_weight = v_set1((float)left_count * share);
    for (size_t i = 0; i < c; i += V) {
        size_t n = lk__size_min(V, c - i);
        v_f32 mean = v_load_some(left + i, n), delta = v_sub(v_load_some(right + i, n), mean);
        v_f32 squares = v_add(v_load_some(left + c + i, n), v_load_some(right + c + i, n));
        v_store_some(left + i, v_fma(delta, mean_weight, mean), n);
        v_store_some(left + c + i, v_fma(v_mul(delta, delta), square_weight, squares), n);
    }
}

void LK_KERNEL(batchnorm_fold)(lk_device *dev, size_t c, size_t pixels, const lk_shards *shards, const float *stats,
                               lk_partials moments)
{
    (void)dev;
    size_t rows[LK_TREE_MAX_DEPTH + 1];
    int depth = shards->depth;
    for (int d = 0; d < depth; d++)
        rows[d] = shards->rows[d];
    for (int shard = 0; shard < shards->count; shard++) {
        memcpy(lk__partials_slot(moments, depth), stats + (size_t)shard * 2 * c, 2 * c * sizeof *stats);
        rows[depth] = shards->begin[shard + 1] - shards->begin[shard];
        for (int i = 0; i < shards->merges[shard]; i++, depth--) {
            merge_moments(c, rows[depth - 1] * pixels, rows[depth] * pixels, lk__partials_slot(moments, depth - 1),
                          lk__partials_slot(moments, depth));
            rows[depth - 1] += rows[depth];
        }
        depth++;
    }
}

static void invert(size_t c, const float *squares, float count, float eps, float *scale)
{
    for (size_t i = 0; i < c; i += V) {
        size_t n = lk__size_min(V, c - i);
        v_f32 variance = v_div(v_load_some(squares + i, n), v_set1(count));
        v_store_some(scale + i, v_div(v_set1(1.0f), v_sqrt(v_add(variance, v_set1(eps)))), n);
    }
}

void LK_KERNEL(batchnorm_moments)(lk_device *dev, size_t c, size_t pixels, const float *stats, const size_t *rows,
                                  float eps, lk_moments *moments)
{
    (void)dev;
    for (size_t g = 0; g < (size_t)moments->groups; g++) {
        const float *entry = stats + g * 2 * c;
        if (rows[g]) {
            memcpy(moments->mean + g * c, entry, c * sizeof *entry);
            invert(c, entry + c, (float)(rows[g] * pixels), eps, moments->scale + g * c);
        } else {
            memset(moments->mean + g * c, 0, c * sizeof *entry);
            memset(moments->scale + g * c, 0, c * sizeof *entry);
        }
    }
}

void LK_KERNEL(batchnorm_stats)(lk_device *dev, const lk_tensor *x, const lk_shards *shards,
                                const lk_batchnorm_stats *out)
{
    size_t c = x->shape.c, pixels = x->shape.h * x->shape.w;
    reduction r = {.shape = x->shape,
                   .x = lk__tensor_f32(x),
                   .shards = shards,
                   .blocks = (c + BLOCK - 1) / BLOCK,
                   .out = out->stats};
    lk__pool_run(lk__cpu_pool(dev), (size_t)shards->count * r.blocks, stats_task, &r);
    if (out->partials.slot0)
        LK_KERNEL(batchnorm_fold)(dev, c, pixels, shards, out->stats, out->partials);
    if (out->moments)
        LK_KERNEL(batchnorm_moments)
    (dev, c, pixels, out->by_shard ? out->stats : out->partials.slot0, out->rows, out->eps, out->moments);
}

void LK_KERNEL(batchnorm_running_moments)(lk_device *dev, size_t c, const float *mean, const float *variance, float eps,
                                          lk_moments *moments)
{
    (void)dev;
    memcpy(moments->mean, mean, c * sizeof *mean);
    invert(c, variance, 1.0f, eps, moments->scale);
}

void LK_KERNEL(batchnorm_running_update)(lk_device *dev, size_t c, const float *entry, size_t elements, float momentum,
                                         const lk_flag *flag, float *mean, float *variance)
{
    (void)dev;
    if (flag && flag->bad)
        return;
    v_f32 fresh = v_set1(momentum), old = v_set1(1.0f - momentum);
    for (size_t i = 0; i < c; i += V) {
        size_t n = lk__size_min(V, c - i);
        if (elements > 0)
            v_store_some(mean + i, v_fma(fresh, v_load_some(entry + i, n), v_mul(old, v_load_some(mean + i, n))), n);
        if (elements > 1) {
            v_f32 unbiased = v_div(v_load_some(entry + c + i, n), v_set1((float)(elements - 1)));
            v_store_some(variance + i, v_fma(fresh, unbiased, v_mul(old, v_load_some(variance + i, n))), n);
        }
    }
}

/* A pass over all pixels. dy, sums and rows are used by the gradient only. */
typedef struct pass {
    lk_shape shape;
    const float *x, *dy; // (n, h, w, c)
    float *y;            // (n, h, w, c), or dx
    const lk_shards *shards;
    const lk_moments *moments;
    const lk_batchnorm_desc *desc;
    const float *other; // (n, h, w, others), or NULL
    size_t others;
    const float *sums;  // (groups, 2, c)
    const size_t *rows; // (groups)
    bool add;
    /* Processes pixels [p, p + pixels) of one group, from channel i on. */
    void (*tile)(const struct pass *s, size_t group, size_t p, size_t pixels, size_t i);
} pass;

static inline v_f32 relu(const lk_batchnorm_desc *desc, v_f32 value)
{
    return desc->six ? v_relu6(value) : v_relu(value);
}

/* The first m of the n lanes exist in `other` too. */
static inline void forward_lanes(const pass *s, size_t group, size_t p, size_t pixels, size_t i, size_t n, size_t m)
{
    size_t c = s->shape.c, others = s->others;
    v_f32 mean = v_load_some(s->moments->mean + group * c + i, n),
          scale = v_load_some(s->moments->scale + group * c + i, n);
    v_f32 gamma = v_load_some(s->desc->gamma + i, n), beta = v_load_some(s->desc->beta + i, n);
    const float *x = s->x + p * c + i, *other = s->other ? s->other + p * others + lk__size_min(i, others) : NULL;
    float *y = s->y + p * c + i;
    for (size_t k = 0; k < pixels; k++) {
        v_f32 value = v_fma(v_mul(v_sub(v_load_some(x + k * c, n), mean), scale), gamma, beta);
        value = other ? v_add(value, v_load_some(other + k * others, m)) : value;
        v_store_some(y + k * c, s->desc->relu ? relu(s->desc, value) : value, n);
    }
}

static void forward_tile(const pass *s, size_t group, size_t p, size_t pixels, size_t i)
{
    size_t n = lk__size_min(V, s->shape.c - i),
           m = s->other ? lk__size_min(n, s->others - lk__size_min(i, s->others)) : n;
    if (n == V && m == V)
        forward_lanes(s, group, p, pixels, i, V, V);
    else
        forward_lanes(s, group, p, pixels, i, n, m);
}

static inline void grad_lanes(const pass *s, size_t group, size_t p, size_t pixels, size_t i, size_t n)
{
    size_t c = s->shape.c;
    v_f32 mean = v_load_some(s->moments->mean + group * c + i, n),
          scale = v_load_some(s->moments->scale + group * c + i, n);
    v_f32 count = v_set1((float)(s->rows[group] * s->shape.h * s->shape.w));
    const float *sums = s->sums + group * 2 * c + i;
    v_f32 shift = v_div(v_load_some(sums, n), count);
    v_f32 slope = v_sub(v_zero(), v_div(v_load_some(sums + c, n), count));
    v_f32 gamma = v_load_some(s->desc->gamma + i, n), beta = v_load_some(s->desc->beta + i, n);
    v_f32 factor = v_mul(gamma, scale);
    const float *x = s->x + p * c + i, *dy = s->dy + p * c + i;
    float *dx = s->y + p * c + i;
    for (size_t k = 0; k < pixels; k++) {
        v_f32 xhat = v_mul(v_sub(v_load_some(x + k * c, n), mean), scale);
        v_f32 d = v_load_some(dy + k * c, n);
        d = s->desc->relu ? relu_grad(s->desc, v_fma(xhat, gamma, beta), d) : d;
        v_f32 value = v_fma(xhat, slope, v_sub(d, shift));
        value = v_mul(factor, value);
        v_store_some(dx + k * c, s->add ? v_add(v_load_some(dx + k * c, n), value) : value, n);
    }
}

static void grad_tile(const pass *s, size_t group, size_t p, size_t pixels, size_t i)
{
    if (s->shape.c - i >= V)
        grad_lanes(s, group, p, pixels, i, V);
    else
        grad_lanes(s, group, p, pixels, i, s->shape.c - i);
}

/* Splits the pixels of all samples into runs of the same group, and runs into tiles. */
static void pass_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const pass *s = arg;
    size_t c = s->shape.c, hw = s->shape.h * s->shape.w, groups = (size_t)s->moments->groups;
    lk_chunk_range range = lk__chunk(s->shape.n * hw, lk__chunk_rows(c), index);
    size_t group = 0;
    for (size_t p = range.begin; p < range.end;) {
        while (groups > 1 && s->shards->begin[group + 1] * hw <= p)
            group++;
        size_t end = groups > 1 ? lk__size_min(range.end, s->shards->begin[group + 1] * hw) : range.end;
        size_t pixels = lk__size_min(TILE, end - p);
        for (size_t i = 0; i < c; i += V)
            s->tile(s, group, p, pixels, i);
        p += pixels;
    }
}

void LK_KERNEL(batchnorm_forward)(lk_device *dev, const lk_batchnorm_desc *desc, const lk_tensor *x,
                                  const lk_shards *shards, const lk_moments *moments, lk_tensor *y)
{
    pass s = {.shape = x->shape,
              .x = lk__tensor_f32(x),
              .y = lk__tensor_f32(y),
              .shards = shards,
              .moments = moments,
              .desc = desc,
              .other = desc->other ? lk__tensor_f32(desc->other) : NULL,
              .others = desc->other ? desc->other->shape.c : 0,
              .tile = forward_tile};
    lk__chunk_run_rows(dev, s.shape.n * s.shape.h * s.shape.w, s.shape.c, pass_task, &s);
}

void LK_KERNEL(batchnorm_grad_input)(lk_device *dev, const lk_batchnorm_desc *desc, const lk_batchnorm_grad *grad,
                                     const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                                     const lk_moments *moments, lk_tensor *dx)
{
    pass s = {.shape = x->shape,
              .x = lk__tensor_f32(x),
              .dy = lk__tensor_f32(dy),
              .y = lk__tensor_f32(dx),
              .shards = shards,
              .moments = moments,
              .desc = desc,
              .sums = grad->sums,
              .rows = grad->rows,
              .add = grad->add,
              .tile = grad_tile};
    lk__chunk_run_rows(dev, s.shape.n * s.shape.h * s.shape.w, s.shape.c, pass_task, &s);
}
