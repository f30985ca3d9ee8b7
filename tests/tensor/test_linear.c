/* test_linear.c - linear layers against float64, and the same bits from every
 * build, thread count and split into waves. */
#include "kernel_test.h"

typedef struct problem {
    size_t n, in, out;
    int shards;
    bool bias, relu;
} problem;

typedef struct result {
    float *y, *dx, *dw, *db;
} result;

static const problem problems[] = {
    {1, 1, 1, 1, true, false},     {1, 7, 10, 1, true, true},       {4, 16, 32, 4, false, false},
    {5, 33, 17, 16, true, false},  {7, 784, 64, 3, true, true},     {64, 128, 10, 16, true, false},
    {13, 1500, 70, 5, true, true}, {3, 26, 130, 2, true, false},    {29, 21, 3, 7, false, true},
    {150, 64, 65, 16, true, true}, {2, 1025, 300, 16, true, false},
};

typedef struct state {
    const problem *p;
    float *x, *w, *b, *dy;
    result first;
} state;

static result result_create(const problem *p)
{
    size_t weights = p->in * p->out;
    return (result){unwritten(p->n * p->out), unwritten(p->n * p->in), unwritten(weights * LK_TREE_MAX_DEPTH),
                    unwritten(p->out * LK_TREE_MAX_DEPTH)};
}

static void result_destroy(result r)
{
    lk__mem_free(r.y);
    lk__mem_free(r.dx);
    lk__mem_free(r.dw);
    lk__mem_free(r.db);
}

static result run(const state *s, const setting *how)
{
    const problem *p = s->p;
    lk_device *dev = open_device(how);
    lk_shape shape_x = {p->n, p->in, 1, 1}, shape_y = {p->n, p->out, 1, 1};
    size_t bytes = dev->kernels->linear_scratch(dev, shape_x, shape_y);
    void *scratch = scratch_open(bytes);
    result r = result_create(p);
    static shard_wave wave;
    for (int first = 0; first < p->shards; first += how->wave) {
        wave_init(&wave, p->n, p->shards, first, how->wave < p->shards - first ? how->wave : p->shards - first);
        shape_x.n = shape_y.n = wave.n;
        lk_tensor x = {.data = s->x + wave.sample * p->in, .shape = shape_x};
        lk_tensor y = {.data = r.y + wave.sample * p->out, .shape = shape_y};
        lk_tensor dy = {.data = s->dy + wave.sample * p->out, .shape = shape_y};
        lk_tensor dx = {.data = r.dx + wave.sample * p->in, .shape = shape_x};
        dev->kernels->linear_forward(dev, &x, s->w, p->bias ? s->b : NULL, p->relu, &y, scratch);
        dev->kernels->linear_grad_input(dev, &dy, s->w, NULL, &dx, scratch);
        dev->kernels->linear_grad_weight(dev, &x, &dy, &wave.shards, (lk_partials){r.dw, p->in * p->out},
                                         (lk_partials){p->bias ? r.db : NULL, p->out}, scratch);
    }
    scratch_close(scratch, bytes);
    dev->type->close(dev);
    return r;
}

static void check_forward(const state *s)
{
    const problem *p = s->p;
    double *want = buffer64(p->n * p->out);
    for (size_t n = 0; n < p->n; n++) {
        for (size_t o = 0; o < p->out; o++) {
            double sum = p->bias ? (double)s->b[o] : 0.0;
            for (size_t i = 0; i < p->in; i++)
                sum += (double)s->x[n * p->in + i] * (double)s->w[o * p->in + i];
            want[n * p->out + o] = p->relu && sum < 0 ? 0 : sum;
        }
    }
    assert_near("y", s->first.y, want, p->n * p->out);
    lk__mem_free(want);
}

