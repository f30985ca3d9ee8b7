/* slots_eltwise.c - what works element by element, dropout and pooling: the
 * CPU's values, rounded once. */
#include "cuda/cuda_fixture.h"

/* Channels that are padded or not, one sample, none, and more than a grid's row. */
static const lk_shape shapes[] = {
    {.n = 1, .c = 1, .h = 5, .w = 3},  {.n = 3, .c = 3, .h = 7, .w = 5},     {.n = 2, .c = 4, .h = 3, .w = 3},
    {.n = 5, .c = 21, .h = 4, .w = 6}, {.n = 2, .c = 26, .h = 8, .w = 8},    {.n = 7, .c = 31, .h = 1, .w = 1},
    {.n = 4, .c = 64, .h = 6, .w = 5}, {.n = 13, .c = 10, .h = 1, .w = 1},   {.n = 1, .c = 1000, .h = 1, .w = 1},
    {.n = 0, .c = 21, .h = 4, .w = 4}, {.n = 33, .c = 16, .h = 32, .w = 32},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef enum place { APART, OVER_A, OVER_B } place;

typedef struct op_case {
    lk_shape shape, to;
    const float *a, *b;
    place place;
    bool relu; /* or mask */
    float p;
    bool channels;
    lk_pool2d_desc pool;
} op_case;

static lk_tensor output(lk_device *d, const op_case *c, const lk_tensor *a, const lk_tensor *b)
{
    if (c->place == OVER_A)
        return *a;
    return c->place == OVER_B ? *b : fx_tensor(d, c->shape);
}

static void run_relu(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    lk_tensor x = fx_input(d, c->shape, c->a), y = output(d, c, &x, NULL);
    d->kernels->relu_forward(d, &x, &y);
    fx_read(d, &y, out);
}

static void run_relu6(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    lk_tensor x = fx_input(d, c->shape, c->a), y = output(d, c, &x, NULL);
    d->kernels->relu6_forward(d, &x, &y);
    fx_read(d, &y, out);
}

static void run_relu_grad(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    lk_tensor y = fx_input(d, c->shape, c->a), dy = fx_input(d, c->shape, c->b), dx = output(d, c, &y, &dy);
    d->kernels->relu_grad_input(d, &y, &dy, &dx);
    fx_read(d, &dx, out);
}

static void run_relu6_grad(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    lk_tensor y = fx_input(d, c->shape, c->a), dy = fx_input(d, c->shape, c->b), dx = output(d, c, &y, &dy);
    d->kernels->relu6_grad_input(d, &y, &dy, &dx);
    fx_read(d, &dx, out);
}

static void run_add(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    lk_tensor a = fx_input(d, c->shape, c->a), b = fx_input(d, c->shape, c->b), y = output(d, c, &a, &b);
    d->kernels->add(d, &a, &b, c->relu, &y);
    fx_read(d, &y, out);
}

static void run_copy(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    lk_tensor x = fx_input(d, c->shape, c->a), y = fx_tensor(d, c->shape);
    d->kernels->copy(d, &x, &y);
    fx_read(d, &y, out);
}

/* From f32 without pads, as samples come, to the device's type and back. */
static void run_copy_types(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    size_t count = lk__shape_count(c->shape);
    lk_tensor plain = {.data = fx_floats(d, c->a, count), .dtype = LK_DTYPE_F32, .shape = c->shape};
    lk_tensor value = fx_tensor(d, c->shape);
    lk_tensor back = {.data = fx_no_floats(d, count), .dtype = LK_DTYPE_F32, .shape = c->shape, .pitch = c->shape.c};
    d->kernels->copy(d, &plain, &value);
    d->kernels->copy(d, &value, &back);
    fx_read(d, &value, out);
    fx_get_floats(d, back.data, count, out + count);
}

/* A flat array, as parameters are. */
static void run_copy_flat(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    size_t count = lk__shape_count(c->shape);
    lk_shape flat = {.n = 1, .c = count, .h = 1, .w = 1};
    lk_tensor x = {.data = fx_floats(d, c->a, count), .dtype = LK_DTYPE_F32, .shape = flat};
    lk_tensor y = {.dtype = d->values, .shape = flat};
    y.data = fx_blank(d, fx_bytes(&y));
    d->kernels->copy(d, &x, &y);
    fx_read(d, &y, out);
}

static void run_fit_channels(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    lk_tensor x = fx_input(d, c->shape, c->a), y = fx_tensor(d, c->to);
    d->kernels->fit_channels(d, &x, &y);
    fx_read(d, &y, out);
}

static void run_dropout(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    uint32_t step = 17, ids[64];
    for (uint32_t i = 0; i < 64; i++)
        ids[i] = i * 7919 + 3;
    lk_tensor x = fx_input(d, c->shape, c->a), y = output(d, c, &x, NULL);
    lk_dropout_desc desc = {.p = c->p, .seed = 0x1234567890abcdefu, .layer = 5, .channels = c->channels};
    desc.step = fx_put(d, &step, sizeof step);
    desc.ids = fx_put(d, ids, sizeof ids);
    d->kernels->dropout(d, &desc, &x, &y);
    fx_read(d, &y, out);
}

/* There, then back. */
static void run_flatten(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    lk_shape s = c->shape, flat = {.n = s.n, .c = lk__shape_sample(s), .h = 1, .w = 1};
    lk_tensor x = fx_input(d, s, c->a), y = fx_tensor(d, flat), dy = fx_input(d, flat, c->b), dx = fx_tensor(d, s);
    d->kernels->flatten_forward(d, &x, &y);
    d->kernels->flatten_grad_input(d, &dy, &dx);
    fx_read(d, &y, out);
    fx_read(d, &dx, out + lk__shape_count(s));
}

/* NaNs, of either sign, here and there: in whole vectors and in tails. */
static void spoil(float *x, size_t count)
{
    for (size_t i = 3; i < count; i += 11)
        x[i] = i % 2 ? NAN : -NAN;
}

static void test_relu(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        size_t count = lk__shape_count(shapes[i]);
        float *a = random_values(count, 1), *b = random_values(count, 2);
        for (size_t k = 0; k < count; k++)
            a[k] = fx_round(a[k] * 9.0f); /* below 0, on the slope of ReLU6 and above it */
        for (size_t k = 0; k < count; k += 5)
            a[k] = k % 3 ? 6.0f : 0.0f;
        spoil(a, count);
        op_case c = {.shape = shapes[i], .a = a, .b = b};
        fx_check_same("relu", run_relu, &c, count);
        fx_check_same("relu6", run_relu6, &c, count);
        fx_check_same("relu_grad", run_relu_grad, &c, count);
        fx_check_same("relu6_grad", run_relu6_grad, &c, count);
        c.place = OVER_A;
        fx_check_same("relu in place", run_relu, &c, count);
        fx_check_same("relu6 in place", run_relu6, &c, count);
        c.place = OVER_B;
        fx_check_same("relu_grad in place", run_relu_grad, &c, count);
        fx_check_same("relu6_grad in place", run_relu6_grad, &c, count);
        free(a);
        free(b);
    }
}

