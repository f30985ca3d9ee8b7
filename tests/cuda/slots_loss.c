/* slots_loss.c - log-softmax and the losses against double; places of labels
 * as the CPU counts them. */
#include "cuda/cuda_fixture.h"

typedef struct loss_case {
    size_t n, classes;
    const float *x, *dy; // (n, classes)
    const int32_t *labels;
    float smoothing;
    bool from_scores; /* cross entropy, else nll */
    bool alone;       /* without a gradient */
} loss_case;

#define SCALE 0.0625f

static lk_shape shape_of(const loss_case *c)
{
    return (lk_shape){.n = c->n, .c = c->classes, .h = 1, .w = 1};
}

/* The result, and the gradient from c->x as the result. */
static void run_log_softmax(lk_device *d, const void *arg, float *out)
{
    const loss_case *c = arg;
    lk_tensor x = fx_input(d, shape_of(c), c->x), y = fx_tensor(d, shape_of(c));
    lk_tensor dy = fx_input(d, shape_of(c), c->dy), dx = fx_tensor(d, shape_of(c));
    d->kernels->log_softmax_forward(d, &x, &y);
    d->kernels->log_softmax_grad_input(d, &x, &dy, &dx);
    fx_read(d, &y, out);
    fx_read(d, &dx, out + c->n * c->classes);
}

/* Loss and place of each sample, then dx, unless c->alone. */
static void run_loss(lk_device *d, const void *arg, float *out)
{
    const loss_case *c = arg;
    const lk_kernels *k = d->kernels;
    lk_tensor x = fx_input(d, shape_of(c), c->x), dx = fx_tensor(d, shape_of(c));
    lk_loss_desc desc = {
        .labels = fx_put(d, c->labels, c->n * sizeof *c->labels), .smoothing = c->smoothing, .scale = SCALE};
    float *loss = fx_no_floats(d, c->n);
    int32_t *place = fx_blank(d, c->n * sizeof *place), *places = malloc((c->n + 1) * sizeof *places);
    assert_non_null(places);
    (c->from_scores ? k->cross_entropy : k->nll)(d, &desc, &x, loss, place, c->alone ? NULL : &dx);
    fx_get_floats(d, loss, c->n, out);
    fx_get(d, place, c->n * sizeof *place, places);
    for (size_t i = 0; i < c->n; i++)
        out[c->n + i] = (float)places[i];
    if (!c->alone)
        fx_read(d, &dx, out + 2 * c->n);
    free(places);
}

static double log_sum(const float *x, size_t classes)
{
    double most = -INFINITY, sum = 0;
    for (size_t k = 0; k < classes; k++)
        most = fmax(most, (double)x[k]);
    for (size_t k = 0; k < classes; k++)
        sum += exp((double)x[k] - most);
    return most + log(sum);
}

static void expect_log_softmax(const loss_case *c, double *y, double *dx)
{
    for (size_t n = 0; n < c->n; n++) {
        const float *x = c->x + n * c->classes, *dy = c->dy + n * c->classes;
        double norm = log_sum(x, c->classes), sum = 0;
        for (size_t k = 0; k < c->classes; k++)
            sum += (double)dy[k];
        for (size_t k = 0; k < c->classes; k++) {
            y[n * c->classes + k] = (double)x[k] - norm;
            dx[n * c->classes + k] = (double)dy[k] - exp((double)x[k]) * sum;
        }
    }
}

static double target(const loss_case *c, size_t n, size_t k)
{
    double even = (double)c->smoothing / (double)c->classes;
    return even + (k == (size_t)c->labels[n] ? 1 - (double)c->smoothing : 0);
}

static void expect_loss(const loss_case *c, double *loss, double *dx)
{
    for (size_t n = 0; n < c->n; n++) {
        const float *x = c->x + n * c->classes;
        double norm = c->from_scores ? log_sum(x, c->classes) : 0;
        loss[n] = 0;
        for (size_t k = 0; k < c->classes; k++) {
            double chance = c->from_scores ? exp((double)x[k] - norm) : 0;
            loss[n] += target(c, n, k) * (norm - (double)x[k]);
            dx[n * c->classes + k] = (double)SCALE * (chance - target(c, n, k));
        }
    }
}

/* Scores far below 0: a pad, which is 0, would win if it counted. */
static float *make_scores(size_t n, size_t classes, uint32_t stream)
{
    float *x = random_values(n * classes, stream);
    for (size_t i = 0; i < n * classes; i++)
        x[i] = fx_round(4.0f * x[i] - 20.0f);
    return x;
}

static void make_log_chances(size_t n, size_t classes, float *x)
{
    for (size_t i = 0; i < n; i++) {
        double norm = log_sum(x + i * classes, classes);
        for (size_t k = 0; k < classes; k++)
            x[i * classes + k] = fx_round((float)((double)x[i * classes + k] - norm));
    }
}

static int32_t *make_labels(size_t n, size_t classes)
{
    int32_t *labels = malloc((n + 1) * sizeof *labels);
    assert_non_null(labels);
    for (size_t i = 0; i < n; i++)
        labels[i] = (int32_t)((i * 7 + i / 3) % classes);
    return labels;
}

