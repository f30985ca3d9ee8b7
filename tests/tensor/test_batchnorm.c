/* test_batchnorm.c - batch normalisation and the folding of rows, forward and
 * backward through all their kernels as the engine calls them, in waves. */
#include "tensor/everywhere.h"

typedef struct bn_case {
    size_t batch, c, h, w;
    int shards;
    int wave;       /* shards a wave */
    bool per_shard; /* normalise each shard alone */
    bool relu;
    const float *x, *dy, *gamma, *beta;
} bn_case;

static const float eps = 1e-5f, momentum = 0.1f;

static size_t value_count(const bn_case *b)
{
    return b->batch * b->c * b->h * b->w;
}

/* y, dx, then by channel: mean, M2, sum dy, sum dy*xhat, running mean and variance. */
static size_t result_count(const bn_case *b)
{
    return 2 * value_count(b) + 6 * b->c;
}

/* One wave: its shards and where its samples are. */
typedef struct wave {
    lk_shards shards;
    size_t begin[LK_MAX_SHARDS + 1];
    size_t rows[LK_MAX_SHARDS]; /* of each shard */
    int merges[LK_MAX_SHARDS];
    size_t stack_rows[LK_TREE_MAX_DEPTH];
    size_t first; /* sample */
} wave;

static wave make_wave(const bn_case *b, int lo)
{
    wave v = {.first = lk__shard_begin(b->batch, b->shards, lo)};
    int hi = lo + b->wave < b->shards ? lo + b->wave : b->shards;
    for (int s = lo; s <= hi; s++)
        v.begin[s - lo] = lk__shard_begin(b->batch, b->shards, s) - v.first;
    for (int s = lo; s < hi; s++) {
        v.merges[s - lo] = lk__tree_merges(b->shards, s);
        v.rows[s - lo] = v.begin[s - lo + 1] - v.begin[s - lo];
    }
    int starts[LK_TREE_MAX_DEPTH];
    int depth = lk__tree_stack(b->shards, lo - 1, starts);
    for (int d = 0; d < depth; d++) {
        size_t end = d + 1 < depth ? lk__shard_begin(b->batch, b->shards, starts[d + 1]) : v.first;
        v.stack_rows[d] = end - lk__shard_begin(b->batch, b->shards, starts[d]);
    }
    v.shards = (lk_shards){.count = hi - lo, .depth = depth};
    return v;
}

/* Pointers into the wave itself, once it has its final place. */
static const lk_shards *wave_shards(wave *v)
{
    v->shards.begin = v->begin;
    v->shards.merges = v->merges;
    v->shards.rows = v->stack_rows;
    return &v->shards;
}

static lk_tensor part(const bn_case *b, const wave *v, const float *data)
{
    size_t n = v->begin[v->shards.count];
    const float *at = data + v->first * b->c * b->h * b->w;
    return tensor_of((float *)(uintptr_t)at, (lk_shape){n, b->c, b->h, b->w});
}

typedef struct buffers {
    float *leaves, *moments, *sums, *mean, *scale;
} buffers;

/* Statistics of all waves into slot 0. */
static void fold_stats(lk_device *dev, const bn_case *b, buffers *t)
{
    for (int lo = 0; lo < b->shards; lo += b->wave) {
        wave v = make_wave(b, lo);
        lk_tensor x = part(b, &v, b->x);
        dev->kernels->batchnorm_stats(dev, &x, wave_shards(&v), t->leaves);
        dev->kernels->batchnorm_fold(dev, b->c, b->h * b->w, &v.shards, t->leaves, (lk_partials){t->moments, 2 * b->c});
    }
}

static lk_moments wave_moments(lk_device *dev, const bn_case *b, wave *v, buffers *t)
{
    lk_moments m = {.groups = b->per_shard ? v->shards.count : 1, .mean = t->mean, .scale = t->scale};
    size_t pixels = b->h * b->w;
    if (b->per_shard) {
        lk_tensor x = part(b, v, b->x);
        dev->kernels->batchnorm_stats(dev, &x, wave_shards(v), t->leaves);
        dev->kernels->batchnorm_moments(dev, b->c, pixels, t->leaves, v->rows, eps, &m);
    } else {
        dev->kernels->batchnorm_moments(dev, b->c, pixels, t->moments, &b->batch, eps, &m);
    }
    return m;
}

