/* engine_impl.h - the fields of an engine, for the files of parallel/. */
#ifndef LK_PARALLEL_STEP_ENGINE_IMPL_H
#define LK_PARALLEL_STEP_ENGINE_IMPL_H

#include <lockstep/engine.h>

#include "base/gate.h"
#include "nn/plan.h"
#include "optim/optim.h"
#include "parallel/layout/grid.h"
#include "parallel/step/buckets.h"
#include "parallel/step/links.h"
#include "parallel/step/meter.h"
#include "parallel/step/param_groups.h"
#include "parallel/step/waves.h"

/* Numbers in a leaf of the metrics' tree: loss, correct, top5, weight, absolute and squared error. */
enum { LK_METRIC_SUMS = 6 };

/* A lane: what a wave needs from its forward to its backward pass, besides the memory of the plan. */
typedef struct lk_engine_lane {
    float *samples; /* device, (capacity, h, w, c) f32; NULL if the plan's input has this layout */
    /* Activations sent to the next stage, and gradients sent to the previous one. */
    lk_request *sent_value, *sent_grad;
    /* Staging buffers for what is exchanged with these stages, both ways (staging.h); NULL with a link to it. */
    void *next_copy, *previous_copy;
} lk_engine_lane;

/* A cached data set (resident.h). */
typedef struct lk_resident lk_resident;
enum { LK_MAX_RESIDENTS = 2 };

/* The average of the weights (lk_engine_average); all NULL until the first call. */
typedef struct lk_engine_mean {
    float *params;    /* device, with the offsets of the parameters */
    float *buffers;   /* device, a copy */
    int64_t *batches; /* (layers) a copy */
    lk_sgd *rule;     /* device: the scalars of the last call */
} lk_engine_mean;

/* Numbers of a step or evaluation that its kernels read from device memory. */
typedef struct lk_engine_step_numbers {
    uint32_t step;  /* training steps before this one; random numbers are a function of it */
    uint32_t epoch; /* of the batch; transforms of cached samples are a function of it */
    uint32_t turn;  /* recorded steps and evaluations before this one; only for these */
} lk_engine_step_numbers;

/* The inputs of a step apart from its samples, in device memory. After the struct are the arrays of this rank's
 * samples (lk_engine_arrays). */
typedef struct lk_engine_step_inputs {
    lk_engine_step_numbers numbers;
    float weight_factor;            /* engine->weight_factor of a step that is done at once */
    char scalars[LK_SCALARS_BYTES]; /* of the optimiser */
} lk_engine_step_inputs;

/* The arrays of n samples, one after the other. Recorded steps have no weights. */
typedef struct lk_engine_arrays {
    uint32_t *ids;   // (n)
    int32_t *labels; // (n)
    float *targets;  // (n, engine->target_floats)
    float *weights;  // (n)
} lk_engine_arrays;
/* The outputs that a forward pass writes. */
typedef struct lk_engine_wanted {
    const lk_output *list;
    size_t count;
} lk_engine_wanted;
typedef struct lk_engine_outputs lk_engine_outputs; /* outputs.h */

/* This rank's samples of a batch, and how their step or evaluation is done. */
typedef struct lk_engine_part {
    const float *x; /* (count, h, w, c); NULL except at stage 0, and if resident is set. Host memory; in a recorded
                     * part device memory, or NULL if its only wave has the samples in its lane */
    const lk_resident *resident; /* the cached data set of the samples, or NULL */
    const int32_t *labels;       /* NULL if the loss learns float targets and the batch has no labels */
    const float *targets;        /* (count, engine->target_floats), or NULL */
    const float *weights;        /* (count), or NULL */
    const uint32_t *ids;
    const uint32_t *names; /* (count) what messages call the samples */
    size_t count;          /* samples of this rank */
    size_t total;          /* samples of all ranks */
    uint32_t epoch;
    bool eval; /* an evaluation */
    /* NULL: the part is done at once, and the host checks the results of a step during the step. Otherwise the part is
     * recorded: it is only enqueued, its samples and inputs are in device memory, and a step changes nothing if
     * the flag (device memory) is bad. */
    const lk_flag *flag;
    /* Outputs of an evaluation that computes no losses and reads no labels; NULL: it computes metrics. */
    const lk_engine_wanted *wanted;
} lk_engine_part;

/* The sizes of memory that depend on the range of shards that a rank trains. */
typedef struct lk_engine_extent {
    size_t capacity;                   /* samples in a wave */
    int shards;                        /* of the rank */
    int grad_slots;                    /* partial sums of gradients at once */
    int slots, all_roots, total_slots; /* as in lk_plan_opts */
} lk_engine_extent;

typedef struct lk_recorded lk_recorded;
typedef struct lk_marks lk_marks; /* marks.h */

