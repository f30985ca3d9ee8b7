/* test_pool2d.c - max, average and global average pooling against plain loops. */
#include "tensor/everywhere.h"

typedef struct pool_case {
    lk_pool2d_desc pool;
    lk_shape in;
    const float *x, *dy;
    bool mask, channels;
} pool_case;

static lk_shape out_shape(const pool_case *p)
{
    lk_shape s = p->in;
    s.h = (p->in.h + 2 * p->pool.pad - p->pool.kernel) / p->pool.stride + 1;
    s.w = (p->in.w + 2 * p->pool.pad - p->pool.kernel) / p->pool.stride + 1;
    return s;
}

/* y, the indices as floats, then dx. */
static void run_maxpool(lk_device *dev, const void *arg, float *out)
{
    const pool_case *p = arg;
    lk_shape os = out_shape(p);
    size_t count = lk__shape_count(os);
    uint8_t *index = malloc(count);
    assert_non_null(index);
    lk_tensor x = tensor_of((float *)(uintptr_t)p->x, p->in), y = tensor_of(out, os);
    lk_tensor dy = tensor_of((float *)(uintptr_t)p->dy, os), dx = tensor_of(out + 2 * count, p->in);
    dev->kernels->maxpool_forward(dev, &p->pool, NULL, &x, false, &y, index);
    dev->kernels->maxpool_grad_input(dev, &p->pool, NULL, &dy, index, &dx);
    for (size_t i = 0; i < count; i++)
        out[count + i] = (float)index[i];
    free(index);
}

/* y and dx with a dropout behind the pooling, in one kernel and then in two. */
static void run_maxpool_dropout(lk_device *dev, const void *arg, float *out)
{
    static const uint32_t ids[] = {7, 0, 4000000000u, 3}, step = 5;
    const pool_case *p = arg;
    const lk_kernels *k = dev->kernels;
    lk_shape os = out_shape(p);
    size_t count = lk__shape_count(os), all = count + lk__shape_count(p->in);
    lk_dropout_desc desc = {.p = 0.25f, .seed = 3, .layer = 2, .step = &step, .ids = ids, .channels = p->channels};
    uint8_t *index = malloc(count);
    float *dropped = new_floats(count);
    assert_non_null(index);
    lk_tensor x = tensor_of((float *)(uintptr_t)p->x, p->in), dy = tensor_of((float *)(uintptr_t)p->dy, os);
    lk_tensor y = tensor_of(out, os), dx = tensor_of(out + count, p->in);
    k->maxpool_forward(dev, &p->pool, &desc, &x, p->mask, &y, index);
    k->maxpool_grad_input(dev, &p->pool, &desc, &dy, index, &dx);
    lk_tensor apart = tensor_of(dropped, os);
    y = tensor_of(out + all, os);
    dx = tensor_of(out + all + count, p->in);
    k->maxpool_forward(dev, &p->pool, NULL, &x, p->mask, &y, index);
    k->dropout(dev, &desc, &y, &y);
    k->dropout(dev, &desc, &dy, &apart);
    k->maxpool_grad_input(dev, &p->pool, NULL, &apart, index, &dx);
    free(dropped);
    free(index);
}

static void check_dropout(pool_case p)
{
    size_t inputs = lk__shape_count(p.in), all = inputs + lk__shape_count(out_shape(&p));
    float *x = random_floats(inputs, 1), *dy = random_floats(all - inputs, 2);
    p.x = x;
    p.dy = dy;
    for (int mode = 0; mode < 4; mode++) {
        p.mask = mode % 2;
        p.channels = mode / 2;
        float *got = run_everywhere(run_maxpool_dropout, &p, 2 * all);
        assert_same(got, got + all, all);
        free(got);
    }
    free(x);
    free(dy);
}

static void test_dropout(void **state)
{
    (void)state;
    check_dropout((pool_case){.pool = {2, 2, 0}, .in = {4, 64, 24, 24}});
    check_dropout((pool_case){.pool = {2, 2, 0}, .in = {3, 21, 6, 6}});
    check_dropout((pool_case){.pool = {3, 2, 1}, .in = {2, 19, 9, 8}});
    check_dropout((pool_case){.pool = {2, 1, 0}, .in = {3, 1, 7, 5}});
    check_dropout((pool_case){.pool = {4, 4, 0}, .in = {2, 35, 4, 4}});
}

