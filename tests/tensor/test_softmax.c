/* test_softmax.c - log-softmax, NLL and cross-entropy against double. */
#include "tensor/everywhere.h"

typedef struct loss_case {
    size_t n, classes;
    const float *x, *dy;
    const int32_t *labels;
    float scale, smoothing;
} loss_case;

static lk_shape shape_of(const loss_case *l)
{
    return (lk_shape){.n = l->n, .c = l->classes, .h = 1, .w = 1};
}

/* y, dx */
static void run_log_softmax(lk_device *dev, const void *arg, float *out)
{
    const loss_case *l = arg;
    lk_tensor x = tensor_of((float *)(uintptr_t)l->x, shape_of(l)), y = tensor_of(out, shape_of(l));
    lk_tensor dy = tensor_of((float *)(uintptr_t)l->dy, shape_of(l));
    lk_tensor dx = tensor_of(out + l->n * l->classes, shape_of(l));
    dev->kernels->log_softmax_forward(dev, &x, &y);
    dev->kernels->log_softmax_grad_input(dev, &y, &dy, &dx);
}

typedef void (*loss_fn)(lk_device *, const lk_loss_desc *, const lk_tensor *, float *, int32_t *, lk_tensor *);

/* dx, loss, places as floats; without a gradient the others must be the same. */
static void run_loss(lk_device *dev, const loss_case *l, loss_fn run, float *out)
{
    lk_tensor x = tensor_of((float *)(uintptr_t)l->x, shape_of(l)), dx = tensor_of(out, shape_of(l));
    float *loss = out + l->n * l->classes, *alone = calloc(l->n, sizeof *alone);
    lk_loss_desc desc = {.labels = l->labels, .smoothing = l->smoothing, .scale = l->scale};
    int32_t *places = calloc(l->n, sizeof *places);
    assert_non_null(alone);
    assert_non_null(places);
    run(dev, &desc, &x, loss, places, &dx);
    for (size_t i = 0; i < l->n; i++)
        loss[l->n + i] = (float)places[i];
    run(dev, &desc, &x, alone, places, NULL);
    assert_memory_equal(alone, loss, l->n * sizeof *loss);
    for (size_t i = 0; i < l->n; i++)
        assert_int_equal(places[i], (int)loss[l->n + i]);
    free(alone);
    free(places);
}

static void run_nll(lk_device *dev, const void *arg, float *out)
{
    run_loss(dev, arg, dev->kernels->nll, out);
}

static void run_cross_entropy(lk_device *dev, const void *arg, float *out)
{
    run_loss(dev, arg, dev->kernels->cross_entropy, out);
}

static double log_sum_exp(const float *x, size_t classes)
{
    double max = (double)x[0], sum = 0;
    for (size_t k = 1; k < classes; k++)
        max = fmax(max, (double)x[k]);
    for (size_t k = 0; k < classes; k++)
        sum += exp((double)x[k] - max);
    return max + log(sum);
}

static size_t first_largest(const float *x, size_t classes)
{
    size_t best = 0;
    for (size_t k = 1; k < classes; k++)
        if (x[k] > x[best])
            best = k;
    return best;
}

static void check_log_softmax(const loss_case *l)
{
    size_t count = l->n * l->classes;
    double *y = new_doubles(count), *dx = new_doubles(count);
    for (size_t i = 0; i < count; i++)
        y[i] = (double)l->x[i] - log_sum_exp(l->x + i / l->classes * l->classes, l->classes);
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        for (size_t k = 0; k < l->classes; k++)
            sum += (double)l->dy[i / l->classes * l->classes + k];
        dx[i] = (double)l->dy[i] - exp(y[i]) * sum;
    }
    float *got = run_everywhere(run_log_softmax, l, 2 * count);
    assert_close(got, y, count, 1e-6);
    assert_close(got + count, dx, count, 1e-6);
    free(got);
    free(y);
    free(dx);
}

/* Where a stable sort by falling score puts the label. */
static int sorted_place(const float *x, size_t classes, size_t label)
{
    int before = 0;
    for (size_t k = 0; k < label; k++)
        before += x[k] >= x[label];
    for (size_t k = label + 1; k < classes; k++)
        before += x[k] > x[label];
    return before;
}

