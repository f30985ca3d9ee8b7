/* test_fuse_pool.c - which max poolings are computed by the batch normalisation before them, on small graphs. */
#include "nn/fused.h"

/* 0 input, 1 conv, 2 bn, 3 ReLU, 4 max pooling, 5 dropout. */
static void pooled(lk_graph *g, size_t kernel, bool shared)
{
    lk_node x = lk_conv2d(g, lk_input(g, 4, 6, 6), "conv", (lk_conv2d_opts){.out = 4, .kernel = 3, .pad = 1});
    lk_node bn = lk_relu(g, lk_batchnorm2d(g, x, "bn"));
    x = lk_dropout(g, lk_maxpool2d(g, bn, (lk_maxpool2d_opts){.kernel = kernel, .stride = 2}), 0.5);
    finish(g, shared ? lk_concat(g, x, lk_avgpool2d(g, bn, (lk_avgpool2d_opts){.kernel = 2})) : x);
}

static void assert_pooled(const fixture *fx, bool by_bn)
{
    const lk_fuse_choice *of = fx->choices;
    assert_true((of[2].pool == 4) == by_bn && (of[3].pool == 4) == by_bn && of[4].pool == -1);
    assert_true(of[4].forward == (by_bn ? 2 : 4) && of[4].value == (by_bn ? 2 : 4));
    assert_true((of[2].grad == of[4].grad) == by_bn && of[4].backward_elsewhere == by_bn);
    /* A dropout after such a pooling is a layer of its own; otherwise the pooling does it. */
    assert_true(of[4].dropout == (by_bn ? -1 : 5) && of[5].forward == (by_bn ? 5 : -1));
    assert_true(of[5].backward_elsewhere != by_bn && of[5].value == of[4].value && of[4].grad == of[5].grad);
}

/* The normalisation computes the pooling at the pooling's time; its value and gradient are the pooling's. */
static void test_pooling(void **state)
{
    fixture *fx = *state;
    pooled(fx->graph, 2, false);
    fx->pools = true;
    fuse(fx, 1, 0);
    const lk_fuse_choice *of = fx->choices;
    assert_pooled(fx, true);
    assert_true(of[2].forward == -1 && of[2].value == 2 && of[2].relu && of[2].relu_grad);
    assert_true(of[3].forward == -1 && of[3].value == 2 && of[3].backward_elsewhere && of[3].grad == of[4].grad);
    fx->kept[4] = true;
    fuse(fx, 1, 0);
    assert_true(of[2].pool == 4 && of[4].forward == 2 && of[5].forward == 5 && of[5].value == 5);
}

/* Where one of the layers is in another stage or is kept, or the device cannot do it, the pooling is apart. */
static void test_pooling_apart(void **state)
{
    fixture *fx = *state;
    pooled(fx->graph, 2, false);
    fuse(fx, 1, 0);
    assert_pooled(fx, false);
    fx->pools = true;
    fuse(fx, 3, 0);
    assert_true(fx->choices[4].forward == 4 && fx->choices[4].dropout == 5);
    fuse(fx, 4, 0);
    assert_int_equal(fx->choices[4].forward, 4);
    fuse(fx, 1, 4);
    assert_true(fx->choices[2].pool == -1 && fx->choices[2].relu);
    for (int i = 2; i <= 3; i++) {
        memset(fx->kept, 0, sizeof fx->kept);
        fx->kept[i] = true;
        fuse(fx, 1, 0);
        assert_pooled(fx, false);
    }
}

static void test_pooling_of_other_windows(void **state)
{
    fixture *fx = *state;
    pooled(fx->graph, 3, false);
    fx->pools = true;
    fuse(fx, 1, 0);
    assert_pooled(fx, false);
}

static void test_pooling_of_shared_relu(void **state)
{
    fixture *fx = *state;
    pooled(fx->graph, 2, true);
    fx->pools = true;
    fuse(fx, 1, 0);
    assert_true(fx->choices[2].pool == -1 && fx->choices[4].forward == 4 && fx->choices[4].dropout == 5);
}

/* 0 input, 1 conv, 2 bn, 3 max pooling, 4 ReLU, 5 bn, 6 ReLU6, 7 max pooling, 8 bn, 9 add, 10 ReLU, 11 max pooling: a
 * pooling without a ReLU before it, after a ReLU6, and after an addition. 5 and 8 read what others read, too. */
