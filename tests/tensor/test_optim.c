/* test_optim.c - the optimisers' element updates: one step against double, the
 * same bits everywhere, and nothing beyond the range touched. */
#include "tensor/everywhere.h"

static const size_t sizes[] = {1, 3, 16, 21, 64, 50001};

typedef struct step_case {
    size_t count;
    lk_sgd sgd;
    lk_adam adam;
    lk_adadelta adadelta;
    const float *grad, *start; /* start: param and two states, >= 0 where a root is taken */
} step_case;

/* Results are three arrays of count, param and state; then one sentinel. */
enum { ARRAYS = 3 };

static void prepare(const step_case *s, float *out)
{
    memcpy(out, s->start, ARRAYS * s->count * sizeof *out);
    out[ARRAYS * s->count] = 7.0f;
}

static void run_sgd(lk_device *dev, const void *arg, float *out)
{
    const step_case *s = arg;
    prepare(s, out);
    dev->kernels->sgd_step(dev, &s->sgd, NULL, s->count, s->grad, out, s->sgd.momentum != 0 ? out + s->count : NULL);
}

static void run_adam(lk_device *dev, const void *arg, float *out)
{
    const step_case *s = arg;
    prepare(s, out);
    dev->kernels->adam_step(dev, &s->adam, NULL, s->count, s->grad, out, out + s->count, out + 2 * s->count);
}

static void run_adadelta(lk_device *dev, const void *arg, float *out)
{
    const step_case *s = arg;
    prepare(s, out);
    dev->kernels->adadelta_step(dev, &s->adadelta, NULL, s->count, s->grad, out, out + s->count, out + 2 * s->count);
}

/* e: param and two states of one element, updated in double. */
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

static void check(const step_case *s, case_fn run, void (*element)(const step_case *, double, double[ARRAYS]))
{
    size_t count = s->count;
    float *got = run_everywhere(run, s, ARRAYS * count + 1);
    double *want = new_doubles(ARRAYS * count);
    for (size_t i = 0; i < count; i++) {
        double e[ARRAYS];
        for (size_t k = 0; k < ARRAYS; k++)
            e[k] = (double)s->start[k * count + i];
        element(s, (double)s->grad[i], e);
        for (size_t k = 0; k < ARRAYS; k++)
            want[k * count + i] = e[k];
    }
    for (size_t k = 0; k < ARRAYS; k++)
        assert_close(got + k * count, want + k * count, count, 1e-6);
    assert_true(got[ARRAYS * count] == 7.0f);
    free(got);
    free(want);
}

static void test_steps(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t count = sizes[k];
        float *grad = random_floats(count, 1), *start = random_floats(ARRAYS * count, 2);
        for (size_t i = count; i < ARRAYS * count; i++)
            start[i] = fabsf(start[i]);
        step_case s = {.count = count, .grad = grad, .start = start};
        for (unsigned i = 0; i < 8; i++) {
            s.sgd = (lk_sgd){.lr = 0.1f,
                             .momentum = i & 1 ? 0.9f : 0.0f,
                             .dampening = i & 2 ? 0.25f : 0.0f,
                             .weight_decay = 0.01f,
                             .nesterov = i & 4,
                             .first = i == 5};
            check(&s, run_sgd, sgd_element);
        }
        s.adam = (lk_adam){0.999f, 0.1f, 0.001f, 0.01f, 0.0316f, 1e-8f, .weight_decay = 0.01f, .shrink = 1.0f};
        check(&s, run_adam, adam_element);
        s.adam.weight_decay = 0.0f;
        s.adam.shrink = 0.75f;
        check(&s, run_adam, adam_element);
        s.adadelta = (lk_adadelta){1.0f, 0.9f, 0.1f, 1e-6f, 0.01f};
        check(&s, run_adadelta, adadelta_element);
        free(grad);
        free(start);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
