/* test_ops.c - each kernel alone against PyTorch: outputs, input gradients, and weight gradients summed
 * over shards. The golden file has the shapes. */
#include "golden/kernels.h"

#define BN_EPS 1e-5f
#define BN_MOMENTUM 0.1f

static int setup(void **state)
{
    return setup_file(state, "ops.safetensors");
}

static void test_conv2d(void **state)
{
    static const char *const ops[] = {"conv_3x3", "conv_3x3_pad",   "conv_3x3_stride", "conv_1x1_stride",
                                      "conv_5x5", "conv_1_channel", "conv_wide"};
    conv_cases(state, ops, COUNT_OF(ops));
}

static void linear_case(fixture *fx, const char *op)
{
    fx_wave wave;
    tensors t = tensors_of(fx, op);
    float *weight = vector(fx, op, "w"), *bias = vector(fx, op, "b");
    void *scratch = fx_blank(fx->dev, fx->kernels->linear_scratch(fx->dev, t.x.shape, t.y.shape));
    for (int relu = 0; relu < 2; relu++) {
        fx->kernels->linear_forward(fx->dev, &t.x, weight, bias, relu, NULL, &t.y, scratch);
        check_as(fx, &t.y, op, "y", relu);
    }
    fx->kernels->linear_grad_input(fx->dev, &t.dy, weight, NULL, NULL, &t.dx, scratch);
    check(fx, &t.dx, op, "dx");
    lk_partials dw = partials(fx, t.x.shape.c * t.y.shape.c), db = partials(fx, t.y.shape.c);
    fx_wave_init(&wave, t.x.shape.n, SHARDS, 0, SHARDS);
    fx->kernels->linear_grad_weight(fx->dev, &t.x, &t.dy, &wave.shards, dw, db, scratch);
    check_vector(fx, dw.slot0, op, "dw");
    check_vector(fx, db.slot0, op, "db");
}

static void test_linear(void **state)
{
    linear_case(*state, "linear");
    free_blocks(state);
    linear_case(*state, "linear_wide");
}

static lk_moments new_moments(fixture *fx, size_t c)
{
    return (lk_moments){.groups = 1, .mean = fx_no_floats(fx->dev, c), .scale = fx_no_floats(fx->dev, c)};
}

static void test_batchnorm_train(void **state)
{
    fixture *fx = *state;
    const char *op = "batchnorm";
    fx_wave wave;
    tensors t = tensors_of(fx, op);
    float *gamma = vector(fx, op, "w"), *beta = vector(fx, op, "b");
    size_t c = t.x.shape.c, pixels = t.x.shape.h * t.x.shape.w, rows[1] = {t.x.shape.n};
    float *leaves = fx_no_floats(fx->dev, SHARDS * 2 * c);
    lk_moments moments = new_moments(fx, c);
    const lk_shards *shards = &wave.shards;
    fx_wave_init(&wave, t.x.shape.n, SHARDS, 0, SHARDS);

    lk_partials entry = partials(fx, 2 * c);
    fx->kernels->batchnorm_stats(fx->dev, &t.x, shards, &(lk_batchnorm_stats){.stats = leaves});
    fx->kernels->batchnorm_fold(fx->dev, c, pixels, shards, leaves, entry);
    fx->kernels->batchnorm_moments(fx->dev, c, pixels, entry.slot0, rows, BN_EPS, &moments);
    for (int relu = 0; relu < 2; relu++) {
        lk_batchnorm_desc desc = {.gamma = gamma, .beta = beta, .relu = relu};
        fx->kernels->batchnorm_forward(fx->dev, &desc, &t.x, shards, &moments, &t.y);
        check_as(fx, &t.y, op, "y", relu);
    }
    float *mean = vector(fx, op, "mean"), *variance = vector(fx, op, "var");
    lk_batchnorm_update update = {.c = c,
                                  .entry = entry.slot0,
                                  .elements = rows[0] * pixels,
                                  .momentum = BN_MOMENTUM,
                                  .mean = mean,
                                  .variance = variance};
    fx->kernels->batchnorm_running_update(fx->dev, 1, &update, NULL);
    check_vector(fx, mean, op, "new_mean");
    check_vector(fx, variance, op, "new_var");

    lk_partials sums = partials(fx, 2 * c);
    lk_batchnorm_desc desc = {.gamma = gamma, .beta = beta};
    fx->kernels->batchnorm_sums(fx->dev, &desc, &t.x, &t.dy, shards, &moments, &(lk_batchnorm_sums){.sums = leaves});
    fx->kernels->rows_fold(fx->dev, 2 * c, leaves, 2 * c, shards, sums);
    check_vector(fx, sums.slot0, op, "db");
    check_vector(fx, sums.slot0 + c, op, "dw");
    lk_batchnorm_grad grad = {.sums = sums.slot0, .rows = rows};
    fx->kernels->batchnorm_grad_input(fx->dev, &desc, &grad, &t.x, &t.dy, shards, &moments, &t.dx);
    check(fx, &t.dx, op, "dx");
}

