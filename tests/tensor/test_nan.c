/* test_nan.c - a NaN that enters a ReLU, a ReLU6, a maximum or a dropout comes out
 * as one, in every lane and in every tail, alone and behind the kernels that do
 * these on their way; whatever else is there stays as it is without it. */
#include "tensor/everywhere.h"

static lk_tensor input(const float *data, lk_shape shape)
{
    return tensor_of((float *)(uintptr_t)data, shape);
}

/* Calls test on every build, with two threads. */
static void each_build(void (*test)(lk_device *dev))
{
    const lk_cpu_build *build;
    for (size_t i = 0; (build = lk__cpu_build_list(i)); i++) {
        lk_device *dev = open_device(build->name, 2);
        test(dev);
        lk__device_close(dev);
    }
}

/* NaN where want is, else want's bits. */
static void expect(const char *what, const float *got, const float *want, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (isnan(want[i]) ? !isnan(got[i]) : memcmp(got + i, want + i, sizeof *got) != 0)
            fail_msg("%s: element %zu of %zu is %g, not %g", what, i, count, (double)got[i], (double)want[i]);
    }
}

static float *copy_of(const float *x, size_t count)
{
    float *copy = new_floats(count);
    memcpy(copy, x, count * sizeof *copy);
    return copy;
}

/* Elementwise slots: from a and b, which is unused by some, to y. */
typedef void (*slot_fn)(lk_device *dev, const lk_tensor *a, const lk_tensor *b, lk_tensor *y);

static void relu(lk_device *dev, const lk_tensor *a, const lk_tensor *b, lk_tensor *y)
{
    (void)b;
    dev->kernels->relu_forward(dev, a, y);
}

static void relu6(lk_device *dev, const lk_tensor *a, const lk_tensor *b, lk_tensor *y)
{
    (void)b;
    dev->kernels->relu6_forward(dev, a, y);
}

static void relu_grad(lk_device *dev, const lk_tensor *a, const lk_tensor *b, lk_tensor *y)
{
    dev->kernels->relu_grad_input(dev, a, b, y);
}

static void relu6_grad(lk_device *dev, const lk_tensor *a, const lk_tensor *b, lk_tensor *y)
{
    dev->kernels->relu6_grad_input(dev, a, b, y);
}

static void add_relu(lk_device *dev, const lk_tensor *a, const lk_tensor *b, lk_tensor *y)
{
    dev->kernels->add(dev, a, b, true, y);
}

/* With a NaN at every place of every length up to two of the widest vectors and
 * more: a gradient passes where the ReLU's result is a NaN, all else gives one. */
static void check_slot(lk_device *dev, const char *what, slot_fn slot, bool grad)
{
    enum { MOST = 37 };
    for (size_t count = 1; count <= MOST; count++) {
        lk_shape shape = {.n = 1, .c = count, .h = 1, .w = 1};
        float *a = random_floats(count, 1), *b = random_floats(count, 2), *want = new_floats(count);
        float *out = new_floats(count);
        a[count / 2] = -0.0f;
        lk_tensor ta = input(a, shape), tb = input(b, shape), twant = tensor_of(want, shape), y = tensor_of(out, shape);
        for (size_t at = 0; at < count; at++) {
            float number = a[at], plain;
            slot(dev, &ta, &tb, &twant);
            plain = want[at];
            a[at] = at % 2 ? NAN : -NAN;
            want[at] = grad ? b[at] : NAN;
            slot(dev, &ta, &tb, &y);
            expect(what, out, want, count);
            memcpy(out, a, count * sizeof *out);
            if (!grad) { /* in place */
                slot(dev, &y, &tb, &y);
                expect(what, out, want, count);
            }
            a[at] = number;
            want[at] = plain;
        }
        free(a), free(b), free(want), free(out);
    }
}

static void test_slots(lk_device *dev)
{
    check_slot(dev, "relu", relu, false);
    check_slot(dev, "relu6", relu6, false);
    check_slot(dev, "relu_grad", relu_grad, true);
    check_slot(dev, "relu6_grad", relu6_grad, true);
    check_slot(dev, "add with ReLU", add_relu, false);
}

static void test_elements(void **state)
{
    (void)state;
    each_build(test_slots);
}

