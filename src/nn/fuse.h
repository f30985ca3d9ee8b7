/* fuse.h - which layers of a plan compute parts of other layers, and which share memory; chosen before memory
 * is assigned. No choice changes a result. */
#ifndef LK_NN_FUSE_H
#define LK_NN_FUSE_H

#include "nn/op.h"

/* The choices for one layer. Layers are referred to by their index. */
typedef struct lk_fuse_choice {
    int consumers;
    bool needs_grad;    /* this layer or one before it has a parameter that is not frozen, or is the graph's
                         * input whose gradient is wanted */
    int value;          /* layer whose block holds y */
    int grad;           /* layer whose block holds dy */
    int forward;        /* layer whose forward runs at this layer's turn; -1: none */
    int other;          /* layer whose value it adds to y, in place of the addition that follows; -1: none */
    int dropout;        /* dropout layer that follows, maybe behind a ReLU, and that this layer applies; -1: none */
    int masked_dropout; /* dropout layer before it whose gradient it computes with that of the ReLU; -1: none */
    bool relu;          /* applies the ReLU or ReLU6 that follows */
    bool six;           /* the ReLU that follows is a ReLU6 */
    bool relu_grad;     /* computes the gradient of the ReLU that follows */
    bool mask;          /* computes the gradient of the ReLU before it, or before that dropout */
    bool mask_sum;      /* the same, in the addition of its dx to the gradients of the ReLU's other consumers */
    bool sum_elsewhere; /* the next layer in the backward pass does this addition */
    int rest;           /* layer whose dx it adds to dy when it sums over dy; -1: none */
    int signs;          /* layer whose forward writes the signs of the mask of that addition; -1: none */
    bool backward_elsewhere; /* a neighbour computes it: for a ReLU the layer before it or a consumer, for a dropout the
                              * layer before it, for both together the layer after the dropout, for a pooling the layer
                              * whose pool it is */
    bool view;               /* its value and gradient are its input's: both passes do nothing */
    /* Max pooling that follows, maybe behind a ReLU, and that this layer computes; also of that ReLU. The block that
     * holds y has the pooling's result instead, the block that holds dy its gradient. -1: none */
    int pool;
} lk_fuse_choice;

/* Layers [first,last) of a graph on a device, as in plan.h. */
typedef struct lk_fuse_opts {
    const lk_graph *graph;
    const lk_device_type *type;
    int first, last;
    const bool *kept; /* (layers of the graph) their values are read after the pass: no other layer changes them; NULL:
                       * none */
    const unsigned *frozen; /* (layers of the graph) bit i: parameter i is frozen; NULL: none is */
    bool input_grads;       /* the gradient of the graph's input is wanted */
} lk_fuse_opts;

/* choices has an entry for each layer of the graph, all zero. */
void lk__fuse(const lk_fuse_opts *opts, lk_fuse_choice *choices);

#endif
