/* weights.c - weight gradients on a GPU, of many shapes and shards. Every case checks that
 * - the sum is that of the products in double, within the bounds of kernel_test.h;
 * - the bits do not depend on how shards are divided among waves, and only the slots that remain are written;
 * - a shard alone gives a leaf, and additions of the leaves over the tree on the CPU give the bits of the sum. */
#include "tensor/layer.h"

/* The shards of a layer, divided into waves. */
typedef struct sums_case {
    layer l;
    int first; /* shards of the first wave; the second has all others. 0: one wave */
    int wave;  /* shards of each wave; 0: see first */
    int leaf;  /* -1: all shards; otherwise this shard alone, without merges */
} sums_case;

static size_t sums_count(const layer *l)
{
    return layer_weights(l) + (l->no_bias ? 0 : l->out);
}

/* The end of the wave that begins at shard lo. */
static int wave_end(const sums_case *c, int lo)
{
    int size = c->wave ? c->wave : c->first && lo == 0 ? c->first : c->l.shards;
    return lo + size < c->l.shards ? lo + size : c->l.shards;
}

/* Partial sums that exist between waves or after the last one, at most. */
static size_t slots_of(const sums_case *c)
{
    int most = 1;
    for (int lo = 0; lo < c->l.shards && c->leaf < 0; lo = wave_end(c, lo)) {
        int depth = lk__tree_depth(c->l.shards, wave_end(c, lo) - 1);
        most = depth > most ? depth : most;
    }
    return (size_t)most;
}

static void run_wave(lk_device *d, const sums_case *c, const lk_tensor *x, const lk_tensor *dy, int lo, int hi,
                     const fx_grads *grads, void *scratch)
{
    fx_wave v;
    fx_wave_init(&v, c->l.x.n, c->l.shards, lo, hi - lo);
    lk_tensor part_x = lk__tensor_rows(x, v.first, v.n), part_dy = lk__tensor_rows(dy, v.first, v.n);
    if (c->leaf >= 0) {
        v.shards.depth = 0;
        v.merges[0] = 0;
    }
    layer_grad_weight(d, &c->l, &part_x, &part_dy, &v.shards, grads, scratch);
}

static void run_sums(lk_device *d, const void *arg, float *out)
{
    const sums_case *c = arg;
    const layer *l = &c->l;
    lk_device_weight weight = layer_weight(d, l);
    lk_tensor x = layer_put(d, l, l->values), dy = fx_input(d, layer_y(l), l->dy);
    fx_grads grads = fx_grads_make(d, weight, layer_weights(l), slots_of(c));
    void *scratch = layer_scratch(d, l);
    if (c->leaf >= 0)
        run_wave(d, c, &x, &dy, c->leaf, c->leaf + 1, &grads, scratch);
    for (int lo = 0; lo < l->shards && c->leaf < 0; lo = wave_end(c, lo))
        run_wave(d, c, &x, &dy, lo, wave_end(c, lo), &grads, scratch);
    fx_grads_read(d, &grads, layer_weights(l), !l->no_bias, out);
}

/* The leaves of all shards, each alone, added over the tree. */
static float *sum_leaves(sums_case c)
{
    size_t count = sums_count(&c.l);
    float *stack[LK_TREE_MAX_DEPTH];
    int depth = 0;
    for (c.leaf = 0; c.leaf < c.l.shards; c.leaf++) {
        stack[depth++] = fx_once(dev, run_sums, &c, count);
        for (int m = lk__tree_merges(c.l.shards, c.leaf); m > 0; m--, depth--) {
            for (size_t i = 0; i < count; i++)
                stack[depth - 2][i] += stack[depth - 1][i];
            free(stack[depth - 1]);
        }
    }
    assert_int_equal(depth, 1);
    return stack[0];
}

