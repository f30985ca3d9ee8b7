/* cnn.c - the MNIST network of the PyTorch examples: two convolutions, two linear layers; 1,199,882 parameters
 * on 1x28x28.
 *
 * "dropout2d" selects the older form, where both dropouts are Dropout2d: the first drops channels; the second
 * is applied to a vector, where a channel is an element. */
#include "base/spec.h"
#include "nn/models/models.h"

static lk_status build(const lk_model_args *args, lk_graph *graph)
{
    double dropout = 1, channels = 0;
    const lk_spec_key keys[] = {{.name = "dropout", .value = &dropout, .min = 0, .max = 1, .whole = true},
                                {.name = "dropout2d", .value = &channels, .min = 0, .max = 1, .whole = true}};
    LK_TRY(lk__spec_params(args->spec, "`model`", keys, 2));
    lk_node (*drop)(lk_graph *, lk_node, double) = channels > 0 ? lk_dropout2d : lk_dropout;
    lk_node x = lk__model_input(args, graph);
    x = lk_relu(graph, lk_conv2d(graph, x, "conv1", (lk_conv2d_opts){.out = 32, .kernel = 3}));
    x = lk_relu(graph, lk_conv2d(graph, x, "conv2", (lk_conv2d_opts){.out = 64, .kernel = 3}));
    x = lk_maxpool2d(graph, x, (lk_maxpool2d_opts){.kernel = 2});
    x = drop(graph, x, 0.25 * dropout);
    x = lk_flatten(graph, x);
    x = lk_relu(graph, lk_linear(graph, x, "fc1", 128));
    x = drop(graph, x, 0.5 * dropout);
    x = lk_linear(graph, x, "fc2", args->shape.classes);
    lk_nll_loss(graph, lk_log_softmax(graph, x));
    return LK_OK;
}

const lk_model lk__model_cnn[] = {
    {{"cnn", "two convolutions and two linear layers (MNIST)", "dropout=1 (0: off), dropout2d=0 (1: of channels)"},
     build,
     .usual = {1, 28, 28, 10}},
    {.build = NULL},
};
