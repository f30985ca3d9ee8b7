/* test_unary.c - sigmoid, tanh, SiLU and both forms of GELU against double, on the CPU and on GPUs. */
#include <float.h>

#include "tensor/kernel_test.h"

/* Padded and unpadded channels, tails of vectors, none, several chunks of threads. */
static const lk_shape shapes[] = {
    {1, 1, 1, 1}, {1, 3, 1, 1}, {2, 21, 5, 3}, {3, 16, 4, 6}, {2, 4, 3, 3}, {0, 21, 4, 4}, {7, 31, 1, 1}, {3, 26, 9, 8},
};

static const double pi = 3.14159265358979323846;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double phi(double x)
{
    return erfc(-x / sqrt(2)) / 2;
}

static double silu(double x)
{
    return x * sigmoid(x);
}

static double gelu(double x)
{
    return x * phi(x);
}

/* (1 + tanh(u)) / 2 is sigmoid(2u). */
static double gelu_tanh(double x)
{
    return x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x * x * x));
}

static double sigmoid_slope(double y)
{
    return y * (1 - y);
}

static double tanh_slope(double y)
{
    return 1 - y * y;
}

static double silu_slope(double x)
{
    return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
}

static double gelu_slope(double x)
{
    return phi(x) + x * exp(-x * x / 2) / sqrt(2 * pi);
}

static double gelu_tanh_slope(double x)
{
    double factor = 2 * sqrt(2 / pi), s = sigmoid(factor * (x + 0.044715 * x * x * x));
    return s + x * s * (1 - s) * factor * (1 + 3 * 0.044715 * x * x);
}

/* slope is a function of y for the first two, of x for the others. */
static const struct {
    const char *name;
    double (*value)(double x), (*slope)(double v);
    double unit; /* the relative error of results; gelu_tanh takes exp of a rounded number of up to 88 */
} functions[LK_UNARY_COUNT] = {
    [LK_UNARY_SIGMOID] = {"sigmoid", sigmoid, sigmoid_slope, 0x1p-20},
    [LK_UNARY_TANH] = {"tanh", tanh, tanh_slope, 0x1p-20},
    [LK_UNARY_SILU] = {"silu", silu, silu_slope, 0x1p-20},
    [LK_UNARY_GELU] = {"gelu", gelu, gelu_slope, 0x1p-20},
    [LK_UNARY_GELU_TANH] = {"gelu_tanh", gelu_tanh, gelu_tanh_slope, 0x1p-16},
};

typedef struct unary_case {
    lk_unary f;
    lk_shape shape;
    const float *v, *dy;
    bool in_place;
} unary_case;

/* Results: y = f(v), then dx with v as the value that the gradient reads. */
static void run_unary(lk_device *d, const void *arg, float *out)
{
    const unary_case *c = arg;
    lk_tensor x = fx_input(d, c->shape, c->v), v = fx_input(d, c->shape, c->v), dy = fx_input(d, c->shape, c->dy);
    lk_tensor y = c->in_place ? x : fx_tensor(d, c->shape), dx = c->in_place ? dy : fx_tensor(d, c->shape);
    d->kernels->unary_forward(d, c->f, &x, &y);
    d->kernels->unary_grad_input(d, c->f, &v, &dy, &dx);
    fx_read(d, &y, out);
    fx_read(d, &dx, out + lk__shape_count(c->shape));
}

/* A relative error, and for gradients an error of dy too, because slopes are sums. bf16 rounds the result besides. */
static void check_near(lk_unary f, const float *got, const double *want, const float *dy, size_t count)
{
    double *bound = new_doubles(count);
    for (size_t i = 0; i < count; i++)
        bound[i] = functions[f].unit * (fabs(want[i]) + (dy ? 2 * fabs((double)dy[i]) : 0)) + FLT_MIN +
                   (dev->values == LK_DTYPE_BF16 ? 0x1p-8 * fabs(want[i]) : 0);
    fx_near_each(functions[f].name, got, want, 0, bound, count);
    free(bound);
}

static void check_function(lk_unary f, lk_shape shape, const float *v, const float *dy)
{
    size_t count = lk__shape_count(shape);
    double *y = new_doubles(count), *dx = new_doubles(count);
    for (size_t i = 0; i < count; i++) {
        y[i] = functions[f].value((double)v[i]);
        dx[i] = (double)dy[i] * functions[f].slope((double)v[i]);
    }
    for (int in_place = 0; in_place < 2; in_place++) {
        unary_case c = {.f = f, .shape = shape, .v = v, .dy = dy, .in_place = in_place};
        float *got = fx_bits(functions[f].name, run_unary, &c, 2 * count);
        check_near(f, got, y, NULL, count);
        check_near(f, got + count, dx, dy, count);
        free(got);
    }
    free(y);
    free(dx);
}

/* Values from -12 to 12; for the gradients of sigmoid and tanh, which read a result, from -1 to 1. */
static void test_values(void **state)
{
    for (size_t k = 0; k < COUNT_OF(shapes); k++) {
        size_t count = lk__shape_count(shapes[k]);
        float *wide = random_values(count, 1), *narrow = random_values(count, 1), *dy = random_values(count, 2);
        for (size_t i = 0; i < count; i++)
            wide[i] = fx_round(wide[i] * 12);
        for (lk_unary f = 0; f < LK_UNARY_COUNT; f++)
            check_function(f, shapes[k], f == LK_UNARY_SIGMOID || f == LK_UNARY_TANH ? narrow : wide, dy);
        free(wide);
        free(narrow);
        free(dy);
    }
}

/* Several chunks of the CPU's threads. */
static void test_many(void **state)
{
    lk_shape shape = {1, 5003, 1, 1};
    float *v = random_values(5003, 3), *dy = random_values(5003, 4);
    for (lk_unary f = 0; f < LK_UNARY_COUNT; f++)
        check_function(f, shape, v, dy);
    free(v);
    free(dy);
}

/* Values at the ends: results are finite, except that a NaN stays NaN. */
static void test_ends(void **state)
{
    static const float ends[] = {0.0f,  -0.0f,  0x1p-149f, -0x1p-149f, 88.0f,    -88.0f,    1e4f, -1e4f,
                                 1e12f, -1e12f, 3e19f,     -3e19f,     0x1p127f, -0x1p127f, NAN,  -NAN};
    enum { N = COUNT_OF(ends) };
    float v[N], dy[N];
    for (size_t i = 0; i < N; i++) {
        v[i] = ends[i];
        dy[i] = 1.0f;
    }
    for (lk_unary f = 0; f < LK_UNARY_COUNT; f++) {
        bool from_y = f == LK_UNARY_SIGMOID || f == LK_UNARY_TANH;
        float *got = fx_bits(functions[f].name, run_unary,
                             &(unary_case){.f = f, .shape = {1, N, 1, 1}, .v = v, .dy = dy}, 2 * N);
        for (size_t i = 0; i < N; i++) {
            if (isnan(got[i]) != isnan(v[i]) || isinf(got[i]))
                fail_msg("%s(%g) is %g", functions[f].name, (double)v[i], (double)got[i]);
            if (isnan(v[i]) ? !isnan(got[N + i]) : !from_y && !isfinite(got[N + i]))
                fail_msg("the slope of %s at %g is %g", functions[f].name, (double)v[i], (double)got[N + i]);
        }
        free(got);
    }
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv, TESTS(TEST(test_values), TEST(test_many), TEST(test_ends)), FX_FP32 | FX_BF16);
}
