/* slots_linear.c - linear layers and their gradients against double, after a
 * vector and after a flattened tensor that the device gives as a view. */
#include "cuda/layer_sums.h"

typedef struct linear_case {
    size_t n, channels, pixels, out; /* in = channels * pixels */
    int shards, wave;                /* 0: one, all of them */
    const float *x, *dy, *w, *b;     // (n, pixels, channels), (n, out), (out, channels, pixels), (out)
    const float *mask;               // as x
} linear_case;

static bool has_view(const lk_device *d, const linear_case *c)
{
    return d->type->flat_views && c->pixels > 1;
}

static size_t in_of(const linear_case *c)
{
    return c->channels * c->pixels;
}

static lk_device_weight weight_of(const lk_device *d, const linear_case *c)
{
    return (lk_device_weight){.out = c->out, .in = in_of(c), .pixels = has_view(d, c) ? c->pixels : 1};
}

static lk_shape image(const linear_case *c)
{
    return (lk_shape){.n = c->n, .c = c->channels, .h = c->pixels, .w = 1};
}

static lk_shape flat(size_t n, size_t features)
{
    return (lk_shape){.n = n, .c = features, .h = 1, .w = 1};
}

/* The features of an image as one long pixel, which is what a plan gives. */
static lk_tensor as_view(lk_tensor t)
{
    t.pitch = t.shape.h * t.shape.w * lk__tensor_pitch(&t);
    t.shape = flat(t.shape.n, lk__shape_sample(t.shape));
    return t;
}

static lk_tensor make_x(lk_device *d, const linear_case *c)
{
    if (has_view(d, c))
        return as_view(fx_input(d, image(c), c->x));
    float *features = new_floats(c->n * in_of(c));
    for (size_t i = 0; i < c->n * in_of(c); i++) {
        size_t channel = i % c->channels, pixel = i / c->channels % c->pixels, n = i / in_of(c);
        features[n * in_of(c) + channel * c->pixels + pixel] = c->x[i];
    }
    lk_tensor t = fx_input(d, flat(c->n, in_of(c)), features);
    free(features);
    return t;
}

static lk_tensor make_dx(lk_device *d, const linear_case *c)
{
    return has_view(d, c) ? as_view(fx_tensor(d, image(c))) : fx_tensor(d, flat(c->n, in_of(c)));
}

/* As (n, pixels, channels). */
static void read_dx(lk_device *d, const linear_case *c, const lk_tensor *dx, float *out)
{
    if (has_view(d, c)) {
        lk_tensor t = fx_shape(d, image(c));
        t.data = dx->data;
        fx_read(d, &t, out);
        return;
    }
    float *features = new_floats(c->n * in_of(c));
    fx_read(d, dx, features);
    for (size_t i = 0; i < c->n * in_of(c); i++) {
        size_t channel = i % c->channels, pixel = i / c->channels % c->pixels, n = i / in_of(c);
        out[i] = features[n * in_of(c) + channel * c->pixels + pixel];
    }
    free(features);
}

static layer_layout layout_of(const linear_case *c)
{
    return layer_layout_of(c->n * c->out, c->n * in_of(c), c->out * in_of(c), c->out);
}

static void run_weight_grads(lk_device *d, const linear_case *c, const lk_tensor *x, const lk_tensor *dy, void *scratch,
                             float *out)
{
    fx_grads grads = fx_grads_make(d, weight_of(d, c), c->out * in_of(c));
    int wave = c->wave ? c->wave : c->shards;
    for (int lo = 0; lo < c->shards; lo += wave) {
        fx_wave v;
        fx_wave_init(&v, c->n, c->shards, lo, wave);
        lk_tensor part_x = lk__tensor_rows(x, v.first, v.n), part_dy = lk__tensor_rows(dy, v.first, v.n);
        d->kernels->linear_grad_weight(d, &part_x, &part_dy, &v.shards, fx_weight_sums(&grads), fx_bias_sums(&grads),
                                       scratch);
    }
    fx_grads_read(d, &grads, c->out * in_of(c), true, out);
}