static void check_near(const layer *l, const float *got)
{
    layer_layout to = layer_layout_of(l);
    layer_sums s = {.to = to, .sum = new_doubles(to.at[PARTS]), .squares = new_doubles(to.at[PARTS])};
    char what[256];
    layer_refer(l, &s);
    for (size_t i = to.at[DW]; i < to.at[PARTS]; i++)
        s.squares[i] = fx_bound(s.sum[i], s.squares[i]);
    layer_name(l, "weight gradient", what);
    fx_near_each(what, got, s.sum + to.at[DW], FX_NEAR, s.squares + to.at[DW], layer_weights(l));
    layer_name(l, "bias gradient", what);
    if (!l->no_bias)
        fx_near_each(what, got + layer_weights(l), s.sum + to.at[DB], FX_NEAR, s.squares + to.at[DB], l->out);
    free(s.sum);
    free(s.squares);
}

static void check_same(const sums_case *c, const char *part, const float *want)
{
    char what[256];
    float *got = fx_once(dev, run_sums, c, sums_count(&c->l));
    layer_name(&c->l, part, what);
    fx_same(what, got, want, sums_count(&c->l));
    free(got);
}

/* The sum in one wave, and the same bits in other waves. `first` is another place where the wave is divided. */
static void check_sums(layer l, int first)
{
    static const int waves[] = {1, 2, 3, 7};
    l.shards = l.shards ? l.shards : 1;
    l.conv.groups = l.conv.groups || layer_is_linear(&l) ? l.conv.groups : 1;
    float *x = random_values(lk__shape_count(l.x), 1), *dy = random_values(lk__shape_count(layer_y(&l)), 2);
    float *w = new_floats(layer_weights(&l)), *b = new_floats(l.out);
    l.values = x, l.dy = dy, l.w = w, l.b = b;
    sums_case c = {.l = l, .leaf = -1};
    float *got = fx_once(dev, run_sums, &c, sums_count(&l));
    check_near(&l, got);
    check_same(&c, "a second run", got);
    for (size_t i = 0; i < COUNT_OF(waves) && l.shards <= 32; i++) {
        c.wave = waves[i];
        check_same(&c, "waves", got);
    }
    c.wave = 0;
    for (c.first = 1; c.first < l.shards && c.first < 6; c.first++)
        check_same(&c, "two waves", got);
    c.first = first;
    check_same(&c, "two waves", got);
    float *sum = sum_leaves((sums_case){.l = l});
    char what[256];
    layer_name(&l, "leaves over the tree", what);
    fx_same(what, sum, got, sums_count(&l));
    free(sum);
    free(got);
    free(x);
    free(dy);
    free(w);
    free(b);
}

/* Dense products: {n, c, h, w}, out, window. */
static const layer dense[] = {
    {{64, 64, 7, 7}, 64, CONV(1, 1, 0, 1), 16, .no_bias = true},
    {{16, 64, 9, 9}, 128, CONV(3, 1, 1, 1), 16},
    {{20, 136, 5, 5}, 192, CONV(1, 1, 0, 1), 3},
    {{9, 40, 11, 7}, 72, CONV(3, 2, 1, 1), 5},
    {{5, 24, 14, 13}, 16, {{3, 2, 1, 1}, {2, 1, 0, 2}, 1}, 5},
    {{6, 16, 17, 17}, 24, {{3, 2, 2, 2}, {5, 3, 4, 3}, 1}, 4},
    {{7, 13, 9, 9}, 21, CONV(3, 1, 1, 1), 16},
    {{3, 104, 6, 6}, 112, CONV(3, 1, 1, 1), 1, .no_bias = true},
    {{2, 8, 56, 56}, 16, CONV(3, 1, 1, 1), 1},
    {{16, 8, 40, 40}, 16, CONV(3, 1, 1, 1), 2, .no_bias = true},
    {{200, 8, 4, 4}, 16, CONV(3, 1, 1, 1), 100},
    {{5, 160, 4, 4}, 136, CONV(3, 1, 1, 1), 7, .no_bias = true},
};

