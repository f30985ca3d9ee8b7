/* groupnorm.c - group normalisation and layer normalisation.
 *
 * Sums are in double. The sum over a set has CHAINS chains: chain k has the channels k, k + CHAINS, ... of the group,
 * in the order of pixels, and the chains are added in order. The sums for a channel's weight and bias are one chain
 * each over the pixels of a shard. */
#include <math.h>
#include <string.h>

#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"

enum { CHAINS = 8, BLOCK = 64 };

/* Arguments of both passes. */
typedef struct pass {
    const lk_groupnorm_desc *desc;
    size_t sets, rows, width, c; /* a set has `rows` pixels of `width` channels; pixels are c apart */
    const float *x, *dy;         // (n, h, w, c)
    float *moments;              // (sets, 2)
    const float *moments_src;    // the same as an input
    float *y;                    // (n, h, w, c), or dx
    void (*set)(const struct pass *p, size_t set);
} pass;

static pass pass_of(const lk_groupnorm_desc *desc, const lk_tensor *x)
{
    return (pass){.desc = desc,
                  .sets = lk__groupnorm_desc_sets(desc, x->shape),
                  .rows = desc->by_pixel ? 1 : x->shape.h * x->shape.w,
                  .width = x->shape.c / desc->groups,
                  .c = x->shape.c,
                  .x = lk__tensor_f32(x)};
}

static size_t first_channel(const pass *p, size_t set)
{
    return set % p->desc->groups * p->width;
}

/* The index of a set's first element. */
static size_t first_element(const pass *p, size_t set)
{
    return set / p->desc->groups * p->rows * p->c + first_channel(p, set);
}

static void sets_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const pass *p = arg;
    lk_chunk_range range = lk__chunk(p->sets, lk__chunk_rows(4 * p->rows * p->width), index);
    for (size_t set = range.begin; set < range.end; set++)
        p->set(p, set);
}

static void run(lk_device *dev, pass p)
{
    lk__chunk_run_rows(dev, p.sets, 4 * p.rows * p.width, sets_task, &p);
}

static double fold(const double chains[CHAINS])
{
    double sum = chains[0];
    for (size_t k = 1; k < CHAINS; k++)
        sum += chains[k];
    return sum;
}

/* The sum of the set's elements minus `mean`, or of the squares of these. */
static double set_sum(const pass *p, const float *x, double mean, bool squares)
{
    double chains[CHAINS] = {0};
    for (size_t row = 0; row < p->rows; row++, x += p->c)
        for (size_t i = 0; i < p->width; i += CHAINS) {
            size_t n = lk__size_min(CHAINS, p->width - i);
            for (size_t k = 0; k < n; k++) {
                double value = (double)x[i + k] - mean;
                chains[k] += squares ? value * value : value;
            }
        }
    return fold(chains);
}

static void forward_set(const pass *p, size_t set)
{
    size_t at = first_element(p, set), channel = first_channel(p, set);
    const float *x = p->x + at, *gamma = p->desc->gamma + channel, *beta = p->desc->beta + channel;
    float *y = p->y + at;
    double count = (double)(p->rows * p->width), mean = set_sum(p, x, 0, false) / count;
    double variance = set_sum(p, x, mean, true) / count;
    float middle = (float)mean, scale = (float)(1.0 / sqrt(variance + (double)p->desc->eps));
    p->moments[2 * set] = middle;
    p->moments[2 * set + 1] = scale;
    for (size_t row = 0; row < p->rows; row++, x += p->c, y += p->c)
        for (size_t i = 0; i < p->width; i++)
            y[i] = __builtin_fmaf((x[i] - middle) * scale, gamma[i], beta[i]);
}

void LK_KERNEL(groupnorm_forward)(lk_device *dev, const lk_groupnorm_desc *desc, const lk_tensor *x, float *moments,
                                  lk_tensor *y)
{
    pass p = pass_of(desc, x);
    p.moments = moments;
    p.y = lk__tensor_f32(y);
    p.set = forward_set;
    run(dev, p);
}

