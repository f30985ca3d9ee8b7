/* test_batchnorm.c - all slots of batch normalisation, called in waves like the engine does, on the CPU and on
 * GPUs. Statistics and passes are compared with double. */
#include "tensor/kernel_test.h"

typedef struct bn_case {
    size_t batch, c, h, w;
    int shards;
    int wave;       /* shards of a wave; 0: all */
    bool per_shard; /* each shard is normalised by its own statistics */
    bool relu, six;
    bool apart; /* folds, moments, ReLU and its gradient by slots of their own */
    const float *x, *gamma, *beta;
    float *dy;
} bn_case;

static const float eps = 1e-5f, momentum = 0.1f;

static lk_shape shape_of(const bn_case *b)
{
    return (lk_shape){.n = b->batch, .c = b->c, .h = b->h, .w = b->w};
}

static size_t value_count(const bn_case *b)
{
    return lk__shape_count(shape_of(b));
}

/* Results: y, dx, then for each channel: mean, M2, sum dy, sum dy*xhat, running mean and variance, and the gradients of
 * gamma and beta. */
static size_t result_count(const bn_case *b)
{
    return 2 * value_count(b) + 8 * b->c;
}

typedef struct buffers {
    lk_tensor x, dy, y, dx;
    const float *gamma, *beta;
    float *leaves, *moments, *sums, *mean, *scale, *running, *grads;
} buffers;

static buffers make_buffers(lk_device *d, const bn_case *b)
{
    size_t c = b->c, shards = (size_t)b->shards, slots = fx_slots(b->shards);
    float *running = new_floats(2 * c);
    for (size_t i = 0; i < 2 * c; i++)
        running[i] = i < c ? 0.5f : 2.0f;
    buffers t = {.x = fx_input(d, shape_of(b), b->x),
                 .dy = fx_input(d, shape_of(b), b->dy),
                 .y = fx_tensor(d, shape_of(b)),
                 .dx = fx_tensor(d, shape_of(b)),
                 .gamma = fx_floats(d, b->gamma, c),
                 .beta = fx_floats(d, b->beta, c),
                 .leaves = fx_no_floats(d, shards * 2 * c),
                 .moments = fx_no_floats(d, slots * 2 * c),
                 .sums = fx_no_floats(d, slots * 2 * c),
                 .mean = fx_no_floats(d, shards * c),
                 .scale = fx_no_floats(d, shards * c),
                 .running = fx_floats(d, running, 2 * c),
                 .grads = fx_no_floats(d, slots * 2 * c)};
    free(running);
    return t;
}

/* Folds the statistics of all waves into slot 0. */
static void fold_stats(lk_device *d, const bn_case *b, buffers *t)
{
    for (int lo = 0, wave = b->wave ? b->wave : b->shards; lo < b->shards; lo += wave) {
        fx_wave v;
        fx_wave_init(&v, b->batch, b->shards, lo, wave);
        lk_tensor x = lk__tensor_rows(&t->x, v.first, v.n);
        lk_partials moments = {t->moments, 2 * b->c};
        lk_batchnorm_stats out = {.stats = t->leaves, .partials = b->apart ? (lk_partials){0} : moments};
        d->kernels->batchnorm_stats(d, &x, &v.shards, &out);
        if (b->apart)
            d->kernels->batchnorm_fold(d, b->c, b->h * b->w, &v.shards, t->leaves, moments);
    }
}

static lk_moments wave_moments(lk_device *d, const bn_case *b, const fx_wave *v, const lk_tensor *x, buffers *t)
{
    lk_moments m = {.groups = b->per_shard ? v->shards.count : 1, .mean = t->mean, .scale = t->scale};
    const size_t *rows = b->per_shard ? v->rows : &b->batch;
    bool whole = v->shards.count == b->shards, at_once = !b->apart && (b->per_shard || whole);
    lk_batchnorm_stats out = {
        .stats = t->leaves, .moments = at_once ? &m : NULL, .by_shard = b->per_shard, .rows = rows, .eps = eps};
    if (at_once && whole)
        out.partials = (lk_partials){t->moments, 2 * b->c};
    if (at_once || b->per_shard)
        d->kernels->batchnorm_stats(d, x, &v->shards, &out);
    if (!at_once)
        d->kernels->batchnorm_moments(d, b->c, b->h * b->w, b->per_shard ? t->leaves : t->moments, rows, eps, &m);
    return m;
}

