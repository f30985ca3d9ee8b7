/* partition.h - cutting a graph into stages: pure arithmetic over its layers. */
#ifndef LK_PARALLEL_LAYOUT_PARTITION_H
#define LK_PARALLEL_LAYOUT_PARTITION_H

#include "nn/graph.h"

enum { LK_MAX_STAGES = 256, LK_LAYER_TEXT = 2 * LK_MAX_NAME };

/* Cuts a graph into stages: stage s is layers [first[s], first[s+1]). first[0] is 1 (layer 0 is the
 * input), first[stages] is the number of layers. spec is a number of stages, or the names of the layers
 * at which stages 1, 2 ... begin: "fc1,fc2". A name is that of a layer or a prefix before a dot: "layer2"
 * is the first layer whose name begins with "layer2.".
 *
 * Exactly one tensor crosses a cut: the result of the layer before it. For a number of stages, the most
 * expensive stage is made as cheap as possible; of equally good partitions the earliest cuts are used. As
 * long as there are enough of them, only clean cuts are used: directly before a layer with parameters,
 * with parameters in every stage, and not between a convolution and its BatchNorm. */
lk_status lk__partition(const lk_graph *graph, const char *spec, int *stages, int first[LK_MAX_STAGES + 1]) LK_CHECKED;

/* The number of stages of a spec, without the graph; NULL: 1. 0 if the number is out of range or a name is
 * missing. */
int lk__partition_count(const char *spec);

/* Finds the layer whose value `word` names: by the name of its builder or of lk_name, or, for a layer without a name,
 * by its text, as "relu after fc1". The input and the loss have no such value. USAGE if there is no such layer, with a
 * list of all, or if several have this text; what: where the word was read, as "`outputs`". */
lk_status lk__partition_find_value(const lk_graph *graph, const char *word, const char *what, int *out) LK_CHECKED;

/* Writes a layer's name for messages: "fc1", or "relu after fc1". Returns text. */
const char *lk__partition_layer_text(const lk_graph *graph, int index, char text[LK_LAYER_TEXT]);

#endif