static void test_add_and_copy(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        size_t count = lk__shape_count(shapes[i]);
        float *a = random_values(count, 3), *b = random_values(count, 4), *full = random_floats(count, 5);
        op_case c = {.shape = shapes[i], .a = a, .b = b};
        spoil(a, count);
        for (int way = 0; way < 6; way++) {
            c.place = (place)(way % 3);
            c.relu = way >= 3;
            fx_check_same("add", run_add, &c, count);
        }
        fx_check_same("copy", run_copy, &c, count);
        c.a = full;
        fx_check_same("copy between types", run_copy_types, &c, 2 * count);
        fx_check_same("copy of a flat array", run_copy_flat, &c, count);
        free(a);
        free(b);
        free(full);
    }
}

static void test_fit_channels(void **state)
{
    (void)state;
    static const size_t channels[][2] = {{3, 16}, {16, 26}, {26, 31}, {31, 21}, {64, 1}, {1, 64}, {10, 10}, {21, 22}};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        lk_shape from = {.n = 3, .c = channels[i][0], .h = 5, .w = 4}, to = {3, channels[i][1], 5, 4};
        float *a = random_values(lk__shape_count(from), 6);
        op_case c = {.shape = from, .to = to, .a = a};
        fx_check_same("fit_channels", run_fit_channels, &c, lk__shape_count(to));
        free(a);
    }
}

