/* torch_layers.h - the layers that the chains of torch_ops.c are made of, by name. */
#ifndef LK_TESTS_TORCH_LAYERS_H
#define LK_TESTS_TORCH_LAYERS_H

#include <lockstep/graph.h>

#include "base/spec.h"
#include "nn/graph.h"

/* Options of layers; each layer reads its own. */
enum {
    OUT,
    KERNEL,
    STRIDE,
    PAD,
    GROUPS,
    NO_BIAS,
    CEIL,
    P,
    SLOPE,
    SMOOTHING,
    AXIS_A,
    AXIS_B,
    HEIGHT,
    WIDTH,
    OUT_PAD,
    DILATION,
    KERNEL_W,
    STRIDE_W,
    PAD_W,
    OUT_PAD_W,
    DILATION_W,
    NO_PAD_W,
    WEIGHTED,
    ROWS,
    VALUES
};
static const lk_spec_param params_of_layers[] = {
    [OUT] = {"out", 0, 0, 1e4, true},
    [KERNEL] = {"kernel", 0, 0, 99, true},
    [STRIDE] = {"stride", 0, 0, 99, true},
    [PAD] = {"pad", 0, 0, 99, true},
    [GROUPS] = {"groups", 0, 0, 1e4, true},
    [NO_BIAS] = {"no_bias", 0, 0, 1, true},
    [CEIL] = {"ceil", 0, 0, 1, true},
    [P] = {"p", 0, 0, 1, false},
    [SLOPE] = {"slope", 0, 0, 1, false},
    [SMOOTHING] = {"smoothing", 0, 0, 1, false},
    [AXIS_A] = {"a", 0, 1, 3, true},
    [AXIS_B] = {"b", 0, 1, 3, true},
    [HEIGHT] = {"height", 0, 0, 1e4, true},
    [WIDTH] = {"width", 0, 0, 1e4, true},
    [OUT_PAD] = {"out_pad", 0, 0, 99, true},
    [DILATION] = {"dilation", 0, 0, 99, true},
    [KERNEL_W] = {"kernel_w", 0, 0, 99, true},
    [STRIDE_W] = {"stride_w", 0, 0, 99, true},
    [PAD_W] = {"pad_w", 0, 0, 99, true},
    [OUT_PAD_W] = {"out_pad_w", 0, 0, 99, true},
    [DILATION_W] = {"dilation_w", 0, 0, 99, true},
    [NO_PAD_W] = {"no_pad_w", 0, 0, 1, true},
    [WEIGHTED] = {"weighted", 0, 0, 1, true},
    [ROWS] = {"rows", 0, 0, 1e6, true},
};
static const char layer_name[] = "op";

static size_t pad_w(const double *v)
{
    return v[NO_PAD_W] != 0 ? LK_ZERO_PAD : (size_t)v[PAD_W];
}

static lk_node add_conv2d(lk_graph *g, lk_node x, const double *v)
{
    lk_conv2d_opts opts = {.out = (size_t)v[OUT],
                           .kernel = (size_t)v[KERNEL],
                           .stride = (size_t)v[STRIDE],
                           .pad = (size_t)v[PAD],
                           .groups = (size_t)v[GROUPS],
                           .no_bias = v[NO_BIAS] != 0,
                           .dilation = (size_t)v[DILATION],
                           .kernel_w = (size_t)v[KERNEL_W],
                           .stride_w = (size_t)v[STRIDE_W],
                           .pad_w = pad_w(v),
                           .dilation_w = (size_t)v[DILATION_W]};
    return lk_conv2d(g, x, layer_name, opts);
}

static lk_node add_conv_transpose2d(lk_graph *g, lk_node x, const double *v)
{
    lk_conv_transpose2d_opts opts = {.out = (size_t)v[OUT],
                                     .kernel = (size_t)v[KERNEL],
                                     .stride = (size_t)v[STRIDE],
                                     .pad = (size_t)v[PAD],
                                     .groups = (size_t)v[GROUPS],
                                     .out_pad = (size_t)v[OUT_PAD],
                                     .no_bias = v[NO_BIAS] != 0,
                                     .dilation = (size_t)v[DILATION],
                                     .kernel_w = (size_t)v[KERNEL_W],
                                     .stride_w = (size_t)v[STRIDE_W],
                                     .pad_w = pad_w(v),
                                     .out_pad_w = (size_t)v[OUT_PAD_W],
                                     .dilation_w = (size_t)v[DILATION_W]};
    return lk_conv_transpose2d(g, x, layer_name, opts);
}

