/* test_fuse.c - which layers are fused, on small graphs. */
#include "nn/fused.h"

enum { INPUT, CONV, BN };

/* 0 input, 1 conv, 2 bn, 3 add, 4 ReLU */
static lk_node residual(lk_graph *g, bool swapped)
{
    lk_node x = lk_input(g, 4, 6, 6);
    lk_node y = lk_batchnorm2d(g, lk_conv2d(g, x, "conv", (lk_conv2d_opts){.out = 4, .kernel = 3, .pad = 1}), "bn");
    return lk_relu(g, swapped ? lk_add(g, x, y) : lk_add(g, y, x));
}

static void test_addition(void **state)
{
    fixture *fx = *state;
    finish(fx->graph, residual(fx->graph, false));
    fuse(fx, 1, 0);
    const lk_fuse_choice *bn = &fx->choices[BN], *add = bn + 1, *relu = bn + 2;
    assert_int_equal(bn->forward, -1);
    assert_int_equal(add->forward, BN);
    assert_int_equal(relu->forward, -1);
    assert_int_equal(bn->other, INPUT);
    assert_true(bn->relu && !add->relu);
    assert_true(bn->value == BN && add->value == BN && relu->value == BN);
}

/* The layer that does the addition may be its second input. */
static void test_second_input(void **state)
{
    fixture *fx = *state;
    finish(fx->graph, residual(fx->graph, true));
    fuse(fx, 1, 0);
    assert_int_equal(fx->choices[BN + 1].forward, BN);
    assert_int_equal(fx->choices[BN].other, INPUT);
}

/* 0 input, 1 conv, 2 bn, 3 average pooling, 4 pad_channels, 5 add. The
 * addends are computed after 2. */
static void test_padded(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_node x = lk_input(g, 4, 6, 6);
    lk_conv2d_opts opts = {.out = 7, .kernel = 3, .pad = 1, .stride = 2};
    lk_node y = lk_batchnorm2d(g, lk_conv2d(g, x, "conv", opts), "bn");
    lk_node pooled = lk_avgpool2d(g, x, (lk_avgpool2d_opts){.kernel = 2});
    finish(g, lk_add(g, y, lk_pad_channels(g, pooled, 7)));
    fuse(fx, 1, 0);
    assert_int_equal(fx->choices[BN].forward, -1);
    assert_int_equal(fx->choices[BN].other, 3);
    assert_int_equal(fx->choices[3].forward, 3);
    assert_int_equal(fx->choices[4].forward, -1);
    assert_int_equal(fx->choices[4].value, 3);
    assert_int_equal(fx->choices[5].forward, BN);
    assert_false(fx->choices[BN].relu);
}

/* A layer with another reader is not fused. */
static void test_apart(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_node x = lk_input(g, 4, 6, 6);
    lk_node y = lk_batchnorm2d(g, lk_conv2d(g, x, "conv", (lk_conv2d_opts){.out = 4, .kernel = 3, .pad = 1}), "bn");
    lk_node wide = lk_pad_channels(g, x, 4);                   /* 3 */
    lk_node sum = lk_add(g, y, wide);                          /* 4 */
    finish(g, lk_add(g, lk_add(g, lk_relu(g, sum), wide), y)); /* 5, 6, 7 */
    fuse(fx, 1, 0);
    for (int i = 1; i <= 7; i++) {
        assert_int_equal(fx->choices[i].other, -1);
        assert_int_equal(fx->choices[i].forward, i == 5 ? -1 : i);
    }
    assert_true(fx->choices[4].relu);
}

static void test_other_stage(void **state)
{
    fixture *fx = *state;
    finish(fx->graph, residual(fx->graph, false));
    fuse(fx, BN + 1, 0);
    assert_int_equal(fx->choices[BN + 1].forward, BN + 1);
    assert_true(fx->choices[BN + 1].relu);
    assert_int_equal(fx->choices[BN + 2].forward, -1);
    fuse(fx, 1, BN + 1);
    assert_int_equal(fx->choices[BN].forward, BN);
    assert_int_equal(fx->choices[BN].other, -1);
}

