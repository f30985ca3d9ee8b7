/* test_optim.c - element updates of the optimisers on the CPU and on GPUs: one step against double, the CPU's bits
 * on every device, and no change if a flag is set. */
#include "tensor/kernel_test.h"

/* Results are four arrays: the parameter and three states. */
enum { ARRAYS = 4, STATES = ARRAYS - 1 };

typedef struct rule rule;

typedef struct step_case {
    const rule *rule;
    size_t count, skip; /* skip: elements before the first; arrays are aligned to an element only */
    lk_sgd sgd;
    lk_adam adam;
    lk_adadelta adadelta;
    lk_rmsprop rmsprop;
    bool centered;
    int flag;                  /* -1: none */
    const float *grad, *start; // (skip + count), (ARRAYS, skip + count), states >= 0 as a root is taken of them
} step_case;

struct rule {
    const char *name;
    void (*step)(lk_device *d, const step_case *s, const lk_flag *flag, const lk_update_arrays *arrays,
                 float *state[STATES]);
    /* Updates one element in double; e: the parameter and three states. */
    void (*element)(const step_case *s, double g, double e[ARRAYS]);
};

static void sgd_step(lk_device *d, const step_case *s, const lk_flag *flag, const lk_update_arrays *arrays,
                     float *state[STATES])
{
    d->kernels->sgd_step(d, fx_put(d, &s->sgd, sizeof s->sgd), flag, s->count, arrays,
                         s->sgd.momentum != 0 ? state[0] : NULL);
}

static void adam_step(lk_device *d, const step_case *s, const lk_flag *flag, const lk_update_arrays *arrays,
                      float *state[STATES])
{
    d->kernels->adam_step(d, fx_put(d, &s->adam, sizeof s->adam), flag, s->count, arrays, state[0], state[1]);
}

static void adadelta_step(lk_device *d, const step_case *s, const lk_flag *flag, const lk_update_arrays *arrays,
                          float *state[STATES])
{
    d->kernels->adadelta_step(d, fx_put(d, &s->adadelta, sizeof s->adadelta), flag, s->count, arrays, state[0],
                              state[1]);
}

static void rmsprop_step(lk_device *d, const step_case *s, const lk_flag *flag, const lk_update_arrays *arrays,
                         float *state[STATES])
{
    lk_rmsprop_state rms = {.square = state[0],
                            .buffer = s->rmsprop.momentum != 0 ? state[1] : NULL,
                            .mean = s->centered ? state[2] : NULL};
    d->kernels->rmsprop_step(d, fx_put(d, &s->rmsprop, sizeof s->rmsprop), flag, s->count, arrays, &rms);
}

static void sgd_element(const step_case *s, double g, double e[ARRAYS])
{
    double d = g + (double)s->sgd.weight_decay * e[0], momentum = (double)s->sgd.momentum;
    if (momentum != 0) {
        e[1] = s->sgd.first ? d : momentum * e[1] + (1 - (double)s->sgd.dampening) * d;
        d = s->sgd.nesterov ? d + momentum * e[1] : e[1];
    }
    e[0] -= (double)s->sgd.lr * d;
}

static void adam_element(const step_case *s, double g, double e[ARRAYS])
{
    const lk_adam *a = &s->adam;
    e[0] *= (double)a->shrink;
    g += (double)a->weight_decay * e[0];
    e[1] = (1 - (double)a->one_minus_beta1) * e[1] + (double)a->one_minus_beta1 * g;
    e[2] = (double)a->beta2 * e[2] + (double)a->one_minus_beta2 * g * g;
    e[0] -= (double)a->step_size * e[1] / (sqrt(e[2]) / (double)a->root_correction + (double)a->eps);
}

static void adadelta_element(const step_case *s, double g, double e[ARRAYS])
{
    const lk_adadelta *a = &s->adadelta;
    g += (double)a->weight_decay * e[0];
    e[1] = (double)a->rho * e[1] + (double)a->one_minus_rho * g * g;
    double change = sqrt(e[2] + (double)a->eps) / sqrt(e[1] + (double)a->eps) * g;
    e[2] = (double)a->rho * e[2] + (double)a->one_minus_rho * change * change;
    e[0] -= (double)a->lr * change;
}

static void rmsprop_element(const step_case *s, double g, double e[ARRAYS])
{
    const lk_rmsprop *a = &s->rmsprop;
    g += (double)a->weight_decay * e[0];
    e[1] = (double)a->alpha * e[1] + (double)a->one_minus_alpha * g * g;
    double variance = e[1];
    if (s->centered) {
        e[3] = (1 - (double)a->one_minus_alpha) * e[3] + (double)a->one_minus_alpha * g;
        variance -= e[3] * e[3];
    }
    double d = g / (sqrt(variance) + (double)a->eps);
    if (a->momentum != 0)
        d = e[2] = (double)a->momentum * e[2] + d;
    e[0] -= (double)a->lr * d;
}

static const rule sgd = {"sgd", sgd_step, sgd_element};
static const rule adam = {"adam", adam_step, adam_element};
static const rule adadelta = {"adadelta", adadelta_step, adadelta_element};
static const rule rmsprop = {"rmsprop", rmsprop_step, rmsprop_element};

