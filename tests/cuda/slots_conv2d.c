/* slots_conv2d.c - convolutions and their gradients against double. */
#include "cuda/layer_sums.h"

typedef struct conv_case {
    lk_shape x;
    size_t out, kernel, stride, pad, groups;
    int shards, wave; /* of the gradient of weights; 0: all shards */
    bool no_bias;
    const float *values, *dy, *w, *b; // (n, h, w, c), of y, (o, i / groups, k, k), (o)
    const float *mask;                // as values
} conv_case;

static lk_conv2d_desc desc_of(const conv_case *c)
{
    return (lk_conv2d_desc){.kernel = c->kernel, .stride = c->stride, .pad = c->pad, .groups = c->groups};
}

static lk_shape shape_y(const conv_case *c)
{
    return (lk_shape){.n = c->x.n,
                      .c = c->out,
                      .h = (c->x.h + 2 * c->pad - c->kernel) / c->stride + 1,
                      .w = (c->x.w + 2 * c->pad - c->kernel) / c->stride + 1};
}

static lk_device_weight weight_of(const conv_case *c)
{
    return (lk_device_weight){
        .out = c->out, .in = c->x.c / c->groups, .kernel = c->kernel, .groups = c->groups, .pixels = 1};
}

static size_t weights_of(const conv_case *c)
{
    return c->out * (c->x.c / c->groups) * c->kernel * c->kernel;
}

static layer_layout layout_of(const conv_case *c)
{
    return layer_layout_of(lk__shape_count(shape_y(c)), lk__shape_count(c->x), weights_of(c), c->no_bias ? 0 : c->out);
}

static void run_weight_grads(lk_device *d, const conv_case *c, const lk_tensor *x, const lk_tensor *dy, void *scratch,
                             float *out)
{
    lk_conv2d_desc desc = desc_of(c);
    layer_layout l = layout_of(c);
    fx_grads grads = fx_grads_make(d, weight_of(c), l.db - l.dw);
    lk_partials none = {0};
    int wave = c->wave ? c->wave : c->shards;
    for (int lo = 0; lo < c->shards; lo += wave) {
        fx_wave v;
        fx_wave_init(&v, c->x.n, c->shards, lo, wave);
        lk_tensor part_x = lk__tensor_rows(x, v.first, v.n), part_dy = lk__tensor_rows(dy, v.first, v.n);
        d->kernels->conv2d_grad_weight(d, &desc, &part_x, &part_dy, &v.shards, fx_weight_sums(&grads),
                                       c->no_bias ? none : fx_bias_sums(&grads), scratch);
    }
    fx_grads_read(d, &grads, l.db - l.dw, !c->no_bias, out);
}

static void run_conv2d(lk_device *d, const void *arg, float *out)
{
    const conv_case *c = arg;
    const lk_kernels *k = d->kernels;
    lk_conv2d_desc desc = desc_of(c);
    lk_device_weight weight = weight_of(c);
    layer_layout l = layout_of(c);
    lk_shape ys = shape_y(c);
    lk_tensor x = fx_input(d, c->x, c->values), dy = fx_input(d, ys, c->dy);
    lk_tensor y = fx_tensor(d, ys), y_relu = fx_tensor(d, ys), dx = fx_tensor(d, c->x), masked = fx_tensor(d, c->x);
    void *w = fx_weights(d, &weight, c->w), *b = c->no_bias ? NULL : fx_parameter(d, c->b, c->out);
    void *scratch = fx_blank(d, k->conv2d_scratch(d, &desc, c->x, ys));
    k->conv2d_forward(d, &desc, &x, w, b, false, &y, scratch);
    k->conv2d_forward(d, &desc, &x, w, b, true, &y_relu, scratch);
    k->conv2d_grad_input(d, &desc, &dy, w, NULL, &dx, scratch);
    k->conv2d_grad_input(d, &desc, &dy, w, &x, &masked, scratch);
    run_weight_grads(d, c, &x, &dy, scratch, out + l.dw);
    fx_read(d, &y, out + l.y);
    fx_read(d, &y_relu, out + l.y_relu);
    fx_read(d, &dx, out + l.dx);
    fx_read(d, &masked, out + l.dx_masked);
}

