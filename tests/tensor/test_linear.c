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
    return fx_kernel_main(
        argc, argv,
        TESTS(TEST(test_layers), TEST(test_sizes), TEST(test_shards), TEST(test_nans), TEST(test_exact_counts)),
        FX_FP32 | FX_TF32 | FX_BF16);
}
