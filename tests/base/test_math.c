/* test_math.c - own exp and log against libm in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/math.h"

/* Distance in units of the last place of the true result. */
static double ulps(float got, double want)
{
    float near = fabsf((float)want);
    double unit = (double)nextafterf(near, INFINITY) - (double)near;
    return fabs((double)got - want) / unit;
}

/* Every float is a bit pattern; an odd stride visits all exponents and many
 * mantissas. */
enum { STRIDE = 1009 };

static void test_exp(void **state)
{
    (void)state;
    double worst = 0;
    for (uint32_t bits = 0; bits < 0x42d00000u; bits += STRIDE) { /* up to 104 */
        float x = lk__bits_to_float(bits);
        if (x < 88.72f)
            worst = fmax(worst, ulps(lk__expf(x), exp((double)x)));
        if (x < 103.9f)
            worst = fmax(worst, ulps(lk__expf(-x), exp(-(double)x)));
    }
    assert_true(worst <= 2.0);
}

static void test_exp_limits(void **state)
{
    (void)state;
    assert_true(lk__expf(0.0f) == 1.0f);
    assert_true(lk__expf(-0.0f) == 1.0f);
    assert_true(lk__expf(-104.1f) == 0.0f);
    assert_true(lk__expf(-INFINITY) == 0.0f);
    assert_true(isinf(lk__expf(88.74f)));
    assert_true(isinf(lk__expf(INFINITY)));
    assert_true(isnan(lk__expf(NAN)));
}

static void test_log(void **state)
{
    (void)state;
    double worst = 0;
    for (uint32_t bits = 1; bits < 0x7f800000u; bits += STRIDE) {
        float x = lk__bits_to_float(bits);
        worst = fmax(worst, ulps(lk__logf(x), log((double)x)));
    }
    /* Around 1, where the result is small. */
    for (float x = 0.999f; x < 1.001f; x = nextafterf(x, 2.0f))
        worst = fmax(worst, x == 1.0f ? 0.0 : ulps(lk__logf(x), log((double)x)));
    assert_true(worst <= 2.0);
}

static void test_log_limits(void **state)
{
    (void)state;
    assert_true(lk__logf(1.0f) == 0.0f);
    assert_true(lk__logf(0.0f) == -INFINITY);
    assert_true(lk__logf(INFINITY) == INFINITY);
    assert_true(isnan(lk__logf(-1.0f)));
    assert_true(isnan(lk__logf(NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_exp_limits),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_log_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