static void run_linear(lk_device *d, const void *arg, float *out)
{
    const linear_case *c = arg;
    const lk_kernels *k = d->kernels;
    lk_device_weight weight = weight_of(d, c);
    layer_layout l = layout_of(c);
    lk_shape ys = flat(c->n, c->out);
    lk_tensor x = make_x(d, c), dy = fx_input(d, ys, c->dy), y = fx_tensor(d, ys), y_relu = fx_tensor(d, ys);
    lk_tensor dx = make_dx(d, c), masked = make_dx(d, c);
    void *w = fx_weights(d, &weight, c->w), *b = fx_parameter(d, c->b, c->out);
    void *scratch = fx_blank(d, k->linear_scratch(d, flat(c->n, in_of(c)), ys));
    k->linear_forward(d, &x, w, b, false, &y, scratch);
    k->linear_forward(d, &x, w, b, true, &y_relu, scratch);
    k->linear_grad_input(d, &dy, w, NULL, &dx, scratch);
    k->linear_grad_input(d, &dy, w, &x, &masked, scratch);
    run_weight_grads(d, c, &x, &dy, scratch, out + l.dw);
    fx_read(d, &y, out + l.y);
    fx_read(d, &y_relu, out + l.y_relu);
    read_dx(d, c, &dx, out + l.dx);
    read_dx(d, c, &masked, out + l.dx_masked);
}

static void refer_output(const linear_case *c, layer_sums *s, size_t n, size_t o)
{
    size_t at_y = n * c->out + o, in = in_of(c);
    double dy = (double)c->dy[at_y];
    for (size_t i = 0; i < in; i++) {
        size_t at_x = n * in + i, at_w = o * in + i % c->channels * c->pixels + i / c->channels;
        double x = (double)c->x[at_x], w = (double)c->w[at_w];
        add_product(s, s->l.y + at_y, x * w);
        add_product(s, s->l.dx + at_x, dy * w);
        add_product(s, s->l.dw + at_w, dy * x);
    }
    s->sum[s->l.y + at_y] += (double)c->b[o];
    add_product(s, s->l.db + o, dy);
}

static void refer(const linear_case *c, layer_sums *s)
{
    for (size_t i = 0; i < c->n * c->out; i++)
        refer_output(c, s, i / c->out, i % c->out);
    layer_sums_finish(s, c->x);
}

static void check(linear_case c)
{
    c.shards = c.shards ? c.shards : 1;
    layer_layout l = layout_of(&c);
    float *x = random_values(c.n * in_of(&c), 1), *dy = random_values(c.n * c.out, 2);
    float *w = random_values(c.out * in_of(&c), 3), *b = random_values(c.out, 4);
    for (size_t i = 0; i < c.n * in_of(&c); i++)
        x[i] = x[i] > -0.25f ? x[i] : 0.0f; /* zeros, negative and positive values */
    c.x = x;
    c.dy = dy;
    c.w = w;
    c.b = b;
    layer_sums s = layer_sums_make(l);
    refer(&c, &s);
    float *got = fx_twice("linear", run_linear, &c, l.count);
    char layer[128];
    snprintf(layer, sizeof layer, "%zu samples, %zu channels of %zu pixels to %zu", c.n, c.channels, c.pixels, c.out);
    layer_sums_compare(&s, layer, got);
    free(got);
    layer_sums_free(&s);
    free(x);
    free(dy);
    free(w);
    free(b);
}

static void test_vectors(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{784, 64}, {64, 64}, {64, 10}, {128, 1000}, {31, 26},
                                      {21, 3},   {3, 31},  {1, 1},   {26, 1}};
    static const size_t batches[] = {1, 5, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t k = 0; k < sizeof batches / sizeof *batches; k++)
            check(
                (linear_case){.n = batches[k], .channels = sizes[i][0], .pixels = 1, .out = sizes[i][1], .shards = 4});
    }
}

static void test_views(void **state)
{
    (void)state;
    check((linear_case){.n = 4, .channels = 64, .pixels = 144, .out = 128, .shards = 2}); /* the cnn's */
    check((linear_case){.n = 5, .channels = 26, .pixels = 9, .out = 10, .shards = 3});
    check((linear_case){.n = 3, .channels = 1, .pixels = 784, .out = 64, .shards = 3});
    check((linear_case){.n = 2, .channels = 3, .pixels = 25, .out = 21});
    check((linear_case){.n = 7, .channels = 31, .pixels = 4, .out = 1000, .shards = 2});
}

