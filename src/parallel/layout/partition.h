/* partition.h - cutting a graph into stages, as pure arithmetic over its layers. */
#ifndef LK_PARALLEL_LAYOUT_PARTITION_H
#define LK_PARALLEL_LAYOUT_PARTITION_H

#include "nn/graph.h"

enum { LK_MAX_STAGES = 256, LK_LAYER_TEXT = 2 * LK_MAX_NAME };

/* Where the stages of a graph begin: stage s is layers [first[s], first[s+1]).
 * first[0] is 1 (layer 0 is the input), first[stages] the layer count. spec is
 * a number, or the names "fc1,fc2" of the layers at which stages 1, 2 ... begin.
 * A name is a layer's, or what comes before a dot in it: "layer2" is the first
 * layer of "layer2.".
 *
 * At a cut one tensor crosses, the result of the layer before it. A number of
 * stages is cut so that the most costly one costs least, the earliest of equal
 * ways; but as long as there are enough such places, only directly before layers
 * that have parameters, with parameters in every stage, and not between a
 * convolution and its BatchNorm. */
lk_status lk__partition(const lk_graph *graph, const char *spec, int *stages, int first[LK_MAX_STAGES + 1]) LK_CHECKED;

/* Stages that a spec asks for, without a look at the graph; NULL: 1. 0 for a
 * number that is out of range, and where a name is missing. */
int lk__partition_count(const char *spec);

/* A layer as users know it: "fc1", or "relu after fc1". Returns text. */
const char *lk__partition_layer_text(const lk_graph *graph, int index, char text[LK_LAYER_TEXT]);

#endif
