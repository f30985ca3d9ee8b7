/* cnn.c - the MNIST network of the PyTorch examples: two convolutions, two
 * linear layers; 1,199,882 parameters on 1x28x28. */
#include "base/spec.h"
#include "nn/models/models.h"

lk_status lk__model_cnn(const char *spec, lk_model_shape shape, lk_graph *graph)
{
    double dropout = 1;
    const lk_spec_key keys[] = {{.name = "dropout", .value = &dropout, .min = 0, .max = 1, .whole = true}};
    LK_TRY(lk__spec_params(spec, "--model", keys, 1));
    lk_node x = lk_input(graph, shape.channels, shape.height, shape.width);
    x = lk_relu(graph, lk_conv2d(graph, x, "conv1", (lk_conv2d_opts){.out = 32, .kernel = 3}));
    x = lk_relu(graph, lk_conv2d(graph, x, "conv2", (lk_conv2d_opts){.out = 64, .kernel = 3}));
    x = lk_maxpool2d(graph, x, (lk_maxpool2d_opts){.kernel = 2});
    x = lk_dropout(graph, x, 0.25 * dropout);
    x = lk_flatten(graph, x);
    x = lk_relu(graph, lk_linear(graph, x, "fc1", 128));
    x = lk_dropout(graph, x, 0.5 * dropout);
    x = lk_linear(graph, x, "fc2", shape.classes);
    lk_nll_loss(graph, lk_log_softmax(graph, x));
    return LK_OK;
}
