/* params.h - a graph's parameters, gradients and buffers on a device.
 *
 * Parameters and gradients are two flat arrays with the same offsets, the last layer first: backward fills them
 * from the front, so a finished prefix can be summed and updated while the rest is still being computed. Each
 * tensor is in PyTorch's element order or in the device's own, and starts on a cache line; gaps and pads stay
 * zero. Gradients have `slots` copies of the array: the partial sums of shards.h.
 *
 * A stage of a pipeline has the layers [first,last) only. All arrays but offsets and counters are device
 * memory. */
#ifndef LK_NN_PARAMS_H
#define LK_NN_PARAMS_H

#include <stdbool.h>

#include <lockstep/state.h>

#include "nn/graph.h"
#include "tensor/device.h"

typedef struct lk_params {
    const lk_graph *graph;                   /* borrowed */
    lk_device *dev;                          /* borrowed */
    int first, last;                         /* layers of this stage; the offsets of other layers are meaningless */
    size_t count;                            /* elements of params, gaps included */
    size_t buffer_count;                     /* elements of buffers, gaps included */
    float *params;                           /* (count) */
    void *values;                            /* (count) the same in the device's value type, or params itself */
    float *grads;                            /* (slots, count), set and owned by the caller */
    float *buffers;                          /* flat, in layer order */
    lk_flag *flag;                           /* result of the last search for non-finite values */
    double *squares;                         /* sums of squares of blocks of grads; NULL until first used */
    lk_norm *norm;                           /* of grads, from the squares; NULL until first used */
    size_t (*param_offset)[LK_MAX_PARAMS];   /* (layers) */
    size_t (*buffer_offset)[LK_MAX_BUFFERS]; /* (layers) */
    int64_t *batches;                        /* (layers) num_batches_tracked */
} lk_params;

/* For the layers [first,last). */
lk_status lk__params_create(const lk_graph *graph, lk_device *dev, int first, int last, lk_params **out) LK_CHECKED;
void lk__params_destroy(lk_params *params);

/* The values that count and buffer_count of these layers would have. lk__params_measure allocates nothing. */
typedef struct lk_params_size {
    size_t count, buffer_count;
} lk_params_size;
lk_params_size lk__params_measure(const lk_graph *graph, const lk_device *dev, int first, int last);

/* Elements of a layer's parameter on this device, with pads, without the gap. */
size_t lk__params_elements(const lk_graph *graph, const lk_device *dev, const lk_layer *layer, int slot);
/* The end of the gap after a parameter. */
size_t lk__params_end(const lk_params *params, const lk_layer *layer, int slot);

/* Enqueues the conversion of elements [begin,end) of params to values. All functions here that change params
 * call it. */
void lk__params_round(const lk_params *params, size_t begin, size_t end);

/* Fills each parameter and buffer as its slot says. The values do not depend on the number of threads. */
lk_status lk__params_init(lk_params *params, uint64_t seed, int threads) LK_CHECKED;

/* Copies in PyTorch's key order. Gradients are slot 0. Keys of layers of other stages are included; all their
 * bytes are zero. */
lk_status lk__params_export(const lk_params *params, lk_state **out) LK_CHECKED;
lk_status lk__params_export_grads(const lk_params *params, lk_state **out) LK_CHECKED;
/* MISMATCH, with the key, unless a state has exactly the keys of the whole graph; counters of batches may be
 * missing. */
lk_status lk__params_check(const lk_params *params, const lk_state *state) LK_CHECKED;
/* Checks the keys of the whole graph before it changes anything. Counters that the state does not have start at
 * 0. */
lk_status lk__params_import(lk_params *params, const lk_state *state) LK_CHECKED;

/* A flat array on the same device with the parameters' offsets, such as an optimiser's. Its keys are "name.KEY"
 * with the parameter's KEY, or just the parameter's key if name is NULL. */
typedef struct lk_params_array {
    const char *name;
    float *data; /* (count) */
} lk_params_array;
enum { LK_MAX_ARRAY_KEY = LK_MAX_KEY + 32 };

/* Adds copies to state, in PyTorch's key order and of the whole graph. */
lk_status lk__params_export_array(const lk_params *params, lk_params_array array, lk_state *state) LK_CHECKED;
/* MISMATCH unless state has all keys of the array of this name; adds their number to *known. owner, such as
 * "the model", is used in the detail. */
lk_status lk__params_check_array(const lk_params *params, const char *name, const lk_state *state, const char *owner,
                                 size_t *known) LK_CHECKED;
/* Whether the array of this name has this key. */
bool lk__params_array_has(const lk_params *params, const char *name, const char *key);
/* The state must have been checked. */
lk_status lk__params_import_array(const lk_params *params, const lk_state *state, lk_params_array array) LK_CHECKED;

/* A tensor that a state must have. */
typedef struct lk_params_key {
    char name[LK_MAX_ARRAY_KEY];
    lk_dtype dtype;
    int ndim;
    const size_t *dims;
} lk_params_key;
/* MISMATCH, with the key and owner, unless state has this tensor. */
lk_status lk__params_key_check(const lk_params_key *key, const lk_state *state, const char *owner) LK_CHECKED;

/* The key of the parameter that holds element `offset` of the flat array. */
void lk__params_key_at(const lk_params *params, size_t offset, char key[LK_MAX_KEY]);

#endif
