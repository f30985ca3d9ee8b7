/* loss.c - losses of float targets, sample by sample.
 *
 * All arithmetic is in double, in the order of the elements: the bits do not depend on the build. Sums of exponentials
 * and logarithms use our own functions (base/math64.h). The gradient of a sample's loss is rounded to float before it
 * is scaled, as the gradient that an own loss writes. */
#include <math.h>
#include <stdint.h>

#include "base/math64.h"
#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"
#include "tensor/scores.h"

/* Value and derivative of an element's loss, and the error of its prediction. */
typedef struct element {
    double value, slope, error;
} element;

typedef struct job job;
typedef struct element (*element_fn)(const job *j, float x, float target, size_t channel);

struct job {
    const lk_loss_desc *desc;
    size_t n, floats, channels;
    const float *x; // (n, floats)
    float *dx;      // (n, floats), or NULL
    const lk_loss_results *out;
    element_fn element;
    void (*sample)(const job *j, size_t n);
};

static double sign(double d)
{
    return d > 0 ? 1 : d < 0 ? -1 : d; /* 0 or NaN */
}

static element mse(const job *j, float x, float target, size_t channel)
{
    (void)j, (void)channel;
    double d = (double)x - (double)target;
    return (element){d * d, 2 * d, d};
}

static element l1(const job *j, float x, float target, size_t channel)
{
    (void)j, (void)channel;
    double d = (double)x - (double)target;
    return (element){fabs(d), sign(d), d};
}

static element huber(const job *j, float x, float target, size_t channel)
{
    (void)channel;
    double d = (double)x - (double)target, delta = (double)j->desc->parameter;
    if (fabs(d) < delta)
        return (element){0.5 * d * d, d, d};
    return (element){delta * (fabs(d) - 0.5 * delta), delta * sign(d), d};
}

static element smooth_l1(const job *j, float x, float target, size_t channel)
{
    (void)channel;
    double d = (double)x - (double)target, beta = (double)j->desc->parameter;
    if (fabs(d) < beta)
        return (element){0.5 * d * d / beta, d / beta, d};
    return (element){fabs(d) - 0.5 * beta, sign(d), d};
}

/* log(1 + e) for e in [0,1]. */
static double log_one_plus(double e)
{
    return e < 0x1p-26 ? e - 0.5 * e * e : lk__math_log64(1 + e);
}

/* With s = logistic(x): log(1 - s) is log(s) - x, and the slope is (1 - t) s - w t (1 - s). */
static element bce(const job *j, float x, float target, size_t channel)
{
    double weight = j->desc->class_weights ? (double)j->desc->class_weights[channel] : 1;
    double v = (double)x, t = (double)target, e = lk__math_exp64(v > 0 ? -v : v), rest = log_one_plus(e);
    double yes = (v > 0 ? 1 : e) / (1 + e), no = (v > 0 ? e : 1) / (1 + e);
    double value = weight * t * (rest + (v > 0 ? 0 : -v)) + (1 - t) * (rest + (v > 0 ? v : 0));
    return (element){value, (1 - t) * yes - weight * t * no, yes - t};
}

/* Whether x says of every element what the target says. */
static bool all_right(const float *x, const float *target, size_t floats)
{
    bool right = true;
    for (size_t i = 0; i < floats; i++)
        right = right && x[i] == x[i] && (x[i] > 0) == (target[i] > 0.5f);
    return right;
}

static float weight_of(const job *j, size_t n)
{
    return j->desc->weights ? j->desc->weights[n] : 1.0f;
}

static void put_loss(const job *j, size_t n, double loss, int32_t label_rank)
{
    j->out->loss[n] = weight_of(j, n) * (float)loss;
    j->out->label_rank[n] = label_rank;
}

static void put_error(const job *j, size_t n, double absolute, double squared)
{
    j->out->error[2 * n] = (float)(absolute / (double)j->floats);
    j->out->error[2 * n + 1] = (float)(squared / (double)j->floats);
}

static void element_sample(const job *j, size_t n)
{
    const float *x = j->x + n * j->floats, *target = j->desc->targets + n * j->floats;
    float *dx = j->dx ? j->dx + n * j->floats : NULL, scale = lk__loss_desc_scale(j->desc, n);
    double sum = 0, absolute = 0, squared = 0, floats = (double)j->floats;
    for (size_t i = 0; i < j->floats; i++) {
        element e = j->element(j, x[i], target[i], i % j->channels);
        sum += e.value;
        absolute += fabs(e.error);
        squared += e.error * e.error;
        if (dx)
            dx[i] = scale * (float)(e.slope / floats);
    }
    bool right = j->desc->kind == LK_LOSS_KIND_BCE && all_right(x, target, j->floats);
    put_loss(j, n, sum / floats, right ? 0 : INT32_MAX);
    put_error(j, n, absolute, squared);
}

/* The label of sample n. */
static size_t label_of(const job *j, size_t n)
{
    return j->desc->labels ? (size_t)j->desc->labels[n]
                           : lk__scores_largest(j->desc->targets + n * j->floats, j->floats);
}

