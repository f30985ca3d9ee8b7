/* test_reduce.c - merging vectors of every type: against plain references, with
 * the same bits from every build, at every length and in place. */
#include "everywhere.h"

static const lk_dtype dtypes[] = {LK_DTYPE_F32, LK_DTYPE_F64, LK_DTYPE_BF16, LK_DTYPE_I64, LK_DTYPE_I32, LK_DTYPE_U8};
enum { DTYPES = sizeof dtypes / sizeof *dtypes, COUNT = 1031, MAX_BYTES = COUNT * 8 };

static const double specials[] = {0.0,   -0.0,  1.0, -1.0,  INFINITY, -INFINITY, 3e38,
                                  -3e38, 1e-40, 0.1, 257.0, 65280.0,  NAN};
enum { SPECIALS = sizeof specials / sizeof *specials };

static float bf16_value(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The nearest bf16, found by trying: of the two about x the nearer one, of two
 * as near the even one. Beyond the largest the next would be 2^128. */
static uint16_t nearest_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint16_t below = (uint16_t)(bits >> 16), above = (uint16_t)(below + 1);
    if (x != x)
        return 0x7fc0;
    if (isinf(x))
        return below;
    double high = isinf(bf16_value(above)) ? copysign(0x1p128, (double)x) : (double)bf16_value(above);
    double to_below = fabs((double)x - (double)bf16_value(below)), to_above = fabs(high - (double)x);
    if (to_below == to_above)
        return below % 2 ? above : below;
    return to_below < to_above ? below : above;
}

/* Every pair of special values comes up, then random bits. */
static void fill(lk_dtype dtype, uint32_t stream, void *out)
{
    lk_rng rng = lk__rng(5, LK_RNG_DIGITS, 0, 0, stream);
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t bits = (uint64_t)lk__rng_u32(&rng, 2 * i) << 32 | lk__rng_u32(&rng, 2 * i + 1);
        double special = specials[(stream ? i / SPECIALS : i) % SPECIALS];
        bool chosen = i < SPECIALS * SPECIALS;
        double value = chosen ? special : ldexp((double)(int32_t)bits, (int)(bits >> 32) % 40 - 31);
        if (dtype == LK_DTYPE_F32)
            ((float *)out)[i] = (float)value;
        else if (dtype == LK_DTYPE_F64)
            ((double *)out)[i] = value;
        else if (dtype == LK_DTYPE_BF16)
            ((uint16_t *)out)[i] = nearest_bf16((float)value);
        else
            memcpy((uint8_t *)out + i * lk_dtype_size(dtype), &bits, lk_dtype_size(dtype));
    }
}

/* The least or the largest; of equals a, and a NaN rather than a number. */
#define REFERENCE(type, value, sum)                                                             \
    do {                                                                                        \
        const type *a = left, *b = right;                                                       \
        for (size_t i = 0; i < COUNT; i++) {                                                    \
            bool first = isnan((double)value(b[i])) && !isnan((double)value(a[i]));             \
            bool less = first || value(b[i]) < value(a[i]);                                     \
            bool more = first || value(b[i]) > value(a[i]);                                     \
            type merged = op == LK_REDUCTION_MIN ? (less ? b[i] : a[i]) : (more ? b[i] : a[i]); \
            ((type *)out)[i] = op <= LK_REDUCTION_MEAN ? (type)(sum) : merged;                  \
        }                                                                                       \
    } while (0)

static void reference(lk_dtype dtype, lk_reduction op, const void *left, const void *right, void *out)
{
    if (dtype == LK_DTYPE_F32)
        REFERENCE(float, , a[i] + b[i]);
    else if (dtype == LK_DTYPE_F64)
        REFERENCE(double, , a[i] + b[i]);
    else if (dtype == LK_DTYPE_BF16)
        REFERENCE(uint16_t, bf16_value, nearest_bf16(bf16_value(a[i]) + bf16_value(b[i])));
    else if (dtype == LK_DTYPE_I64)
        REFERENCE(int64_t, , (uint64_t)a[i] + (uint64_t)b[i]);
    else if (dtype == LK_DTYPE_I32)
        REFERENCE(int32_t, , (uint32_t)a[i] + (uint32_t)b[i]);
    else
        REFERENCE(uint8_t, , (a[i] + b[i]) % 256);
}

/* Not a number is as good as another one. */
static bool same_element(lk_dtype dtype, const uint8_t *got, const uint8_t *want)
{
    if (memcmp(got, want, lk_dtype_size(dtype)) == 0)
        return true;
    float x, y;
    double x64, y64;
    memcpy(&x, got, sizeof x);
    memcpy(&y, want, sizeof y);
    memcpy(&x64, got, sizeof x64);
    memcpy(&y64, want, sizeof y64);
    return (dtype == LK_DTYPE_F32 && isnan(x) && isnan(y)) || (dtype == LK_DTYPE_F64 && isnan(x64) && isnan(y64));
}

static void check(const char *isa, lk_dtype dtype, size_t count, const uint8_t *got, const uint8_t *want)
{
    size_t size = lk_dtype_size(dtype);
    for (size_t i = 0; i < count; i++) {
        if (!same_element(dtype, got + i * size, want + i * size))
            fail_msg("%s, %s: element %zu of %zu is wrong", isa, lk_dtype_name(dtype), i, count);
    }
    for (size_t i = count * size; i < count * size + 64; i++)
        assert_int_equal(got[i], 0xa5);
}

