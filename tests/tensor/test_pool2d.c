/* test_pool2d.c - max, average and global average pooling on the CPU and on GPUs. Maxima are exact; the CPU's means
 * have the bits of the kernels' order of additions. */
#include "tensor/kernel_test.h"

/* The same windows along both axes, without dilation. */
#define POOL(kernel, stride, pad)             \
    {                                         \
        LK_WINDOW_SQUARE(kernel, stride, pad) \
    }

typedef struct pool_case {
    lk_pool2d_desc pool;
    lk_shape in, out;
    const float *x, *dy;
    bool mask;           /* x is the result of a ReLU */
    bool drop, channels; /* a dropout after the pooling; of whole channels */
    bool apart;          /* the dropout is a separate kernel */
    bool brief;          /* fewer thread counts on the CPU, for loops over many cases */
} pool_case;

/* Windows that are combined with all channel counts of a test. */
static const lk_pool2d_desc pools[] = {POOL(2, 2, 0),
                                       POOL(3, 2, 1),
                                       POOL(3, 1, 1),
                                       POOL(3, 3, 0),
                                       POOL(2, 1, 0),
                                       POOL(5, 2, 2),
                                       {{3, 2, 1, 1}, {2, 1, 0, 1}}};

static const struct {
    lk_pool2d_desc pool;
    lk_shape in;
} cases[] = {
    {POOL(2, 2, 0), {3, 64, 24, 24}},
    {POOL(2, 2, 0), {2, 3, 7, 9}},
    {POOL(2, 2, 0), {1, 21, 8, 5}},
    {POOL(3, 3, 0), {2, 10, 11, 9}},
    {POOL(3, 2, 1), {2, 16, 9, 8}},
    {POOL(3, 1, 1), {5, 21, 16, 15}},
    {POOL(2, 3, 0), {1, 3, 8, 8}},
    {POOL(2, 2, 1), {1, 1, 6, 6}},
    {POOL(1, 1, 0), {1, 10, 3, 3}},
    {POOL(16, 16, 0), {1, 3, 16, 16}},
    {POOL(2, 1, 0), {2, 19, 6, 6}},
    {POOL(2, 2, 0), {2, 19, 6, 6}},
    {POOL(2, 2, 0), {0, 26, 8, 8}},
    /* Several output pixels together, and the last ones of a row and of a tensor. */
    {POOL(2, 2, 0), {2, 6, 28, 29}},
    {POOL(2, 2, 0), {3, 16, 10, 11}},
    {POOL(2, 2, 0), {2, 1, 6, 35}},
    {POOL(2, 2, 0), {1, 15, 4, 34}},
    {POOL(3, 2, 1), {2, 6, 9, 26}},
    {POOL(3, 2, 1), {2, 20, 8, 17}},
    {POOL(3, 2, 1), {2, 64, 9, 17}},
    {POOL(3, 2, 0), {1, 80, 7, 18}},
    {{{3, 2, 2, 2}, {3, 2, 2, 2}}, {2, 7, 9, 27}},
    {POOL(2, 2, 0), {17, 64, 24, 24}},
    {{{1, 1, 0, 1}, {7, 2, 3, 1}}, {2, 21, 6, 11}},
    {{{7, 1, 3, 1}, {1, 1, 0, 1}}, {2, 5, 9, 4}},
    {{{2, 2, 0, 1}, {3, 3, 0, 1}}, {2, 21, 8, 9}},
    {{{1, 1, 0, 1}, {255, 1, 100, 1}}, {1, 3, 2, 300}},
    {{{3, 1, 2, 2}, {3, 1, 2, 2}}, {2, 10, 9, 8}},
    {{{3, 2, 1, 1}, {3, 1, 3, 3}}, {2, 19, 9, 11}},
    {{{2, 2, 0, 3}, {4, 5, 4, 4}}, {3, 33, 7, 16}},
    {{{2, 2, 0, 2}, {2, 2, 0, 2}}, {1, 16, 8, 8}},
};

static size_t count_windows(const lk_window *w, size_t x)
{
    return (x + 2 * w->pad - lk__window_extent(w)) / w->stride + 1;
}

static pool_case make_case(lk_pool2d_desc pool, lk_shape in)
{
    pool_case p = {.pool = pool, .in = in, .out = in};
    p.out.h = count_windows(&pool.h, in.h);
    p.out.w = count_windows(&pool.w, in.w);
    return p;
}