/* 0 input, 1 conv, 2 ReLU, 3 conv, 4 bn, 5 add, 6 ReLU. The
 * gradient of 2 is complete when 4 has read its dy, so the layers share memory. */
static void test_shared_gradient(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_conv2d_opts opts = {.out = 4, .kernel = 3, .pad = 1};
    lk_node x = lk_relu(g, lk_conv2d(g, lk_input(g, 4, 6, 6), "conv1", opts));
    lk_node y = lk_batchnorm2d(g, lk_conv2d(g, x, "conv2", opts), "bn");
    finish(g, lk_relu(g, lk_add(g, y, x)));
    fuse(fx, 1, 0);
    static const int grads[] = {0, 6, 6, 3, 6, 6, 6};
    for (int i = 0; i <= 6; i++)
        assert_int_equal(fx->choices[i].grad, grads[i]);
}

/* 0 input, 1 conv, 2 bn, 3 conv, 4 ReLU, 5 add. The ReLU writes to its dy before
 * 2 reads it, so it needs memory of its own. */
static void test_gradient_of_its_own(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_conv2d_opts opts = {.out = 4, .kernel = 3, .pad = 1};
    lk_node x = lk_input(g, 4, 6, 6);
    lk_node a = lk_batchnorm2d(g, lk_conv2d(g, x, "conv1", opts), "bn");
    lk_node b = lk_relu(g, lk_conv2d(g, x, "conv2", opts));
    finish(g, lk_add(g, a, b));
    fuse(fx, 1, 0);
    assert_int_equal(fx->choices[2].grad, 5);
    assert_int_equal(fx->choices[4].grad, 4);
    assert_int_equal(fx->choices[3].grad, 4);
}

/* 0 input, 1 conv, 2 ReLU, 3 pooling, 4 dropout, 5 dropout. The pooling does the first
 * dropout. */
static void test_dropout(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_node x = lk_relu(g, lk_conv2d(g, lk_input(g, 4, 6, 6), "conv", (lk_conv2d_opts){.out = 4, .kernel = 3}));
    x = lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 2});
    finish(g, lk_dropout(g, lk_dropout2d(g, x, 0.25), 0.5));
    fuse(fx, 1, 0);
    const lk_fuse_choice *of = fx->choices;
    assert_int_equal(of[3].dropout, 4);
    assert_true(of[4].forward == -1 && of[4].backward_elsewhere && of[3].grad == of[4].grad);
    assert_true(of[5].forward == 5 && !of[5].backward_elsewhere && of[4].dropout == -1);
    fuse(fx, 4, 0);
    assert_true(of[4].forward == 4 && !of[4].backward_elsewhere);
    fuse(fx, 1, 4);
    assert_int_equal(of[3].dropout, -1);
}

/* The pooling does no dropout where another layer reads its output. */
static void test_dropout_apart(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_node x = lk_maxpool2d(g, lk_input(g, 4, 6, 6), (lk_maxpool2d_opts){.kernel = 2});
    finish(g, lk_add(g, lk_dropout(g, x, 0.5), x));
    fuse(fx, 1, 0);
    assert_int_equal(fx->choices[1].dropout, -1);
    assert_true(fx->choices[2].forward == 2 && !fx->choices[2].backward_elsewhere);
}

/* 0 input, 1 linear, 2 ReLU, 3 dropout, 4 linear, 5 dropout, 6 linear. The first linear layer does the ReLU and the
 * dropout, the second one their gradients. The dropout that no ReLU precedes computes its gradient itself. */
