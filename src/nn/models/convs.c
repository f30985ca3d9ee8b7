/* convs.c - the small networks of the lottery-ticket experiments: conv2, conv4 and conv6. They have pairs of
 * 3x3 convolutions with 64, 128 and 256 channels; each pair ends with max pooling.
 *
 * Three linear layers follow; in the "a" variants a mean over the pixels and one linear layer. Only the
 * convolutions of conv2a have no bias, because the original's weight files have none. */
#include <stdio.h>

#include "base/spec.h"
#include "nn/models/models.h"

static lk_node convs(const lk_model_args *args, lk_graph *graph)
{
    bool no_bias = args->mean && args->size == 2;
    lk_node x = lk__model_input(args, graph);
    for (int i = 0; i < args->size; i++) {
        char name[16];
        snprintf(name, sizeof name, "conv%d", i + 1);
        x = lk_conv2d(graph, x, name,
                      (lk_conv2d_opts){.out = (size_t)64 << i / 2, .kernel = 3, .pad = 1, .no_bias = no_bias});
        x = lk_relu(graph, x);
        if (i % 2 == 1)
            x = lk_maxpool2d(graph, x, (lk_maxpool2d_opts){.kernel = 2});
    }
    return x;
}

static lk_status build(const lk_model_args *args, lk_graph *graph)
{
    LK_TRY(lk__spec_params(args->spec, "`model`", NULL, 0));
    lk_node x = convs(args, graph);
    if (args->mean) {
        x = lk__model_mean_and_linear(graph, x, "fc", args->shape.classes);
    } else {
        x = lk_relu(graph, lk_linear(graph, lk_flatten(graph, x), "fc1", 256));
        x = lk_relu(graph, lk_linear(graph, x, "fc2", 256));
        x = lk_linear(graph, x, "fc3", args->shape.classes);
    }
    lk_cross_entropy(graph, x);
    return LK_OK;
}

const lk_model lk__model_convs[] = {
    {{"conv2", "2 convolutions and three linear layers", ""}, build, {3, 32, 32, 10}, .size = 2},
    {{"conv4", "4 convolutions and three linear layers", ""}, build, {3, 32, 32, 10}, .size = 4},
    {{"conv6", "6 convolutions and three linear layers", ""}, build, {3, 32, 32, 10}, .size = 6},
    {{"conv2a", "2 convolutions, a mean, one linear layer", ""}, build, {3, 32, 32, 10}, .size = 2, .mean = true},
    {{"conv4a", "4 convolutions, a mean, one linear layer", ""}, build, {3, 32, 32, 10}, .size = 4, .mean = true},
    {{"conv6a", "6 convolutions, a mean, one linear layer", ""}, build, {3, 32, 32, 10}, .size = 6, .mean = true},
    {.build = NULL},
};
