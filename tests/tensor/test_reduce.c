/* test_reduce.c - merging, dividing and copying vectors of every type, on the CPU and on GPUs, against simple
 * references: with many lengths and alignments, and in place. */
#include "tensor/kernel_test.h"

static const lk_dtype dtypes[] = {LK_DTYPE_F32, LK_DTYPE_F64, LK_DTYPE_BF16, LK_DTYPE_F16,
                                  LK_DTYPE_I64, LK_DTYPE_I32, LK_DTYPE_U8};
enum { MOST = 1031 };

static const double specials[] = {0.0,   -0.0,  1.0, -1.0,  INFINITY, -INFINITY, 3e38,
                                  -3e38, 1e-40, 0.1, 257.0, 65280.0,  NAN};
enum { SPECIALS = sizeof specials / sizeof *specials };

/* The nearest bf16, by comparing the two neighbours of x; of two equally near ones the even one. The number after
 * the largest is taken as 2^128. */
static uint16_t nearest_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint16_t below = (uint16_t)(bits >> 16), above = (uint16_t)(below + 1);
    if (x != x)
        return 0x7fc0;
    if (isinf(x))
        return below;
    double high = isinf(bf16_to_float(above)) ? copysign(0x1p128, (double)x) : (double)bf16_to_float(above);
    double to_below = fabs((double)x - (double)bf16_to_float(below)), to_above = fabs(high - (double)x);
    if (to_below == to_above)
        return below % 2 ? above : below;
    return to_below < to_above ? below : above;
}

static float f16_to_float(uint16_t x)
{
    int exponent = x >> 10 & 31, fraction = x & 1023;
    double value = exponent == 31  ? (fraction ? (double)NAN : (double)INFINITY)
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(1024 + fraction, exponent - 25);
    return (float)(x >> 15 ? -value : value);
}

/* The nearest f16: a multiple of the unit in the last place, rounded by rint. */
static uint16_t nearest_f16(float x)
{
    int exponent;
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (x != x)
        return 0x7e00;
    (void)frexp((double)x, &exponent);
    exponent = exponent - 1 < -14 ? -14 : exponent - 1;
    double units = isinf(x) ? 1e9 : rint(fabs(ldexp((double)x, 10 - exponent)));
    if (isinf(x) || ldexp(units, exponent - 10) >= 65536)
        return (uint16_t)(sign | 0x7c00);
    /* 1024 units and more are a normal number; 2048 carry into the exponent. */
    unsigned bits = units < 1024 ? (unsigned)units : (unsigned)((exponent + 14) * 1024) + (unsigned)units;
    return (uint16_t)(sign | bits);
}

/* All pairs of special values, then random values. */
static void fill(lk_dtype dtype, uint32_t stream, void *out)
{
    lk_rng rng = lk__rng(5, LK_RNG_PURPOSE_DIGITS, 0, 0, stream);
    for (size_t i = 0; i < MOST; i++) {
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
        else if (dtype == LK_DTYPE_F16)
            ((uint16_t *)out)[i] = chosen ? nearest_f16((float)value) : (uint16_t)bits;
        else
            memcpy((uint8_t *)out + i * lk_dtype_size(dtype), &bits, lk_dtype_size(dtype));
    }
}

/* The smallest or the largest; of equal values a; a NaN wins over a number. */
#define REFERENCE(type, value, sum, product)                                                    \
    do {                                                                                        \
        const type *a = left, *b = right;                                                       \
        for (size_t i = 0; i < MOST; i++) {                                                     \
            bool first = isnan((double)value(b[i])) && !isnan((double)value(a[i]));             \
            bool less = first || value(b[i]) < value(a[i]);                                     \
            bool more = first || value(b[i]) > value(a[i]);                                     \
            type merged = op == LK_REDUCTION_MIN ? (less ? b[i] : a[i]) : (more ? b[i] : a[i]); \
            ((type *)out)[i] = op <= LK_REDUCTION_MEAN      ? (type)(sum)                       \
                               : op == LK_REDUCTION_PRODUCT ? (type)(product)                   \
                                                            : merged;                           \
        }                                                                                       \
    } while (0)