static void test_dropout(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        size_t count = lk__shape_count(shapes[i]);
        float *a = random_values(count, 7);
        spoil(a, count);
        for (size_t k = 7; k < count; k += 13)
            a[k] = INFINITY;
        for (int way = 0; way < 8; way++) {
            static const float chances[] = {0.0f, 0.25f, 0.5f, 0.9f};
            op_case c = {.shape = shapes[i], .a = a, .p = chances[way / 2], .channels = way % 2};
            c.place = way % 3 == 0 ? OVER_A : APART;
            fx_check_same("dropout", run_dropout, &c, count);
        }
        free(a);
    }
}

static void test_flatten(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        size_t count = lk__shape_count(shapes[i]);
        float *a = random_values(count, 8), *b = random_values(count, 9);
        op_case c = {.shape = shapes[i], .a = a, .b = b};
        fx_check_same("flatten", run_flatten, &c, 2 * count);
        free(a);
        free(b);
    }
}

static const lk_pool2d_desc pools[] = {
    {.kernel = 2, .stride = 2}, {.kernel = 3, .stride = 2, .pad = 1}, {.kernel = 3, .stride = 1, .pad = 1},
    {.kernel = 3, .stride = 3}, {.kernel = 2, .stride = 1},           {.kernel = 5, .stride = 2, .pad = 2},
};
enum { POOLS = sizeof pools / sizeof *pools };

/* The places of n * h * w pixels, as floats. */
static void read_places(lk_device *d, const uint8_t *index, const lk_tensor *y, float *out)
{
    size_t pixels = y->shape.n * y->shape.h * y->shape.w, pitch = lk__tensor_pitch(y), c = y->shape.c;
    uint8_t *host = malloc(pixels * pitch + 1);
    assert_non_null(host);
    fx_get(d, index, pixels * pitch, host);
    for (size_t p = 0; p < pixels; p++) {
        for (size_t i = 0; i < c; i++)
            out[p * c + i] = (float)host[p * pitch + i];
    }
    free(host);
}

/* y, places and dx. */
static void run_maxpool(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    lk_tensor x = fx_input(d, c->shape, c->a), y = fx_tensor(d, c->to), dy = fx_input(d, c->to, c->b);
    lk_tensor dx = fx_tensor(d, c->shape);
    uint8_t *index = fx_blank(d, c->to.n * c->to.h * c->to.w * lk__tensor_pitch(&y));
    d->kernels->maxpool_forward(d, &c->pool, NULL, &x, c->relu, &y, index);
    d->kernels->maxpool_grad_input(d, &c->pool, NULL, &dy, index, &dx);
    size_t outs = lk__shape_count(c->to);
    fx_read(d, &y, out);
    read_places(d, index, &y, out + outs);
    fx_read(d, &dx, out + 2 * outs);
}

