/* test_loss.c - losses of float targets against double, on the CPU and on GPUs. */
#include "tensor/kernel_test.h"

typedef struct loss_case {
    lk_loss_kind kind;
    float parameter, smoothing, scale;
    lk_shape shape;
    const float *x, *targets; // (n, h, w, c)
    const int32_t *labels;    /* instead of targets, or NULL */
    const float *weights;     /* (n), or NULL */
    const float *classes;     /* (c), or NULL */
    const lk_loss_def *own;
} loss_case;

static size_t floats_of(const loss_case *l)
{
    return lk__shape_sample(l->shape);
}

/* Results of one run: losses, label ranks, errors, and with grad dx. */
static void run_half(lk_device *d, const loss_case *l, bool grad, float *out)
{
    size_t n = l->shape.n, count = lk__shape_count(l->shape);
    lk_tensor x = fx_input(d, l->shape, l->x), dx = fx_tensor(d, l->shape);
    lk_loss_desc desc = {
        .kind = l->kind, .parameter = l->parameter, .smoothing = l->smoothing, .scale = l->scale, .own = l->own};
    if (l->labels) {
        desc.labels = fx_put(d, l->labels, n * sizeof *l->labels);
    } else {
        desc.targets = fx_floats(d, l->targets, count);
        desc.target_floats = floats_of(l);
    }
    desc.weights = l->weights ? fx_floats(d, l->weights, n) : NULL;
    desc.class_weights = l->classes ? fx_floats(d, l->classes, l->shape.c) : NULL;
    lk_loss_results to = {.loss = fx_no_floats(d, n), .label_rank = fx_blank(d, n * sizeof(int32_t))};
    to.error = l->labels ? NULL : fx_no_floats(d, 2 * n);
    void *scratch = fx_blank(d, d->kernels->target_loss_scratch(d, l->kind, l->shape));
    int32_t *host = malloc((n + 1) * sizeof *host);
    assert_non_null(host);
    d->kernels->target_loss(d, &desc, &x, &to, grad ? &dx : NULL, scratch);
    fx_get_floats(d, to.loss, n, out);
    fx_get(d, to.label_rank, n * sizeof *host, host);
    for (size_t i = 0; i < n; i++)
        out[n + i] = host[i] == INT32_MAX ? -1.0f : (float)host[i];
    memset(out + 2 * n, 0, 2 * n * sizeof *out);
    if (to.error)
        fx_get_floats(d, to.error, 2 * n, out + 2 * n);
    if (grad)
        fx_read(d, &dx, out + 4 * n);
    free(host);
}

/* The results without a gradient must be the same. */
static void run_loss(lk_device *d, const void *arg, float *out)
{
    const loss_case *l = arg;
    float *alone = new_floats(4 * l->shape.n);
    run_half(d, l, true, out);
    run_half(d, l, false, alone);
    fx_same("loss without a gradient", alone, out, 4 * l->shape.n);
    free(alone);
}

/* The loss of one element, its derivative and the error of its prediction. */
typedef struct truth {
    double value, slope, error;
} truth;

static truth element(const loss_case *l, double x, double t, double weight)
{
    double d = x - t, p = (double)l->parameter, s = 1 / (1 + exp(-x));
    double side = d > 0 ? 1 : d < 0 ? -1 : 0;
    switch (l->kind) {
    case LK_LOSS_KIND_MSE:
    case LK_LOSS_KIND_OWN:
        return (truth){d * d, 2 * d, d};
    case LK_LOSS_KIND_L1:
        return (truth){fabs(d), side, d};
    case LK_LOSS_KIND_HUBER:
        return fabs(d) < p ? (truth){d * d / 2, d, d} : (truth){p * (fabs(d) - p / 2), p * side, d};
    case LK_LOSS_KIND_SMOOTH_L1:
        return fabs(d) < p ? (truth){d * d / (2 * p), d / p, d} : (truth){fabs(d) - p / 2, side, d};
    default:
        return (truth){weight * t * log1p(exp(-x)) + (1 - t) * log1p(exp(x)), (1 - t) * s - weight * t * (1 - s),
                       s - t};
    }
}

