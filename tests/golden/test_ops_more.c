/* test_ops_more.c - ReLU6, average pooling and channels of zeros against PyTorch:
 * outputs, input gradients, and the shapes that graphs give them. The golden
 * file's tensors are N,C,H,W, ours N,H,W,C. */
#include "golden/golden.h"

#include "nn/graph.h"
#include "tensor/device.h"

typedef struct fixture {
    lk_device *dev;
    const lk_kernels *kernels;
    lk_state *golden;
} fixture;

static int setup(void **state)
{
    fixture *fx = golden_alloc(1, sizeof *fx);
    golden_ok(lk__device_open("cpu", &(lk_device_opts){.threads = 2}, &fx->dev));
    fx->kernels = fx->dev->kernels;
    fx->golden = golden_load(LK_TESTS_DIR "/golden/data", "ops_more.safetensors");
    *state = fx;
    return 0;
}

static int teardown(void **state)
{
    fixture *fx = *state;
    lk__device_close(fx->dev);
    lk_state_destroy(fx->golden);
    free(fx);
    return 0;
}

static lk_tensor like(const fixture *fx, const char *op, const char *key)
{
    const size_t *dims = golden_get(fx->golden, op, key)->dims;
    lk_tensor tensor = {.dtype = LK_DTYPE_F32, .shape = {dims[0], dims[1], dims[2], dims[3]}};
    size_t bytes = lk__shape_count(tensor.shape) * sizeof(float);
    golden_ok(fx->dev->type->alloc(fx->dev, bytes, "test", &tensor.data));
    return tensor;
}

/* Memory place of the logical element i. */
static size_t place(lk_shape shape, size_t i)
{
    size_t sample = lk__shape_sample(shape);
    lk_model_shape one = {.channels = shape.c, .height = shape.h, .width = shape.w};
    return i / sample * sample + golden_nhwc(i % sample, one);
}

static lk_tensor given(const fixture *fx, const char *op, const char *key)
{
    const lk_entry *entry = golden_get(fx->golden, op, key);
    lk_tensor tensor = like(fx, op, key);
    float *host = golden_alloc(golden_count(entry), sizeof *host);
    for (size_t i = 0; i < golden_count(entry); i++)
        host[place(tensor.shape, i)] = (float)golden_at(entry, i);
    golden_ok(fx->dev->type->upload(fx->dev, host, golden_count(entry) * sizeof *host, tensor.data));
    free(host);
    return tensor;
}

static void check(const fixture *fx, const lk_tensor *ours, const char *op, const char *key)
{
    const lk_entry *truth = golden_get(fx->golden, op, key);
    size_t count = golden_count(truth);
    assert_int_equal(count, lk__shape_count(ours->shape));
    float *host = golden_alloc(count, sizeof *host);
    golden_ok(fx->dev->type->sync(fx->dev));
    golden_ok(fx->dev->type->download(fx->dev, ours->data, count * sizeof *host, host));
    for (size_t i = 0; i < count; i++)
        golden_near(truth->name, i, host[place(ours->shape, i)], golden_at(truth, i), golden_max(truth));
    free(host);
}

/* What an op is given and what it fills. */
typedef struct tensors {
    lk_tensor x, dy, y, dx;
} tensors;

static tensors tensors_of(const fixture *fx, const char *op)
{
    return (tensors){given(fx, op, "x"), given(fx, op, "dy"), like(fx, op, "y"), like(fx, op, "dx")};
}

static void check_and_free(const fixture *fx, tensors *t, const char *op)
{
    check(fx, &t->y, op, "y");
    check(fx, &t->dx, op, "dx");
    void *const blocks[] = {t->x.data, t->dy.data, t->y.data, t->dx.data};
    for (size_t i = 0; i < 4; i++)
        fx->dev->type->free(fx->dev, blocks[i]);
}

static void test_relu6(void **state)
{
    const fixture *fx = *state;
    tensors t = tensors_of(fx, "relu6");
    fx->kernels->relu6_forward(fx->dev, &t.x, &t.y);
    fx->kernels->relu6_grad_input(fx->dev, &t.y, &t.dy, &t.dx);
    check_and_free(fx, &t, "relu6");
}

typedef lk_node (*build_fn)(lk_graph *graph, lk_node x, const void *arg);

/* A graph that does to a tensor like x what was done gives PyTorch's shape. */
static void check_shape(const tensors *t, build_fn build, const void *arg)
{
    lk_graph *graph;
    golden_ok(lk_graph_create(&graph));
    lk_node y = build(graph, lk_input(graph, t->x.shape.c, t->x.shape.h, t->x.shape.w), arg);
    golden_ok(graph->status);
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
        "avgpool_2",
        "avgpool_2_odd",
        "avgpool_2_ceil",
        "avgpool_2_ceil_odd",
        "avgpool_2_ceil_none",
        "avgpool_8",
        "avgpool_2_ceil_mixed",
        "avgpool_2_ceil_pixel",
        "avgpool_3_dense",
        "avgpool_3_ceil_pad",
        "avgpool_3_overlap",
        "avgpool_3_ceil",
        "avgpool_5_ceil",
        "avgpool_3_ceil_apart",
    };
    const fixture *fx = *state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const int64_t *given_opts = golden_get(fx->golden, ops[i], "opts")->data;
        lk_avgpool2d_opts opts = {(size_t)given_opts[0], (size_t)given_opts[1], (size_t)given_opts[2], given_opts[3]};
        lk_pool2d_desc pool = {opts.kernel, opts.stride, opts.pad};
        tensors t = tensors_of(fx, ops[i]);
        check_shape(&t, build_avgpool, &opts);
        fx->kernels->avgpool_forward(fx->dev, &pool, &t.x, &t.y);
        fx->kernels->avgpool_grad_input(fx->dev, &pool, &t.dy, &t.dx);
        check_and_free(fx, &t, ops[i]);
    }
}

static lk_node build_pad_channels(lk_graph *graph, lk_node x, const void *arg)
{
    return lk_pad_channels(graph, x, *(const size_t *)arg);
}

static void test_pad_channels(void **state)
{
    static const char *const ops[] = {"pad_channels", "pad_channels_wide"};
    const fixture *fx = *state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        tensors t = tensors_of(fx, ops[i]);
        check_shape(&t, build_pad_channels, &t.y.shape.c);
        fx->kernels->fit_channels(fx->dev, &t.x, &t.y);
        fx->kernels->fit_channels(fx->dev, &t.dy, &t.dx);
        check_and_free(fx, &t, ops[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relu6),
        cmocka_unit_test(test_avgpool2d),
        cmocka_unit_test(test_pad_channels),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
