/* softmax.c - log-softmax and the losses, sample by sample.
 *
 * Sums run over the classes in order. exp and log are our own (base/math.h).
 * Labels are in [0, classes): the loader checks them. */
#include "base/math.h"
#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"

/* What any of the kernels below may use of n rows of `classes` values. */
typedef struct rows {
    size_t n, classes;
    const float *x, *dy; // (n, classes)
    const lk_loss_desc *desc;
    float *y; // (n, classes), result or dx; a loss may have none
    float *loss;
    int32_t *place;
    void (*row)(const struct rows *r, size_t n);
} rows;

static void rows_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const rows *r = arg;
    /* exp costs some ten plain operations. */
    lk_range range = lk__chunk(r->n, lk__chunk_rows(r->classes * 10), index);
    for (size_t n = range.begin; n < range.end; n++)
        r->row(r, n);
}

static void run(lk_device *dev, rows r)
{
    lk__run_rows(dev, r.n, r.classes * 10, rows_task, &r);
}

/* The first index of the largest value. */
static size_t largest(const float *x, size_t classes)
{
    size_t best = 0;
    for (size_t k = 1; k < classes; k++)
        best = x[k] > x[best] ? k : best;
    return best;
}

static float sum_exp(const float *x, size_t classes, float max)
{
    float sum = 0;
    for (size_t k = 0; k < classes; k++)
        sum += lk__expf(x[k] - max);
    return sum;
}

static void log_softmax_row(const rows *r, size_t n)
{
    const float *x = r->x + n * r->classes;
    float *y = r->y + n * r->classes;
    float max = x[largest(x, r->classes)];
    float log_sum = lk__logf(sum_exp(x, r->classes, max));
    for (size_t k = 0; k < r->classes; k++)
        y[k] = (x[k] - max) - log_sum;
}

void LK_KERNEL(log_softmax_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    run(dev, (rows){.n = x->shape.n,
                    .classes = lk__shape_sample(x->shape),
                    .x = lk__f32(x),
                    .y = lk__f32(y),
                    .row = log_softmax_row});
}

static void log_softmax_grad_row(const rows *r, size_t n)
{
    const float *y = r->x + n * r->classes, *dy = r->dy + n * r->classes;
    float *dx = r->y + n * r->classes;
    float sum = 0;
    for (size_t k = 0; k < r->classes; k++)
        sum += dy[k];
    for (size_t k = 0; k < r->classes; k++)
        dx[k] = __builtin_fmaf(-lk__expf(y[k]), sum, dy[k]);
}

void LK_KERNEL(log_softmax_grad_input)(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, lk_tensor *dx)
{
    run(dev, (rows){.n = y->shape.n,
                    .classes = lk__shape_sample(y->shape),
                    .x = lk__f32(y),
                    .dy = lk__f32(dy),
                    .y = lk__f32(dx),
                    .row = log_softmax_grad_row});
}

/* How many classes come before the label's by score. A NaN, the label's own or
 * another's, counts as before it: where there is one the label never wins. */
static int32_t place_of(const float *x, size_t classes, size_t label)
{
    int32_t before = 0;
    for (size_t k = 0; k < classes; k++)
        before += !(x[k] <= x[label]) || (k < label && x[k] == x[label]);
    return before;
}

/* From the label's own loss to that of the smoothed label; `all` is the sum of
 * every class's loss, of which there may be thousands. */
static float smooth(const rows *r, float own, double all)
{
    float smoothing = r->desc->smoothing;
    return (1.0f - smoothing) * own + smoothing * (float)(all / (double)r->classes);
}

/* What is wanted of class k. */
static float target(const rows *r, size_t n, size_t k)
{
    float even = r->desc->smoothing / (float)r->classes;
    return k == (size_t)r->desc->labels[n] ? (1.0f - r->desc->smoothing) + even : even;
}

static void run_loss(lk_device *dev, rows r, const lk_tensor *x, const lk_tensor *dx)
{
    r.n = x->shape.n;
    r.classes = lk__shape_sample(x->shape);
    r.x = lk__f32(x);
    r.y = dx ? lk__f32(dx) : NULL;
    run(dev, r);
}

static void nll_row(const rows *r, size_t n)
{
    const float *x = r->x + n * r->classes;
    size_t label = (size_t)r->desc->labels[n];
    float loss = -x[label];
    double all = 0;
    for (size_t k = 0; r->desc->smoothing > 0 && k < r->classes; k++)
        all -= (double)x[k];
    r->loss[n] = r->desc->smoothing > 0 ? smooth(r, loss, all) : loss;
    r->place[n] = place_of(x, r->classes, label);
    for (size_t k = 0; r->y && k < r->classes; k++)
        r->y[n * r->classes + k] = 0.0f - r->desc->scale * target(r, n, k);
}

void LK_KERNEL(nll)(lk_device *dev, const lk_loss_desc *desc, const lk_tensor *x, float *loss, int32_t *place,
                    lk_tensor *dx)
{
    run_loss(dev, (rows){.desc = desc, .loss = loss, .place = place, .row = nll_row}, x, dx);
}

static void cross_entropy_row(const rows *r, size_t n)
{
    const float *x = r->x + n * r->classes;
    size_t label = (size_t)r->desc->labels[n];
    float max = x[largest(x, r->classes)], sum = sum_exp(x, r->classes, max), log_sum = lk__logf(sum);
    float loss = log_sum - (x[label] - max);
    double all = 0;
    for (size_t k = 0; r->desc->smoothing > 0 && k < r->classes; k++)
        all += (double)(log_sum - (x[k] - max));
    r->loss[n] = r->desc->smoothing > 0 ? smooth(r, loss, all) : loss;
    r->place[n] = place_of(x, r->classes, label);
    for (size_t k = 0; r->y && k < r->classes; k++)
        r->y[n * r->classes + k] = r->desc->scale * (lk__expf(x[k] - max) / sum - target(r, n, k));
}

void LK_KERNEL(cross_entropy)(lk_device *dev, const lk_loss_desc *desc, const lk_tensor *x, float *loss, int32_t *place,
                              lk_tensor *dx)
{
    run_loss(dev, (rows){.desc = desc, .loss = loss, .place = place, .row = cross_entropy_row}, x, dx);
}
