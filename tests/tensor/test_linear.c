/* test_linear.c - linear layers and their gradients, on the CPU and on GPUs. Inputs are vectors, or flattened
 * images that the device may read as a view. */
#include "tensor/layer.h"

/* {n, features, 1, 1} or {n, c, h, w}, out; other fields by name. */
static const layer layers[] = {
    {{1, 1, 1, 1}, 1, .shards = 1},
    {{1, 7, 1, 1}, 10, .shards = 1},
    {{4, 16, 1, 1}, 32, .shards = 4, .no_bias = true},
    {{5, 33, 1, 1}, 17, .shards = 16},
    {{7, 784, 1, 1}, 64, .shards = 3},
    {{64, 128, 1, 1}, 10, .shards = 16},
    {{13, 1500, 1, 1}, 70, .shards = 5},
    {{3, 26, 1, 1}, 130, .shards = 2},
    {{29, 21, 1, 1}, 3, .shards = 7, .no_bias = true},
    {{150, 64, 1, 1}, 65, .shards = 16},
    {{2, 1025, 1, 1}, 300, .shards = 16},
    {{13, 37, 1, 1}, 1030, .shards = 1},
    {{150, 1030, 1, 1}, 70, .shards = 16}, /* with many threads, tasks become wider */
    /* one row */
    {{1, 1029, 1, 1}, 130, .shards = 1},
    {{1, 3, 1, 1}, 33, .shards = 1, .no_bias = true},
    {{1, 37, 1, 1}, 1030, .shards = 1},
    /* few rows: weights that are read once, with odd widths, blocks of 256 terms, and more columns than a task has */
    {{3, 1029, 1, 1}, 131, .shards = 1},
    {{7, 301, 1, 1}, 259, .shards = 16},
    {{4, 2100, 1, 1}, 40, .shards = 16, .no_bias = true},
    {{8, 519, 1, 1}, 517, .shards = 3, .wave = 2},
    {{2, 4500, 1, 1}, 19, .shards = 5, .wave = 1},
    {{3, 300, 1, 1}, 20, .shards = 8},
    {{1, 129, 1, 1}, 64, .shards = 16},
    {{6, 260, 1, 1}, 9, .shards = 16, .wave = 3},
    {{9, 300, 1, 1}, 100, .shards = 16},
    {{600, 33, 1, 1}, 45, .shards = 2}, /* leaves of two blocks */
    /* images */
    {{4, 64, 12, 12}, 128, .shards = 2, .effort = NOT_CPU}, /* fc1 of the cnn */
    {{5, 26, 3, 3}, 10, .shards = 3},
    {{3, 1, 28, 28}, 64, .shards = 3, .effort = BRIEF},
    {{2, 3, 5, 5}, 21, .shards = 1},
    {{7, 31, 2, 2}, 1000, .shards = 2, .effort = BRIEF},
    /* no samples */
    {{0, 64, 1, 1}, 10, .shards = 4},
    {{0, 26, 2, 2}, 10, .shards = 2},
};

static const layer with_relus[] = {
    {{3, 21, 1, 1}, 37, .shards = 1},
    {{14, 37, 1, 1}, 5, .shards = 1},
    {{5, 31, 1, 1}, 26, .shards = 1},
    {{3, 1, 1, 1}, 1, .shards = 1},
    {{1, 31, 1, 1}, 69, .shards = 1},
    {{4, 270, 1, 1}, 69, .shards = 16},
    {{64, 784, 1, 1}, 64, .shards = 1, .effort = NOT_CPU},
    {{128, 784, 1, 1}, 64, .shards = 1, .effort = NOT_CPU},
    {{64, 9216, 1, 1}, 128, .shards = 1, .effort = NOT_CPU},
};

static void test_layers(void **state)
{
    check_layers(layers, COUNT_OF(layers));
}

static void test_sizes(void **state)
{
    static const size_t sizes[][2] = {{784, 64}, {64, 64}, {64, 10}, {128, 1000}, {31, 26},
                                      {21, 3},   {3, 31},  {1, 1},   {26, 1}};
    static const size_t batches[] = {1, 5, 64};
    for (size_t i = 0; i < COUNT_OF(sizes) * COUNT_OF(batches); i++) {
        const size_t *size = sizes[i / COUNT_OF(batches)];
        layer l = {{batches[i % COUNT_OF(batches)], size[0], 1, 1}, size[1], .shards = 4};
        l.effort = l.x.n > 5 ? NOT_CPU : BRIEF;
        check_layer(l);
    }
}

/* Shards of different sizes, empty shards, and waves. */
static void test_shards(void **state)
{
    static const struct {
        size_t batch;
        int shards, wave;
    } cuts[] = {{7, 4, 0}, {7, 4, 1}, {13, 5, 2}, {3, 8, 0}, {3, 8, 1}, {1, 1, 0}, {1, 16, 3}, {128, 16, 5}};
    for (size_t i = 0; i < COUNT_OF(cuts); i++) {
        layer l = {{cuts[i].batch, 37, 1, 1}, 21, {.groups = 0}, cuts[i].shards, cuts[i].wave, .effort = BRIEF};
        check_layer(l);
        l.x = (lk_shape){cuts[i].batch, 26, 2, 2};
        check_layer(l);
    }
}

static void test_nans(void **state)
{
    for (size_t i = 0; i < COUNT_OF(with_relus); i++)
        check_layer_nans(with_relus[i]);
}

