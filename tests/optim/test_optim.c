/* test_optim.c - optimisers over 20 steps against PyTorch's documented rules in double, updates in ranges
 * against updates at once, optimisers that continue from another's state, and refused specs. */
#include <math.h>

#include "base/rng.h"
#include "check.h"
#include "optim/optim.h"

enum { COUNT = 1003, STEPS = 20 };

static lk_device *dev;

static int open_cpu(void **state)
{
    lk_device_opts opts = {.threads = 2};
    return lk__device_open("cpu", &opts, &dev) == LK_OK ? 0 : -1;
}

static int close_cpu(void **state)
{
    lk__device_close(dev);
    return 0;
}

/* Fills parameters (step 0) or gradients (steps from 1). */
static void fill(float *x, uint32_t step)
{
    lk_rng rng = lk__rng(9, LK_RNG_PURPOSE_INIT, 0, step, 0);
    for (size_t i = 0; i < COUNT; i++)
        x[i] = 2.0f * lk__rng_unit(lk__rng_u32(&rng, i)) - 1.0f;
}

/* One element in double: the parameter and its states. */
typedef struct element {
    double p, a, b, c;
} element;

typedef struct settings {
    double lr, momentum, dampening, weight_decay, beta1, beta2, rho, alpha, eps;
    bool nesterov, centered;
} settings;

typedef void (*rule_fn)(element *e, double g, const settings *s, int step);

static void sgd_rule(element *e, double g, const settings *s, int step)
{
    double d = g + s->weight_decay * e->p;
    if (s->momentum != 0) {
        e->a = step == 1 ? d : s->momentum * e->a + (1 - s->dampening) * d;
        d = s->nesterov ? d + s->momentum * e->a : e->a;
    }
    e->p -= s->lr * d;
}

static void adam_rule(element *e, double g, const settings *s, int step)
{
    g += s->weight_decay * e->p;
    e->a = s->beta1 * e->a + (1 - s->beta1) * g;
    e->b = s->beta2 * e->b + (1 - s->beta2) * g * g;
    double mean = e->a / (1 - pow(s->beta1, step)), square = e->b / (1 - pow(s->beta2, step));
    e->p -= s->lr * mean / (sqrt(square) + s->eps);
}

static void adamw_rule(element *e, double g, const settings *s, int step)
{
    settings rest = *s;
    rest.weight_decay = 0;
    e->p *= 1 - s->lr * s->weight_decay;
    adam_rule(e, g, &rest, step);
}

static void adadelta_rule(element *e, double g, const settings *s, int step)
{
    g += s->weight_decay * e->p;
    e->a = s->rho * e->a + (1 - s->rho) * g * g;
    double change = sqrt(e->b + s->eps) / sqrt(e->a + s->eps) * g;
    e->b = s->rho * e->b + (1 - s->rho) * change * change;
    e->p -= s->lr * change;
}

static void rmsprop_rule(element *e, double g, const settings *s, int step)
{
    g += s->weight_decay * e->p;
    e->a = s->alpha * e->a + (1 - s->alpha) * g * g;
    e->b = s->alpha * e->b + (1 - s->alpha) * g;
    double change = g / (sqrt(e->a - (s->centered ? e->b * e->b : 0)) + s->eps);
    e->c = s->momentum * e->c + change;
    e->p -= s->lr * e->c;
}

typedef struct optim_case {
    const char *spec;
    double lr; /* as given: 0 for the default */
    rule_fn rule;
    settings settings;
} optim_case;

