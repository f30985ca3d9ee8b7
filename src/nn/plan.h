/* plan.h - layers of a graph compiled for a device: a list of calls with all
 * memory placed ahead.
 *
 * A plan runs waves of at most `capacity` samples through the layers
 * [first,last) of its graph: all of them, or one stage of a pipeline, whose
 * input is the value of layer first - 1. Running allocates nothing. Compilation
 * decides what layers do for each other (fuse.h) and where each activation and
 * gradient lives; none of it changes a result. */
#ifndef LK_NN_PLAN_H
#define LK_NN_PLAN_H

#include "nn/op.h"
#include "nn/params.h"

/* What a plan asks of who runs it. */
typedef struct lk_plan_hooks {
    void *arg;
    /* At a sync point: mine is (own_roots, width), this rank's partial sums; all
     * ranks' go to all, (all_roots, width), in the order of shards. Both are the
     * device's memory. NULL: this rank's are all there are. */
    lk_status (*gather)(void *arg, const float *mine, size_t width, float *all);
    /* After each layer: the first `done` elements of the flat gradients have
     * this wave's part (0 in forward). NULL: nobody wants to know. */
    lk_status (*layer_done)(void *arg, const lk_op_wave *wave, size_t done);
} lk_plan_hooks;

typedef struct lk_plan_opts {
    int first, last;
    size_t capacity; /* samples in a wave */
    int lanes;       /* waves between their forward and their backward */
    int shards;      /* of this rank */
    int slots;       /* partial sums of this rank alive at once */
    int all_roots;   /* partial sums that all ranks leave */
    int total_slots; /* of those, alive at once while they are folded */
    lk_plan_hooks hooks;
} lk_plan_opts;

typedef struct lk_plan lk_plan;

/* graph and params are borrowed and must outlive the plan. */
lk_status lk__plan_create(const lk_graph *graph, lk_params *params, const lk_plan_opts *opts, lk_plan **out) LK_CHECKED;
void lk__plan_destroy(lk_plan *plan);

/* Bytes of the device's memory that such a plan has, which is not made. */
typedef struct lk_plan_size {
    size_t activations; /* and their gradients */
    size_t sums;        /* partial sums of layers that sum over samples in mid-pass */
    size_t scratch;     /* of kernels */
} lk_plan_size;
lk_status lk__plan_measure(const lk_graph *graph, lk_device *dev, const lk_plan_opts *opts,
                           lk_plan_size *out) LK_CHECKED;

/* Where a wave's samples go, or what the stage before sends: (capacity, h, w, c)
 * on the device; the gradient that goes back to it, NULL when none is wanted.
 * Both tensors have one sample. */
lk_tensor lk__plan_input(const lk_plan *plan, int lane);
lk_tensor lk__plan_input_grad(const lk_plan *plan, int lane);
/* What the next stage gets, and the gradient that comes from it; NULL in the
 * last stage, and when no gradient is wanted. */
lk_tensor lk__plan_output(const lk_plan *plan, int lane);
lk_tensor lk__plan_output_grad(const lk_plan *plan, int lane);

/* Forward through all layers; the loss fills wave->loss and wave->label_rank.
 * Failures are the hooks'. */
lk_status lk__plan_forward(lk_plan *plan, const lk_op_wave *wave) LK_CHECKED;
/* Backward through all layers; the wave's forward must have been the last in its
 * lane. */
lk_status lk__plan_backward(lk_plan *plan, const lk_op_wave *wave) LK_CHECKED;
/* After the step's last wave, given here again, when its results are found
 * finite, or where wave->flag will tell: running statistics. */
lk_status lk__plan_finish(lk_plan *plan, const lk_op_wave *wave) LK_CHECKED;
/* Counts so many steps in the layers that do, which may be below 0. */
void lk__plan_count(lk_plan *plan, int64_t steps);

/* Whether such a layer keeps a step from being split into waves. */
static inline bool lk__graph_takes_one_wave(const lk_graph *graph, lk_bn_mode bn)
{
    return bn == LK_BN_BATCH && lk__graph_has_sums(graph);
}

#endif
