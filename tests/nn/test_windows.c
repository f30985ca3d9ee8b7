/* test_windows.c - the options of windows along both axes in a graph: defaults, shapes, parameters, the hash, and
 * refused options. */
#include <lockstep/lockstep.h>

#include "check.h"
#include "nn/graph.h"
#include "nn/op.h"

static lk_layer conv_of(lk_conv2d_opts opts)
{
    lk_graph *graph;
    assert_ok(lk_graph_create(&graph));
    lk_conv2d(graph, lk_input(graph, 12, 20, 30), "conv", opts);
    assert_ok(graph->status);
    lk_layer layer = graph->layers[1];
    lk_graph_destroy(graph);
    return layer;
}

static lk_layer maxpool_of(lk_maxpool2d_opts opts)
{
    lk_graph *graph;
    assert_ok(lk_graph_create(&graph));
    lk_maxpool2d(graph, lk_input(graph, 12, 20, 30), opts);
    assert_ok(graph->status);
    lk_layer layer = graph->layers[1];
    lk_graph_destroy(graph);
    return layer;
}

static void expect_windows(const lk_window *h, const lk_window *w, lk_window want_h, lk_window want_w)
{
    assert_memory_equal(h, &want_h, sizeof want_h);
    assert_memory_equal(w, &want_w, sizeof want_w);
}

static void expect_conv(lk_conv2d_opts opts, lk_window h, lk_window w)
{
    lk_layer layer = conv_of(opts);
    expect_windows(&layer.attr.conv.h, &layer.attr.conv.w, h, w);
}

static void expect_maxpool(lk_maxpool2d_opts opts, lk_window h, lk_window w)
{
    lk_layer layer = maxpool_of(opts);
    expect_windows(&layer.attr.pool.h, &layer.attr.pool.w, h, w);
}

/* {kernel, stride, pad, dilation}. An option of the width is that of the height unless it is given. */
static void test_defaults(void **state)
{
    expect_conv((lk_conv2d_opts){.out = 4, .kernel = 3}, (lk_window){3, 1, 0, 1}, (lk_window){3, 1, 0, 1});
    expect_conv((lk_conv2d_opts){.out = 4, .kernel = 3, .stride = 2, .pad = 1, .dilation = 2}, (lk_window){3, 2, 1, 2},
                (lk_window){3, 2, 1, 2});
    expect_conv((lk_conv2d_opts){.out = 4, .kernel = 3, .kernel_w = 5, .stride_w = 2, .pad_w = 4, .dilation_w = 3},
                (lk_window){3, 1, 0, 1}, (lk_window){5, 2, 4, 3});
    expect_conv((lk_conv2d_opts){.out = 4, .kernel = 7, .kernel_w = 1, .pad = 3, .pad_w = LK_ZERO_PAD},
                (lk_window){7, 1, 3, 1}, (lk_window){1, 1, 0, 1});
    expect_conv((lk_conv2d_opts){.out = 4, .kernel = 3, .pad = LK_ZERO_PAD, .pad_w = 1}, (lk_window){3, 1, 0, 1},
                (lk_window){3, 1, 1, 1});
    expect_maxpool((lk_maxpool2d_opts){.kernel = 3, .kernel_w = 2}, (lk_window){3, 3, 0, 1}, (lk_window){2, 2, 0, 1});
    expect_maxpool((lk_maxpool2d_opts){.kernel = 3, .kernel_w = 2, .stride = 1, .pad = 1}, (lk_window){3, 1, 1, 1},
                   (lk_window){2, 1, 1, 1});
    expect_maxpool((lk_maxpool2d_opts){.kernel = 3, .stride_w = 1, .dilation = 2}, (lk_window){3, 3, 0, 2},
                   (lk_window){3, 1, 0, 2});
}