static void forward_and_sums(lk_device *dev, const bn_case *b, buffers *t, float *out)
{
    for (int lo = 0; lo < b->shards; lo += b->wave) {
        wave v = make_wave(b, lo);
        const lk_shards *shards = wave_shards(&v);
        lk_tensor x = part(b, &v, b->x), dy = part(b, &v, b->dy), y = part(b, &v, out);
        lk_moments m = wave_moments(dev, b, &v, t);
        lk_batchnorm_desc desc = {.gamma = b->gamma, .beta = b->beta, .relu = b->relu};
        dev->kernels->batchnorm_forward(dev, &desc, &x, shards, &m, &y);
        dev->kernels->batchnorm_sums(dev, &x, &dy, shards, &m, t->leaves);
        dev->kernels->rows_fold(dev, 2 * b->c, t->leaves, 2 * b->c, shards, (lk_partials){t->sums, 2 * b->c});
    }
}

static void backward(lk_device *dev, const bn_case *b, buffers *t, float *out)
{
    for (int lo = 0; lo < b->shards; lo += b->wave) {
        wave v = make_wave(b, lo);
        const lk_shards *shards = wave_shards(&v);
        lk_tensor x = part(b, &v, b->x), dy = part(b, &v, b->dy), dx = part(b, &v, out);
        lk_moments m = wave_moments(dev, b, &v, t);
        dev->kernels->batchnorm_sums(dev, &x, &dy, shards, &m, t->leaves);
        lk_batchnorm_grad grad = {
            .gamma = b->gamma, .sums = b->per_shard ? t->leaves : t->sums, .rows = b->per_shard ? v.rows : &b->batch};
        dev->kernels->batchnorm_grad_input(dev, &grad, &x, &dy, shards, &m, &dx);
    }
}

static void run_batchnorm(lk_device *dev, const void *arg, float *out)
{
    const bn_case *b = arg;
    size_t c = b->c, shards = (size_t)b->shards, slots = LK_TREE_MAX_DEPTH * 2 * c;
    buffers t = {.leaves = new_floats(shards * 2 * c),
                 .moments = new_floats(slots),
                 .sums = new_floats(slots),
                 .mean = new_floats(shards * c),
                 .scale = new_floats(shards * c)};
    fold_stats(dev, b, &t);
    forward_and_sums(dev, b, &t, out);
    backward(dev, b, &t, out + value_count(b));
    float *by_channel = out + 2 * value_count(b);
    memcpy(by_channel, t.moments, 2 * c * sizeof *out);
    memcpy(by_channel + 2 * c, t.sums, 2 * c * sizeof *out);
    for (size_t i = 0; i < c; i++) {
        by_channel[4 * c + i] = 0.5f;
        by_channel[5 * c + i] = 2.0f;
    }
    dev->kernels->batchnorm_running_update(dev, c, t.moments, b->batch * b->h * b->w, momentum, NULL,
                                           by_channel + 4 * c, by_channel + 5 * c);
    free(t.leaves);
    free(t.moments);
    free(t.sums);
    free(t.mean);
    free(t.scale);
}

/* Moments, sums and results of samples [lo,hi) of one channel, in double. */
typedef struct reference {
    double mean, squares, sum, product, scale;
} reference;

static size_t element_at(const bn_case *b, size_t p, size_t channel)
{
    return p * b->c + channel;
}

