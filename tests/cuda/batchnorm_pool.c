/* batchnorm_pool.c - batch normalisation with a max pooling behind it, on the device under test: the bits of the
 * separate slots of the normalisation with its ReLU and of the pooling. */
#include "tensor/kernel_test.h"

typedef struct pooled_case {
    lk_shape in, out; /* of the normalisation, of the pooling */
    lk_pool2d_desc windows;
    int shards;
    int wave; /* shards of a wave; 0: all */
    bool per_shard, relu, at_once;
    const float *x;    // (in)
    const float *dy;   // (out)
    const float *rows; // (2, shards * c) mean and scale, then gamma and beta, then (shards, 2, c) sums
} pooled_case;

/* Memory of a run. */
typedef struct pooled_buffers {
    lk_tensor x, dy, y, dx, full, full_dy;
    const float *rows, *gamma, *beta, *totals;
    float *leaves, *sums, *grads;
    uint8_t *index;
} pooled_buffers;

/* Results: y, the index, dx, the sums of each shard, those of all, and the gradients of gamma and beta. */
static size_t pooled_count(const pooled_case *p)
{
    return 2 * lk__shape_count(p->out) + lk__shape_count(p->in) + ((size_t)p->shards + 2) * 2 * p->in.c;
}

static size_t index_bytes(const lk_tensor *y)
{
    return y->shape.n * y->shape.h * y->shape.w * lk__tensor_pitch(y);
}

static pooled_buffers make_pooled_buffers(lk_device *d, const pooled_case *p)
{
    size_t c = p->in.c, row = (size_t)p->shards * c, slots = fx_slots(p->shards);
    const float *rows = fx_floats(d, p->rows, 4 * row + 2 * c);
    pooled_buffers b = {.x = fx_input(d, p->in, p->x),
                        .dy = fx_input(d, p->out, p->dy),
                        .y = fx_tensor(d, p->out),
                        .dx = fx_tensor(d, p->in),
                        .full = fx_tensor(d, p->in),
                        .full_dy = fx_tensor(d, p->in),
                        .rows = rows,
                        .gamma = rows + 2 * row,
                        .beta = rows + 2 * row + c,
                        .totals = rows + 2 * row + 2 * c,
                        .leaves = fx_no_floats(d, 2 * row),
                        .sums = fx_no_floats(d, slots * 2 * c),
                        .grads = fx_no_floats(d, slots * 2 * c)};
    b.index = fx_blank(d, index_bytes(&b.y));
    return b;
}

/* The tensors of one wave. */
typedef struct pooled_wave {
    lk_tensor x, dy, y, dx, full, full_dy;
    uint8_t *index;
    lk_moments moments;
    lk_batchnorm_sums sums;
    lk_batchnorm_grad grad;
} pooled_wave;

static pooled_wave wave_of(const pooled_case *p, const pooled_buffers *b, const fx_wave *v, int lo)
{
    size_t c = p->in.c, group = p->per_shard ? (size_t)lo * c : 0, row = (size_t)p->shards * c;
    lk_partials none = {0};
    bool last = v->first + v->n == p->in.n && lo + v->shards.count == p->shards;
    pooled_wave w = {.x = lk__tensor_rows(&b->x, v->first, v->n),
                     .dy = lk__tensor_rows(&b->dy, v->first, v->n),
                     .y = lk__tensor_rows(&b->y, v->first, v->n),
                     .dx = lk__tensor_rows(&b->dx, v->first, v->n),
                     .full = lk__tensor_rows(&b->full, v->first, v->n),
                     .full_dy = lk__tensor_rows(&b->full_dy, v->first, v->n),
                     .moments.groups = p->per_shard ? v->shards.count : 1,
                     .moments.mean = (float *)(uintptr_t)(b->rows + group),
                     .moments.scale = (float *)(uintptr_t)(b->rows + row + group),
                     .sums = {.sums = b->leaves + (size_t)lo * 2 * c, .partials = {b->sums, 2 * c}},
                     .grad = {.sums = b->totals + 2 * group, .rows = p->per_shard ? v->rows : &p->in.n}};
    lk_tensor before = lk__tensor_rows(&b->y, 0, v->first);
    w.index = b->index + index_bytes(&before);
    w.sums.dgamma = last ? (lk_partials){b->grads, 2 * c} : none;
    w.sums.dbeta = last ? (lk_partials){b->grads + c, 2 * c} : none;
    return w;
}

