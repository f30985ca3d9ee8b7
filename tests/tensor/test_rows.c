/* test_rows.c - rows folded over the sum tree, on the CPU and on GPUs: the bits of the recursive definition, in
 * waves of any size. */
#include "tensor/kernel_test.h"

typedef struct rows_case {
    int shards, wave; /* wave 0: all shards */
    size_t width, row;
    const float *leaves; // (shards, row)
} rows_case;

static void run_fold(lk_device *d, const void *arg, float *out)
{
    const rows_case *r = arg;
    float *leaves = fx_floats(d, r->leaves, (size_t)r->shards * r->row);
    float *slots = fx_no_floats(d, fx_slots(r->shards) * r->width);
    for (int lo = 0, wave = r->wave ? r->wave : r->shards; lo < r->shards; lo += wave) {
        fx_wave v;
        fx_wave_init(&v, 0, r->shards, lo, wave);
        d->kernels->rows_fold(d, r->width, leaves + (size_t)lo * r->row, r->row, &v.shards,
                              (lk_partials){slots, r->width});
    }
    fx_get_floats(d, slots, r->width, out);
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
    float *got = fx_bits_in_waves("rows_fold", run_fold, &r, width, &r.wave);
    fx_same("rows_fold", got, want, width);
    free(got);
    r.wave = 4;
    fx_check("rows_fold", run_fold, &r, want, width);
    free(leaves);
    free(want);
}

static void test_fold(void **state)
{
    check(1, 3, 3);
    check(2, 1, 1);
    check(3, 21, 40);
    check(7, 64, 64);
    check(16, 128, 130);
    check(23, 40000, 40000);
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv, TESTS(TEST(test_fold)), FX_FP32);
}