static void test_dense(void **state)
{
    for (size_t i = 0; i < COUNT_OF(dense); i++)
        check_sums(dense[i], dense[i].shards / 2);
}

/* Each size of tiles that large leaves have in tf32: 96 x 192, 64 x 192, 128 x 192, 96 x 256, 128 x 256, 64 x 256,
 * 64 x 384. 3x3 windows have strides, as those without have a kernel of their own. */
static const layer tiled[] = {
    {{3, 40, 74, 58}, 72, CONV(3, 2, 1, 1), 2},
    {{3, 24, 74, 82}, 40, CONV(3, 2, 1, 1), 2, .no_bias = true},
    {{3, 256, 27, 31}, 128, CONV(1, 1, 0, 1), 2},
    {{2, 72, 54, 54}, 136, CONV(3, 2, 1, 1), 2, .no_bias = true},
    {{3, 512, 27, 31}, 128, CONV(1, 1, 0, 1), 2, .no_bias = true},
    {{3, 512, 27, 31}, 64, CONV(1, 1, 0, 1), 2},
    {{9, 32, 112, 112}, 64, CONV(3, 2, 1, 1), 2},
};

/* Each size of bands of 3x3 windows in tf32 (weights_taps_hopper.cu), with and without a bias: 4 x 8 pixels, 2 x 16, 24
 * and 32, by tiles of 32 channels of x and of 64. Heights that end inside of a band, several strips, all padding. */
static const layer bands[] = {
    {{96, 24, 5, 5}, 72, CONV(3, 1, 1, 1), 3},
    {{128, 40, 8, 8}, 24, CONV(3, 1, 1, 1), 2, .no_bias = true},
    {{128, 40, 8, 8}, 24, CONV(3, 1, 1, 1), 2},
    {{96, 24, 5, 5}, 24, CONV(3, 1, 1, 1), 3, .no_bias = true},
    {{64, 40, 10, 16}, 64, CONV(3, 1, 1, 1), 2},
    {{64, 40, 10, 16}, 24, CONV(3, 1, 1, 1), 2, .no_bias = true},
    {{24, 24, 13, 8}, 24, CONV(3, 1, 1, 1), 3},
    {{16, 40, 21, 24}, 24, CONV(3, 1, 2, 1), 2, .no_bias = true},
    {{16, 40, 21, 24}, 24, CONV(3, 1, 1, 1), 2},
    {{4, 24, 9, 34}, 24, CONV(3, 1, 0, 1), 2, .no_bias = true},
    {{16, 40, 17, 30}, 24, CONV(3, 1, 1, 1), 2},
    {{3, 32, 17, 100}, 24, {{3, 1, 2, 1}, {3, 1, 0, 1}, 1}, 2},
    {{2, 64, 70, 65}, 128, CONV(3, 1, 1, 1), 1, .no_bias = true},
};

static void test_bands(void **state)
{
    for (size_t i = 0; i < COUNT_OF(bands); i++)
        check_sums(bands[i], bands[i].shards / 2);
}

/* Each size of bands of 3x3 windows in bf16 (weights_slabs_hopper.cu) with tiles of 32 channels of x: 8 x 8 pixels,
 * 8 x 16, 14 x 16, 16 x 16, 8 x 24, 7 x 32, 8 x 32, 4 x 40 and 4 x 56; `large` has those of 64 channels. With and
 * without a bias, several tiles and strips, images that end inside of a band, all padding, empty shards, leaves folded
 * in registers. */