/* y, and with its ReLU apart also dy. */
static void run_forward(lk_device *d, const bn_case *b, const lk_batchnorm_desc *desc, const lk_tensor *x,
                        const fx_wave *v, const lk_moments *m, lk_tensor *y, lk_tensor *dy)
{
    const lk_kernels *k = d->kernels;
    k->batchnorm_forward(d, desc, x, &v->shards, m, y);
    if (!b->apart || !b->relu)
        return;
    (b->six ? k->relu6_forward : k->relu_forward)(d, y, y);
    (b->six ? k->relu6_grad_input : k->relu_grad_input)(d, y, dy, dy);
}

static void run_sums(lk_device *d, const bn_case *b, const lk_batchnorm_desc *desc, const lk_tensor *x,
                     const lk_tensor *dy, const fx_wave *v, const lk_moments *m, buffers *t, bool fold)
{
    lk_partials sums = {t->sums, 2 * b->c}, none = {0};
    bool last = fold && !b->apart && v->first + v->n == b->batch;
    lk_batchnorm_sums out = {.sums = t->leaves,
                             .partials = b->apart || !fold ? none : sums,
                             .dgamma = last ? (lk_partials){t->grads, 2 * b->c} : none,
                             .dbeta = last ? (lk_partials){t->grads + b->c, 2 * b->c} : none};
    d->kernels->batchnorm_sums(d, desc, x, dy, &v->shards, m, &out);
    if (!b->apart || !fold)
        return;
    d->kernels->rows_fold(d, 2 * b->c, t->leaves, 2 * b->c, &v->shards, sums);
    d->kernels->copy_bytes(d, b->c * sizeof(float), t->sums + b->c, t->grads);
    d->kernels->copy_bytes(d, b->c * sizeof(float), t->sums, t->grads + b->c);
}

/* Forward and the sums of all waves, then the gradients, which need the sums. */
static void passes(lk_device *d, const bn_case *b, buffers *t, bool grads)
{
    for (int lo = 0, wave = b->wave ? b->wave : b->shards; lo < b->shards; lo += wave) {
        fx_wave v;
        fx_wave_init(&v, b->batch, b->shards, lo, wave);
        lk_tensor x = lk__tensor_rows(&t->x, v.first, v.n), dy = lk__tensor_rows(&t->dy, v.first, v.n);
        lk_tensor y = lk__tensor_rows(&t->y, v.first, v.n), dx = lk__tensor_rows(&t->dx, v.first, v.n);
        lk_moments m = wave_moments(d, b, &v, &x, t);
        lk_batchnorm_desc desc = {
            .gamma = t->gamma, .beta = t->beta, .relu = b->relu && !b->apart, .six = b->six && !b->apart};
        lk_batchnorm_grad grad = {.sums = b->per_shard ? t->leaves : t->sums,
                                  .rows = b->per_shard ? v.rows : &b->batch};
        if (!grads)
            run_forward(d, b, &desc, &x, &v, &m, &y, &dy);
        run_sums(d, b, &desc, &x, &dy, &v, &m, t, !grads);
        if (grads)
            d->kernels->batchnorm_grad_input(d, &desc, &grad, &x, &dy, &v.shards, &m, &dx);
    }
}

