/* batchnorm.c - batch normalisation: the merging of statistics over the sum tree, and the forward and backward
 * passes. */
#include "tensor/cpu/batchnorm.h"

#include <string.h>

#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"

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

void LK_KERNEL(batchnorm_running_moments)(lk_device *dev, size_t c, const float *mean, const float *variance, float eps,
                                          lk_moments *moments)
{
    (void)dev;
    memcpy(moments->mean, mean, c * sizeof *mean);
    invert(c, variance, 1.0f, eps, moments->scale);
}

static void update_running(const lk_batchnorm_update *u)
{
    v_f32 fresh = v_set1(u->momentum), old = v_set1(1.0f - u->momentum);
    for (size_t i = 0; i < u->c; i += V) {
        size_t n = lk__size_min(V, u->c - i);
        const float *entry = u->entry + i;
        float *mean = u->mean + i, *variance = u->variance + i;
        if (u->elements > 0)
            v_store_some(mean, v_fma(fresh, v_load_some(entry, n), v_mul(old, v_load_some(mean, n))), n);
        if (u->elements > 1) {
            v_f32 unbiased = v_div(v_load_some(entry + u->c, n), v_set1((float)(u->elements - 1)));
            v_store_some(variance, v_fma(fresh, unbiased, v_mul(old, v_load_some(variance, n))), n);
        }
    }
}

void LK_KERNEL(batchnorm_running_update)(lk_device *dev, size_t count, const lk_batchnorm_update *updates,
                                         const lk_flag *flag)
{
    (void)dev;
    if (flag && flag->bad)
        return;
    for (size_t i = 0; i < count; i++)
        update_running(&updates[i]);
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
    size_t width, pixels; /* channels and pixels of a task */
    /* Processes pixels [p, p + pixels) of one group, `channels` channels from `channel` on. */
    void (*run)(const struct pass *s, size_t group, size_t p, size_t pixels, size_t channel, size_t channels);
} pass;

static inline v_f32 relu(const lk_batchnorm_desc *desc, v_f32 value)
{
    return desc->six ? v_relu6(value) : v_relu(value);
}

/* The n elements of a row of `others` elements from element j on; those after the row's end are 0. */
static inline v_f32 load_other(const float *other, size_t others, size_t j, size_t n)
{
    size_t from = lk__size_min(j, others);
    return v_load_some(other + from, lk__size_min(n, others - from));
}

/* Elements of a row. */
static size_t row_width(const lk_slab *s, size_t row)
{
    return lk__size_min(s->fold, s->pixels - row * s->fold) * s->channels;
}

/* Runs `fetch` for each whole line of a row of `width` elements, and body for each vector: elements [j, j + n). */
#define FOR_ROW(j, n, width, fetch, body)                                             \
    do {                                                                              \
        size_t j = 0, n = V;                                                          \
        for (size_t line = 0; line + LK_SLAB_LINE <= (width); line += LK_SLAB_LINE) { \
            fetch;                                                                    \
            LK_UNROLL for (j = line; j < line + LK_SLAB_LINE; j += V)                 \
            {                                                                         \
                body;                                                                 \
            }                                                                         \
        }                                                                             \
        for (; j + V <= (width); j += V) {                                            \
            body;                                                                     \
        }                                                                             \
        n = (width)-j;                                                                \
        if (n > 0) {                                                                  \
            body;                                                                     \
        }                                                                             \
    } while (0)

/* A row of `width` elements; the next row is `next` elements further. */
static inline void forward_row(const lk_batchnorm_desc *desc, const lk_slab_rows *rows, const float *x,
                               const float *other, size_t others, size_t width, size_t next, float *y)
{
    const float *mean = rows->mean, *scale = rows->scale, *gamma = rows->gamma, *beta = rows->beta;
    FOR_ROW(
        j, n, width,
        {
            __builtin_prefetch(x + line + next);
            __builtin_prefetch(y + line + next, 1);
            if (other)
                __builtin_prefetch(other + line + next);
        },
        {
            v_f32 xhat = v_mul(v_sub(v_load_some(x + j, n), v_load_some(mean + j, n)), v_load_some(scale + j, n));
            v_f32 value = v_fma(xhat, v_load_some(gamma + j, n), v_load_some(beta + j, n));
            value = other ? v_add(value, load_other(other, others, j, n)) : value;
            v_store_some(y + j, desc->relu ? relu(desc, value) : value, n);
        });
}

static void forward_run(const pass *s, size_t group, size_t p, size_t pixels, size_t channel, size_t channels)
{
    size_t c = s->shape.c;
    bool narrow = s->other && s->others < c;
    lk_slab b = lk__slab_make(c, p, pixels, channel, channels, !narrow);
    lk_slab_rows rows;
    lk__slab_rows(&b, s->desc, s->moments, group * c + channel, channel, &rows);
    size_t before = lk__size_min(channel, s->others);
    for (size_t row = 0; row < lk__size_divide_up(b.pixels, b.fold); row++) {
        size_t at = b.at + row * b.stride, width = row_width(&b, row);
        const float *other = narrow ? s->other + (p + row) * s->others + before : s->other ? s->other + at : NULL;
        forward_row(s->desc, &rows, s->x + at, other, narrow ? s->others - before : width, width, b.stride, s->y + at);
    }
}