static void check_reduce(lk_device *dev, const char *isa, lk_dtype dtype, lk_reduction op)
{
    static uint8_t a[MAX_BYTES + 64], b[MAX_BYTES + 64], want[MAX_BYTES + 64], got[MAX_BYTES + 64];
    static const size_t lengths[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 65, COUNT};
    size_t size = lk_dtype_size(dtype);
    fill(dtype, 0, a);
    fill(dtype, 1, b);
    reference(dtype, op, a, b, want);
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        size_t n = lengths[k];
        for (int place = 0; place < 3; place++) {
            memset(got, 0xa5, sizeof got);
            if (place > 0)
                memcpy(got, place == 1 ? a : b, n * size);
            dev->kernels->reduce(dev, dtype, op, n, place == 1 ? got : a, place == 2 ? got : b, got);
            check(isa, dtype, n, got, want);
        }
    }
}

static void test_reduce(void **state)
{
    (void)state;
    const lk_cpu_build *build;
    for (size_t i = 0; (build = lk__cpu_build_list(i)); i++) {
        lk_device *dev = open_device(build->name, 1);
        for (int d = 0; d < DTYPES; d++) {
            for (int op = 0; op < LK_REDUCTION_COUNT; op++)
                check_reduce(dev, build->name, dtypes[d], (lk_reduction)op);
        }
        lk__device_close(dev);
    }
}

/* Ties of zeros show which operand was taken: the first. */
static void test_first_of_equals(void **state)
{
    (void)state;
    const lk_cpu_build *build;
    for (size_t i = 0; (build = lk__cpu_build_list(i)); i++) {
        lk_device *dev = open_device(build->name, 1);
        float a[40], b[40], out[40];
        for (int k = 0; k < 40; k++) {
            a[k] = k % 2 ? 0.0f : -0.0f;
            b[k] = -a[k];
        }
        for (int op = LK_REDUCTION_MIN; op <= LK_REDUCTION_MAX; op++) {
            dev->kernels->reduce(dev, LK_DTYPE_F32, (lk_reduction)op, 40, a, b, out);
            assert_memory_equal(out, a, sizeof a);
        }
        lk__device_close(dev);
    }
}

static void test_bf16_rounds_to_even_and_keeps_nan(void **state)
{
    (void)state;
    /* 1 + 2^-8 is half way between 1 and its successor; 1.0078125 + 2^-8 as well. */
    uint16_t a[] = {0x3f80, 0x3f81, 0x3f80, 0x7f80, 0x7f81, 0xffff, 0x7f7f};
    uint16_t b[] = {0x3b80, 0x3b80, 0x3b81, 0xff80, 0x0000, 0x3f80, 0x7f7f};
    uint16_t want[] = {0x3f80, 0x3f82, 0x3f81, 0x7fc0, 0x7fc0, 0x7fc0, 0x7f80};
    uint16_t out[7];
    const lk_cpu_build *build;
    for (size_t i = 0; (build = lk__cpu_build_list(i)); i++) {
        lk_device *dev = open_device(build->name, 1);
        dev->kernels->reduce(dev, LK_DTYPE_BF16, LK_REDUCTION_SUM, 7, a, b, out);
        assert_memory_equal(out, want, sizeof want);
        lk__device_close(dev);
    }
}

#define CHECK_DIVIDE(dtype, type, ...)                      \
    do {                                                    \
        type x[] = {__VA_ARGS__};                           \
        enum { HALF = sizeof x / sizeof *x / 2 };           \
        dev->kernels->divide(dev, dtype, HALF, 3, x);       \
        assert_memory_equal(x, x + HALF, HALF * sizeof *x); \
    } while (0)

static void test_divide(void **state)
{
    (void)state;
    const lk_cpu_build *build;
    for (size_t i = 0; (build = lk__cpu_build_list(i)); i++) {
        lk_device *dev = open_device(build->name, 1);
        /* Values, then what a third of each is. */
        CHECK_DIVIDE(LK_DTYPE_F32, float, 1, -6, 0, 1.0f / 3, -2, 0);
        CHECK_DIVIDE(LK_DTYPE_F64, double, 1, -6, 0, 1.0 / 3, -2, 0);
        CHECK_DIVIDE(LK_DTYPE_BF16, uint16_t, 0x3f80, 0xc0c0, 0x7f80, 0x3eab, 0xc000, 0x7f80);
        CHECK_DIVIDE(LK_DTYPE_I64, int64_t, 8, -8, INT64_MIN, 2, -2, INT64_MIN / 3);
        CHECK_DIVIDE(LK_DTYPE_I32, int32_t, 8, -8, INT32_MIN, 2, -2, INT32_MIN / 3);
        CHECK_DIVIDE(LK_DTYPE_U8, uint8_t, 8, 255, 2, 2, 85, 0);
        lk__device_close(dev);
    }
}

static void test_copy_bytes(void **state)
{
    (void)state;
    lk_device *dev = open_device(NULL, 1);
    const char text[] = "0123456789";
    char out[] = "----------";
    dev->kernels->copy_bytes(dev, 0, NULL, NULL);
    dev->kernels->copy_bytes(dev, 7, text, out);
    assert_string_equal(out, "0123456---");
    lk__device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_first_of_equals),
        cmocka_unit_test(test_bf16_rounds_to_even_and_keeps_nan),
        cmocka_unit_test(test_divide),
        cmocka_unit_test(test_copy_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
