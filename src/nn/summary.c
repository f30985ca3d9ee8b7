/* summary.c - counts layers, parameters and multiply-adds. */
#include "nn/summary.h"

#include "nn/op.h"

lk_layer_summary lk__layer_summary(const lk_graph *graph, size_t index)
{
    const lk_layer *layer = &graph->layers[index];
    lk_layer_summary summary = {.op = layer->op->name, .name = layer->name, .output = layer->shape};
    for (int slot = 0; slot < layer->param_count; slot++)
        summary.parameters += lk__op_slot_count(&layer->params[slot]);
    if (layer->op->macs)
        summary.macs = layer->op->macs(layer, lk__op_input_shape(graph, layer, 0));
    return summary;
}

lk_graph_summary lk__graph_summary(const lk_graph *graph)
{
    lk_graph_summary total = {.layers = (size_t)graph->count};
    for (size_t i = 0; i < total.layers; i++) {
        const lk_layer *layer = &graph->layers[i];
        lk_layer_summary summary = lk__layer_summary(graph, i);
        total.parameters += summary.parameters;
        total.macs += summary.macs;
        total.tensors += (size_t)layer->param_count;
        total.entries += (size_t)(layer->param_count + layer->buffer_count + layer->counts_batches);
    }
    return total;
}
