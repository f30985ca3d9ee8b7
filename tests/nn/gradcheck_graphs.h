/* gradcheck_graphs.h - the graphs of test_gradcheck.c: each function adds one op, or a few, and a loss to an input. */
#ifndef LK_TESTS_NN_GRADCHECK_GRAPHS_H
#define LK_TESTS_NN_GRADCHECK_GRAPHS_H

#include "golden/golden.h"
#include "own_ops.h"

/* The input of most graphs. */
static const lk_model_shape wide = {.channels = 2, .height = 6, .width = 6, .classes = 4};

static void head(lk_graph *g, lk_node x)
{
    lk_cross_entropy(g, lk_linear(g, lk_flatten(g, x), "fc", wide.classes));
}

static void build_conv2d(lk_graph *g, lk_node x)
{
    x = lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 3, .kernel = 3, .pad = 1});
    head(g, lk_conv2d(g, x, "conv2", (lk_conv2d_opts){.out = 4, .kernel = 3, .stride = 2}));
}

/* Two groups, then one channel in each group, then two outputs for each channel. */
static void build_conv2d_groups(lk_graph *g, lk_node x)
{
    x = lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 4, .kernel = 3, .pad = 1, .groups = 2});
    x = lk_conv2d(g, x, "conv2", (lk_conv2d_opts){.out = 4, .kernel = 3, .stride = 2, .pad = 1, .groups = 4});
    head(g, lk_conv2d(g, x, "conv3", (lk_conv2d_opts){.out = 8, .kernel = 3, .pad = 1, .groups = 4}));
}

/* Rectangular, then dilated with strides, then the same with one channel in each group. */
static void build_conv2d_windows(lk_graph *g, lk_node x)
{
    lk_conv2d_opts dilated = {.out = 4, .kernel = 2, .kernel_w = 3, .stride_w = 2, .pad = 1, .dilation = 2};
    dilated.pad_w = 3;
    dilated.dilation_w = 3;
    x = lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 3, .kernel = 1, .kernel_w = 5, .pad_w = 2});
    x = lk_conv2d(g, x, "conv2", dilated);
    dilated.groups = 4;
    head(g, lk_conv2d(g, x, "conv3", dilated));
}

static void build_linear(lk_graph *g, lk_node x)
{
    x = lk_linear(g, lk_linear(g, lk_flatten(g, x), "fc1", 7), "fc2", 5);
    lk_cross_entropy(g, lk_linear(g, x, "fc3", wide.classes));
}

static void build_nll(lk_graph *g, lk_node x)
{
    x = lk_linear(g, lk_flatten(g, x), "fc", wide.classes);
    lk_nll_loss(g, lk_log_softmax(g, x));
}

/* Log-probabilities as scores: the gradient that reaches log_softmax is not that of nll_loss. */
static void build_log_softmax(lk_graph *g, lk_node x)
{
    x = lk_log_softmax(g, lk_linear(g, lk_flatten(g, x), "fc1", 7));
    lk_cross_entropy(g, lk_linear(g, x, "fc2", wide.classes));
}

static void build_batchnorm(lk_graph *g, lk_node x)
{
    x = lk_conv2d(g, x, "large1", (lk_conv2d_opts){.out = 3, .kernel = 3, .no_bias = true});
    head(g, lk_batchnorm2d(g, x, "bn1"));
}

static void build_relu(lk_graph *g, lk_node x)
{
    x = lk_relu(g, lk_conv2d(g, x, "shift1", (lk_conv2d_opts){.out = 4, .kernel = 3}));
    x = lk_relu(g, lk_linear(g, lk_flatten(g, x), "shift2", 8));
    lk_cross_entropy(g, lk_linear(g, x, "fc", wide.classes));
}

/* Inputs below 0 and on the slope; inputs on the slope and above 6; and a third addend that brings the sum
 * to the size of other activations. */
static void build_relu6(lk_graph *g, lk_node x)
{
    lk_conv2d_opts conv = {.out = 4, .kernel = 3};
    lk_node low = lk_relu6(g, lk_conv2d(g, x, "shift1", conv));
    lk_node high = lk_relu6(g, lk_conv2d(g, x, "six1", conv));
    head(g, lk_add(g, lk_add(g, low, high), lk_conv2d(g, x, "minus1", conv)));
}

static void build_leaky_relu(lk_graph *g, lk_node x)
{
    x = lk_leaky_relu(g, lk_conv2d(g, x, "shift1", (lk_conv2d_opts){.out = 4, .kernel = 3}), 0.25);
    x = lk_leaky_relu(g, lk_linear(g, lk_flatten(g, x), "shift2", 8), 0);
    lk_cross_entropy(g, lk_linear(g, x, "fc", wide.classes));
}