static const layer slabs[] = {
    {{128, 40, 8, 8}, 24, CONV(3, 1, 1, 1), 2},
    {{64, 40, 8, 16}, 24, CONV(3, 1, 1, 1), 2, .no_bias = true},
    {{64, 40, 14, 14}, 64, CONV(3, 1, 1, 1), 2},
    {{40, 40, 16, 16}, 72, CONV(3, 1, 1, 1), 5, .no_bias = true},
    {{16, 40, 24, 24}, 24, CONV(3, 1, 1, 1), 2},
    {{16, 40, 17, 30}, 24, CONV(3, 1, 1, 1), 2, .no_bias = true},
    {{8, 40, 30, 57}, 24, CONV(3, 1, 1, 1), 2},
    {{24, 40, 12, 37}, 24, CONV(3, 1, 1, 1), 2, .no_bias = true},
    {{3, 40, 17, 100}, 24, {{3, 1, 2, 1}, {3, 1, 0, 1}, 1}, 2},
    {{100, 24, 7, 7}, 24, CONV(3, 1, 1, 1), 4, .no_bias = true},
    {{8, 24, 30, 57}, 24, CONV(3, 1, 2, 1), 2},
    {{3, 32, 17, 100}, 24, CONV(3, 1, 0, 1), 5, .no_bias = true},
    {{33, 136, 6, 5}, 264, CONV(3, 1, 1, 1), 32},
};

static void test_slabs(void **state)
{
    for (size_t i = 0; i < COUNT_OF(slabs); i++)
        check_sums(slabs[i], slabs[i].shards / 2);
}

static void test_tiled(void **state)
{
    for (size_t i = 0; i < COUNT_OF(tiled); i++)
        check_sums(tiled[i], tiled[i].shards / 2);
}

/* Channels of x that are not whole vectors, and groups. */
static const layer gathered[] = {
    {{4, 3, 30, 30}, 64, CONV(7, 2, 3, 1), 4, .no_bias = true},
    {{3, 1, 12, 12}, 8, CONV(5, 1, 2, 1), 3},
    {{8, 2, 9, 9}, 40, {{3, 1, 1, 2}, {3, 1, 1, 1}, 1}, 16},
    {{4, 32, 8, 8}, 64, CONV(3, 1, 1, 4), 4},
    {{4, 16, 8, 8}, 64, CONV(3, 1, 1, 4), 4, .no_bias = true},
    {{4, 12, 6, 6}, 48, CONV(3, 2, 1, 3), 3},
    {{9, 48, 5, 5}, 40, CONV(1, 1, 0, 2), 16},
};

static void test_gathered(void **state)
{
    for (size_t i = 0; i < COUNT_OF(gathered); i++)
        check_sums(gathered[i], gathered[i].shards / 2);
}

/* First convolutions: rows of windows are runs of values. The last one has 48 to 52 parts in tf32. */
static const layer rows[] = {
    {{4, 3, 32, 32}, 64, CONV(7, 2, 3, 1), 4, .no_bias = true},
    {{6, 3, 16, 24}, 40, CONV(3, 2, 1, 1), 5},
    {{3, 2, 40, 72}, 72, CONV(5, 1, 2, 1), 3},
    {{2, 3, 24, 160}, 16, CONV(3, 1, 1, 1), 2, .no_bias = true},
    {{3, 3, 30, 40}, 96, CONV(11, 4, 2, 1), 2},
    {{2, 1, 30, 48}, 24, {{4, 3, 1, 1}, {6, 5, 3, 1}, 1}, 1},
    {{4, 3, 112, 112}, 8, CONV(3, 1, 0, 1), 2, .no_bias = true},
    {{64, 3, 32, 32}, 16, CONV(3, 1, 1, 1), 5, .no_bias = true},
};

static void test_rows(void **state)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        check_sums(rows[i], rows[i].shards / 2);
}

