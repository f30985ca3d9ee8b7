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

TEST_MAIN(setup, teardown, CASE(test_functions), CASE(test_mul))