static void reference(lk_dtype dtype, lk_reduction op, const void *left, const void *right, void *out)
{
    if (dtype == LK_DTYPE_F32)
        REFERENCE(float, , a[i] + b[i], a[i] * b[i]);
    else if (dtype == LK_DTYPE_F64)
        REFERENCE(double, , a[i] + b[i], a[i] * b[i]);
    else if (dtype == LK_DTYPE_BF16)
        REFERENCE(uint16_t, bf16_to_float, nearest_bf16(bf16_to_float(a[i]) + bf16_to_float(b[i])),
                  nearest_bf16(bf16_to_float(a[i]) * bf16_to_float(b[i])));
    else if (dtype == LK_DTYPE_F16)
        REFERENCE(uint16_t, f16_to_float, nearest_f16(f16_to_float(a[i]) + f16_to_float(b[i])),
                  nearest_f16(f16_to_float(a[i]) * f16_to_float(b[i])));
    else if (dtype == LK_DTYPE_I64)
        REFERENCE(int64_t, , (uint64_t)a[i] + (uint64_t)b[i], (uint64_t)a[i] * (uint64_t)b[i]);
    else if (dtype == LK_DTYPE_I32)
        REFERENCE(int32_t, , (uint32_t)a[i] + (uint32_t)b[i], (uint32_t)a[i] * (uint32_t)b[i]);
    else
        REFERENCE(uint8_t, , (a[i] + b[i]) % 256, (a[i] * b[i]) % 256);
}

/* Divides in the type; integers round towards zero. */
static void divide(lk_dtype dtype, int divisor, const void *x, void *out)
{
    for (size_t i = 0; i < MOST; i++) {
        if (dtype == LK_DTYPE_F32)
            ((float *)out)[i] = ((const float *)x)[i] / (float)divisor;
        else if (dtype == LK_DTYPE_F64)
            ((double *)out)[i] = ((const double *)x)[i] / divisor;
        else if (dtype == LK_DTYPE_BF16)
            ((uint16_t *)out)[i] = nearest_bf16(bf16_to_float(((const uint16_t *)x)[i]) / (float)divisor);
        else if (dtype == LK_DTYPE_F16)
            ((uint16_t *)out)[i] = nearest_f16(f16_to_float(((const uint16_t *)x)[i]) / (float)divisor);
        else if (dtype == LK_DTYPE_I64)
            ((int64_t *)out)[i] = ((const int64_t *)x)[i] / divisor;
        else if (dtype == LK_DTYPE_I32)
            ((int32_t *)out)[i] = ((const int32_t *)x)[i] / divisor;
        else
            ((uint8_t *)out)[i] = (uint8_t)(((const uint8_t *)x)[i] / divisor);
    }
}

typedef struct merge_case {
    lk_dtype dtype;
    lk_reduction op;
    size_t count, skip; /* skip: elements before the first */
    int over;           /* out is 0: separate, 1: a, 2: b */
    int divisor;
    const void *a, *b; // (skip + count)
} merge_case;

/* The bytes of elements as floats. Each byte of a NaN is -1, because its bits may differ, except for the CPU's
 * bf16. */
static void spread_elements(lk_dtype dtype, const void *elements, size_t count, float *out)
{
    size_t size = lk_dtype_size(dtype);
    fx_spread(elements, count * size, out);
    for (size_t i = 0; i < count; i++) {
        bool nan = (dtype == LK_DTYPE_F32 && isnan(((const float *)elements)[i])) ||
                   (dtype == LK_DTYPE_F64 && isnan(((const double *)elements)[i])) ||
                   (dtype == LK_DTYPE_BF16 && !fx_builds && isnan(bf16_to_float(((const uint16_t *)elements)[i]))) ||
                   (dtype == LK_DTYPE_F16 && !fx_builds && isnan(f16_to_float(((const uint16_t *)elements)[i])));
        for (size_t k = 0; nan && k < size; k++)
            out[i * size + k] = -1.0f;
    }
}

static size_t bytes_of(const merge_case *m)
{
    return (m->count + m->skip) * lk_dtype_size(m->dtype);
}