static void check_log_softmax(loss_case c)
{
    size_t count = c.n * c.classes;
    double *want = new_doubles(2 * count);
    float *got = fx_twice("log_softmax", run_log_softmax, &c, 2 * count);
    expect_log_softmax(&c, want, want + count);
    fx_near_values("log_softmax", got, want, count);
    free(got);
    float *chances = new_floats(count);
    memcpy(chances, c.x, count * sizeof *chances);
    make_log_chances(c.n, c.classes, chances);
    c.x = chances;
    got = fx_twice("log_softmax_grad", run_log_softmax, &c, 2 * count);
    expect_log_softmax(&c, want, want + count);
    fx_near_values("log_softmax_grad", got + count, want + count, count);
    free(got);
    free(chances);
    free(want);
}

static void check_loss(const char *what, loss_case c)
{
    size_t count = c.n * c.classes;
    double *loss = new_doubles(c.n), *dx = new_doubles(count);
    static const float smoothings[] = {0.0f, 0.1f};
    for (int i = 0; i < 2; i++) {
        c.smoothing = smoothings[i];
        float *got = fx_twice(what, run_loss, &c, 2 * c.n + count),
              *plain = fx_once(cpu, run_loss, &c, 2 * c.n + count);
        expect_loss(&c, loss, dx);
        fx_near(what, got, loss, c.n);
        fx_same(what, got + c.n, plain + c.n, c.n);
        fx_near_values(what, got + 2 * c.n, dx, count);
        c.alone = true;
        float *alone = fx_twice(what, run_loss, &c, 2 * c.n);
        c.alone = false;
        fx_same(what, alone, got, 2 * c.n);
        free(alone);
        free(got);
        free(plain);
    }
    free(loss);
    free(dx);
}

static void check(size_t n, size_t classes)
{
    float *x = make_scores(n, classes, 1), *dy = random_values(n * classes, 2);
    int32_t *labels = make_labels(n, classes);
    loss_case c = {.n = n, .classes = classes, .x = x, .dy = dy, .labels = labels};
    check_log_softmax(c);
    c.from_scores = true;
    check_loss("cross_entropy", c);
    make_log_chances(n, classes, x);
    c.from_scores = false;
    check_loss("nll", c);
    free(x);
    free(dy);
    free(labels);
}

static void test_losses(void **state)
{
    (void)state;
    static const size_t classes[] = {2, 3, 10, 26, 31, 64, 100, 1000};
    static const size_t counts[] = {0, 1, 5, 64, 131};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            check(counts[k], classes[i]);
    }
}

/* Of equals the first comes first, and a label never wins beside a NaN. */
static void test_places(void **state)
{
    (void)state;
    enum { N = 24, CLASSES = 21 };
    float *x = random_values(N * CLASSES, 3);
    int32_t *labels = make_labels(N, CLASSES);
    for (size_t i = 0; i < N * CLASSES; i++)
        x[i] = (float)(int)(x[i] * 3.0f);
    x[3 * CLASSES + 5] = NAN;
    x[4 * CLASSES + (size_t)labels[4]] = NAN;
    loss_case c = {.n = N, .classes = CLASSES, .x = x, .labels = labels};
    for (int i = 0; i < 2; i++) {
        c.from_scores = i;
        float *got = fx_twice("places", run_loss, &c, N * (2 + CLASSES)),
              *want = fx_once(cpu, run_loss, &c, N * (2 + CLASSES));
        fx_same("places", got + N, want + N, N);
        free(got);
        free(want);
    }
    free(x);
    free(labels);
}

/* A label that is all but certain, wherever it is: loss and gradient, which are small
 * differences of numbers near 1, have the device's precision. In bf16 scores are few
 * and small whole numbers, which it holds. */
static void test_many_classes(void **state)
{
    (void)state;
    enum { CLASSES = 1000 };
    static const int32_t at[] = {0, 500, 999};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        float *x = random_values(CLASSES, 5);
        for (size_t k = 0; k < CLASSES; k++)
            x[k] = (float)(int)(x[k] * 3.0f);
        x[at[i]] = 18.0f;
        loss_case c = {.n = 1, .classes = CLASSES, .x = x, .labels = &at[i], .from_scores = true};
        double norm = 0;
        for (size_t k = 0; k < CLASSES; k++)
            norm += (int32_t)k == at[i] ? 0 : exp((double)x[k] - 18);
        float *got = fx_twice("many classes", run_loss, &c, 2 + CLASSES);
        double loss = log1p(norm), dx = (double)SCALE * -norm / (1 + norm);
        fx_near("loss of many classes", got, &loss, 1);
        fx_near_values("gradient of many classes", got + 2 + at[i], &dx, 1);
        free(got);
        free(x);
    }
}

/* A NaN among the scores is one in the loss and in all of the gradient. */
static void test_nan_scores(void **state)
{
    (void)state;
    static const size_t classes[] = {3, 10, 100, 1000};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        for (size_t at = 0; at < classes[i]; at += 1 + classes[i] / 3) {
            int32_t label = 1;
            float *x = random_values(classes[i], 6);
            x[at] = NAN;
            loss_case c = {.n = 1, .classes = classes[i], .x = x, .labels = &label, .from_scores = true};
            float *got = fx_twice("NaN scores", run_loss, &c, 2 + classes[i]);
            for (size_t k = 0; k < 2 + classes[i]; k++)
                assert_true(k == 1 || isnan(got[k]));
            free(got);
            free(x);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_losses), cmocka_unit_test(test_places),
                                       cmocka_unit_test(test_many_classes), cmocka_unit_test(test_nan_scores)};
    return fx_main(tests, sizeof tests / sizeof *tests, FX_FP32 | FX_BF16);
}