static void test_dropout_between_linear_layers(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_node x = lk_dropout(g, lk_relu(g, lk_linear(g, lk_input(g, 8, 1, 1), "fc1", 5)), 0.5);
    lk_cross_entropy(g, lk_linear(g, lk_dropout(g, lk_linear(g, x, "fc2", 4), 0.5), "fc3", 3));
    fuse(fx, 1, 0);
    const lk_fuse_choice *of = fx->choices;
    assert_true(of[1].relu && of[1].dropout == 3 && of[2].value == 1 && of[3].value == 1);
    assert_true(of[2].forward == -1 && of[3].forward == -1 && of[2].backward_elsewhere && of[3].backward_elsewhere);
    assert_true(of[4].mask && of[4].masked_dropout == 3 && of[1].grad == of[3].grad);
    assert_true(of[4].dropout == 5 && of[5].forward == -1 && !of[5].backward_elsewhere && !of[6].mask);
    assert_int_equal(of[6].masked_dropout, -1);
}

/* Where one of the layers is in another stage or is kept, each does its own work, or that of its neighbour alone. */
static void test_dropout_of_relu_apart(void **state)
{
    static const struct {
        int first, last, kept;
        bool relu;
    } apart[] = {{2, 0, -1, false}, {3, 0, -1, false}, {1, 4, -1, true},
                 {1, 0, 1, false},  {1, 0, 2, true},   {1, 0, 3, true}};
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_node x = lk_dropout(g, lk_relu(g, lk_linear(g, lk_input(g, 8, 1, 1), "fc1", 5)), 0.5);
    lk_cross_entropy(g, lk_linear(g, x, "fc2", 3));
    const lk_fuse_choice *of = fx->choices;
    for (size_t i = 0; i < COUNT_OF(apart); i++) {
        memset(fx->kept, 0, sizeof fx->kept);
        if (apart[i].kept >= 0)
            fx->kept[apart[i].kept] = true;
        fuse(fx, apart[i].first, apart[i].last);
        assert_true(of[1].relu == apart[i].relu);
        assert_true(of[3].forward == 3 && of[3].value == 3 && !of[3].backward_elsewhere && !of[4].mask);
        assert_true(apart[i].first > 1 || of[1].dropout == -1);
    }
}

/* A ReLU whose value another layer reads keeps it. */
static void test_dropout_of_shared_relu(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_node relu = lk_relu(g, lk_linear(g, lk_input(g, 8, 1, 1), "fc1", 5));
    lk_node a = lk_linear(g, lk_dropout(g, relu, 0.5), "fc2", 3);
    lk_cross_entropy(g, lk_add(g, a, lk_linear(g, relu, "fc3", 3)));
    fuse(fx, 1, 0);
    const lk_fuse_choice *of = fx->choices;
    assert_true(of[1].relu && of[1].dropout == -1 && of[3].forward == 3 && !of[4].mask && of[4].masked_dropout == -1);
}

/* A kept layer gets no other layer's ReLU, addition or dropout, and nothing overwrites it; the layers before it are
 * fused as ever. */
static void test_kept(void **state)
{
    fixture *fx = *state;
    finish(fx->graph, residual(fx->graph, false));
    const lk_fuse_choice *bn = &fx->choices[BN], *add = bn + 1, *relu = bn + 2;
    fx->kept[BN] = true;
    fuse(fx, 1, 0);
    assert_true(bn->forward == BN && bn->other == -1 && add->forward == BN + 1 && add->value == BN + 1);
    assert_true(add->relu && relu->forward == -1 && relu->value == BN + 1);
    fx->kept[BN] = false;
    fx->kept[BN + 1] = true;
    fuse(fx, 1, 0);
    assert_true(bn->forward == -1 && bn->other == INPUT && add->forward == BN && add->value == BN && !bn->relu);
    assert_true(relu->forward == BN + 2 && relu->value == BN + 2);
    fx->kept[BN + 1] = false;
    fx->kept[BN + 2] = true;
    fuse(fx, 1, 0);
    assert_true(bn->relu && add->value == BN && relu->value == BN && relu->forward == -1);
}