/* Means over the set of gamma * dy and of gamma * dy * xhat. */
static void grad_means(const pass *p, size_t set, float means[2])
{
    double chains[2][CHAINS] = {{0}}, count = (double)(p->rows * p->width);
    size_t at = first_element(p, set);
    const float *x = p->x + at, *dy = p->dy + at, *gamma = p->desc->gamma + first_channel(p, set);
    float mean = p->moments_src[2 * set], scale = p->moments_src[2 * set + 1];
    for (size_t row = 0; row < p->rows; row++, x += p->c, dy += p->c)
        for (size_t i = 0; i < p->width; i += CHAINS) {
            size_t n = lk__size_min(CHAINS, p->width - i);
            for (size_t k = 0; k < n; k++) {
                double g = (double)gamma[i + k] * (double)dy[i + k];
                chains[0][k] += g;
                chains[1][k] += g * (double)((x[i + k] - mean) * scale);
            }
        }
    means[0] = (float)(fold(chains[0]) / count);
    means[1] = (float)(fold(chains[1]) / count);
}

static void grad_set(const pass *p, size_t set)
{
    size_t at = first_element(p, set);
    const float *x = p->x + at, *dy = p->dy + at, *gamma = p->desc->gamma + first_channel(p, set);
    float mean = p->moments_src[2 * set], scale = p->moments_src[2 * set + 1], means[2], *dx = p->y + at;
    grad_means(p, set, means);
    for (size_t row = 0; row < p->rows; row++, x += p->c, dy += p->c, dx += p->c)
        for (size_t i = 0; i < p->width; i++) {
            float xhat = (x[i] - mean) * scale;
            dx[i] = scale * __builtin_fmaf(-xhat, means[1], __builtin_fmaf(gamma[i], dy[i], -means[0]));
        }
}

void LK_KERNEL(groupnorm_grad_input)(lk_device *dev, const lk_groupnorm_desc *desc, const lk_tensor *x,
                                     const lk_tensor *dy, const float *moments, lk_tensor *dx)
{
    pass p = pass_of(desc, x);
    p.dy = lk__tensor_f32(dy);
    p.moments_src = moments;
    p.y = lk__tensor_f32(dx);
    p.set = grad_set;
    run(dev, p);
}

/* The sums of a shard's pixels for blocks of channels. */
typedef struct weight_sums {
    pass p;
    size_t pixels, blocks; /* of a sample; of channels */
    const lk_shards *shards;
    float *leaves; // (count, 2, c)
} weight_sums;

/* Mean and scale of each of n channels in the sets that begin with set `first`. */
static void spread_moments(const pass *p, size_t first, size_t channel, size_t n, float mean[BLOCK], float scale[BLOCK])
{
    for (size_t i = 0; i < n; i++) {
        const float *moments = p->moments_src + 2 * (first + (channel + i) / p->width);
        mean[i] = moments[0];
        scale[i] = moments[1];
    }
}

static void weight_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const weight_sums *w = arg;
    const pass *p = &w->p;
    size_t shard = index / w->blocks, channel = index % w->blocks * BLOCK, n = lk__size_min(BLOCK, p->c - channel);
    double products[BLOCK] = {0}, sums[BLOCK] = {0};
    float mean[BLOCK], scale[BLOCK];
    size_t begin = w->shards->begin[shard] * w->pixels, end = w->shards->begin[shard + 1] * w->pixels;
    for (size_t pixel = begin; pixel < end; pixel++) {
        const float *x = p->x + pixel * p->c + channel, *dy = p->dy + pixel * p->c + channel;
        if (pixel % p->rows == 0)
            spread_moments(p, pixel / p->rows * p->desc->groups, channel, n, mean, scale);
        for (size_t i = 0; i < n; i++) {
            products[i] += (double)dy[i] * (double)((x[i] - mean[i]) * scale[i]);
            sums[i] += (double)dy[i];
        }
    }
    float *leaf = w->leaves + shard * 2 * p->c + channel;
    for (size_t i = 0; i < n; i++) {
        leaf[i] = (float)products[i];
        leaf[p->c + i] = (float)sums[i];
    }
}

void LK_KERNEL(groupnorm_grad_weight)(lk_device *dev, const lk_groupnorm_desc *desc, const lk_tensor *x,
                                      const lk_tensor *dy, const float *moments, const lk_shards *shards, float *leaves)
{
    weight_sums w = {.p = pass_of(desc, x),
                     .pixels = x->shape.h * x->shape.w,
                     .blocks = (x->shape.c + BLOCK - 1) / BLOCK,
                     .shards = shards,
                     .leaves = leaves};
    w.p.dy = lk__tensor_f32(dy);
    w.p.moments_src = moments;
    lk__pool_run(lk__cpu_pool(dev), (size_t)shards->count * w.blocks, weight_task, &w);
}