/* The engines of few channels, of depthwise convolutions, and of all else. */
static const layer others[] = {
    {{16, 1, 28, 28}, 32, CONV(3, 1, 0, 1), 16}, {{5, 3, 33, 31}, 16, CONV(3, 1, 1, 1), 3, .no_bias = true},
    {{3, 4, 9, 70}, 256, CONV(3, 1, 1, 1), 5},   {{32, 2, 20, 20}, 8, CONV(3, 1, 1, 1), 1},
    {{6, 16, 14, 14}, 16, CONV(3, 1, 1, 16), 4}, {{5, 144, 9, 7}, 144, CONV(3, 2, 1, 144), 16, .no_bias = true},
    {{40, 8, 28, 28}, 8, CONV(3, 1, 1, 8), 2},   {{6, 6, 8, 8}, 9, CONV(3, 1, 1, 3), 5},
    {{4, 5, 9, 9}, 3, CONV(3, 2, 1, 1), 3},      {{3, 10, 7, 7}, 20, CONV(2, 1, 0, 5), 16, .no_bias = true},
    {{3, 132, 31, 6}, 132, CONV(3, 1, 0, 132)},  {{2, 40, 62, 61}, 40, CONV(3, 2, 0, 40), 2},
    {{1, 21, 33, 35}, 21, CONV(3, 2, 1, 21), 1}, {{4, 300, 5, 9}, 300, CONV(3, 1, 1, 300), 3},
};

static void test_others(void **state)
{
    for (size_t i = 0; i < COUNT_OF(others); i++)
        check_sums(others[i], others[i].shards / 2);
}

/* Linear layers. Up to 16 samples a shard use other kernels than more, which differ for small and large layers, and for
 * large layers for up to 8 samples and more. */
static const layer linear[] = {
    {{64, 1024, 1, 1}, 128, .shards = 16}, {{64, 136, 1, 1}, 40, .shards = 16, .no_bias = true},
    {{64, 64, 3, 3}, 128, .shards = 4},    {{100, 128, 1, 1}, 10, .shards = 16},
    {{3, 72, 1, 1}, 16, .shards = 16},     {{150, 64, 1, 1}, 65, .shards = 64},
    {{40, 24, 1, 1}, 32, .shards = 33},    {{16, 200, 1, 1}, 72, .shards = 1},
    {{17, 200, 1, 1}, 72, .shards = 1},    {{300, 72, 1, 1}, 136, .shards = 5},
    {{30, 3, 1, 1}, 16, .shards = 4},      {{30, 17, 1, 1}, 3, .shards = 4},
    {{0, 64, 1, 1}, 16, .shards = 4},      {{128, 784, 1, 1}, 64, .shards = 16},
    {{128, 64, 1, 1}, 64, .shards = 16},   {{128, 64, 1, 1}, 10, .shards = 16},
    {{37, 88, 1, 1}, 24, .shards = 16},    {{37, 1032, 1, 1}, 72, .shards = 16},
    {{150, 1000, 1, 1}, 72, .shards = 16}, {{256, 1032, 1, 1}, 100, .shards = 16, .no_bias = true},
    {{3, 1032, 1, 1}, 72, .shards = 16},   {{7, 1032, 1, 1}, 72, .shards = 1},
    {{13, 1032, 1, 1}, 72, .shards = 1},   {{66, 1032, 1, 1}, 72, .shards = 33},
    {{0, 1032, 1, 1}, 72, .shards = 4},
};

static void test_linear(void **state)
{
    for (size_t i = 0; i < COUNT_OF(linear); i++)
        check_sums(linear[i], linear[i].shards / 2);
}

/* A NaN of dy, or of x, in the last feature of a sample reaches all gradients that it is a factor of. */
static void check_nan(layer l, bool of_x, uint32_t bits)
{
    size_t sample = l.x.n / 2, in = l.x.c;
    float *x = random_values(lk__shape_count(l.x), 1), *dy = random_values(lk__shape_count(layer_y(&l)), 2);
    memcpy(of_x ? &x[sample * in + in - 1] : &dy[sample * l.out + l.out - 1], &bits, sizeof bits);
    l.values = x, l.dy = dy;
    sums_case c = {.l = l, .leaf = -1};
    float *got = fx_once(dev, run_sums, &c, sums_count(&l));
    for (size_t o = 0; o < l.out && of_x; o++)
        assert_true(isnan(got[o * in + in - 1]));
    for (size_t i = 0; i < in && !of_x; i++)
        assert_true(isnan(got[(l.out - 1) * in + i]));
    assert_true(of_x || isnan(got[layer_weights(&l) + l.out - 1]));
    free(got);
    free(x);
    free(dy);
}

