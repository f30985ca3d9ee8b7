/* test_math64.c - the library's exp, log and cos(pi x) in double against libm in long double. */
#include <float.h>
#include <math.h>

#include "base/math64.h"
#include "check.h"

/* Where long double is double, the results of libm have errors, too. */
static const double limit = LDBL_MANT_DIG > DBL_MANT_DIG ? 1.25 : 2.25;

/* Error in units in the last place of the true result. */
static double ulps(double got, long double want)
{
    double near = fabs((double)want);
    double unit = nextafter(near, INFINITY) - near;
    return (double)(fabsl((long double)got - want) / (long double)unit);
}

static void test_exp(void **state)
{
    double worst = 0;
    for (double x = -744.9; x < 709.7; x += 0.0037)
        worst = fmax(worst, ulps(lk__math_exp64(x), expl((long double)x)));
    for (double x = 1e-300; x < 1; x *= 1.7) {
        worst = fmax(worst, ulps(lk__math_exp64(x), expl((long double)x)));
        worst = fmax(worst, ulps(lk__math_exp64(-x), expl(-(long double)x)));
    }
    if (!(worst <= limit))
        fail_msg("exp is %.3f units off", worst);
}

static void test_exp_limits(void **state)
{
    assert_true(lk__math_exp64(0.0) == 1.0);
    assert_true(lk__math_exp64(-0.0) == 1.0);
    assert_true(lk__math_exp64(-745.2) == 0.0);
    assert_true(lk__math_exp64(-1e300) == 0.0);
    assert_true(lk__math_exp64(-INFINITY) == 0.0);
    assert_true(lk__math_exp64(-745.1) == 0x1p-1074);
    assert_true(lk__math_exp64(709.7) < INFINITY);
    assert_true(isinf(lk__math_exp64(709.79)));
    assert_true(isinf(lk__math_exp64(1e300)));
    assert_true(isinf(lk__math_exp64(INFINITY)));
    assert_true(isnan(lk__math_exp64(NAN)));
}

static void test_log(void **state)
{
    double worst = 0;
    for (double exponent = -1074; exponent < 1024; exponent += 0.0137) {
        double x = exp2(exponent);
        worst = fmax(worst, ulps(lk__math_log64(x), logl((long double)x)));
    }
    /* Near 1, where the result is small, and over two octaves. */
    for (double away = 0x1p-53; away < 0.3; away *= 1.003) {
        double more = 1 + 2 * away, less = 1 - away;
        worst = fmax(worst, ulps(lk__math_log64(more), logl((long double)more)));
        worst = fmax(worst, ulps(lk__math_log64(less), logl((long double)less)));
    }
    for (double x = 0.5; x < 2; x += 0.0000137)
        worst = fmax(worst, ulps(lk__math_log64(x), logl((long double)x)));
    if (!(worst <= limit))
        fail_msg("log is %.3f units off", worst);
}

static void test_log_limits(void **state)
{
    assert_true(lk__math_log64(1.0) == 0.0);
    assert_true(lk__math_log64(0.0) == -INFINITY);
    assert_true(lk__math_log64(-0.0) == -INFINITY);
    assert_true(lk__math_log64(INFINITY) == INFINITY);
    assert_true(isnan(lk__math_log64(-0x1p-1074)));
    assert_true(isnan(lk__math_log64(-INFINITY)));
    assert_true(isnan(lk__math_log64(NAN)));
}

/* Reduces the argument before the multiplication by pi, so that libm gets a small one. */
static long double cospi(double x)
{
    const long double pi = 3.14159265358979323846264338327950288L;
    long double rest = fabsl(fmodl((long double)x, 2));
    if (rest > 1)
        rest = 2 - rest;
    if (rest <= 0.25L)
        return cosl(pi * rest);
    return rest < 0.75L ? sinl(pi * (0.5L - rest)) : -cosl(pi * (1 - rest));
}

static void test_cospi(void **state)
{
    double worst = 0;
    for (double x = -3; x < 3; x += 0.0000137)
        worst = fmax(worst, ulps(lk__math_cospi64(x), cospi(x)));
    for (double x = 1; x > 1e-12; x *= 0.7) {
        worst = fmax(worst, ulps(lk__math_cospi64(0.5 - x), cospi(0.5 - x)));
        worst = fmax(worst, ulps(lk__math_cospi64(1e6 + x), cospi(1e6 + x)));
    }
    if (!(worst <= limit))
        fail_msg("cos(pi x) is %.3f units off", worst);
}

static void test_cospi_exact(void **state)
{
    for (int i = -9; i < 9; i++) {
        assert_true(lk__math_cospi64(i) == (i & 1 ? -1.0 : 1.0));
        assert_true(lk__math_cospi64(i + 0.5) == 0.0);
    }
    assert_true(lk__math_cospi64(0x1p+49 + 1) == -1.0);
}

/* Sums of many values have the same bits with every compiler and on every machine. */
static void test_bits(void **state)
{
    double sum = 0;
    for (int i = 0; i < 4096; i++)
        sum += lk__math_exp64(-i * 0x1p-7) * lk__math_cospi64(i * 0x1p-12);
    assert_true(sum == 0x1.fd1d6acdc4fep+6);
    sum = 0;
    for (int i = 1; i < 4096; i++)
        sum += lk__math_log64(i * 0x1p-7);
    assert_true(sum == 0x1.3baa21836909p+13);
}

TEST_MAIN(NULL, NULL, TEST(test_exp), TEST(test_exp_limits), TEST(test_cospi), TEST(test_cospi_exact), TEST(test_bits),
          TEST(test_log), TEST(test_log_limits))