static void check_loss(const loss_case *l, bool scores)
{
    size_t count = l->n * l->classes;
    double *dx = new_doubles(count), *loss = new_doubles(l->n);
    for (size_t n = 0; n < l->n; n++) {
        const float *x = l->x + n * l->classes;
        double norm = scores ? log_sum_exp(x, l->classes) : 0;
        for (size_t k = 0; k < l->classes; k++) {
            double share = scores ? exp((double)x[k] - norm) : 0, even = (double)l->smoothing / (double)l->classes;
            double wanted = ((int32_t)k == l->labels[n] ? 1 - (double)l->smoothing : 0) + even;
            loss[n] += wanted * (norm - (double)x[k]);
            dx[n * l->classes + k] = (double)l->scale * (share - wanted);
        }
    }
    float *got = run_everywhere(scores ? run_cross_entropy : run_nll, l, count + 2 * l->n);
    assert_close(got, dx, count, 1e-6);
    assert_close(got + count, loss, l->n, 1e-6);
    for (size_t n = 0; n < l->n; n++) {
        const float *x = l->x + n * l->classes;
        int place = (int)got[count + l->n + n];
        assert_int_equal(place, sorted_place(x, l->classes, (size_t)l->labels[n]));
        assert_int_equal(place == 0, first_largest(x, l->classes) == (size_t)l->labels[n]);
    }
    free(got);
    free(dx);
    free(loss);
}

static void check(size_t n, size_t classes)
{
    float *x = random_floats(n * classes, 1), *dy = random_floats(n * classes, 2);
    int32_t *labels = calloc(n, sizeof *labels);
    assert_non_null(labels);
    /* Halves, so that a row often has several largest values; one row far from 0. */
    for (size_t i = 0; i < n * classes; i++)
        x[i] = floorf(x[i] * 16) / 2 + (i < classes ? 90.0f : 0.0f);
    for (size_t i = 0; i < n; i++)
        labels[i] = (int32_t)(i % 3 ? first_largest(x + i * classes, classes) : i % classes);
    loss_case l = {.n = n, .classes = classes, .x = x, .dy = dy, .labels = labels, .scale = 0.125f};
    check_log_softmax(&l);
    check_loss(&l, false);
    check_loss(&l, true);
    l.smoothing = 0.1f;
    check_loss(&l, false);
    check_loss(&l, true);
    free(x);
    free(dy);
    free(labels);
}

static void test_losses(void **state)
{
    (void)state;
    check(1, 10);
    check(64, 10);
    check(7, 3);
    check(5, 1000);
    check(1000, 21);
    check(4, 1);
}

/* Scores far apart neither overflow nor give a NaN. */
static void test_extremes(void **state)
{
    (void)state;
    float x[3] = {1e30f, -1e30f, 0};
    int32_t label = 0;
    loss_case l = {.n = 1, .classes = 3, .x = x, .dy = x, .labels = &label, .scale = 1};
    float *got = run_everywhere(run_cross_entropy, &l, 5);
    const float want[5] = {0, 0, 0, 0, 0};
    assert_same(got, want, 5);
    free(got);
}

/* A NaN score must reach the loss, where the run looks for it. */
static void test_nan_reaches_loss(void **state)
{
    (void)state;
    for (size_t at = 0; at < 3; at++) {
        float x[3] = {1, 2, 3};
        x[at] = NAN;
        int32_t label = 0;
        loss_case l = {.n = 1, .classes = 3, .x = x, .dy = x, .labels = &label, .scale = 1};
        lk_device *dev = open_device(NULL, 1);
        float out[5];
        run_cross_entropy(dev, &l, out);
        assert_true(isnan(out[3]));
        assert_true(at > 0 || out[4] > 0); /* a label whose score is a NaN is not the best */
        lk__device_close(dev);
    }
}

/* Within the rounding of the result to a float, the 2 units (of 2^-23) by which each
 * exp errs, which reach the result as 2^-22 of `errs`, and 1000 additions of doubles, each
 * of which is off by at most 2^-53 of the sum. */
static void assert_rounded(const char *what, size_t at, float got, double want, double errs)
{
    double bound = 0x1p-24 * fabs(want) + 0x1p-22 * fabs(errs) + 1000 * 0x1p-53 + 0x1p-148;
    if (!(fabs((double)got - want) <= bound))
        fail_msg("%s %zu is %.9g, not %.9g: %g times what rounding does", what, at, (double)got, want,
                 fabs((double)got - want) / bound);
}