static void run_batchnorm(lk_device *d, const void *arg, float *out)
{
    const bn_case *b = arg;
    buffers t = make_buffers(d, b);
    fold_stats(d, b, &t);
    passes(d, b, &t, false);
    passes(d, b, &t, true);
    lk_batchnorm_update update = {.c = b->c,
                                  .entry = t.moments,
                                  .elements = b->batch * b->h * b->w,
                                  .momentum = momentum,
                                  .mean = t.running,
                                  .variance = t.running + b->c};
    d->kernels->batchnorm_running_update(d, 1, &update, NULL);
    fx_read(d, &t.y, out);
    fx_read(d, &t.dx, out + value_count(b));
    fx_get_floats(d, t.moments, 2 * b->c, out + 2 * value_count(b));
    fx_get_floats(d, t.sums, 2 * b->c, out + 2 * value_count(b) + 2 * b->c);
    fx_get_floats(d, t.running, 2 * b->c, out + 2 * value_count(b) + 4 * b->c);
    fx_get_floats(d, t.grads, 2 * b->c, out + 2 * value_count(b) + 6 * b->c);
}

/* Moments, sums and results of samples [lo,hi) of one channel. */
typedef struct reference {
    double mean, squares, sum, product, scale;
} reference;

static double relu_of(const bn_case *b, double y)
{
    return !b->relu ? y : y <= 0 ? 0 : b->six && y >= 6 ? 6 : y;
}

/* The gradient of the ReLU's argument y. Where rounding decides whether it passes, dy is set to 0. */
static double grad_of(const bn_case *b, double y, float *dy)
{
    if (b->relu && (fabs(y) < 1e-4 || (b->six && fabs(y - 6) < 0.05)))
        *dy = 0;
    return b->relu && (y <= 0 || (b->six && y >= 6)) ? 0 : (double)*dy;
}

static reference refer(const bn_case *b, size_t lo, size_t hi, size_t channel, double *want)
{
    size_t pixels = b->h * b->w, count = (hi - lo) * pixels;
    reference r = {0};
    for (size_t p = lo * pixels; p < hi * pixels; p++)
        r.mean += (double)b->x[p * b->c + channel] / (double)count;
    for (size_t p = lo * pixels; p < hi * pixels; p++)
        r.squares += pow((double)b->x[p * b->c + channel] - r.mean, 2);
    r.scale = count ? 1 / sqrt(r.squares / (double)count + (double)eps) : 0;
    double gamma = (double)b->gamma[channel], beta = (double)b->beta[channel];
    for (size_t p = lo * pixels; p < hi * pixels; p++) {
        size_t i = p * b->c + channel;
        double xhat = ((double)b->x[i] - r.mean) * r.scale, y = xhat * gamma + beta, dy = grad_of(b, y, &b->dy[i]);
        want[i] = relu_of(b, y);
        r.sum += dy;
        r.product += dy * xhat;
    }
    for (size_t p = lo * pixels; p < hi * pixels; p++) {
        size_t i = p * b->c + channel;
        double xhat = ((double)b->x[i] - r.mean) * r.scale, dy = grad_of(b, xhat * gamma + beta, &b->dy[i]);
        want[value_count(b) + i] = gamma * r.scale * (dy - r.sum / (double)count - xhat * r.product / (double)count);
    }
    return r;
}

static void expect(const bn_case *b, double *want)
{
    double *by_channel = want + 2 * value_count(b), *unused = new_doubles(2 * value_count(b));
    for (size_t i = 0; i < b->c; i++) {
        reference whole = refer(b, 0, b->batch, i, b->per_shard ? unused : want), sums = whole;
        if (b->per_shard)
            sums = (reference){0};
        for (int s = 0; b->per_shard && s < b->shards; s++) {
            size_t lo = lk__shard_begin(b->batch, b->shards, s), hi = lk__shard_begin(b->batch, b->shards, s + 1);
            reference shard = refer(b, lo, hi, i, want);
            sums.sum += shard.sum;
            sums.product += shard.product;
        }
        by_channel[i] = whole.mean;
        by_channel[b->c + i] = whole.squares;
        by_channel[2 * b->c + i] = sums.sum;
        by_channel[3 * b->c + i] = sums.product;
        by_channel[4 * b->c + i] = 0.9 * 0.5 + 0.1 * whole.mean;
        by_channel[5 * b->c + i] = 0.9 * 2.0 + 0.1 * whole.squares / (double)(b->batch * b->h * b->w - 1);
        by_channel[6 * b->c + i] = sums.product;
        by_channel[7 * b->c + i] = sums.sum;
    }
    free(unused);
}