typedef struct expected {
    double *loss, *error, *dx;
} expected;

static void expect_elements(const loss_case *l, size_t n, expected *to)
{
    size_t floats = floats_of(l);
    double weight = l->weights ? (double)l->weights[n] : 1, count = (double)floats;
    for (size_t i = 0; i < floats; i++) {
        size_t at = n * floats + i;
        double own = l->classes ? (double)l->classes[i % l->shape.c] : 1;
        truth t = element(l, (double)l->x[at], (double)l->targets[at], own);
        to->loss[n] += weight * t.value / count;
        to->error[2 * n] += fabs(t.error) / count;
        to->error[2 * n + 1] += t.error * t.error / count;
        to->dx[at] = (double)l->scale * weight * t.slope / count;
    }
}

static double wanted(const loss_case *l, size_t n, size_t k)
{
    double even = (double)l->smoothing / (double)l->shape.c, own = l->classes ? (double)l->classes[k] : 1;
    double target = l->labels ? ((int32_t)k == l->labels[n]) : (double)l->targets[n * l->shape.c + k];
    return own * ((1 - (double)l->smoothing) * target + even);
}

static void expect_classes(const loss_case *l, size_t n, expected *to)
{
    size_t classes = l->shape.c;
    const float *x = l->x + n * classes;
    bool logs = l->kind == LK_LOSS_KIND_SOFT_LOGS;
    double sum = 0, all = 0, weight = l->weights ? (double)l->weights[n] : 1;
    for (size_t k = 0; k < classes; k++) {
        sum += exp((double)x[k]);
        all += wanted(l, n, k);
    }
    double norm = logs ? 0 : log(sum);
    for (size_t k = 0; k < classes; k++) {
        double part = exp((double)x[k] - norm), target = wanted(l, n, k);
        double error = l->labels ? 0 : part - (double)l->targets[n * classes + k];
        to->loss[n] += weight * target * (norm - (double)x[k]);
        to->error[2 * n] += fabs(error) / (double)classes;
        to->error[2 * n + 1] += error * error / (double)classes;
        to->dx[n * classes + k] = (double)l->scale * weight * ((logs ? 0 : part * all) - target);
    }
}

static int expect_rank(const loss_case *l, size_t n)
{
    size_t floats = floats_of(l), label = 0;
    const float *x = l->x + n * floats, *targets = l->targets + n * floats;
    bool right = true;
    int before = 0;
    for (size_t i = 0; i < floats && l->kind == LK_LOSS_KIND_BCE; i++)
        right = right && (x[i] > 0) == (targets[i] > 0.5f);
    if (l->kind != LK_LOSS_KIND_SOFT && l->kind != LK_LOSS_KIND_SOFT_LOGS)
        return l->kind == LK_LOSS_KIND_BCE && right ? 0 : -1;
    for (size_t k = 1; k < floats && !l->labels; k++)
        label = targets[k] > targets[label] ? k : label;
    label = l->labels ? (size_t)l->labels[n] : label;
    for (size_t k = 0; k < floats; k++)
        before += x[k] > x[label] || (k < label && x[k] == x[label]);
    return before;
}

static void check_loss(const char *what, const loss_case *l)
{
    size_t n = l->shape.n, count = lk__shape_count(l->shape);
    expected want = {new_doubles(n), new_doubles(2 * n), new_doubles(count)};
    float *got = fx_bits(what, run_loss, l, 4 * n + count);
    bool classes = l->kind == LK_LOSS_KIND_SOFT || l->kind == LK_LOSS_KIND_SOFT_LOGS;
    for (size_t i = 0; i < n; i++) {
        (classes ? expect_classes : expect_elements)(l, i, &want);
        assert_int_equal((int)got[n + i], expect_rank(l, i));
    }
    double near = fx_builds ? 1e-6 : FX_NEAR;
    fx_near(what, got, want.loss, near, n);
    fx_near(what, got + 2 * n, want.error, near, 2 * n);
    fx_near_values(what, got + 4 * n, want.dx, near, count);
    free(got);
    free(want.loss);
    free(want.error);
    free(want.dx);
}

