/* test_softmax.c - softmax, log-softmax, NLL and cross-entropy against double, on the CPU and on GPUs. */
#include "tensor/kernel_test.h"

typedef struct loss_case {
    size_t n, classes;
    const float *x, *y, *dy; // (n, classes): scores, logarithms of probabilities, gradients
    const int32_t *labels;
    const float *weights; /* (n) of samples, or NULL */
    float scale, smoothing;
    bool from_scores; /* cross-entropy of x; otherwise NLL of y */
    bool brief;       /* fewer thread counts on the CPU, for loops over many cases */
    double near;      /* allowed error, as a part of the largest result */
} loss_case;

typedef struct softmax_case {
    lk_shape shape;
    const float *x, *y, *dy; // (n, h, w, c)
} softmax_case;

static lk_shape shape_of(const loss_case *l)
{
    return (lk_shape){.n = l->n, .c = l->classes, .h = 1, .w = 1};
}

/* Results: the logarithms for x, and the gradient for the result y. */
static void run_log_softmax(lk_device *d, const void *arg, float *out)
{
    const loss_case *l = arg;
    lk_tensor x = fx_input(d, shape_of(l), l->x), to = fx_tensor(d, shape_of(l)), y = fx_input(d, shape_of(l), l->y);
    lk_tensor dy = fx_input(d, shape_of(l), l->dy), dx = fx_tensor(d, shape_of(l));
    d->kernels->log_softmax_forward(d, &x, &to);
    d->kernels->log_softmax_grad_input(d, &y, &dy, &dx);
    fx_read(d, &to, out);
    fx_read(d, &dx, out + l->n * l->classes);
}

/* Results: losses, label ranks as floats and, with grad, dx. */
static void run_half(lk_device *d, const loss_case *l, bool grad, float *out)
{
    const lk_kernels *k = d->kernels;
    lk_tensor x = fx_input(d, shape_of(l), l->from_scores ? l->x : l->y), dx = fx_tensor(d, shape_of(l));
    lk_loss_desc desc = {.smoothing = l->smoothing, .scale = l->scale};
    desc.labels = fx_put(d, l->labels, l->n * sizeof *l->labels);
    desc.weights = l->weights ? fx_floats(d, l->weights, l->n) : NULL;
    float *loss = fx_no_floats(d, l->n);
    int32_t *label_rank = fx_blank(d, l->n * sizeof *label_rank), *host = malloc((l->n + 1) * sizeof *host);
    assert_non_null(host);
    (l->from_scores ? k->cross_entropy : k->nll)(d, &desc, &x, loss, label_rank, grad ? &dx : NULL);
    fx_get_floats(d, loss, l->n, out);
    fx_get(d, label_rank, l->n * sizeof *label_rank, host);
    for (size_t i = 0; i < l->n; i++)
        out[l->n + i] = (float)host[i];
    if (grad)
        fx_read(d, &dx, out + 2 * l->n);
    free(host);
}

/* Results: losses, label ranks, dx. Losses and label ranks must be the same without a gradient. */
static void run_loss(lk_device *d, const void *arg, float *out)
{
    const loss_case *l = arg;
    float *alone = new_floats(2 * l->n);
    run_half(d, l, true, out);
    run_half(d, l, false, alone);
    fx_same("loss without a gradient", alone, out, 2 * l->n);
    free(alone);
}