/* dx = factor * (xhat * slope + (dy - shift)), for the channels of a row. */
typedef struct grad_rows {
    lk_slab_rows rows;
    float shift[LK_SLAB_ROW], slope[LK_SLAB_ROW], factor[LK_SLAB_ROW];
} grad_rows;

static void find_grad_rows(const pass *s, const lk_slab *b, size_t group, size_t channel, grad_rows *out)
{
    size_t c = s->shape.c, width = b->fold * b->channels;
    const float *sums = s->sums + group * 2 * c + channel;
    lk__slab_rows(b, s->desc, s->moments, group * c + channel, channel, &out->rows);
    const float *sum = lk__slab_repeat(b, sums, out->shift), *product = lk__slab_repeat(b, sums + c, out->slope);
    v_f32 count = v_set1((float)(s->rows[group] * s->shape.h * s->shape.w));
    for (size_t j = 0; j < width; j += V) {
        size_t n = lk__size_min(V, width - j);
        v_f32 factor = v_mul(v_load_some(out->rows.gamma + j, n), v_load_some(out->rows.scale + j, n));
        v_store_some(out->shift + j, v_div(v_load_some(sum + j, n), count), n);
        v_store_some(out->slope + j, v_sub(v_zero(), v_div(v_load_some(product + j, n), count)), n);
        v_store_some(out->factor + j, factor, n);
    }
}

static inline void grad_row(const lk_batchnorm_desc *desc, const grad_rows *rows, const float *x, const float *dy,
                            size_t width, size_t next, bool add, float *dx)
{
    const float *mean = rows->rows.mean, *scale = rows->rows.scale, *gamma = rows->rows.gamma, *beta = rows->rows.beta;
    FOR_ROW(
        j, n, width,
        {
            __builtin_prefetch(x + line + next);
            __builtin_prefetch(dy + line + next);
            __builtin_prefetch(dx + line + next, 1);
        },
        {
            v_f32 xhat = v_mul(v_sub(v_load_some(x + j, n), v_load_some(mean + j, n)), v_load_some(scale + j, n));
            v_f32 d = v_load_some(dy + j, n);
            if (desc->relu) {
                v_f32 y = v_fma(xhat, v_load_some(gamma + j, n), v_load_some(beta + j, n));
                d = desc->six ? v_relu6_grad(y, d) : v_relu_grad(y, d);
            }
            v_f32 value = v_fma(xhat, v_load_some(rows->slope + j, n), v_sub(d, v_load_some(rows->shift + j, n)));
            value = v_mul(v_load_some(rows->factor + j, n), value);
            v_store_some(dx + j, add ? v_add(v_load_some(dx + j, n), value) : value, n);
        });
}

static void grad_run(const pass *s, size_t group, size_t p, size_t pixels, size_t channel, size_t channels)
{
    lk_slab b = lk__slab_make(s->shape.c, p, pixels, channel, channels, true);
    grad_rows rows;
    find_grad_rows(s, &b, group, channel, &rows);
    for (size_t row = 0; row < lk__size_divide_up(b.pixels, b.fold); row++) {
        size_t at = b.at + row * b.stride;
        grad_row(s->desc, &rows, s->x + at, s->dy + at, row_width(&b, row), b.stride, s->add, s->y + at);
    }
}

/* Splits the pixels of a task into runs of the same group. */
static void pass_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const pass *s = arg;
    size_t c = s->shape.c, hw = s->shape.h * s->shape.w, groups = (size_t)s->moments->groups;
    size_t slabs = lk__size_divide_up(c, s->width), channel = index % slabs * s->width;
    lk_chunk_range range = lk__chunk(s->shape.n * hw, s->pixels, index / slabs);
    size_t group = 0;
    for (size_t p = range.begin; p < range.end;) {
        while (groups > 1 && s->shards->begin[group + 1] * hw <= p)
            group++;
        size_t end = groups > 1 ? lk__size_min(range.end, s->shards->begin[group + 1] * hw) : range.end;
        s->run(s, group, p, end - p, channel, lk__size_min(s->width, c - channel));
        p = end;
    }
}

static void run_pass(lk_device *dev, pass *s)
{
    size_t c = s->shape.c, pixels = s->shape.n * s->shape.h * s->shape.w;
    s->width = lk__slab_width(c, 1);
    s->pixels = lk__chunk_rows(s->width);
    size_t slabs = lk__size_divide_up(c, s->width), chunks = lk__size_divide_up(pixels, s->pixels);
    lk__pool_run(lk__cpu_pool(dev), slabs * chunks, pass_task, s);
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
              .run = forward_run};
    run_pass(dev, &s);
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
              .run = grad_run};
    run_pass(dev, &s);
}