static reference refer(const bn_case *b, size_t lo, size_t hi, size_t channel, double *want)
{
    size_t pixels = b->h * b->w, count = (hi - lo) * pixels;
    reference r = {0};
    for (size_t p = lo * pixels; p < hi * pixels; p++)
        r.mean += (double)b->x[element_at(b, p, channel)] / (double)count;
    for (size_t p = lo * pixels; p < hi * pixels; p++)
        r.squares += pow((double)b->x[element_at(b, p, channel)] - r.mean, 2);
    r.scale = 1 / sqrt(r.squares / (double)count + (double)eps);
    for (size_t p = lo * pixels; p < hi * pixels; p++) {
        size_t i = element_at(b, p, channel);
        r.sum += (double)b->dy[i];
        r.product += (double)b->dy[i] * ((double)b->x[i] - r.mean) * r.scale;
    }
    for (size_t p = lo * pixels; p < hi * pixels; p++) {
        size_t i = element_at(b, p, channel);
        double xhat = ((double)b->x[i] - r.mean) * r.scale, gamma = (double)b->gamma[channel];
        double y = xhat * gamma + (double)b->beta[channel];
        want[i] = b->relu && y < 0 ? 0 : y;
        want[value_count(b) + i] =
            gamma * r.scale * ((double)b->dy[i] - r.sum / (double)count - xhat * r.product / (double)count);
    }
    return r;
}

static void expect(const bn_case *b, double *want)
{
    double *by_channel = want + 2 * value_count(b);
    double *scratch = new_doubles(2 * value_count(b));
    for (size_t i = 0; i < b->c; i++) {
        reference whole = refer(b, 0, b->batch, i, b->per_shard ? scratch : want), sums = whole;
        if (b->per_shard) {
            sums = (reference){0};
            for (int s = 0; s < b->shards; s++) {
                size_t lo = lk__shard_begin(b->batch, b->shards, s), hi = lk__shard_begin(b->batch, b->shards, s + 1);
                reference part_of = refer(b, lo, hi, i, want);
                sums.sum += part_of.sum;
                sums.product += part_of.product;
            }
        }
        double count = (double)(b->batch * b->h * b->w);
        by_channel[i] = whole.mean;
        by_channel[b->c + i] = whole.squares;
        by_channel[2 * b->c + i] = sums.sum;
        by_channel[3 * b->c + i] = sums.product;
        by_channel[4 * b->c + i] = 0.9 * 0.5 + 0.1 * whole.mean;
        by_channel[5 * b->c + i] = 0.9 * 2.0 + 0.1 * whole.squares / (count - 1);
    }
    free(scratch);
}

/* Any number of shards a wave gives the bits of the whole batch at once. */
static void check_waves(bn_case b, const float *want)
{
    static const int waves[] = {1, 2, 3, 7};
    size_t count = result_count(&b);
    float *got = new_floats(count);
    lk_device *dev = open_device(NULL, 2);
    for (size_t i = 0; i < sizeof waves / sizeof *waves; i++) {
        b.wave = waves[i];
        run_batchnorm(dev, &b, got);
        assert_same(got, want, count);
    }
    lk__device_close(dev);
    free(got);
}

static void check(bn_case b)
{
    size_t values = value_count(&b);
    float *x = random_floats(values, 1), *dy = random_floats(values, 2);
    float *gamma = random_floats(b.c, 3), *beta = random_floats(b.c, 4);
    double *want = new_doubles(result_count(&b));
    for (size_t i = 0; i < values; i++)
        x[i] += 0.5f; /* a mean that matters */
    b.x = x;
    b.dy = dy;
    b.gamma = gamma;
    b.beta = beta;
    b.wave = b.shards;
    for (int mode = 0; mode < 4; mode++) {
        b.per_shard = mode % 2;
        b.relu = mode / 2;
        expect(&b, want);
        float *got = run_everywhere(run_batchnorm, &b, result_count(&b));
        assert_close(got, want, values, 1e-5);
        assert_close(got + values, want + values, values, 1e-5);
        for (size_t i = 0; i < 6; i++)
            assert_close(got + 2 * values + i * b.c, want + 2 * values + i * b.c, b.c, 1e-5);
        check_waves(b, got);
        free(got);
    }
    free(x);
    free(dy);
    free(gamma);
    free(beta);
    free(want);
}

static void test_batchnorm(void **state)
{
    (void)state;
    check((bn_case){.batch = 13, .c = 3, .h = 5, .w = 5, .shards = 5});
    check((bn_case){.batch = 16, .c = 10, .h = 4, .w = 6, .shards = 16});
    check((bn_case){.batch = 9, .c = 16, .h = 16, .w = 16, .shards = 4});
    check((bn_case){.batch = 6, .c = 21, .h = 7, .w = 9, .shards = 16});
    check((bn_case){.batch = 10, .c = 64, .h = 8, .w = 8, .shards = 3});
}

