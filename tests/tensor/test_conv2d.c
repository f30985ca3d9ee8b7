/* test_conv2d.c - the convolution against float64, and the same bits from every
 * build, thread count and split into waves. */
#include "kernel_test.h"

typedef struct problem {
    size_t n, c, h, w, out;
    lk_conv2d_desc conv;
    int shards;
    bool bias, relu;
} problem;

typedef struct result {
    float *y, *dx, *dw, *db;
} result;

/* n, c, h, w, out, {kernel, stride, pad, groups}, shards, bias, relu */
static const problem problems[] = {
    {1, 1, 1, 1, 1, {1, 1, 0, 1}, 1, true, false},
    {2, 1, 28, 28, 32, {3, 1, 0, 1}, 2, true, true},
    {3, 32, 12, 11, 64, {3, 1, 0, 1}, 2, true, false},
    {4, 3, 9, 8, 16, {3, 1, 1, 1}, 16, false, false},
    {7, 16, 8, 8, 16, {3, 1, 1, 1}, 3, false, false},
    {5, 16, 9, 7, 32, {3, 2, 1, 1}, 5, false, true},
    {5, 16, 8, 8, 32, {1, 2, 0, 1}, 4, false, false},
    {6, 21, 7, 5, 10, {5, 1, 2, 1}, 4, true, false},
    {3, 10, 11, 13, 26, {5, 3, 2, 1}, 2, true, true},
    {2, 26, 6, 6, 21, {2, 2, 0, 1}, 2, true, false},
    {2, 3, 6, 9, 5, {2, 1, 2, 1}, 3, true, false},
    {3, 5, 10, 10, 7, {2, 3, 1, 1}, 2, false, true},
    {2, 4, 4, 4, 3, {1, 1, 1, 1}, 2, true, false},
    {1, 2, 3, 3, 50, {3, 3, 2, 1}, 1, true, false},
    {1, 17, 40, 40, 33, {3, 1, 1, 1}, 1, true, true},
    {2, 6, 5, 5, 4, {5, 1, 0, 1}, 7, true, false},
    {2, 40, 3, 60, 40, {3, 2, 2, 1}, 2, true, false},
    /* groups */
    {2, 4, 6, 5, 6, {3, 1, 1, 2}, 2, true, true},
    {3, 9, 7, 8, 15, {3, 2, 1, 3}, 2, true, false},
    {2, 34, 5, 5, 38, {3, 1, 0, 2}, 3, false, false},
    {4, 6, 8, 8, 6, {1, 1, 0, 3}, 16, true, false},
    {2, 64, 9, 9, 32, {1, 2, 0, 2}, 2, false, true},
    {2, 5, 6, 7, 10, {3, 1, 1, 5}, 3, true, false},
    {1, 4, 30, 90, 8, {3, 1, 1, 2}, 1, true, false},
    {2, 8, 6, 6, 4, {5, 3, 2, 4}, 2, true, false},
    /* one channel a group */
    {3, 32, 9, 10, 32, {3, 1, 1, 32}, 2, true, true},
    {5, 21, 8, 11, 21, {3, 2, 1, 21}, 16, true, false},
    {2, 7, 4, 4, 7, {5, 1, 2, 7}, 2, false, false},
    {2, 50, 7, 7, 50, {3, 1, 0, 50}, 3, true, false},
    {3, 17, 9, 9, 17, {2, 3, 1, 17}, 2, true, true},
    {2, 3, 5, 6, 3, {1, 1, 0, 3}, 2, true, false},
    {2, 2, 3, 3, 2, {3, 3, 2, 2}, 2, true, false},
    {2, 6, 6, 9, 6, {2, 1, 2, 6}, 3, false, false},
    {1, 40, 40, 60, 40, {3, 1, 1, 40}, 1, true, false},
    {2, 9, 13, 12, 9, {7, 2, 3, 9}, 70, true, false},
};

typedef struct state {
    const problem *p;
    lk_shape x_shape, y_shape;
    size_t weights;
    float *x, *w, *b, *dy;
    result first;
} state;