static float *results_of(const char *what, fx_run run, const pool_case *p, size_t count)
{
    return (p->brief ? fx_bits_brief : fx_bits)(what, run, p, count);
}

/* Calls check for every pool and channel count with two shapes, of 3 and of n samples. */
static void check_pools(void (*check)(pool_case p), const size_t *channels, size_t count, size_t n)
{
    for (size_t i = 0; i < 2 * count * COUNT_OF(pools); i++) {
        lk_shape large = {3, channels[i / 2 / COUNT_OF(pools)], 9, 8}, small = {n, large.c, 6, 7};
        pool_case p = make_case(pools[i / 2 % COUNT_OF(pools)], i % 2 ? small : large);
        p.brief = true;
        check(p);
    }
}

static const uint32_t ids[] = {7, 0, 4000000000u, 3, 4, 13, 16, 19, 22, 25, 28, 31, 34, 37, 40, 43, 46};

/* Results: y, indices in the window as floats (0 with a dropout), dx. */
static void run_maxpool(lk_device *d, const void *arg, float *out)
{
    const pool_case *p = arg;
    const lk_kernels *k = d->kernels;
    const uint32_t step = 5;
    lk_tensor x = fx_input(d, p->in, p->x), y = fx_tensor(d, p->out), dy = fx_input(d, p->out, p->dy);
    lk_tensor dx = fx_tensor(d, p->in);
    size_t outs = lk__shape_count(p->out), bytes = p->out.n * p->out.h * p->out.w * lk__tensor_pitch(&y);
    uint8_t *index = fx_blank(d, bytes), *host = malloc(bytes + 1);
    lk_dropout_desc desc = {.p = 0.25f, .seed = 3, .layer = 2, .channels = p->channels};
    desc.step = fx_put(d, &step, sizeof step);
    desc.ids = fx_put(d, ids, sizeof ids);
    const lk_dropout_desc *behind = p->drop && !p->apart ? &desc : NULL;
    assert_non_null(host);
    k->maxpool_forward(d, &p->pool, behind, &x, p->mask, &y, index);
    if (p->drop && p->apart) {
        k->dropout(d, &desc, &y, &y);
        k->dropout(d, &desc, &dy, &dy);
    }
    k->maxpool_grad_input(d, &p->pool, behind, &dy, index, &dx);
    fx_read(d, &y, out);
    fx_get(d, index, bytes, host);
    for (size_t i = 0; i < outs; i++)
        out[outs + i] = p->drop ? 0.0f : (float)host[i / p->out.c * lk__tensor_pitch(&y) + i % p->out.c];
    fx_read(d, &dx, out + 2 * outs);
    free(host);
}

/* The input at index k of the window of output element i; SIZE_MAX: outside the input. */
static size_t input_of(const pool_case *p, size_t i, size_t k)
{
    size_t c = i % p->out.c, ox = i / p->out.c % p->out.w, oy = i / p->out.c / p->out.w % p->out.h;
    size_t n = i / lk__shape_sample(p->out);
    const lk_window *h = &p->pool.h, *w = &p->pool.w;
    size_t y = oy * h->stride + k / w->kernel * h->dilation - h->pad; /* negative values wrap around */
    size_t x = ox * w->stride + k % w->kernel * w->dilation - w->pad;
    return y < p->in.h && x < p->in.w ? ((n * p->in.h + y) * p->in.w + x) * p->in.c + c : SIZE_MAX;
}

/* The largest input of output element i, and its index in the window: the first NaN, otherwise the first of the
 * largest. */
static size_t find_winner(const pool_case *p, size_t i, size_t *index)
{
    size_t best = SIZE_MAX;
    for (size_t k = 0; k < p->pool.h.kernel * p->pool.w.kernel; k++) {
        size_t at = input_of(p, i, k);
        if (at == SIZE_MAX ||
            (best != SIZE_MAX && !(p->x[at] > p->x[best]) && !(isnan(p->x[at]) && !isnan(p->x[best]))))
            continue;
        best = at;
        *index = k;
    }
    return best;
}

/* Gradients are added in the order of the outputs, as in the kernels. */
static void expect_maxpool(const pool_case *p, float *want)
{
    size_t outs = lk__shape_count(p->out), ins = lk__shape_count(p->in);
    memset(want + 2 * outs, 0, ins * sizeof *want);
    for (size_t i = 0; i < outs; i++) {
        size_t index = 0, at = find_winner(p, i, &index);
        bool masked = p->mask && p->x[at] <= 0;
        want[i] = p->x[at];
        want[outs + i] = masked ? LK_POOL2D_NO_GRADIENT : (float)index;
        want[2 * outs + at] += masked ? 0.0f : p->dy[i];
    }
}

