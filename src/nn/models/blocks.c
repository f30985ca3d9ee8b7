/* blocks.c - parts that several models have in common. */
#include <stdio.h>

#include "nn/models/models.h"

enum { KEY = 128 };

lk_node lk__model_input(const lk_model_args *args, lk_graph *graph)
{
    return lk_input(graph, args->shape.channels, args->shape.height, args->shape.width);
}

lk_node lk__model_conv_bn(lk_graph *graph, lk_node x, lk_model_conv_bn_keys keys, lk_conv2d_opts opts)
{
    char key[KEY];
    snprintf(key, sizeof key, "%s%s", keys.prefix, keys.conv);
    opts.no_bias = true;
    x = lk_conv2d(graph, x, key, opts);
    snprintf(key, sizeof key, "%s%s", keys.prefix, keys.bn);
    return lk_batchnorm2d(graph, x, key);
}

lk_node lk__model_mean_and_linear(lk_graph *graph, lk_node x, const char *name, size_t classes)
{
    return lk_linear(graph, lk_flatten(graph, lk_global_avgpool(graph, x)), name, classes);
}