static void compare(const bn_case *b, const float *got, const double *want)
{
    static const char *const names[] = {
        "mean", "M2", "sum of dy", "sum of dy * xhat", "running mean", "running variance", "dgamma", "dbeta"};
    size_t values = value_count(b);
    fx_near_values("batchnorm_forward", got, want, FX_NEAR, values);
    fx_near_values("batchnorm_grad_input", got + values, want + values, FX_NEAR, values);
    /* Sums of many addends below 1 may cancel: see the last bound in kernel_test.h. */
    double *bound = new_doubles(b->c);
    for (size_t i = 0; i < b->c; i++)
        bound[i] = 4 * 0x1p-20 * sqrt((double)(values / b->c));
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        size_t at = 2 * values + i * b->c;
        fx_near_each(names[i], got + at, want + at, FX_NEAR, i == 2 || i == 3 || i > 5 ? bound : NULL, b->c);
    }
    free(bound);
}

/* All modes: over the batch or each shard, without a ReLU, with one, or with a ReLU6. */
static void check_modes(bn_case b, const float *dy)
{
    size_t values = value_count(&b), count = result_count(&b);
    double *want = new_doubles(count);
    for (int mode = 0; mode < 6; mode++) {
        b.per_shard = mode % 2;
        b.relu = mode / 2 > 0;
        b.six = mode / 2 > 1;
        memcpy(b.dy, dy, values * sizeof *dy);
        expect(&b, want);
        float *got = fx_bits_in_waves("batchnorm", run_batchnorm, &b, count, &b.wave);
        compare(&b, got, want);
        b.wave = 7;
        float *by_waves = fx_bits_brief("batchnorm in waves", run_batchnorm, &b, count);
        fx_same("batchnorm in waves", by_waves, got, count);
        b.wave = 0;
        b.apart = true;
        float *apart = fx_bits_brief("batchnorm by all slots", run_batchnorm, &b, count);
        fx_same("batchnorm by all slots", apart, got, count);
        b.apart = false;
        free(got);
        free(by_waves);
        free(apart);
    }
    free(want);
}

static void check(bn_case b)
{
    size_t values = value_count(&b);
    if (fx_too_large(values))
        return;
    float *x = random_values(values, 1), *dy = random_values(values, 2), *changed = new_floats(values);
    float *gamma = random_floats(b.c, 3), *beta = random_floats(b.c, 4);
    for (size_t i = 0; i < values; i++)
        x[i] = fx_round(x[i] + 0.5f); /* a mean other than 0 */
    for (size_t i = 0; i < b.c; i++)
        gamma[i] *= i % 2 ? 8.0f : 1.0f; /* results above 6 */
    b.x = x;
    b.dy = changed;
    b.gamma = gamma;
    b.beta = beta;
    check_modes(b, dy);
    free(x);
    free(dy);
    free(changed);
    free(gamma);
    free(beta);
}

static void test_batchnorm(void **state)
{
    check((bn_case){.batch = 13, .c = 1, .h = 5, .w = 5, .shards = 5});
    check((bn_case){.batch = 13, .c = 3, .h = 5, .w = 5, .shards = 5});
    check((bn_case){.batch = 16, .c = 10, .h = 4, .w = 6, .shards = 16});
    check((bn_case){.batch = 9, .c = 26, .h = 16, .w = 16, .shards = 4});
    check((bn_case){.batch = 9, .c = 16, .h = 16, .w = 16, .shards = 4});
    check((bn_case){.batch = 6, .c = 21, .h = 7, .w = 9, .shards = 16});
    check((bn_case){.batch = 12, .c = 31, .h = 4, .w = 4, .shards = 8});
    check((bn_case){.batch = 10, .c = 64, .h = 8, .w = 8, .shards = 3});
    check((bn_case){.batch = 5, .c = 300, .h = 2, .w = 2, .shards = 2});
    check((bn_case){.batch = 64, .c = 16, .h = 32, .w = 32, .shards = 4});
    check((bn_case){.batch = 75, .c = 11, .h = 3, .w = 2, .shards = 70}); /* more shards than a launch on a GPU has */
    check((bn_case){.batch = 6, .c = 530, .h = 5, .w = 5, .shards = 3});  /* several tiles of channels */
    /* More blocks of a shard than a warp of a GPU combines at once. */
    check((bn_case){.batch = 17, .c = 128, .h = 32, .w = 32, .shards = 2});
}