/* Output element i: the winner's place in the window and in the input. */
static void find_winner(const pool_case *p, lk_shape os, size_t i, size_t *place, size_t *at)
{
    size_t c = i % os.c, ox = i / os.c % os.w, oy = i / os.c / os.w % os.h, n = i / os.c / os.w / os.h;
    bool found = false;
    for (size_t k = 0; k < p->pool.kernel * p->pool.kernel; k++) {
        size_t y = oy * p->pool.stride + k / p->pool.kernel, x = ox * p->pool.stride + k % p->pool.kernel;
        if (y < p->pool.pad || x < p->pool.pad || y - p->pool.pad >= p->in.h || x - p->pool.pad >= p->in.w)
            continue;
        size_t here = ((n * p->in.h + y - p->pool.pad) * p->in.w + x - p->pool.pad) * p->in.c + c;
        if (!found || p->x[here] > p->x[*at]) {
            *place = k;
            *at = here;
            found = true;
        }
    }
}

static void check_maxpool(lk_pool2d_desc pool, lk_shape in)
{
    pool_case p = {.pool = pool, .in = in};
    lk_shape os = out_shape(&p);
    size_t inputs = lk__shape_count(in), outputs = lk__shape_count(os);
    /* Eighths: equal values in a window are common, and all sums are exact. */
    float *x = random_floats(inputs, 1), *dy = random_floats(outputs, 2);
    for (size_t i = 0; i < inputs; i++)
        x[i] = floorf(x[i] * 8) / 8;
    for (size_t i = 0; i < outputs; i++)
        dy[i] = floorf(dy[i] * 8) / 8;
    p.x = x;
    p.dy = dy;
    float *want = new_floats(2 * outputs + inputs);
    for (size_t i = 0; i < outputs; i++) {
        size_t place = 0, at = 0;
        find_winner(&p, os, i, &place, &at);
        want[i] = x[at];
        want[outputs + i] = (float)place;
        want[2 * outputs + at] += dy[i];
    }
    float *got = run_everywhere(run_maxpool, &p, 2 * outputs + inputs);
    assert_same(got, want, 2 * outputs + inputs);
    free(got);
    free(want);
    free(x);
    free(dy);
}

static void test_maxpool(void **state)
{
    (void)state;
    check_maxpool((lk_pool2d_desc){2, 2, 0}, (lk_shape){3, 64, 24, 24});
    check_maxpool((lk_pool2d_desc){2, 2, 0}, (lk_shape){2, 3, 7, 9});
    check_maxpool((lk_pool2d_desc){2, 2, 0}, (lk_shape){1, 21, 8, 5});
    check_maxpool((lk_pool2d_desc){3, 3, 0}, (lk_shape){2, 10, 11, 9});
    check_maxpool((lk_pool2d_desc){3, 2, 1}, (lk_shape){2, 16, 9, 8});
    check_maxpool((lk_pool2d_desc){3, 1, 1}, (lk_shape){5, 21, 16, 15});
    check_maxpool((lk_pool2d_desc){2, 3, 0}, (lk_shape){1, 3, 8, 8});
    check_maxpool((lk_pool2d_desc){2, 2, 1}, (lk_shape){1, 1, 6, 6});
    check_maxpool((lk_pool2d_desc){1, 1, 0}, (lk_shape){1, 10, 3, 3});
    check_maxpool((lk_pool2d_desc){16, 16, 0}, (lk_shape){1, 3, 16, 16});
}

/* A mean pooling, of out.h x out.w windows. */
typedef struct mean_case {
    lk_pool2d_desc pool;
    lk_shape in, out;
    const float *x, *dy;
} mean_case;

/* y, then dx. */
static void run_means(lk_device *dev, const void *arg, float *out)
{
    const mean_case *m = arg;
    lk_tensor x = tensor_of((float *)(uintptr_t)m->x, m->in), y = tensor_of(out, m->out);
    lk_tensor dy = tensor_of((float *)(uintptr_t)m->dy, m->out), dx = tensor_of(out + lk__shape_count(m->out), m->in);
    dev->kernels->avgpool_forward(dev, &m->pool, &x, &y);
    dev->kernels->avgpool_grad_input(dev, &m->pool, &dy, &dx);
}

/* Output element i: adds its window to want[i] and its part of the gradient to
 * dx. Padding counts, what lies beyond it does not. The order is the kernels'. */
static void expect_mean(const mean_case *m, size_t i, float *want, float *dx)
{
    size_t c = i % m->out.c, ox = i / m->out.c % m->out.w, oy = i / m->out.c / m->out.w % m->out.h;
    size_t n = i / lk__shape_sample(m->out), k = m->pool.kernel, pad = m->pool.pad, size = 0;
    float sum = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t place = 0; place < k * k; place++) {
            size_t y = oy * m->pool.stride + place / k, x = ox * m->pool.stride + place % k;
            if (y >= m->in.h + 2 * pad || x >= m->in.w + 2 * pad)
                continue;
            size += pass == 0;
            if (y < pad || x < pad || y - pad >= m->in.h || x - pad >= m->in.w)
                continue;
            size_t at = ((n * m->in.h + y - pad) * m->in.w + x - pad) * m->in.c + c;
            if (pass == 0)
                sum += m->x[at];
            else
                dx[at] += m->dy[i] / (float)size;
        }
    }
    want[i] = sum / (float)size;
}

