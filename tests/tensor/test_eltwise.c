/* test_eltwise.c - ReLU, ReLU6, addition, copies and the search for large values:
 * exact. */
#include <float.h>

#include "tensor/everywhere.h"

/* Sizes with and without tails, the last of several chunks. */
static const size_t sizes[] = {1, 3, 16, 21, 64, 1000, 40003};
enum { SIZES = sizeof sizes / sizeof *sizes };

typedef struct vectors {
    size_t count;
    const float *a, *b;
    bool relu, in_place;
} vectors;

static lk_shape flat(size_t count)
{
    return (lk_shape){.n = 1, .c = count, .h = 1, .w = 1};
}

static lk_tensor input(const float *data, size_t count)
{
    return tensor_of((float *)(uintptr_t)data, flat(count));
}

static void run_relu(lk_device *dev, const void *arg, float *out)
{
    const vectors *v = arg;
    lk_tensor x = input(v->a, v->count), y = tensor_of(out, flat(v->count));
    if (v->in_place)
        memcpy(out, v->a, v->count * sizeof *out);
    dev->kernels->relu_forward(dev, v->in_place ? &y : &x, &y);
}

static void run_relu_grad(lk_device *dev, const void *arg, float *out)
{
    const vectors *v = arg;
    lk_tensor y = input(v->a, v->count), dy = input(v->b, v->count), dx = tensor_of(out, flat(v->count));
    if (v->in_place)
        memcpy(out, v->b, v->count * sizeof *out);
    dev->kernels->relu_grad_input(dev, &y, v->in_place ? &dx : &dy, &dx);
}

static void run_relu6(lk_device *dev, const void *arg, float *out)
{
    const vectors *v = arg;
    lk_tensor x = input(v->a, v->count), y = tensor_of(out, flat(v->count));
    if (v->in_place)
        memcpy(out, v->a, v->count * sizeof *out);
    dev->kernels->relu6_forward(dev, v->in_place ? &y : &x, &y);
}

static void run_relu6_grad(lk_device *dev, const void *arg, float *out)
{
    const vectors *v = arg;
    lk_tensor y = input(v->a, v->count), dy = input(v->b, v->count), dx = tensor_of(out, flat(v->count));
    if (v->in_place)
        memcpy(out, v->b, v->count * sizeof *out);
    dev->kernels->relu6_grad_input(dev, &y, v->in_place ? &dx : &dy, &dx);
}

static void run_add(lk_device *dev, const void *arg, float *out)
{
    const vectors *v = arg;
    lk_tensor a = input(v->a, v->count), b = input(v->b, v->count), y = tensor_of(out, flat(v->count));
    if (v->in_place)
        memcpy(out, v->b, v->count * sizeof *out);
    dev->kernels->add(dev, &a, v->in_place ? &y : &b, v->relu, &y);
}

static void run_copy(lk_device *dev, const void *arg, float *out)
{
    const vectors *v = arg;
    lk_tensor x = input(v->a, v->count), y = tensor_of(out, flat(v->count));
    dev->kernels->copy(dev, &x, &y);
}

typedef float (*element_fn)(const vectors *v, size_t i);

static float relu_element(const vectors *v, size_t i)
{
    return v->a[i] > 0 ? v->a[i] : 0.0f;
}

static float relu_grad_element(const vectors *v, size_t i)
{
    return v->a[i] > 0 ? v->b[i] : 0.0f;
}

static float relu6_element(const vectors *v, size_t i)
{
    if (v->a[i] >= 6)
        return 6.0f;
    return v->a[i] > 0 ? v->a[i] : 0.0f;
}

static float relu6_grad_element(const vectors *v, size_t i)
{
    return v->a[i] > 0 && v->a[i] < 6 ? v->b[i] : 0.0f;
}

static float add_element(const vectors *v, size_t i)
{
    float sum = v->a[i] + v->b[i];
    return v->relu && !(sum > 0) ? 0.0f : sum;
}

static float copy_element(const vectors *v, size_t i)
{
    return v->a[i];
}