/* Everything that output channel o of one output pixel takes part in. */
static void refer_output(const conv_case *c, layer_sums *s, size_t n, size_t oy, size_t ox, size_t o)
{
    lk_shape x = c->x, y = shape_y(c);
    size_t in = x.c / c->groups, k = c->kernel, first = o / (c->out / c->groups) * in;
    size_t at_y = ((n * y.h + oy) * y.w + ox) * c->out + o;
    double dy = (double)c->dy[at_y];
    for (size_t ky = 0; ky < k; ky++) {
        for (size_t kx = 0; kx < k; kx++) {
            size_t iy = oy * c->stride + ky - c->pad, ix = ox * c->stride + kx - c->pad; /* wrap outside */
            if (iy >= x.h || ix >= x.w)
                continue;
            for (size_t i = 0; i < in; i++) {
                size_t at_x = ((n * x.h + iy) * x.w + ix) * x.c + first + i, at_w = ((o * in + i) * k + ky) * k + kx;
                double value = (double)c->values[at_x], w = (double)c->w[at_w];
                add_product(s, s->l.y + at_y, value * w);
                add_product(s, s->l.dx + at_x, dy * w);
                add_product(s, s->l.dw + at_w, dy * value);
            }
        }
    }
    if (!c->no_bias) {
        s->sum[s->l.y + at_y] += (double)c->b[o];
        add_product(s, s->l.db + o, dy);
    }
}

static void refer(const conv_case *c, layer_sums *s)
{
    lk_shape y = shape_y(c);
    for (size_t p = 0; p < y.n * y.h * y.w; p++) {
        for (size_t o = 0; o < c->out; o++)
            refer_output(c, s, p / y.w / y.h, p / y.w % y.h, p % y.w, o);
    }
    layer_sums_finish(s, c->values);
}

static void check(conv_case c)
{
    c.groups = c.groups ? c.groups : 1;
    c.shards = c.shards ? c.shards : 1;
    layer_layout l = layout_of(&c);
    size_t ins = lk__shape_count(c.x);
    float *x = random_values(ins, 1), *dy = random_values(lk__shape_count(shape_y(&c)), 2);
    float *w = random_values(l.db - l.dw, 3), *b = random_values(c.out, 4);
    for (size_t i = 0; i < ins; i++)
        x[i] = x[i] > -0.25f ? x[i] : 0.0f; /* zeros, negative and positive values */
    c.values = x;
    c.dy = dy;
    c.w = w;
    c.b = b;
    layer_sums s = layer_sums_make(l);
    refer(&c, &s);
    float *got = fx_twice("conv2d", run_conv2d, &c, l.count);
    char layer[128];
    snprintf(layer, sizeof layer, "%zux%zux%zux%zu to %zu, kernel %zu, stride %zu, pad %zu, %zu groups", c.x.n, c.x.c,
             c.x.h, c.x.w, c.out, c.kernel, c.stride, c.pad, c.groups);
    layer_sums_compare(&s, layer, got);
    free(got);
    layer_sums_free(&s);
    free(x);
    free(dy);
    free(w);
    free(b);
}

static lk_shape image(size_t n, size_t c, size_t side)
{
    return (lk_shape){.n = n, .c = c, .h = side, .w = side};
}

/* As first layers have them: one or three channels, not padded. */
static void test_first_layers(void **state)
{
    (void)state;
    check((conv_case){.x = image(5, 1, 28), .out = 32, .kernel = 3, .stride = 1, .shards = 4});
    check((conv_case){.x = image(1, 1, 9), .out = 10, .kernel = 5, .stride = 1, .shards = 1});
    check(
        (conv_case){.x = image(3, 3, 16), .out = 16, .kernel = 3, .stride = 1, .pad = 1, .shards = 2, .no_bias = true});
    check(
        (conv_case){.x = image(2, 3, 20), .out = 64, .kernel = 7, .stride = 2, .pad = 3, .shards = 2, .no_bias = true});
    check((conv_case){.x = image(3, 2, 8), .out = 21, .kernel = 3, .stride = 1, .pad = 1, .shards = 3});
}

