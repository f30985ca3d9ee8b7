/* plan.h - a graph compiled for a device: a list of calls with all memory
 * placed ahead.
 *
 * A plan runs waves of at most `capacity` samples. Running allocates nothing.
 * Compilation decides which layers work in place, which ReLUs are done by the
 * layer before them and where each activation and gradient lives; none of it
 * changes a result. */
#ifndef LK_NN_PLAN_H
#define LK_NN_PLAN_H

#include "nn/op.h"
#include "nn/params.h"

typedef struct lk_plan_opts {
    size_t capacity; /* samples in a wave */
    int shards;      /* of the run */
    int slots;       /* partial sums that `carried` memory must hold */
} lk_plan_opts;

typedef struct lk_plan lk_plan;

/* graph and params are borrowed and must outlive the plan. */
lk_status lk__plan_create(const lk_graph *graph, lk_params *params, const lk_plan_opts *opts, lk_plan **out) LK_CHECKED;
void lk__plan_destroy(lk_plan *plan);

/* Where the wave's samples go, (capacity, h, w, c) on the device. */
float *lk__plan_input(const lk_plan *plan);

/* Forward through all layers: fills wave->loss and wave->correct. */
void lk__plan_forward(lk_plan *plan, const lk_wave *wave);
/* Backward through all layers; the wave's forward must have been the last. */
void lk__plan_backward(lk_plan *plan, const lk_wave *wave);
/* After the step's last wave, given here again, when its results are found
 * finite. */
void lk__plan_finish(lk_plan *plan, const lk_wave *wave);

/* Whether a layer needs sums over all samples in mid-pass: then a step is one
 * wave under LK_BN_BATCH. */
bool lk__graph_has_sums(const lk_graph *graph);

#endif
