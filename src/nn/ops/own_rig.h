/* own_rig.h - one layer of an own op on a device, outside of a plan, for lk_op_check: runs it with given inputs, in a
 * given division into shards and waves, and reads the results. */
#ifndef LK_NN_OPS_OWN_RIG_H
#define LK_NN_OPS_OWN_RIG_H

#include "nn/ops/own_trial.h"

/* Host memory: all arrays of a run. Samples are (n, h, w, c). */
typedef struct lk_op_arrays {
    float *x[LK_OP_MAX_INPUTS];     // (n, h, w, c)
    float *dy;                      // (n, h, w, c)
    float *param[LK_OP_MAX_PARAMS]; // as the layer's params
    float *y;                       // (n, h, w, c)
    float *dx[LK_OP_MAX_INPUTS];    // (n, h, w, c)
    float *grad[LK_OP_MAX_PARAMS];  // as the layer's params
} lk_op_arrays;

/* Has room for all samples and for one shard for each sample. */
typedef struct lk_op_rig {
    const lk_layer *layer;
    size_t n;
    lk_device *dev; /* NULL: not open */
    lk_tensor x[LK_OP_MAX_INPUTS], y, dy, dx[LK_OP_MAX_INPUTS];
    float *param[LK_OP_MAX_PARAMS];
    lk_partials grad[LK_OP_MAX_PARAMS];
    char *saved; /* (n, saved_bytes): one for each wave */
    size_t saved_bytes;
    void *scratch;
    float *staging; /* dense, for the largest tensor */
} lk_op_rig;

/* How a run is divided. */
typedef struct lk_op_way {
    int threads;    /* of the rig */
    int shards;     /* at most n */
    int wave;       /* shards of a wave; 0: all */
    unsigned no_dx; /* bit i: the gradient of input i is not wanted */
} lk_op_way;

/* Allocates all arrays; lk__op_arrays_fini also frees what a failure has left. */
lk_status lk__op_arrays_init(const lk_layer *layer, size_t n, lk_op_arrays *out) LK_CHECKED;
void lk__op_arrays_fini(lk_op_arrays *arrays);

/* Opens the device. lk__op_rig_fini also closes a rig that was opened in part. */
lk_status lk__op_rig_init(const lk_layer *layer, size_t n, const char *device, int threads, lk_op_rig *out) LK_CHECKED;
void lk__op_rig_fini(lk_op_rig *rig);

/* Forward for all waves, then backward for all waves, from x, dy and param of `in` to y, dx and grad of out. Results
 * and workspace contain NaN before. */
lk_status lk__op_rig_run(const lk_op_rig *rig, lk_op_way way, const lk_op_arrays *in, lk_op_arrays *out) LK_CHECKED;
/* Only forward, in one wave. */
lk_status lk__op_rig_forward(const lk_op_rig *rig, const lk_op_arrays *in, float *y) LK_CHECKED;

/* Calls the program's functions by themselves, with one sample and with all of `in`, in memory with guards. MISMATCH if
 * they write outside of their results; `op` is the op's name. */
lk_status lk__op_rig_check_guards(const lk_op_rig *rig, const char *op, const lk_op_arrays *in) LK_CHECKED;

#endif