/* Values with many equal ones, then results of a ReLU, then both with NaNs. */
static void check_maxpool(pool_case p)
{
    size_t ins = lk__shape_count(p.in), outs = lk__shape_count(p.out), count = 2 * outs + ins;
    if (fx_too_large(ins))
        return;
    float *x = random_values(ins, 10), *dy = random_values(outs, 11), *want = new_floats(count);
    p.x = x;
    p.dy = dy;
    for (int way = 0; way < 4; way++) {
        p.mask = way == 1 || way == 2;
        for (size_t i = 0; i < ins; i++)
            x[i] = way > 0 && x[i] <= 0 ? 0.0f : floorf(x[i] * 8) / 8;
        for (size_t i = 3; way > 1 && i < ins; i += 11)
            x[i] = i % 2 ? NAN : -NAN;
        expect_maxpool(&p, want);
        float *got = results_of("maxpool", run_maxpool, &p, count);
        fx_same_values("maxpool", got, want, count);
        free(got);
    }
    free(x);
    free(dy);
    free(want);
}

/* h x w windows, of which the last may reach beyond the padded input. */
static void check_ceil(lk_pool2d_desc pool, lk_shape in, size_t h, size_t w)
{
    check_maxpool((pool_case){.pool = pool, .in = in, .out = {in.n, in.c, h, w}});
}

static void test_maxpool(void **state)
{
    static const size_t channels[] = {1, 3, 21, 26, 31, 64};
    check_ceil((lk_pool2d_desc)POOL(2, 2, 0), (lk_shape){2, 21, 7, 9}, 4, 5);
    check_ceil((lk_pool2d_desc)POOL(2, 2, 0), (lk_shape){2, 21, 8, 9}, 4, 5);
    check_ceil((lk_pool2d_desc)POOL(3, 2, 1), (lk_shape){2, 16, 9, 8}, 5, 5);
    check_ceil((lk_pool2d_desc){{2, 3, 0, 2}, {3, 2, 1, 1}}, (lk_shape){2, 16, 8, 8}, 3, 5);
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_maxpool(make_case(cases[i].pool, cases[i].in));
    check_pools(check_maxpool, channels, COUNT_OF(channels), 1);
}

/* One NaN at each pixel and channel, on the CPU: in every lane and tail of vectors. A dropout passes NaNs. */
static void check_nan_everywhere(pool_case p)
{
    size_t ins = lk__shape_count(p.in), outs = lk__shape_count(p.out), count = 2 * outs + ins;
    float *x = random_values(ins, 1), *dy = random_values(outs, 2), *want = new_floats(count);
    p.x = x;
    p.dy = dy;
    float *plain = fx_bits_brief("maxpool", run_maxpool, &p, count);
    for (size_t at = 0; at < ins; at++) {
        float number = x[at];
        x[at] = NAN;
        expect_maxpool(&p, want);
        for (size_t i = 0; p.drop && i < outs; i++)
            want[i] = isnan(want[i]) ? NAN : plain[i];
        float *got = fx_bits_brief("maxpool of a NaN", run_maxpool, &p, count);
        fx_same("maxpool of a NaN", got, want, p.drop ? outs : count);
        free(got);
        x[at] = number;
    }
    free(x);
    free(dy);
    free(want);
    free(plain);
}

static void test_nan_at_every_element(void **state)
{
    static const size_t channels[] = {1, 3, 21, 33};
    for (size_t i = 0; fx_builds && i < 6 * COUNT_OF(channels); i++) {
        pool_case p = make_case(pools[i % 2], (lk_shape){1, channels[i / 6], 5, 4});
        p.mask = i % 6 / 2 == 1;
        p.drop = i % 6 / 2 == 2;
        check_nan_everywhere(p);
    }
}

/* The first of several NaNs gets the gradient. */
static void test_first_nan(void **state)
{
    static const float x[9] = {1, 2, NAN, 9, NAN, 3, NAN, 7, 8}, dy = 5;
    static const float want[11] = {NAN, 2, 0, 0, 5, 0, 0, 0, 0, 0, 0};
    pool_case p = make_case((lk_pool2d_desc)POOL(3, 3, 0), (lk_shape){1, 1, 3, 3});
    p.x = x;
    p.dy = &dy;
    fx_check("the first of several NaNs", run_maxpool, &p, want, COUNT_OF(want));
}

