/* softmax.c - softmax over the channels of each pixel; log-softmax and the losses, sample by sample.
 *
 * Sums run over the classes in order: in float for up to FEW classes, otherwise in double, from the differences
 * of the scores up to the rounding of the results. In double the result is right to a float's precision even if
 * one class has all but a millionth of the probability, and it does not depend on the label's index. exp and
 * log are our own (base/math.h, base/math64.h). Labels are in [0, classes): the engine checks them. */
#include "base/math.h"
#include "base/math64.h"
#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"
#include "tensor/scores.h"

enum { FEW = 16, BLOCK = 64 };

typedef struct rows rows;
typedef void (*row_fn)(const rows *r, size_t n);

/* Arguments of all kernels below: n rows of `classes` values. */
struct rows {
    size_t n, classes;
    const float *x, *dy; // (n, classes)
    const lk_loss_desc *desc;
    float *y; // (n, classes): the result, or dx, which a loss may not have
    float *loss;
    int32_t *label_rank;
    row_fn row;
};

static void rows_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const rows *r = arg;
    /* exp costs about ten plain operations. */
    lk_chunk_range range = lk__chunk(r->n, lk__chunk_rows(r->classes * 10), index);
    for (size_t n = range.begin; n < range.end; n++)
        r->row(r, n);
}

static void run(lk_device *dev, rows r)
{
    lk__chunk_run_rows(dev, r.n, r.classes * 10, rows_task, &r);
}

/* For at most FEW classes. */
static float sum_exp(const float *x, size_t classes, float max)
{
    float sum = 0;
    for (size_t k = 0; k < classes; k++)
        sum += lk__math_expf(x[k] - max);
    return sum;
}

/* Returns sum + exp(x[0] - max) + exp(x[1] - max) ... of n <= BLOCK values; e, if not NULL, gets the rounded
 * terms. exp is computed of the difference rounded to float. The rounding error, at most 2^-18 where exp is not
 * 0, is multiplied in, so a term is as precise as lk__math_expf, 2 units in the last place. The loops are
 * separate so that the compiler vectorises all but the sum. */
static double add_exp(const float *x, size_t n, double max, double sum, float *e)
{
    float near[BLOCK], rest[BLOCK], value[BLOCK];
    double term[BLOCK];
    for (size_t k = 0; k < n; k++) {
        near[k] = (float)((double)x[k] - max);
        rest[k] = (float)(((double)x[k] - max) - (double)near[k]);
    }
    for (size_t k = 0; k < n; k++)
        value[k] = lk__math_expf(near[k]);
    for (size_t k = 0; k < n; k++)
        term[k] = value[k] == 0.0f ? 0.0 : __builtin_fma((double)value[k], (double)rest[k], (double)value[k]);
    for (size_t k = 0; e && k < n; k++)
        e[k] = (float)term[k];
    for (size_t k = 0; k < n; k++)
        sum += term[k];
    return sum;
}

/* The sum of exponentials for many classes. */
static double sum_exp_many(const float *x, size_t classes, double max, float *e)
{
    double sum = 0;
    for (size_t k = 0; k < classes; k += BLOCK)
        sum = add_exp(x + k, lk__size_min(BLOCK, classes - k), max, sum, e ? e + k : NULL);
    return sum;
}

static void log_softmax_row(const rows *r, size_t n)
{
    const float *x = r->x + n * r->classes;
    float *y = r->y + n * r->classes;
    float max = x[lk__scores_largest(x, r->classes)];
    float log_sum = lk__math_logf(sum_exp(x, r->classes, max));
    for (size_t k = 0; k < r->classes; k++)
        y[k] = (x[k] - max) - log_sum;
}

static void log_softmax_many_row(const rows *r, size_t n)
{
    const float *x = r->x + n * r->classes;
    float *y = r->y + n * r->classes;
    double max = (double)x[lk__scores_largest(x, r->classes)];
    double log_sum = lk__math_log64(sum_exp_many(x, r->classes, max, NULL));
    for (size_t k = 0; k < r->classes; k++)
        y[k] = (float)(((double)x[k] - max) - log_sum);
}

/* The row function for this number of classes. */
static row_fn row_of(size_t classes, row_fn few, row_fn many)
{
    return classes <= FEW ? few : many;
}

void LK_KERNEL(log_softmax_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    run(dev, (rows){.n = x->shape.n,
                    .classes = lk__shape_sample(x->shape),
                    .x = lk__tensor_f32(x),
                    .y = lk__tensor_f32(y),
                    .row = row_of(lk__shape_sample(x->shape), log_softmax_row, log_softmax_many_row)});
}