/* One sample whose label has a score that makes its loss about `loss`. */
static void check_dominant(size_t classes, size_t at, double loss, bool equal, float smoothing)
{
    float *x = random_floats(classes, (uint32_t)classes), scale = 0.125f;
    int32_t label = (int32_t)at;
    for (size_t k = 0; equal && k < classes; k++)
        x[k] = 0;
    x[at] = -INFINITY;
    x[at] = (float)(log_sum_exp(x, classes) - log(loss));
    loss_case l = {.n = 1, .classes = classes, .x = x, .labels = &label, .scale = scale, .smoothing = smoothing};
    float *got = run_everywhere(run_cross_entropy, &l, classes + 2);
    double norm = 0, want = 0, even = (double)smoothing / (double)classes;
    for (size_t k = 0; k < classes; k++)
        norm += k == at ? 0 : exp((double)x[k] - (double)x[at]);
    double others = norm / (1 + norm); /* than the label: their probability */
    for (size_t k = 0; k < classes; k++) {
        double below = (double)x[at] - (double)x[k], p = exp(-below) / (1 + norm);
        double own = k == at ? -others + (double)smoothing : p;
        want += even * (log1p(norm) + below) + (k == at ? (1 - (double)smoothing) * log1p(norm) : 0);
        assert_rounded("gradient", k, got[k], (double)scale * (own - even),
                       (double)scale * (k == at ? others : 2.25 * p));
    }
    assert_rounded("loss of label", at, got[classes], want, others);
    assert_true(got[classes + 1] == 0.0f);
    free(got);
    free(x);
}

/* A label that is all but certain: loss and gradient are small differences of
 * numbers near 1, and right to a float's precision wherever the label is. */
static void test_many_classes(void **state)
{
    (void)state;
    static const size_t counts[] = {17, 100, 1000};
    static const double losses[] = {1, 1e-3, 1e-5, 1e-7};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t labels[] = {0, counts[i] / 2, counts[i] - 1};
        for (size_t k = 0; k < 3 * sizeof losses / sizeof *losses; k++) {
            check_dominant(counts[i], labels[k % 3], losses[k / 3], false, 0.0f);
            check_dominant(counts[i], labels[k % 3], losses[k / 3], true, 0.0f);
            check_dominant(counts[i], labels[k % 3], losses[k / 3], false, 0.1f);
        }
    }
}

/* 999 equal scores and one 18 above them. */
static void test_one_far_above(void **state)
{
    (void)state;
    enum { CLASSES = 1000, LABEL = 500 };
    float *x = new_floats(CLASSES);
    int32_t label = LABEL;
    double rest = 999 * exp(-18.0);
    x[LABEL] = 18;
    loss_case l = {.n = 1, .classes = CLASSES, .x = x, .labels = &label, .scale = 1};
    float *got = run_everywhere(run_cross_entropy, &l, CLASSES + 2);
    assert_rounded("loss of label", LABEL, got[CLASSES], log1p(rest), rest);
    assert_rounded("gradient", LABEL, got[LABEL], -rest / (1 + rest), rest);
    free(got);
    free(x);
}

/* Log-softmax of the same, and its gradient from the result as it was rounded. */
static void test_log_softmax_of_many(void **state)
{
    (void)state;
    enum { CLASSES = 1000 };
    for (size_t at = 0; at < CLASSES; at += CLASSES / 2 - 1) {
        float *x = random_floats(CLASSES, 3), *dy = new_floats(CLASSES);
        x[at] = 18;
        dy[at] = -0.125f;
        loss_case l = {.n = 1, .classes = CLASSES, .x = x, .dy = dy};
        float *got = run_everywhere(run_log_softmax, &l, 2 * CLASSES);
        double norm = 0;
        for (size_t k = 0; k < CLASSES; k++)
            norm += k == at ? 0 : exp((double)x[k] - 18);
        for (size_t k = 0; k < CLASSES; k++) {
            assert_rounded("log-softmax", k, got[k], (double)x[k] - 18 - log1p(norm), norm);
            double dx = k == at ? 0.125 * expm1((double)got[k]) : 0.125 * exp((double)got[k]);
            assert_rounded("gradient of log-softmax", k, got[CLASSES + k], dx, 0);
        }
        free(got), free(x), free(dy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses),           cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_nan_reaches_loss), cmocka_unit_test(test_many_classes),
        cmocka_unit_test(test_one_far_above),    cmocka_unit_test(test_log_softmax_of_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
