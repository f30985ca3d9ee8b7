/* test_layers.c - the kernels of gated, normalised and attention networks against PyTorch. */
#include "golden/kernels.h"

static int setup(void **state)
{
    return setup_file(state, "layers.safetensors");
}

static void test_functions(void **state)
{
    static const char *const ops[LK_UNARY_COUNT] = {[LK_UNARY_SIGMOID] = "sigmoid",
                                                    [LK_UNARY_TANH] = "tanh",
                                                    [LK_UNARY_SILU] = "silu",
                                                    [LK_UNARY_GELU] = "gelu",
                                                    [LK_UNARY_GELU_TANH] = "gelu_tanh"};
    fixture *fx = *state;
    for (lk_unary f = 0; f < LK_UNARY_COUNT; f++) {
        tensors t = tensors_of(fx, ops[f]);
        const lk_tensor *v = f == LK_UNARY_SIGMOID || f == LK_UNARY_TANH ? &t.y : &t.x;
        fx->kernels->unary_forward(fx->dev, f, &t.x, &t.y);
        fx->kernels->unary_grad_input(fx->dev, f, v, &t.dy, &t.dx);
        check_results(fx, &t, ops[f]);
    }
}

static void test_mul(void **state)
{
    fixture *fx = *state;
    lk_tensor a = given(fx, "mul", "a"), b = given(fx, "mul", "b"), y = like(fx, "mul", "y");
    lk_tensor dy = given(fx, "mul", "dy"), da = like(fx, "mul", "da"), db = like(fx, "mul", "db");
    fx->kernels->mul(fx->dev, &a, &b, &y);
    check(fx, &y, "mul", "y");
    fx->kernels->mul(fx->dev, &dy, &b, &da);
    check(fx, &da, "mul", "da");
    fx->kernels->mul(fx->dev, &dy, &a, &db);
    check(fx, &db, "mul", "db");
}

static void test_softmax(void **state)
{
    static const char *const ops[] = {"softmax", "softmax_many"};
    fixture *fx = *state;
    for (size_t i = 0; i < COUNT_OF(ops); i++) {
        tensors t = tensors_of(fx, ops[i]);
        fx->kernels->softmax_forward(fx->dev, &t.x, &t.y);
        fx->kernels->softmax_grad_input(fx->dev, &t.y, &t.dy, &t.dx);
        check_results(fx, &t, ops[i]);
    }
}

static void test_concat(void **state)
{
    fixture *fx = *state;
    lk_tensor a = given(fx, "concat", "a"), b = given(fx, "concat", "b"), y = like(fx, "concat", "y");
    lk_tensor dy = given(fx, "concat", "dy"), da = like(fx, "concat", "da"), db = like(fx, "concat", "db");
    fx->kernels->concat_forward(fx->dev, &a, &b, &y);
    check(fx, &y, "concat", "y");
    fx->kernels->concat_grad_input(fx->dev, &dy, 0, &da);
    fx->kernels->concat_grad_input(fx->dev, &dy, a.shape.c, &db);
    check(fx, &da, "concat", "da");
    check(fx, &db, "concat", "db");
}

static void test_global_maxpool(void **state)
{
    fixture *fx = *state;
    tensors t = tensors_of(fx, "global_maxpool");
    int32_t *index = fx_blank(fx->dev, lk__shape_count(t.y.shape) * sizeof *index);
    fx->kernels->global_maxpool_forward(fx->dev, &t.x, &t.y, index);
    fx->kernels->global_maxpool_grad_input(fx->dev, &t.dy, index, &t.dx);
    check_results(fx, &t, "global_maxpool");
}

static void norm_case(fixture *fx, const char *op, lk_groupnorm_desc desc)
{
    fx_wave wave;
    tensors t = tensors_of(fx, op);
    size_t c = t.x.shape.c;
    desc.eps = 1e-5f;
    desc.gamma = vector(fx, op, "w");
    desc.beta = vector(fx, op, "b");
    float *moments = fx_no_floats(fx->dev, 2 * lk__groupnorm_desc_sets(&desc, t.x.shape));
    float *leaves = fx_no_floats(fx->dev, SHARDS * 2 * c);
    lk_partials dw = partials(fx, c), db = partials(fx, c);
    fx_wave_init(&wave, t.x.shape.n, SHARDS, 0, SHARDS);
    fx->kernels->groupnorm_forward(fx->dev, &desc, &t.x, moments, &t.y);
    fx->kernels->groupnorm_grad_input(fx->dev, &desc, &t.x, &t.dy, moments, &t.dx);
    check_results(fx, &t, op);
    fx->kernels->groupnorm_grad_weight(fx->dev, &desc, &t.x, &t.dy, moments, &wave.shards, leaves);
    fx->kernels->rows_fold(fx->dev, c, leaves, 2 * c, &wave.shards, dw);
    fx->kernels->rows_fold(fx->dev, c, leaves + c, 2 * c, &wave.shards, db);
    check_vector(fx, dw.slot0, op, "dw");
    check_vector(fx, db.slot0, op, "db");
}

static void test_norms(void **state)
{
    norm_case(*state, "groupnorm", (lk_groupnorm_desc){.groups = 3});
    norm_case(*state, "layernorm", (lk_groupnorm_desc){.groups = 1, .by_pixel = true});
}

static void test_matmul(void **state)
{
    fixture *fx = *state;
    lk_tensor a = given(fx, "matmul", "a"), b = given(fx, "matmul", "b"), y = like(fx, "matmul", "y");
    lk_tensor dy = given(fx, "matmul", "dy"), da = like(fx, "matmul", "da"), db = like(fx, "matmul", "db");
    fx->kernels->matmul(fx->dev, &(lk_matmul_desc){0}, &a, &b, &y);
    check(fx, &y, "matmul", "y");
    fx->kernels->matmul(fx->dev, &(lk_matmul_desc){.transpose_b = true}, &dy, &b, &da);
    fx->kernels->matmul(fx->dev, &(lk_matmul_desc){.transpose_a = true}, &a, &dy, &db);
    check(fx, &da, "matmul", "da");
    check(fx, &db, "matmul", "db");
}

static void test_moves(void **state)
{
    static const struct {
        const char *op;
        int a, b;
    } cases[] = {{"transpose_12", 1, 2}, {"transpose_13", 1, 3}, {"transpose_23", 2, 3}};
    fixture *fx = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        tensors t = tensors_of(fx, cases[i].op);
        fx->kernels->swap_axes(fx->dev, cases[i].a, cases[i].b, &t.x, &t.y);
        fx->kernels->swap_axes(fx->dev, cases[i].a, cases[i].b, &t.dy, &t.dx);
        check_results(fx, &t, cases[i].op);
    }
    tensors t = tensors_of(fx, "reshape");
    fx->kernels->reshape(fx->dev, &t.x, &t.y);
    fx->kernels->reshape(fx->dev, &t.dy, &t.dx);
    check_results(fx, &t, "reshape");
}

TEST_MAIN(setup, teardown, CASE(test_functions), CASE(test_mul), CASE(test_softmax), CASE(test_concat),
          CASE(test_global_maxpool), CASE(test_norms), CASE(test_matmul), CASE(test_moves))
