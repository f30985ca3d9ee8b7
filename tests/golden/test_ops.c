/* test_ops.c - each kernel alone against PyTorch: outputs, input gradients,
 * weight gradients summed over shards. Shapes come from the golden file; its
 * tensors are N,C,H,W, ours N,H,W,C. */
#include "golden/kernels.h"

#include "base/tree.h"

enum { SHARDS = 4 };

#define BN_EPS 1e-5f
#define BN_MOMENTUM 0.1f

static int setup(void **state)
{
    return setup_file(state, "ops.safetensors");
}

/* One wave with all shards of n samples. */
typedef struct wave {
    lk_shards shards;
    size_t begin[SHARDS + 1];
    int merges[SHARDS];
} wave;

static const lk_shards *wave_init(wave *w, size_t n)
{
    for (int s = 0; s <= SHARDS; s++)
        w->begin[s] = lk__shard_begin(n, SHARDS, s);
    for (int s = 0; s < SHARDS; s++)
        w->merges[s] = lk__tree_merges(SHARDS, s);
    w->shards = (lk_shards){.count = SHARDS, .begin = w->begin, .merges = w->merges};
    return &w->shards;
}

static lk_partials partials(fixture *fx, size_t count)
{
    return (lk_partials){.slot0 = block(fx, count * LK_TREE_MAX_DEPTH * sizeof(float)), .stride = count};
}

static lk_conv2d_desc conv_opts(fixture *fx, const char *op)
{
    const lk_state_entry *opts = golden_get(fx->golden, op, "opts");
    return (lk_conv2d_desc){(size_t)golden_at(opts, 0), (size_t)golden_at(opts, 1), (size_t)golden_at(opts, 2), 1};
}

static void conv_case(fixture *fx, const char *op)
{
    wave w;
    lk_conv2d_desc conv = conv_opts(fx, op);
    lk_tensor x = given(fx, op, "x"), dy = given(fx, op, "dy"), y = like(fx, op, "y"), dx = like(fx, op, "dx");
    float *weight = vector(fx, op, "w"), *bias = vector(fx, op, "b");
    void *scratch = block(fx, fx->kernels->conv2d_scratch(fx->dev, &conv, x.shape, y.shape));
    for (int relu = 0; relu < 2; relu++) {
        fx->kernels->conv2d_forward(fx->dev, &conv, &x, weight, bias, relu, &y, scratch);
        check_as(fx, &y, op, "y", relu);
    }
    fx->kernels->conv2d_grad_input(fx->dev, &conv, &dy, weight, NULL, &dx, scratch);
    check(fx, &dx, op, "dx");
    lk_partials dw = partials(fx, golden_count(golden_get(fx->golden, op, "w")));
    lk_partials db = bias ? partials(fx, y.shape.c) : (lk_partials){0};
    fx->kernels->conv2d_grad_weight(fx->dev, &conv, &x, &dy, wave_init(&w, x.shape.n), dw, db, scratch);
    check_vector(fx, dw.slot0, op, "dw");
    if (bias)
        check_vector(fx, db.slot0, op, "db");
}

static void test_conv2d(void **state)
{
    static const char *const ops[] = {"conv_3x3", "conv_3x3_pad",   "conv_3x3_stride", "conv_1x1_stride",
                                      "conv_5x5", "conv_1_channel", "conv_wide"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        conv_case(*state, ops[i]);
        free_blocks(state);
    }
}

static void linear_case(fixture *fx, const char *op)
{
    wave w;
    lk_tensor x = given(fx, op, "x"), dy = given(fx, op, "dy"), y = like(fx, op, "y"), dx = like(fx, op, "dx");
    float *weight = vector(fx, op, "w"), *bias = vector(fx, op, "b");
    void *scratch = block(fx, fx->kernels->linear_scratch(fx->dev, x.shape, y.shape));
    for (int relu = 0; relu < 2; relu++) {
        fx->kernels->linear_forward(fx->dev, &x, weight, bias, relu, &y, scratch);
        check_as(fx, &y, op, "y", relu);
    }
    fx->kernels->linear_grad_input(fx->dev, &dy, weight, NULL, &dx, scratch);
    check(fx, &dx, op, "dx");
    lk_partials dw = partials(fx, x.shape.c * y.shape.c), db = partials(fx, y.shape.c);
    fx->kernels->linear_grad_weight(fx->dev, &x, &dy, wave_init(&w, x.shape.n), dw, db, scratch);
    check_vector(fx, dw.slot0, op, "dw");
    check_vector(fx, db.slot0, op, "db");
}

static void test_linear(void **state)
{
    linear_case(*state, "linear");
    free_blocks(state);
    linear_case(*state, "linear_wide");
}

