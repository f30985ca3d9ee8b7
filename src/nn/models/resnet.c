/* resnet.c - torchvision's residual networks: resnet18, 34, 50, 101 and 152. In a bottleneck the 3x3
 * convolution has the stride.
 *
 * "cifar" selects a first layer for small images: a 3x3 convolution of stride 1, and no pooling. The keys are
 * the same, and so are all shapes but conv1's. */
#include <assert.h>
#include <stdio.h>

#include "base/spec.h"
#include "nn/models/models.h"

enum { STAGES = 4, KEY = 64, EXPANSION = 4 };

static const struct variant {
    int size;
    bool bottleneck;
    int blocks[STAGES];
} variants[] = {
    {18, false, {2, 2, 2, 2}},  {34, false, {3, 4, 6, 3}},  {50, true, {3, 4, 6, 3}},
    {101, true, {3, 4, 23, 3}}, {152, true, {3, 8, 36, 3}},
};

typedef struct block {
    const char *prefix;
    size_t width;   /* channels of its 3x3 convolutions */
    size_t stride;  /* of the first of these convolutions */
    bool projected; /* the shortcut has a convolution */
} block;

static lk_node shortcut(lk_graph *graph, lk_node x, const block *b, size_t out)
{
    if (!b->projected)
        return x;
    return lk__model_conv_bn(graph, x, (lk_model_conv_bn_keys){b->prefix, "downsample.0", "downsample.1"},
                             (lk_conv2d_opts){.out = out, .kernel = 1, .stride = b->stride});
}

static lk_node basic(lk_graph *graph, lk_node x, const block *b)
{
    lk_node y = lk__model_conv_bn(graph, x, (lk_model_conv_bn_keys){b->prefix, "conv1", "bn1"},
                                  (lk_conv2d_opts){.out = b->width, .kernel = 3, .stride = b->stride, .pad = 1});
    y = lk__model_conv_bn(graph, lk_relu(graph, y), (lk_model_conv_bn_keys){b->prefix, "conv2", "bn2"},
                          (lk_conv2d_opts){.out = b->width, .kernel = 3, .pad = 1});
    return lk_relu(graph, lk_add(graph, y, shortcut(graph, x, b, b->width)));
}

static lk_node bottleneck(lk_graph *graph, lk_node x, const block *b)
{
    size_t out = EXPANSION * b->width;
    lk_node y = lk__model_conv_bn(graph, x, (lk_model_conv_bn_keys){b->prefix, "conv1", "bn1"},
                                  (lk_conv2d_opts){.out = b->width, .kernel = 1});
    y = lk__model_conv_bn(graph, lk_relu(graph, y), (lk_model_conv_bn_keys){b->prefix, "conv2", "bn2"},
                          (lk_conv2d_opts){.out = b->width, .kernel = 3, .stride = b->stride, .pad = 1});
    y = lk__model_conv_bn(graph, lk_relu(graph, y), (lk_model_conv_bn_keys){b->prefix, "conv3", "bn3"},
                          (lk_conv2d_opts){.out = out, .kernel = 1});
    return lk_relu(graph, lk_add(graph, y, shortcut(graph, x, b, out)));
}

static lk_node stem(lk_graph *graph, lk_node x, bool cifar)
{
    lk_conv2d_opts conv = {.out = 64, .kernel = 7, .stride = 2, .pad = 3};
    if (cifar)
        conv = (lk_conv2d_opts){.out = 64, .kernel = 3, .pad = 1};
    x = lk_relu(graph, lk__model_conv_bn(graph, x, (lk_model_conv_bn_keys){"", "conv1", "bn1"}, conv));
    return cifar ? x : lk_maxpool2d(graph, x, (lk_maxpool2d_opts){.kernel = 3, .stride = 2, .pad = 1});
}

static lk_node stages(lk_graph *graph, lk_node x, const struct variant *v)
{
    for (int stage = 0; stage < STAGES; stage++) {
        for (int i = 0; i < v->blocks[stage]; i++) {
            char prefix[KEY];
            snprintf(prefix, sizeof prefix, "layer%d.%d.", stage + 1, i);
            block b = {.prefix = prefix, .width = (size_t)64 << stage, .stride = stage > 0 && i == 0 ? 2 : 1};
            b.projected = i == 0 && (stage > 0 || v->bottleneck);
            x = v->bottleneck ? bottleneck(graph, x, &b) : basic(graph, x, &b);
        }
    }
    return x;
}

static lk_status build(const lk_model_args *args, lk_graph *graph)
{
    double cifar = 0;
    const lk_spec_key keys[] = {{.name = "cifar", .value = &cifar, .min = 0, .max = 1, .whole = true}};
    LK_TRY(lk__spec_params(args->spec, "`model`", keys, 1));
    const struct variant *v = variants;
    for (; v->size != args->size; v++)
        assert(v + 1 < variants + sizeof variants / sizeof *variants);
    lk_node x = stages(graph, stem(graph, lk__model_input(args, graph), cifar > 0), v);
    lk_init_all(graph, "kaiming_normal:fan_out");
    lk_cross_entropy(graph, lk__model_mean_and_linear(graph, x, "fc", args->shape.classes));
    return LK_OK;
}

#define RESNET "torchvision's residual network"
#define PARAMS "cifar=0 (1: a stem for small images)"

const lk_model lk__model_resnet[] = {
    {{"resnet18", RESNET, PARAMS}, build, {3, 224, 224, 1000}, {3, 32, 32, 10}, .size = 18},
    {{"resnet34", RESNET, PARAMS}, build, {3, 224, 224, 1000}, {3, 32, 32, 10}, .size = 34},
    {{"resnet50", RESNET ", of bottlenecks", PARAMS}, build, {3, 224, 224, 1000}, {3, 32, 32, 10}, .size = 50},
    {{"resnet101", RESNET ", of bottlenecks", PARAMS}, build, {3, 224, 224, 1000}, {3, 32, 32, 10}, .size = 101},
    {{"resnet152", RESNET ", of bottlenecks", PARAMS}, build, {3, 224, 224, 1000}, {3, 32, 32, 10}, .size = 152},
    {.build = NULL},
};