static void log_softmax_grad_row(const rows *r, size_t n)
{
    const float *y = r->x + n * r->classes, *dy = r->dy + n * r->classes;
    float *dx = r->y + n * r->classes;
    float sum = 0;
    for (size_t k = 0; k < r->classes; k++)
        sum += dy[k];
    for (size_t k = 0; k < r->classes; k++)
        dx[k] = __builtin_fmaf(-lk__math_expf(y[k]), sum, dy[k]);
}

static void log_softmax_grad_many_row(const rows *r, size_t n)
{
    const float *y = r->x + n * r->classes, *dy = r->dy + n * r->classes;
    float *dx = r->y + n * r->classes;
    double sum = 0;
    for (size_t k = 0; k < r->classes; k++)
        sum += (double)dy[k];
    for (size_t k = 0; k < r->classes; k++)
        dx[k] = (float)__builtin_fma(-lk__math_exp64((double)y[k]), sum, (double)dy[k]);
}

void LK_KERNEL(log_softmax_grad_input)(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, lk_tensor *dx)
{
    run(dev, (rows){.n = y->shape.n,
                    .classes = lk__shape_sample(y->shape),
                    .x = lk__tensor_f32(y),
                    .dy = lk__tensor_f32(dy),
                    .y = lk__tensor_f32(dx),
                    .row = row_of(lk__shape_sample(y->shape), log_softmax_grad_row, log_softmax_grad_many_row)});
}

static void softmax_row(const rows *r, size_t n)
{
    const float *x = r->x + n * r->classes;
    float *y = r->y + n * r->classes;
    float max = x[lk__scores_largest(x, r->classes)], sum = sum_exp(x, r->classes, max);
    for (size_t k = 0; k < r->classes; k++)
        y[k] = lk__math_expf(x[k] - max) / sum;
}

static void softmax_many_row(const rows *r, size_t n)
{
    const float *x = r->x + n * r->classes;
    float *y = r->y + n * r->classes;
    double part = 1.0 / sum_exp_many(x, r->classes, (double)x[lk__scores_largest(x, r->classes)], y);
    for (size_t k = 0; k < r->classes; k++)
        y[k] = (float)((double)y[k] * part);
}

/* A row for each pixel. */
static rows pixel_rows(const lk_tensor *x)
{
    return (rows){.n = x->shape.n * x->shape.h * x->shape.w, .classes = x->shape.c, .x = lk__tensor_f32(x)};
}

void LK_KERNEL(softmax_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    rows r = pixel_rows(x);
    r.y = lk__tensor_f32(y);
    r.row = row_of(r.classes, softmax_row, softmax_many_row);
    run(dev, r);
}

/* dx = y (dy - sum of y dy); the sum is in double for any number of classes. */
static void softmax_grad_row(const rows *r, size_t n)
{
    const float *y = r->x + n * r->classes, *dy = r->dy + n * r->classes;
    float *dx = r->y + n * r->classes;
    double sum = 0;
    for (size_t k = 0; k < r->classes; k++)
        sum += (double)y[k] * (double)dy[k];
    for (size_t k = 0; k < r->classes; k++)
        dx[k] = (float)((double)y[k] * ((double)dy[k] - sum));
}

void LK_KERNEL(softmax_grad_input)(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, lk_tensor *dx)
{
    rows r = pixel_rows(y);
    r.dy = lk__tensor_f32(dy);
    r.y = lk__tensor_f32(dx);
    r.row = softmax_grad_row;
    run(dev, r);
}

/* Turns the label's own loss into the loss of the smoothed label; `all` is the sum of the losses of all
 * classes, of which there may be thousands. */
static float smooth(const rows *r, float own, double all)
{
    float smoothing = r->desc->smoothing;
    return (1.0f - smoothing) * own + smoothing * (float)(all / (double)r->classes);
}

/* The target probability of class k. */
static float target(const rows *r, size_t n, size_t k)
{
    float even = r->desc->smoothing / (float)r->classes;
    return k == (size_t)r->desc->labels[n] ? (1.0f - r->desc->smoothing) + even : even;
}

/* The loss of sample n with its weight. */
static float weighted(const rows *r, size_t n, float loss)
{
    return r->desc->weights ? r->desc->weights[n] * loss : loss;
}