typedef struct pool_case {
    lk_pool2d_desc pool;
    lk_shape in, out;
    bool mask;
    const lk_dropout_desc *dropout;
} pool_case;

static void run_maxpool(lk_device *dev, const pool_case *p, const float *x, const float *dy, float *y, float *dx)
{
    uint8_t *index = malloc(lk__shape_count(p->out));
    assert_non_null(index);
    lk_tensor tx = input(x, p->in), ty = tensor_of(y, p->out), tdy = input(dy, p->out), tdx = tensor_of(dx, p->in);
    dev->kernels->maxpool_forward(dev, &p->pool, p->dropout, &tx, p->mask, &ty, index);
    dev->kernels->maxpool_grad_input(dev, &p->pool, p->dropout, &tdy, index, &tdx);
    free(index);
}

/* Where output o of channel c gets its value from: the first NaN, or else the first
 * of the largest. */
static size_t winner(const pool_case *p, const float *x, size_t o, size_t c)
{
    size_t best = SIZE_MAX;
    for (size_t k = 0; k < p->pool.kernel * p->pool.kernel; k++) {
        size_t row = o / p->out.w * p->pool.stride + k / p->pool.kernel - p->pool.pad;
        size_t col = o % p->out.w * p->pool.stride + k % p->pool.kernel - p->pool.pad;
        size_t at = (row * p->in.w + col) * p->in.c + c;
        if (row >= p->in.h || col >= p->in.w || (best != SIZE_MAX && isnan(x[best])))
            continue;
        if (best == SIZE_MAX || isnan(x[at]) || x[at] > x[best])
            best = at;
    }
    return best;
}

/* One NaN at each pixel and channel: the windows that have it give NaN, and their
 * gradients go to it. A dropout leaves no trace of what it drops but a NaN. */
static void check_maxpool(lk_device *dev, const pool_case *p)
{
    size_t c = p->in.c, ins = lk__shape_count(p->in), outs = lk__shape_count(p->out);
    float *x = random_floats(ins, 1), *dy = random_floats(outs, 2), *y = new_floats(outs), *dx = new_floats(ins);
    for (size_t at = 0; at < ins; at++) {
        float number = x[at], *want = new_floats(outs), *grad = new_floats(ins);
        run_maxpool(dev, p, x, dy, want, grad);
        memset(grad, 0, ins * sizeof *grad);
        x[at] = NAN;
        for (size_t i = 0; i < outs; i++) {
            size_t from = winner(p, x, i / c, i % c);
            want[i] = from == at ? NAN : want[i];
            grad[from] += p->mask && x[from] <= 0 ? 0.0f : dy[i];
        }
        run_maxpool(dev, p, x, dy, y, dx);
        expect("maxpool", y, want, outs);
        if (!p->dropout)
            expect("gradient of maxpool", dx, grad, ins);
        x[at] = number;
        free(want), free(grad);
    }
    free(x), free(dy), free(y), free(dx);
}

/* The first of several NaNs gets the gradient. */
static void check_first_nan(lk_device *dev)
{
    pool_case p = {.pool = {3, 3, 0}, .in = {1, 1, 3, 3}, .out = {1, 1, 1, 1}};
    float x[9] = {1, 2, NAN, 9, NAN, 3, NAN, 7, 8}, dy = 5, y, dx[9];
    static const float want[9] = {0, 0, 5, 0, 0, 0, 0, 0, 0};
    run_maxpool(dev, &p, x, &dy, &y, dx);
    assert_true(isnan(y));
    expect("the first of several NaNs", dx, want, 9);
}

static void test_pools(lk_device *dev)
{
    static const uint32_t id = 3, step = 5;
    static const size_t channels[] = {1, 3, 21, 33};
    lk_dropout_desc dropout = {.p = 0.5f, .seed = 3, .layer = 2, .step = &step, .ids = &id};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        for (int way = 0; way < 6; way++) {
            pool_case p = {.pool = {2, 2, 0}, .in = {1, channels[i], 5, 4}, .out = {1, channels[i], 2, 2}};
            if (way % 2)
                p = (pool_case){.pool = {3, 2, 1}, .in = {1, channels[i], 5, 4}, .out = {1, channels[i], 3, 2}};
            p.mask = way / 2 == 1;
            p.dropout = way / 2 == 2 ? &dropout : NULL;
            check_maxpool(dev, &p);
        }
    }
    check_first_nan(dev);
}