static void test_batchnorm_train(void **state)
{
    fixture *fx = *state;
    const char *op = "batchnorm";
    wave w;
    lk_tensor x = given(fx, op, "x"), dy = given(fx, op, "dy"), y = like(fx, op, "y"), dx = like(fx, op, "dx");
    float *gamma = vector(fx, op, "w"), *beta = vector(fx, op, "b");
    size_t c = x.shape.c, pixels = x.shape.h * x.shape.w, rows[1] = {x.shape.n};
    const lk_shards *shards = wave_init(&w, x.shape.n);
    float *leaves = block(fx, SHARDS * 2 * c * sizeof *leaves);
    lk_moments moments = {.groups = 1, .mean = block(fx, c * sizeof(float)), .scale = block(fx, c * sizeof(float))};

    lk_partials entry = partials(fx, 2 * c);
    fx->kernels->batchnorm_stats(fx->dev, &x, shards, leaves);
    fx->kernels->batchnorm_fold(fx->dev, c, pixels, shards, leaves, entry);
    fx->kernels->batchnorm_moments(fx->dev, c, pixels, entry.slot0, rows, BN_EPS, &moments);
    for (int relu = 0; relu < 2; relu++) {
        lk_batchnorm_desc desc = {.gamma = gamma, .beta = beta, .relu = relu};
        fx->kernels->batchnorm_forward(fx->dev, &desc, &x, shards, &moments, &y);
        check_as(fx, &y, op, "y", relu);
    }
    float *mean = vector(fx, op, "mean"), *variance = vector(fx, op, "var");
    fx->kernels->batchnorm_running_update(fx->dev, c, entry.slot0, rows[0] * pixels, BN_MOMENTUM, NULL, mean, variance);
    check_vector(fx, mean, op, "new_mean");
    check_vector(fx, variance, op, "new_var");

    lk_partials sums = partials(fx, 2 * c);
    fx->kernels->batchnorm_sums(fx->dev, &x, &dy, shards, &moments, leaves);
    fx->kernels->rows_fold(fx->dev, 2 * c, leaves, 2 * c, shards, sums);
    check_vector(fx, sums.slot0, op, "db");
    check_vector(fx, sums.slot0 + c, op, "dw");
    lk_batchnorm_grad grad = {.gamma = gamma, .sums = sums.slot0, .rows = rows};
    fx->kernels->batchnorm_grad_input(fx->dev, &grad, &x, &dy, shards, &moments, &dx);
    check(fx, &dx, op, "dx");
}

static void test_batchnorm_eval(void **state)
{
    fixture *fx = *state;
    const char *op = "batchnorm";
    wave w;
    lk_tensor x = given(fx, op, "x"), y = like(fx, op, "y");
    size_t c = x.shape.c;
    lk_moments moments = {.groups = 1, .mean = block(fx, c * sizeof(float)), .scale = block(fx, c * sizeof(float))};
    fx->kernels->batchnorm_running_moments(fx->dev, c, vector(fx, op, "mean"), vector(fx, op, "var"), BN_EPS, &moments);
    lk_batchnorm_desc desc = {.gamma = vector(fx, op, "w"), .beta = vector(fx, op, "b")};
    fx->kernels->batchnorm_forward(fx->dev, &desc, &x, wave_init(&w, x.shape.n), &moments, &y);
    check(fx, &y, op, "y_eval");
}

static void test_maxpool2d(void **state)
{
    static const char *const ops[] = {"pool_2", "pool_2_odd", "pool_3_overlap", "pool_2_dense"};
    fixture *fx = *state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        lk_conv2d_desc opts = conv_opts(fx, ops[i]);
        lk_pool2d_desc pool = {opts.kernel, opts.stride, opts.pad};
        lk_tensor x = given(fx, ops[i], "x"), dy = given(fx, ops[i], "dy");
        lk_tensor y = like(fx, ops[i], "y"), dx = like(fx, ops[i], "dx");
        uint8_t *index = block(fx, lk__shape_count(y.shape));
        fx->kernels->maxpool_forward(fx->dev, &pool, NULL, &x, false, &y, index);
        check(fx, &y, ops[i], "y");
        fx->kernels->maxpool_grad_input(fx->dev, &pool, NULL, &dy, index, &dx);
        check(fx, &dx, ops[i], "dx");
        free_blocks(state);
    }
}

static void test_relu(void **state)
{
    fixture *fx = *state;
    lk_tensor x = given(fx, "relu", "x"), dy = given(fx, "relu", "dy"), y = like(fx, "relu", "y");
    fx->kernels->relu_forward(fx->dev, &x, &y);
    check(fx, &y, "relu", "y");
    fx->kernels->relu_grad_input(fx->dev, &y, &dy, &dy);
    check(fx, &dy, "relu", "dx");
}