static void test_pooling_of_others(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_maxpool2d_opts pool = {.kernel = 2};
    lk_node x = lk_conv2d(g, lk_input(g, 4, 8, 8), "conv", (lk_conv2d_opts){.out = 4, .kernel = 3, .pad = 1});
    x = lk_relu(g, lk_maxpool2d(g, lk_batchnorm2d(g, x, "bn1"), pool));
    x = lk_maxpool2d(g, lk_relu6(g, lk_batchnorm2d(g, x, "bn2")), pool);
    x = lk_relu(g, lk_add(g, lk_batchnorm2d(g, x, "bn3"), x));
    finish(g, lk_maxpool2d(g, x, pool));
    fx->pools = true;
    fuse(fx, 1, 0);
    const lk_fuse_choice *of = fx->choices;
    assert_true(of[2].pool == 3 && !of[2].relu && of[3].forward == 2 && of[3].grad == of[2].grad);
    assert_true(of[4].forward == 4 && of[4].value == 2 && of[4].grad == of[2].grad);
    assert_true(of[5].pool == -1 && of[5].six && of[7].forward == 7);
    assert_true(of[8].pool == -1 && of[10].pool == -1 && of[9].forward == 8 && of[11].forward == 11);
}

/* 0 input, 1 conv, 2 bn, 3 max pooling, 4 conv. 2 adds its dx to that of 4, or the other way round. */
static void test_pooling_of_shared_input(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_conv2d_opts opts = {.out = 4, .kernel = 3, .pad = 1};
    lk_node x = lk_conv2d(g, lk_input(g, 4, 6, 6), "conv1", opts);
    lk_node a = lk_maxpool2d(g, lk_batchnorm2d(g, x, "bn"), (lk_maxpool2d_opts){.kernel = 2});
    opts.stride = 2;
    finish(g, lk_add(g, a, lk_conv2d(g, x, "conv2", opts)));
    fx->pools = true;
    fuse(fx, 1, 0);
    assert_true(fx->choices[2].pool == -1 && fx->choices[3].forward == 3);
}

/* 0 input, 1 conv, 2 bn, 3 conv, 4 conv, 5 max pooling, 6 add, 7 add. The gradients of 5 and 3 begin as that of 6.
 * Where 2 reads that of 5, 4 has added to that of 3 before, so 3 needs memory of its own. */
static void test_pooling_in_a_sum(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_conv2d_opts same = {.out = 4, .kernel = 3, .pad = 1}, half = {.out = 4, .kernel = 3, .pad = 1, .stride = 2};
    lk_node image = lk_input(g, 4, 6, 6), bn = lk_batchnorm2d(g, lk_conv2d(g, image, "conv1", same), "bn");
    lk_node third = lk_conv2d(g, image, "conv2", half), fourth = lk_conv2d(g, third, "conv3", same);
    lk_node pool = lk_maxpool2d(g, bn, (lk_maxpool2d_opts){.kernel = 2});
    finish(g, lk_add(g, lk_add(g, pool, third), fourth));
    const lk_fuse_choice *of = fx->choices;
    fuse(fx, 1, 0);
    assert_true(of[5].forward == 5 && of[5].grad == 7 && of[3].grad == 7);
    fx->pools = true;
    fuse(fx, 1, 0);
    assert_true(of[5].forward == 2 && of[5].grad == 7 && of[2].grad == 7 && of[3].grad == 3);
}

/* 0 input, 1 conv, 2 bn, 3 ReLU, 4 max pooling, 5 conv, 6 bn, 7 add. 2 does not add up the pooling's gradient. */
static void test_rest_of_pooling(void **state)
{
    fixture *fx = *state;
    lk_graph *g = fx->graph;
    lk_conv2d_opts opts = {.out = 4, .kernel = 3, .pad = 1};
    lk_node x = lk_relu(g, lk_batchnorm2d(g, lk_conv2d(g, lk_input(g, 4, 1, 1), "conv1", opts), "bn1"));
    x = lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 2, .ceil = true});
    finish(g, lk_add(g, lk_batchnorm2d(g, lk_conv2d(g, x, "conv2", opts), "bn2"), x));
    fx->pools = true;
    fuse(fx, 1, 0);
    const lk_fuse_choice *of = fx->choices;
    assert_true(of[4].forward == 2 && of[2].rest == -1 && !of[5].sum_elsewhere && of[2].grad == of[4].grad);
}

TEST_MAIN(NULL, NULL, CASE(test_pooling), CASE(test_pooling_apart), CASE(test_pooling_of_other_windows),
          CASE(test_pooling_of_shared_relu), CASE(test_pooling_of_others), CASE(test_pooling_of_shared_input),
          CASE(test_pooling_in_a_sum), CASE(test_rest_of_pooling))