/* One kernel gives the bits of two. */
static void check_dropout(pool_case p)
{
    size_t ins = lk__shape_count(p.in), outs = lk__shape_count(p.out), count = 2 * outs + ins;
    if (fx_too_large(ins))
        return;
    float *x = random_values(ins, 14), *dy = random_values(outs, 15);
    p.x = x;
    p.dy = dy;
    p.drop = true;
    for (int mode = 0; mode < 4; mode++) {
        p.mask = mode % 2;
        p.channels = mode / 2;
        p.apart = true;
        float *want = fx_bits_brief("maxpool, dropout", run_maxpool, &p, count);
        p.apart = false;
        float *got = results_of("maxpool with dropout", run_maxpool, &p, count);
        fx_same("maxpool with dropout", got, want, count);
        free(got);
        free(want);
    }
    free(x);
    free(dy);
}

static void test_dropout(void **state)
{
    static const size_t channels[] = {1, 3, 21, 64};
    check_dropout(make_case((lk_pool2d_desc)POOL(2, 2, 0), (lk_shape){4, 64, 24, 24}));
    check_dropout(make_case((lk_pool2d_desc)POOL(2, 2, 0), (lk_shape){3, 21, 6, 6}));
    check_dropout(make_case((lk_pool2d_desc)POOL(3, 2, 1), (lk_shape){2, 19, 9, 8}));
    check_dropout(make_case((lk_pool2d_desc)POOL(2, 1, 0), (lk_shape){3, 1, 7, 5}));
    check_dropout(make_case((lk_pool2d_desc)POOL(4, 4, 0), (lk_shape){2, 35, 4, 4}));
    check_dropout(make_case((lk_pool2d_desc)POOL(2, 2, 0), (lk_shape){0, 26, 8, 8}));
    check_dropout(make_case((lk_pool2d_desc)POOL(2, 2, 0), (lk_shape){17, 64, 24, 24}));
    check_pools(check_dropout, channels, COUNT_OF(channels), 2);
}

/* Results: y, dx. */
static void run_means(lk_device *d, const void *arg, float *out)
{
    const pool_case *p = arg;
    lk_tensor x = fx_input(d, p->in, p->x), y = fx_tensor(d, p->out), dy = fx_input(d, p->out, p->dy);
    lk_tensor dx = fx_tensor(d, p->in);
    if (p->pool.h.kernel) {
        d->kernels->avgpool_forward(d, &p->pool, &x, &y);
        d->kernels->avgpool_grad_input(d, &p->pool, &dy, &dx);
    } else {
        d->kernels->global_avgpool_forward(d, &x, &y);
        d->kernels->global_avgpool_grad_input(d, &dy, &dx);
    }
    fx_read(d, &y, out);
    fx_read(d, &dx, out + lk__shape_count(p->out));
}

/* The mean of output element i, and its part of the gradient, in the kernels' order. Padding counts; elements
 * beyond the padding do not. */
static void expect_mean(const pool_case *p, size_t i, float *y, float *dx)
{
    const lk_window *h = &p->pool.h, *w = &p->pool.w;
    size_t ox = i / p->out.c % p->out.w, oy = i / p->out.c / p->out.w % p->out.h, size = 0;
    float sum = 0;
    for (size_t tap = 0; tap < h->kernel * w->kernel; tap++) {
        size_t at = input_of(p, i, tap);
        size += oy * h->stride + tap / w->kernel < p->in.h + 2 * h->pad &&
                ox * w->stride + tap % w->kernel < p->in.w + 2 * w->pad;
        sum += at == SIZE_MAX ? 0.0f : p->x[at];
    }
    y[i] = sum / (float)size;
    for (size_t tap = 0; tap < h->kernel * w->kernel; tap++) {
        size_t at = input_of(p, i, tap);
        if (at != SIZE_MAX)
            dx[at] += p->dy[i] / (float)size;
    }
}

static double *doubles_of(const float *x, size_t count)
{
    double *y = new_doubles(count);
    for (size_t i = 0; i < count; i++)
        y[i] = (double)x[i];
    return y;
}