/* 0 input, 1 conv, 2 bn, 3 ReLU, 4 conv, 5 bn, 6 ReLU6. The gradients of both ReLUs are computed by the layers before
 * them, although the convolution could do it for the first. */
static void test_relu_gradient(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_conv2d_opts opts = {.out = 4, .kernel = 3, .pad = 1};
    lk_node x = lk_relu(g, lk_batchnorm2d(g, lk_conv2d(g, lk_input(g, 4, 6, 6), "conv1", opts), "bn1"));
    finish(g, lk_relu6(g, lk_batchnorm2d(g, lk_conv2d(g, x, "conv2", opts), "bn2")));
    fuse(fx, 1, 0);
    const lk_fuse_choice *of = fx->choices;
    assert_true(of[2].relu && !of[2].six && of[2].relu_grad && of[3].backward_elsewhere && !of[4].mask);
    assert_true(of[5].relu && of[5].six && of[5].relu_grad && of[6].backward_elsewhere && of[6].forward == -1);
    assert_true(of[2].grad == of[3].grad && of[5].grad == of[6].grad);
    fuse(fx, 3, 0);
    assert_true(of[3].forward == 3 && of[3].backward_elsewhere && of[4].mask);
    fuse(fx, 1, 3);
    assert_false(of[2].relu || of[2].relu_grad);
}

/* 0 input, 1 conv, 2 ReLU6, 3 conv. A convolution does not apply a ReLU6 or its gradient. */
static void test_relu6_apart(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_conv2d_opts opts = {.out = 4, .kernel = 3, .pad = 1};
    finish(g, lk_conv2d(g, lk_relu6(g, lk_conv2d(g, lk_input(g, 4, 6, 6), "conv1", opts)), "conv2", opts));
    fuse(fx, 1, 0);
    const lk_fuse_choice *of = fx->choices;
    assert_true(!of[1].relu && of[2].forward == 2 && !of[2].backward_elsewhere && !of[3].mask);
}

/* 0 input, 1 conv, 2 bn, 3 add, 4 ReLU, 5 conv, 6 bn, 7 add. The ReLU has two consumers: its gradient is computed
 * where 5, whose backward runs last, adds its dx. */
static void test_relu_of_two(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_conv2d_opts opts = {.out = 4, .kernel = 3, .pad = 1};
    lk_node x = residual(g, false);
    finish(g, lk_add(g, lk_batchnorm2d(g, lk_conv2d(g, x, "conv2", opts), "bn2"), x));
    fuse(fx, 1, 0);
    const lk_fuse_choice *of = fx->choices;
    assert_true(of[2].relu && !of[2].relu_grad);
    assert_true(of[4].backward_elsewhere && of[5].mask_sum && !of[5].mask);
    assert_true(of[2].rest == 5 && of[5].sum_elsewhere && of[6].rest == -1);
    fuse(fx, 3, 0);
    assert_true(of[5].mask_sum && !of[5].sum_elsewhere); /* 2 is in another stage */
    fuse(fx, 1, 5);
    assert_false(of[4].backward_elsewhere);
    assert_int_equal(of[2].rest, -1);
}

/* The sum of x and of what a convolution and batch normalisation make of it. */
static lk_node block(lk_graph *g, lk_node x)
{
    lk_conv2d_opts opts = {.out = 4, .kernel = 3, .pad = 1};
    return lk_add(g, lk_batchnorm2d(g, lk_conv2d(g, x, "last", opts), "bn_last"), x);
}

/* 0 input, 1 conv, 2 bn, 3 conv, 4 bn, 5 add, 6 ReLU, 7 conv. Both 2 and 4 read the gradient of 6; 4 is the first and
 * completes it. */