static void check(case_fn run, element_fn element, vectors v)
{
    float *got = run_everywhere(run, &v, v.count), *want = new_floats(v.count);
    for (size_t i = 0; i < v.count; i++)
        want[i] = element(&v, i);
    assert_same(got, want, v.count);
    free(got);
    free(want);
}

static void test_elements(void **state)
{
    (void)state;
    for (size_t k = 0; k < SIZES; k++) {
        size_t count = sizes[k];
        float *a = random_floats(count, 1), *b = random_floats(count, 2);
        a[0] = -0.0f;
        b[0] = -0.0f;
        a[count - 1] = k % 2 ? 0.0f : 0x1p-149f;
        vectors v = {.count = count, .a = a, .b = b};
        for (int i = 0; i < 4; i++) {
            v.relu = i % 2;
            v.in_place = i / 2;
            check(run_relu, relu_element, v);
            check(run_relu_grad, relu_grad_element, v);
            check(run_add, add_element, v);
        }
        check(run_copy, copy_element, v);
        free(a);
        free(b);
    }
}

/* A third of the values below 0, a third above 6; the last are at the ends of the
 * slope and their neighbours. */
static void test_relu6(void **state)
{
    (void)state;
    static const float ends[] = {6.0f, 0x1.7ffffep2f, 0x1.800002p2f, 0.0f, -0.0f, 0x1p-149f, -0x1p-149f, FLT_MAX};
    for (size_t k = 0; k < SIZES; k++) {
        size_t count = sizes[k];
        float *a = random_floats(count, 5), *b = random_floats(count, 6);
        for (size_t i = 0; i < count; i++)
            a[i] = a[i] * 9 + 3;
        for (size_t i = 0; i < count && i < sizeof ends / sizeof *ends; i++)
            a[count - 1 - i] = ends[i];
        vectors v = {.count = count, .a = a, .b = b};
        for (int i = 0; i < 2; i++) {
            v.in_place = i;
            check(run_relu6, relu6_element, v);
            check(run_relu6_grad, relu6_grad_element, v);
        }
        free(a);
        free(b);
    }
}

typedef struct fit_case {
    lk_shape shape;
    size_t to;
    const float *x;
} fit_case;

static void run_fit(lk_device *dev, const void *arg, float *out)
{
    const fit_case *f = arg;
    lk_shape s = f->shape;
    s.c = f->to;
    lk_tensor x = tensor_of((float *)(uintptr_t)f->x, f->shape), y = tensor_of(out, s);
    dev->kernels->fit_channels(dev, &x, &y);
}

static void test_fit_channels(void **state)
{
    (void)state;
    static const fit_case cases[] = {
        {.shape = {1, 1, 1, 1}, .to = 1},   {.shape = {2, 3, 5, 4}, .to = 7},     {.shape = {2, 7, 5, 4}, .to = 3},
        {.shape = {3, 16, 8, 8}, .to = 33}, {.shape = {3, 33, 8, 8}, .to = 16},   {.shape = {5, 21, 1, 1}, .to = 22},
        {.shape = {2, 4, 3, 3}, .to = 4},   {.shape = {9, 64, 16, 16}, .to = 80}, {.shape = {9, 80, 16, 16}, .to = 64},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        fit_case f = cases[k];
        size_t count = lk__shape_count(f.shape), from = f.shape.c, outputs = count / from * f.to;
        float *x = random_floats(count, 7), *want = new_floats(outputs);
        for (size_t i = 0; i < outputs; i++)
            want[i] = i % f.to < from ? x[i / f.to * from + i % f.to] : 0.0f;
        f.x = x;
        float *got = run_everywhere(run_fit, &f, outputs);
        assert_same(got, want, outputs);
        free(got);
        free(want);
        free(x);
    }
}

typedef struct flattening {
    lk_shape shape;
    const float *x;
} flattening;