static void check_means(pool_case p)
{
    size_t ins = lk__shape_count(p.in), outs = lk__shape_count(p.out);
    if (fx_too_large(ins))
        return;
    float *x = random_values(ins, 1), *dy = random_values(outs, 2), *want = new_floats(outs + ins);
    if (outs)
        x[0] = dy[0] = -0.0f;
    p.x = x;
    p.dy = dy;
    for (size_t i = 0; i < outs; i++)
        expect_mean(&p, i, want, want + outs);
    float *got = results_of("avgpool", run_means, &p, outs + ins);
    double *truth = doubles_of(want, outs + ins);
    fx_near_values("avgpool", got, truth, FX_NEAR, outs);
    fx_near_values("gradient of avgpool", got + outs, truth + outs, FX_NEAR, ins);
    if (fx_builds)
        fx_same("avgpool in the kernels' order", got, want, outs + ins);
    free(got);
    free(truth);
    free(want);
    free(x);
    free(dy);
}

/* h x w windows. */
static void check_windows(lk_pool2d_desc pool, lk_shape in, size_t h, size_t w)
{
    check_means((pool_case){.pool = pool, .in = in, .out = {in.n, in.c, h, w}});
}

static void test_means(void **state)
{
    static const size_t channels[] = {1, 3, 21, 26, 31, 64};
    check_windows((lk_pool2d_desc)POOL(2, 2, 0), (lk_shape){3, 64, 24, 24}, 12, 12);
    check_windows((lk_pool2d_desc)POOL(2, 2, 0), (lk_shape){2, 3, 7, 9}, 3, 4);
    check_windows((lk_pool2d_desc)POOL(2, 2, 0), (lk_shape){2, 21, 7, 9}, 4, 5); /* ceil */
    check_windows((lk_pool2d_desc)POOL(2, 2, 0), (lk_shape){3, 26, 7, 5}, 4, 3); /* ceil: PyramidNet's shortcuts */
    check_windows((lk_pool2d_desc)POOL(2, 2, 0), (lk_shape){3, 10, 1, 1}, 1, 1); /* ceil */
    check_windows((lk_pool2d_desc)POOL(8, 8, 0), (lk_shape){5, 35, 8, 8}, 1, 1);
    check_windows((lk_pool2d_desc)POOL(3, 1, 1), (lk_shape){4, 21, 16, 15}, 16, 15);
    check_windows((lk_pool2d_desc)POOL(3, 2, 1), (lk_shape){2, 16, 9, 8}, 5, 4);
    check_windows((lk_pool2d_desc)POOL(3, 2, 1), (lk_shape){2, 16, 9, 8}, 5, 5); /* ceil */
    check_windows((lk_pool2d_desc)POOL(2, 3, 0), (lk_shape){1, 3, 8, 8}, 3, 3);  /* with gaps */
    check_windows((lk_pool2d_desc)POOL(2, 5, 1), (lk_shape){1, 5, 8, 8}, 2, 2);  /* with gaps */
    check_windows((lk_pool2d_desc)POOL(1, 1, 0), (lk_shape){1, 10, 3, 3}, 3, 3);
    check_windows((lk_pool2d_desc){{1, 1, 0, 1}, {7, 2, 3, 1}}, (lk_shape){2, 21, 6, 11}, 6, 6);
    check_windows((lk_pool2d_desc){{7, 1, 3, 1}, {1, 1, 0, 1}}, (lk_shape){2, 5, 9, 4}, 9, 4);
    check_windows((lk_pool2d_desc){{3, 2, 1, 1}, {2, 3, 0, 1}}, (lk_shape){2, 16, 8, 7}, 5, 3); /* ceil */
    check_means(make_case(pools[0], (lk_shape){0, 26, 8, 8}));
    check_means(make_case(pools[0], (lk_shape){17, 64, 24, 24}));
    check_pools(check_means, channels, COUNT_OF(channels), 1);
}

static void check_global(lk_shape in)
{
    size_t ins = lk__shape_count(in), outs = in.n * in.c, pixels = in.h * in.w;
    if (fx_too_large(ins))
        return;
    float *x = random_values(ins, 1), *dy = random_values(outs, 2);
    double *y = new_doubles(outs), *dx = new_doubles(ins);
    for (size_t i = 0; i < ins; i++) {
        size_t o = i / in.c / pixels * in.c + i % in.c;
        y[o] += (double)x[i] / (double)pixels;
        dx[i] = (double)dy[o] / (double)pixels;
    }
    pool_case p = {.in = in, .out = {in.n, in.c, 1, 1}, .x = x, .dy = dy};
    float *got = fx_bits("global_avgpool", run_means, &p, outs + ins);
    fx_near_values("global_avgpool", got, y, FX_NEAR, outs);
    fx_near_values("gradient of global_avgpool", got + outs, dx, fx_builds ? 1e-6 : FX_NEAR, ins);
    free(got);
    free(x);
    free(dy);
    free(y);
    free(dx);
}

