/* mobilenet_v2.c - torchvision's MobileNetV2: inverted residuals with depthwise convolutions; 3,504,872
 * parameters for 1000 classes.
 *
 * "width" multiplies all numbers of channels, rounded to multiples of 8; the last layer has at least 1280.
 * "cifar" is for small images: the first convolution and the second stage do not reduce the image. */
#include <stdio.h>

#include "base/spec.h"
#include "nn/models/models.h"

enum { KEY = 64, FIRST = 32, LAST = 1280 };

/* A sequence of blocks: factor by which a block widens its input, channels, number of blocks, stride of the
 * first. */
static const struct stage {
    size_t expand, channels;
    int blocks;
    size_t stride;
} stages[] = {
    {1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1},
};

/* The nearest multiple of 8, but not below nine tenths of the channels. */
static size_t scale(size_t channels, double width)
{
    double wanted = (double)channels * width;
    size_t rounded = (size_t)(wanted + 4) / 8 * 8;
    if (rounded < 8)
        rounded = 8;
    return (double)rounded < 0.9 * wanted ? rounded + 8 : rounded;
}

typedef struct block {
    int index; /* in features */
    size_t in, expand, out, stride;
} block;

static lk_node inverted_residual(lk_graph *graph, lk_node x, const block *b)
{
    char prefix[KEY];
    size_t hidden = b->in * b->expand;
    lk_node y = x;
    snprintf(prefix, sizeof prefix, "features.%d.conv.", b->index);
    lk_model_conv_bn_keys wide = {prefix, "0.0", "0.1"}, deep = {prefix, "1.0", "1.1"}, thin = {prefix, "2", "3"};
    if (b->expand == 1) {
        deep = wide;
        thin = (lk_model_conv_bn_keys){prefix, "1", "2"};
    } else {
        y = lk_relu6(graph, lk__model_conv_bn(graph, y, wide, (lk_conv2d_opts){.out = hidden, .kernel = 1}));
    }
    lk_conv2d_opts depthwise = {.out = hidden, .kernel = 3, .stride = b->stride, .pad = 1, .groups = hidden};
    y = lk_relu6(graph, lk__model_conv_bn(graph, y, deep, depthwise));
    y = lk__model_conv_bn(graph, y, thin, (lk_conv2d_opts){.out = b->out, .kernel = 1});
    return b->stride == 1 && b->in == b->out ? lk_add(graph, x, y) : y;
}

static lk_node features(lk_graph *graph, lk_node x, double width, bool cifar)
{
    block b = {.index = 0, .out = scale(FIRST, width)};
    x = lk__model_conv_bn(graph, x, (lk_model_conv_bn_keys){"features.", "0.0", "0.1"},
                          (lk_conv2d_opts){.out = b.out, .kernel = 3, .stride = cifar ? 1 : 2, .pad = 1});
    x = lk_relu6(graph, x);
    for (const struct stage *s = stages; s < stages + sizeof stages / sizeof *stages; s++) {
        for (int i = 0; i < s->blocks; i++) {
            size_t stride = i > 0 || (cifar && s == stages + 1) ? 1 : s->stride;
            b = (block){.index = b.index + 1,
                        .in = b.out,
                        .expand = s->expand,
                        .out = scale(s->channels, width),
                        .stride = stride};
            x = inverted_residual(graph, x, &b);
        }
    }
    lk_conv2d_opts last = {.out = scale(LAST, width > 1 ? width : 1), .kernel = 1};
    return lk_relu6(graph, lk__model_conv_bn(graph, x, (lk_model_conv_bn_keys){"features.", "18.0", "18.1"}, last));
}

static lk_status build(const lk_model_args *args, lk_graph *graph)
{
    double width = 1, cifar = 0, dropout = 1;
    const lk_spec_key keys[] = {{.name = "width", .value = &width, .min = 0.01, .max = 100},
                                {.name = "cifar", .value = &cifar, .min = 0, .max = 1, .whole = true},
                                {.name = "dropout", .value = &dropout, .min = 0, .max = 1, .whole = true}};
    LK_TRY(lk__spec_params(args->spec, "`model`", keys, 3));
    lk_node x = features(graph, lk__model_input(args, graph), width, cifar > 0);
    lk_init_all(graph, "kaiming_normal:fan_out");
    x = lk_flatten(graph, lk_global_avgpool(graph, x));
    x = lk_linear(graph, lk_dropout(graph, x, 0.2 * dropout), "classifier.1", args->shape.classes);
    lk_cross_entropy(graph, lk_init(graph, x, "normal:std=.01,zero_bias"));
    return LK_OK;
}

const lk_model lk__model_mobilenet_v2[] = {
    {{"mobilenet_v2", "torchvision's, with depthwise convolutions",
      "width=1 (of all channels), cifar=0 (1: for small images), dropout=1 (0: off)"},
     build,
     .usual = {3, 224, 224, 1000},
     .small = {3, 32, 32, 10}},
    {.build = NULL},
};