static void test_odd_channels(void **state)
{
    (void)state;
    static const size_t channels[][2] = {{16, 21}, {21, 26}, {26, 31}, {31, 64}, {64, 31}, {32, 64}, {4, 1}, {10, 10}};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        conv_case c = {.x = image(4, channels[i][0], 8), .out = channels[i][1], .kernel = 3, .pad = 1, .shards = 3};
        for (c.stride = 1; c.stride <= 2; c.stride++) {
            c.no_bias = c.stride == 2;
            check(c);
        }
    }
}

static void test_kernels(void **state)
{
    (void)state;
    for (size_t kernel = 1; kernel <= 7; kernel += 2) {
        for (size_t stride = 1; stride <= 2; stride++) {
            check((conv_case){.x = {2, 26, 9, 12}, .out = 16, .kernel = kernel, .stride = stride, .pad = kernel / 2});
            check((conv_case){.x = {2, 8, 11, 8}, .out = 21, .kernel = kernel, .stride = stride, .no_bias = true});
        }
    }
    check((conv_case){.x = image(2, 12, 6), .out = 9, .kernel = 6, .stride = 1}); /* one output pixel */
}

static void test_groups(void **state)
{
    (void)state;
    check((conv_case){.x = image(3, 32, 8), .out = 32, .kernel = 3, .stride = 1, .pad = 1, .groups = 32, .shards = 2});
    check((conv_case){.x = image(3, 26, 9),
                      .out = 26,
                      .kernel = 3,
                      .stride = 2,
                      .pad = 1,
                      .groups = 26,
                      .shards = 3,
                      .no_bias = true});
    check((conv_case){.x = image(2, 21, 7), .out = 21, .kernel = 5, .stride = 1, .pad = 2, .groups = 21});
    check((conv_case){.x = image(2, 3, 8), .out = 12, .kernel = 3, .stride = 1, .pad = 1, .groups = 3, .shards = 2});
    check((conv_case){.x = image(2, 12, 8), .out = 20, .kernel = 3, .stride = 2, .groups = 4, .shards = 2});
    check((conv_case){.x = image(2, 32, 8), .out = 64, .kernel = 3, .stride = 1, .pad = 1, .groups = 4});
    check((conv_case){.x = image(2, 10, 6), .out = 6, .kernel = 1, .stride = 1, .groups = 2});
}

/* Shards of different sizes, empty ones, and waves. */
static void test_shards(void **state)
{
    (void)state;
    static const struct {
        size_t batch;
        int shards, wave;
    } cuts[] = {{7, 4, 0}, {7, 4, 1}, {13, 5, 2}, {3, 8, 0}, {3, 8, 1}, {1, 1, 0}, {1, 16, 3}, {16, 16, 5}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        conv_case c = {.kernel = 3, .stride = 1, .pad = 1, .shards = cuts[i].shards, .wave = cuts[i].wave};
        c.x = image(cuts[i].batch, 1, 10);
        c.out = 32;
        check(c);
        c.x = image(cuts[i].batch, 26, 5);
        check(c);
        c.groups = 26;
        c.out = 26;
        check(c);
    }
}

static void test_no_samples(void **state)
{
    (void)state;
    check((conv_case){.x = image(0, 1, 8), .out = 32, .kernel = 3, .stride = 1, .shards = 4});
    check((conv_case){.x = image(0, 26, 8), .out = 21, .kernel = 3, .stride = 1, .pad = 1, .shards = 2});
    check((conv_case){.x = image(0, 26, 8), .out = 26, .kernel = 3, .stride = 1, .pad = 1, .groups = 26, .shards = 2});
}