static lk_node add_linear(lk_graph *g, lk_node x, const double *v)
{
    return lk_linear(g, x, layer_name, (size_t)v[OUT]);
}

static lk_node add_batchnorm2d(lk_graph *g, lk_node x, const double *v)
{
    return lk_batchnorm2d(g, x, layer_name);
}

static lk_node add_leaky_relu(lk_graph *g, lk_node x, const double *v)
{
    return lk_leaky_relu(g, x, v[SLOPE]);
}

static lk_node add_maxpool2d(lk_graph *g, lk_node x, const double *v)
{
    lk_maxpool2d_opts opts = {.kernel = (size_t)v[KERNEL],
                              .stride = (size_t)v[STRIDE],
                              .pad = (size_t)v[PAD],
                              .dilation = (size_t)v[DILATION],
                              .kernel_w = (size_t)v[KERNEL_W],
                              .stride_w = (size_t)v[STRIDE_W],
                              .pad_w = pad_w(v),
                              .dilation_w = (size_t)v[DILATION_W],
                              .ceil = v[CEIL] != 0};
    return lk_maxpool2d(g, x, opts);
}

static lk_node add_avgpool2d(lk_graph *g, lk_node x, const double *v)
{
    lk_avgpool2d_opts opts = {.kernel = (size_t)v[KERNEL],
                              .stride = (size_t)v[STRIDE],
                              .pad = (size_t)v[PAD],
                              .ceil = v[CEIL] != 0,
                              .kernel_w = (size_t)v[KERNEL_W],
                              .stride_w = (size_t)v[STRIDE_W],
                              .pad_w = pad_w(v)};
    return lk_avgpool2d(g, x, opts);
}

static lk_node add_dropout(lk_graph *g, lk_node x, const double *v)
{
    return lk_dropout(g, x, v[P]);
}

static lk_node add_dropout2d(lk_graph *g, lk_node x, const double *v)
{
    return lk_dropout2d(g, x, v[P]);
}

static lk_node add_pad_channels(lk_graph *g, lk_node x, const double *v)
{
    return lk_pad_channels(g, x, (size_t)v[OUT]);
}

static lk_node add_add(lk_graph *g, lk_node x, const double *v)
{
    return lk_add(g, x, lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 3, .stride = 1, .pad = 1}));
}

static lk_node add_concat(lk_graph *g, lk_node x, const double *v)
{
    return lk_concat(g, x, lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 3, .stride = 1, .pad = 1}));
}

static lk_node add_groupnorm(lk_graph *g, lk_node x, const double *v)
{
    return lk_groupnorm(g, x, layer_name, (size_t)v[GROUPS]);
}

static lk_node add_layernorm(lk_graph *g, lk_node x, const double *v)
{
    return lk_layernorm(g, x, layer_name);
}

static lk_node add_mul(lk_graph *g, lk_node x, const double *v)
{
    return lk_mul(g, x, lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 3, .stride = 1, .pad = 1}));
}

/* Square matrices, for each height: x times the largest values around its pixels. */
static lk_node add_matmul(lk_graph *g, lk_node x, const double *v)
{
    return lk_matmul(g, x, lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 3, .stride = 1, .pad = 1}));
}

static lk_node add_transpose(lk_graph *g, lk_node x, const double *v)
{
    return lk_transpose(g, x, (int)v[AXIS_A], (int)v[AXIS_B]);
}

static lk_node add_reshape(lk_graph *g, lk_node x, const double *v)
{
    return lk_reshape(g, x, (size_t)v[HEIGHT], (size_t)v[WIDTH], (size_t)v[OUT]);
}

