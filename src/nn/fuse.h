/* fuse.h - what the layers of a plan do for each other and which of them share
 * memory, decided before it is placed. None of it changes a result. */
#ifndef LK_NN_FUSE_H
#define LK_NN_FUSE_H

#include "nn/op.h"

/* What is decided for one layer. Layers are named by their index. */
typedef struct lk_fuse_choice {
    int consumers;
    bool needs_grad; /* a parameter is in it or before it */
    int value;       /* layer whose block holds y */
    int grad;        /* layer whose block holds dy */
    int forward;     /* layer whose forward is done when this one's turn comes; -1: none's */
    int other;       /* layer whose value it adds to y, for the layer behind it; -1: none */
    int dropout;     /* layer that follows and whose passes are done by this one; -1: none */
    bool relu;       /* applies the ReLU that follows */
    bool mask;       /* takes the gradient of the ReLU before it */
    bool passes;     /* backward is done by a neighbour: a ReLU's by the layer after, a dropout's by that before */
    bool view;       /* its value and gradient are its input's: neither pass does anything */
} lk_fuse_choice;

/* Layers [first,last) of a graph on a device, as in plan.h. */
typedef struct lk_fuse_opts {
    const lk_graph *graph;
    const lk_device_type *type;
    int first, last;
} lk_fuse_opts;

/* choices has an entry for each layer of the graph, all zero. */
void lk__fuse(const lk_fuse_opts *opts, lk_fuse_choice *choices);

#endif