/* A function of each element between a convolution and the head. */
static void build_function(lk_graph *g, lk_node x, lk_node (*function)(lk_graph *graph, lk_node x))
{
    head(g, function(g, lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 4, .kernel = 3})));
}

static void build_sigmoid(lk_graph *g, lk_node x)
{
    build_function(g, x, lk_sigmoid);
}

static void build_tanh(lk_graph *g, lk_node x)
{
    build_function(g, x, lk_tanh);
}

static void build_silu(lk_graph *g, lk_node x)
{
    build_function(g, x, lk_silu);
}

static void build_gelu(lk_graph *g, lk_node x)
{
    build_function(g, x, lk_gelu);
}

static void build_gelu_tanh(lk_graph *g, lk_node x)
{
    build_function(g, x, lk_gelu_tanh);
}

/* Two factors, one of which has another reader; then a square. */
static void build_mul(lk_graph *g, lk_node x)
{
    lk_conv2d_opts conv = {.out = 4, .kernel = 3};
    lk_node a = lk_conv2d(g, x, "conv1", conv), b = lk_sigmoid(g, lk_conv2d(g, x, "conv2", conv));
    lk_node y = lk_add(g, lk_mul(g, a, b), a);
    head(g, lk_mul(g, y, y));
}

static void build_maxpool(lk_graph *g, lk_node x)
{
    x = lk_conv2d(g, x, "pooled", (lk_conv2d_opts){.out = 4, .kernel = 1});
    head(g, lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 2}));
}

static void build_maxpool_overlap(lk_graph *g, lk_node x)
{
    x = lk_conv2d(g, x, "pooled", (lk_conv2d_opts){.out = 4, .kernel = 1});
    head(g, lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 3, .stride = 2, .pad = 1}));
}

static void build_maxpool_windows(lk_graph *g, lk_node x)
{
    lk_maxpool2d_opts opts = {.kernel = 2, .kernel_w = 3, .stride = 2, .stride_w = 1, .pad_w = 1, .dilation = 3};
    opts.dilation_w = 2;
    opts.ceil = true;
    x = lk_conv2d(g, x, "pooled", (lk_conv2d_opts){.out = 4, .kernel = 1});
    head(g, lk_maxpool2d(g, x, opts));
}

static void build_global_avgpool(lk_graph *g, lk_node x)
{
    x = lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 5, .kernel = 3});
    head(g, lk_global_avgpool(g, x));
}

/* 5x5 pixels: the last windows reach beyond the edge. */
static void build_global_maxpool(lk_graph *g, lk_node x)
{
    x = lk_conv2d(g, x, "pooled", (lk_conv2d_opts){.out = 6, .kernel = 1});
    head(g, lk_global_maxpool(g, x));
}

/* Softmax over the channels of each pixel. */
static void build_softmax(lk_graph *g, lk_node x)
{
    x = lk_softmax(g, lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 5, .kernel = 3, .stride = 2}));
    head(g, x);
}

/* The first node has two readers. */
static void build_concat(lk_graph *g, lk_node x)
{
    lk_node a = lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 3, .kernel = 3});
    lk_node b = lk_conv2d(g, a, "conv2", (lk_conv2d_opts){.out = 2, .kernel = 3, .pad = 1});
    head(g, lk_concat(g, a, b));
}

static void build_groupnorm(lk_graph *g, lk_node x)
{
    x = lk_conv2d(g, x, "large1", (lk_conv2d_opts){.out = 6, .kernel = 3, .no_bias = true});
    head(g, lk_groupnorm(g, x, "norm", 2));
}

static void build_layernorm(lk_graph *g, lk_node x)
{
    x = lk_conv2d(g, x, "large1", (lk_conv2d_opts){.out = 6, .kernel = 3, .stride = 2, .no_bias = true});
    head(g, lk_layernorm(g, x, "norm"));
}

/* Linear layers of the vectors of a sequence, with a ReLU after one of them. */
static void build_linear_sequence(lk_graph *g, lk_node x)
{
    x = lk_reshape(g, lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 5, .kernel = 2, .stride = 2}), 1, 9, 5);
    x = lk_relu(g, lk_linear(g, x, "shift2", 6));
    head(g, lk_linear(g, x, "fc2", 3));
}

