/* test_dropout.c - dropout against the address of each element or channel, one by
 * one. */
#include "tensor/everywhere.h"

typedef struct dropping {
    lk_shape shape;
    float p;
    size_t first; /* of the samples to run: what is before must not matter */
    bool in_place, channels;
    uint32_t layer, step;
    const float *x;
    const uint32_t *ids;
} dropping;

static void run_dropout(lk_device *dev, const void *arg, float *out)
{
    const dropping *d = arg;
    lk_shape s = d->shape;
    s.n -= d->first;
    const float *from = d->x + d->first * lk__shape_sample(s);
    lk_dropout_desc dropout = {.p = d->p,
                               .seed = 0x500000003u,
                               .layer = d->layer,
                               .step = &d->step,
                               .ids = d->ids + d->first,
                               .channels = d->channels};
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
        lk_rng rng = lk__rng(0x500000003u, LK_RNG_DROPOUT, d->layer, d->step, d->ids[n]);
        size_t element = d->channels ? c : c * pixels + p;
        bool keep = (double)lk__rng_u32(&rng, element) >= floor((double)d->p * 4294967296.0);
        want[i] = keep ? d->x[i] * (float)(1 / (1 - (double)d->p)) : 0.0f;
    }
}

static const lk_shape shapes[] = {
    {1, 1, 1, 1},  {3, 10, 1, 1}, {2, 128, 1, 1}, {2, 1, 5, 7}, {1, 3, 2, 2},    {2, 16, 4, 4},
    {2, 21, 5, 5}, {3, 10, 3, 2}, {2, 64, 7, 7},  {2, 3, 3, 1}, {9, 64, 12, 12},
};

static const uint32_t ids[] = {5, 0, 0xffffffffu, 59999, 2, 17, 18, 19, 1000000};

static void check(const dropping *given)
{
    dropping d = *given;
    size_t count = lk__shape_count(d.shape), last = lk__shape_sample(d.shape);
    float *want = new_floats(count);
    expect(&d, want);
    float *got = run_everywhere(run_dropout, &d, count);
    assert_same(got, want, count);
    free(got);
    d.first = d.shape.n - 1;
    got = run_everywhere(run_dropout, &d, last);
    assert_same(got, want + d.first * last, last);
    free(got);
    free(want);
}

static void test_dropout(void **state)
{
    (void)state;
    static const float chances[] = {0.25f, 0.5f, 0.0f, 0.999f};
    for (uint32_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        float *x = random_floats(lk__shape_count(shapes[k]), 1);
        dropping d = {.shape = shapes[k], .p = chances[k % 4], .in_place = k % 2, .x = x, .ids = ids};
        d.layer = 6 + k % 3;
        d.step = 41 + k % 2;
        check(&d);
        d.channels = true;
        check(&d);
        free(x);
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

/* Channels go one by one, whichever way one looks: dropped or kept as a whole, as
 * often as asked, and as often together with the channel before, or with the same
 * channel of the sample before, as chance has it. */
static void test_channel_share(void **state)
{
    (void)state;
    enum { SAMPLES = 300, CHANNELS = 70, PIXELS = 6, COUNT = SAMPLES * CHANNELS };
    float *x = new_floats(COUNT * PIXELS);
    uint32_t *many = calloc(SAMPLES, sizeof *many);
    assert_non_null(many);
    for (size_t i = 0; i < COUNT * PIXELS; i++)
        x[i] = 1.0f;
    for (uint32_t i = 0; i < SAMPLES; i++)
        many[i] = 1000 + i;
    dropping d = {.shape = {SAMPLES, CHANNELS, 3, 2}, .p = 0.25f, .channels = true, .x = x, .ids = many};
    float *got = run_everywhere(run_dropout, &d, COUNT * PIXELS);
    double zeros = 0, beside = 0, above = 0;
    for (size_t n = 0; n < SAMPLES; n++) {
        const float *y = got + n * CHANNELS * PIXELS;
        for (size_t c = 0; c < CHANNELS; c++) {
            for (size_t p = 1; p < PIXELS; p++)
                assert_true(y[p * CHANNELS + c] == y[c]);
            zeros += y[c] == 0;
            beside += c > 0 && y[c] == 0 && y[c - 1] == 0;
            above += n > 0 && y[c] == 0 && *(y + c - CHANNELS * PIXELS) == 0;
        }
    }
    assert_true(fabs(zeros - 0.25 * COUNT) < 5 * sqrt(0.25 * 0.75 * COUNT));
    assert_true(fabs(beside - 0.0625 * (COUNT - SAMPLES)) < 5 * sqrt(2 * 0.0625 * COUNT));
    assert_true(fabs(above - 0.0625 * (COUNT - CHANNELS)) < 5 * sqrt(2 * 0.0625 * COUNT));
    free(got);
    free(many);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_channel_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