/* The shapes that speed is measured with, in small batches. */
static void test_large(void **state)
{
    (void)state;
    check((conv_case){.x = image(2, 32, 26), .out = 64, .kernel = 3, .stride = 1, .shards = 2});
    check((conv_case){.x = image(1, 101, 16), .out = 106, .kernel = 3, .stride = 1, .pad = 1, .no_bias = true});
    check((conv_case){.x = image(2, 191, 8), .out = 196, .kernel = 3, .stride = 2, .pad = 1, .no_bias = true});
}

/* A forward with a ReLU, and a gradient that takes the ReLU's before it. */
static void run_relus(lk_device *d, const void *arg, float *out)
{
    const conv_case *c = arg;
    const lk_kernels *k = d->kernels;
    lk_conv2d_desc desc = desc_of(c);
    lk_device_weight weight = weight_of(c);
    lk_shape ys = shape_y(c);
    lk_tensor x = fx_input(d, c->x, c->values), dy = fx_input(d, ys, c->dy), mask = fx_input(d, c->x, c->mask);
    lk_tensor y = fx_tensor(d, ys), dx = fx_tensor(d, c->x);
    void *w = fx_weights(d, &weight, c->w), *b = fx_parameter(d, c->b, c->out);
    void *scratch = fx_blank(d, k->conv2d_scratch(d, &desc, c->x, ys));
    k->conv2d_forward(d, &desc, &x, w, b, true, &y, scratch);
    k->conv2d_grad_input(d, &desc, &dy, w, &mask, &dx, scratch);
    fx_read(d, &y, out);
    fx_read(d, &dx, out + lk__shape_count(ys));
}

/* With a NaN in the bias of one channel its outputs are NaN, and where the result of
 * the ReLU before it is a NaN the gradient passes, as where it is 1; all else stays. */
static void check_nan(conv_case c)
{
    c.groups = c.groups ? c.groups : 1;
    size_t ins = lk__shape_count(c.x), outs = lk__shape_count(shape_y(&c));
    float *x = random_values(ins, 1), *dy = random_values(outs, 2), *w = random_values(weights_of(&c), 3);
    float *b = random_values(c.out, 4), *mask = random_values(ins, 5);
    c.values = x, c.dy = dy, c.w = w, c.b = b, c.mask = mask;
    for (size_t at = 0; at < c.out; at += 5) {
        float number = b[at];
        for (size_t i = at % c.x.c; i < ins; i += c.x.c)
            mask[i] = 1.0f;
        float *want = fx_twice("ReLUs", run_relus, &c, outs + ins);
        for (size_t i = at % c.x.c; i < ins; i += c.x.c)
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

/* Each engine, and of cuDNN several algorithms. */
static void test_nans(void **state)
{
    (void)state;
    check_nan((conv_case){.x = image(5, 1, 28), .out = 32, .kernel = 3, .stride = 1});
    check_nan((conv_case){.x = image(3, 32, 8), .out = 32, .kernel = 3, .stride = 1, .pad = 1, .groups = 32});
    check_nan((conv_case){.x = image(2, 21, 7), .out = 21, .kernel = 5, .stride = 1, .pad = 2, .groups = 21});
    check_nan((conv_case){.x = image(2, 10, 6), .out = 6, .kernel = 1, .stride = 1, .groups = 2});
    check_nan((conv_case){.x = image(4, 21, 8), .out = 26, .kernel = 3, .stride = 1, .pad = 1});
    check_nan((conv_case){.x = image(2, 32, 26), .out = 64, .kernel = 3, .stride = 1});
    check_nan((conv_case){.x = image(64, 64, 16), .out = 64, .kernel = 3, .stride = 1, .pad = 1});
    check_nan((conv_case){.x = image(2, 26, 12), .out = 16, .kernel = 1, .stride = 1});
    check_nan((conv_case){.x = image(2, 26, 12), .out = 16, .kernel = 5, .stride = 2, .pad = 2});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_layers), cmocka_unit_test(test_odd_channels), cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_groups),       cmocka_unit_test(test_shards),       cmocka_unit_test(test_large),
        cmocka_unit_test(test_no_samples),   cmocka_unit_test(test_nans),
    };
    return fx_main(tests, sizeof tests / sizeof *tests, FX_FP32 | FX_TF32 | FX_BF16);
}