static void test_rest_of_two(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_conv2d_opts opts = {.out = 4, .kernel = 3, .pad = 1};
    lk_node x = lk_input(g, 4, 6, 6);
    lk_node a = lk_batchnorm2d(g, lk_conv2d(g, x, "conv1", opts), "bn1");
    lk_node b = lk_batchnorm2d(g, lk_conv2d(g, x, "conv2", opts), "bn2");
    finish(g, block(g, lk_relu(g, lk_add(g, a, b))));
    fuse(fx, 1, 0);
    const lk_fuse_choice *of = fx->choices;
    assert_true(of[2].grad == of[6].grad && of[4].grad == of[6].grad);
    assert_true(of[7].mask_sum && of[7].sum_elsewhere && of[4].rest == 7 && of[2].rest == -1);
    assert_int_equal(of[4].signs, -1);
    fx->signs = true;
    fuse(fx, 1, 0);
    assert_true(of[4].rest == 7 && of[4].signs == 2 && of[2].signs == -1); /* 2 does the addition */
    fx->kept[2] = true;
    fuse(fx, 1, 0);
    assert_true(of[4].rest == 7 && of[4].signs == 4);
    fx->kept[4] = true;
    fuse(fx, 1, 0);
    assert_true(of[4].rest == 7 && of[4].signs == -1); /* the addition is a layer of its own */
}

/* 0 input, 1 conv, 2 bn, 3 conv, 4 add, 5 ReLU, 6 conv. The convolution 3 reads the gradient before 2. */
static void test_rest_read_before(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_conv2d_opts opts = {.out = 4, .kernel = 3, .pad = 1};
    lk_node x = lk_input(g, 4, 6, 6);
    lk_node a = lk_batchnorm2d(g, lk_conv2d(g, x, "conv1", opts), "bn1");
    finish(g, block(g, lk_relu(g, lk_add(g, a, lk_conv2d(g, x, "conv2", opts)))));
    fuse(fx, 1, 0);
    const lk_fuse_choice *of = fx->choices;
    assert_true(of[2].grad == of[5].grad && of[6].mask_sum && !of[6].sum_elsewhere && of[2].rest == -1);
}

/* 0 input, 1 conv, 2 bn, 3 ReLU, 4 conv, 5 bn, 6 add. 2 completes the gradient of the ReLU, as a ResNet's first layers
 * do, and then masks it. */
static void test_rest_before_relu(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_conv2d_opts opts = {.out = 4, .kernel = 3, .pad = 1};
    finish(g, block(g, lk_relu(g, lk_batchnorm2d(g, lk_conv2d(g, lk_input(g, 4, 6, 6), "conv1", opts), "bn1"))));
    fx->signs = true;
    fuse(fx, 1, 0);
    const lk_fuse_choice *of = fx->choices;
    assert_true(of[2].grad == of[3].grad && of[2].relu_grad && !of[4].mask_sum);
    assert_true(of[2].rest == 4 && of[4].sum_elsewhere && of[2].signs == -1 && of[5].rest == -1);
    fuse(fx, 4, 0);
    assert_false(of[4].sum_elsewhere); /* the gradient of the input is not wanted */
    fuse(fx, 3, 0);
    assert_false(of[4].sum_elsewhere); /* 2 is in another stage */
}

/* 0 input, 1 conv, 2 bn, 3 conv, 4 bn, 5 add, 6 conv, 7 bn, 8 add. 4 completes the gradient of an addition without a
 * ReLU, as in MobileNetV2; 2, that of its own result. */
static void test_rest_of_sum(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_conv2d_opts opts = {.out = 4, .kernel = 3, .pad = 1};
    lk_node x = lk_batchnorm2d(g, lk_conv2d(g, lk_input(g, 4, 6, 6), "conv1", opts), "bn1");
    finish(g, block(g, lk_add(g, lk_batchnorm2d(g, lk_conv2d(g, x, "conv2", opts), "bn2"), x)));
    fuse(fx, 1, 0);
    const lk_fuse_choice *of = fx->choices;
    assert_true(of[4].grad == of[5].grad && of[4].rest == 6 && of[6].sum_elsewhere);
    assert_true(of[2].rest == 3 && of[3].sum_elsewhere && of[7].rest == -1);
}

