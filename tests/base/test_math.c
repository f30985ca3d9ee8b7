/* test_math.c - the library's exp, log, sigmoid, tanh, normal distribution function and normal numbers against libm
 * in double. */
#include <math.h>

#include "base/math.h"
#include "base/rng.h"
#include "check.h"

static const double pi = 3.14159265358979323846;

/* Error in units in the last place of the true result. */
static double ulps(float got, double want)
{
    float near = fabsf((float)want);
    double unit = (double)nextafterf(near, INFINITY) - (double)near;
    return fabs((double)got - want) / unit;
}

/* A stride over bit patterns: an odd one visits all exponents and many mantissas. */
enum { STRIDE = 1009 };

static void test_exp(void **state)
{
    double worst = 0;
    for (uint32_t bits = 0; bits < 0x42d00000u; bits += STRIDE) { /* up to 104 */
        float x = lk__math_bits_to_float(bits);
        if (x < 88.72f)
            worst = fmax(worst, ulps(lk__math_expf(x), exp((double)x)));
        if (x < 103.9f)
            worst = fmax(worst, ulps(lk__math_expf(-x), exp(-(double)x)));
    }
    assert_true(worst <= 2.0);
}

static void test_exp_limits(void **state)
{
    assert_true(lk__math_expf(0.0f) == 1.0f);
    assert_true(lk__math_expf(-0.0f) == 1.0f);
    assert_true(lk__math_expf(-104.1f) == 0.0f);
    assert_true(lk__math_expf(-INFINITY) == 0.0f);
    assert_true(isinf(lk__math_expf(88.74f)));
    assert_true(isinf(lk__math_expf(INFINITY)));
    assert_true(isnan(lk__math_expf(NAN)));
}

static void test_log(void **state)
{
    double worst = 0;
    for (uint32_t bits = 1; bits < 0x7f800000u; bits += STRIDE) {
        float x = lk__math_bits_to_float(bits);
        worst = fmax(worst, ulps(lk__math_logf(x), log((double)x)));
    }
    /* Near 1, where the result is small. */
    for (float x = 0.999f; x < 1.001f; x = nextafterf(x, 2.0f))
        worst = fmax(worst, x == 1.0f ? 0.0 : ulps(lk__math_logf(x), log((double)x)));
    assert_true(worst <= 2.0);
}

static void test_log_limits(void **state)
{
    assert_true(lk__math_logf(1.0f) == 0.0f);
    assert_true(lk__math_logf(0.0f) == -INFINITY);
    assert_true(lk__math_logf(INFINITY) == INFINITY);
    assert_true(isnan(lk__math_logf(-1.0f)));
    assert_true(isnan(lk__math_logf(NAN)));
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* libm's erfc keeps its precision where the result is small. */
static double phi(double x)
{
    return erfc(-x / sqrt(2)) / 2;
}

/* The largest error over both signs of all sizes up to `limit`, subnormal results excepted. */
static double worst_error(float (*ours)(float), double (*truth)(double), float limit)
{
    double worst = 0;
    for (uint32_t bits = 0; bits < lk__math_float_to_bits(limit); bits += STRIDE) {
        float x = lk__math_bits_to_float(bits);
        for (int sign = -1; sign <= 1; sign += 2) {
            double want = truth(sign * (double)x);
            if (fabs(want) >= 0x1p-126)
                worst = fmax(worst, ulps(ours((float)sign * x), want));
        }
    }
    return worst;
}

static void test_curves(void **state)
{
    assert_true(worst_error(lk__math_sigmoidf, sigmoid, 200) <= 3.0);
    assert_true(worst_error(lk__math_tanhf, tanh, 200) <= 3.0);
    assert_true(worst_error(lk__math_phif, phi, 200) <= 5.0);
}

static void test_curve_limits(void **state)
{
    assert_true(lk__math_sigmoidf(0.0f) == 0.5f && lk__math_phif(0.0f) == 0.5f);
    assert_true(lk__math_sigmoidf(INFINITY) == 1.0f && lk__math_sigmoidf(-INFINITY) == 0.0f);
    assert_true(lk__math_tanhf(INFINITY) == 1.0f && lk__math_tanhf(-INFINITY) == -1.0f);
    assert_true(lk__math_phif(INFINITY) == 1.0f && lk__math_phif(-INFINITY) == 0.0f);
    assert_true(lk__math_tanhf(0.0f) == 0.0f && lk__math_tanhf(-0x1p-149f) == -0x1p-149f);
    assert_true(isnan(lk__math_sigmoidf(NAN)) && isnan(lk__math_tanhf(NAN)) && isnan(lk__math_phif(NAN)));
}

/* Radii and angles of all sizes. */
static void test_normal_values(void **state)
{
    double worst = 0;
    for (uint32_t i = 0; i < 1u << 20; i++) {
        uint32_t word0 = i * 2654435761u >> i % 24, word1 = i << 12;
        double radius = sqrt(-2 * log((double)((word0 >> 8) + 1) * 0x1p-24));
        double turn = 2 * pi * (double)(word1 >> 8) * 0x1p-24;
        float pair[2];
        lk__math_normal_pair(word0, word1, pair);
        worst = fmax(worst, fabs((double)pair[0] - radius * cos(turn)));
        worst = fmax(worst, fabs((double)pair[1] - radius * sin(turn)));
    }
    assert_true(worst < 1e-6);
}

/* Moments of n normal numbers, and the mean product of pairs, lie within five standard errors. */
static void test_normal(void **state)
{
    enum { PAIRS = 1 << 17, N = 2 * PAIRS };
    lk_rng rng = lk__rng(7, LK_RNG_PURPOSE_INIT, 0, 0, 0);
    double sum = 0, square = 0, fourth = 0, product = 0;
    for (uint64_t i = 0; i < PAIRS; i++) {
        float pair[2];
        lk__math_normal_pair(lk__rng_u32(&rng, 2 * i), lk__rng_u32(&rng, 2 * i + 1), pair);
        for (int k = 0; k < 2; k++) {
            double z = (double)pair[k];
            assert_true(fabs(z) < 5.8);
            sum += z;
            square += z * z;
            fourth += z * z * z * z;
        }
        product += (double)pair[0] * (double)pair[1];
    }
    assert_true(fabs(sum / N) < 5 * sqrt(1.0 / N));
    assert_true(fabs(square / N - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(fourth / N - 3) < 5 * sqrt(96.0 / N));
    assert_true(fabs(product / PAIRS) < 5 * sqrt(1.0 / PAIRS));
}

/* The largest and the smallest radius, and the direction of a quarter turn. */
static void test_normal_limits(void **state)
{
    float pair[2];
    double want = sqrt(2 * 24 * log(2));
    lk__math_normal_pair(0xffffffffu, 0, pair);
    assert_true(pair[0] == 0.0f && pair[1] == 0.0f);
    lk__math_normal_pair(0, 0, pair);
    assert_true(ulps(pair[0], want) <= 4 && pair[1] == 0.0f);
    lk__math_normal_pair(0, 0x40000000u, pair);
    assert_true(pair[0] == 0.0f && ulps(pair[1], want) <= 4);
    lk__math_normal_pair(0, 0xc0000000u, pair);
    assert_true(pair[0] == 0.0f && ulps(-pair[1], want) <= 4);
}

TEST_MAIN(NULL, NULL, TEST(test_exp), TEST(test_exp_limits), TEST(test_log), TEST(test_log_limits), TEST(test_curves),
          TEST(test_curve_limits), TEST(test_normal_values), TEST(test_normal), TEST(test_normal_limits))