static const optim_case cases[] = {
    {"sgd", 0, sgd_rule, {.lr = 0.01}},
    {"sgd:momentum=.9", 0.1, sgd_rule, {.lr = 0.1, .momentum = 0.9}},
    {"sgd:momentum=.9,weight_decay=5e-4,nesterov",
     0.1,
     sgd_rule,
     {.lr = 0.1, .momentum = 0.9, .weight_decay = 5e-4, .nesterov = true}},
    {"sgd:momentum=.8,dampening=.5,weight_decay=.01",
     0.05,
     sgd_rule,
     {.lr = 0.05, .momentum = 0.8, .dampening = 0.5, .weight_decay = 0.01}},
    {"adam", 0, adam_rule, {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
    {"adam:beta1=.8,beta2=.99,eps=1e-4,weight_decay=.1",
     0.02,
     adam_rule,
     {.lr = 0.02, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-4, .weight_decay = 0.1}},
    {"adamw", 0, adamw_rule, {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01}},
    {"adamw:beta1=.8,beta2=.99,eps=1e-4,weight_decay=5",
     0.02,
     adamw_rule,
     {.lr = 0.02, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-4, .weight_decay = 5}},
    {"adadelta", 0, adadelta_rule, {.lr = 1.0, .rho = 0.9, .eps = 1e-6}},
    {"adadelta:rho=.95,eps=1e-5,weight_decay=.01",
     0.5,
     adadelta_rule,
     {.lr = 0.5, .rho = 0.95, .eps = 1e-5, .weight_decay = 0.01}},
    {"rmsprop", 0, rmsprop_rule, {.lr = 0.01, .alpha = 0.99, .eps = 1e-8}},
    {"rmsprop:momentum=.9,weight_decay=.01",
     0.02,
     rmsprop_rule,
     {.lr = 0.02, .alpha = 0.99, .eps = 1e-8, .momentum = 0.9, .weight_decay = 0.01}},
    {"rmsprop:centered,alpha=.9,eps=1e-3",
     0.02,
     rmsprop_rule,
     {.lr = 0.02, .alpha = 0.9, .eps = 1e-3, .centered = true}},
    {"rmsprop:centered,momentum=.8,eps=1e-3",
     0.02,
     rmsprop_rule,
     {.lr = 0.02, .alpha = 0.99, .eps = 1e-3, .momentum = 0.8, .centered = true}},
};

static lk_optim *create(const optim_case *c, double lr)
{
    lk_optim *optim;
    assert_int_equal(lk__optim_create(c->spec, lr, dev, COUNT, &optim), LK_OK);
    return optim;
}

/* Steps [first,last], each in ranges that end at the given cuts. */
static void take_steps(lk_optim *optim, uint32_t first, uint32_t last, const size_t *cuts, size_t count, float *params)
{
    float grads[COUNT];
    for (uint32_t step = first; step <= last; step++) {
        fill(grads, step);
        lk__optim_count(optim);
        assert_int_equal(lk__optim_begin(optim), LK_OK);
        assert_int_equal(lk__optim_steps(optim), step);
        /* The last range is first: the order must not matter. */
        for (size_t i = count; i-- > 0;)
            lk__optim_range(optim, &(lk_optim_range){
                                       .grads = grads, .params = params, .begin = i ? cuts[i - 1] : 0, .end = cuts[i]});
    }
}

static void train(const optim_case *c, const size_t *cuts, size_t count, float *params)
{
    lk_optim *optim = create(c, c->lr);
    assert_true(lk__optim_lr(optim) == c->settings.lr);
    fill(params, 0);
    take_steps(optim, 1, STEPS, cuts, count, params);
    lk__optim_destroy(optim);
}

static void test_rules(void **state)
{
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        float params[COUNT], grads[COUNT];
        element e[COUNT] = {{0}};
        train(&cases[k], (const size_t[]){COUNT}, 1, params);
        fill(grads, 0);
        for (size_t i = 0; i < COUNT; i++)
            e[i].p = (double)grads[i];
        for (uint32_t step = 1; step <= STEPS; step++) {
            fill(grads, step);
            for (size_t i = 0; i < COUNT; i++)
                cases[k].rule(&e[i], (double)grads[i], &cases[k].settings, (int)step);
        }
        double largest = 0;
        for (size_t i = 0; i < COUNT; i++)
            largest = fmax(largest, fabs(e[i].p));
        for (size_t i = 0; i < COUNT; i++)
            assert_true(fabs((double)params[i] - e[i].p) <= 1e-5 * largest);
    }
}

static void test_ranges(void **state)
{
    const size_t cuts[] = {1, 17, 64, 500, 501, COUNT};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        float whole[COUNT], parts[COUNT];
        train(&cases[k], (const size_t[]){COUNT}, 1, whole);
        train(&cases[k], cuts, sizeof cuts / sizeof *cuts, parts);
        assert_memory_equal(whole, parts, sizeof whole);
    }
}

/* A second optimiser continues from the arrays and numbers of the first. */
static void test_taken_over(void **state)
{
    const size_t cuts[] = {COUNT};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        float whole[COUNT], parts[COUNT];
        lk_optim *first = create(&cases[k], cases[k].lr), *second = create(&cases[k], 0.125);
        train(&cases[k], cuts, 1, whole);
        fill(parts, 0);
        take_steps(first, 1, 3, cuts, 1, parts);
        lk_optim_numbers numbers = lk__optim_numbers(first);
        lk__optim_set_numbers(second, &numbers);
        for (size_t i = 0; i < lk__optim_states(first); i++)
            memcpy(lk__optim_state(second, i), lk__optim_state(first, i), sizeof whole);
        take_steps(second, 4, STEPS, cuts, 1, parts);
        assert_memory_equal(whole, parts, sizeof whole);
        lk__optim_destroy(first);
        lk__optim_destroy(second);
    }
}

