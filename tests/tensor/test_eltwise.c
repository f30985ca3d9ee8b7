/* test_eltwise.c - ReLU, ReLU6, leaky ReLU, addition, multiplication, copies, fitting and joining of channels and
 * flattening, on the CPU and on GPUs. Results are exact, rounded once to the value type. */
#include <float.h>

#include "tensor/kernel_test.h"

/* Padded and unpadded channels, tails of vectors, one sample, none, several chunks of threads, and more than a row
 * of a GPU's grid. */
static const lk_shape shapes[] = {
    {1, 1, 1, 1},  {1, 3, 1, 1},     {1, 16, 1, 1},  {1, 21, 1, 1}, {1, 64, 1, 1},    {1, 1000, 1, 1},
    {1, 1, 5, 3},  {1, 40003, 1, 1}, {3, 3, 7, 5},   {2, 4, 3, 3},  {5, 21, 4, 6},    {2, 26, 8, 8},
    {7, 31, 1, 1}, {4, 64, 6, 5},    {13, 10, 1, 1}, {0, 21, 4, 4}, {33, 16, 32, 32},
};

typedef enum place { APART, OVER_A, OVER_B, PLACES } place;

typedef struct op op;

typedef struct op_case {
    const op *op;
    lk_shape shape, to;
    const float *a, *b;
    place place;
} op_case;

/* A slot with the inputs a, or a and b, and the output y of the same shape. */
struct op {
    const char *name;
    void (*call)(lk_device *d, const lk_tensor *a, const lk_tensor *b, lk_tensor *y);
    float (*element)(float a, float b);
    bool over[PLACES]; /* whether y may be there */
};

/* clang-format off */
#define CALL(name, ...) \
    static void name(lk_device *d, const lk_tensor *a, const lk_tensor *b, lk_tensor *y) { (void)b; d->kernels->__VA_ARGS__; }
CALL(call_relu, relu_forward(d, a, y))
CALL(call_relu6, relu6_forward(d, a, y))
CALL(call_relu_grad, relu_grad_input(d, a, b, y))
CALL(call_relu6_grad, relu6_grad_input(d, a, b, y))
CALL(call_leaky, leaky_relu_forward(d, a, 0.3f, y))
CALL(call_leaky_grad, leaky_relu_grad_input(d, a, b, 0.3f, y))
CALL(call_add, add(d, a, b, false, y))
CALL(call_add_relu, add(d, a, b, true, y))
CALL(call_add_masked, add_masked(d, a, b, a, y))
CALL(call_add_masked_b, add_masked(d, a, b, b, y))
CALL(call_mul, mul(d, a, b, y))
CALL(call_copy, copy(d, a, y))

static float relu(float a, float b) { (void)b; return a <= 0 ? 0.0f : a; }
static float relu6(float a, float b) { (void)b; return a >= 6 ? 6.0f : relu(a, 0); }
static float relu_grad(float a, float b) { return a <= 0 ? 0.0f : b; }
static float relu6_grad(float a, float b) { return a <= 0 || a >= 6 ? 0.0f : b; }
static float leaky_grad(float a, float b) { return a <= 0 ? 0.3f * b : b; }
static float leaky(float a, float b) { (void)b; return leaky_grad(a, a); }
static float add(float a, float b) { return a + b; }
static float add_relu(float a, float b) { return relu(a + b, 0); }
static float add_masked(float a, float b) { return relu_grad(a, a + b); }
static float add_masked_b(float a, float b) { return relu_grad(b, a + b); }
static float mul(float a, float b) { return a * b; }
static float copy(float a, float b) { (void)b; return a; }
/* clang-format on */

