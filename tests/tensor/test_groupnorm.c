/* test_groupnorm.c - group normalisation and layer normalisation against double, on the CPU and on GPUs. */
#include "tensor/kernel_test.h"

enum { SHARDS = 4 };
static const float eps = 1e-5f;

typedef struct norm_case {
    lk_shape shape;
    size_t groups; /* 0: layer normalisation */
    const float *x, *dy, *gamma, *beta;
} norm_case;

static lk_groupnorm_desc desc_of(const norm_case *c)
{
    return (lk_groupnorm_desc){.groups = c->groups ? c->groups : 1, .by_pixel = !c->groups, .eps = eps};
}

/* Results: y, dx, and for each shard the sums of dy * xhat and of dy. */
static void run_norm(lk_device *d, const void *arg, float *out)
{
    const norm_case *c = arg;
    fx_wave wave;
    size_t count = lk__shape_count(c->shape), channels = c->shape.c;
    lk_tensor x = fx_input(d, c->shape, c->x), dy = fx_input(d, c->shape, c->dy);
    lk_tensor y = fx_tensor(d, c->shape), dx = fx_tensor(d, c->shape);
    lk_groupnorm_desc desc = desc_of(c);
    desc.gamma = fx_floats(d, c->gamma, channels);
    desc.beta = fx_floats(d, c->beta, channels);
    float *moments = fx_no_floats(d, 2 * lk__groupnorm_desc_sets(&desc, c->shape));
    float *leaves = fx_no_floats(d, SHARDS * 2 * channels);
    fx_wave_init(&wave, c->shape.n, SHARDS, 0, SHARDS);
    d->kernels->groupnorm_forward(d, &desc, &x, moments, &y);
    d->kernels->groupnorm_grad_weight(d, &desc, &x, &dy, moments, &wave.shards, leaves);
    d->kernels->groupnorm_grad_input(d, &desc, &x, &dy, moments, &dx);
    fx_read(d, &y, out);
    fx_read(d, &dx, out + count);
    fx_get_floats(d, leaves, SHARDS * 2 * channels, out + 2 * count);
}

/* The truth for all elements of one set. */
typedef struct norm_truth {
    double *xhat, *y, *dx;
} norm_truth;

/* The set of an element of (n, h, w, c). */
static size_t set_of(const norm_case *c, const lk_groupnorm_desc *desc, size_t i)
{
    size_t channels = c->shape.c, pixel = i / channels, group = i % channels / (channels / desc->groups);
    return (desc->by_pixel ? pixel : pixel / (c->shape.h * c->shape.w)) * desc->groups + group;
}

static void add_truth(const norm_case *c, const norm_truth *t)
{
    lk_groupnorm_desc desc = desc_of(c);
    size_t count = lk__shape_count(c->shape), sets = lk__groupnorm_desc_sets(&desc, c->shape), channels = c->shape.c;
    double *mean = new_doubles(sets), *square = new_doubles(sets), *sum = new_doubles(sets),
           *product = new_doubles(sets);
    double size = sets ? (double)count / (double)sets : 1;
    for (size_t i = 0; i < count; i++)
        mean[set_of(c, &desc, i)] += (double)c->x[i] / size;
    for (size_t i = 0; i < count; i++)
        square[set_of(c, &desc, i)] += pow((double)c->x[i] - mean[set_of(c, &desc, i)], 2) / size;
    for (size_t i = 0; i < count; i++) {
        size_t set = set_of(c, &desc, i);
        double g = (double)c->gamma[i % channels] * (double)c->dy[i];
        t->xhat[i] = ((double)c->x[i] - mean[set]) / sqrt(square[set] + (double)eps);
        t->y[i] = t->xhat[i] * (double)c->gamma[i % channels] + (double)c->beta[i % channels];
        sum[set] += g / size;
        product[set] += g * t->xhat[i] / size;
    }
    for (size_t i = 0; i < count; i++) {
        size_t set = set_of(c, &desc, i);
        t->dx[i] = ((double)c->gamma[i % channels] * (double)c->dy[i] - sum[set] - t->xhat[i] * product[set]) /
                   sqrt(square[set] + (double)eps);
    }
    free(mean);
    free(square);
    free(sum);
    free(product);
}