/* Without weight decay adam and adamw give the same bits. */
static void test_adamw_without_decay(void **state)
{
    float one[COUNT], other[COUNT];
    const optim_case adam = {"adam", 0.02, NULL, {.lr = 0.02}},
                     adamw = {"adamw:weight_decay=0", 0.02, NULL, {.lr = 0.02}};
    train(&adam, (const size_t[]){COUNT}, 1, one);
    train(&adamw, (const size_t[]){COUNT}, 1, other);
    assert_memory_equal(one, other, sizeof one);
}

/* State arrays have PyTorch's names, whichever of them the parameters need. */
static void test_state_names(void **state)
{
    static const struct {
        const char *spec, *names[4];
    } wanted[] = {{"rmsprop", {"square_avg"}},
                  {"rmsprop:momentum=.9", {"square_avg", "momentum_buffer"}},
                  {"rmsprop:centered", {"square_avg", "grad_avg"}},
                  {"rmsprop:centered,momentum=.9", {"square_avg", "momentum_buffer", "grad_avg"}}};
    for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++) {
        lk_optim *optim;
        size_t count = 0;
        assert_int_equal(lk__optim_create(wanted[k].spec, 0, dev, 1, &optim), LK_OK);
        for (; wanted[k].names[count]; count++)
            assert_string_equal(lk__optim_state_name(optim, count), wanted[k].names[count]);
        assert_int_equal(lk__optim_states(optim), count);
        lk__optim_destroy(optim);
    }
}

static void test_set_lr(void **state)
{
    lk_optim *optim;
    assert_int_equal(lk__optim_create("sgd", 0.5, dev, 1, &optim), LK_OK);
    float param = 1, grad = 1;
    assert_int_equal(lk__optim_set_lr(optim, 0.25), LK_OK);
    lk__optim_count(optim);
    assert_int_equal(lk__optim_begin(optim), LK_OK);
    lk_flag flag = {.bad = 1};
    lk_optim_range range = {.grads = &grad, .params = &param, .end = 1, .flag = &flag};
    lk__optim_range(optim, &range);
    assert_true(param == 1);
    flag.bad = 0;
    lk__optim_range(optim, &range);
    assert_true(param == 0.75f);
    lk__optim_destroy(optim);
    lk__optim_destroy(NULL);
}

static void assert_refused(const char *spec, double lr, const char *hint)
{
    lk_optim *optim = NULL;
    assert_int_equal(lk__optim_create(spec, lr, dev, 1, &optim), LK_STATUS_USAGE);
    assert_null(optim);
    assert_detail(hint);
}

static void test_refusals(void **state)
{
    assert_refused("sdg", 0, "sgd");
    assert_refused("rmsprop-x", 0, "rmsprop-x");
    assert_refused("rmsprop:alpha=2", 0, "alpha");
    assert_refused("rmsprop:centred", 0, "did you mean 'centered'");
    assert_refused("sgd:momentun=1", 0, "momentum");
    assert_refused("sgd:momentum=2", 0, "momentum");
    assert_refused("sgd:nesterov", 0, "momentum");
    assert_refused("sgd:nesterov,momentum=.9,dampening=.1", 0, "dampening");
    assert_refused("adam:beta1=1", 0, "beta1");
    assert_refused("adamv", 0, "did you mean 'adam'");
    assert_refused("adamw:decay=1", 0, "weight_decay");
    assert_refused("adamw:weight_decay=-1", 0, "weight_decay");
    assert_refused("adam", -1, "`lr`");
    assert_refused("adam", NAN, "`lr`");
}

static void test_list(void **state)
{
    size_t count = 0;
    const lk_optim_info *info;
    for (; (info = lk_optimizer_list(count)); count++) {
        lk_optim *optim;
        assert_true(strlen(info->summary) > 0);
        assert_int_equal(lk__optim_create(info->name, 0, dev, 1, &optim), LK_OK);
        assert_string_equal(lk__optim_name(optim), info->name);
        lk__optim_destroy(optim);
    }
    assert_int_equal(count, 5);
}

TEST_MAIN(open_cpu, close_cpu, TEST(test_rules), TEST(test_ranges), TEST(test_taken_over),
          TEST(test_adamw_without_decay), TEST(test_state_names), TEST(test_set_lr), TEST(test_refusals),
          TEST(test_list))
