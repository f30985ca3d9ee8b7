/* resnet20.c - the residual network for CIFAR with projection shortcuts, under
 * torchvision's key names; 272,474 parameters on 3x32x32. */
#include <stdio.h>

#include "base/spec.h"
#include "nn/models/models.h"

enum { STAGES = 3, BLOCKS = 3, KEY = 64 };

static lk_node conv_bn(lk_graph *graph, lk_node x, const char *prefix, const char *conv, const char *bn,
                       lk_conv2d_opts opts)
{
    char key[KEY];
    snprintf(key, sizeof key, "%s%s", prefix, conv);
    opts.no_bias = true;
    x = lk_conv2d(graph, x, key, opts);
    snprintf(key, sizeof key, "%s%s", prefix, bn);
    return lk_batchnorm2d(graph, x, key);
}

static lk_node basic_block(lk_graph *graph, lk_node x, const char *prefix, size_t out, size_t stride)
{
    lk_node y = conv_bn(graph, x, prefix, "conv1", "bn1", (lk_conv2d_opts){out, 3, stride, 1, false});
    y = conv_bn(graph, lk_relu(graph, y), prefix, "conv2", "bn2", (lk_conv2d_opts){out, 3, 1, 1, false});
    if (stride > 1)
        x = conv_bn(graph, x, prefix, "downsample.0", "downsample.1", (lk_conv2d_opts){out, 1, stride, 0, false});
    return lk_relu(graph, lk_add(graph, y, x));
}

lk_status lk__model_resnet20(const char *spec, lk_model_shape shape, lk_graph *graph)
{
    double width = 16;
    const lk_spec_key keys[] = {{.name = "width", .value = &width, .min = 1, .max = 4096, .whole = true}};
    LK_TRY(lk__spec_params(spec, "--model", keys, 1));
    size_t channels = (size_t)width;
    lk_node x = lk_input(graph, shape.channels, shape.height, shape.width);
    x = lk_relu(graph, conv_bn(graph, x, "", "conv1", "bn1", (lk_conv2d_opts){channels, 3, 1, 1, false}));
    for (int stage = 0; stage < STAGES; stage++) {
        for (int block = 0; block < BLOCKS; block++) {
            char prefix[KEY / 2];
            snprintf(prefix, sizeof prefix, "layer%d.%d.", stage + 1, block);
            x = basic_block(graph, x, prefix, channels << stage, stage > 0 && block == 0 ? 2 : 1);
        }
    }
    x = lk_linear(graph, lk_flatten(graph, lk_global_avgpool(graph, x)), "fc", shape.classes);
    lk_cross_entropy(graph, x);
    return LK_OK;
}