static void run_wave(lk_device *d, const pooled_case *p, const pooled_buffers *b, pooled_wave *w,
                     const lk_shards *shards)
{
    const lk_kernels *k = d->kernels;
    lk_batchnorm_desc desc = {.gamma = b->gamma, .beta = b->beta, .relu = p->relu};
    if (p->at_once) {
        desc.pool = &p->windows;
        desc.index = w->index;
        k->batchnorm_forward(d, &desc, &w->x, shards, &w->moments, &w->y);
        k->batchnorm_sums(d, &desc, &w->x, &w->dy, shards, &w->moments, &w->sums);
        k->batchnorm_grad_input(d, &desc, &w->grad, &w->x, &w->dy, shards, &w->moments, &w->dx);
        return;
    }
    k->batchnorm_forward(d, &desc, &w->x, shards, &w->moments, &w->full);
    /* The normalisation masks the gradient itself, but the index of the ReLU's mask is compared. */
    k->maxpool_forward(d, &p->windows, NULL, &w->full, false, &w->y, w->index);
    k->maxpool_grad_input(d, &p->windows, NULL, &w->dy, w->index, &w->full_dy);
    k->maxpool_forward(d, &p->windows, NULL, &w->full, p->relu, &w->y, w->index);
    k->batchnorm_sums(d, &desc, &w->x, &w->full_dy, shards, &w->moments, &w->sums);
    k->batchnorm_grad_input(d, &desc, &w->grad, &w->x, &w->full_dy, shards, &w->moments, &w->dx);
}

static void read_index(lk_device *d, const pooled_buffers *b, float *out)
{
    size_t pixels = b->y.shape.n * b->y.shape.h * b->y.shape.w, c = b->y.shape.c, pitch = lk__tensor_pitch(&b->y);
    uint8_t *bytes = malloc(index_bytes(&b->y) + 1);
    assert_non_null(bytes);
    fx_get(d, b->index, index_bytes(&b->y), bytes);
    for (size_t i = 0; i < pixels; i++)
        fx_spread(bytes + i * pitch, c, out + i * c);
    free(bytes);
}

static void run_pooled(lk_device *d, const void *arg, float *out)
{
    const pooled_case *p = arg;
    size_t c = p->in.c, row = (size_t)p->shards * c, outs = lk__shape_count(p->out);
    pooled_buffers b = make_pooled_buffers(d, p);
    for (int lo = 0, wave = p->wave ? p->wave : p->shards; lo < p->shards; lo += wave) {
        fx_wave v;
        fx_wave_init(&v, p->in.n, p->shards, lo, wave);
        pooled_wave w = wave_of(p, &b, &v, lo);
        run_wave(d, p, &b, &w, &v.shards);
    }
    fx_read(d, &b.y, out);
    read_index(d, &b, out + outs);
    fx_read(d, &b.dx, out + 2 * outs);
    out += 2 * outs + lk__shape_count(p->in);
    fx_get_floats(d, b.leaves, 2 * row, out);
    fx_get_floats(d, b.sums, 2 * c, out + 2 * row);
    fx_get_floats(d, b.grads, 2 * c, out + 2 * row + 2 * c);
}

/* Windows along an axis, in ceil mode also one that extends beyond the image. */
static size_t count_windows(const lk_window *w, size_t size, bool ceil)
{
    size_t padded = size + 2 * w->pad, extent = lk__window_extent(w);
    size_t count = padded < extent ? 0 : (padded - extent) / w->stride + 1;
    bool more = ceil && (count == 0 || (padded - extent) % w->stride > 0) && count * w->stride < size + w->pad;
    return more ? count + 1 : count;
}

/* Many values of x, and so of y, are equal; some gammas are 0, with -0.0 as beta; some gradients are 0 or -0.0.
 * strange: some values are NaN or infinite. Otherwise the sums are numbers. */
static void check_case(pooled_case p, bool ceil, bool strange)
{
    size_t c = p.in.c, row = (size_t)p.shards * c, ins = lk__shape_count(p.in);
    p.out = p.in;
    p.out.h = count_windows(&p.windows.h, p.in.h, ceil);
    p.out.w = count_windows(&p.windows.w, p.in.w, ceil);
    size_t outs = lk__shape_count(p.out), count = pooled_count(&p);
    float *x = random_values(ins, 1), *dy = random_values(outs, 2), *rows = random_floats(4 * row + 2 * c, 3);
    for (size_t i = 0; i < ins; i++) {
        x[i] = i % 3 ? x[i] : (float)(int)(4 * x[i]) / 4;
        if (strange)
            x[i] = i % 29 == 5 ? NAN : i % 31 == 7 ? INFINITY : i % 37 == 11 ? -INFINITY : x[i];
    }
    for (size_t i = 0; i < outs; i++)
        dy[i] = i % 5 == 1 ? -0.0f : i % 7 == 2 ? 0.0f : dy[i];
    for (size_t i = 0; i < row; i++)
        rows[row + i] = fabsf(rows[row + i]) + 0.5f;
    for (size_t i = 0; i < c; i++) {
        rows[2 * row + i] = i % 5 == 3 ? 0.0f : rows[2 * row + i];
        rows[2 * row + c + i] = i % 5 == 3 ? -0.0f : rows[2 * row + c + i];
    }
    p.x = x, p.dy = dy, p.rows = rows;
    p.at_once = false;
    float *want = fx_bits("normalisation, pooling", run_pooled, &p, count);
    p.at_once = true;
    float *got = p.shards % 5 == 0 ? fx_bits_in_waves("normalisation with pooling", run_pooled, &p, count, &p.wave)
                                   : fx_bits("normalisation with pooling", run_pooled, &p, count);
    char what[256];
    snprintf(what, sizeof what, "%zux%zux%zux%zu, windows %zu, pad %zu and %zu, %d shards, groups %d, ReLU %d, ceil %d",
             p.in.n, c, p.in.h, p.in.w, p.windows.h.kernel, p.windows.h.pad, p.windows.w.pad, p.shards, p.per_shard,
             p.relu, ceil);
    fx_same(what, got, want, count);
    assert_true(strange || !isnan(got[count - 1]));
    free(got);
    free(want);
    free(x);
    free(dy);
    free(rows);
}