/* With a dropout behind the pooling, in one kernel, or two where c->place is APART. */
static void run_maxpool_dropout(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    const lk_kernels *k = d->kernels;
    lk_tensor x = fx_input(d, c->shape, c->a), y = fx_tensor(d, c->to), dy = fx_input(d, c->to, c->b);
    lk_tensor dx = fx_tensor(d, c->shape);
    uint8_t *index = fx_blank(d, c->to.n * c->to.h * c->to.w * lk__tensor_pitch(&y));
    uint32_t ids[32], step = 7;
    for (uint32_t i = 0; i < 32; i++)
        ids[i] = 3 * i + 1;
    lk_dropout_desc desc = {.p = c->p, .seed = 99, .layer = 4, .channels = c->channels};
    desc.ids = fx_put(d, ids, sizeof ids);
    desc.step = fx_put(d, &step, sizeof step);
    bool apart = c->place == APART;
    k->maxpool_forward(d, &c->pool, apart ? NULL : &desc, &x, c->relu, &y, index);
    if (apart) {
        k->dropout(d, &desc, &y, &y);
        k->dropout(d, &desc, &dy, &dy);
    }
    k->maxpool_grad_input(d, &c->pool, apart ? NULL : &desc, &dy, index, &dx);
    fx_read(d, &y, out);
    fx_read(d, &dx, out + lk__shape_count(c->to));
}

static void run_avgpool(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    lk_tensor x = fx_input(d, c->shape, c->a), y = fx_tensor(d, c->to), dy = fx_input(d, c->to, c->b);
    lk_tensor dx = fx_tensor(d, c->shape);
    d->kernels->avgpool_forward(d, &c->pool, &x, &y);
    d->kernels->avgpool_grad_input(d, &c->pool, &dy, &dx);
    fx_read(d, &y, out);
    fx_read(d, &dx, out + lk__shape_count(c->to));
}

static void run_global_avgpool(lk_device *d, const void *arg, float *out)
{
    const op_case *c = arg;
    lk_tensor x = fx_input(d, c->shape, c->a), y = fx_tensor(d, c->to), dy = fx_input(d, c->to, c->b);
    lk_tensor dx = fx_tensor(d, c->shape);
    d->kernels->global_avgpool_forward(d, &x, &y);
    d->kernels->global_avgpool_grad_input(d, &dy, &dx);
    fx_read(d, &y, out);
    fx_read(d, &dx, out + lk__shape_count(c->to));
}

/* Two results, of `first` and `count` - first elements, near the CPU's. */
static void check_near(const char *what, fx_run run, const op_case *c, size_t first, size_t count)
{
    float *got = fx_twice(what, run, c, count), *want = fx_once(cpu, run, c, count);
    double *truth = new_doubles(count);
    for (size_t i = 0; i < count; i++)
        truth[i] = (double)want[i];
    fx_near_values(what, got, truth, first);
    fx_near_values(what, got + first, truth + first, count - first);
    free(got);
    free(want);
    free(truth);
}

static size_t pooled(size_t side, const lk_pool2d_desc *pool)
{
    return (side + 2 * pool->pad - pool->kernel) / pool->stride + 1;
}

static void check_pools(lk_shape shape, const lk_pool2d_desc *pool)
{
    lk_shape to = {.n = shape.n, .c = shape.c, .h = pooled(shape.h, pool), .w = pooled(shape.w, pool)};
    size_t ins = lk__shape_count(shape), outs = lk__shape_count(to);
    float *a = random_values(ins, 10), *b = random_values(outs, 11);
    for (size_t i = 0; i < ins; i++)
        a[i] = (float)(int)(a[i] * 8.0f); /* few values: many equal ones, and zeros */
    op_case c = {.shape = shape, .to = to, .a = a, .b = b, .pool = *pool};
    fx_check_same("maxpool", run_maxpool, &c, 2 * outs + ins);
    check_near("avgpool", run_avgpool, &c, outs, outs + ins);
    for (size_t i = 0; i < ins; i++)
        a[i] = a[i] > 0 ? a[i] : 0.0f;
    c.relu = true;
    fx_check_same("maxpool of a ReLU", run_maxpool, &c, 2 * outs + ins);
    spoil(a, ins);
    fx_check_same("maxpool of a ReLU with NaNs", run_maxpool, &c, 2 * outs + ins);
    c.relu = false;
    fx_check_same("maxpool with NaNs", run_maxpool, &c, 2 * outs + ins);
    free(a);
    free(b);
}