/* 0 input, 1 conv, 2 bn, 3 ReLU, 4 max pooling, 5 conv. The gradients of 4 are added before its backward pass, which
 * does not sum. */
static void test_rest_before_pooling(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_conv2d_opts opts = {.out = 4, .kernel = 3, .pad = 1};
    lk_node x = lk_batchnorm2d(g, lk_conv2d(g, lk_input(g, 4, 6, 6), "conv1", opts), "bn1");
    finish(g, block(g, lk_maxpool2d(g, lk_relu(g, x), (lk_maxpool2d_opts){.kernel = 2, .stride = 2})));
    fuse(fx, 1, 0);
    assert_false(fx->choices[5].sum_elsewhere);
    assert_int_equal(fx->choices[2].rest, -1);
}

/* 0 input, 1 conv, 2 bn, 3 ReLU, 4 conv, 5 bn, 6 add, 7 ReLU, 8 conv. The addition copies the gradient. */
static void test_rest_copied(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_conv2d_opts opts = {.out = 4, .kernel = 3, .pad = 1};
    lk_node x = lk_input(g, 4, 6, 6);
    lk_node a = lk_relu(g, lk_batchnorm2d(g, lk_conv2d(g, x, "conv1", opts), "bn1"));
    lk_node b = lk_batchnorm2d(g, lk_conv2d(g, x, "conv2", opts), "bn2");
    finish(g, block(g, lk_relu(g, lk_add(g, a, b))));
    fuse(fx, 1, 0);
    const lk_fuse_choice *of = fx->choices;
    assert_true(of[3].grad != of[5].grad && of[8].mask_sum && !of[8].sum_elsewhere);
    assert_true(of[2].rest == -1 && of[5].rest == -1);
}

/* 0 input, 1 conv, 2 ReLU, 3 bn, 4 add. The last layer that adds to the gradient of the ReLU cannot mask the sum. */
static void test_relu_of_two_apart(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_conv2d_opts opts = {.out = 4, .kernel = 3, .pad = 1};
    lk_node x = lk_relu(g, lk_conv2d(g, lk_input(g, 4, 6, 6), "conv", opts));
    finish(g, lk_add(g, lk_batchnorm2d(g, x, "bn"), x));
    fuse(fx, 1, 0);
    assert_false(fx->choices[2].backward_elsewhere || fx->choices[3].mask_sum);
}

/* 0 input, 1 flatten, 2 linear. One channel is in flatten's order already, several are not. */
static void test_flatten(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_cross_entropy(g, lk_linear(g, lk_flatten(g, lk_input(g, 1, 6, 6)), "fc", 3));
    fuse(fx, 1, 0);
    assert_true(fx->choices[1].view && fx->choices[1].value == INPUT);
}

static void test_flatten_channels(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_cross_entropy(g, lk_linear(g, lk_flatten(g, lk_input(g, 2, 6, 6)), "fc", 3));
    fuse(fx, 1, 0);
    assert_false(fx->choices[1].view);
}

TEST_MAIN(NULL, NULL, CASE(test_addition), CASE(test_second_input), CASE(test_padded), CASE(test_apart),
          CASE(test_other_stage), CASE(test_shared_gradient), CASE(test_gradient_of_its_own), CASE(test_dropout),
          CASE(test_dropout_apart), CASE(test_dropout_between_linear_layers), CASE(test_dropout_of_relu_apart),
          CASE(test_dropout_of_shared_relu), CASE(test_kept), CASE(test_relu_gradient), CASE(test_relu6_apart),
          CASE(test_relu_of_two), CASE(test_relu_of_two_apart), CASE(test_rest_of_two), CASE(test_rest_read_before),
          CASE(test_rest_copied), CASE(test_rest_before_relu), CASE(test_rest_of_sum), CASE(test_rest_before_pooling),
          CASE(test_flatten), CASE(test_flatten_channels))