static state state_create(const problem *p)
{
    size_t k = p->conv.kernel, s = p->conv.stride, grow = 2 * p->conv.pad;
    state st = {.p = p, .x_shape = {p->n, p->c, p->h, p->w}, .weights = p->out * (p->c / p->conv.groups) * k * k};
    st.y_shape = (lk_shape){p->n, p->out, (p->h + grow - k) / s + 1, (p->w + grow - k) / s + 1};
    st.x = random_buffer(lk__shape_count(st.x_shape), 1);
    st.w = random_buffer(st.weights, 2);
    st.b = random_buffer(p->out, 3);
    st.dy = random_buffer(lk__shape_count(st.y_shape), 4);
    return st;
}

static void result_destroy(result r)
{
    lk__mem_free(r.y);
    lk__mem_free(r.dx);
    lk__mem_free(r.dw);
    lk__mem_free(r.db);
}

static void state_destroy(state s)
{
    result_destroy(s.first);
    lk__mem_free(s.x);
    lk__mem_free(s.w);
    lk__mem_free(s.b);
    lk__mem_free(s.dy);
}

static result run(const state *s, const setting *how)
{
    const problem *p = s->p;
    lk_device *dev = open_device(how);
    size_t bytes = dev->kernels->conv2d_scratch(dev, &p->conv, s->x_shape, s->y_shape);
    void *scratch = scratch_open(bytes);
    result r = {unwritten(lk__shape_count(s->y_shape)), unwritten(lk__shape_count(s->x_shape)),
                unwritten(s->weights * LK_TREE_MAX_DEPTH), unwritten(p->out * LK_TREE_MAX_DEPTH)};
    static shard_wave wave;
    for (int first = 0; first < p->shards; first += how->wave) {
        wave_init(&wave, p->n, p->shards, first, how->wave < p->shards - first ? how->wave : p->shards - first);
        lk_shape shape_x = s->x_shape, shape_y = s->y_shape;
        shape_x.n = shape_y.n = wave.n;
        size_t at_x = wave.sample * lk__shape_sample(shape_x), at_y = wave.sample * lk__shape_sample(shape_y);
        lk_tensor x = {.data = s->x + at_x, .shape = shape_x}, dx = {.data = r.dx + at_x, .shape = shape_x};
        lk_tensor y = {.data = r.y + at_y, .shape = shape_y}, dy = {.data = s->dy + at_y, .shape = shape_y};
        dev->kernels->conv2d_forward(dev, &p->conv, &x, s->w, p->bias ? s->b : NULL, p->relu, &y, scratch);
        dev->kernels->conv2d_grad_input(dev, &p->conv, &dy, s->w, NULL, &dx, scratch);
        dev->kernels->conv2d_grad_weight(dev, &p->conv, &x, &dy, &wave.shards, (lk_partials){r.dw, s->weights},
                                         (lk_partials){p->bias ? r.db : NULL, p->out}, scratch);
    }
    scratch_close(scratch, bytes);
    dev->type->close(dev);
    return r;
}

/* What a tap is: one product of the definition, in all three directions. */
typedef struct term {
    size_t x, w, y; /* element indices */
    size_t out;
} term;

typedef void (*tap_fn)(const state *s, const term *tap, void *arg);

static void taps_of_output(const state *s, term *tap, size_t n, size_t oy, size_t ox, tap_fn visit, void *arg)
{
    const problem *p = s->p;
    size_t k = p->conv.kernel, in = p->c / p->conv.groups, first = tap->out / (p->out / p->conv.groups) * in;
    for (size_t c = 0; c < in; c++) {
        for (size_t ky = 0; ky < k; ky++) {
            for (size_t kx = 0; kx < k; kx++) {
                size_t y = oy * p->conv.stride + ky, x = ox * p->conv.stride + kx, pad = p->conv.pad;
                if (y < pad || x < pad || y - pad >= p->h || x - pad >= p->w)
                    continue;
                tap->x = ((n * p->h + y - pad) * p->w + x - pad) * p->c + first + c;
                tap->w = ((tap->out * in + c) * k + ky) * k + kx;
                visit(s, tap, arg);
            }
        }
    }
}