static void test_one_sample(void **state)
{
    (void)state;
    check((bn_case){.batch = 1, .c = 16, .h = 5, .w = 5, .shards = 1});
    check((bn_case){.batch = 1, .c = 3, .h = 6, .w = 5, .shards = 7});
}

/* A deviation much smaller than the mean survives: the two passes see to it. */
static void test_far_mean(void **state)
{
    (void)state;
    enum { C = 3, N = 8, PIXELS = 16 };
    float x[N * PIXELS * C], stats[2 * C];
    for (size_t i = 0; i < N * PIXELS * C; i++)
        x[i] = 1000.0f + (float)(i / C % 2);
    lk_tensor t = tensor_of(x, (lk_shape){N, C, 4, 4});
    lk_shards shards = {.count = 1, .begin = (const size_t[]){0, N}, .merges = (const int[]){0}};
    lk_device *dev = open_device(NULL, 1);
    dev->kernels->batchnorm_stats(dev, &t, &shards, stats);
    for (size_t i = 0; i < C; i++) {
        assert_true(stats[i] == 1000.5f);
        assert_true(stats[C + i] == N * PIXELS * 0.25f);
    }
    lk__device_close(dev);
}

/* Normalises and adds, by shards or all at once. */
typedef struct sum_case {
    lk_shape shape;
    size_t others; /* channels of what is added */
    int groups;
    bool relu;
    float *x, *other, *rows; // (n, h, w, c), (n, h, w, others), (4, groups * c)
} sum_case;

/* In one kernel, then in three. */
static void run_sum(lk_device *dev, const void *arg, float *out)
{
    const sum_case *s = arg;
    size_t count = lk__shape_count(s->shape), row = (size_t)s->groups * s->shape.c;
    lk_shape narrow = s->shape;
    narrow.c = s->others;
    float *padded = new_floats(count);
    lk_tensor x = tensor_of(s->x, s->shape), other = tensor_of(s->other, narrow), wide = tensor_of(padded, s->shape);
    lk_tensor at_once = tensor_of(out, s->shape), in_turn = tensor_of(out + count, s->shape);
    lk_moments m = {.groups = s->groups, .mean = s->rows, .scale = s->rows + row};
    lk_batchnorm_desc plain = {.gamma = s->rows + 2 * row, .beta = s->rows + 3 * row}, all = plain;
    size_t begin[LK_MAX_SHARDS + 1];
    for (int i = 0; i <= s->groups; i++)
        begin[i] = lk__shard_begin(s->shape.n, s->groups, i);
    lk_shards shards = {.count = s->groups, .begin = begin};
    all.relu = s->relu;
    all.other = &other;
    dev->kernels->batchnorm_forward(dev, &all, &x, &shards, &m, &at_once);
    dev->kernels->batchnorm_forward(dev, &plain, &x, &shards, &m, &in_turn);
    dev->kernels->fit_channels(dev, &other, &wide);
    dev->kernels->add(dev, &in_turn, &wide, s->relu, &in_turn);
    free(padded);
}

/* A gradient that is added to another, in one kernel, then in two. */
static void run_grad_sum(lk_device *dev, const void *arg, float *out)
{
    const sum_case *s = arg;
    size_t count = lk__shape_count(s->shape), row = (size_t)s->groups * s->shape.c;
    size_t begin[LK_MAX_SHARDS + 1], rows[LK_MAX_SHARDS];
    for (int i = 0; i <= s->groups; i++)
        begin[i] = lk__shard_begin(s->shape.n, s->groups, i);
    for (int i = 0; i < s->groups; i++)
        rows[i] = begin[i + 1] - begin[i];
    float *alone = new_floats(count);
    lk_tensor x = tensor_of(s->x, s->shape), at_once = tensor_of(out, s->shape);
    lk_tensor in_turn = tensor_of(out + count, s->shape), part_of = tensor_of(alone, s->shape);
    lk_moments m = {.groups = s->groups, .mean = s->rows, .scale = s->rows + row};
    lk_shards shards = {.count = s->groups, .begin = begin};
    lk_batchnorm_grad grad = {.gamma = s->rows, .sums = s->rows + 2 * row, .rows = rows};
    memcpy(out, s->x, count * sizeof *out);
    dev->kernels->batchnorm_grad_input(dev, &grad, &x, &x, &shards, &m, &part_of);
    dev->kernels->add(dev, &x, &part_of, false, &in_turn);
    grad.add = true;
    dev->kernels->batchnorm_grad_input(dev, &grad, &x, &x, &shards, &m, &at_once);
    free(alone);
}

