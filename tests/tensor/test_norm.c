/* test_norm.c - sums of squares of blocks, scaling, and the search for large values, on the CPU and on GPUs: exact,
 * with many lengths and alignments. */
#include <float.h>

#include "tensor/kernel_test.h"

static const size_t lengths[] = {0,    1,    2,    3,    16,   21,    31,    32,    33,    64,
                                 1000, 4095, 4096, 4097, 8192, 16384, 16385, 45000, 50001, 262147};

typedef struct array_case {
    size_t count, skip; /* elements before the first */
    const float *x;     // (skip + count)
    lk_flag flag;
    uint64_t base;
    float limit;
} array_case;

static size_t blocks_of(size_t count)
{
    return (count + LK_NORM_BLOCK - 1) / LK_NORM_BLOCK;
}

/* The bytes of the sums. */
static void run_squares(lk_device *d, const void *arg, float *out)
{
    const array_case *a = arg;
    size_t bytes = blocks_of(a->count) * sizeof(double);
    float *x = fx_floats(d, a->x, a->skip + a->count) + a->skip;
    double *sums = fx_blank(d, bytes), *host = new_doubles(blocks_of(a->count));
    d->kernels->sum_squares(d, a->count, x, sums);
    fx_get(d, sums, bytes, host);
    fx_spread(host, bytes, out);
    free(host);
}

/* The order of the additions, which is part of the definition: element i of a block is added to chain i % 32, and
 * chains are folded in halves. */
static double block_in_order(const float *x, size_t count)
{
    double chain[32] = {0};
    for (size_t i = 0; i < count; i++)
        chain[i % 32] += (double)x[i] * (double)x[i];
    for (size_t half = 16; half > 0; half /= 2) {
        for (size_t l = 0; l < half; l++)
            chain[l] += chain[l + half];
    }
    return chain[0];
}

/* Checks the bits of the defined order, and that they are near the sum: n additions of non-negative terms in any
 * order have an error of at most n * 2^-53. */
static void check_squares(const array_case *a)
{
    size_t blocks = blocks_of(a->count), bytes = blocks * sizeof(double);
    double *want = new_doubles(blocks);
    float *spread = new_floats(bytes), *got = fx_bits("sum_squares", run_squares, a, bytes);
    for (size_t b = 0; b < blocks; b++) {
        const float *x = a->x + a->skip + b * LK_NORM_BLOCK;
        size_t rest = a->count - b * LK_NORM_BLOCK, count = rest < LK_NORM_BLOCK ? rest : LK_NORM_BLOCK;
        long double sum = 0;
        want[b] = block_in_order(x, count);
        for (size_t i = 0; i < count; i++)
            sum += (long double)x[i] * (long double)x[i];
        assert_true(fabsl((long double)want[b] - sum) <= LK_NORM_BLOCK * 0x1p-53L * sum);
    }
    fx_spread(want, bytes, spread);
    fx_same("sum_squares", got, spread, bytes);
    free(want);
    free(spread);
    free(got);
}

static void run_scale(lk_device *d, const void *arg, float *out)
{
    const array_case *a = arg;
    float *x = fx_floats(d, a->x, a->skip + a->count);
    d->kernels->scale(d, a->count, 0.3f, x + a->skip);
    fx_get_floats(d, x, a->skip + a->count, out);
}

static void check_norm(size_t count, size_t skip)
{
    size_t whole = count + skip;
    float *x = random_floats(whole, (uint32_t)count), *want = new_floats(whole);
    array_case a = {.count = count, .skip = skip, .x = x};
    if (!fx_too_large(count)) {
        check_squares(&a);
        for (size_t i = 0; i < whole; i++)
            want[i] = i < skip ? x[i] : x[i] * 0.3f;
        float *got = fx_bits("scale", run_scale, &a, whole);
        fx_same("scale", got, want, whole);
        free(got);
        /* Sums of small integers are exact, so each element must count once, and in its block. */
        for (size_t i = 0; i < whole; i++)
            x[i] = (float)(i * 7 % 1021) - 500;
        check_squares(&a);
    }
    free(x);
    free(want);
}

static void test_norm(void **state)
{
    for (size_t k = 0; k < COUNT_OF(lengths); k++)
        check_norm(lengths[k], 0);
}

