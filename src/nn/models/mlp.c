/* mlp.c - networks of linear layers only: mlp, fc and debug. */
#include "base/spec.h"
#include "nn/models/models.h"

/* Four linear layers in two parts, suited for two stages; 59,210 parameters on 1x28x28. */
static lk_status build_mlp(const lk_model_args *args, lk_graph *graph)
{
    double hidden = 64;
    const lk_spec_key keys[] = {{.name = "hidden", .value = &hidden, .min = 1, .max = 1 << 20, .whole = true}};
    LK_TRY(lk__spec_params(args->spec, "`model`", keys, 1));
    size_t width = (size_t)hidden;
    lk_node x = lk_flatten(graph, lk__model_input(args, graph));
    x = lk_relu(graph, lk_linear(graph, x, "chunk1.1", width));
    x = lk_relu(graph, lk_linear(graph, x, "chunk1.3", width));
    x = lk_relu(graph, lk_linear(graph, x, "chunk2.0", width));
    x = lk_linear(graph, x, "chunk2.2", args->shape.classes);
    lk_cross_entropy(graph, x);
    return LK_OK;
}

/* LeNet-300-100; 266,610 parameters on 1x28x28. */
static lk_status build_fc(const lk_model_args *args, lk_graph *graph)
{
    LK_TRY(lk__spec_params(args->spec, "`model`", NULL, 0));
    lk_node x = lk_flatten(graph, lk__model_input(args, graph));
    x = lk_relu(graph, lk_linear(graph, x, "fc1", 300));
    x = lk_relu(graph, lk_linear(graph, x, "fc2", 100));
    lk_cross_entropy(graph, lk_linear(graph, x, "fc3", args->shape.classes));
    return LK_OK;
}

/* The smallest model, for trying how ranks start and connect. */
static lk_status build_debug(const lk_model_args *args, lk_graph *graph)
{
    LK_TRY(lk__spec_params(args->spec, "`model`", NULL, 0));
    lk_node x = lk_flatten(graph, lk__model_input(args, graph));
    lk_cross_entropy(graph, lk_linear(graph, x, "fc", args->shape.classes));
    return LK_OK;
}

const lk_model lk__model_mlp[] = {
    {{"mlp", "four linear layers", "hidden=64"}, build_mlp, .usual = {1, 28, 28, 10}},
    {{"fc", "LeNet-300-100: three linear layers", ""}, build_fc, .usual = {1, 28, 28, 10}},
    {{"debug", "one linear layer", ""}, build_debug, .usual = {1, 28, 28, 10}},
    {.build = NULL},
};
