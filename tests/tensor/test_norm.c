/* test_norm.c - sums of squares by blocks, and scaling: the same bits from every
 * build and number of threads, at every length. */
#include "everywhere.h"

enum { MAX_BLOCKS = 12, FLOATS = sizeof(double) / sizeof(float), GUARD = 2 };

typedef struct norm_case {
    size_t count;
    const float *x;
} norm_case;

static const size_t lengths[] = {0, 1, 2, 31, 32, 33, 4095, 4096, 4097, 8192, 16384, 16385, 45000};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static size_t blocks_of(size_t count)
{
    return (count + LK_NORM_BLOCK - 1) / LK_NORM_BLOCK;
}

/* out holds the sums, then GUARD doubles that must not be touched. */
static void run_squares(lk_device *dev, const void *arg, float *out)
{
    const norm_case *c = arg;
    double sums[MAX_BLOCKS + GUARD];
    size_t blocks = blocks_of(c->count);
    for (size_t b = 0; b < blocks + GUARD; b++)
        sums[b] = -1;
    dev->kernels->sum_squares(dev, c->count, c->x, sums);
    assert_int_equal(dev->type->sync(dev), LK_OK);
    memcpy(out, sums, (blocks + GUARD) * sizeof *sums);
}

static void squares_everywhere(const norm_case *c, double sums[MAX_BLOCKS])
{
    size_t blocks = blocks_of(c->count);
    assert_true(blocks <= MAX_BLOCKS);
    float *out = run_everywhere(run_squares, c, (blocks + GUARD) * FLOATS);
    double guards[GUARD];
    memcpy(sums, out, blocks * sizeof *sums);
    memcpy(guards, out + blocks * FLOATS, sizeof guards);
    for (int i = 0; i < GUARD; i++)
        assert_true(guards[i] == -1);
    free(out);
}

/* Any order of n additions of terms that are not negative is within n * 2^-53 of
 * the sum. */
static void test_sums_are_close(void **state)
{
    (void)state;
    for (size_t k = 0; k < LENGTHS; k++) {
        float *x = random_floats(lengths[k], (uint32_t)k);
        double sums[MAX_BLOCKS];
        squares_everywhere(&(norm_case){lengths[k], x}, sums);
        for (size_t b = 0; b < blocks_of(lengths[k]); b++) {
            long double want = 0;
            for (size_t i = b * LK_NORM_BLOCK; i < (b + 1) * LK_NORM_BLOCK && i < lengths[k]; i++)
                want += (long double)x[i] * (long double)x[i];
            if (!(fabsl((long double)sums[b] - want) <= LK_NORM_BLOCK * 0x1p-53L * want))
                fail_msg("block %zu of %zu elements is %.17g, not %.17Lg", b, lengths[k], sums[b], want);
        }
        free(x);
    }
}

/* Small integers: every order gives the same sum, so each element must count
 * once, and in its block. */
static void test_every_element_counts_once(void **state)
{
    (void)state;
    for (size_t k = 0; k < LENGTHS; k++) {
        float *x = new_floats(lengths[k]);
        double want[MAX_BLOCKS] = {0}, sums[MAX_BLOCKS] = {0};
        for (size_t i = 0; i < lengths[k]; i++) {
            x[i] = (float)(i * 7 % 1021) - 500;
            want[i / LK_NORM_BLOCK] += (double)x[i] * (double)x[i];
        }
        squares_everywhere(&(norm_case){lengths[k], x}, sums);
        assert_memory_equal(sums, want, sizeof want);
        free(x);
    }
}

/* No square of a finite gradient is lost or overflows. */
static void test_extremes(void **state)
{
    (void)state;
    const float values[] = {3e38f, -3e38f, 1e-40f, 0.0f, -0.0f};
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
        float *x = new_floats(LK_NORM_BLOCK);
        for (size_t i = 0; i < LK_NORM_BLOCK; i++)
            x[i] = values[k];
        double sums[MAX_BLOCKS];
        squares_everywhere(&(norm_case){LK_NORM_BLOCK, x}, sums);
        double square = (double)values[k] * (double)values[k];
        assert_true(fabs(sums[0] - LK_NORM_BLOCK * square) <= LK_NORM_BLOCK * 0x1p-53 * sums[0]);
        assert_true(isfinite(sums[0]) && (sums[0] > 0 || values[k] == 0));
        free(x);
    }
}

/* The order of the sum, which is part of the result: element i of a block in
 * chain i % 32, chains folded in halves. */
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

static void test_order_of_the_sum(void **state)
{
    (void)state;
    for (size_t k = 0; k < LENGTHS; k++) {
        float *x = random_floats(lengths[k], 77 + (uint32_t)k);
        double sums[MAX_BLOCKS];
        squares_everywhere(&(norm_case){lengths[k], x}, sums);
        for (size_t b = 0; b < blocks_of(lengths[k]); b++) {
            size_t begin = b * LK_NORM_BLOCK;
            size_t count = lengths[k] - begin < LK_NORM_BLOCK ? lengths[k] - begin : LK_NORM_BLOCK;
            double want = block_in_order(x + begin, count);
            if (memcmp(&sums[b], &want, sizeof want) != 0)
                fail_msg("block %zu of %zu elements is %.17g, not %.17g", b, lengths[k], sums[b], want);
        }
        free(x);
    }
}

static void run_scale(lk_device *dev, const void *arg, float *out)
{
    const norm_case *c = arg;
    memcpy(out, c->x, (c->count + 1) * sizeof *out);
    dev->kernels->scale(dev, c->count, 0.3f, out);
    assert_int_equal(dev->type->sync(dev), LK_OK);
}

static void test_scale(void **state)
{
    (void)state;
    for (size_t k = 0; k < LENGTHS; k++) {
        size_t count = lengths[k];
        float *x = random_floats(count + 1, (uint32_t)k), *want = new_floats(count + 1);
        for (size_t i = 0; i < count; i++)
            want[i] = x[i] * 0.3f;
        want[count] = x[count];
        float *got = run_everywhere(run_scale, &(norm_case){count, x}, count + 1);
        assert_same(got, want, count + 1);
        free(got);
        free(want);
        free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_are_close), cmocka_unit_test(test_every_element_counts_once),
        cmocka_unit_test(test_extremes),       cmocka_unit_test(test_order_of_the_sum),
        cmocka_unit_test(test_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
