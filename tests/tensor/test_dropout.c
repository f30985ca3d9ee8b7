/* test_dropout.c - dropout against the address of each element, one by one. */
#include "tensor/everywhere.h"

typedef struct dropping {
    lk_shape shape;
    float p;
    size_t first; /* of the samples to run: what is before must not matter */
    bool in_place;
    const float *x;
    const uint32_t *ids;
} dropping;

static void run_dropout(lk_device *dev, const void *arg, float *out)
{
    const dropping *d = arg;
    lk_shape s = d->shape;
    s.n -= d->first;
    const float *from = d->x + d->first * lk__shape_sample(s);
    lk_dropout_desc dropout = {.p = d->p, .seed = 0x500000003u, .layer = 6, .step = 41, .ids = d->ids + d->first};
    lk_tensor x = tensor_of((float *)(uintptr_t)from, s), y = tensor_of(out, s);
    if (d->in_place)
        memcpy(out, from, lk__shape_count(s) * sizeof *out);
    dev->kernels->dropout(dev, &dropout, d->in_place ? &y : &x, &y);
}

static void expect(const dropping *d, float *want)
{
    lk_shape s = d->shape;
    size_t pixels = s.h * s.w;
    for (size_t i = 0; i < lk__shape_count(s); i++) {
        size_t c = i % s.c, p = i / s.c % pixels, n = i / s.c / pixels;
        lk_rng rng = lk__rng(0x500000003u, LK_RNG_DROPOUT, 6, 41, d->ids[n]);
        bool keep = (double)lk__rng_u32(&rng, c * pixels + p) >= floor((double)d->p * 4294967296.0);
        want[i] = keep ? d->x[i] * (float)(1 / (1 - (double)d->p)) : 0.0f;
    }
}

static const lk_shape shapes[] = {
    {1, 1, 1, 1},  {3, 10, 1, 1}, {2, 128, 1, 1}, {2, 1, 5, 7}, {1, 3, 2, 2},    {2, 16, 4, 4},
    {2, 21, 5, 5}, {3, 10, 3, 2}, {2, 64, 7, 7},  {2, 3, 3, 1}, {9, 64, 12, 12},
};

static const uint32_t ids[] = {5, 0, 0xffffffffu, 59999, 2, 17, 18, 19, 1000000};

static void test_dropout(void **state)
{
    (void)state;
    static const float chances[] = {0.25f, 0.5f, 0.0f, 0.999f};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        size_t count = lk__shape_count(shapes[k]);
        float *x = random_floats(count, 1), *want = new_floats(count);
        dropping d = {.shape = shapes[k], .p = chances[k % 4], .in_place = k % 2, .x = x, .ids = ids};
        expect(&d, want);
        float *got = run_everywhere(run_dropout, &d, count);
        assert_same(got, want, count);
        free(got);
        d.first = shapes[k].n - 1;
        size_t last = lk__shape_sample(shapes[k]);
        got = run_everywhere(run_dropout, &d, last);
        assert_same(got, want + d.first * last, last);
        free(got);
        free(x);
        free(want);
    }
}

/* Counts stray from their mean by less than five standard deviations. */
static void test_share(void **state)
{
    (void)state;
    enum { COUNT = 9 * 64 * 144 };
    float *x = new_floats(COUNT);
    for (size_t i = 0; i < COUNT; i++)
        x[i] = 1.0f;
    dropping d = {.shape = {9, 64, 12, 12}, .p = 0.25f, .x = x, .ids = ids};
    float *got = run_everywhere(run_dropout, &d, COUNT);
    double zeros = 0;
    for (size_t i = 0; i < COUNT; i++)
        zeros += got[i] == 0.0f;
    assert_true(fabs(zeros - 0.25 * COUNT) < 5 * sqrt(0.25 * 0.75 * COUNT));
    free(x);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