/* The square of a finite gradient neither underflows nor overflows. */
static void test_extremes(void **state)
{
    const float values[] = {3e38f, -3e38f, 1e-40f, 0.0f, -0.0f};
    for (size_t k = 0; k < COUNT_OF(values); k++) {
        float x[LK_NORM_BLOCK];
        for (size_t i = 0; i < LK_NORM_BLOCK; i++)
            x[i] = values[k];
        double sum = block_in_order(x, LK_NORM_BLOCK);
        assert_true(isfinite(sum) && (sum > 0 || values[k] == 0));
        check_squares(&(array_case){.count = LK_NORM_BLOCK, .x = x});
    }
}

/* The bytes of the index found, then whether one was found. */
static void run_find(lk_device *d, const void *arg, float *out)
{
    const array_case *a = arg;
    lk_flag *flag = fx_put(d, &a->flag, sizeof a->flag), found = {0};
    float *x = fx_floats(d, a->x, a->skip + a->count) + a->skip;
    d->kernels->flag_above(d, a->count, a->limit, x, a->base, flag);
    fx_get(d, flag, sizeof *flag, &found);
    fx_spread(&found.first, sizeof found.first, out);
    out[sizeof found.first] = (float)found.bad;
}

static void check_search(const array_case *a)
{
    lk_flag want = a->flag;
    float spread[sizeof want.first + 1];
    for (size_t i = a->skip; i < a->skip + a->count; i++) {
        uint64_t index = a->base + i - a->skip;
        if (fabsf(a->x[i]) <= a->limit)
            continue;
        want.bad = 1;
        want.first = index < want.first ? index : want.first;
        break;
    }
    fx_spread(&want.first, sizeof want.first, spread);
    spread[sizeof want.first] = (float)want.bad;
    float *got = fx_bits("flag_above", run_find, a, COUNT_OF(spread));
    fx_same("flag_above", got, spread, COUNT_OF(spread));
    free(got);
}

/* No large value, then one, two and more, and an index before the known one. */
static void check_searches(size_t count, size_t skip, float bad)
{
    float *x = random_floats(count + skip, 4);
    array_case a = {
        .count = count, .skip = skip, .x = x, .flag = {.first = LK_FLAG_NONE}, .base = 77, .limit = FLT_MAX};
    check_search(&a);
    for (size_t i = 0; i < 4 && count; i++) {
        x[skip + count - 1 - count * i / 4] = bad;
        a.base = i * 1000003;
        check_search(&a);
        a.flag = (lk_flag){.first = 500, .bad = 1};
        check_search(&a);
        a.flag = (lk_flag){.first = LK_FLAG_NONE};
    }
    a.limit = 0.75f;
    check_search(&a);
    free(x);
}

static void test_search(void **state)
{
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        if (fx_too_large(lengths[i]))
            continue;
        check_searches(lengths[i], 0, INFINITY);
        check_searches(lengths[i], 0, -NAN);
    }
}

/* Limits and infinities in an array of several chunks; an earlier index is kept. */
static void test_limits(void **state)
{
    enum { COUNT = 100001, BASE = 7 };
    static const struct {
        size_t at;
        float value, limit;
    } steps[] = {{5, FLT_MAX, FLT_MAX},
                 {COUNT - 1, NAN, FLT_MAX},
                 {70000, -INFINITY, FLT_MAX},
                 {60000, INFINITY, FLT_MAX},
                 {50000, -0x1p100f, 0x1p100f},
                 {40000, 0x1p99f, 0x1p99f},
                 {40000, 0x1p99f, 0x1.fffffep98f},
                 {0, NAN, FLT_MAX}};
    float *x = random_floats(COUNT, 4);
    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        bool late = steps[i].limit < FLT_MAX; /* skips the element that is FLT_MAX */
        array_case a = {.count = late ? COUNT - 6 : COUNT, .skip = late ? 6 : 0, .x = x, .base = BASE};
        x[steps[i].at] = steps[i].value;
        a.limit = steps[i].limit;
        a.flag = (lk_flag){.first = LK_FLAG_NONE};
        check_search(&a);
        a.flag = (lk_flag){.first = BASE - 1, .bad = 1};
        check_search(&a);
    }
    free(x);
}

/* This test is the last one, because a fault of a GPU affects all later calls. */
static void test_unaligned(void **state)
{
    for (size_t skip = 1; skip <= 3; skip++) {
        check_norm(5001, skip);
        check_searches(5001, skip, NAN);
    }
}

int main(int argc, char **argv)
{
    return fx_kernel_main(
        argc, argv,
        TESTS(TEST(test_norm), TEST(test_extremes), TEST(test_search), TEST(test_limits), TEST(test_unaligned)),
        FX_FP32);
}
