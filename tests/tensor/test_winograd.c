/* test_winograd.c - convolutions by Winograd's algorithm, with tiles of either size: the properties of layer.h, at
 * sizes that tiles and vectors do not divide. Only CPUs have tiles. */
#include "tensor/layer.h"

static void check_tiles(layer l)
{
    for (l.conv.tile = 2; l.conv.tile <= 4; l.conv.tile += 2)
        check_layer(l);
}

/* Every height and width from 1 to 13 with every padding that the graph accepts. */
static void test_sides(void **state)
{
    for (size_t h = 1; h <= 13; h++) {
        for (size_t pad = 0; pad <= 2; pad++) {
            size_t w = h * 5 % 13 + 1, in = h * 7 % 40 + 1, out = (h * 11 + pad * 3) % 40 + 1;
            if (h + 2 * pad < 3 || w + 2 * pad < 3)
                continue;
            check_tiles((layer){{2, in, h, w}, out, CONV(3, 1, pad, 1), .shards = 2, .effort = BRIEF});
        }
    }
}

/* All builds, thread counts and waves; chunks of tiles and panels of weights; each sample alone. */
static void test_thorough(void **state)
{
    static const layer layers[] = {
        {{5, 16, 9, 10}, 20, CONV(3, 1, 1, 1), .shards = 3},
        {{3, 40, 4, 4}, 40, CONV(3, 1, 1, 1), .shards = 16, .no_bias = true}, /* panels are tasks */
        {{3, 2, 21, 33}, 3, CONV(3, 1, 2, 1), .shards = 2},
        {{3, 2, 5, 5}, 3, CONV(3, 1, 1, 1), .shards = 250}, /* most are empty */
        {{0, 16, 8, 8}, 16, CONV(3, 1, 1, 1), .shards = 2},
        {{2, 5, 12, 9}, 7, {{3, 1, 0, 1}, {3, 1, 1, 1}, 1}, .shards = 2},
    };
    for (size_t i = 0; i < COUNT_OF(layers); i++)
        check_tiles(layers[i]);
}

static void test_nans(void **state)
{
    layer l = {{2, 5, 5, 6}, 9, CONV(3, 1, 1, 1), .shards = 1};
    for (l.conv.tile = 2; l.conv.tile <= 4; l.conv.tile += 2)
        check_layer_nans(l);
}

static float *run_with(layer l, size_t tile)
{
    l.conv.tile = tile;
    return fx_bits_brief("a given tile", run_layer, &l, layer_layout_of(&l).at[PARTS]);
}

/* A layer without a given tile has the tiles of its shape, for y, dx and dw; that of dw depends also on `most`, the
 * samples of the largest shard. */
static void check_choice(size_t channels, size_t h, size_t w, lk_conv2d_desc conv, size_t most, const size_t tiles[3])
{
    layer l = {{2 * most, channels, h, w}, channels, conv, .shards = 2};
    float *x = random_values(lk__shape_count(l.x), 1), *dy = random_values(lk__shape_count(layer_y(&l)), 2);
    float *weights = random_values(layer_weights(&l), 3), *b = random_values(l.out, 4);
    l.values = x, l.dy = dy, l.w = weights, l.b = b;
    layer_layout to = layer_layout_of(&l);
    const size_t ends[] = {0, to.at[DX], to.at[DW], to.at[PARTS]};
    float *got = run_with(l, LK_CONV2D_DESC_BY_SHAPE);
    for (size_t i = 0; i < 3; i++) {
        float *want = run_with(l, tiles[i]);
        fx_same("the tile of its shape", got + ends[i], want + ends[i], ends[i + 1] - ends[i]);
        free(want);
    }
    free(got);
    free(x);
    free(dy);
    free(weights);
    free(b);
}

static void test_choice(void **state)
{
    static const struct {
        size_t channels, h, w;
        lk_conv2d_desc conv;
        size_t most, tiles[3];
    } cases[] = {
        {32, 14, 14, CONV(3, 1, 1, 1), 1, {4, 4, 4}}, {16, 14, 14, CONV(3, 1, 1, 1), 1, {4, 4, 4}},
        {15, 14, 14, CONV(3, 1, 1, 1), 1, {1, 1, 1}}, {32, 7, 7, CONV(3, 1, 1, 1), 1, {4, 4, 1}},
        {32, 7, 7, CONV(3, 1, 1, 1), 2, {4, 4, 4}},   {64, 7, 7, CONV(3, 1, 1, 1), 1, {4, 4, 1}},
        {64, 13, 14, CONV(3, 1, 1, 1), 1, {4, 4, 2}}, {64, 8, 8, CONV(3, 1, 1, 1), 2, {4, 4, 2}},
        {64, 8, 8, CONV(3, 1, 1, 1), 3, {4, 4, 4}},   {64, 4, 4, CONV(3, 1, 1, 1), 2, {4, 4, 1}},
        {64, 4, 4, CONV(3, 1, 1, 1), 3, {4, 4, 2}},   {64, 2, 5, CONV(3, 1, 1, 1), 1, {2, 2, 1}},
        {63, 2, 5, CONV(3, 1, 1, 1), 9, {1, 1, 1}},   {64, 1, 64, CONV(3, 1, 1, 1), 9, {1, 1, 1}},
        {64, 8, 8, CONV(3, 2, 1, 1), 9, {1, 1, 1}},   {64, 8, 8, CONV(5, 1, 2, 1), 9, {1, 1, 1}},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_choice(cases[i].channels, cases[i].h, cases[i].w, cases[i].conv, cases[i].most, cases[i].tiles);
}

/* A layer with so many channels and tiles that they are computed in several rounds and chunks: the samples of a batch
 * have the bits of each sample alone. */
static void test_rounds(void **state)
{
    layer l = {{3, 244, 64, 64}, 244, {LK_WINDOW_SQUARE(3, 1, 1), 1, 4}, .shards = 1, .no_bias = true};
    size_t x = lk__shape_count(l.x) / 3, y = lk__shape_count(layer_y(&l)) / 3;
    float *values = random_values(3 * x, 1), *dy = random_values(3 * y, 2), *w = random_values(layer_weights(&l), 3);
    l.values = values, l.dy = dy, l.w = w;
    layer_layout both = layer_layout_of(&l);
    float *want = fx_once(cpu, run_layer, &l, both.at[PARTS]);
    l.x.n = 1;
    layer_layout one = layer_layout_of(&l);
    for (size_t i = 0; i < 3; i++) {
        l.values = values + i * x, l.dy = dy + i * y;
        float *got = fx_once(cpu, run_layer, &l, one.at[PARTS]);
        fx_same("forward", got + one.at[Y], want + both.at[Y] + i * y, y);
        fx_same("grad_input", got + one.at[DX], want + both.at[DX] + i * x, x);
        free(got);
    }
    free(want);
    free(values);
    free(dy);
    free(w);
}

int main(void)
{
    return fx_main_builds(
        TESTS(TEST(test_sides), TEST(test_thorough), TEST(test_nans), TEST(test_choice), TEST(test_rounds)));
}