/* The weighted target of class k. */
static double wanted(const job *j, size_t n, size_t label, size_t k)
{
    const float *weights = j->desc->class_weights;
    double smoothing = (double)j->desc->smoothing, even = smoothing / (double)j->floats;
    double own = weights ? (double)weights[k] : 1;
    double target = j->desc->labels ? (k == label) : (double)j->desc->targets[n * j->floats + k];
    return own * ((1 - smoothing) * target + even);
}

/* The sum of all targets is 1 without weights; with weights the probabilities are multiplied by it. */
static void soft_sample(const job *j, size_t n)
{
    const float *x = j->x + n * j->floats;
    bool logs = j->desc->kind == LK_LOSS_KIND_SOFT_LOGS;
    size_t label = label_of(j, n);
    double max = logs ? 0 : (double)x[lk__scores_largest(x, j->floats)], sum = logs ? 1 : 0, loss = 0, all = 0;
    double absolute = 0, squared = 0;
    float scale = lk__loss_desc_scale(j->desc, n);
    for (size_t k = 0; !logs && k < j->floats; k++)
        sum += lk__math_exp64((double)x[k] - max);
    double log_sum = logs ? 0 : lk__math_log64(sum);
    for (size_t k = 0; k < j->floats; k++) {
        double target = wanted(j, n, label, k), part = lk__math_exp64((double)x[k] - max) / sum;
        double error = part - (j->desc->targets ? (double)j->desc->targets[n * j->floats + k] : part);
        loss += target * (log_sum - ((double)x[k] - max));
        all += target;
        absolute += fabs(error);
        squared += error * error;
    }
    for (size_t k = 0; j->dx && k < j->floats; k++) {
        double part = logs ? 0 : lk__math_exp64((double)x[k] - max) / sum;
        j->dx[n * j->floats + k] = scale * (float)(part * all - wanted(j, n, label, k));
    }
    put_loss(j, n, loss, lk__scores_label_rank(x, j->floats, label));
    if (j->out->error)
        put_error(j, n, absolute, squared);
}

/* INT32_MAX: no rank, so the sample counts as wrong. */
static int32_t own_rank(const lk_loss_desc *desc, const float *x, size_t floats, int32_t label, const float *target)
{
    int32_t rank =
        desc->own->rank ? desc->own->rank(desc->own->arg, x, floats, label, target, desc->target_floats) : -1;
    return rank < 0 ? INT32_MAX : rank;
}

static void own_sample(const job *j, size_t n)
{
    const lk_loss_desc *desc = j->desc;
    const float *x = j->x + n * j->floats, *target = desc->targets ? desc->targets + n * desc->target_floats : NULL;
    float *dx = j->dx ? j->dx + n * j->floats : NULL, scale = lk__loss_desc_scale(j->desc, n);
    int32_t label = desc->labels ? desc->labels[n] : 0;
    double absolute = 0, squared = 0;
    for (size_t i = 0; dx && i < j->floats; i++)
        dx[i] = NAN; /* an element that the function does not write makes the step NONFINITE */
    float loss = desc->own->sample(desc->own->arg, x, j->floats, label, target, desc->target_floats, dx);
    for (size_t i = 0; dx && i < j->floats; i++)
        dx[i] = scale * dx[i];
    for (size_t i = 0; desc->target_floats == j->floats && i < j->floats; i++) {
        double d = (double)x[i] - (double)target[i];
        absolute += fabs(d);
        squared += d * d;
    }
    put_loss(j, n, (double)loss, own_rank(desc, x, j->floats, label, target));
    if (j->out->error)
        put_error(j, n, absolute, squared);
}

/* Own losses have no element function. */
static const element_fn elements[LK_LOSS_KIND_COUNT] = {
    [LK_LOSS_KIND_MSE] = mse,     [LK_LOSS_KIND_L1] = l1,
    [LK_LOSS_KIND_HUBER] = huber, [LK_LOSS_KIND_SMOOTH_L1] = smooth_l1,
    [LK_LOSS_KIND_BCE] = bce,
};

/* exp costs about ten plain operations. */
enum { COST = 10 };

static void samples_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const job *j = arg;
    lk_chunk_range range = lk__chunk(j->n, lk__chunk_rows(j->floats * COST), index);
    for (size_t n = range.begin; n < range.end; n++)
        j->sample(j, n);
}

size_t LK_KERNEL(target_loss_scratch)(lk_device *dev, lk_loss_kind kind, lk_shape x)
{
    (void)dev, (void)kind, (void)x;
    return 0;
}

void LK_KERNEL(target_loss)(lk_device *dev, const lk_loss_desc *desc, const lk_tensor *x,
                            const lk_loss_results *results, lk_tensor *dx, void *scratch)
{
    (void)scratch;
    job j = {.desc = desc,
             .n = x->shape.n,
             .floats = lk__shape_sample(x->shape),
             .channels = x->shape.c,
             .x = lk__tensor_f32(x),
             .dx = dx ? lk__tensor_f32(dx) : NULL,
             .out = results,
             .element = elements[desc->kind],
             .sample = desc->kind == LK_LOSS_KIND_OWN ? own_sample
                       : elements[desc->kind]         ? element_sample
                                                      : soft_sample};
    lk__chunk_run_rows(dev, j.n, j.floats * COST, samples_task, &j);
}
