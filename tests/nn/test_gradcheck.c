/* test_gradcheck.c - the gradients of every op against finite differences of the loss.
 *
 * The derivative is (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h. Its error has two parts:
 *   rounding: 18/12 * d / h, where d is the rounding error of the float32 loss: 2^-20 for a loss near 2,
 *     sixteen units in its last place;
 *   truncation: h^4 / 30 * f''''', which is smaller for the losses here.
 * With h = 2^-5 the sum is below 2 * 4.6e-5, which gives TOLERANCE. Gradients must be much larger than
 * TOLERANCE, which the test checks.
 *
 * The inputs avoid the kinks of ReLU, ReLU6 and max pooling: they are shifted to the middle of a slope or
 * beyond its end, and pooled values are monotone in well separated pixels. */
#include "golden/golden.h"
#include "own_ops.h"

#define H 0x1p-5f
#define TOLERANCE 1e-4
#define SHIFT 2.0f

enum { BATCH = 6, MAX_ELEMENTS = 24 };

static const lk_model_shape wide = {.channels = 2, .height = 6, .width = 6, .classes = 4};
static const lk_model_shape narrow = {.channels = 1, .height = 6, .width = 6, .classes = 4};

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

typedef struct grad_case {
    const char *name;
    void (*build)(lk_graph *graph, lk_node x);
    const lk_model_shape *shape;
    lk_bn_mode bn;
    double label_smoothing;
    float target;  /* the loss learns float targets: this number plus up to 1. 0: it learns labels */
    bool weighted; /* the samples have weights */
} grad_case;

static const grad_case cases[] = {
    {"conv2d", build_conv2d, &wide, .bn = LK_BN_MODE_BATCH},
    {"conv2d in groups", build_conv2d_groups, &wide, .bn = LK_BN_MODE_BATCH},
    {"conv2d, not square", build_conv2d_windows, &wide, .bn = LK_BN_MODE_BATCH},
    {"linear", build_linear, &wide, .bn = LK_BN_MODE_BATCH},
    {"nll", build_nll, &wide, .bn = LK_BN_MODE_BATCH},
    {"nll, smoothed labels", build_nll, &wide, .bn = LK_BN_MODE_BATCH, .label_smoothing = 0.3},
    {"cross entropy, smoothed labels", build_linear, &wide, .bn = LK_BN_MODE_BATCH, .label_smoothing = 0.3},
    {"mse", build_mse, &wide, .target = 0.25f},
    {"mse, weighted", build_mse, &wide, .target = 0.25f, .weighted = true},
    {"l1", build_l1, &wide, .target = 4},
    {"huber", build_huber, &wide, .target = 0.25f},
    {"huber, far", build_huber_far, &wide, .target = 4},
    {"smooth_l1", build_smooth_l1, &wide, .target = 4},
    {"smooth_l1, far", build_smooth_l1_far, &wide, .target = 4, .weighted = true},
    {"bce", build_bce, &wide, .target = 0.125f},
    {"soft targets", build_soft, &wide, .target = 0.125f, .label_smoothing = 0.3},
    {"weighted classes", build_weighted, &wide, .label_smoothing = 0.3, .weighted = true},
    {"weighted classes, nll", build_weighted_nll, &wide, .weighted = true},
    {"log_softmax", build_log_softmax, &wide, .bn = LK_BN_MODE_BATCH},
    {"batchnorm", build_batchnorm, &wide, .bn = LK_BN_MODE_BATCH},
    {"batchnorm, shard by shard", build_batchnorm, &wide, .bn = LK_BN_MODE_SHARD},
    {"relu", build_relu, &wide, .bn = LK_BN_MODE_BATCH},
    {"relu6", build_relu6, &wide, .bn = LK_BN_MODE_BATCH},
    {"leaky_relu", build_leaky_relu, &wide, .bn = LK_BN_MODE_BATCH},
    {"sigmoid", build_sigmoid, &wide, .bn = LK_BN_MODE_BATCH},
    {"tanh", build_tanh, &wide, .bn = LK_BN_MODE_BATCH},
    {"silu", build_silu, &wide, .bn = LK_BN_MODE_BATCH},
    {"gelu", build_gelu, &wide, .bn = LK_BN_MODE_BATCH},
    {"gelu_tanh", build_gelu_tanh, &wide, .bn = LK_BN_MODE_BATCH},
    {"mul", build_mul, &wide, .bn = LK_BN_MODE_BATCH},
    {"maxpool", build_maxpool, &narrow, .bn = LK_BN_MODE_BATCH},
    {"maxpool, overlapping", build_maxpool_overlap, &narrow, .bn = LK_BN_MODE_BATCH},
    {"maxpool, not square", build_maxpool_windows, &narrow, .bn = LK_BN_MODE_BATCH},
    {"global_avgpool", build_global_avgpool, &wide, .bn = LK_BN_MODE_BATCH},
    {"global_maxpool", build_global_maxpool, &narrow, .bn = LK_BN_MODE_BATCH},
    {"softmax", build_softmax, &wide, .bn = LK_BN_MODE_BATCH},
    {"concat", build_concat, &wide, .bn = LK_BN_MODE_BATCH},
    {"groupnorm", build_groupnorm, &wide, .bn = LK_BN_MODE_BATCH},
    {"layernorm", build_layernorm, &wide, .bn = LK_BN_MODE_BATCH},
    {"linear of a sequence", build_linear_sequence, &wide, .bn = LK_BN_MODE_BATCH},
    {"attention", build_attention, &wide, .bn = LK_BN_MODE_BATCH},
    {"embedding", build_embedding, &wide, .bn = LK_BN_MODE_BATCH},
    {"ops of the program", build_own, &wide, .bn = LK_BN_MODE_BATCH},
    {"conv_transpose2d", build_conv_transpose2d, &wide, .bn = LK_BN_MODE_BATCH},
    {"conv_transpose2d, not square", build_transpose_windows, &wide, .bn = LK_BN_MODE_BATCH},
    {"avgpool", build_avgpool, &wide, .bn = LK_BN_MODE_BATCH},
    {"avgpool, overlapping", build_avgpool_overlap, &wide, .bn = LK_BN_MODE_BATCH},
    {"avgpool, not square", build_avgpool_windows, &wide, .bn = LK_BN_MODE_BATCH},
    {"dropout", build_dropout, &wide, .bn = LK_BN_MODE_BATCH},
    {"dropout2d", build_dropout2d, &wide, .bn = LK_BN_MODE_BATCH},
    {"pad_channels", build_pad_channels, &wide, .bn = LK_BN_MODE_BATCH},
    {"add", build_add, &wide, .bn = LK_BN_MODE_BATCH},
    {"residual", build_residual, &wide, .bn = LK_BN_MODE_BATCH},
    {"residual, shard by shard", build_residual, &wide, .bn = LK_BN_MODE_SHARD},
    {"pyramid", build_pyramid, &wide, .bn = LK_BN_MODE_BATCH},
    {"pyramid, shard by shard", build_pyramid, &wide, .bn = LK_BN_MODE_SHARD},
};