static void test_add(void **state)
{
    fixture *fx = *state;
    lk_tensor a = given(fx, "add", "a"), b = given(fx, "add", "b"), y = like(fx, "add", "y");
    for (int relu = 0; relu < 2; relu++) {
        fx->kernels->add(fx->dev, &a, &b, relu, &y);
        check_as(fx, &y, "add", "y", relu);
    }
}

static void test_dropout_off(void **state)
{
    fixture *fx = *state;
    lk_tensor x = given(fx, "dropout_off", "x"), y = like(fx, "dropout_off", "y");
    lk_dropout_desc dropout = {
        .p = 0, .seed = 1, .step = block(fx, sizeof(uint32_t)), .ids = block(fx, x.shape.n * sizeof(uint32_t))};
    fx->kernels->dropout(fx->dev, &dropout, &x, &y);
    check(fx, &y, "dropout_off", "y");
}

static void test_flatten(void **state)
{
    fixture *fx = *state;
    lk_tensor x = given(fx, "flatten", "x"), dy = given(fx, "flatten", "dy");
    lk_tensor y = like(fx, "flatten", "y"), dx = like(fx, "flatten", "dx");
    fx->kernels->flatten_forward(fx->dev, &x, &y);
    check(fx, &y, "flatten", "y");
    fx->kernels->flatten_grad_input(fx->dev, &dy, &dx);
    check(fx, &dx, "flatten", "dx");
}

static void test_global_avgpool(void **state)
{
    fixture *fx = *state;
    const char *op = "global_avgpool";
    lk_tensor x = given(fx, op, "x"), dy = given(fx, op, "dy"), y = like(fx, op, "y"), dx = like(fx, op, "dx");
    fx->kernels->global_avgpool_forward(fx->dev, &x, &y);
    check(fx, &y, op, "y");
    fx->kernels->global_avgpool_grad_input(fx->dev, &dy, &dx);
    check(fx, &dx, op, "dx");
}

static void test_log_softmax(void **state)
{
    fixture *fx = *state;
    const char *op = "log_softmax";
    lk_tensor x = given(fx, op, "x"), dy = given(fx, op, "dy"), y = like(fx, op, "y"), dx = like(fx, op, "dx");
    fx->kernels->log_softmax_forward(fx->dev, &x, &y);
    check(fx, &y, op, "y");
    fx->kernels->log_softmax_grad_input(fx->dev, &y, &dy, &dx);
    check(fx, &dx, op, "dx");
}

static void loss_case(fixture *fx, const char *op, bool nll, float smoothing)
{
    const lk_kernels *kernels = fx->kernels;
    const lk_state_entry *truth = golden_get(fx->golden, op, "labels"), *hits = golden_get(fx->golden, op, "correct");
    const lk_state_entry *five = golden_get(fx->golden, op, "top5");
    lk_tensor x = given(fx, op, "x"), dx = like(fx, op, "dx");
    size_t n = x.shape.n;
    int32_t *host = golden_alloc(n, sizeof *host), *labels = block(fx, n * sizeof *labels);
    int32_t *places = block(fx, n * sizeof *places);
    float *loss = block(fx, n * sizeof *loss);
    lk_loss_desc desc = {.labels = labels, .smoothing = smoothing, .scale = 1.0f / (float)n};
    for (size_t i = 0; i < n; i++)
        host[i] = (int32_t)golden_at(truth, i);
    golden_ok(fx->dev->type->upload(fx->dev, host, n * sizeof *host, labels));
    (nll ? kernels->nll : kernels->cross_entropy)(fx->dev, &desc, &x, loss, places, &dx);
    check_vector(fx, loss, op, "loss");
    check(fx, &dx, op, "dx");
    golden_ok(fx->dev->type->download(fx->dev, places, n * sizeof *host, host));
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(host[i] == 0, (int)golden_at(hits, i));
        assert_int_equal(host[i] < 5, (int)golden_at(five, i));
    }
    free(host);
}

static void test_nll(void **state)
{
    loss_case(*state, "nll", true, 0);
}

static void test_smooth_nll(void **state)
{
    loss_case(*state, "nll_smooth", true, 0.25f);
}

static void test_smooth_cross_entropy(void **state)
{
    loss_case(*state, "cross_entropy_smooth", false, 0.25f);
}

static void test_cross_entropy(void **state)
{
    loss_case(*state, "cross_entropy", false, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_conv2d),
        CASE(test_linear),
        CASE(test_batchnorm_train),
        CASE(test_batchnorm_eval),
        CASE(test_maxpool2d),
        CASE(test_relu),
        CASE(test_add),
        CASE(test_dropout_off),
        CASE(test_flatten),
        CASE(test_global_avgpool),
        CASE(test_log_softmax),
        CASE(test_nll),
        CASE(test_cross_entropy),
        CASE(test_smooth_nll),
        CASE(test_smooth_cross_entropy),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