static const op ops[] = {
    {"relu", call_relu, relu, {true, true, false}},
    {"relu6", call_relu6, relu6, {true, true, false}},
    {"relu_grad", call_relu_grad, relu_grad, {true, false, true}},
    {"relu6_grad", call_relu6_grad, relu6_grad, {true, false, true}},
    {"leaky_relu", call_leaky, leaky, {true, true, false}},
    {"leaky_relu_grad", call_leaky_grad, leaky_grad, {true, false, true}},
    {"add", call_add, add, {true, true, true}},
    {"add with ReLU", call_add_relu, add_relu, {true, true, true}},
    {"add with a mask", call_add_masked, add_masked, {true, false, true}},
    {"add with a mask", call_add_masked_b, add_masked_b, {true, true, false}},
    {"mul", call_mul, mul, {true, true, true}},
    {"copy", call_copy, copy, {true, false, false}},
};

static void run_op(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    lk_tensor a = fx_input(d, c->shape, c->a), b = fx_input(d, c->shape, c->b), y = a;
    if (c->place != OVER_A)
        y = c->place == OVER_B ? b : fx_tensor(d, c->shape);
    c->op->call(d, &a, &b, &y);
    fx_read(d, &y, out);
}

/* One op with y at every place, in all settings or with two threads only. */
static void check_op(const op *o, lk_shape shape, const float *a, const float *b, bool brief)
{
    size_t count = lk__shape_count(shape);
    float *want = new_floats(count);
    for (size_t i = 0; i < count; i++)
        want[i] = o->element(a[i], b[i]);
    for (place at = APART; at < PLACES; at++) {
        op_case c = {.op = o, .shape = shape, .a = a, .b = b, .place = at};
        if (!o->over[at])
            continue;
        float *got = (brief ? fx_bits_brief : fx_bits)(o->name, run_op, &c, count);
        fx_same_values(o->name, got, want, count);
        free(got);
    }
    free(want);
}

static void check_ops(lk_shape shape, const float *a, const float *b)
{
    for (size_t i = 0; i < COUNT_OF(ops) && !fx_too_large(lk__shape_count(shape)); i++)
        check_op(&ops[i], shape, a, b, false);
}

static void test_elements(void **state)
{
    for (size_t k = 0; k < COUNT_OF(shapes); k++) {
        size_t count = lk__shape_count(shapes[k]);
        float *a = random_values(count, 1), *b = random_values(count, 2);
        if (count) {
            a[0] = b[0] = -0.0f;
            a[count - 1] = fx_round(k % 2 ? 0.0f : 0x1p-149f);
        }
        check_ops(shapes[k], a, b);
        free(a);
        free(b);
    }
}

/* A third of the values is below 0, on the slope of ReLU6 and above it; the last values are the ends of the slope
 * and their neighbours. Then NaNs of both signs are added. */
static void test_slopes(void **state)
{
    static const float ends[] = {6.0f, 0x1.7ffffep2f, 0x1.800002p2f, 0.0f, -0.0f, 0x1p-149f, -0x1p-149f, FLT_MAX};
    for (size_t k = 0; k < COUNT_OF(shapes); k++) {
        size_t count = lk__shape_count(shapes[k]);
        float *a = random_values(count, 5), *b = random_values(count, 6);
        for (size_t i = 0; i < count; i++)
            a[i] = fx_round(a[i] * 9 + 3);
        for (size_t i = 0; i < count && i < COUNT_OF(ends); i++)
            a[count - 1 - i] = fx_round(ends[i]);
        check_ops(shapes[k], a, b);
        for (size_t i = 3; i < count; i += 11)
            a[i] = i % 2 ? NAN : -NAN;
        check_ops(shapes[k], a, b);
        free(a);
        free(b);
    }
}

/* A NaN in every lane and tail of vectors: at every index of every length up to more than two of the widest
 * vectors. For the CPU only. */
static void test_nan_in_every_lane(void **state)
{
    enum { MOST = 37 };
    for (size_t count = 1; fx_builds && count <= MOST; count++) {
        float *a = random_values(count, 1), *b = random_values(count, 2);
        a[count / 2] = -0.0f;
        for (size_t at = 0; at < count; at++) {
            float number = a[at];
            a[at] = at % 2 ? NAN : -NAN;
            for (size_t i = 0; i < COUNT_OF(ops); i++)
                check_op(&ops[i], (lk_shape){1, count, 1, 1}, a, b, true);
            a[at] = number;
        }
        free(a);
        free(b);
    }
}

