/* test_conv2d_groups.c - each group of a convolution gives the bits of a plain
 * convolution of its channels alone, and groups take the gradient of a ReLU
 * before them as plain convolutions do. */
#include "kernel_test.h"

enum { N = 3, H = 9, W = 10, SHARDS = 2 };

typedef struct problem {
    size_t in, out; /* channels */
    lk_conv2d_desc conv;
} problem;

/* in, out, {kernel, stride, pad, groups} */
static const problem problems[] = {
    {6, 4, {3, 1, 1, 2}},    {9, 12, {3, 2, 1, 3}},   {40, 70, {3, 1, 1, 2}},  {5, 15, {3, 1, 0, 5}},
    {4, 8, {5, 2, 2, 4}},    {12, 4, {1, 1, 0, 4}},   {8, 8, {3, 1, 1, 8}},    {37, 37, {3, 2, 1, 37}},
    {3, 3, {5, 1, 2, 3}},    {18, 18, {2, 2, 0, 18}}, {16, 16, {1, 2, 0, 16}}, {2, 2, {7, 3, 3, 2}},
    {33, 33, {4, 1, 2, 33}},
};

/* A convolution with all that goes in and comes out. */
typedef struct run {
    lk_conv2d_desc conv;
    lk_shape x_shape, y_shape;
    size_t weights;
    float *x, *w, *b, *dy;
    float *y, *dx, *dw, *db;
} run;

static run run_create(const lk_conv2d_desc *conv, size_t in, size_t out)
{
    size_t k = conv->kernel, s = conv->stride, grow = 2 * conv->pad;
    run r = {.conv = *conv, .x_shape = {N, in, H, W}, .weights = out * (in / conv->groups) * k * k};
    r.y_shape = (lk_shape){N, out, (H + grow - k) / s + 1, (W + grow - k) / s + 1};
    r.x = random_buffer(lk__shape_count(r.x_shape), 1);
    r.w = random_buffer(r.weights, 2);
    r.b = random_buffer(out, 3);
    r.dy = random_buffer(lk__shape_count(r.y_shape), 4);
    r.y = unwritten(lk__shape_count(r.y_shape));
    r.dx = unwritten(lk__shape_count(r.x_shape));
    r.dw = unwritten(r.weights * LK_TREE_MAX_DEPTH);
    r.db = unwritten(out * LK_TREE_MAX_DEPTH);
    return r;
}

static void run_destroy(run *r)
{
    float *blocks[] = {r->x, r->w, r->b, r->dy, r->y, r->dx, r->dw, r->db};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        lk__mem_free(blocks[i]);
}

static void compute(run *r, const setting *how, bool masked)
{
    lk_device *dev = open_device(how);
    size_t bytes = dev->kernels->conv2d_scratch(dev, &r->conv, r->x_shape, r->y_shape);
    void *scratch = scratch_open(bytes);
    lk_tensor x = {.data = r->x, .shape = r->x_shape}, dx = {.data = r->dx, .shape = r->x_shape};
    lk_tensor y = {.data = r->y, .shape = r->y_shape}, dy = {.data = r->dy, .shape = r->y_shape};
    static shard_wave wave;
    wave_init(&wave, N, SHARDS, 0, SHARDS);
    dev->kernels->conv2d_forward(dev, &r->conv, &x, r->w, r->b, true, &y, scratch);
    dev->kernels->conv2d_grad_input(dev, &r->conv, &dy, r->w, masked ? &x : NULL, &dx, scratch);
    dev->kernels->conv2d_grad_weight(dev, &r->conv, &x, &dy, &wave.shards, (lk_partials){r->dw, r->weights},
                                     (lk_partials){r->db, r->y_shape.c}, scratch);
    scratch_close(scratch, bytes);
    dev->type->close(dev);
}

/* Channels [first, first + part.c) of every pixel, from all of them or back. */
static void move_channels(float *all, lk_shape shape, float *some, lk_shape part, size_t first, bool back)
{
    for (size_t pixel = 0; pixel < shape.n * shape.h * shape.w; pixel++) {
        float *whole = all + pixel * shape.c + first, *piece = some + pixel * part.c;
        if (back)
            memcpy(whole, piece, part.c * sizeof *whole);
        else
            memcpy(piece, whole, part.c * sizeof *whole);
    }
}

/* Fills the results of all from plain convolutions, group by group. */
static void compute_apart(run *all, const setting *how)
{
    size_t groups = all->conv.groups, in = all->x_shape.c / groups, out = all->y_shape.c / groups;
    lk_conv2d_desc plain = all->conv;
    plain.groups = 1;
    for (size_t g = 0; g < groups; g++) {
        run one = run_create(&plain, in, out);
        move_channels(all->x, all->x_shape, one.x, one.x_shape, g * in, false);
        move_channels(all->dy, all->y_shape, one.dy, one.y_shape, g * out, false);
        memcpy(one.w, all->w + g * one.weights, one.weights * sizeof *one.w);
        memcpy(one.b, all->b + g * out, out * sizeof *one.b);
        compute(&one, how, false);
        move_channels(all->y, all->y_shape, one.y, one.y_shape, g * out, true);
        move_channels(all->dx, all->x_shape, one.dx, one.x_shape, g * in, true);
        memcpy(all->dw + g * one.weights, one.dw, one.weights * sizeof *one.dw);
        memcpy(all->db + g * out, one.db, out * sizeof *one.db);
        run_destroy(&one);
    }
}

static bool same_as_apart(const setting *how, void *arg)
{
    const problem *p = arg;
    run all = run_create(&p->conv, p->in, p->out), apart = run_create(&p->conv, p->in, p->out);
    compute(&all, how, false);
    compute_apart(&apart, how);
    if (memcmp(all.y, apart.y, lk__shape_count(all.y_shape) * sizeof *all.y) ||
        memcmp(all.dx, apart.dx, lk__shape_count(all.x_shape) * sizeof *all.dx) ||
        memcmp(all.dw, apart.dw, all.weights * sizeof *all.dw) || memcmp(all.db, apart.db, p->out * sizeof *all.db))
        fail_msg("problem %td: %s with %d threads: groups differ from plain convolutions", p - problems, how->isa,
                 how->threads);
    run_destroy(&all);
    run_destroy(&apart);
    return false;
}

static void test_apart(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        each_setting(SHARDS, same_as_apart, (void *)&problems[i]);
}

static bool same_as_relu(const setting *how, void *arg)
{
    const problem *p = arg;
    run plain = run_create(&p->conv, p->in, p->out), masked = run_create(&p->conv, p->in, p->out);
    size_t count = lk__shape_count(plain.x_shape), zeros = 0;
    compute(&plain, how, false);
    compute(&masked, how, true);
    for (size_t i = 0; i < count; i++) {
        float want = plain.x[i] > 0 ? plain.dx[i] : 0.0f;
        zeros += plain.x[i] > 0 ? 0 : 1;
        if (memcmp(&want, &masked.dx[i], sizeof want) != 0)
            fail_msg("problem %td: %s: element %zu is %g under a mask, not %g", p - problems, how->isa, i,
                     (double)masked.dx[i], (double)want);
    }
    assert_in_range(zeros, count / 4, count - 1);
    run_destroy(&plain);
    run_destroy(&masked);
    return false;
}

static void test_mask(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        each_setting(SHARDS, same_as_relu, (void *)&problems[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_apart),
        cmocka_unit_test(test_mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