/* Shards of different sizes, empty ones, and waves. */
static void test_shards(void **state)
{
    (void)state;
    static const struct {
        size_t batch;
        int shards, wave;
    } cuts[] = {{7, 4, 0}, {7, 4, 1}, {13, 5, 2}, {3, 8, 0}, {3, 8, 1}, {1, 1, 0}, {1, 16, 3}, {128, 16, 5}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        linear_case c = {.n = cuts[i].batch, .channels = 37, .pixels = 1, .out = 21};
        c.shards = cuts[i].shards;
        c.wave = cuts[i].wave;
        check(c);
        c.channels = 26;
        c.pixels = 4;
        check(c);
    }
}

static void test_no_samples(void **state)
{
    (void)state;
    check((linear_case){.n = 0, .channels = 64, .pixels = 1, .out = 10, .shards = 4});
    check((linear_case){.n = 0, .channels = 26, .pixels = 4, .out = 10, .shards = 2});
}

/* A forward with a ReLU, and a gradient that takes the ReLU's before it. */
static void run_relus(lk_device *d, const void *arg, float *out)
{
    const linear_case *c = arg;
    const lk_kernels *k = d->kernels;
    lk_device_weight weight = weight_of(d, c);
    lk_shape xs = flat(c->n, in_of(c)), ys = flat(c->n, c->out);
    lk_tensor x = fx_input(d, xs, c->x), dy = fx_input(d, ys, c->dy), mask = fx_input(d, xs, c->mask);
    lk_tensor y = fx_tensor(d, ys), dx = fx_tensor(d, xs);
    void *w = fx_weights(d, &weight, c->w), *b = fx_parameter(d, c->b, c->out);
    void *scratch = fx_blank(d, k->linear_scratch(d, xs, ys));
    k->linear_forward(d, &x, w, b, true, &y, scratch);
    k->linear_grad_input(d, &dy, w, &mask, &dx, scratch);
    fx_read(d, &y, out);
    fx_read(d, &dx, out + lk__shape_count(ys));
}

/* With a NaN in one bias its outputs are NaN, and where the result of the ReLU before
 * it is a NaN the gradient passes, as where it is 1; all else stays. */
static void check_nan(linear_case c)
{
    size_t in = in_of(&c), ins = c.n * in, outs = c.n * c.out;
    float *x = random_values(ins, 1), *dy = random_values(outs, 2), *w = random_values(c.out * in, 3);
    float *b = random_values(c.out, 4), *mask = random_values(ins, 5);
    c.x = x, c.dy = dy, c.w = w, c.b = b, c.mask = mask;
    for (size_t at = 0; at < c.out; at += 1 + c.out / 7) {
        float number = b[at];
        for (size_t i = at % in; i < ins; i += in)
            mask[i] = 1.0f;
        float *want = fx_twice("ReLUs", run_relus, &c, outs + ins);
        for (size_t i = at % in; i < ins; i += in)
            mask[i] = NAN;
        for (size_t i = at; i < outs; i += c.out)
            want[i] = NAN;
        b[at] = NAN;
        float *got = fx_twice("ReLUs with NaNs", run_relus, &c, outs + ins);
        fx_same("ReLUs with NaNs", got, want, outs + ins);
        b[at] = number;
        free(want);
        free(got);
    }
    free(x);
    free(dy);
    free(w);
    free(b);
    free(mask);
}

static void test_nans(void **state)
{
    (void)state;
    static const size_t sizes[][3] = {{64, 784, 64}, {128, 784, 64}, {64, 9216, 128}, {5, 31, 26}, {3, 1, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_nan((linear_case){.n = sizes[i][0], .channels = sizes[i][1], .pixels = 1, .out = sizes[i][2]});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),    cmocka_unit_test(test_views), cmocka_unit_test(test_shards),
        cmocka_unit_test(test_no_samples), cmocka_unit_test(test_nans),
    };
    return fx_main(tests, sizeof tests / sizeof *tests, FX_FP32 | FX_TF32 | FX_BF16);
}