static double log_sum_exp(const float *x, size_t classes)
{
    double max = -INFINITY, sum = 0;
    for (size_t k = 0; k < classes; k++)
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

/* The label's rank in a stable sort by falling score. A NaN comes before the label, also if it is the label's own
 * score: with a NaN no label is the best. */
static int sorted_rank(const float *x, size_t classes, size_t label)
{
    int before = 0;
    for (size_t k = 0; k < classes; k++)
        before += !(x[k] <= x[label]) || (k < label && x[k] == x[label]);
    return before;
}

static void check_log_softmax(const loss_case *l)
{
    size_t count = l->n * l->classes;
    double *y = new_doubles(count), *dx = new_doubles(count);
    for (size_t begin = 0; begin < count; begin += l->classes) {
        double norm = log_sum_exp(l->x + begin, l->classes), sum = 0;
        for (size_t i = begin; i < begin + l->classes; i++)
            sum += (double)l->dy[i];
        for (size_t i = begin; i < begin + l->classes; i++) {
            y[i] = (double)l->x[i] - norm;
            dx[i] = (double)l->dy[i] - exp((double)l->y[i]) * sum;
        }
    }
    float *got = (l->brief ? fx_bits_brief : fx_bits)("log_softmax", run_log_softmax, l, 2 * count);
    fx_near_values("log_softmax", got, y, l->near, count);
    fx_near_values("gradient of log_softmax", got + count, dx, l->near, count);
    free(got);
    free(y);
    free(dx);
}

static void check_loss(const loss_case *l)
{
    size_t count = l->n * l->classes;
    const char *what = l->from_scores ? "cross_entropy" : "nll";
    double *dx = new_doubles(count), *loss = new_doubles(l->n), even = (double)l->smoothing / (double)l->classes;
    float *got = (l->brief ? fx_bits_brief : fx_bits)(what, run_loss, l, count + 2 * l->n);
    for (size_t n = 0; n < l->n; n++) {
        const float *x = (l->from_scores ? l->x : l->y) + n * l->classes;
        double norm = l->from_scores ? log_sum_exp(x, l->classes) : 0, weight = l->weights ? (double)l->weights[n] : 1;
        for (size_t k = 0; k < l->classes; k++) {
            double share = l->from_scores ? exp((double)x[k] - norm) : 0;
            double wanted = ((int32_t)k == l->labels[n] ? 1 - (double)l->smoothing : 0) + even;
            loss[n] += weight * wanted * (norm - (double)x[k]);
            dx[n * l->classes + k] = (double)l->scale * weight * (share - wanted);
        }
        int place = (int)got[l->n + n];
        assert_int_equal(place, sorted_rank(x, l->classes, (size_t)l->labels[n]));
        assert_int_equal(place == 0, first_largest(x, l->classes) == (size_t)l->labels[n]);
    }
    fx_near(what, got, loss, l->near, l->n);
    fx_near_values(what, got + 2 * l->n, dx, l->near, count);
    free(got);
    free(dx);
    free(loss);
}

static void check_losses(size_t n, size_t classes, const float *x, double near, bool brief)
{
    float *dy = random_values(n * classes, 2), *y = new_floats(n * classes);
    float *weights = random_floats(n, 3);
    int32_t *labels = calloc(n + 1, sizeof *labels);
    assert_non_null(labels);
    for (size_t i = 0; i < n; i++) {
        const float *row = x + i * classes;
        double norm = log_sum_exp(row, classes);
        labels[i] = (int32_t)(i % 3 ? first_largest(row, classes) : (i * 7 + i / 3) % classes);
        for (size_t k = 0; k < classes; k++)
            y[i * classes + k] = fx_round((float)((double)row[k] - norm));
    }
    loss_case l = {.n = n, .classes = classes, .x = x, .y = y, .dy = dy, .labels = labels, .scale = 0.125f};
    l.near = near;
    l.brief = brief;
    check_log_softmax(&l);
    for (int way = 0; way < 8; way++) {
        l.from_scores = way % 2;
        l.smoothing = way / 2 % 2 ? 0.1f : 0.0f;
        l.weights = way / 4 ? weights : NULL;
        check_loss(&l);
    }
    free(weights);
    free(y);
    free(dy);
    free(labels);
}

/* Multiples of 1/2, so that many rows have several largest values; one row is far from 0. */
static void test_equal_scores(void **state)
{
    static const size_t sizes[][2] = {{1, 10}, {64, 10}, {7, 3}, {5, 1000}, {1000, 21}, {4, 1}};
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        size_t n = sizes[s][0], classes = sizes[s][1];
        float *x = random_values(n * classes, 1);
        for (size_t i = 0; i < n * classes; i++)
            x[i] = floorf(x[i] * 16) / 2 + (i < classes ? 90.0f : 0.0f);
        check_losses(n, classes, x, fx_builds ? 1e-6 : FX_NEAR, false);
        free(x);
    }
}

/* Scores far below 0: a pad, which is 0, would be the largest if it were used. */
static void test_low_scores(void **state)
{
    static const size_t classes[] = {2, 3, 10, 26, 31, 64, 100, 1000}, counts[] = {0, 1, 5, 64, 131};
    for (size_t s = 0; s < COUNT_OF(classes) * COUNT_OF(counts); s++) {
        size_t c = classes[s / COUNT_OF(counts)], n = counts[s % COUNT_OF(counts)];
        float *x = random_values(n * c, 1);
        for (size_t i = 0; i < n * c; i++)
            x[i] = fx_round(4.0f * x[i] - 20.0f);
        check_losses(n, c, x, FX_NEAR, true);
        free(x);
    }
}