/* How many gradients are not finite if the last value of a sample of dy, or of x, is not. */
static size_t count_nonfinite(layer l, bool of_x, uint32_t bits)
{
    size_t ins = lk__shape_count(l.x), outs = lk__shape_count(layer_y(&l)), sample = l.x.n / 2, count = 0;
    float *x = random_values(ins, 1), *dy = random_values(outs, 2);
    memcpy(of_x ? &x[ins / l.x.n * (sample + 1) - 1] : &dy[outs / l.x.n * (sample + 1) - 1], &bits, sizeof bits);
    l.values = x, l.dy = dy;
    sums_case c = {.l = l, .leaf = -1};
    float *got = fx_once(dev, run_sums, &c, sums_count(&l));
    for (size_t i = 0; i < layer_weights(&l); i++)
        count += isfinite(got[i]) ? 0 : 1;
    assert_true(of_x || l.no_bias || !isfinite(got[layer_weights(&l) + l.out - 1]));
    free(got);
    free(x);
    free(dy);
    return count;
}

/* With padding 1, the last pixel of an image is read by four taps. */
static void check_image_nan(layer l)
{
    static const uint32_t values[] = {0x7fc00000, 0x7fffffff, 0xffffffff, 0x7f800001, 0x7f800000};
    enum { LAST_TAPS = 4 };
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        assert_true(count_nonfinite(l, true, values[i]) >= LAST_TAPS * l.out);
        assert_true(count_nonfinite(l, false, values[i]) >= LAST_TAPS * l.x.c);
    }
}

static void test_image_nan(void **state)
{
    static const layer layers[] = {{{16, 40, 17, 30}, 24, CONV(3, 1, 1, 1), 2},
                                   {{16, 40, 17, 30}, 24, CONV(3, 1, 1, 1), 2, .no_bias = true},
                                   {{64, 24, 10, 16}, 40, CONV(3, 1, 1, 1), 2, .no_bias = true},
                                   {{5, 160, 4, 4}, 136, CONV(3, 1, 1, 1), 5},
                                   {{3, 8, 9, 9}, 16, CONV(3, 1, 1, 1), 2}};
    for (size_t i = 0; i < COUNT_OF(layers); i++)
        check_image_nan(layers[i]);
}

/* Small and large layers with few samples a shard, and a layer with more. A NaN that computations make has all bits but
 * the sign set. */
static void test_nan(void **state)
{
    static const layer layers[] = {{{37, 64, 1, 1}, 16, .shards = 16},
                                   {{37, 1032, 1, 1}, 72, .shards = 16},
                                   {{150, 1032, 1, 1}, 72, .shards = 16},
                                   {{300, 72, 1, 1}, 136, .shards = 5}};
    static const uint32_t nans[] = {0x7fc00000, 0x7fffffff, 0xffffffff};
    for (size_t i = 0; i < COUNT_OF(layers); i++)
        for (size_t k = 0; k < COUNT_OF(nans); k++) {
            check_nan(layers[i], true, nans[k]);
            check_nan(layers[i], false, nans[k]);
        }
}

/* More shards than a launch has. The second wave begins inside of a subtree: between its launches more partial sums
 * exist than slots. */
static void test_many_shards(void **state)
{
    check_sums((layer){{300, 8, 1, 1}, 16, .shards = 256}, 127);
    check_sums((layer){{300, 8, 3, 3}, 8, CONV(3, 1, 1, 1), 300, .no_bias = true}, 100);
    check_sums((layer){{140, 3, 6, 6}, 8, CONV(3, 1, 1, 1), 140}, 1);
}