/* Inputs of every size for a kind. Targets of classes are probabilities, other targets in (0,1). */
static void check_kind(loss_case l, const char *what)
{
    static const lk_shape shapes[] = {{.n = 1, .c = 1, .h = 1, .w = 1},    {.n = 64, .c = 10, .h = 1, .w = 1},
                                      {.n = 5, .c = 1000, .h = 1, .w = 1}, {.n = 0, .c = 3, .h = 1, .w = 1},
                                      {.n = 7, .c = 3, .h = 5, .w = 4},    {.n = 3, .c = 20, .h = 9, .w = 7}};
    bool soft = l.kind == LK_LOSS_KIND_SOFT || l.kind == LK_LOSS_KIND_SOFT_LOGS;
    bool labels = l.labels != NULL, classes = l.classes != NULL;
    for (size_t s = 0; s < (soft ? 4 : COUNT_OF(shapes)); s++) {
        l.shape = shapes[s];
        size_t count = lk__shape_count(l.shape), floats = floats_of(&l);
        float *x = random_values(count, 1), *targets = random_values(count, 2), *own = random_values(floats, 3);
        float *weights = random_values(l.shape.n + 1, 4);
        int32_t *truths = calloc(l.shape.n + 1, sizeof *truths);
        assert_non_null(truths);
        for (size_t i = 0; i < count; i++) {
            targets[i] = fabsf(targets[i]) - floorf(fabsf(targets[i]));
            x[i] = fx_round(soft && l.kind == LK_LOSS_KIND_SOFT_LOGS ? -fabsf(x[i]) : 2 * x[i]);
        }
        for (size_t i = 0; i < l.shape.n; i++)
            truths[i] = (int32_t)((i * 7 + i / 3) % l.shape.c);
        for (size_t i = 0; i <= l.shape.n; i++)
            weights[i] = i % 4 == 3 ? 0 : fabsf(weights[i]);
        for (size_t k = 0; k < floats; k++)
            own[k] = fabsf(own[k]);
        l.x = x;
        l.targets = targets;
        l.scale = 0.125f;
        l.labels = labels ? truths : NULL;
        l.classes = classes ? own : NULL;
        check_loss(what, &l);
        l.weights = weights;
        check_loss(what, &l);
        l.weights = NULL;
        free(x);
        free(targets);
        free(own);
        free(weights);
        free(truths);
    }
}

static const int32_t some_labels[1];
static const float some_classes[1];

static void test_differences(void **state)
{
    check_kind((loss_case){.kind = LK_LOSS_KIND_MSE}, "mse");
    check_kind((loss_case){.kind = LK_LOSS_KIND_L1}, "l1");
    check_kind((loss_case){.kind = LK_LOSS_KIND_HUBER, .parameter = 0.75f}, "huber");
    check_kind((loss_case){.kind = LK_LOSS_KIND_SMOOTH_L1, .parameter = 0.5f}, "smooth_l1");
    check_kind((loss_case){.kind = LK_LOSS_KIND_SMOOTH_L1, .parameter = 0}, "smooth_l1 of beta 0");
}

static void test_logits(void **state)
{
    check_kind((loss_case){.kind = LK_LOSS_KIND_BCE}, "bce");
    check_kind((loss_case){.kind = LK_LOSS_KIND_BCE, .classes = some_classes}, "bce with weights of classes");
}