/* Label ranks with equal scores and NaNs. */
static void test_label_ranks(void **state)
{
    enum { N = 24, CLASSES = 21 };
    float *x = random_values(N * CLASSES, 3);
    int32_t labels[N];
    for (size_t i = 0; i < N; i++)
        labels[i] = (int32_t)((i * 7 + i / 3) % CLASSES);
    for (size_t i = 0; i < N * CLASSES; i++)
        x[i] = (float)(int)(x[i] * 3.0f);
    x[3 * CLASSES + 5] = NAN;
    x[4 * CLASSES + (size_t)labels[4]] = NAN;
    loss_case l = {.n = N, .classes = CLASSES, .x = x, .y = x, .labels = labels, .scale = 1};
    for (int i = 0; i < 2; i++) {
        l.from_scores = i;
        float *got = fx_bits("label ranks", run_loss, &l, N * (2 + CLASSES));
        for (size_t n = 0; n < N; n++)
            assert_int_equal((int)got[N + n], sorted_rank(x + n * CLASSES, CLASSES, (size_t)labels[n]));
        free(got);
    }
    free(x);
}

/* Very different scores neither overflow nor give a NaN. */
static void test_extremes(void **state)
{
    const float x[3] = {fx_round(1e30f), fx_round(-1e30f), 0}, want[5] = {0};
    const double zeros[5] = {0};
    const int32_t label = 0;
    loss_case l = {.n = 1, .classes = 3, .x = x, .labels = &label, .scale = 1, .from_scores = true};
    float *got = fx_bits("extremes", run_loss, &l, 5);
    fx_near("extremes", got, zeros, 0, 5);
    if (fx_builds)
        fx_same("extremes", got, want, 5);
    free(got);
}

/* A NaN among the scores makes the loss, which the run checks, and the whole gradient NaN. */
static void test_nan_scores(void **state)
{
    static const size_t classes[] = {3, 10, 100, 1000};
    for (size_t i = 0; i < COUNT_OF(classes); i++) {
        for (size_t at = 0; at < classes[i]; at += classes[i] < 10 ? 1 : 1 + classes[i] / 3) {
            float *x = random_values(classes[i], 6);
            x[at] = NAN;
            for (int32_t label = 0; label < 2; label++) {
                loss_case l = {
                    .n = 1, .classes = classes[i], .x = x, .labels = &label, .scale = 1, .from_scores = true};
                float *got = fx_bits("NaN scores", run_loss, &l, 2 + classes[i]);
                for (size_t k = 0; k < 2 + classes[i]; k++)
                    assert_true(k == 1 ? got[k] > 0 : isnan(got[k]));
                free(got);
            }
            free(x);
        }
    }
}

/* On the CPU the error is at most the rounding of the result to float, plus 2^-22 of `errs` for the error of exp
 * (2 units of 2^-23), plus 1000 additions of doubles with an error of 2^-53 of the sum each. On other devices the
 * result is near. */
static void assert_rounded(const char *what, size_t at, float got, double want, double errs)
{
    double bound = 0x1p-24 * fabs(want) + 0x1p-22 * fabs(errs) + 1000 * 0x1p-53 + 0x1p-148;
    if (fx_builds && !(fabs((double)got - want) <= bound))
        fail_msg("%s %zu is %.9g, not %.9g: %g times what rounding does", what, at, (double)got, want,
                 fabs((double)got - want) / bound);
}

