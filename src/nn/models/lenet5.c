/* lenet5.c - LeNet-5 with ReLU and max pooling, for images of 28x28 and 32x32: two convolutions, three linear
 * layers; 61,706 parameters on 1x28x28. */
#include "base/spec.h"
#include "base/status.h"
#include "nn/models/models.h"

/* Images of 28x28 are padded to 32x32. */
static lk_status choose_pad(const lk_model_args *args, size_t *pad)
{
    const lk_model_shape *shape = &args->shape;
    bool sides = shape->height == shape->width && (shape->height == 28 || shape->height == 32);
    if (!sides || (shape->channels != 1 && shape->channels != 3))
        return lk__fail(LK_STATUS_USAGE,
                        "`model` %s needs images of 28x28 or 32x32 with 1 or 3 channels, not %zux%zux%zu", args->spec,
                        shape->channels, shape->height, shape->width);
    *pad = (32 - shape->height) / 2;
    return LK_OK;
}

static lk_status build(const lk_model_args *args, lk_graph *graph)
{
    const lk_maxpool2d_opts pool = {.kernel = 2};
    size_t pad = 0;
    LK_TRY(lk__spec_params(args->spec, "`model`", NULL, 0));
    LK_TRY(choose_pad(args, &pad));
    lk_node x = lk__model_input(args, graph);
    x = lk_relu(graph, lk_conv2d(graph, x, "conv1", (lk_conv2d_opts){.out = 6, .kernel = 5, .pad = pad}));
    x = lk_maxpool2d(graph, x, pool);
    x = lk_relu(graph, lk_conv2d(graph, x, "conv2", (lk_conv2d_opts){.out = 16, .kernel = 5}));
    x = lk_flatten(graph, lk_maxpool2d(graph, x, pool));
    x = lk_relu(graph, lk_linear(graph, x, "fc1", 120));
    x = lk_relu(graph, lk_linear(graph, x, "fc2", 84));
    lk_cross_entropy(graph, lk_linear(graph, x, "fc3", args->shape.classes));
    return LK_OK;
}

const lk_model lk__model_lenet5[] = {
    {{"lenet5", "LeNet-5: two convolutions and three linear layers (MNIST)", ""}, build, .usual = {1, 28, 28, 10}},
    {.build = NULL},
};
