/* test_bias.c - adding a bias for each channel, and sums over the pixels of shards, on the CPU and on GPUs. */
#include "tensor/kernel_test.h"

enum { SHARDS = 5 };

typedef struct bias_case {
    lk_shape shape;
    const float *y, *b;
} bias_case;

/* Results: y + b, and the sums of y for each shard. */
static void run_bias(lk_device *d, const void *arg, float *out)
{
    const bias_case *c = arg;
    fx_wave wave;
    lk_tensor y = fx_input(d, c->shape, c->y), dy = fx_input(d, c->shape, c->y);
    float *leaves = fx_no_floats(d, SHARDS * c->shape.c);
    fx_wave_init(&wave, c->shape.n, SHARDS, 0, SHARDS);
    d->kernels->bias_add(d, fx_floats(d, c->b, c->shape.c), &y);
    d->kernels->bias_sums(d, &dy, &wave.shards, leaves);
    fx_read(d, &y, out);
    fx_get_floats(d, leaves, SHARDS * c->shape.c, out + lk__shape_count(c->shape));
}

static void check_bias(lk_shape shape)
{
    fx_wave wave;
    size_t count = lk__shape_count(shape), channels = shape.c, sample = lk__shape_sample(shape);
    float *y = random_values(count, 1), *b = random_floats(channels, 2), *want = new_floats(count);
    double *sums = new_doubles(SHARDS * channels);
    fx_wave_init(&wave, shape.n, SHARDS, 0, SHARDS);
    for (size_t i = 0; i < count; i++)
        want[i] = y[i] + b[i % channels];
    for (size_t s = 0; s < SHARDS; s++)
        for (size_t i = wave.begin[s] * sample; i < wave.begin[s + 1] * sample; i++)
            sums[s * channels + i % channels] += (double)y[i];
    float *got = fx_bits("bias", run_bias, &(bias_case){.shape = shape, .y = y, .b = b}, count + SHARDS * channels);
    fx_same_values("bias_add", got, want, count);
    fx_near("bias_sums", got + count, sums, FX_NEAR, SHARDS * channels);
    free(got);
    free(y);
    free(b);
    free(want);
    free(sums);
}

/* Padded and unpadded channels, more channels than a block has, fewer samples than shards, none. */
static void test_bias(void **state)
{
    static const lk_shape shapes[] = {{1, 1, 1, 1},  {7, 21, 5, 3},   {3, 3, 9, 8},  {9, 64, 4, 4},
                                      {0, 16, 4, 4}, {11, 130, 3, 2}, {6, 31, 1, 1}, {5, 16, 17, 19}};
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        check_bias(shapes[i]);
}

static void test_nan(void **state)
{
    enum { CHANNELS = 3, COUNT = 4 * CHANNELS };
    float *y = random_values(COUNT, 1), *b = random_floats(CHANNELS, 2);
    y[4] = NAN;
    float *got = fx_bits("bias", run_bias, &(bias_case){.shape = {2, CHANNELS, 1, 2}, .y = y, .b = b},
                         COUNT + SHARDS * CHANNELS);
    size_t spoilt = 0;
    for (size_t i = 0; i < COUNT; i++)
        assert_true(isnan(got[i]) == (i == 4));
    for (size_t i = 0; i < SHARDS * CHANNELS; i++)
        spoilt += isnan(got[COUNT + i]) && i % CHANNELS == 1;
    assert_int_equal(spoilt, 1);
    free(got);
    free(y);
    free(b);
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv, TESTS(TEST(test_bias), TEST(test_nan)), FX_FP32 | FX_BF16);
}
