/* test_conv_groups.c - convolutions in groups of channels, down to one channel a
 * group, against PyTorch: outputs, input gradients, weight gradients summed over
 * shards. The golden file's tensors are N,C,H,W, ours N,H,W,C. */
#include "golden/golden.h"

#include "base/tree.h"
#include "tensor/device.h"

enum { SHARDS = 4 };

typedef struct fixture {
    lk_device *dev;
    lk_state *golden;
    const char *op;
} fixture;

static int setup(void **state)
{
    fixture *fx = golden_alloc(1, sizeof *fx);
    golden_ok(lk__device_open("cpu", &(lk_device_opts){.threads = 2}, &fx->dev));
    fx->golden = golden_load(LK_TESTS_DIR "/golden/data", "conv_groups.safetensors");
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

/* Memory place of the logical element i. */
static size_t place(lk_shape shape, size_t i)
{
    size_t sample = lk__shape_sample(shape), pixels = shape.h * shape.w, rest = i % sample;
    return i / sample * sample + rest % pixels * shape.c + rest / pixels;
}

/* An entry as a tensor in our order, or with room for its values alone. */
static lk_tensor tensor(const fixture *fx, const char *key, bool filled)
{
    const lk_state_entry *entry = golden_get(fx->golden, fx->op, key);
    lk_shape shape = {entry->dims[0], entry->dims[1], entry->dims[2], entry->dims[3]};
    float *data = golden_alloc(lk__shape_count(shape), sizeof *data);
    for (size_t i = 0; filled && i < golden_count(entry); i++)
        data[place(shape, i)] = (float)golden_at(entry, i);
    return (lk_tensor){.data = data, .dtype = LK_DTYPE_F32, .shape = shape};
}

/* A weight or bias as it stands; NULL when the case has none. */
static float *vector(const fixture *fx, const char *key)
{
    const lk_state_entry *entry = golden_find(fx->golden, fx->op, key);
    float *data = entry ? golden_alloc(golden_count(entry), sizeof *data) : NULL;
    for (size_t i = 0; entry && i < golden_count(entry); i++)
        data[i] = (float)golden_at(entry, i);
    return data;
}

static void check(const fixture *fx, const lk_tensor *ours, const char *key, bool relu)
{
    const lk_state_entry *truth = golden_get(fx->golden, fx->op, key);
    assert_int_equal(golden_count(truth), lk__shape_count(ours->shape));
    double max = golden_max(truth);
    for (size_t i = 0; i < golden_count(truth); i++) {
        double value = golden_at(truth, i);
        golden_near(truth->name, i, lk__tensor_f32(ours)[place(ours->shape, i)], relu && value < 0 ? 0 : value, max);
    }
}

static void check_vector(const fixture *fx, const float *ours, const char *key)
{
    const lk_state_entry *truth = golden_get(fx->golden, fx->op, key);
    double max = golden_max(truth);
    for (size_t i = 0; i < golden_count(truth); i++)
        golden_near(truth->name, i, ours[i], golden_at(truth, i), max);
}

static void check_weights(const fixture *fx, const lk_conv2d_desc *conv, const lk_tensor *x, const lk_tensor *dy,
                          void *scratch)
{
    size_t begin[SHARDS + 1], weights = golden_count(golden_get(fx->golden, fx->op, "w")), out = dy->shape.c;
    int merges[SHARDS];
    bool bias = golden_find(fx->golden, fx->op, "b") != NULL;
    for (int s = 0; s <= SHARDS; s++)
        begin[s] = lk__shard_begin(x->shape.n, SHARDS, s);
    for (int s = 0; s < SHARDS; s++)
        merges[s] = lk__tree_merges(SHARDS, s);
    lk_shards shards = {.count = SHARDS, .begin = begin, .merges = merges};
    lk_partials dw = {golden_alloc(weights * LK_TREE_MAX_DEPTH, sizeof(float)), weights}, db = {NULL, out};
    if (bias)
        db.slot0 = golden_alloc(out * LK_TREE_MAX_DEPTH, sizeof(float));
    fx->dev->kernels->conv2d_grad_weight(fx->dev, conv, x, dy, &shards, dw, db, scratch);
    check_vector(fx, dw.slot0, "dw");
    if (bias)
        check_vector(fx, db.slot0, "db");
    free(dw.slot0);
    free(db.slot0);
}

static void run_case(const fixture *fx)
{
    const lk_kernels *kernels = fx->dev->kernels;
    const lk_state_entry *opts = golden_get(fx->golden, fx->op, "opts");
    lk_conv2d_desc conv = {(size_t)golden_at(opts, 0), (size_t)golden_at(opts, 1), (size_t)golden_at(opts, 2),
                           (size_t)golden_at(opts, 3)};
    lk_tensor x = tensor(fx, "x", true), dy = tensor(fx, "dy", true);
    lk_tensor y = tensor(fx, "y", false), dx = tensor(fx, "dx", false);
    float *weight = vector(fx, "w"), *bias = vector(fx, "b");
    void *scratch;
    size_t bytes = kernels->conv2d_scratch(fx->dev, &conv, x.shape, y.shape);
    golden_ok(fx->dev->type->alloc(fx->dev, bytes, "test", &scratch));
    for (int relu = 0; relu < 2; relu++) {
        kernels->conv2d_forward(fx->dev, &conv, &x, weight, bias, relu, &y, scratch);
        check(fx, &y, "y", relu);
    }
    kernels->conv2d_grad_input(fx->dev, &conv, &dy, weight, NULL, &dx, scratch);
    check(fx, &dx, "dx", false);
    check_weights(fx, &conv, &x, &dy, scratch);
    fx->dev->type->free(fx->dev, scratch);
    free(x.data), free(dy.data), free(y.data), free(dx.data);
    free(weight), free(bias);
}

static void run_cases(fixture *fx, const char *const *ops, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fx->op = ops[i];
        run_case(fx);
    }
}

static void test_groups(void **state)
{
    static const char *const ops[] = {"groups_2", "groups_odd", "groups_wide", "groups_1x1"};
    run_cases(*state, ops, sizeof ops / sizeof *ops);
}

static void test_depthwise(void **state)
{
    static const char *const ops[] = {"depthwise", "depthwise_stride", "depthwise_wide", "depthwise_5x5"};
    run_cases(*state, ops, sizeof ops / sizeof *ops);
}

static void test_multiplier(void **state)
{
    static const char *const ops[] = {"multiplier_2", "multiplier_2_stride"};
    run_cases(*state, ops, sizeof ops / sizeof *ops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_depthwise),
        cmocka_unit_test(test_multiplier),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
