/* vgg.c - VGG networks with BatchNorm: vgg11, 13, 16 and 19, called vgg11_bn and so on in torchvision.
 *
 * "cifar" selects the form for small images: a mean over the pixels and one linear layer instead of three, keys
 * conv.N and fc instead of features.N and classifier.N, and PyTorch's default initialisation. */
#include <assert.h>
#include <stdio.h>

#include "base/spec.h"
#include "base/status.h"
#include "nn/models/models.h"

enum { GROUPS = 5, KEY = 64, POOLED = 7, HIDDEN = 4096 };

/* Convolutions between two poolings. */
static const struct variant {
    int size;
    int convs[GROUPS];
} variants[] = {
    {11, {1, 1, 2, 2, 2}},
    {13, {2, 2, 2, 2, 2}},
    {16, {2, 2, 3, 3, 3}},
    {19, {2, 2, 4, 4, 4}},
};

static lk_node features(lk_graph *graph, lk_node x, const struct variant *v, const char *prefix)
{
    int index = 0; /* in nn.Sequential: convolution, BatchNorm, ReLU, ..., pooling */
    for (int group = 0; group < GROUPS; group++) {
        size_t channels = (size_t)64 << (group < 3 ? group : 3);
        for (int i = 0; i < v->convs[group]; i++) {
            char key[KEY];
            snprintf(key, sizeof key, "%s.%d", prefix, index);
            x = lk_conv2d(graph, x, key, (lk_conv2d_opts){.out = channels, .kernel = 3, .pad = 1});
            snprintf(key, sizeof key, "%s.%d", prefix, index + 1);
            x = lk_relu(graph, lk_batchnorm2d(graph, x, key));
            index += 3;
        }
        x = lk_maxpool2d(graph, x, (lk_maxpool2d_opts){.kernel = 2});
        index++;
    }
    return x;
}

static lk_node linear(lk_graph *graph, lk_node x, const char *name, size_t out)
{
    return lk_init(graph, lk_linear(graph, x, name, out), "normal:std=.01,zero_bias");
}

/* torchvision's adaptive pooling to 7x7, for images whose sides are multiples of 224: there all windows have
 * one size. */
static lk_status pool(lk_graph *graph, const lk_model_args *args, lk_node *x)
{
    size_t side = args->shape.height / 32;
    if (args->shape.height != args->shape.width || side == 0 || side % POOLED != 0)
        return lk__fail(LK_STATUS_USAGE,
                        "`model` %s: images must be 224x224, or a multiple of that, not %zux%zu; for small images "
                        "write 'vgg%d:cifar'",
                        args->spec, args->shape.height, args->shape.width, args->size);
    if (side > POOLED)
        *x = lk_avgpool2d(graph, *x, (lk_avgpool2d_opts){.kernel = side / POOLED});
    return LK_OK;
}

static lk_status classifier(lk_graph *graph, const lk_model_args *args, double p, lk_node x)
{
    LK_TRY(pool(graph, args, &x));
    x = lk_relu(graph, linear(graph, lk_flatten(graph, x), "classifier.0", HIDDEN));
    x = lk_relu(graph, linear(graph, lk_dropout(graph, x, p), "classifier.3", HIDDEN));
    x = linear(graph, lk_dropout(graph, x, p), "classifier.6", args->shape.classes);
    lk_cross_entropy(graph, x);
    return LK_OK;
}

static lk_status build(const lk_model_args *args, lk_graph *graph)
{
    double cifar = 0, dropout = 1;
    const lk_spec_key keys[] = {{.name = "cifar", .value = &cifar, .min = 0, .max = 1, .whole = true},
                                {.name = "dropout", .value = &dropout, .min = 0, .max = 1, .whole = true}};
    LK_TRY(lk__spec_params(args->spec, "`model`", keys, 2));
    const struct variant *v = variants;
    for (; v->size != args->size; v++)
        assert(v + 1 < variants + sizeof variants / sizeof *variants);
    lk_node x = features(graph, lk__model_input(args, graph), v, cifar > 0 ? "conv" : "features");
    if (cifar > 0) {
        lk_cross_entropy(graph, lk__model_mean_and_linear(graph, x, "fc", args->shape.classes));
        return LK_OK;
    }
    lk_init_all(graph, "kaiming_normal:fan_out,zero_bias");
    return classifier(graph, args, 0.5 * dropout, x);
}

#define VGG "VGG with BatchNorm, torchvision's"
#define PARAMS "cifar=0 (1: for small images, one linear layer), dropout=1 (0: off)"

const lk_model lk__model_vgg[] = {
    {{"vgg11", VGG " vgg11_bn", PARAMS}, build, {3, 224, 224, 1000}, {3, 32, 32, 10}, .size = 11},
    {{"vgg13", VGG " vgg13_bn", PARAMS}, build, {3, 224, 224, 1000}, {3, 32, 32, 10}, .size = 13},
    {{"vgg16", VGG " vgg16_bn", PARAMS}, build, {3, 224, 224, 1000}, {3, 32, 32, 10}, .size = 16},
    {{"vgg19", VGG " vgg19_bn", PARAMS}, build, {3, 224, 224, 1000}, {3, 32, 32, 10}, .size = 19},
    {.build = NULL},
};
