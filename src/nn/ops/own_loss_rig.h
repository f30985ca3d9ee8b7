/* own_loss_rig.h - an own loss on a device, outside of a plan, for lk_loss_check. */
#ifndef LK_NN_OPS_OWN_LOSS_RIG_H
#define LK_NN_OPS_OWN_LOSS_RIG_H

#include "nn/ops/own_trial.h"

/* Host memory: what a loss gets and gives. */
typedef struct lk_op_loss_arrays {
    float *x;                     // (n, floats)
    float *targets;               // (n, target_floats)
    int32_t *labels;              // (n)
    float *weights;               // (n)
    float *loss;                  // (n)
    float *dx;                    // (n, floats)
    int32_t *rank;                // (n); INT32_MAX: none
    size_t floats, target_floats; /* of a sample */
} lk_op_loss_arrays;

/* Allocates all arrays; lk__op_loss_arrays_fini also frees what a failure has left. */
lk_status lk__op_loss_arrays_init(size_t n, size_t floats, size_t target_floats, lk_op_loss_arrays *out) LK_CHECKED;
void lk__op_loss_arrays_fini(lk_op_loss_arrays *arrays);

typedef struct lk_op_loss_rig {
    const lk_layer *layer;
    size_t n, target_floats;
    lk_device *dev; /* NULL: not open */
    lk_tensor x, dx;
    float *targets, *weights, *loss, *error, *staging;
    int32_t *labels, *rank;
    void *scratch;
} lk_op_loss_rig;

/* Opens the device for n samples. lk__op_loss_rig_fini also closes a rig that was opened in part. */
lk_status lk__op_loss_rig_init(const lk_layer *layer, size_t n, const char *device, int threads,
                               lk_op_loss_rig *out) LK_CHECKED;
void lk__op_loss_rig_fini(lk_op_loss_rig *rig);

/* How a run is divided. */
typedef struct lk_op_loss_way {
    size_t part;   /* samples of a wave */
    bool weighted; /* by arrays->weights */
    float scale;   /* factor of the gradient */
} lk_op_loss_way;

/* Runs the layer wave by wave from x, targets, labels and weights of `in` to loss, dx and rank of out. Results contain
 * NaN before. */
lk_status lk__op_loss_rig_run(const lk_op_loss_rig *rig, lk_op_loss_way way, const lk_op_loss_arrays *in,
                              lk_op_loss_arrays *out) LK_CHECKED;
/* Calls the function for the device by itself, with one sample and with all, in memory with guards; nothing where the
 * device runs `sample`. MISMATCH if it writes outside of its results; loss is the name of the loss. */
lk_status lk__op_loss_rig_check_guards(const lk_op_loss_rig *rig, const char *loss,
                                       const lk_op_loss_arrays *in) LK_CHECKED;

#endif