/* Attention with two heads over 9 pixels. A bias of the keys would change nothing. */
static void build_attention(lk_graph *g, lk_node x)
{
    static const char *const names[] = {"conv1", "conv2", "conv3"};
    lk_node part[3];
    for (int i = 0; i < 3; i++) {
        part[i] = lk_conv2d(g, x, names[i], (lk_conv2d_opts){.out = 4, .kernel = 2, .stride = 2, .no_bias = i == 1});
        part[i] = lk_transpose(g, lk_reshape(g, part[i], 9, 2, 2), 1, 2);
    }
    x = lk_softmax(g, lk_matmul(g, part[0], lk_transpose(g, part[1], 2, 3)));
    x = lk_transpose(g, lk_matmul(g, x, part[2]), 1, 2);
    head(g, lk_reshape(g, x, 1, 9, 4));
}

/* The mean pixels of an image are the ids. */
static void build_embedding(lk_graph *g, lk_node x)
{
    own_ops_register();
    x = lk_flatten(g, lk_avgpool2d(g, x, (lk_avgpool2d_opts){.kernel = 2}));
    x = lk_embedding(g, lk_op_add(g, "bucket", NULL, &x, 1, NULL, 0), "words", BUCKETS, 3);
    head(g, lk_linear(g, x, "fc2", 3));
}

static void build_own(lk_graph *g, lk_node x)
{
    own_ops_register();
    lk_conv2d_opts conv = {.out = 3, .kernel = 3};
    lk_node a = lk_conv2d(g, x, "large1", conv), b = lk_conv2d(g, x, "large2", conv);
    lk_node inputs[] = {lk_op_add(g, "swish", "swish", &a, 1, NULL, 0), b};
    head(g, lk_op_add(g, "gate", "gate", inputs, 2, NULL, 0));
}

/* With output padding; then in groups and without a bias. */
static void build_conv_transpose2d(lk_graph *g, lk_node x)
{
    x = lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 4, .kernel = 3, .stride = 3});
    x = lk_conv_transpose2d(g, x, "conv2",
                            (lk_conv_transpose2d_opts){.out = 6, .kernel = 3, .stride = 2, .pad = 1, .out_pad = 1});
    head(g, lk_conv_transpose2d(g, x, "conv3",
                                (lk_conv_transpose2d_opts){.out = 2, .kernel = 2, .groups = 2, .no_bias = true}));
}

static void build_transpose_windows(lk_graph *g, lk_node x)
{
    lk_conv_transpose2d_opts up = {.out = 4, .kernel = 2, .kernel_w = 3, .stride = 2, .stride_w = 3, .pad = 1};
    up.pad_w = 2;
    up.out_pad_w = 2;
    up.dilation_w = 2;
    x = lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 4, .kernel = 3, .stride = 3});
    head(g, lk_conv_transpose2d(g, x, "conv2", up));
}

static void build_avgpool(lk_graph *g, lk_node x)
{
    x = lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 4, .kernel = 2});
    head(g, lk_avgpool2d(g, x, (lk_avgpool2d_opts){.kernel = 2, .ceil = true}));
}

static void build_avgpool_windows(lk_graph *g, lk_node x)
{
    lk_avgpool2d_opts opts = {.kernel = 3, .kernel_w = 2, .stride = 2, .stride_w = 3, .pad = 1, .ceil = true};
    opts.pad_w = LK_ZERO_PAD;
    x = lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 4, .kernel = 1});
    head(g, lk_avgpool2d(g, x, opts));
}

static void build_avgpool_overlap(lk_graph *g, lk_node x)
{
    x = lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 4, .kernel = 1});
    head(g, lk_avgpool2d(g, x, (lk_avgpool2d_opts){.kernel = 3, .stride = 2, .pad = 1, .ceil = true}));
}

/* Dropout's random numbers depend on seed, step, sample and element only, so the loss is a smooth function
 * of the parameters. */
static void build_dropout(lk_graph *g, lk_node x)
{
    x = lk_dropout(g, lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 3, .kernel = 3}), 0.25);
    x = lk_dropout(g, lk_linear(g, lk_flatten(g, x), "fc1", 9), 0.5);
    lk_cross_entropy(g, lk_linear(g, x, "fc2", wide.classes));
}

static void build_dropout2d(lk_graph *g, lk_node x)
{
    x = lk_dropout2d(g, lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 6, .kernel = 3}), 0.4);
    head(g, lk_dropout2d(g, lk_conv2d(g, x, "conv2", (lk_conv2d_opts){.out = 5, .kernel = 2}), 0.25));
}

static void build_pad_channels(lk_graph *g, lk_node x)
{
    x = lk_pad_channels(g, lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 3, .kernel = 3}), 5);
    head(g, lk_conv2d(g, x, "conv2", (lk_conv2d_opts){.out = 4, .kernel = 3}));
}

