/* frozen.h - frozen parameters of a plan: which gradients are not computed, and clearing those that are. */
#ifndef LK_NN_FROZEN_H
#define LK_NN_FROZEN_H

#include "nn/op.h"

/* All zero: no parameter is frozen. */
typedef struct lk_frozen {
    const lk_graph *graph; /* borrowed */
    lk_device *dev;        /* borrowed */
    unsigned *slots;       /* (layers of the graph) bit i: parameter i is frozen; NULL: none is */
} lk_frozen;

/* Copies slots. */
lk_status lk__frozen_init(lk_frozen *frozen, const lk_graph *graph, lk_device *dev, const unsigned *slots) LK_CHECKED;
void lk__frozen_fini(lk_frozen *frozen);

/* Whether the layer has a parameter that is not frozen. */
bool lk__frozen_trains(const unsigned *slots, const lk_layer *layer);
/* Whether the layer computes no gradient of this parameter. */
bool lk__frozen_skips(const lk_frozen *frozen, const lk_layer *layer, int slot);
/* After a layer's backward pass: in the last wave, clears the gradients of frozen parameters that the layer had to
 * compute. */
void lk__frozen_clear(const lk_frozen *frozen, const lk_op_call *call);

#endif