/* Converts f32 without pads, like samples, to the value type and back; then a flat array, like parameters. */
static void run_copies(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    size_t count = lk__shape_count(c->shape);
    lk_shape flat = {.n = 1, .c = count, .h = 1, .w = 1};
    lk_tensor plain = {.data = fx_floats(d, c->a, count), .dtype = LK_DTYPE_F32, .shape = c->shape};
    lk_tensor back = {.data = fx_no_floats(d, count), .dtype = LK_DTYPE_F32, .shape = c->shape, .pitch = c->shape.c};
    lk_tensor value = fx_tensor(d, c->shape), x = plain, y = {.dtype = d->values, .shape = flat};
    x.shape = flat;
    y.data = fx_blank(d, fx_bytes(&y));
    d->kernels->copy(d, &plain, &value);
    d->kernels->copy(d, &value, &back);
    d->kernels->copy(d, &x, &y);
    fx_read(d, &value, out);
    fx_get_floats(d, back.data, count, out + count);
    fx_read(d, &y, out + 2 * count);
}

static void test_copies_between_types(void **state)
{
    for (size_t k = 0; k < COUNT_OF(shapes); k++) {
        size_t count = lk__shape_count(shapes[k]);
        if (fx_too_large(count))
            continue;
        float *a = random_floats(count, 5), *want = new_floats(3 * count);
        for (size_t i = 0; i < 3 * count; i++)
            want[i] = a[i % count];
        fx_check("copy between types", run_copies, &(op_case){.shape = shapes[k], .a = a}, want, 3 * count);
        free(a);
        free(want);
    }
}

static void run_fit(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    lk_tensor x = fx_input(d, c->shape, c->a), y = fx_tensor(d, c->to);
    d->kernels->fit_channels(d, &x, &y);
    fx_read(d, &y, out);
}

static void test_fit_channels(void **state)
{
    static const struct {
        lk_shape shape;
        size_t to;
    } cases[] = {
        {{1, 1, 1, 1}, 1},   {{2, 3, 5, 4}, 7},   {{2, 7, 5, 4}, 3},     {{3, 16, 8, 8}, 33},   {{3, 33, 8, 8}, 16},
        {{5, 21, 1, 1}, 22}, {{2, 4, 3, 3}, 4},   {{9, 64, 16, 16}, 80}, {{9, 80, 16, 16}, 64}, {{3, 3, 5, 4}, 16},
        {{3, 16, 5, 4}, 26}, {{3, 26, 5, 4}, 31}, {{3, 31, 5, 4}, 21},   {{3, 64, 5, 4}, 1},    {{3, 1, 5, 4}, 64},
        {{3, 10, 5, 4}, 10}, {{3, 21, 5, 4}, 22},
    };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        size_t count = lk__shape_count(cases[k].shape), from = cases[k].shape.c, to = cases[k].to;
        float *x = random_values(count, 7), *want = new_floats(count / from * to);
        op_case c = {.shape = cases[k].shape, .to = cases[k].shape, .a = x};
        c.to.c = to;
        for (size_t i = 0; i < count / from * to; i++)
            want[i] = i % to < from ? x[i / to * from + i % to] : 0.0f;
        fx_check("fit_channels", run_fit, &c, want, count / from * to);
        free(want);
        free(x);
    }
}