static const lk_pool2d_desc by_2 = {LK_WINDOW_SQUARE(2, 2, 0)};
static const lk_pool2d_desc by_3[] = {{LK_WINDOW_SQUARE(3, 2, 1)},
                                      {LK_WINDOW_SQUARE(3, 2, 0)},
                                      {{3, 2, 1, 1}, {3, 2, 0, 1}},
                                      {{3, 2, 0, 1}, {3, 2, 1, 1}}};

/* Whether the device can do it; a device without such kernels has no case. */
static bool can(const lk_pool2d_desc *windows)
{
    return dev->type->pools && dev->type->pools(windows);
}

static void test_refused(void **state)
{
    static const lk_pool2d_desc others[] = {{LK_WINDOW_SQUARE(2, 1, 0)},  {LK_WINDOW_SQUARE(2, 2, 1)},
                                            {LK_WINDOW_SQUARE(3, 3, 0)},  {LK_WINDOW_SQUARE(4, 2, 0)},
                                            {{3, 2, 0, 2}, {3, 2, 0, 1}}, {{3, 2, 0, 1}, {2, 2, 0, 1}},
                                            {{2, 2, 0, 1}, {2, 3, 0, 1}}, {{1, 2, 0, 1}, {1, 2, 0, 1}}};
    for (size_t i = 0; i < COUNT_OF(others); i++)
        assert_false(can(&others[i]));
}

/* All channel counts, with sides that are even, odd and as small as can be. */
static void check_sizes(const lk_pool2d_desc *windows, size_t least)
{
    static const size_t channels[] = {1, 3, 8, 20, 64, 106};
    for (size_t i = 0; i < COUNT_OF(channels); i++) {
        pooled_case p = {.windows = *windows, .relu = i % 3 != 0, .per_shard = i % 2};
        p.in = (lk_shape){13, channels[i], 6, 8}, p.shards = 5;
        check_case(p, false, false);
        p.in = (lk_shape){6, channels[i], 7, 9}, p.shards = 16; /* empty shards */
        check_case(p, i % 2, i % 4 == 1);
        p.in = (lk_shape){1 + 4 * i, channels[i], 5, 6}, p.shards = 1 + (int)i, p.per_shard = false, p.relu = true;
        check_case(p, true, i % 4 == 3);
        p.in = (lk_shape){2, channels[i], least, 4}, p.shards = 1;
        check_case(p, false, true);
    }
}

static void test_2x2(void **state)
{
    if (!can(&by_2))
        return;
    check_sizes(&by_2, 2);
    for (int relu = 0; relu < 2; relu++) {
        check_case((pooled_case){.in = {75, 11, 5, 4}, .windows = by_2, .shards = 70, .relu = relu}, false, false);
        check_case((pooled_case){.in = {17, 128, 32, 32}, .windows = by_2, .shards = 2, .relu = relu}, false, false);
        check_case((pooled_case){.in = {5, 2048, 7, 7}, .windows = by_2, .shards = 3, .relu = relu}, false, relu);
        check_case((pooled_case){.in = {1, 24, 1, 1}, .windows = by_2, .shards = 1, .relu = relu}, true, false);
    }
}

static void test_3x3(void **state)
{
    for (size_t i = 0; i < COUNT_OF(by_3); i++) {
        if (can(&by_3[i]))
            check_sizes(&by_3[i], 3 - 2 * by_3[i].h.pad);
    }
    for (int relu = 0; relu < 2 && can(&by_3[0]); relu++) {
        pooled_case p = {.in = {75, 11, 5, 4}, .windows = by_3[0], .shards = 70, .relu = relu, .per_shard = true};
        check_case(p, false, false);
        check_case((pooled_case){.in = {9, 64, 56, 54}, .windows = by_3[0], .shards = 2, .relu = relu}, false, false);
        check_case((pooled_case){.in = {3, 40, 57, 53}, .windows = by_3[0], .shards = 2, .relu = relu}, true, relu);
        check_case((pooled_case){.in = {5, 1032, 7, 8}, .windows = by_3[0], .shards = 3, .relu = relu}, false, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_refused), TEST(test_2x2), TEST(test_3x3)};
    return fx_main(tests, COUNT_OF(tests), FX_FP32 | FX_BF16);
}
