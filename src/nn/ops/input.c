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

const lk_op lk__op_input = {.name = "input", .infer = infer};