static void test_one_sample(void **state)
{
    check((bn_case){.batch = 1, .c = 16, .h = 5, .w = 5, .shards = 1});
    check((bn_case){.batch = 1, .c = 3, .h = 6, .w = 5, .shards = 7});
}

/* Mean and M2 of one shard; x is 1000 and 1000 + step in turn. */
static void run_stats(lk_device *d, const void *arg, float *out)
{
    const bn_case *b = arg;
    fx_wave v;
    fx_wave_init(&v, b->batch, 1, 0, 1);
    lk_tensor x = fx_input(d, shape_of(b), b->x);
    float *stats = fx_no_floats(d, 2 * b->c);
    d->kernels->batchnorm_stats(d, &x, &v.shards, &(lk_batchnorm_stats){.stats = stats});
    fx_get_floats(d, stats, 2 * b->c, out);
}

/* A deviation much smaller than the mean is computed correctly, by two passes. */
static void test_far_mean(void **state)
{
    enum { C = 3, N = 8, PIXELS = 16 };
    float x[N * PIXELS * C], step = dev->values == LK_DTYPE_BF16 ? 4.0f : 1.0f;
    double want[2 * C];
    for (size_t i = 0; i < N * PIXELS * C; i++)
        x[i] = 1000.0f + step * (float)(i / C % 2);
    for (size_t i = 0; i < C; i++) {
        want[i] = 1000.0 + (double)step / 2;
        want[C + i] = N * PIXELS * 0.25 * (double)step * (double)step;
    }
    bn_case b = {.batch = N, .c = C, .h = 4, .w = 4, .x = x};
    float *got = fx_bits("stats", run_stats, &b, 2 * C);
    fx_near("mean", got, want, fx_builds ? 0 : FX_NEAR, C);
    fx_near("M2", got + C, want + C, fx_builds ? 0 : FX_NEAR, C);
    free(got);
}

/* Normalisation, addition and ReLU in one kernel or in several, with the gradients of normalisation and ReLU. */
typedef struct sum_case {
    lk_shape shape;
    size_t others; /* channels of the addend; 0: no addition */
    int groups;    /* 1, or shards */
    bool relu, at_once;
    const float *x, *other, *rows; // (n, h, w, c), (n, h, w, others), (4, shards * c)
} sum_case;

static void run_sum(lk_device *d, const void *arg, float *out)
{
    const sum_case *s = arg;
    size_t c = s->shape.c, row = (size_t)s->groups * c;
    lk_shape narrow = s->shape;
    narrow.c = s->others;
    lk_tensor x = fx_input(d, s->shape, s->x), other = fx_input(d, narrow, s->other), y = fx_tensor(d, s->shape);
    lk_tensor wide = fx_tensor(d, s->shape), dy = fx_input(d, s->shape, s->x);
    float *rows = fx_floats(d, s->rows, 4 * row);
    lk_moments m = {.groups = s->groups, .mean = rows, .scale = rows + row};
    lk_batchnorm_desc desc = {.gamma = rows + 2 * row, .beta = rows + 3 * row};
    fx_wave v;
    fx_wave_init(&v, s->shape.n, s->groups, 0, s->groups);
    lk_batchnorm_grad grad = {.sums = fx_floats(d, s->rows, 2 * row), .rows = v.rows};
    lk_tensor sum = fx_input(d, s->shape, s->x), part = fx_tensor(d, s->shape);
    if (s->at_once) {
        grad.add = true;
        desc.relu = s->relu;
        d->kernels->batchnorm_grad_input(d, &desc, &grad, &x, &dy, &v.shards, &m, &sum);
        desc.other = s->others ? &other : NULL;
        d->kernels->batchnorm_forward(d, &desc, &x, &v.shards, &m, &y);
    } else {
        d->kernels->batchnorm_forward(d, &desc, &x, &v.shards, &m, &y);
        if (s->relu)
            d->kernels->relu_grad_input(d, &y, &dy, &dy);
        d->kernels->fit_channels(d, &other, &wide);
        d->kernels->add(d, &y, &wide, s->relu, &y);
        d->kernels->batchnorm_grad_input(d, &desc, &grad, &x, &dy, &v.shards, &m, &part);
        d->kernels->add(d, &sum, &part, false, &sum);
    }
    fx_read(d, &y, out);
    fx_read(d, &sum, out + lk__shape_count(s->shape));
}