/* Exactly what two kernels give. */
static void check_pool_dropout(lk_shape shape, const lk_pool2d_desc *pool)
{
    lk_shape to = {.n = shape.n, .c = shape.c, .h = pooled(shape.h, pool), .w = pooled(shape.w, pool)};
    size_t ins = lk__shape_count(shape), outs = lk__shape_count(to);
    float *a = random_values(ins, 14), *b = random_values(outs, 15);
    for (int mode = 0; mode < 4; mode++) {
        op_case c = {.shape = shape, .to = to, .a = a, .b = b, .pool = *pool, .p = 0.25f, .channels = mode % 2};
        c.relu = mode / 2;
        float *want = fx_twice("maxpool, dropout", run_maxpool_dropout, &c, outs + ins);
        c.place = OVER_A;
        float *got = fx_twice("maxpool with dropout", run_maxpool_dropout, &c, outs + ins);
        fx_same("maxpool with dropout", got, want, outs + ins);
        free(got);
        free(want);
    }
    free(a);
    free(b);
}

static void test_pool_dropout(void **state)
{
    (void)state;
    static const size_t channels[] = {1, 3, 21, 64};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        for (size_t k = 0; k < POOLS; k++) {
            check_pool_dropout((lk_shape){.n = 3, .c = channels[i], .h = 9, .w = 8}, &pools[k]);
            check_pool_dropout((lk_shape){.n = 2, .c = channels[i], .h = 6, .w = 7}, &pools[k]);
        }
    }
    check_pool_dropout((lk_shape){.n = 0, .c = 26, .h = 8, .w = 8}, &pools[0]);
    check_pool_dropout((lk_shape){.n = 17, .c = 64, .h = 24, .w = 24}, &pools[0]);
}

static void test_pools(void **state)
{
    (void)state;
    static const size_t channels[] = {1, 3, 21, 26, 31, 64};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        for (size_t k = 0; k < POOLS; k++) {
            check_pools((lk_shape){.n = 3, .c = channels[i], .h = 9, .w = 8}, &pools[k]);
            check_pools((lk_shape){.n = 1, .c = channels[i], .h = 6, .w = 7}, &pools[k]);
        }
    }
    check_pools((lk_shape){.n = 0, .c = 26, .h = 8, .w = 8}, &pools[0]);
    check_pools((lk_shape){.n = 17, .c = 64, .h = 24, .w = 24}, &pools[0]);
}

/* Windows that stick out, as PyramidNet's shortcuts have them. */
static void test_avgpool_beyond(void **state)
{
    (void)state;
    lk_shape shape = {.n = 3, .c = 26, .h = 7, .w = 5}, to = {.n = 3, .c = 26, .h = 4, .w = 3};
    size_t ins = lk__shape_count(shape), outs = lk__shape_count(to);
    float *a = random_values(ins, 12), *b = random_values(outs, 13);
    op_case c = {.shape = shape, .to = to, .a = a, .b = b, .pool = {.kernel = 2, .stride = 2}};
    check_near("avgpool beyond the edge", run_avgpool, &c, outs, outs + ins);
    free(a);
    free(b);
}

static void test_global_avgpool(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        lk_shape shape = shapes[i], to = {.n = shape.n, .c = shape.c, .h = 1, .w = 1};
        size_t ins = lk__shape_count(shape), outs = lk__shape_count(to);
        float *a = random_values(ins, 14), *b = random_values(outs, 15);
        op_case c = {.shape = shape, .to = to, .a = a, .b = b};
        check_near("global_avgpool", run_global_avgpool, &c, outs, outs + ins);
        free(a);
        free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relu),    cmocka_unit_test(test_add_and_copy),   cmocka_unit_test(test_fit_channels),
        cmocka_unit_test(test_dropout), cmocka_unit_test(test_pool_dropout),   cmocka_unit_test(test_flatten),
        cmocka_unit_test(test_pools),   cmocka_unit_test(test_avgpool_beyond), cmocka_unit_test(test_global_avgpool),
    };
    return fx_main(tests, sizeof tests / sizeof *tests, FX_FP32 | FX_BF16);
}
