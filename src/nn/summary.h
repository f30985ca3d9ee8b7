/* summary.h - the size of a graph and the cost of computing it. */
#ifndef LK_NN_SUMMARY_H
#define LK_NN_SUMMARY_H

#include "nn/graph.h"

typedef struct lk_layer_summary {
    const char *op, *name; /* name is "" if the layer has none */
    lk_shape output;       /* of one sample */
    size_t parameters;     /* elements */
    double macs;           /* multiply-adds of one sample's forward pass */
} lk_layer_summary;

typedef struct lk_graph_summary {
    size_t layers;
    size_t parameters; /* elements */
    size_t tensors;    /* number of parameter tensors */
    size_t entries;    /* entries of the state */
    double macs;       /* multiply-adds of one sample's forward pass */
} lk_graph_summary;

/* index is in [0, layers). Points into the graph. */
lk_layer_summary lk__layer_summary(const lk_graph *graph, size_t index);
lk_graph_summary lk__graph_summary(const lk_graph *graph);

#endif
