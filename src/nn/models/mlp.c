/* mlp.c - four linear layers in two chunks, as a model that is cut in two
 * wants them; 59,210 parameters on 1x28x28. */
#include "base/spec.h"
#include "nn/models/models.h"

lk_status lk__model_mlp(const char *spec, lk_model_shape shape, lk_graph *graph)
{
    double hidden = 64;
    const lk_spec_key keys[] = {{.name = "hidden", .value = &hidden, .min = 1, .max = 1 << 20, .whole = true}};
    LK_TRY(lk__spec_params(spec, "--model", keys, 1));
    size_t width = (size_t)hidden;
    lk_node x = lk_input(graph, shape.channels, shape.height, shape.width);
    x = lk_flatten(graph, x);
    x = lk_relu(graph, lk_linear(graph, x, "chunk1.1", width));
    x = lk_relu(graph, lk_linear(graph, x, "chunk1.3", width));
    x = lk_relu(graph, lk_linear(graph, x, "chunk2.0", width));
    x = lk_linear(graph, x, "chunk2.2", shape.classes);
    lk_cross_entropy(graph, x);
    return LK_OK;
}
