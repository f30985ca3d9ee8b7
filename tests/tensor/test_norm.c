/* test_norm.c - sums of squares of blocks, their sum, scaling, and the search for large values, on the CPU and on GPUs:
 * exact, with many lengths and alignments. */
#include <float.h>

#include "base/tree.h"
#include "tensor/kernel_test.h"

static const size_t lengths[] = {0,    1,    2,    3,    16,   21,    31,    32,    33,    64,
                                 1000, 4095, 4096, 4097, 8192, 16384, 16385, 45000, 50001, 262147};

typedef struct array_case {
    size_t count, skip; /* elements before the first */
    size_t cut;         /* where the second part of a search begins; 0: it has one */
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
    lk_flag good = {.first = LK_FLAG_NONE}, bad = {.bad = 1};
    float *factor = fx_floats(d, (float[]){0.3f}, 1);
    d->kernels->scale(d, NULL, a->count, fx_floats(d, (float[]){1}, 1), x + a->skip);
    d->kernels->scale(d, fx_put(d, &bad, sizeof bad), a->count, factor, x + a->skip);
    d->kernels->scale(d, fx_put(d, &good, sizeof good), a->count, factor, x + a->skip);
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

typedef struct fold_case {
    size_t count;
    const double *squares; /* (count) */
    double limit;
} fold_case;

/* Results: the bytes of the sum, then the factor. */
static void run_fold(lk_device *d, const void *arg, float *out)
{
    const fold_case *f = arg;
    lk_norm norm = {.square = -1, .factor = -1}, *at = fx_put(d, &norm, sizeof norm);
    double *squares = fx_put(d, f->squares, f->count * sizeof *squares);
    d->kernels->fold_squares(d, f->count, squares, f->limit, at);
    fx_get(d, at, sizeof norm, &norm);
    fx_spread(&norm.square, sizeof norm.square, out);
    out[sizeof norm.square] = norm.factor;
}

/* The definition in base/tree.h. */
static double tree_sum(const double *values, size_t lo, size_t hi)
{
    size_t half = 1;
    if (hi - lo < 2)
        return hi > lo ? values[lo] : 0;
    while (half * 2 < hi - lo)
        half *= 2;
    return tree_sum(values, lo, lo + half) + tree_sum(values, lo + half, hi);
}

/* The same sum by the merges of shards. */
static double shard_sum(const double *values, int count)
{
    double stack[LK_TREE_MAX_DEPTH] = {0};
    int depth = 0;
    for (int s = 0; s < count; s++) {
        stack[depth++] = values[s];
        for (int m = lk__tree_merges(count, s); m > 0; m--, depth--)
            stack[depth - 2] += stack[depth - 1];
    }
    return stack[0];
}

static void check_fold(fold_case f)
{
    double square = tree_sum(f.squares, 0, f.count), quotient = f.limit / (sqrt(square) + 1e-6);
    float want[sizeof square + 1];
    if (f.count > 0 && f.count <= LK_MAX_SHARDS)
        assert_true(shard_sum(f.squares, (int)f.count) == square);
    fx_spread(&square, sizeof square, want);
    want[sizeof square] = f.limit == 0 || quotient >= 1 ? 1 : (float)quotient;
    float *got = fx_bits_brief("fold_squares", run_fold, &f, COUNT_OF(want));
    fx_same("fold_squares", got, want, COUNT_OF(want));
    free(got);
}

/* Sums of many lengths, without a limit and with limits above and below the norm. */
static void test_fold(void **state)
{
    enum { MOST = 9001 };
    double *squares = new_doubles(MOST);
    float *random = random_floats(MOST, 9);
    for (size_t i = 0; i < MOST; i++)
        squares[i] = ldexp(fabs((double)random[i]) + 0.1, (int)(i % 60) - 50);
    for (size_t count = 0; count <= MOST; count += count < 40 ? 1 : 1087) {
        double norm = sqrt(tree_sum(squares, 0, count));
        check_fold((fold_case){count, squares, 0});
        check_fold((fold_case){count, squares, norm * 1.01 + 1});
        check_fold((fold_case){count, squares, norm / 7 + 1e-9});
    }
    free(random);
    free(squares);
}

/* An infinite norm has the factor 0; a norm that is NaN has the factor NaN, as in PyTorch. */
static void test_fold_nonfinite(void **state)
{
    const double infinite[] = {1, INFINITY, 2};
    check_fold((fold_case){3, infinite, 1});
    const double squares[] = {1, NAN, 2};
    fold_case f = {3, squares, 1};
    float *got = fx_bits_brief("fold_squares", run_fold, &f, sizeof(double) + 1);
    assert_true(isnan(got[sizeof(double)]));
    free(got);
}

/* The bytes of the index found, then whether one was found. */
static void run_find(lk_device *d, const void *arg, float *out)
{
    const array_case *a = arg;
    lk_flag *flag = fx_put(d, &a->flag, sizeof a->flag), found = {0};
    float *x = fx_floats(d, a->x, a->skip + a->count) + a->skip;
    size_t first = a->cut ? a->cut : a->count;
    const lk_flag_part parts[LK_FLAG_PARTS] = {{first, x, a->base}, {a->count - first, x + first, a->base + first}};
    d->kernels->flag_above(d, a->cut ? 2 : 1, parts, a->limit, flag);
    fx_get(d, flag, sizeof *flag, &found);
    fx_spread(&found.first, sizeof found.first, out);
    out[sizeof found.first] = (float)found.bad;
}

/* The whole array, then the same in two parts. */
static void check_search(const array_case *whole)
{
    const size_t cuts[] = {0, whole->count / 5, whole->count / 8 * 4, whole->count};
    array_case a = *whole;
    lk_flag want = whole->flag;
    float spread[sizeof want.first + 1];
    for (size_t i = a.skip; i < a.skip + a.count; i++) {
        uint64_t index = a.base + i - a.skip;
        if (fabsf(a.x[i]) <= a.limit)
            continue;
        want.bad = 1;
        want.first = index < want.first ? index : want.first;
        break;
    }
    fx_spread(&want.first, sizeof want.first, spread);
    spread[sizeof want.first] = (float)want.bad;
    for (size_t i = 0; i < COUNT_OF(cuts); i++) {
        a.cut = cuts[i];
        float *got = fx_bits("flag_above", run_find, &a, COUNT_OF(spread));
        fx_same("flag_above", got, spread, COUNT_OF(spread));
        free(got);
    }
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
    return fx_kernel_main(argc, argv,
                          TESTS(TEST(test_norm), TEST(test_extremes), TEST(test_fold), TEST(test_fold_nonfinite),
                                TEST(test_search), TEST(test_limits), TEST(test_unaligned)),
                          FX_FP32);
}