static void test_batchnorm_eval(void **state)
{
    fixture *fx = *state;
    const char *op = "batchnorm";
    fx_wave wave;
    lk_tensor x = given(fx, op, "x"), y = like(fx, op, "y");
    lk_moments moments = new_moments(fx, x.shape.c);
    fx->kernels->batchnorm_running_moments(fx->dev, x.shape.c, vector(fx, op, "mean"), vector(fx, op, "var"), BN_EPS,
                                           &moments);
    lk_batchnorm_desc desc = {.gamma = vector(fx, op, "w"), .beta = vector(fx, op, "b")};
    fx_wave_init(&wave, x.shape.n, SHARDS, 0, SHARDS);
    fx->kernels->batchnorm_forward(fx->dev, &desc, &x, &wave.shards, &moments, &y);
    check(fx, &y, op, "y_eval");
}

static void test_maxpool2d(void **state)
{
    static const char *const ops[] = {"pool_2", "pool_2_odd", "pool_3_overlap", "pool_2_dense"};
    fixture *fx = *state;
    for (size_t i = 0; i < COUNT_OF(ops); i++) {
        lk_conv2d_desc opts = conv_opts(fx, ops[i]);
        maxpool_case(fx, ops[i], (lk_pool2d_desc){opts.h, opts.w});
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
    lk_dropout_desc dropout = {.p = 0,
                               .seed = 1,
                               .step = fx_blank(fx->dev, sizeof(uint32_t)),
                               .ids = fx_blank(fx->dev, x.shape.n * sizeof(uint32_t))};
    fx->kernels->dropout(fx->dev, &dropout, &x, &y);
    check(fx, &y, "dropout_off", "y");
}

static void test_flatten(void **state)
{
    fixture *fx = *state;
    tensors t = tensors_of(fx, "flatten");
    fx->kernels->flatten_forward(fx->dev, &t.x, &t.y);
    fx->kernels->flatten_grad_input(fx->dev, &t.dy, &t.dx);
    check_results(fx, &t, "flatten");
}

static void test_global_avgpool(void **state)
{
    fixture *fx = *state;
    tensors t = tensors_of(fx, "global_avgpool");
    fx->kernels->global_avgpool_forward(fx->dev, &t.x, &t.y);
    fx->kernels->global_avgpool_grad_input(fx->dev, &t.dy, &t.dx);
    check_results(fx, &t, "global_avgpool");
}

static void test_log_softmax(void **state)
{
    fixture *fx = *state;
    tensors t = tensors_of(fx, "log_softmax");
    fx->kernels->log_softmax_forward(fx->dev, &t.x, &t.y);
    fx->kernels->log_softmax_grad_input(fx->dev, &t.y, &t.dy, &t.dx);
    check_results(fx, &t, "log_softmax");
}

static void loss_case(fixture *fx, const char *op, bool nll, float smoothing)
{
    const lk_kernels *kernels = fx->kernels;
    const lk_state_entry *truth = golden_get(fx->golden, op, "labels"), *hits = golden_get(fx->golden, op, "correct");
    const lk_state_entry *five = golden_get(fx->golden, op, "top5");
    lk_tensor x = given(fx, op, "x"), dx = like(fx, op, "dx");
    size_t n = x.shape.n;
    int32_t *host = golden_alloc(n, sizeof *host), *label_ranks = fx_blank(fx->dev, n * sizeof *label_ranks);
    float *loss = fx_no_floats(fx->dev, n);
    for (size_t i = 0; i < n; i++)
        host[i] = (int32_t)golden_at(truth, i);
    lk_loss_desc desc = {
        .labels = fx_put(fx->dev, host, n * sizeof *host), .smoothing = smoothing, .scale = 1.0f / (float)n};
    (nll ? kernels->nll : kernels->cross_entropy)(fx->dev, &desc, &x, loss, label_ranks, &dx);
    check_vector(fx, loss, op, "loss");
    check(fx, &dx, op, "dx");
    fx_get(fx->dev, label_ranks, n * sizeof *host, host);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(host[i] == 0, (int)golden_at(hits, i));
        assert_int_equal(host[i] < 5, (int)golden_at(five, i));
    }
    free(host);
}

static void test_losses(void **state)
{
    static const struct {
        const char *op;
        bool nll;
        float smoothing;
    } cases[] = {{"nll", true, 0},
                 {"nll_smooth", true, 0.25f},
                 {"cross_entropy", false, 0},
                 {"cross_entropy_smooth", false, 0.25f}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        loss_case(*state, cases[i].op, cases[i].nll, cases[i].smoothing);
        free_blocks(state);
    }
}

TEST_MAIN(setup, teardown, CASE(test_conv2d), CASE(test_linear), CASE(test_batchnorm_train), CASE(test_batchnorm_eval),
          CASE(test_maxpool2d), CASE(test_relu), CASE(test_add), CASE(test_dropout_off), CASE(test_flatten),
          CASE(test_global_avgpool), CASE(test_log_softmax), CASE(test_losses))
