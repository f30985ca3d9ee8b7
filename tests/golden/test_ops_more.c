/* test_ops_more.c - ReLU6, average pooling and padding with channels of zeros against PyTorch:
 * outputs, input gradients, and the output shapes of graphs. */
#include "golden/kernels.h"

#include "nn/graph.h"

static int setup(void **state)
{
    return setup_file(state, "ops_more.safetensors");
}

static void test_relu6(void **state)
{
    fixture *fx = *state;
    tensors t = tensors_of(fx, "relu6");
    fx->kernels->relu6_forward(fx->dev, &t.x, &t.y);
    fx->kernels->relu6_grad_input(fx->dev, &t.y, &t.dy, &t.dx);
    check_results(fx, &t, "relu6");
}

typedef lk_node (*build_fn)(lk_graph *graph, lk_node x, const void *arg);

/* The output of a graph with this op alone has PyTorch's shape. */
static void check_shape(const tensors *t, build_fn build, const void *arg)
{
    lk_graph *graph;
    assert_ok(lk_graph_create(&graph));
    lk_node y = build(graph, lk_input(graph, t->x.shape.c, t->x.shape.h, t->x.shape.w), arg);
    assert_ok(graph->status);
    lk_shape shape = graph->layers[y.index].shape;
    assert_int_equal(shape.c, t->y.shape.c);
    assert_int_equal(shape.h, t->y.shape.h);
    assert_int_equal(shape.w, t->y.shape.w);
    lk_graph_destroy(graph);
}

static lk_node build_avgpool(lk_graph *graph, lk_node x, const void *arg)
{
    return lk_avgpool2d(graph, x, *(const lk_avgpool2d_opts *)arg);
}

static void test_avgpool2d(void **state)
{
    static const char *const ops[] = {
        "avgpool_2",           "avgpool_2_odd",       "avgpool_2_ceil",       "avgpool_2_ceil_odd",
        "avgpool_2_ceil_none", "avgpool_8",           "avgpool_2_ceil_mixed", "avgpool_2_ceil_pixel",
        "avgpool_3_dense",     "avgpool_3_ceil_pad",  "avgpool_3_overlap",    "avgpool_3_ceil",
        "avgpool_5_ceil",      "avgpool_3_ceil_apart"};
    fixture *fx = *state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const int64_t *given_opts = golden_get(fx->golden, ops[i], "opts")->data;
        lk_avgpool2d_opts opts = {.kernel = (size_t)given_opts[0],
                                  .stride = (size_t)given_opts[1],
                                  .pad = (size_t)given_opts[2],
                                  .ceil = given_opts[3]};
        tensors t = tensors_of(fx, ops[i]);
        check_shape(&t, build_avgpool, &opts);
        avgpool_case(fx, ops[i], (lk_pool2d_desc){LK_WINDOW_SQUARE(opts.kernel, opts.stride, opts.pad)});
        free_blocks(state);
    }
}

static lk_node build_pad_channels(lk_graph *graph, lk_node x, const void *arg)
{
    return lk_pad_channels(graph, x, *(const size_t *)arg);
}

static void test_pad_channels(void **state)
{
    static const char *const ops[] = {"pad_channels", "pad_channels_wide"};
    fixture *fx = *state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        tensors t = tensors_of(fx, ops[i]);
        check_shape(&t, build_pad_channels, &t.y.shape.c);
        fx->kernels->fit_channels(fx->dev, &t.x, &t.y);
        fx->kernels->fit_channels(fx->dev, &t.dy, &t.dx);
        check_results(fx, &t, ops[i]);
    }
}

TEST_MAIN(setup, teardown, CASE(test_relu6), CASE(test_avgpool2d), CASE(test_pad_channels))