struct lk_engine {
    lk_gate gate;
    lk_engine_opts opts; /* its strings are invalid after creation */
    lk_graph *graph;
    lk_grid grid;
    lk_device *dev;
    lk_params *params;
    float *grads;     /* device: the gradients; NULL if they are in `shared` */
    float *shared;    /* the group's memory: gradients, or a staging buffer for this rank's sums; NULL: no group */
    float *sums_copy; /* staging buffer for sums that are gathered during a pass */
    lk_plan *plan;
    lk_engine_outputs *outputs;
    lk_optim *optim;
    lk_param_groups groups;
    lk_engine_mean mean;
    lk_waves *waves; /* of training steps */
    lk_waves *even;  /* of evaluations, and of lk_engine_shard_range; `waves` itself until shards are moved */
    int *bounds;     /* (replicas + 1) replica r trains shards [bounds[r], bounds[r+1]); NULL: those of the grid */
    lk_engine_extent extent; /* that there is memory for; it only grows */
    lk_buckets *buckets;
    const lk_channel_type *channel; /* between the devices; NULL: the group sums gradients */
    bool own_sums;                  /* the group sums gradients in an order of its own (MPI) */
    lk_device_sums *device_sums;    /* NULL: no channel */
    lk_links links;                 /* to the devices of neighbouring stages */
    lk_engine_lane *lanes;
    int lane_count;
    size_t most;          /* the largest number of samples of this rank in a step */
    size_t room;          /* samples of this rank that there is memory for (room.h) */
    size_t target_floats; /* floats of a sample's target; 0: targets are labels, or this rank computes no losses */
    lk_engine_step_inputs *inputs; /* device, with the arrays of `room` samples */
    float *losses;        /* device, (batch or room): in a step losses of all ranks' samples, this rank computes its
                             own; in an evaluation only those of this rank's samples */
    int32_t *label_ranks; /* device, (room): label ranks of this rank's samples */
    float *errors;        /* device, (room, 2): of lk_loss_results; NULL if target_floats is 0 */
    lk_resident *residents[LK_MAX_RESIDENTS];
    lk_recorded *recorded; /* NULL: nothing can be recorded */
    lk_marks *marks;       /* NULL until a trace needs them */
    int pending;           /* steps and evaluations that were sent and not yet received */
    bool at_once;          /* the only pending one was done at once; its metrics are in `finished` */
    lk_metrics finished;
    uint64_t equal_at;    /* number of steps when the replicas were last known to be equal */
    bool replicas_differ; /* the last comparison found a difference */
    bool has_grads;       /* the gradients of the last step are valid */
    bool ready;           /* and no update has used them */
    float *input_grads; /* device, (most, h, w, c) of this rank's samples; NULL if not wanted, and except at stage 0 */
    size_t input_rows;  /* samples in them */
    bool has_input_grads; /* they are those of the last lk_engine_gradients */
    bool agreed;          /* every rank has the failure of this call, with the same detail */
    bool may_overflow;    /* some rank has such large gradients that their sum over the ranks may not be finite */
    int (*signal_source)(void *arg); /* or NULL */
    void *signal_arg;
    int agreed_signal;      /* the largest level of all ranks, in the last step or evaluation */
    int agreed_signal_rank; /* the rank that gave it, if it is above 0 */

    /* Results of the current step or evaluation, in host memory. */
    float *host_losses;               /* (room) of this rank's samples */
    int32_t *host_label_ranks;        /* (room) */
    float *host_errors;               /* (room, 2), or NULL */
    float weight_factor;              /* by which the gradient of the step must still be multiplied; see take_weights */
    double (*leaves)[LK_METRIC_SUMS]; /* (extent.shards) */
    lk_metrics own;                   /* of this rank's samples in the last step */
    bool norm_wanted;                 /* steps that are sent now compute the gradient's norm */
    double grad_norm;                 /* of the last step that was done at once or received; NaN: not computed */
    lk_waits waits;
    lk_engine_meter *meter; /* borrowed, or NULL */
};

/* Whether this rank computes losses. */
static inline bool lk__engine_has_losses(const lk_engine *engine)
{
    return engine->grid.stage == engine->grid.stages - 1;
}

/* The arrays of n samples after `inputs`, which may be host memory. */
static inline lk_engine_arrays lk__engine_arrays_at(const lk_engine *engine, lk_engine_step_inputs *inputs, size_t n)
{
    uint32_t *ids = (uint32_t *)(inputs + 1);
    float *targets = (float *)(ids + 2 * n);
    return (lk_engine_arrays){
        .ids = ids, .labels = (int32_t *)(ids + n), .targets = targets, .weights = targets + n * engine->target_floats};
}

/* Bytes of the inputs of a step of n samples, without the weights. */
static inline size_t lk__engine_input_bytes(const lk_engine *engine, size_t n)
{
    return sizeof(lk_engine_step_inputs) +
           n * (sizeof(uint32_t) + sizeof(int32_t) + engine->target_floats * sizeof(float));
}

static inline size_t lk__engine_sample_bytes(const lk_engine *engine, size_t count)
{
    return count * lk__shape_sample(engine->graph->layers[0].shape) * sizeof(float);
}

static inline size_t lk__engine_target_bytes(const lk_engine *engine, size_t count)
{
    return count * engine->target_floats * sizeof(float);
}

/* The shards that the replicas train: (replicas + 1). */
static inline const int *lk__engine_bounds(const lk_engine *engine)
{
    return engine->bounds ? engine->bounds : engine->grid.bounds;
}

/* The losses of this rank's samples in engine->losses. */
static inline float *lk__engine_own_losses(const lk_engine *engine, bool eval)
{
    return engine->losses + (eval ? 0 : lk__waves_sample(engine->waves, engine->waves->first));
}

#endif