/* One sample; the score of its label gives a loss of about `loss`. */
static void check_dominant(size_t classes, size_t at, double loss, bool equal, float smoothing)
{
    float *x = random_values(classes, (uint32_t)classes), scale = 0.125f;
    int32_t label = (int32_t)at;
    for (size_t k = 0; equal && k < classes; k++)
        x[k] = 0;
    x[at] = -INFINITY;
    x[at] = fx_round((float)(log_sum_exp(x, classes) - log(loss)));
    loss_case l = {.n = 1, .classes = classes, .x = x, .labels = &label, .scale = scale, .smoothing = smoothing};
    l.from_scores = true;
    float *got = fx_bits("a label that is all but certain", run_loss, &l, classes + 2);
    double norm = 0, want = 0, even = (double)smoothing / (double)classes, *dx = new_doubles(classes);
    for (size_t k = 0; k < classes; k++)
        norm += k == at ? 0 : exp((double)x[k] - (double)x[at]);
    double others = norm / (1 + norm); /* probability of all other classes */
    for (size_t k = 0; k < classes; k++) {
        double below = (double)x[at] - (double)x[k], p = exp(-below) / (1 + norm);
        double own = k == at ? -others + (double)smoothing : p;
        want += even * (log1p(norm) + below) + (k == at ? (1 - (double)smoothing) * log1p(norm) : 0);
        dx[k] = (double)scale * (own - even);
        assert_rounded("gradient", k, got[2 + k], dx[k], (double)scale * (k == at ? others : 2.25 * p));
    }
    assert_rounded("loss of label", at, got[0], want, others);
    fx_near("loss of a label that is all but certain", got, &want, FX_NEAR, 1);
    fx_near_values("its gradient", got + 2 + at, dx + at, FX_NEAR, 1);
    fx_near_values("gradient of many classes", got + 2, dx, FX_NEAR, classes);
    assert_true(got[1] == 0.0f);
    free(dx);
    free(got);
    free(x);
}

/* A label that is almost certain: loss and gradient are small differences of numbers near 1. They have the device's
 * precision for every label. */
static void test_many_classes(void **state)
{
    static const size_t counts[] = {17, 100, 1000};
    static const double losses[] = {1, 1e-3, 1e-5, 1e-7};
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        size_t labels[] = {0, counts[i] / 2, counts[i] - 1};
        for (size_t k = 0; k < 3 * COUNT_OF(losses); k++) {
            check_dominant(counts[i], labels[k % 3], losses[k / 3], false, 0.0f);
            check_dominant(counts[i], labels[k % 3], losses[k / 3], true, 0.0f);
            check_dominant(counts[i], labels[k % 3], losses[k / 3], false, 0.1f);
        }
    }
}

/* One score of 18, the others small whole numbers or all 0. */
static void test_one_far_above(void **state)
{
    enum { CLASSES = 1000 };
    static const int32_t at[] = {0, 500, 999};
    for (size_t i = 0; i < 2 * COUNT_OF(at); i++) {
        int32_t label = at[i / 2];
        float *x = random_values(CLASSES, 5);
        double rest = 0;
        for (int32_t k = 0; k < CLASSES; k++) {
            x[k] = i % 2 ? (float)(int)(x[k] * 3.0f) : 0.0f;
            rest += k == label ? 0 : exp((double)x[k] - 18);
        }
        x[label] = 18.0f;
        loss_case l = {.n = 1, .classes = CLASSES, .x = x, .labels = &label, .scale = 1, .from_scores = true};
        float *got = fx_bits("one far above", run_loss, &l, CLASSES + 2);
        double loss = log1p(rest), dx = -rest / (1 + rest);
        assert_rounded("loss of label", (size_t)label, got[0], loss, rest);
        assert_rounded("gradient", (size_t)label, got[2 + label], dx, rest);
        fx_near("loss of many classes", got, &loss, FX_NEAR, 1);
        fx_near_values("gradient of many classes", got + 2 + label, &dx, FX_NEAR, 1);
        free(got);
        free(x);
    }
}

/* Log-softmax of the same scores, and its gradient for the rounded result. */
static void test_log_softmax_of_many(void **state)
{
    enum { CLASSES = 1000 };
    for (size_t at = 0; at < CLASSES; at += CLASSES / 2 - 1) {
        float *x = random_values(CLASSES, 3), *dy = new_floats(CLASSES), *result = new_floats(CLASSES);
        double norm = 0, y[CLASSES], dx[CLASSES];
        x[at] = 18;
        dy[at] = -0.125f;
        for (size_t k = 0; k < CLASSES; k++)
            norm += k == at ? 0 : exp((double)x[k] - 18);
        for (size_t k = 0; k < CLASSES; k++) {
            y[k] = (double)x[k] - 18 - log1p(norm);
            result[k] = fx_round((float)y[k]);
            dx[k] = 0.125 * (k == at ? expm1((double)result[k]) : exp((double)result[k]));
        }
        loss_case l = {.n = 1, .classes = CLASSES, .x = x, .y = result, .dy = dy};
        float *got = fx_bits("log_softmax of many", run_log_softmax, &l, 2 * CLASSES);
        fx_near_values("log_softmax of many", got, y, FX_NEAR, CLASSES);
        fx_near_values("gradient of log_softmax of many", got + CLASSES, dx, FX_NEAR, CLASSES);
        for (size_t k = 0; k < CLASSES; k++) {
            assert_rounded("log-softmax", k, got[k], y[k], norm);
            assert_rounded("gradient of log-softmax", k, got[CLASSES + k], dx[k], 0);
        }
        free(got);
        free(x);
        free(dy);
        free(result);
    }
}