static void run_flatten(lk_device *dev, const void *arg, float *out)
{
    const flattening *f = arg;
    lk_tensor x = tensor_of((float *)(uintptr_t)f->x, f->shape);
    lk_tensor y = tensor_of(out, (lk_shape){f->shape.n, lk__shape_sample(f->shape), 1, 1});
    dev->kernels->flatten_forward(dev, &x, &y);
}

/* Back from what forward gave: x again. */
static void run_flatten_back(lk_device *dev, const void *arg, float *out)
{
    const flattening *f = arg;
    size_t count = lk__shape_count(f->shape);
    float *between = new_floats(count);
    run_flatten(dev, arg, between);
    lk_tensor dy = tensor_of(between, (lk_shape){f->shape.n, lk__shape_sample(f->shape), 1, 1});
    lk_tensor dx = tensor_of(out, f->shape);
    dev->kernels->flatten_grad_input(dev, &dy, &dx);
    free(between);
}

static void test_flatten(void **state)
{
    (void)state;
    static const lk_shape shapes[] = {{1, 1, 5, 4},  {2, 3, 1, 1},   {3, 10, 5, 3},
                                      {2, 16, 4, 4}, {1, 21, 7, 19}, {7, 64, 12, 12}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        lk_shape s = shapes[k];
        size_t count = lk__shape_count(s), pixels = s.h * s.w;
        float *x = random_floats(count, 3), *want = new_floats(count);
        for (size_t i = 0; i < count; i++) {
            size_t c = i % s.c, p = i / s.c % pixels, n = i / s.c / pixels;
            want[(n * s.c + c) * pixels + p] = x[i];
        }
        flattening f = {.shape = s, .x = x};
        float *got = run_everywhere(run_flatten, &f, count);
        float *back = run_everywhere(run_flatten_back, &f, count);
        assert_same(got, want, count);
        assert_same(back, x, count);
        free(x);
        free(want);
        free(got);
        free(back);
    }
}

typedef struct search_case {
    size_t count;
    float limit;
    const float *x;
} search_case;

static void run_find(lk_device *dev, const void *arg, float *out)
{
    const search_case *c = arg;
    enum { BASE = 7 };
    lk_flag flag = {.first = LK_NOWHERE}, earlier = {.first = BASE - 1, .bad = 1};
    dev->kernels->flag_above(dev, c->count, c->limit, c->x, BASE, &flag);
    dev->kernels->flag_above(dev, c->count, c->limit, c->x, BASE, &earlier);
    assert_true(earlier.first == BASE - 1 && earlier.bad);
    *out = (float)(flag.bad ? flag.first - BASE : c->count); /* exact: below 2^24 */
}

static void assert_first(const float *x, size_t count, float limit, size_t want)
{
    search_case c = {count, limit, x};
    float *got = run_everywhere(run_find, &c, 1);
    assert_int_equal((size_t)*got, want);
    free(got);
}

static void test_flag_above(void **state)
{
    (void)state;
    enum { COUNT = 100001 };
    float *x = random_floats(COUNT, 4);
    x[5] = FLT_MAX;
    assert_first(x, COUNT, FLT_MAX, COUNT);
    assert_first(x, 0, FLT_MAX, 0);
    x[COUNT - 1] = NAN;
    assert_first(x, COUNT, FLT_MAX, COUNT - 1);
    x[70000] = -INFINITY;
    x[60000] = INFINITY;
    assert_first(x, COUNT, FLT_MAX, 60000);
    x[50000] = -0x1p100f;
    x[40000] = 0x1p99f;
    assert_first(x + 6, COUNT - 6, 0x1p100f, 60000 - 6);
    assert_first(x + 6, COUNT - 6, 0x1p99f, 50000 - 6);
    assert_first(x + 6, COUNT - 6, 0x1.fffffep98f, 40000 - 6);
    x[0] = NAN;
    assert_first(x, COUNT, FLT_MAX, 0);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elements), cmocka_unit_test(test_relu6),      cmocka_unit_test(test_fit_channels),
        cmocka_unit_test(test_flatten),  cmocka_unit_test(test_flag_above),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