/* In bf16 a step also writes the rounded parameters, unless the flag is raised. */
static void check_values(lk_device *d, const step_case *s, const void *values, const float *params)
{
    uint16_t *got = calloc(s->count + 1, sizeof *got);
    assert_non_null(got);
    fx_get(d, values, s->count * sizeof *got, got);
    for (size_t i = 0; i < s->count; i++) {
        float want = s->flag > 0 ? 0 : fx_round(params[i]);
        if (!fx_equal(fx_load(LK_DTYPE_BF16, got, i), want))
            fail_msg("%s: value %zu of %zu is %g, not %g", s->rule->name, i, s->count,
                     (double)fx_load(LK_DTYPE_BF16, got, i), (double)want);
    }
    free(got);
}

static void run_step(lk_device *d, const void *arg, float *out)
{
    const step_case *s = arg;
    lk_flag flag = {.first = s->flag > 0 ? 3 : LK_FLAG_NONE, .bad = s->flag > 0};
    size_t whole = s->count + s->skip;
    uint16_t *zeros = calloc(whole + 1, sizeof *zeros);
    assert_non_null(zeros);
    float *grad = fx_floats(d, s->grad, whole) + s->skip, *array[ARRAYS];
    for (size_t i = 0; i < ARRAYS; i++)
        array[i] = fx_floats(d, s->start + i * whole, whole) + s->skip;
    lk_update_arrays arrays = {.grad = grad, .param = array[0]};
    if (d->values == LK_DTYPE_BF16)
        arrays.values = (uint16_t *)fx_put(d, zeros, whole * sizeof *zeros) + s->skip;
    s->rule->step(d, s, s->flag >= 0 ? fx_put(d, &flag, sizeof flag) : NULL, &arrays, array + 1);
    for (size_t i = 0; i < ARRAYS; i++)
        fx_get_floats(d, array[i] - s->skip, whole, out + i * whole);
    if (arrays.values)
        check_values(d, s, arrays.values, out + s->skip);
    free(zeros);
}

static void check(const step_case *s)
{
    size_t whole = s->count + s->skip;
    float *got = fx_bits_of_cpu(s->rule->name, run_step, s, ARRAYS * whole);
    double *want = new_doubles(ARRAYS * whole);
    for (size_t i = 0; i < whole; i++) {
        double e[ARRAYS];
        for (size_t k = 0; k < ARRAYS; k++)
            e[k] = (double)s->start[k * whole + i];
        if (i >= s->skip && s->flag <= 0)
            s->rule->element(s, (double)s->grad[i], e);
        for (size_t k = 0; k < ARRAYS; k++)
            want[k * whole + i] = e[k];
    }
    for (size_t k = 0; k < ARRAYS; k++)
        fx_near(s->rule->name, got + k * whole, want + k * whole, s->flag > 0 ? 0 : 1e-6, whole);
    free(got);
    free(want);
}

static void check_rules(step_case s)
{
    s.rule = &sgd;
    for (unsigned i = 0; i < 8; i++) {
        s.sgd = (lk_sgd){.lr = 0.1f,
                         .momentum = i & 1 ? 0.9f : 0.0f,
                         .dampening = i & 2 ? 0.25f : 0.0f,
                         .weight_decay = 0.01f,
                         .nesterov = i & 4,
                         .first = i == 5};
        check(&s);
    }
    s.rule = &adam;
    s.adam = (lk_adam){0.999f, 0.1f, 0.001f, 0.01f, 0.0316f, 1e-8f, .weight_decay = 0.01f, .shrink = 1.0f};
    check(&s);
    s.adam.weight_decay = 0.0f;
    s.adam.shrink = 0.75f;
    check(&s);
    s.rule = &adadelta;
    s.adadelta = (lk_adadelta){1.0f, 0.9f, 0.1f, 1e-6f, 0.01f};
    check(&s);
    s.rule = &rmsprop;
    for (unsigned i = 0; i < 4; i++) {
        s.rmsprop = (lk_rmsprop){0.01f, 0.75f, 0.25f, 0.5f, 0.01f, .momentum = i & 1 ? 0.9f : 0.0f};
        s.centered = i & 2;
        check(&s);
    }
}

static void check_steps(size_t count, size_t skip)
{
    size_t whole = count + skip;
    float *grad = random_floats(whole, 1), *start = random_floats(ARRAYS * whole, 2);
    for (size_t i = whole; i < ARRAYS * whole; i++)
        start[i] = fabsf(start[i]);
    /* A mean whose square is below the mean of squares. */
    for (size_t i = 0; i < whole; i++)
        start[3 * whole + i] = 0.5f * start[whole + i];
    step_case s = {.count = count, .skip = skip, .grad = grad, .start = start};
    for (s.flag = -1; s.flag <= 1; s.flag++)
        check_rules(s);
    free(grad);
    free(start);
}

static void test_steps(void **state)
{
    static const size_t sizes[] = {0, 1, 3, 16, 21, 64, 1000, 4096, 4097, 50001, 262147};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        if (!fx_too_large(sizes[i]))
            check_steps(sizes[i], 0);
    }
}

/* This test is the last one, because a fault of a GPU affects all later calls. */
static void test_unaligned(void **state)
{
    for (size_t skip = 1; skip <= 3; skip++)
        check_steps(1001, skip);
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv, TESTS(TEST(test_steps), TEST(test_unaligned)), FX_FP32 | FX_BF16);
}
