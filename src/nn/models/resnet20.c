/* resnet20.c - the residual network for CIFAR with projection shortcuts, under
 * torchvision's key names; 272,474 parameters on 3x32x32. */
#include <stdio.h>

#include "base/spec.h"
#include "nn/models/models.h"

enum { STAGES = 3, BLOCKS = 3, KEY = 64 };

static lk_node basic_block(lk_graph *graph, lk_node x, const char *prefix, size_t out, size_t stride)
{
    lk_node y = lk__model_conv_bn(graph, x, (lk_model_conv_bn_keys){prefix, "conv1", "bn1"},
                                  (lk_conv2d_opts){.out = out, .kernel = 3, .stride = stride, .pad = 1});
    y = lk__model_conv_bn(graph, lk_relu(graph, y), (lk_model_conv_bn_keys){prefix, "conv2", "bn2"},
                          (lk_conv2d_opts){.out = out, .kernel = 3, .pad = 1});
    if (stride > 1)
        x = lk__model_conv_bn(graph, x, (lk_model_conv_bn_keys){prefix, "downsample.0", "downsample.1"},
                              (lk_conv2d_opts){.out = out, .kernel = 1, .stride = stride});
    return lk_relu(graph, lk_add(graph, y, x));
}

static lk_status build(const lk_model_args *args, lk_graph *graph)
{
    double width = 16;
    const lk_spec_key keys[] = {{.name = "width", .value = &width, .min = 1, .max = 4096, .whole = true}};
    LK_TRY(lk__spec_params(args->spec, "`model`", keys, 1));
    size_t channels = (size_t)width;
    lk_node x = lk__model_input(args, graph);
    x = lk_relu(graph, lk__model_conv_bn(graph, x, (lk_model_conv_bn_keys){"", "conv1", "bn1"},
                                         (lk_conv2d_opts){.out = channels, .kernel = 3, .pad = 1}));
    for (int stage = 0; stage < STAGES; stage++) {
        for (int block = 0; block < BLOCKS; block++) {
            char prefix[KEY / 2];
            snprintf(prefix, sizeof prefix, "layer%d.%d.", stage + 1, block);
            x = basic_block(graph, x, prefix, channels << stage, stage > 0 && block == 0 ? 2 : 1);
        }
    }
    lk_cross_entropy(graph, lk__model_mean_and_linear(graph, x, "fc", args->shape.classes));
    return LK_OK;
}

const lk_model lk__model_resnet20[] = {
    {{"resnet20", "residual network (CIFAR)", "width=16"}, build, .usual = {3, 32, 32, 10}, .size = 20},
    {.build = NULL},
};