static void test_classes(void **state)
{
    check_kind((loss_case){.kind = LK_LOSS_KIND_SOFT}, "soft targets");
    check_kind((loss_case){.kind = LK_LOSS_KIND_SOFT, .smoothing = 0.1f, .classes = some_classes}, "smoothed targets");
    check_kind((loss_case){.kind = LK_LOSS_KIND_SOFT, .labels = some_labels, .classes = some_classes},
               "weighted labels");
    check_kind(
        (loss_case){.kind = LK_LOSS_KIND_SOFT, .smoothing = 0.1f, .labels = some_labels, .classes = some_classes},
        "weighted smooth labels");
    check_kind((loss_case){.kind = LK_LOSS_KIND_SOFT_LOGS, .labels = some_labels, .classes = some_classes},
               "weighted labels of log-probabilities");
}

/* Logits far from 0 keep the precision of a small loss and a small gradient, and never overflow. */
static void test_far_logits(void **state)
{
    enum { N = 6 };
    const float x[N] = {40, -40, 40, -40, 1e30f, -1e30f}, targets[N] = {1, 0, 0, 1, 1, 0};
    const double loss[N] = {exp(-40), exp(-40), 40, 40, 0, 0}, dx[N] = {-exp(-40), exp(-40), 1, -1, 0, 0};
    loss_case l = {.kind = LK_LOSS_KIND_BCE, .shape = {N, 1, 1, 1}, .x = x, .targets = targets, .scale = 1};
    float *got = fx_bits("far logits", run_loss, &l, 5 * N);
    for (size_t i = 0; i < N; i++) {
        assert_true(fabs((double)got[i] - loss[i]) <= 1e-6 * loss[i]);
        assert_true(fabs((double)got[4 * N + i] - dx[i]) <= (fx_builds ? 1e-6 : 0.01) * fabs(dx[i]));
    }
    free(got);
}

/* A NaN reaches the loss and the gradient. */
static void test_nan(void **state)
{
    const float targets[2] = {0.5f, 0.25f}, x[2] = {NAN, 1};
    for (int kind = LK_LOSS_KIND_MSE; kind < LK_LOSS_KIND_OWN; kind++) {
        loss_case l = {.kind = (lk_loss_kind)kind, .parameter = 1, .shape = {1, 2, 1, 1}, .scale = 1};
        l.x = x;
        l.targets = targets;
        float *got = fx_bits("NaN", run_loss, &l, 6);
        assert_true(isnan(got[0]));
        assert_true(kind == LK_LOSS_KIND_SOFT_LOGS || isnan(got[4]));
        assert_true(got[1] != 0.0f);
        free(got);
    }
}

/* The mean squared error as a loss of the program's own has the bits of the kernel's, on the CPU. */
static float own_mse(void *arg, const float *x, size_t floats, int32_t label, const float *target, size_t target_floats,
                     float *dx)
{
    double sum = 0;
    for (size_t i = 0; i < floats; i++) {
        double d = (double)x[i] - (double)target[i];
        sum += d * d;
        if (dx)
            dx[i] = (float)(2 * d / (double)floats);
    }
    return (float)(sum / (double)floats);
}

static void test_own(void **state)
{
    static const lk_loss_def def = {.name = "own mse", .target_floats = LK_TARGETS_AS_X, .sample = own_mse};
    float *x = random_values(7 * 60, 1), *targets = random_values(7 * 60, 2), *weights = random_values(7, 3);
    loss_case l = {.kind = LK_LOSS_KIND_MSE, .shape = {7, 3, 5, 4}, .x = x, .targets = targets, .weights = weights};
    l.scale = 0.3f;
    if (!fx_builds)
        skip(); /* a GPU needs a function of its own */
    float *want = fx_bits("mse", run_loss, &l, 28 + 420);
    l.kind = LK_LOSS_KIND_OWN;
    l.own = &def;
    float *got = fx_bits("own mse", run_loss, &l, 28 + 420);
    fx_same("own mse", got, want, 28 + 420);
    free(got);
    free(want);
    free(weights);
    free(targets);
    free(x);
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv,
                          TESTS(TEST(test_differences), TEST(test_logits), TEST(test_classes), TEST(test_far_logits),
                                TEST(test_nan), TEST(test_own)),
                          FX_FP32 | FX_BF16);
}