/* Joins a and b; then takes both apart again. */
static void run_concat(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    lk_shape sum = c->shape;
    sum.c += c->to.c;
    lk_tensor a = fx_input(d, c->shape, c->a), b = fx_input(d, c->to, c->b), y = fx_tensor(d, sum);
    lk_tensor da = fx_tensor(d, c->shape), db = fx_tensor(d, c->to);
    d->kernels->concat_forward(d, &a, &b, &y);
    d->kernels->concat_grad_input(d, &y, 0, &da);
    d->kernels->concat_grad_input(d, &y, c->shape.c, &db);
    fx_read(d, &y, out);
    fx_read(d, &da, out + lk__shape_count(sum));
    fx_read(d, &db, out + lk__shape_count(sum) + lk__shape_count(c->shape));
}

static void test_concat(void **state)
{
    static const struct {
        lk_shape shape;
        size_t other;
    } cases[] = {
        {{1, 1, 1, 1}, 1}, {{2, 3, 5, 4}, 7},    {{3, 16, 8, 8}, 33}, {{3, 33, 8, 8}, 16}, {{5, 21, 1, 1}, 1},
        {{2, 4, 3, 3}, 4}, {{9, 64, 16, 16}, 8}, {{3, 3, 5, 4}, 2},   {{0, 8, 5, 4}, 8},   {{3, 1, 5, 4}, 64},
    };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        lk_shape s = cases[k].shape, other = s;
        other.c = cases[k].other;
        size_t as = lk__shape_count(s), bs = lk__shape_count(other), sum = s.c + other.c;
        float *a = random_values(as, 8), *b = random_values(bs, 9), *want = new_floats(2 * (as + bs));
        for (size_t i = 0; i < as + bs; i++) {
            size_t pixel = i / sum, channel = i % sum;
            want[i] = channel < s.c ? a[pixel * s.c + channel] : b[pixel * other.c + channel - s.c];
        }
        memcpy(want + as + bs, a, as * sizeof *a);
        memcpy(want + as + bs + as, b, bs * sizeof *b);
        fx_check("concat", run_concat, &(op_case){.shape = s, .to = other, .a = a, .b = b}, want, 2 * (as + bs));
        free(want);
        free(a);
        free(b);
    }
}

/* Forward of a, then the gradient of b. */
static void run_flatten(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    lk_shape s = c->shape, flat = {.n = s.n, .c = lk__shape_sample(s), .h = 1, .w = 1};
    lk_tensor x = fx_input(d, s, c->a), y = fx_tensor(d, flat), dy = fx_input(d, flat, c->b), dx = fx_tensor(d, s);
    d->kernels->flatten_forward(d, &x, &y);
    d->kernels->flatten_grad_input(d, &dy, &dx);
    fx_read(d, &y, out);
    fx_read(d, &dx, out + lk__shape_count(s));
}

static void check_flatten(lk_shape s)
{
    size_t count = lk__shape_count(s), pixels = s.h * s.w;
    if (fx_too_large(count))
        return;
    float *x = random_values(count, 3), *dy = random_values(count, 4), *want = new_floats(2 * count);
    for (size_t i = 0; i < count; i++) {
        size_t feature = (i / s.c / pixels * s.c + i % s.c) * pixels + i / s.c % pixels;
        want[feature] = x[i];
        want[count + i] = dy[feature];
    }
    fx_check("flatten", run_flatten, &(op_case){.shape = s, .a = x, .b = dy}, want, 2 * count);
    free(x);
    free(dy);
    free(want);
}

static void test_flatten(void **state)
{
    static const lk_shape more[] = {{1, 1, 5, 4},  {2, 3, 1, 1},   {3, 10, 5, 3},
                                    {2, 16, 4, 4}, {1, 21, 7, 19}, {7, 64, 12, 12}};
    for (size_t k = 0; k < COUNT_OF(shapes); k++)
        check_flatten(shapes[k]);
    for (size_t k = 0; k < COUNT_OF(more); k++)
        check_flatten(more[k]);
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv,
                          TESTS(TEST(test_elements), TEST(test_slopes), TEST(test_nan_in_every_lane),
                                TEST(test_copies_between_types), TEST(test_fit_channels), TEST(test_concat),
                                TEST(test_flatten)),
                          FX_FP32 | FX_BF16);
}