static void check_sum(sum_case s)
{
    size_t count = lk__shape_count(s.shape);
    s.x = random_floats(count, 1);
    s.other = random_floats(count / s.shape.c * s.others, 2);
    s.rows = random_floats(4 * (size_t)s.groups * s.shape.c, 3);
    for (int relu = 0; relu < 2; relu++) {
        s.relu = relu;
        float *got = run_everywhere(run_sum, &s, 2 * count);
        assert_same(got, got + count, count);
        free(got);
    }
    float *got = run_everywhere(run_grad_sum, &s, 2 * count);
    assert_same(got, got + count, count);
    free(got);
    free(s.x);
    free(s.other);
    free(s.rows);
}

static void test_addition(void **state)
{
    (void)state;
    static const size_t channels[][2] = {{16, 16}, {21, 16}, {40, 21}, {64, 3}, {3, 1}, {37, 37}};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        check_sum((sum_case){{7, channels[i][0], 5, 6}, .others = channels[i][1], .groups = 1});
        check_sum((sum_case){{7, channels[i][0], 5, 6}, .others = channels[i][1], .groups = 3});
    }
}

typedef struct running_case {
    size_t c;
    const float *mean, *variance;
} running_case;

static void run_running(lk_device *dev, const void *arg, float *out)
{
    const running_case *r = arg;
    lk_moments m = {.groups = 1, .mean = out, .scale = out + r->c};
    dev->kernels->batchnorm_running_moments(dev, r->c, r->mean, r->variance, eps, &m);
}

static void test_running_moments(void **state)
{
    (void)state;
    enum { C = 21 };
    float *mean = random_floats(C, 1), *variance = random_floats(C, 2);
    double want[2 * C];
    for (size_t i = 0; i < C; i++) {
        variance[i] = fabsf(variance[i]);
        want[i] = (double)mean[i];
        want[C + i] = 1 / sqrt((double)variance[i] + (double)eps);
    }
    float *got = run_everywhere(run_running, &(running_case){C, mean, variance}, 2 * C);
    assert_close(got, want, C, 0);
    assert_close(got + C, want + C, C, 1e-6);
    free(got);
    free(mean);
    free(variance);
}

static void test_single_element(void **state)
{
    (void)state;
    float entry[2] = {3.0f, 0.0f}, mean = 1.0f, variance = 5.0f;
    lk_device *dev = open_device(NULL, 1);
    dev->kernels->batchnorm_running_update(dev, 1, entry, 1, 0.5f, NULL, &mean, &variance);
    assert_true(mean == 2.0f);
    assert_true(variance == 5.0f);
    lk__device_close(dev);
}

static void test_empty_group(void **state)
{
    (void)state;
    float stats[4] = {1, 2, 3, 4}, mean[2] = {9, 9}, scale[2] = {9, 9};
    lk_moments m = {.groups = 2, .mean = mean, .scale = scale};
    lk_device *dev = open_device(NULL, 1);
    dev->kernels->batchnorm_moments(dev, 1, 4, stats, (const size_t[]){0, 1}, 0.0f, &m);
    assert_true(mean[0] == 0.0f && scale[0] == 0.0f);
    assert_true(mean[1] == 3.0f && scale[1] == 1.0f);
    lk__device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batchnorm),      cmocka_unit_test(test_one_sample),
        cmocka_unit_test(test_far_mean),       cmocka_unit_test(test_running_moments),
        cmocka_unit_test(test_single_element), cmocka_unit_test(test_empty_group),
        cmocka_unit_test(test_addition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