static void check_grad_input(const state *s)
{
    const problem *p = s->p;
    double *want = buffer64(p->n * p->in);
    for (size_t n = 0; n < p->n; n++) {
        for (size_t o = 0; o < p->out; o++) {
            for (size_t i = 0; i < p->in; i++)
                want[n * p->in + i] += (double)s->dy[n * p->out + o] * (double)s->w[o * p->in + i];
        }
    }
    assert_near("dx", s->first.dx, want, p->n * p->in);
    lk__mem_free(want);
}

static void check_grad_weight(const state *s)
{
    const problem *p = s->p;
    double *dw = buffer64(p->in * p->out), *db = buffer64(p->out);
    for (size_t n = 0; n < p->n; n++) {
        for (size_t o = 0; o < p->out; o++) {
            double dy = (double)s->dy[n * p->out + o];
            db[o] += dy;
            for (size_t i = 0; i < p->in; i++)
                dw[o * p->in + i] += dy * (double)s->x[n * p->in + i];
        }
    }
    assert_near("dw", s->first.dw, dw, p->in * p->out);
    if (p->bias)
        assert_near("db", s->first.db, db, p->out);
    lk__mem_free(dw);
    lk__mem_free(db);
}

static bool same_bits(const setting *how, void *arg)
{
    state *s = arg;
    const problem *p = s->p;
    result r = run(s, how);
    bool same = !memcmp(r.y, s->first.y, p->n * p->out * sizeof *r.y) &&
                !memcmp(r.dx, s->first.dx, p->n * p->in * sizeof *r.dx) &&
                !memcmp(r.dw, s->first.dw, p->in * p->out * sizeof *r.dw) &&
                (!p->bias || !memcmp(r.db, s->first.db, p->out * sizeof *r.db));
    result_destroy(r);
    if (!same)
        fail_msg("n %zu, %zu to %zu: %s with %d threads and waves of %d shards differs", p->n, p->in, p->out, how->isa,
                 how->threads, how->wave);
    return false;
}

static void test_problem(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        const problem *p = &problems[i];
        state s = {.p = p};
        s.x = random_buffer(p->n * p->in, 1);
        s.w = random_buffer(p->in * p->out, 2);
        s.b = random_buffer(p->out, 3);
        s.dy = random_buffer(p->n * p->out, 4);
        s.first = run(&s, &(setting){"scalar", 1, p->shards});
        check_forward(&s);
        check_grad_input(&s);
        check_grad_weight(&s);
        each_setting(p->shards, same_bits, &s);
        result_destroy(s.first);
        lk__mem_free(s.x);
        lk__mem_free(s.w);
        lk__mem_free(s.b);
        lk__mem_free(s.dy);
    }
}

/* Sums of whole numbers are exact, so the tree's order cannot hide a lost or
 * doubled sample. */
static void test_exact_counts(void **unused)
{
    (void)unused;
    problem p = {.n = 37, .in = 19, .out = 11, .shards = 16, .bias = true};
    state s = {.p = &p, .x = buffer(p.n * p.in), .w = buffer(p.in * p.out), .b = buffer(p.out)};
    s.dy = buffer(p.n * p.out);
    for (size_t n = 0; n < p.n; n++) {
        for (size_t i = 0; i < p.in; i++)
            s.x[n * p.in + i] = (float)(1 + i);
        for (size_t o = 0; o < p.out; o++)
            s.dy[n * p.out + o] = (float)(n + o);
    }
    result r = run(&s, &(setting){NULL, 2, 5});
    for (size_t o = 0; o < p.out; o++) {
        float sum = (float)(p.n * (p.n - 1) / 2 + p.n * o);
        assert_true(r.db[o] == sum);
        for (size_t i = 0; i < p.in; i++)
            assert_true(r.dw[o * p.in + i] == sum * (float)(1 + i));
    }
    result_destroy(r);
    lk__mem_free(s.x);
    lk__mem_free(s.w);
    lk__mem_free(s.b);
    lk__mem_free(s.dy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_problem),
        cmocka_unit_test(test_exact_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
