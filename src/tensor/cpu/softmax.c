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
    const int32_t *labels;
    float scale;
    float *y; // (n, classes), result or dx
    float *loss;
    int32_t *correct;
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

typedef void (*row_fn)(const rows *r, size_t n);

static void run_loss(lk_device *dev, const lk_tensor *x, const int32_t *labels, float *loss, int32_t *correct,
                     row_fn row)
{
    run(dev, (rows){.n = x->shape.n,
                    .classes = lk__shape_sample(x->shape),
                    .x = lk__f32(x),
                    .labels = labels,
                    .loss = loss,
                    .correct = correct,
                    .row = row});
}

static void run_loss_grad(lk_device *dev, const lk_tensor *x, const int32_t *labels, float scale, lk_tensor *dx,
                          row_fn row)
{
    run(dev, (rows){.n = x->shape.n,
                    .classes = lk__shape_sample(x->shape),
                    .x = lk__f32(x),
                    .labels = labels,
                    .scale = scale,
                    .y = lk__f32(dx),
                    .row = row});
}

static void nll_row(const rows *r, size_t n)
{
    const float *x = r->x + n * r->classes;
    size_t label = (size_t)r->labels[n];
    r->loss[n] = -x[label];
    r->correct[n] = largest(x, r->classes) == label;
}

void LK_KERNEL(nll_forward)(lk_device *dev, const lk_tensor *x, const int32_t *labels, float *loss, int32_t *correct)
{
    run_loss(dev, x, labels, loss, correct, nll_row);
}

static void nll_grad_row(const rows *r, size_t n)
{
    float *dx = r->y + n * r->classes;
    for (size_t k = 0; k < r->classes; k++)
        dx[k] = k == (size_t)r->labels[n] ? -r->scale : 0.0f;
}

void LK_KERNEL(nll_grad_input)(lk_device *dev, const lk_tensor *x, const int32_t *labels, float scale, lk_tensor *dx)
{
    run_loss_grad(dev, x, labels, scale, dx, nll_grad_row);
}

static void cross_entropy_row(const rows *r, size_t n)
{
    const float *x = r->x + n * r->classes;
    size_t label = (size_t)r->labels[n], best = largest(x, r->classes);
    r->loss[n] = lk__logf(sum_exp(x, r->classes, x[best])) - (x[label] - x[best]);
    r->correct[n] = best == label;
}

void LK_KERNEL(cross_entropy_forward)(lk_device *dev, const lk_tensor *x, const int32_t *labels, float *loss,
                                      int32_t *correct)
{
    run_loss(dev, x, labels, loss, correct, cross_entropy_row);
}

static void cross_entropy_grad_row(const rows *r, size_t n)
{
    const float *x = r->x + n * r->classes;
    float *dx = r->y + n * r->classes;
    float max = x[largest(x, r->classes)], sum = 0;
    for (size_t k = 0; k < r->classes; k++) {
        dx[k] = lk__expf(x[k] - max);
        sum += dx[k];
    }
    for (size_t k = 0; k < r->classes; k++)
        dx[k] = r->scale * (dx[k] / sum - (k == (size_t)r->labels[n] ? 1.0f : 0.0f));
}

void LK_KERNEL(cross_entropy_grad_input)(lk_device *dev, const lk_tensor *x, const int32_t *labels, float scale,
                                         lk_tensor *dx)
{
    run_loss_grad(dev, x, labels, scale, dx, cross_entropy_grad_row);
}
