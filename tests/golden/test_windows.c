/* test_windows.c - convolutions and pools whose windows are not square, or dilated, against PyTorch. The options go
 * through the builders: the shapes of graphs, and the descriptions that the kernels get. */
#include "golden/kernels.h"

#include "nn/graph.h"

static int setup(void **state)
{
    return setup_file(state, "windows.safetensors");
}

/* The options of a case, in the order of the file. */
enum { KERNEL, KERNEL_W, STRIDE, STRIDE_W, PAD, PAD_W, DILATION, DILATION_W, GROUPS, CEIL = GROUPS, OPTS };
typedef struct case_opts {
    size_t v[OPTS];
} case_opts;

static case_opts opts_of(fixture *fx, const char *op)
{
    const lk_state_entry *entry = golden_get(fx->golden, op, "opts");
    case_opts opts;
    assert_int_equal(golden_count(entry), OPTS);
    for (size_t i = 0; i < OPTS; i++)
        opts.v[i] = (size_t)golden_at(entry, i);
    if (opts.v[PAD] && !opts.v[PAD_W])
        opts.v[PAD_W] = LK_ZERO_PAD;
    return opts;
}

typedef lk_node (*build_fn)(lk_graph *graph, lk_node x, const size_t *v, size_t out);

static lk_node build_conv(lk_graph *graph, lk_node x, const size_t *v, size_t out)
{
    lk_conv2d_opts opts = {.out = out,
                           .kernel = v[KERNEL],
                           .stride = v[STRIDE],
                           .pad = v[PAD],
                           .groups = v[GROUPS],
                           .dilation = v[DILATION],
                           .kernel_w = v[KERNEL_W],
                           .stride_w = v[STRIDE_W],
                           .pad_w = v[PAD_W],
                           .dilation_w = v[DILATION_W]};
    return lk_conv2d(graph, x, "conv", opts);
}

static lk_node build_maxpool(lk_graph *graph, lk_node x, const size_t *v, size_t out)
{
    lk_maxpool2d_opts opts = {.kernel = v[KERNEL],
                              .stride = v[STRIDE],
                              .pad = v[PAD],
                              .dilation = v[DILATION],
                              .kernel_w = v[KERNEL_W],
                              .stride_w = v[STRIDE_W],
                              .pad_w = v[PAD_W],
                              .dilation_w = v[DILATION_W],
                              .ceil = v[CEIL]};
    return lk_maxpool2d(graph, x, opts);
}

static lk_node build_avgpool(lk_graph *graph, lk_node x, const size_t *v, size_t out)
{
    lk_avgpool2d_opts opts = {.kernel = v[KERNEL],
                              .stride = v[STRIDE],
                              .pad = v[PAD],
                              .ceil = v[CEIL],
                              .kernel_w = v[KERNEL_W],
                              .stride_w = v[STRIDE_W],
                              .pad_w = v[PAD_W]};
    return lk_avgpool2d(graph, x, opts);
}

/* The layer that the builder makes; its output has PyTorch's shape. */
static lk_layer layer_of(fixture *fx, const char *op, build_fn build)
{
    lk_graph *graph;
    lk_shape x = entry_shape(golden_get(fx->golden, op, "x")), y = entry_shape(golden_get(fx->golden, op, "y"));
    case_opts opts = opts_of(fx, op);
    assert_ok(lk_graph_create(&graph));
    lk_node node = build(graph, lk_input(graph, x.c, x.h, x.w), opts.v, y.c);
    if (graph->status != LK_OK)
        fail_msg("%s: %s", op, graph->detail);
    lk_layer layer = graph->layers[node.index];
    lk_graph_destroy(graph);
    assert_int_equal(layer.shape.c, y.c);
    assert_int_equal(layer.shape.h, y.h);
    assert_int_equal(layer.shape.w, y.w);
    return layer;
}

static void test_conv2d(void **state)
{
    static const char *const ops[] = {
        "conv_1x7",      "conv_7x1",           "conv_3x5",          "conv_dilated",
        "groups_3x5",    "conv_dilated_width", "groups_dilated",    "conv_dilated_stride",
        "depthwise_1x7", "depthwise_7x1",      "depthwise_dilated", "depthwise_dilated_stride",
        "depthwise_3x5"};
    for (size_t i = 0; i < COUNT_OF(ops); i++) {
        lk_layer layer = layer_of(*state, ops[i], build_conv);
        const lk_state_entry *w = golden_get(((fixture *)*state)->golden, ops[i], "w");
        assert_memory_equal(layer.params[0].dims, w->dims, 4 * sizeof *w->dims);
        conv_case(*state, ops[i], layer.attr.conv);
        free_blocks(state);
    }
}

static void test_maxpool2d(void **state)
{
    static const char *const ops[] = {"maxpool_1x5",     "maxpool_3x2",           "maxpool_ceil",
                                      "maxpool_dilated", "maxpool_dilated_width", "maxpool_dilated_ceil"};
    for (size_t i = 0; i < COUNT_OF(ops); i++) {
        maxpool_case(*state, ops[i], layer_of(*state, ops[i], build_maxpool).attr.pool);
        free_blocks(state);
    }
}

static void test_avgpool2d(void **state)
{
    static const char *const ops[] = {"avgpool_1x5", "avgpool_3x2", "avgpool_5x1", "avgpool_ceil"};
    for (size_t i = 0; i < COUNT_OF(ops); i++) {
        avgpool_case(*state, ops[i], layer_of(*state, ops[i], build_avgpool).attr.pool);
        free_blocks(state);
    }
}

TEST_MAIN(setup, teardown, CASE(test_conv2d), CASE(test_maxpool2d), CASE(test_avgpool2d))