static void check_leaves(const norm_case *c, const norm_truth *t, const float *leaves)
{
    fx_wave wave;
    size_t channels = c->shape.c, sample = lk__shape_sample(c->shape);
    double *want = new_doubles(SHARDS * 2 * channels);
    fx_wave_init(&wave, c->shape.n, SHARDS, 0, SHARDS);
    for (size_t s = 0; s < SHARDS; s++)
        for (size_t i = wave.begin[s] * sample; i < wave.begin[s + 1] * sample; i++) {
            want[s * 2 * channels + i % channels] += (double)c->dy[i] * t->xhat[i];
            want[s * 2 * channels + channels + i % channels] += (double)c->dy[i];
        }
    fx_near("sums of groupnorm", leaves, want, FX_NEAR, SHARDS * 2 * channels);
    free(want);
}

static void check_norm(lk_shape shape, size_t groups, float middle)
{
    size_t count = lk__shape_count(shape);
    if (fx_too_large(count))
        return;
    float *x = random_values(count, 1), *dy = random_values(count, 2);
    float *gamma = random_floats(shape.c, 3), *beta = random_floats(shape.c, 4);
    for (size_t i = 0; i < count; i++)
        x[i] = fx_round(x[i] + middle);
    norm_case c = {.shape = shape, .groups = groups, .x = x, .dy = dy, .gamma = gamma, .beta = beta};
    norm_truth t = {new_doubles(count), new_doubles(count), new_doubles(count)};
    add_truth(&c, &t);
    float *got = fx_bits("groupnorm", run_norm, &c, 2 * count + SHARDS * 2 * shape.c);
    fx_near_values("groupnorm", got, t.y, FX_NEAR, count);
    fx_near_values("gradient of groupnorm", got + count, t.dx, FX_NEAR, count);
    check_leaves(&c, &t, got + 2 * count);
    free(got);
    free(t.xhat);
    free(t.y);
    free(t.dx);
    free(x);
    free(dy);
    free(gamma);
    free(beta);
}

/* Groups of one channel, of all channels, of channels that fill no vector; sets of a warp and of a block of a GPU;
 * fewer samples than shards, and none. */
static void test_groups(void **state)
{
    check_norm((lk_shape){5, 21, 4, 3}, 7, 0);
    check_norm((lk_shape){5, 21, 4, 3}, 21, 0);
    check_norm((lk_shape){5, 21, 4, 3}, 1, 0);
    check_norm((lk_shape){3, 64, 6, 5}, 4, 1);
    check_norm((lk_shape){2, 26, 9, 8}, 2, -1);
    check_norm((lk_shape){9, 3, 7, 5}, 3, 0);
    check_norm((lk_shape){2, 130, 5, 4}, 10, 0);
    check_norm((lk_shape){3, 16, 32, 32}, 2, 1);
    check_norm((lk_shape){1, 31, 17, 13}, 1, 0);
    check_norm((lk_shape){0, 16, 4, 4}, 4, 0);
    check_norm((lk_shape){40, 64, 24, 24}, 8, 1);
}

static void test_layernorm(void **state)
{
    check_norm((lk_shape){5, 21, 4, 3}, 0, 0);
    check_norm((lk_shape){7, 31, 1, 1}, 0, 1);
    check_norm((lk_shape){2, 768, 1, 9}, 0, 0);
    check_norm((lk_shape){2, 2500, 1, 3}, 0, -1);
    check_norm((lk_shape){3, 4, 3, 3}, 0, 0);
    check_norm((lk_shape){0, 16, 4, 4}, 0, 0);
    check_norm((lk_shape){40, 192, 8, 8}, 0, 1);
}

/* A NaN makes its whole set NaN, and no other. */
static void test_nan(void **state)
{
    enum { N = 2, C = 6, PIXELS = 4, GROUPS = 3, COUNT = N * C * PIXELS };
    float *x = random_values(COUNT, 1), *gamma = random_floats(C, 3);
    x[C + 2] = NAN; /* sample 0, pixel 1, group 1 */
    norm_case c = {.shape = {N, C, 2, 2}, .groups = GROUPS, .x = x, .dy = x, .gamma = gamma, .beta = gamma};
    float *got = fx_bits("groupnorm", run_norm, &c, 2 * COUNT + SHARDS * 2 * C);
    for (size_t i = 0; i < COUNT; i++) {
        bool spoilt = i < C * PIXELS && i % C / 2 == 1;
        assert_true(isnan(got[i]) == spoilt && isnan(got[COUNT + i]) == spoilt);
    }
    free(got);
    free(x);
    free(gamma);
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv, TESTS(TEST(test_groups), TEST(test_layernorm), TEST(test_nan)),
                          FX_FP32 | FX_BF16);
}