static void check_means(lk_pool2d_desc pool, lk_shape in, size_t out_h, size_t out_w)
{
    mean_case m = {.pool = pool, .in = in, .out = {in.n, in.c, out_h, out_w}};
    size_t inputs = lk__shape_count(in), outputs = lk__shape_count(m.out);
    float *x = random_floats(inputs, 1), *dy = random_floats(outputs, 2), *want = new_floats(outputs + inputs);
    x[0] = dy[0] = -0.0f;
    m.x = x;
    m.dy = dy;
    for (size_t i = 0; i < outputs; i++)
        expect_mean(&m, i, want, want + outputs);
    float *got = run_everywhere(run_means, &m, outputs + inputs);
    assert_same(got, want, outputs + inputs);
    free(got);
    free(want);
    free(x);
    free(dy);
}

static void test_means(void **state)
{
    (void)state;
    check_means((lk_pool2d_desc){2, 2, 0}, (lk_shape){3, 64, 24, 24}, 12, 12);
    check_means((lk_pool2d_desc){2, 2, 0}, (lk_shape){2, 3, 7, 9}, 3, 4);
    check_means((lk_pool2d_desc){2, 2, 0}, (lk_shape){2, 21, 7, 9}, 4, 5); /* ceil */
    check_means((lk_pool2d_desc){2, 2, 0}, (lk_shape){3, 10, 1, 1}, 1, 1); /* ceil */
    check_means((lk_pool2d_desc){8, 8, 0}, (lk_shape){5, 35, 8, 8}, 1, 1);
    check_means((lk_pool2d_desc){3, 1, 1}, (lk_shape){4, 21, 16, 15}, 16, 15);
    check_means((lk_pool2d_desc){3, 2, 1}, (lk_shape){2, 16, 9, 8}, 5, 4);
    check_means((lk_pool2d_desc){3, 2, 1}, (lk_shape){2, 16, 9, 8}, 5, 5); /* ceil */
    check_means((lk_pool2d_desc){2, 3, 0}, (lk_shape){1, 3, 8, 8}, 3, 3);  /* with gaps */
    check_means((lk_pool2d_desc){2, 5, 1}, (lk_shape){1, 5, 8, 8}, 2, 2);  /* the same */
    check_means((lk_pool2d_desc){1, 1, 0}, (lk_shape){1, 10, 3, 3}, 3, 3);
}

static void run_avgpool(lk_device *dev, const void *arg, float *out)
{
    const pool_case *p = arg;
    lk_shape os = {p->in.n, p->in.c, 1, 1};
    lk_tensor x = tensor_of((float *)(uintptr_t)p->x, p->in), y = tensor_of(out, os);
    lk_tensor dy = tensor_of((float *)(uintptr_t)p->dy, os), dx = tensor_of(out + lk__shape_count(os), p->in);
    dev->kernels->global_avgpool_forward(dev, &x, &y);
    dev->kernels->global_avgpool_grad_input(dev, &dy, &dx);
}

static void check_avgpool(lk_shape in)
{
    size_t inputs = lk__shape_count(in), outputs = in.n * in.c, pixels = in.h * in.w;
    float *x = random_floats(inputs, 1), *dy = random_floats(outputs, 2);
    double *y = new_doubles(outputs), *dx = new_doubles(inputs);
    for (size_t i = 0; i < inputs; i++) {
        size_t o = i / in.c / pixels * in.c + i % in.c;
        y[o] += (double)x[i] / (double)pixels;
        dx[i] = (double)dy[o] / (double)pixels;
    }
    pool_case p = {.in = in, .x = x, .dy = dy};
    float *got = run_everywhere(run_avgpool, &p, outputs + inputs);
    assert_close(got, y, outputs, 1e-5);
    assert_close(got + outputs, dx, inputs, 1e-6);
    free(got);
    free(x);
    free(dy);
    free(y);
    free(dx);
}

static void test_avgpool(void **state)
{
    (void)state;
    check_avgpool((lk_shape){1, 3, 1, 1});
    check_avgpool((lk_shape){9, 64, 8, 8});
    check_avgpool((lk_shape){2, 10, 7, 5});
    check_avgpool((lk_shape){3, 21, 3, 3});
    check_avgpool((lk_shape){30, 16, 9, 9});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_maxpool),
        cmocka_unit_test(test_means),
        cmocka_unit_test(test_avgpool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