/* The sizes of real layers; sums in double would take too long. Leaves of the layers with an odd number of samples have
 * at most four parts and two parts in fp32, and the last leaf has half as many. The last eight layers have, in bf16,
 * each size of bands with tiles of 64 channels. */
static const layer large[] = {
    {{64, 64, 28, 28}, 64, CONV(3, 1, 1, 1), 16, .no_bias = true},
    {{64, 256, 14, 14}, 256, CONV(3, 1, 1, 1), 16, .no_bias = true},
    {{64, 3, 64, 64}, 64, CONV(7, 2, 3, 1), 16, .no_bias = true},
    {{32, 3, 64, 64}, 64, CONV(3, 1, 1, 1), 16, .no_bias = true},
    {{64, 96, 14, 14}, 576, CONV(1, 1, 0, 1), 16, .no_bias = true},
    {{15, 128, 44, 44}, 120, CONV(3, 1, 1, 1), 8},
    {{31, 64, 32, 32}, 120, CONV(3, 1, 1, 1), 16},
    {{64, 64, 12, 12}, 128, .shards = 16},
    {{512, 64, 12, 12}, 128, .shards = 16},
    {{96, 256, 8, 8}, 72, CONV(3, 1, 1, 1), 1},
    {{128, 104, 13, 13}, 72, CONV(3, 1, 1, 1), 2, .no_bias = true},
    {{48, 256, 15, 15}, 72, CONV(3, 1, 1, 1), 2},
    {{48, 104, 20, 20}, 72, CONV(3, 1, 1, 1), 2, .no_bias = true},
    {{31, 104, 26, 26}, 72, CONV(3, 1, 1, 1), 2},
    {{7, 104, 57, 57}, 72, CONV(3, 1, 1, 1), 2, .no_bias = true},
    {{15, 104, 40, 40}, 72, CONV(3, 1, 1, 1), 2},
    {{23, 64, 56, 56}, 72, CONV(3, 1, 1, 1), 2, .no_bias = true},
};

/* Compares with the CPU's sums in fp32. 2^-9 is the error of a product in tf32 (kernel_test.h); largest elements are
 * several times the error that is allowed for a sum. */
static void check_like_cpu(const sums_case *c, const float *got)
{
    size_t weights = layer_weights(&c->l), count = sums_count(&c->l);
    double part = precision == LK_PRECISION_TF32 ? 0x1p-8 : 0x1p-13, *want = new_doubles(count);
    float *sum = fx_once(cpu, run_sums, c, count);
    for (size_t i = 0; i < count; i++)
        want[i] = (double)sum[i];
    fx_near("weights of a large layer", got, want, part, weights);
    fx_near("the bias of a large layer", got + weights, want + weights, part, count - weights);
    free(sum);
    free(want);
}

static void test_large(void **state)
{
    for (size_t i = 0; i < COUNT_OF(large); i++) {
        layer l = large[i];
        l.conv.groups = layer_is_linear(&l) ? 0 : 1;
        float *x = random_values(lk__shape_count(l.x), 1), *dy = random_values(lk__shape_count(layer_y(&l)), 2);
        l.values = x, l.dy = dy;
        sums_case c = {.l = l, .leaf = -1};
        float *got = fx_once(dev, run_sums, &c, sums_count(&l)), *sum = sum_leaves(c);
        fx_same("leaves of a large layer over the tree", sum, got, sums_count(&l));
        check_like_cpu(&c, got);
        c.first = 5;
        check_same(&c, "two waves", got);
        free(sum);
        free(got);
        free(x);
        free(dy);
    }
}

int main(void)
{
    return fx_main(TESTS(TEST(test_dense), TEST(test_bands), TEST(test_slabs), TEST(test_tiled), TEST(test_gathered),
                         TEST(test_rows), TEST(test_others), TEST(test_linear), TEST(test_nan), TEST(test_image_nan),
                         TEST(test_many_shards), TEST(test_large)),
                   FX_FP32 | FX_TF32 | FX_BF16);
}