/* Reads all elements of the output's block; elements before the first are 0 unless they were written. */
static void read_elements(lk_device *d, const merge_case *m, const void *src, bool written, float *out)
{
    double host[MOST + 4];
    fx_get(d, src, bytes_of(m), host);
    spread_elements(m->dtype, host, m->count + m->skip, out);
    if (!written)
        memset(out, 0, m->skip * lk_dtype_size(m->dtype) * sizeof *out);
}

static void run_reduce(lk_device *d, const void *arg, float *out)
{
    const merge_case *m = arg;
    size_t bytes = bytes_of(m), skip = m->skip * lk_dtype_size(m->dtype);
    char *a = fx_put(d, m->a, bytes), *b = fx_put(d, m->b, bytes), *to = fx_blank(d, bytes);
    to = m->over == 1 ? a : m->over == 2 ? b : to;
    d->kernels->reduce(d, m->dtype, m->op, m->count, a + skip, b + skip, to + skip);
    read_elements(d, m, to, m->over > 0, out);
}

static void run_divide(lk_device *d, const void *arg, float *out)
{
    const merge_case *m = arg;
    char *x = fx_put(d, m->a, bytes_of(m));
    d->kernels->divide(d, m->dtype, m->count, m->divisor, x + m->skip * lk_dtype_size(m->dtype));
    read_elements(d, m, x, true, out);
}

/* The results are `want`, and the elements before the first are unchanged. */
static void check_elements(fx_run run, const merge_case *m, const uint64_t *want)
{
    size_t bytes = bytes_of(m);
    const void *before = run == run_divide || m->over == 1 ? m->a : m->b;
    float *got = fx_bits_brief(lk_dtype_name(m->dtype), run, m, bytes), *spread = new_floats(bytes);
    spread_elements(m->dtype, want, m->count + m->skip, spread);
    if (run == run_reduce && m->over == 0)
        memset(spread, 0, m->skip * lk_dtype_size(m->dtype) * sizeof *spread);
    else
        spread_elements(m->dtype, before, m->skip, spread);
    fx_same(lk_dtype_name(m->dtype), got, spread, bytes);
    free(got);
    free(spread);
}

static void check_merges(lk_dtype dtype, const size_t *lengths, size_t count, size_t skip)
{
    static uint64_t a[MOST], b[MOST], want[MOST];
    static const int divisors[] = {1, 3, 8, 1000};
    fill(dtype, 0, a);
    fill(dtype, 1, b);
    merge_case m = {.dtype = dtype, .skip = skip, .a = a, .b = b};
    for (int op = 0; op < LK_REDUCTION_COUNT; op++) {
        m.op = (lk_reduction)op;
        reference(dtype, m.op, a, b, want);
        for (size_t k = 0; k < 3 * count; k++) {
            m.count = lengths[k / 3];
            m.over = (int)(k % 3);
            check_elements(run_reduce, &m, want);
        }
    }
    for (size_t k = 0; k < count; k++) {
        m.count = lengths[k];
        m.divisor = divisors[m.count % COUNT_OF(divisors)];
        divide(dtype, m.divisor, a, want);
        check_elements(run_divide, &m, want);
    }
}

static void test_merges(void **state)
{
    static const size_t lengths[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 255, 514, MOST};
    for (size_t i = 0; i < COUNT_OF(dtypes); i++)
        check_merges(dtypes[i], lengths, COUNT_OF(lengths), 0);
}

/* With zeros of both signs the result shows that the first operand is taken. */
static void test_first_of_equals(void **state)
{
    uint64_t a[MOST], b[MOST];
    for (size_t k = 0; k < 40; k++) {
        ((float *)a)[k] = k % 2 ? 0.0f : -0.0f;
        ((float *)b)[k] = k % 2 ? -0.0f : 0.0f;
    }
    for (int op = LK_REDUCTION_MIN; op <= LK_REDUCTION_MAX; op++) {
        merge_case m = {.dtype = LK_DTYPE_F32, .op = (lk_reduction)op, .count = 40, .a = a, .b = b};
        check_elements(run_reduce, &m, a);
    }
}