/* With `weighted`, class k has weight 0.5 + k % 4 / 2. */
static lk_node weigh(lk_graph *g, lk_node loss, const double *v)
{
    float weights[1024];
    size_t classes = g->layers[g->count - 1].shape.c;
    for (size_t k = 0; k < classes && k < 1024; k++)
        weights[k] = 0.5f + (float)(k % 4) / 2;
    return v[WEIGHTED] != 0 ? lk_weigh_classes(g, loss, weights, classes) : loss;
}

static lk_node add_nll_loss(lk_graph *g, lk_node x, const double *v)
{
    return weigh(g, lk_nll_loss(g, x), v);
}

static lk_node add_cross_entropy(lk_graph *g, lk_node x, const double *v)
{
    return weigh(g, lk_cross_entropy(g, x), v);
}

static lk_node add_soft_cross_entropy(lk_graph *g, lk_node x, const double *v)
{
    return weigh(g, lk_soft_cross_entropy(g, x), v);
}

static lk_node add_bce_with_logits_loss(lk_graph *g, lk_node x, const double *v)
{
    return weigh(g, lk_bce_with_logits_loss(g, x), v);
}

static lk_node add_huber_loss(lk_graph *g, lk_node x, const double *v)
{
    return lk_huber_loss(g, x, v[P]);
}

static lk_node add_smooth_l1_loss(lk_graph *g, lk_node x, const double *v)
{
    return lk_smooth_l1_loss(g, x, v[P]);
}

static lk_node add_embedding(lk_graph *g, lk_node x, const double *v)
{
    return lk_embedding(g, x, layer_name, (size_t)v[ROWS], (size_t)v[OUT]);
}

/* Rows without options have `plain` instead. */
static const struct {
    const char *name;
    lk_node (*add)(lk_graph *g, lk_node x, const double *v);
    lk_node (*plain)(lk_graph *g, lk_node x);
} layer_types[] = {
    {"conv2d", add_conv2d, NULL},
    {"conv_transpose2d", add_conv_transpose2d, NULL},
    {"linear", add_linear, NULL},
    {"embedding", add_embedding, NULL},
    {"batchnorm2d", add_batchnorm2d, NULL},
    {"groupnorm", add_groupnorm, NULL},
    {"layernorm", add_layernorm, NULL},
    {"relu", NULL, lk_relu},
    {"relu6", NULL, lk_relu6},
    {"leaky_relu", add_leaky_relu, NULL},
    {"sigmoid", NULL, lk_sigmoid},
    {"tanh", NULL, lk_tanh},
    {"silu", NULL, lk_silu},
    {"gelu", NULL, lk_gelu},
    {"gelu_tanh", NULL, lk_gelu_tanh},
    {"maxpool2d", add_maxpool2d, NULL},
    {"avgpool2d", add_avgpool2d, NULL},
    {"global_avgpool", NULL, lk_global_avgpool},
    {"global_maxpool", NULL, lk_global_maxpool},
    {"dropout", add_dropout, NULL},
    {"dropout2d", add_dropout2d, NULL},
    {"pad_channels", add_pad_channels, NULL},
    {"flatten", NULL, lk_flatten},
    {"add", add_add, NULL},
    {"mul", add_mul, NULL},
    {"matmul", add_matmul, NULL},
    {"transpose", add_transpose, NULL},
    {"reshape", add_reshape, NULL},
    {"concat", add_concat, NULL},
    {"softmax", NULL, lk_softmax},
    {"log_softmax", NULL, lk_log_softmax},
    {"nll_loss", add_nll_loss, NULL},
    {"cross_entropy", add_cross_entropy, NULL},
    {"mse_loss", NULL, lk_mse_loss},
    {"l1_loss", NULL, lk_l1_loss},
    {"huber_loss", add_huber_loss, NULL},
    {"smooth_l1_loss", add_smooth_l1_loss, NULL},
    {"bce_with_logits_loss", add_bce_with_logits_loss, NULL},
    {"soft_cross_entropy", add_soft_cross_entropy, NULL},
};

static const char *layer_type_name(const void *arg, size_t index)
{
    return index < sizeof layer_types / sizeof *layer_types ? layer_types[index].name : NULL;
}

#endif