static void test_global_avgpool(void **state)
{
    static const lk_shape shapes[] = {
        {1, 3, 1, 1},   {9, 64, 8, 8},   {2, 10, 7, 5}, {3, 21, 3, 3},    {30, 16, 9, 9}, {1, 1, 5, 3},
        {3, 3, 7, 5},   {2, 4, 3, 3},    {5, 21, 4, 6}, {2, 26, 8, 8},    {7, 31, 1, 1},  {4, 64, 6, 5},
        {13, 10, 1, 1}, {1, 1000, 1, 1}, {0, 21, 4, 4}, {33, 16, 32, 32},
    };
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        check_global(shapes[i]);
}

/* Results: y, index as floats, dx. */
static void run_global_max(lk_device *d, const void *arg, float *out)
{
    const pool_case *p = arg;
    size_t outs = p->in.n * p->in.c, pitch = lk__device_pitch(d, p->in.c);
    lk_tensor x = fx_input(d, p->in, p->x), y = fx_tensor(d, p->out), dy = fx_input(d, p->out, p->dy);
    lk_tensor dx = fx_tensor(d, p->in);
    int32_t *index = fx_blank(d, p->in.n * pitch * sizeof *index), *host = calloc(p->in.n * pitch + 1, sizeof *host);
    assert_non_null(host);
    d->kernels->global_maxpool_forward(d, &x, &y, index);
    d->kernels->global_maxpool_grad_input(d, &dy, index, &dx);
    fx_read(d, &y, out);
    fx_get(d, index, p->in.n * pitch * sizeof *index, host);
    for (size_t i = 0; i < outs; i++)
        out[outs + i] = (float)host[i / p->in.c * pitch + i % p->in.c];
    fx_read(d, &dx, out + 2 * outs);
    free(host);
}

/* Equal values: the first is taken; NaN: the first NaN. */
static void check_global_max(lk_shape in, bool nan)
{
    size_t ins = lk__shape_count(in), outs = in.n * in.c, pixels = in.h * in.w;
    if (fx_too_large(ins))
        return;
    float *x = random_values(ins, 1), *dy = random_values(outs, 2), *want = new_floats(2 * outs + ins);
    for (size_t i = 0; i < ins; i++)
        x[i] = nan && i % 13 == 7 ? NAN : fx_round(roundf(x[i] * 8) / 8);
    for (size_t o = 0; o < outs; o++) {
        const float *from = x + o / in.c * pixels * in.c + o % in.c;
        size_t best = 0;
        for (size_t p = 1; p < pixels; p++)
            if (!isnan(from[best * in.c]) && !(from[p * in.c] <= from[best * in.c]))
                best = p;
        want[o] = from[best * in.c];
        want[outs + o] = (float)best;
        want[2 * outs + (o / in.c * pixels + best) * in.c + o % in.c] = dy[o];
    }
    pool_case p = {.in = in, .out = {in.n, in.c, 1, 1}, .x = x, .dy = dy};
    float *got = fx_bits("global_maxpool", run_global_max, &p, 2 * outs + ins);
    fx_same("global_maxpool", got, want, 2 * outs + ins);
    free(got);
    free(want);
    free(x);
    free(dy);
}

static void test_global_maxpool(void **state)
{
    static const lk_shape shapes[] = {{1, 3, 1, 1}, {9, 64, 8, 8}, {2, 10, 7, 5}, {3, 21, 3, 3}, {30, 16, 9, 9},
                                      {1, 1, 5, 3}, {7, 31, 1, 1}, {0, 21, 4, 4}, {3, 3, 7, 5},  {33, 16, 32, 32}};
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        check_global_max(shapes[i], false);
        check_global_max(shapes[i], true);
    }
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv,
                          TESTS(TEST(test_maxpool), TEST(test_nan_at_every_element), TEST(test_first_nan),
                                TEST(test_dropout), TEST(test_means), TEST(test_global_avgpool),
                                TEST(test_global_maxpool)),
                          FX_FP32 | FX_BF16);
}