static void test_maxpool(void **state)
{
    (void)state;
    each_build(test_pools);
}

/* A dropped NaN is a NaN: PyTorch multiplies it by 0. */
static void test_drops(lk_device *dev)
{
    static const uint32_t ids[] = {3, 4}, step = 5;
    static const lk_shape shapes[] = {{2, 37, 1, 1}, {2, 21, 3, 3}, {2, 19, 2, 2}, {2, 1, 5, 5}};
    for (size_t k = 0; k < 2 * sizeof shapes / sizeof *shapes; k++) {
        lk_shape shape = shapes[k / 2];
        size_t count = lk__shape_count(shape);
        lk_dropout_desc dropout = {.p = 0.5f, .seed = 3, .layer = 2, .step = &step, .ids = ids, .channels = k % 2};
        float *x = random_floats(count, 1), *y = new_floats(count), *want = new_floats(count);
        lk_tensor tx = input(x, shape), ty = tensor_of(y, shape), twant = tensor_of(want, shape);
        for (size_t at = 0; at < count; at++) {
            float number = x[at];
            dev->kernels->dropout(dev, &dropout, &tx, &twant);
            want[at] = x[at] = NAN;
            dev->kernels->dropout(dev, &dropout, &tx, &ty);
            expect("dropout", y, want, count);
            x[at] = number;
        }
        free(x), free(y), free(want);
    }
}

static void test_dropout(void **state)
{
    (void)state;
    each_build(test_drops);
}

/* Layers with a ReLU behind them, and the gradient of one before them. NaN in the
 * bias of an output channel, or in the mask: each channel in turn. */
typedef struct layer_case {
    bool linear;
    lk_conv2d_desc conv;
    lk_shape x, y;
    size_t weights;
} layer_case;

static void run_forward(lk_device *dev, const layer_case *l, const float *x, const float *w, const float *b, float *y)
{
    const lk_kernels *k = dev->kernels;
    lk_tensor tx = input(x, l->x), ty = tensor_of(y, l->y);
    float *scratch =
        malloc((l->linear ? k->linear_scratch(dev, l->x, l->y) : k->conv2d_scratch(dev, &l->conv, l->x, l->y)) + 1);
    assert_non_null(scratch);
    if (l->linear)
        k->linear_forward(dev, &tx, w, b, true, &ty, scratch);
    else
        k->conv2d_forward(dev, &l->conv, &tx, w, b, true, &ty, scratch);
    free(scratch);
}

static void run_grad(lk_device *dev, const layer_case *l, const float *dy, const float *w, const float *mask, float *dx)
{
    const lk_kernels *k = dev->kernels;
    lk_tensor tdy = input(dy, l->y), tdx = tensor_of(dx, l->x), tmask = input(mask ? mask : dx, l->x);
    float *scratch =
        malloc((l->linear ? k->linear_scratch(dev, l->x, l->y) : k->conv2d_scratch(dev, &l->conv, l->x, l->y)) + 1);
    assert_non_null(scratch);
    if (l->linear)
        k->linear_grad_input(dev, &tdy, w, mask ? &tmask : NULL, &tdx, scratch);
    else
        k->conv2d_grad_input(dev, &l->conv, &tdy, w, mask ? &tmask : NULL, &tdx, scratch);
    free(scratch);
}

static void check_forward(lk_device *dev, const layer_case *l)
{
    size_t c = l->y.c, count = lk__shape_count(l->y);
    float *x = random_floats(lk__shape_count(l->x), 1), *w = random_floats(l->weights, 2), *b = random_floats(c, 3);
    float *y = new_floats(count), *plain = new_floats(count);
    run_forward(dev, l, x, w, b, plain);
    for (size_t at = 0; at < c; at++) {
        float number = b[at], *want = copy_of(plain, count);
        b[at] = NAN;
        for (size_t i = at; i < count; i += c)
            want[i] = NAN;
        run_forward(dev, l, x, w, b, y);
        expect("ReLU behind a layer", y, want, count);
        b[at] = number;
        free(want);
    }
    free(x), free(w), free(b), free(y), free(plain);
}