static void build_add(lk_graph *g, lk_node x)
{
    lk_conv2d_opts conv = {.out = 3, .kernel = 3, .pad = 1};
    head(g, lk_add(g, lk_conv2d(g, x, "conv1", conv), lk_conv2d(g, x, "conv2", conv)));
}

/* A node with two readers: its gradient is a sum. */
static void build_residual(lk_graph *g, lk_node x)
{
    lk_conv2d_opts conv = {.out = 4, .kernel = 3, .pad = 1, .no_bias = true};
    x = lk_relu(g, lk_batchnorm2d(g, lk_conv2d(g, x, "large1", conv), "shift1"));
    lk_node y = lk_relu(g, lk_batchnorm2d(g, lk_conv2d(g, x, "large2", conv), "shift2"));
    y = lk_batchnorm2d(g, lk_conv2d(g, y, "large3", conv), "shift3");
    head(g, lk_relu(g, lk_add(g, y, x)));
}

typedef struct block_names {
    const char *bn1, *conv1, *bn2, *conv2, *bn3;
} block_names;

/* A block of PyramidNet. The shortcut of x is pooled if the block has a stride, and padded with channels
 * of zeros. The order of the addends decides whose gradient shares memory with that of the sum: both orders
 * occur. */
static lk_node pyramid_block(lk_graph *g, lk_node x, size_t in, size_t stride, const block_names *names)
{
    lk_conv2d_opts conv = {.out = in + 2, .kernel = 3, .stride = stride, .pad = 1, .no_bias = true};
    lk_node y = lk_conv2d(g, lk_batchnorm2d(g, x, names->bn1), names->conv1, conv);
    y = lk_relu(g, lk_batchnorm2d(g, y, names->bn2));
    conv.stride = 1;
    y = lk_batchnorm2d(g, lk_conv2d(g, y, names->conv2, conv), names->bn3);
    if (stride == 1)
        return lk_add(g, y, lk_pad_channels(g, x, in + 2));
    x = lk_avgpool2d(g, x, (lk_avgpool2d_opts){.kernel = stride, .ceil = true});
    return lk_add(g, lk_pad_channels(g, x, in + 2), y);
}

/* The number of pixels stays odd (5x5) up to the pooling. */
static void build_pyramid(lk_graph *g, lk_node x)
{
    static const block_names first = {"bn1", "large2", "shift2", "large3", "bn3"};
    static const block_names second = {"bn4", "large5", "shift5", "large6", "bn6"};
    x = lk_conv2d(g, x, "large1", (lk_conv2d_opts){.out = 3, .kernel = 2, .no_bias = true});
    x = pyramid_block(g, lk_batchnorm2d(g, x, "bn0"), 3, 1, &first);
    head(g, pyramid_block(g, x, 5, 2, &second));
}

/* Losses after one linear layer. */
static lk_node scores(lk_graph *g, lk_node x)
{
    return lk_linear(g, lk_flatten(g, x), "fc", wide.classes);
}

static void build_mse(lk_graph *g, lk_node x)
{
    lk_mse_loss(g, scores(g, x));
}

static void build_l1(lk_graph *g, lk_node x)
{
    lk_l1_loss(g, scores(g, x));
}

static void build_huber(lk_graph *g, lk_node x)
{
    lk_huber_loss(g, scores(g, x), 8);
}

static void build_huber_far(lk_graph *g, lk_node x)
{
    lk_huber_loss(g, scores(g, x), 0.25);
}

static void build_smooth_l1(lk_graph *g, lk_node x)
{
    lk_smooth_l1_loss(g, scores(g, x), 8);
}

static void build_smooth_l1_far(lk_graph *g, lk_node x)
{
    lk_smooth_l1_loss(g, scores(g, x), 0.25);
}

static const float class_weights[] = {1, 0.5f, 3, 2};

static void build_bce(lk_graph *g, lk_node x)
{
    lk_weigh_classes(g, lk_bce_with_logits_loss(g, scores(g, x)), class_weights, wide.classes);
}

static void build_soft(lk_graph *g, lk_node x)
{
    lk_weigh_classes(g, lk_soft_cross_entropy(g, scores(g, x)), class_weights, wide.classes);
}

static void build_weighted(lk_graph *g, lk_node x)
{
    lk_weigh_classes(g, lk_cross_entropy(g, scores(g, x)), class_weights, wide.classes);
}

/* From log-probabilities that another layer reads, too: the loss cannot compute them itself. */
static void build_weighted_nll(lk_graph *g, lk_node x)
{
    x = lk_log_softmax(g, scores(g, x));
    lk_weigh_classes(g, lk_nll_loss(g, lk_add(g, x, x)), class_weights, wide.classes);
}

#endif
