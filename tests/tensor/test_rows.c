/* test_rows.c - rows folded over the sum tree: the bits of the recursive
 * definition, in any waves. */
#include "tensor/everywhere.h"

typedef struct rows_case {
    int shards, wave;
    size_t width, row;
    const float *leaves; // (shards, row)
} rows_case;

static void run_fold(lk_device *dev, const void *arg, float *out)
{
    const rows_case *r = arg;
    float *slots = new_floats(LK_TREE_MAX_DEPTH * r->width);
    for (int lo = 0; lo < r->shards; lo += r->wave) {
        int count = lo + r->wave < r->shards ? r->wave : r->shards - lo;
        int merges[LK_MAX_SHARDS];
        for (int i = 0; i < count; i++)
            merges[i] = lk__tree_merges(r->shards, lo + i);
        lk_shards shards = {.count = count, .merges = merges, .depth = lk__tree_depth(r->shards, lo - 1)};
        dev->kernels->rows_fold(dev, r->width, r->leaves + (size_t)lo * r->row, r->row, &shards,
                                (lk_partials){slots, r->width});
    }
    memcpy(out, slots, r->width * sizeof *out);
    free(slots);
}

static float sum(const rows_case *r, int lo, int hi, size_t i)
{
    if (hi - lo == 1)
        return r->leaves[(size_t)lo * r->row + i];
    int power = 1;
    while (power * 2 < hi - lo)
        power *= 2;
    return sum(r, lo, lo + power, i) + sum(r, lo + power, hi, i);
}

static void check(int shards, size_t width, size_t row)
{
    float *leaves = random_floats((size_t)shards * row, 1), *want = new_floats(width);
    rows_case r = {.shards = shards, .width = width, .row = row, .leaves = leaves};
    for (size_t i = 0; i < width; i++)
        want[i] = sum(&r, 0, shards, i);
    const int waves[] = {shards, 1, 3, 4};
    for (size_t i = 0; i < sizeof waves / sizeof *waves; i++) {
        r.wave = waves[i];
        float *got = run_everywhere(run_fold, &r, width);
        assert_same(got, want, width);
        free(got);
    }
    free(leaves);
    free(want);
}

static void test_fold(void **state)
{
    (void)state;
    check(1, 3, 3);
    check(2, 1, 1);
    check(3, 21, 40);
    check(7, 64, 64);
    check(16, 128, 130);
    check(23, 40000, 40000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
