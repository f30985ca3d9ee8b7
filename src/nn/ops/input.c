/* input.c - the input of a graph: one sample. */
#include "nn/op.h"

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    if (graph->count > 0)
        return lk__fail(LK_STATUS_USAGE, "layer %d: a graph has one input, as its first node", layer->index);
    lk_shape shape = layer->shape;
    if (!shape.c || !shape.h || !shape.w)
        return lk__fail(LK_STATUS_USAGE, "the input's shape %zux%zux%zu is empty", shape.c, shape.h, shape.w);
    return LK_OK;
}

static const lk_op input_op = {.name = "input", .infer = infer};

lk_node lk_input(lk_graph *graph, size_t channels, size_t height, size_t width)
{
    lk_layer layer = {.op = &input_op, .shape = {.n = 1, .c = channels, .h = height, .w = width}};
    return lk__graph_add_layer(graph, layer, NULL, NULL, 0);
}