static void test_parameters(void **state)
{
    lk_conv2d_opts opts = {.out = 8, .kernel = 3, .kernel_w = 5, .stride = 2, .stride_w = 1, .pad = 1, .groups = 4};
    opts.pad_w = 2;
    lk_layer layer = conv_of(opts);
    const size_t want[] = {8, 3, 3, 5};
    assert_memory_equal(layer.params[0].dims, want, sizeof want);
    assert_int_equal(layer.params[0].fan_in, 45);
    assert_int_equal(layer.params[1].fan_in, 45);
    assert_int_equal(layer.shape.h, 10);
    assert_int_equal(layer.shape.w, 30);
    assert_true(layer.op->macs(&layer, (lk_shape){1, 12, 20, 30}) == 8.0 * 10 * 30 * 45);
    opts.dilation = 2;
    opts.dilation_w = 3;
    layer = conv_of(opts);
    assert_int_equal(layer.shape.h, 9);
    assert_int_equal(layer.shape.w, 22);
}

static uint64_t hash_of(lk_conv2d_opts conv, lk_maxpool2d_opts pool)
{
    lk_graph *graph;
    assert_ok(lk_graph_create(&graph));
    lk_node x = lk_conv2d(graph, lk_input(graph, 12, 8, 8), "conv", conv);
    x = lk_avgpool2d(graph, lk_maxpool2d(graph, x, pool), (lk_avgpool2d_opts){.kernel = 2});
    x = lk_conv_transpose2d(graph, x, "up",
                            (lk_conv_transpose2d_opts){.out = 4, .kernel = 3, .stride = 2, .pad = 1, .out_pad = 1});
    lk_cross_entropy(graph, lk_linear(graph, lk_flatten(graph, x), "fc", 5));
    assert_ok(lk_graph_check(graph));
    uint64_t hash = lk__graph_hash(graph);
    lk_graph_destroy(graph);
    return hash;
}

/* Saved runs hold the hash of their model: that of square windows is the one that it was before there were others.
 * Windows that differ have different hashes even where the shapes are equal. */
static void test_hash(void **state)
{
    const lk_conv2d_opts conv = {.out = 12, .kernel = 3, .stride = 2, .pad = 1, .groups = 2};
    const lk_maxpool2d_opts pool = {.kernel = 3, .stride = 1, .pad = 1};
    const uint64_t square = UINT64_C(0xd380b1a2c0347503);
    lk_conv2d_opts other = conv;
    lk_maxpool2d_opts wide = pool;
    assert_true(hash_of(conv, pool) == square);
    other.kernel_w = 3, other.stride_w = 2, other.pad_w = 1, other.dilation = other.dilation_w = 1;
    assert_true(hash_of(other, pool) == square);
    other.kernel_w = 4;
    assert_true(hash_of(other, pool) != square);
    other = conv;
    other.dilation = 2, other.pad = 2;
    uint64_t dilated = hash_of(other, pool);
    other.dilation_w = 1, other.pad_w = 1;
    assert_true(dilated != square && hash_of(other, pool) != square && hash_of(other, pool) != dilated);
    wide.kernel_w = 2;
    wide.pad_w = LK_ZERO_PAD;
    assert_true(hash_of(conv, wide) != square);
}

static void wide_conv(lk_graph *g, lk_node x)
{
    lk_conv2d(g, x, "conv", (lk_conv2d_opts){.out = 1, .kernel = 1, .kernel_w = 3, .dilation_w = 4});
}

static void tall_conv(lk_graph *g, lk_node x)
{
    lk_conv2d(g, x, "conv", (lk_conv2d_opts){.out = 1, .kernel = 7, .kernel_w = 1, .pad = 1, .pad_w = LK_ZERO_PAD});
}

static void wide_pad(lk_graph *g, lk_node x)
{
    lk_conv2d(g, x, "conv", (lk_conv2d_opts){.out = 1, .kernel = 3, .kernel_w = 1, .pad = 1});
}

static void endless_stride(lk_graph *g, lk_node x)
{
    lk_conv2d(g, x, "conv", (lk_conv2d_opts){.out = 1, .kernel = 3, .stride_w = SIZE_MAX});
}