static void run_loss(lk_device *dev, rows r, const lk_tensor *x, const lk_tensor *dx)
{
    r.n = x->shape.n;
    r.classes = lk__shape_sample(x->shape);
    r.x = lk__tensor_f32(x);
    r.y = dx ? lk__tensor_f32(dx) : NULL;
    run(dev, r);
}

static void nll_row(const rows *r, size_t n)
{
    const float *x = r->x + n * r->classes;
    size_t label = (size_t)r->desc->labels[n];
    float loss = -x[label], scale = lk__loss_desc_scale(r->desc, n);
    double all = 0;
    for (size_t k = 0; r->desc->smoothing > 0 && k < r->classes; k++)
        all -= (double)x[k];
    r->loss[n] = weighted(r, n, r->desc->smoothing > 0 ? smooth(r, loss, all) : loss);
    r->label_rank[n] = lk__scores_label_rank(x, r->classes, label);
    for (size_t k = 0; r->y && k < r->classes; k++)
        r->y[n * r->classes + k] = 0.0f - scale * target(r, n, k);
}

void LK_KERNEL(nll)(lk_device *dev, const lk_loss_desc *desc, const lk_tensor *x, float *loss, int32_t *label_rank,
                    lk_tensor *dx)
{
    run_loss(dev, (rows){.desc = desc, .loss = loss, .label_rank = label_rank, .row = nll_row}, x, dx);
}

static void cross_entropy_row(const rows *r, size_t n)
{
    const float *x = r->x + n * r->classes;
    size_t label = (size_t)r->desc->labels[n];
    float max = x[lk__scores_largest(x, r->classes)], sum = sum_exp(x, r->classes, max), log_sum = lk__math_logf(sum);
    float loss = log_sum - (x[label] - max), scale = lk__loss_desc_scale(r->desc, n);
    double all = 0;
    for (size_t k = 0; r->desc->smoothing > 0 && k < r->classes; k++)
        all += (double)(log_sum - (x[k] - max));
    r->loss[n] = weighted(r, n, r->desc->smoothing > 0 ? smooth(r, loss, all) : loss);
    r->label_rank[n] = lk__scores_label_rank(x, r->classes, label);
    for (size_t k = 0; r->y && k < r->classes; k++)
        r->y[n * r->classes + k] = scale * (lk__math_expf(x[k] - max) / sum - target(r, n, k));
}

/* e = scale * (e / sum - target). A rounded e is at most half of the sum, or it is 1, so the difference loses
 * no precision. */
static void cross_entropy_grad_many(const rows *r, size_t n, double sum, float *e)
{
    size_t label = (size_t)r->desc->labels[n];
    double scale = (double)lk__loss_desc_scale(r->desc, n), even = (double)r->desc->smoothing / (double)r->classes;
    double own = (double)e[label] / sum - (1.0 - (double)r->desc->smoothing) - even, part = 1.0 / sum;
    for (size_t k = 0; k < r->classes; k++)
        e[k] = (float)(scale * ((double)e[k] * part - even));
    e[label] = (float)(scale * own);
}

static void cross_entropy_many_row(const rows *r, size_t n)
{
    const float *x = r->x + n * r->classes;
    float *dx = r->y ? r->y + n * r->classes : NULL;
    size_t label = (size_t)r->desc->labels[n];
    double max = (double)x[lk__scores_largest(x, r->classes)], sum = sum_exp_many(x, r->classes, max, dx);
    double log_sum = lk__math_log64(sum), loss = log_sum - ((double)x[label] - max), all = 0;
    double smoothing = (double)r->desc->smoothing;
    for (size_t k = 0; smoothing > 0 && k < r->classes; k++)
        all += log_sum - ((double)x[k] - max);
    if (smoothing > 0)
        loss = (1.0 - smoothing) * loss + smoothing * (all / (double)r->classes);
    r->loss[n] = weighted(r, n, (float)loss);
    r->label_rank[n] = lk__scores_label_rank(x, r->classes, label);
    if (dx)
        cross_entropy_grad_many(r, n, sum, dx);
}

void LK_KERNEL(cross_entropy)(lk_device *dev, const lk_loss_desc *desc, const lk_tensor *x, float *loss,
                              int32_t *label_rank, lk_tensor *dx)
{
    rows r = {.desc = desc, .loss = loss, .label_rank = label_rank};
    r.row = row_of(lk__shape_sample(x->shape), cross_entropy_row, cross_entropy_many_row);
    run_loss(dev, r, x, dx);
}