static void each_tap(const state *s, tap_fn visit, void *arg)
{
    lk_shape shape = s->y_shape;
    term tap = {.y = 0};
    for (size_t n = 0; n < shape.n; n++) {
        for (size_t oy = 0; oy < shape.h; oy++) {
            for (size_t ox = 0; ox < shape.w; ox++) {
                for (tap.out = 0; tap.out < shape.c; tap.out++, tap.y++)
                    taps_of_output(s, &tap, n, oy, ox, visit, arg);
            }
        }
    }
}

typedef struct reference {
    double *y, *dx, *dw, *db;
} reference;

static void add_tap(const state *s, const term *tap, void *arg)
{
    reference *ref = arg;
    double x = (double)s->x[tap->x], w = (double)s->w[tap->w], dy = (double)s->dy[tap->y];
    ref->y[tap->y] += x * w;
    ref->dx[tap->x] += dy * w;
    ref->dw[tap->w] += dy * x;
}

static void check_values(const state *s)
{
    const problem *p = s->p;
    size_t count_x = lk__shape_count(s->x_shape), count_y = lk__shape_count(s->y_shape);
    reference ref = {buffer64(count_y), buffer64(count_x), buffer64(s->weights), buffer64(p->out)};
    each_tap(s, add_tap, &ref);
    for (size_t i = 0; i < count_y; i++) {
        ref.y[i] += p->bias ? (double)s->b[i % p->out] : 0.0;
        ref.y[i] = p->relu && ref.y[i] < 0 ? 0.0 : ref.y[i];
        ref.db[i % p->out] += (double)s->dy[i];
    }
    assert_near("y", s->first.y, ref.y, count_y);
    assert_near("dx", s->first.dx, ref.dx, count_x);
    assert_near("dw", s->first.dw, ref.dw, s->weights);
    if (p->bias)
        assert_near("db", s->first.db, ref.db, p->out);
    lk__mem_free(ref.y);
    lk__mem_free(ref.dx);
    lk__mem_free(ref.dw);
    lk__mem_free(ref.db);
}

static bool same_bits(const setting *how, void *arg)
{
    state *s = arg;
    const problem *p = s->p;
    result r = run(s, how);
    bool same = !memcmp(r.y, s->first.y, lk__shape_count(s->y_shape) * sizeof *r.y) &&
                !memcmp(r.dx, s->first.dx, lk__shape_count(s->x_shape) * sizeof *r.dx) &&
                !memcmp(r.dw, s->first.dw, s->weights * sizeof *r.dw) &&
                (!p->bias || !memcmp(r.db, s->first.db, p->out * sizeof *r.db));
    result_destroy(r);
    if (!same)
        fail_msg("problem %td: %s with %d threads and waves of %d shards differs", p - problems, how->isa, how->threads,
                 how->wave);
    return false;
}

static void test_values(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        state s = state_create(&problems[i]);
        s.first = run(&s, &(setting){"scalar", 1, problems[i].shards});
        check_values(&s);
        state_destroy(s);
    }
}

static void test_same_bits(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        state s = state_create(&problems[i]);
        s.first = run(&s, &(setting){"scalar", 1, problems[i].shards});
        each_setting(problems[i].shards, same_bits, &s);
        state_destroy(s);
    }
}

/* A sample alone gives the bits that it gives in a batch. */
static void test_batch_of_one(void **unused)
{
    (void)unused;
    problem batch = {5, 16, 9, 7, 32, {3, 2, 1, 1}, 5, true, false}, one = batch;
    one.n = 1;
    one.shards = 1;
    state s = state_create(&batch), t = state_create(&one);
    s.first = run(&s, &(setting){NULL, 2, 5});
    t.first = run(&t, &(setting){NULL, 2, 1});
    assert_memory_equal(s.first.y, t.first.y, lk__shape_count(t.y_shape) * sizeof(float));
    assert_memory_equal(s.first.dx, t.first.dx, lk__shape_count(t.x_shape) * sizeof(float));
    state_destroy(s);
    state_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_batch_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
