/* plan.h - layers of a graph compiled for a device: a list of calls whose memory is assigned in advance.
 *
 * A plan runs waves of at most `capacity` samples through the layers [first,last) of its graph: all of them, or
 * one stage of a pipeline, whose input is the value of layer first - 1. Running allocates nothing. Compilation
 * chooses which layers compute parts of others (fuse.h) and where each activation and gradient is stored; no
 * choice changes a result. */
#ifndef LK_NN_PLAN_H
#define LK_NN_PLAN_H

#include "nn/op.h"
#include "nn/params.h"

/* Functions of the caller that a plan calls. */
typedef struct lk_plan_hooks {
    void *arg;
    /* Called at a synchronisation point. mine is (own_roots, width): this rank's partial sums. all is
     * (all_roots, width): those of all ranks, in the order of shards. Both are device memory. NULL: there is
     * one rank. */
    lk_status (*gather)(void *arg, const float *mine, size_t width, float *all);
    /* Called after each layer: this wave's part of the first `done` elements of the flat gradients is complete
     * (0 in forward). NULL: not called. */
    lk_status (*layer_done)(void *arg, const lk_op_wave *wave, size_t done);
} lk_plan_hooks;

typedef struct lk_plan_opts {
    int first, last;
    size_t capacity;  /* samples in a wave */
    int lanes;        /* waves that can be between their forward and backward passes */
    int shards;       /* of this rank */
    int slots;        /* partial sums of this rank in use at once */
    int all_roots;    /* partial sums of all ranks after the last wave */
    int total_slots;  /* of these, in use at once while they are folded */
    const bool *kept; /* (layers of the graph) layers whose values lk__plan_value returns; borrowed. NULL: none */
    bool input_grads; /* backward computes the gradient of the graph's input */
    lk_plan_hooks hooks;
} lk_plan_opts;

typedef struct lk_plan lk_plan;

/* graph and params are borrowed and must outlive the plan. */
lk_status lk__plan_create(const lk_graph *graph, lk_params *params, const lk_plan_opts *opts, lk_plan **out) LK_CHECKED;
void lk__plan_destroy(lk_plan *plan);

/* Compiles the plan again for other frozen parameters, between steps: frozen is (layers of the graph), bit i: parameter
 * i of the layer is frozen. Nothing is computed for gradients that no trained parameter needs, and the plan does not
 * write the gradients of frozen parameters; after a step they are zero if they were zero before it. The plan stays as
 * it was if memory is short. */
lk_status lk__plan_freeze(lk_plan *plan, const unsigned *frozen) LK_CHECKED;

/* Device memory that such a plan would need, in bytes; allocates nothing. */
typedef struct lk_plan_size {
    size_t activations; /* and their gradients */
    size_t sums;        /* partial sums of layers that sum over samples during a pass */
    size_t scratch;     /* of kernels */
} lk_plan_size;
lk_status lk__plan_measure(const lk_graph *graph, lk_device *dev, const lk_plan_opts *opts,
                           lk_plan_size *out) LK_CHECKED;

/* The input of a lane: (capacity, h, w, c) on the device, for a wave's samples or the activation from the
 * previous stage; and its gradient, for the previous stage, NULL if none is wanted. Both tensors are described
 * with n = 1. */
lk_tensor lk__plan_input(const lk_plan *plan, int lane);
/* Whether a wave may have its samples in memory of the caller (lk_op_wave.samples): the device reads the host's memory
 * and stores activations as samples are stored, and no other stage reads the input. lk__plan_value then has no value of
 * the input, nor of a layer that shares its memory. */
bool lk__plan_takes_samples(const lk_plan *plan);
lk_tensor lk__plan_input_grad(const lk_plan *plan, int lane);
/* The activation for the next stage, and the gradient that comes back; NULL in the last stage, and if no
 * gradient is wanted. */
lk_tensor lk__plan_output(const lk_plan *plan, int lane);
lk_tensor lk__plan_output_grad(const lk_plan *plan, int lane);

/* The value of a kept layer of this plan, or of the input of its loss, after a forward pass that does not train:
 * described with n = 1, valid until the next pass in the lane. For a layer that is a view (fuse.h) this is its input's
 * value. */
lk_tensor lk__plan_value(const lk_plan *plan, int lane, int layer);

/* Forward through all layers; the loss fills the results of the wave (loss, label_rank, error), or is left out with
 * wave->no_loss.
 * Fails only if a hook fails. */
lk_status lk__plan_forward(lk_plan *plan, const lk_op_wave *wave) LK_CHECKED;
/* Backward through all layers. The last forward in the wave's lane must have been this wave's. */
lk_status lk__plan_backward(lk_plan *plan, const lk_op_wave *wave) LK_CHECKED;
/* Updates running statistics. Called with the last wave of the step, after its results were found finite, or if
 * wave->flag decides that on the device. */
lk_status lk__plan_finish(lk_plan *plan, const lk_op_wave *wave) LK_CHECKED;
/* Adds `steps`, which may be negative, to the counters of batches. */
void lk__plan_count(lk_plan *plan, int64_t steps);

/* Whether a layer prevents splitting a step into several waves. */
static inline bool lk__graph_takes_one_wave(const lk_graph *graph, lk_bn_mode bn)
{
    return bn == LK_BN_MODE_BATCH && lk__graph_has_sums(graph);
}

#endif