/* A layer between two dropouts, of which the first has a ReLU before it. */
typedef struct dropping {
    layer l;
    bool relu, apart; /* a ReLU before the second dropout; dropouts and the first ReLU by kernels of their own */
} dropping;

static lk_dropout_desc dropout_of(lk_device *d, size_t samples, uint32_t index)
{
    const uint32_t step = 5;
    uint32_t *ids = calloc(samples + 1, sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < samples; i++)
        ids[i] = (uint32_t)(i * 2654435761u + 7);
    lk_dropout_desc desc = {.p = 0.375f, .seed = 3, .layer = index};
    desc.step = fx_put(d, &step, sizeof step);
    desc.ids = fx_put(d, ids, samples * sizeof *ids);
    free(ids);
    return desc;
}

/* The input gradient of the layer, the first dropout and its ReLU, all without a fused kernel. The sign of the ReLU's
 * result is that of l->values, from which x was made. */
static void grad_input_apart(lk_device *d, const layer *l, const lk_dropout_desc *first, const lk_tensor *dy,
                             const void *w, lk_tensor *dx, void *scratch)
{
    lk_tensor relu = layer_put(d, l, l->values);
    layer_grad_input(d, l, dy, w, NULL, NULL, dx, scratch);
    d->kernels->dropout(d, first, dx, dx);
    d->kernels->relu_grad_input(d, &relu, dx, dx);
}

/* Results: y, dx. */
static void run_dropping(lk_device *d, const void *arg, float *out)
{
    const dropping *c = arg;
    const layer *l = &c->l;
    lk_device_weight weight = layer_weight(d, l);
    lk_shape ys = layer_y(l);
    lk_tensor x = layer_put(d, l, l->values), dy = fx_input(d, ys, l->dy), y = fx_tensor(d, ys), dx = layer_blank(d, l);
    void *w = fx_weights(d, &weight, l->w), *b = fx_parameter(d, l->b, l->out), *scratch = layer_scratch(d, l);
    lk_dropout_desc first = dropout_of(d, l->x.n, 2), second = dropout_of(d, l->x.n, 9);
    d->kernels->relu_forward(d, &x, &x);
    d->kernels->dropout(d, &first, &x, &x);
    layer_forward(d, l, &x, w, b, c->relu, c->apart ? NULL : &second, &y, scratch);
    if (c->apart) {
        d->kernels->dropout(d, &second, &y, &y);
        grad_input_apart(d, l, &first, &dy, w, &dx, scratch);
    } else {
        layer_grad_input(d, l, &dy, w, &x, &first, &dx, scratch);
    }
    fx_read(d, &y, out);
    layer_get(d, l, &dx, out + lk__shape_count(ys));
}

/* Kernels that do a neighbour's ReLU and dropout give the bits of separate kernels. */
static void test_dropouts(void **state)
{
    static const layer cases[] = {
        {{5, 31, 1, 1}, 26, .shards = 1},
        {{9, 300, 1, 1}, 100, .shards = 1},
        {{64, 128, 1, 1}, 10, .shards = 1},
        {{600, 128, 1, 1}, 40, .shards = 1, .effort = BRIEF},
        {{3, 600, 1, 1}, 700, .shards = 1, .effort = BRIEF},
        {{64, 9216, 1, 1}, 128, .shards = 1, .effort = NOT_CPU},
    };
    for (size_t i = 0; i < 2 * COUNT_OF(cases); i++) {
        dropping c = {.l = cases[i / 2], .relu = i % 2};
        if (!layer_applies(&c.l))
            continue;
        size_t count = lk__shape_count(layer_y(&c.l)) + lk__shape_count(c.l.x);
        layer_values v = layer_draw(&c.l);
        float *got = fx_bits_brief("fused dropouts", run_dropping, &c, count);
        c.apart = true;
        float *want = fx_bits_brief("dropouts", run_dropping, &c, count);
        fx_same("fused dropouts", got, want, count);
        free(got);
        free(want);
        layer_values_free(&v);
    }
}

/* Sums of whole numbers are exact, so a lost or doubled sample is found. bf16 may round the leaves. */
static void test_exact_counts(void **state)
{
    enum { N = 37, IN = 19, OUT = 11 };
    float *x = new_floats(N * IN), *dy = new_floats(N * OUT), *w = new_floats(IN * OUT), *b = new_floats(OUT);
    for (size_t i = 0; i < N * IN; i++)
        x[i] = (float)(1 + i % IN);
    for (size_t i = 0; i < N * OUT; i++)
        dy[i] = (float)(i / OUT + i % OUT);
    layer l = {{N, IN, 1, 1}, OUT, {.groups = 0}, 16, 5, .values = x, .dy = dy, .w = w, .b = b};
    layer_layout to = layer_layout_of(&l);
    float *got = fx_bits("whole numbers", run_layer, &l, to.at[PARTS]);
    layer_compare(&l, got);
    for (size_t i = 0; i < IN * OUT && dev->values == LK_DTYPE_F32; i++) {
        float sum = (float)(N * (N - 1) / 2 + N * (i / IN));
        assert_true(got[to.at[DW] + i] == sum * (float)(1 + i % IN));
        assert_true(got[to.at[DB] + i / IN] == sum);
    }
    free(got);
    free(x);
    free(dy);
    free(w);
    free(b);
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv,
                          TESTS(TEST(test_layers), TEST(test_sizes), TEST(test_shards), TEST(test_nans),
                                TEST(test_dropouts), TEST(test_exact_counts)),
                          FX_FP32 | FX_TF32 | FX_BF16);
}
