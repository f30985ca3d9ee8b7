/* test_dropout.c - dropout against the random number at the address of each element or channel, on the CPU and on
 * GPUs. */
#include "tensor/kernel_test.h"

#define SEED UINT64_C(0x1234567500000003)

typedef struct dropping {
    lk_shape shape;
    float p;
    size_t first; /* first sample of the run; earlier samples must not matter */
    bool in_place, channels;
    uint32_t layer, step;
    const float *x;
    const uint32_t *ids; // (n)
} dropping;

static void run_dropout(lk_device *d, const void *arg, float *out)
{
    const dropping *c = arg;
    lk_shape s = c->shape;
    s.n -= c->first;
    lk_tensor x = fx_input(d, s, c->x + c->first * lk__shape_sample(s)), y = c->in_place ? x : fx_tensor(d, s);
    lk_dropout_desc dropout = {.p = c->p, .seed = SEED, .layer = c->layer, .channels = c->channels};
    dropout.step = fx_put(d, &c->step, sizeof c->step);
    dropout.ids = fx_put(d, c->ids + c->first, s.n * sizeof *c->ids);
    d->kernels->dropout(d, &dropout, &x, &y);
    fx_read(d, &y, out);
}

/* A dropped NaN or infinity is a NaN, because PyTorch multiplies by 0. */
static void expect(const dropping *d, float *want)
{
    lk_shape s = d->shape;
    size_t pixels = s.h * s.w;
    for (size_t i = 0; i < lk__shape_count(s); i++) {
        size_t c = i % s.c, p = i / s.c % pixels, n = i / s.c / pixels;
        lk_rng rng = lk__rng(SEED, LK_RNG_PURPOSE_DROPOUT, d->layer, d->step, d->ids[n]);
        size_t element = d->channels ? c : c * pixels + p;
        bool keep = (double)lk__rng_u32(&rng, element) >= floor((double)d->p * 4294967296.0);
        want[i] = keep ? d->x[i] * (float)(1 / (1 - (double)d->p)) : d->x[i] - d->x[i];
    }
}

static const lk_shape shapes[] = {
    {1, 1, 1, 1},   {3, 10, 1, 1},   {2, 128, 1, 1}, {2, 1, 5, 7},     {1, 3, 2, 2},    {2, 16, 4, 4},
    {2, 21, 5, 5},  {3, 10, 3, 2},   {2, 64, 7, 7},  {2, 3, 3, 1},     {9, 64, 12, 12}, {1, 1, 5, 3},
    {3, 3, 7, 5},   {2, 4, 3, 3},    {5, 21, 4, 6},  {2, 26, 8, 8},    {7, 31, 1, 1},   {4, 64, 6, 5},
    {13, 10, 1, 1}, {1, 1000, 1, 1}, {0, 21, 4, 4},  {33, 16, 32, 32},
};

static const uint32_t special_ids[] = {5, 0, 0xffffffffu, 59999, 2, 17, 18, 19, 1000000};

static void check(dropping d)
{
    size_t count = lk__shape_count(d.shape), sample = lk__shape_sample(d.shape);
    float *want = new_floats(count);
    expect(&d, want);
    fx_check("dropout", run_dropout, &d, want, count);
    if (d.shape.n) {
        d.first = d.shape.n - 1;
        fx_check("dropout of the last sample", run_dropout, &d, want + d.first * sample, sample);
    }
    free(want);
}

/* Finite values, then some non-finite ones. */
static void test_dropout(void **state)
{
    static const float chances[] = {0.25f, 0.5f, 0.0f, 0.999f, 0.9f};
    uint32_t ids[64];
    for (uint32_t i = 0; i < COUNT_OF(ids); i++)
        ids[i] = i < COUNT_OF(special_ids) ? special_ids[i] : i * 7919 + 3;
    for (uint32_t k = 0; k < 2 * COUNT_OF(shapes); k++) {
        lk_shape shape = shapes[k / 2];
        size_t count = lk__shape_count(shape);
        if (fx_too_large(count))
            continue;
        float *x = random_values(count, 1);
        for (size_t i = 3; k % 2 && i < count; i += 11)
            x[i] = i % 2 ? NAN : -NAN;
        for (size_t i = 7; k % 2 && i < count; i += 13)
            x[i] = INFINITY;
        dropping d = {.shape = shape, .x = x, .ids = ids, .layer = 6 + k % 3, .step = 41 + k % 2};
        for (size_t way = 0; way < 4; way++) {
            d.p = chances[(k / 2 + way + k % 2) % COUNT_OF(chances)];
            d.channels = way % 2;
            d.in_place = (k + way / 2) % 2;
            check(d);
        }
        free(x);
    }
}

/* A NaN in every lane and tail of vectors, on the CPU. */
static void test_nan_at_every_place(void **state)
{
    static const lk_shape small[] = {{2, 37, 1, 1}, {2, 21, 3, 3}, {2, 19, 2, 2}, {2, 1, 5, 5}};
    for (size_t k = 0; fx_builds && k < 2 * COUNT_OF(small); k++) {
        size_t count = lk__shape_count(small[k / 2]);
        float *x = random_values(count, 1), *want = new_floats(count);
        dropping d = {.shape = small[k / 2], .p = 0.5f, .channels = k % 2, .layer = 2, .step = 5};
        d.x = x;
        d.ids = special_ids;
        expect(&d, want);
        for (size_t at = 0; at < count; at++) {
            float number = x[at], result = want[at];
            want[at] = x[at] = NAN;
            float *got = fx_bits_brief("dropout of a NaN", run_dropout, &d, count);
            fx_same_values("dropout of a NaN", got, want, count);
            free(got);
            x[at] = number;
            want[at] = result;
        }
        free(x);
        free(want);
    }
}

static float *ones(size_t count)
{
    float *x = new_floats(count);
    for (size_t i = 0; i < count; i++)
        x[i] = 1.0f;
    return x;
}

/* The count is within five standard deviations of its mean. */
static void test_share(void **state)
{
    enum { COUNT = 9 * 64 * 144 };
    float *x = ones(COUNT);
    dropping d = {.shape = {9, 64, 12, 12}, .p = 0.25f, .x = x, .ids = special_ids};
    float *got = fx_bits("share", run_dropout, &d, COUNT);
    double zeros = 0;
    for (size_t i = 0; i < COUNT; i++)
        zeros += got[i] == 0.0f;
    assert_true(fabs(zeros - 0.25 * COUNT) < 5 * sqrt(0.25 * 0.75 * COUNT));
    free(x);
    free(got);
}

/* Channels are dropped or kept as a whole, with probability p, independently of the channel before and of the same
 * channel of the sample before. */
static void test_channel_share(void **state)
{
    enum { SAMPLES = 300, CHANNELS = 70, PIXELS = 6, COUNT = SAMPLES * CHANNELS };
    static uint32_t many[SAMPLES];
    float *x = ones(COUNT * PIXELS);
    for (uint32_t i = 0; i < SAMPLES; i++)
        many[i] = 1000 + i;
    dropping d = {.shape = {SAMPLES, CHANNELS, 3, 2}, .p = 0.25f, .channels = true, .x = x, .ids = many};
    float *got = fx_bits("share of channels", run_dropout, &d, COUNT * PIXELS);
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
    free(x);
}

int main(int argc, char **argv)
{
    return fx_kernel_main(
        argc, argv,
        TESTS(TEST(test_dropout), TEST(test_nan_at_every_place), TEST(test_share), TEST(test_channel_share)),
        FX_FP32 | FX_BF16);
}