static void endless_dilation(lk_graph *g, lk_node x)
{
    lk_conv2d(g, x, "conv", (lk_conv2d_opts){.out = 1, .kernel = 3, .dilation = SIZE_MAX / 2 + 1});
}

static void endless_extent(lk_graph *g, lk_node x)
{
    lk_conv2d(g, x, "conv", (lk_conv2d_opts){.out = 1, .kernel = 1, .kernel_w = 1 << 16, .dilation_w = 2});
}

static void endless_pad(lk_graph *g, lk_node x)
{
    lk_conv2d(g, x, "conv", (lk_conv2d_opts){.out = 1, .kernel = 3, .pad_w = SIZE_MAX - 1});
}

static void no_height(lk_graph *g, lk_node x)
{
    lk_conv2d(g, x, "conv", (lk_conv2d_opts){.out = 1, .kernel_w = 3});
}

static void wide_out_pad(lk_graph *g, lk_node x)
{
    lk_conv_transpose2d_opts opts = {.out = 1, .kernel = 3, .stride = 3, .stride_w = 1, .out_pad = 2};
    lk_conv_transpose2d(g, x, "up", opts);
}

static void wide_pool(lk_graph *g, lk_node x)
{
    lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 1, .kernel_w = 3, .dilation_w = 4});
}

static void many_pixels(lk_graph *g, lk_node x)
{
    lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 2, .kernel_w = 128});
}

static void many_averaged(lk_graph *g, lk_node x)
{
    lk_avgpool2d(g, x, (lk_avgpool2d_opts){.kernel = 4097, .kernel_w = 4096});
}

static void endless_pool(lk_graph *g, lk_node x)
{
    lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 2, .stride_w = SIZE_MAX});
}

/* A window would have no pixel of the input. */
static void empty_window(lk_graph *g, lk_node x)
{
    lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 2, .pad = 1, .dilation = 6, .dilation_w = 9});
}

static void wide_pool_pad(lk_graph *g, lk_node x)
{
    lk_avgpool2d(g, x, (lk_avgpool2d_opts){.kernel = 4, .kernel_w = 2, .pad = 2});
}

static void test_mistakes(void **state)
{
    static const struct {
        void (*make)(lk_graph *graph, lk_node x);
        const char *words;
    } rows[] = {
        {wide_conv, "'conv': kernel 1x3 (height x width), which spans 1x9 pixels, is larger than its padded input 4x7"},
        {tall_conv, "kernel 7x1 (height x width), which spans 7x1 pixels, is larger than its padded input 6x7"},
        {wide_pad, "padding 1x1 (height x width) must be below the 3x1 pixels that its kernel spans, along each axis"},
        {endless_stride, "at most 65536 along each axis"},
        {endless_dilation, "at most 65536 along each axis"},
        {endless_extent, "kernel 1x65536 (height x width), stride 1x1, dilation 1x2"},
        {endless_pad, "must be below the 3x3 pixels"},
        {no_height, "needs output channels and a kernel size"},
        {wide_out_pad, "output padding 2x2 (height x width) must be below its stride 3x1, along each axis"},
        {wide_pool, "window 1x3 (height x width), which spans 1x9 pixels, is larger than its input 4x7"},
        {many_pixels, "a max pooling window has at most 255 pixels, not 2x128"},
        {many_averaged, "an average pooling window has at most 2^24 pixels, not 4097x4096"},
        {endless_pool, "at most 65536 along each axis"},
        {empty_window, "dilation 6x9 (height x width) of max pooling is larger than its input 4x7"},
        {wide_pool_pad, "padding 2x2 (height x width) is more than half of pooling window 4x2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lk_graph *graph;
        assert_ok(lk_graph_create(&graph));
        rows[i].make(graph, lk_input(graph, 1, 4, 7));
        assert_fails(lk_graph_check(graph), LK_STATUS_USAGE, rows[i].words);
        lk_graph_destroy(graph);
    }
}

TEST_MAIN(NULL, NULL, TEST(test_defaults), TEST(test_parameters), TEST(test_hash), TEST(test_mistakes))