static void test_bf16_rounds_to_even_and_keeps_nan(void **state)
{
    /* 1 + 2^-8 is half way between 1 and its successor; so is 1.0078125 + 2^-8. */
    static const uint16_t a[] = {0x3f80, 0x3f81, 0x3f80, 0x7f80, 0x7f81, 0xffff, 0x7f7f};
    static const uint16_t b[] = {0x3b80, 0x3b80, 0x3b81, 0xff80, 0x0000, 0x3f80, 0x7f7f};
    static const uint16_t sum[] = {0x3f80, 0x3f82, 0x3f81, 0x7fc0, 0x7fc0, 0x7fc0, 0x7f80};
    uint64_t want[COUNT_OF(sum)];
    memcpy(want, sum, sizeof sum);
    merge_case m = {.dtype = LK_DTYPE_BF16, .op = LK_REDUCTION_SUM, .count = COUNT_OF(a), .a = a, .b = b};
    check_elements(run_reduce, &m, want);
}

#define CHECK_DIVIDE(which, type, ...)                                                   \
    do {                                                                                 \
        const type x[] = {__VA_ARGS__};                                                  \
        uint64_t want[COUNT_OF(x)];                                                      \
        memcpy(want, x + COUNT_OF(x) / 2, sizeof x / 2);                                 \
        merge_case m = {.dtype = which, .count = COUNT_OF(x) / 2, .divisor = 3, .a = x}; \
        check_elements(run_divide, &m, want);                                            \
    } while (0)

/* Values, then a third of each. */
static void test_divide(void **state)
{
    CHECK_DIVIDE(LK_DTYPE_F32, float, 1, -6, 0, 1.0f / 3, -2, 0);
    CHECK_DIVIDE(LK_DTYPE_F64, double, 1, -6, 0, 1.0 / 3, -2, 0);
    CHECK_DIVIDE(LK_DTYPE_BF16, uint16_t, 0x3f80, 0xc0c0, 0x7f80, 0x3eab, 0xc000, 0x7f80);
    CHECK_DIVIDE(LK_DTYPE_I64, int64_t, 8, -8, INT64_MIN, 2, -2, INT64_MIN / 3);
    CHECK_DIVIDE(LK_DTYPE_I32, int32_t, 8, -8, INT32_MIN, 2, -2, INT32_MIN / 3);
    CHECK_DIVIDE(LK_DTYPE_U8, uint8_t, 8, 255, 2, 2, 85, 0);
}

/* All bytes of the destination; those before and after the copied range stay. */
static void run_copy_bytes(lk_device *d, const void *arg, float *out)
{
    const merge_case *m = arg;
    size_t whole = MOST * sizeof(uint64_t);
    uint64_t host[MOST];
    char *x = fx_put(d, m->a, whole), *to = fx_put(d, m->b, whole);
    d->kernels->copy_bytes(d, 0, NULL, NULL);
    d->kernels->copy_bytes(d, m->count, x + m->skip, to + m->skip);
    fx_get(d, to, whole, host);
    fx_spread(host, whole, out);
}

static void check_copy(size_t count, size_t skip)
{
    static uint64_t a[MOST], b[MOST];
    float want[sizeof b];
    fill(LK_DTYPE_I64, 2, a);
    fill(LK_DTYPE_I64, 3, b);
    merge_case m = {.count = count, .skip = skip, .a = a, .b = b};
    fx_spread(b, sizeof b, want);
    fx_spread((const char *)a + skip, count, want + skip);
    float *got = fx_bits_brief("copy_bytes", run_copy_bytes, &m, sizeof b);
    fx_same("copy_bytes", got, want, sizeof b);
    free(got);
}

static void test_copy_bytes(void **state)
{
    static const size_t lengths[] = {0, 1, 7, 16, 100, 4096, 8001};
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        check_copy(lengths[i], 0);
}

/* This test is the last one, because a fault of a GPU affects all later calls. */
static void test_unaligned(void **state)
{
    static const size_t length = 1001;
    for (size_t skip = 1; skip <= 3; skip++) {
        check_copy(length, skip);
        for (size_t i = 0; i < COUNT_OF(dtypes); i++)
            check_merges(dtypes[i], &length, 1, skip);
    }
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv,
                          TESTS(TEST(test_merges), TEST(test_first_of_equals),
                                TEST(test_bf16_rounds_to_even_and_keeps_nan), TEST(test_divide), TEST(test_copy_bytes),
                                TEST(test_unaligned)),
                          FX_FP32);
}