/* Results: softmax of x over the channels of each pixel, and the gradient for the result y. */
static void run_softmax(lk_device *d, const void *arg, float *out)
{
    const softmax_case *c = arg;
    lk_tensor x = fx_input(d, c->shape, c->x), to = fx_tensor(d, c->shape), y = fx_input(d, c->shape, c->y);
    lk_tensor dy = fx_input(d, c->shape, c->dy), dx = fx_tensor(d, c->shape);
    d->kernels->softmax_forward(d, &x, &to);
    d->kernels->softmax_grad_input(d, &y, &dy, &dx);
    fx_read(d, &to, out);
    fx_read(d, &dx, out + lk__shape_count(c->shape));
}

static void check_softmax(lk_shape shape, float scale)
{
    size_t count = lk__shape_count(shape), classes = shape.c;
    float *x = random_values(count, 1), *y = new_floats(count), *dy = random_values(count, 2);
    double *want = new_doubles(count), *dx = new_doubles(count);
    for (size_t i = 0; i < count; i++)
        x[i] = fx_round(x[i] * scale);
    for (size_t begin = 0; begin < count; begin += classes) {
        double norm = log_sum_exp(x + begin, classes), sum = 0;
        for (size_t i = begin; i < begin + classes; i++) {
            want[i] = exp((double)x[i] - norm);
            y[i] = fx_round((float)want[i]);
            sum += (double)y[i] * (double)dy[i];
        }
        for (size_t i = begin; i < begin + classes; i++)
            dx[i] = (double)y[i] * ((double)dy[i] - sum);
    }
    softmax_case c = {.shape = shape, .x = x, .y = y, .dy = dy};
    float *got = fx_bits("softmax", run_softmax, &c, 2 * count);
    fx_near_values("softmax", got, want, FX_NEAR, count);
    fx_near_values("gradient of softmax", got + count, dx, FX_NEAR, count);
    free(got);
    free(x);
    free(y);
    free(dy);
    free(want);
    free(dx);
}

static void test_softmax(void **state)
{
    static const lk_shape shapes[] = {{1, 1, 1, 1},  {3, 2, 5, 4},   {5, 16, 1, 1}, {5, 17, 3, 1},   {2, 21, 4, 4},
                                      {7, 64, 1, 9}, {2, 197, 3, 5}, {0, 21, 4, 4}, {3, 1000, 1, 1}, {33, 10, 1, 1}};
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        check_softmax(shapes[i], 8);
        check_softmax(shapes[i], 60);
    }
}

/* A NaN makes the probabilities of its pixel NaN, and no others. */
static void test_softmax_nan(void **state)
{
    static const size_t classes[] = {5, 40};
    for (size_t k = 0; k < COUNT_OF(classes); k++) {
        lk_shape shape = {2, classes[k], 1, 2};
        size_t count = lk__shape_count(shape);
        float *x = random_values(count, 1);
        x[classes[k] + 3] = NAN;
        float *got =
            fx_bits("softmax", run_softmax, &(softmax_case){.shape = shape, .x = x, .y = x, .dy = x}, 2 * count);
        for (size_t i = 0; i < 2 * count; i++)
            assert_true(isnan(got[i]) == (i % count / classes[k] == 1));
        free(got);
        free(x);
    }
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv,
                          TESTS(TEST(test_softmax), TEST(test_softmax_nan), TEST(test_equal_scores),
                                TEST(test_low_scores), TEST(test_label_ranks), TEST(test_extremes),
                                TEST(test_nan_scores), TEST(test_many_classes), TEST(test_one_far_above),
                                TEST(test_log_softmax_of_many)),
                          FX_FP32 | FX_BF16);
}