static void check_sum(sum_case s)
{
    size_t count = lk__shape_count(s.shape), row = (size_t)s.groups * s.shape.c;
    if (fx_too_large(count))
        return;
    float *x = random_values(count, 7), *rows = random_floats(4 * row, 9);
    float *other = random_values(count / s.shape.c * s.others, 8);
    s.x = x;
    s.other = other;
    s.rows = rows;
    if (count)
        x[count / 2] = NAN; /* a NaN passes a ReLU */
    /* y is 0 in channel 0, and a number that bf16 rounds to 0 in the last channel. */
    rows[2 * row] = rows[3 * row] = rows[2 * row + s.shape.c - 1] = 0;
    rows[3 * row + s.shape.c - 1] = 0x1p-140f;
    for (int relu = 0; relu < 2; relu++) {
        s.relu = relu;
        s.at_once = true;
        float *got = fx_bits("batchnorm and addition", run_sum, &s, 2 * count);
        s.at_once = false;
        float *want = fx_bits_brief("batchnorm, addition", run_sum, &s, 2 * count);
        fx_same("batchnorm and addition", got, want, 2 * count);
        assert_true(!count || isnan(got[count / 2]));
        free(got);
        free(want);
    }
    free(x);
    free(rows);
    free(other);
}

/* The bits of separate kernels. */
static void test_addition(void **state)
{
    static const struct {
        size_t c, others;
    } channels[] = {{16, 16}, {21, 16}, {26, 21}, {40, 21},   {64, 3},  {3, 3},
                    {3, 1},   {2, 1},   {37, 37}, {106, 101}, {300, 30}};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        for (int groups = 1; groups <= 5; groups += 2)
            check_sum((sum_case){{7, channels[i].c, 5, 6}, .others = channels[i].others, .groups = groups});
        check_sum((sum_case){{0, channels[i].c, 5, 6}, .others = channels[i].others, .groups = 1});
    }
    check_sum((sum_case){{33, 24, 32, 32}, .others = 16, .groups = 3});
}

/* One NaN in x at a time, on the CPU: in every lane and tail of vectors, followed by a ReLU, with and without an
 * addition. */
static void test_nan_at_every_element(void **state)
{
    static const size_t channels[] = {1, 7, 37};
    for (size_t k = 0; fx_builds && k < 2 * COUNT_OF(channels); k++) {
        size_t c = channels[k / 2], count = 3 * c;
        sum_case s = {{1, c, 3, 1}, .others = k % 2 ? c : 0, .groups = 1, .relu = true, .at_once = true};
        float *x = random_values(count, 1), *rows = random_floats(4 * c, 3), *other = random_values(count, 2);
        s.x = x;
        s.rows = rows;
        s.other = other;
        float *want = fx_bits_brief("batchnorm", run_sum, &s, 2 * count);
        for (size_t at = 0; at < count; at++) {
            float number = x[at], result = want[at];
            want[at] = x[at] = NAN;
            float *got = fx_bits_brief("batchnorm of a NaN", run_sum, &s, 2 * count);
            fx_same("batchnorm of a NaN", got, want, count);
            free(got);
            x[at] = number;
            want[at] = result;
        }
        free(x);
        free(rows);
        free(other);
        free(want);
    }
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv,
                          TESTS(TEST(test_batchnorm), TEST(test_one_sample), TEST(test_far_mean), TEST(test_addition),
                                TEST(test_nan_at_every_element)),
                          FX_FP32 | FX_BF16);
}