static void check_grad(lk_device *dev, const layer_case *l)
{
    size_t c = l->x.c, count = lk__shape_count(l->x);
    float *dy = random_floats(lk__shape_count(l->y), 1), *w = random_floats(l->weights, 2);
    float *mask = random_floats(count, 3), *dx = new_floats(count), *all = new_floats(count);
    run_grad(dev, l, dy, w, NULL, all);
    for (size_t at = 0; at < c; at++) {
        float *spoilt = copy_of(mask, count), *want = new_floats(count);
        for (size_t i = at; i < count; i += c)
            spoilt[i] = NAN;
        for (size_t i = 0; i < count; i++)
            want[i] = spoilt[i] <= 0 ? 0.0f : all[i];
        run_grad(dev, l, dy, w, spoilt, dx);
        expect("gradient of a ReLU whose result is NaN", dx, want, count);
        free(spoilt), free(want);
    }
    free(dy), free(w), free(mask), free(dx), free(all);
}

static void check_layers(lk_device *dev)
{
    static const layer_case layers[] = {
        {.linear = true, .x = {3, 21, 1, 1}, .y = {3, 37, 1, 1}, .weights = 21 * 37},
        {.linear = true, .x = {14, 37, 1, 1}, .y = {14, 5, 1, 1}, .weights = 37 * 5},
        {.conv = {3, 1, 1, 1}, .x = {2, 5, 5, 4}, .y = {2, 37, 5, 4}, .weights = 37 * 5 * 9},
        {.conv = {3, 2, 1, 1}, .x = {2, 21, 6, 6}, .y = {2, 3, 3, 3}, .weights = 21 * 3 * 9},
        {.conv = {3, 1, 1, 2}, .x = {2, 10, 4, 4}, .y = {2, 6, 4, 4}, .weights = 6 * 5 * 9},
        {.conv = {3, 1, 1, 37}, .x = {2, 37, 5, 4}, .y = {2, 37, 5, 4}, .weights = 37 * 9},
        {.conv = {3, 2, 1, 19}, .x = {2, 19, 6, 6}, .y = {2, 19, 3, 3}, .weights = 19 * 9},
    };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        check_forward(dev, &layers[i]);
        check_grad(dev, &layers[i]);
    }
}

static void test_layers(void **state)
{
    (void)state;
    each_build(check_layers);
}

/* Normalised, perhaps with an addition, then a ReLU: one NaN in x at a time. */
static void check_batchnorm(lk_device *dev)
{
    enum { PIXELS = 3 };
    static const size_t channels[] = {1, 7, 37};
    for (size_t k = 0; k < 2 * sizeof channels / sizeof *channels; k++) {
        size_t c = channels[k / 2], count = PIXELS * c, begin[] = {0, 1};
        lk_shape shape = {.n = 1, .c = c, .h = PIXELS, .w = 1};
        float *x = random_floats(count, 1), *other = random_floats(count, 2), *y = new_floats(count);
        float *mean = random_floats(c, 3), *scale = random_floats(c, 4), *gamma = random_floats(c, 5);
        float *want = new_floats(count);
        int merges = 0;
        lk_shards shards = {.count = 1, .begin = begin, .merges = &merges};
        lk_moments moments = {.groups = 1, .mean = mean, .scale = scale};
        lk_tensor tx = input(x, shape), ty = tensor_of(y, shape), twant = tensor_of(want, shape);
        lk_tensor tother = input(other, shape);
        lk_batchnorm_desc desc = {.gamma = gamma, .beta = mean, .other = k % 2 ? &tother : NULL, .relu = true};
        for (size_t at = 0; at < count; at++) {
            float number = x[at];
            dev->kernels->batchnorm_forward(dev, &desc, &tx, &shards, &moments, &twant);
            want[at] = x[at] = NAN;
            dev->kernels->batchnorm_forward(dev, &desc, &tx, &shards, &moments, &ty);
            expect("batch normalisation with ReLU", y, want, count);
            x[at] = number;
        }
        free(x), free(other), free(y), free(mean), free(scale), free(gamma), free(want);
    }
}

static void test_batchnorm(void **state)
{
    (void)state;
    each_build(check_batchnorm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elements), cmocka_unit_test(test_maxpool),   cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_layers),   cmocka_unit_test(test_batchnorm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