/* The pixels of a sample are a permutation of evenly spaced values, so no two are close. */
static golden_batch make_batch(lk_model_shape shape)
{
    size_t sample = shape.channels * shape.height * shape.width;
    golden_batch batch = golden_batch_make(BATCH, shape);
    for (size_t i = 0; i < BATCH * sample; i++)
        batch.x[i] = (float)((i % sample * 23 + i / sample * 11) % sample) * 2.0f / (float)sample - 1.0f;
    for (size_t i = 0; i < BATCH; i++)
        batch.labels[i] = golden_label("gradcheck", i, (uint32_t)shape.classes);
    return batch;
}

static void give_targets(float least, float *targets, lk_batch *batch)
{
    for (size_t i = 0; i < BATCH * wide.classes; i++)
        targets[i] = least + (float)(i * 5 % 16) / 32;
    batch->targets = targets;
    batch->target_floats = wide.classes;
}

static bool starts(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* Values at which gradients are checked: value * scale + middle, plus and minus shift in turn.
 * - A bias before a ReLU shifts every second channel up and the others down. The scale of a BatchNorm there
 *   keeps the signal within that shift.
 * - A bias before a ReLU6 may shift to 3, on the slope, and to 8, above it.
 * - The curvature of BatchNorm depends on the size of its input, so weights before it are large against h.
 * - Weights before a pooling are not near 0, where the order of pixels changes. */
static const struct {
    const char *start, *end;
    int ndim;
    float scale, middle, shift;
} adjustments[] = {
    {.start = "shift", .end = ".bias", .ndim = 1, .scale = 0.0f, .middle = 0.0f, .shift = SHIFT},
    {.start = "shift", .end = ".weight", .ndim = 1, .scale = 0.25f, .middle = 0.0f, .shift = 0.0f},
    {.start = "six", .end = ".bias", .ndim = 1, .scale = 0.0f, .middle = 5.5f, .shift = -2.5f},
    {.start = "minus", .end = ".bias", .ndim = 1, .scale = 0.0f, .middle = -5.5f, .shift = 0.0f},
    {.start = "large", .end = ".weight", .ndim = 4, .scale = 4.0f, .middle = 0.0f, .shift = 0.0f},
    {.start = "pooled", .end = ".weight", .ndim = 4, .scale = 0.25f, .middle = 0.0f, .shift = 0.5f},
};

static void set_entry(const lk_state_entry *entry)
{
    golden_fill_entry(entry);
    float *values = entry->data;
    for (size_t p = 0; p < sizeof adjustments / sizeof *adjustments; p++) {
        if (!starts(entry->name, adjustments[p].start) || !golden_ends(entry->name, adjustments[p].end) ||
            entry->ndim != adjustments[p].ndim)
            continue;
        for (size_t i = 0; i < golden_count(entry); i++)
            values[i] = values[i] * adjustments[p].scale + adjustments[p].middle +
                        (i % 2 ? -adjustments[p].shift : adjustments[p].shift);
    }
}

typedef struct check {
    lk_engine *engine;
    lk_state *state;
    lk_state *first; /* the optimiser's: every loss is that of step 1, with its dropout masks */
    const lk_batch *batch;
} check;

static double loss_with(const check *c, float *value, float x)
{
    lk_metrics metrics;
    float old = *value;
    *value = x;
    assert_ok(lk_engine_set_state(c->engine, c->state));
    assert_ok(lk_engine_set_optimizer_state(c->engine, c->first));
    assert_ok(lk_engine_gradients(c->engine, c->batch, &metrics));
    *value = old;
    return metrics.loss;
}

static double difference(const check *c, float *value)
{
    float x = *value;
    double near = loss_with(c, value, x + H) - loss_with(c, value, x - H);
    double far = loss_with(c, value, x + 2 * H) - loss_with(c, value, x - 2 * H);
    return (8 * near - far) / (12 * (double)H);
}

static double check_entry(const check *c, const char *name, const lk_state_entry *grad)
{
    const lk_state_entry *entry = lk_state_find(c->state, grad->name);
    assert_non_null(entry);
    float *values = entry->data;
    size_t count = golden_count(entry), stride = (count + MAX_ELEMENTS - 1) / MAX_ELEMENTS;
    double largest = 0;
    for (size_t i = 0; i < count; i += stride) {
        double ours = golden_at(grad, i), truth = difference(c, &values[i]);
        largest = fmax(largest, fabs(ours));
        if (!(fabs(ours - truth) <= TOLERANCE))
            fail_msg("%s: d loss / d %s[%zu] is %.7f, differences give %.7f", name, grad->name, i, ours, truth);
    }
    return largest;
}

static void run_case(const grad_case *row)
{
    lk_graph *graph;
    assert_ok(lk_graph_create(&graph));
    row->build(graph, lk_input(graph, row->shape->channels, row->shape->height, row->shape->width));
    lk_engine_opts opts = {.threads = 1,
                           .batch = BATCH,
                           .shards = 2,
                           .bn = row->bn,
                           .optimizer = "sgd",
                           .seed = 7,
                           .label_smoothing = row->label_smoothing};
    golden_batch batch = make_batch(*row->shape);
    float targets[BATCH * 4];
    static const float weights[BATCH] = {1, 0.5f, 2, 0, 3, 1};
    if (row->target > 0)
        give_targets(row->target, targets, &batch.view);
    batch.view.weights = row->weighted ? weights : NULL;
    check c = {.batch = &batch.view};
    assert_ok(lk_engine_create(graph, &opts, &c.engine));
    lk_graph_destroy(graph);
    assert_ok(lk_engine_state(c.engine, &c.state));
    assert_ok(lk_engine_optimizer_state(c.engine, &c.first));
    for (size_t i = 0; i < lk_state_count(c.state); i++)
        set_entry(lk_state_at(c.state, i));

    lk_state *grads;
    lk_metrics metrics;
    assert_ok(lk_engine_set_state(c.engine, c.state));
    assert_ok(lk_engine_gradients(c.engine, &batch.view, &metrics));
    assert_ok(lk_engine_grads(c.engine, &grads));
    for (size_t i = 0; i < lk_state_count(grads); i++) {
        double largest = check_entry(&c, row->name, lk_state_at(grads, i));
        if (largest < 20 * TOLERANCE)
            fail_msg("%s: the gradients of %s are too small to tell", row->name, lk_state_at(grads, i)->name);
    }
    lk_state_destroy(grads);
    lk_state_destroy(c.first);
    lk_state_destroy(c.state);
    lk_engine_destroy(c.engine);
    golden_batch_free(&batch);
}

static void test_gradients(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_case(&cases[i]);
}

TEST_MAIN(NULL, NULL, TEST(test_gradients))
