/* engine_impl.h - the engine's memory, as the files of parallel/ see it. */
#ifndef LK_PARALLEL_STEP_ENGINE_IMPL_H
#define LK_PARALLEL_STEP_ENGINE_IMPL_H

#include <lockstep/engine.h>

#include "base/gate.h"
#include "nn/plan.h"
#include "optim/optim.h"
#include "parallel/layout/grid.h"
#include "parallel/step/buckets.h"
#include "parallel/step/waves.h"

/* Numbers that a leaf of the metrics' tree has: loss, correct, top5. */
enum { LK_METRIC_SUMS = 3 };

/* What a wave needs beside the plan's memory, from its forward to its backward. */
typedef struct lk_engine_lane {
    float *samples; /* device, (capacity, h, w, c) as they come; NULL where the plan's input is just that */
    /* To the next stage and to the one before. */
    lk_request *sent_value, *sent_grad;
    /* Copies of what goes there and of what comes from there (staging.h). */
    void *next_copy, *before_copy;
} lk_engine_lane;

/* A data set on the device (resident.h). */
typedef struct lk_resident lk_resident;
enum { LK_MAX_RESIDENTS = 2 };

/* Numbers of a step that its kernels read from device memory. */
typedef struct lk_engine_step_numbers {
    uint32_t step;  /* training steps counted before it, by which random numbers are found */
    uint32_t epoch; /* of its batch, by which transforms of placed samples are drawn */
} lk_engine_step_numbers;

/* What a step gets from the host beside its samples, in device memory: these, then the
 * ids and the labels of this rank's samples. */
typedef struct lk_engine_step_inputs {
    lk_engine_step_numbers numbers;
    uint64_t unused;                /* scalars begin at a multiple of 16 */
    char scalars[LK_SCALARS_BYTES]; /* the optimiser's */
} lk_engine_step_inputs;

/* The samples of a batch that are this rank's, and how the step is done with them. */
typedef struct lk_engine_part {
    const float *x; /* (count, h, w, c); NULL but in the first stage, and there with resident. With flag on the
                     * device, or NULL where the only wave has them in its lane */
    const lk_resident *resident;
    const int32_t *labels;
    const uint32_t *ids;
    size_t count; /* of this rank */
    size_t total; /* of all */
    uint32_t epoch;
    /* NULL: the step is done now, and the host looks at its results on the way. Else the
     * step is recorded: it is only enqueued, its samples and inputs are on the device, and
     * where the flag, device memory, is bad, it changes nothing. */
    const lk_flag *flag;
} lk_engine_part;

typedef struct lk_recorded lk_recorded;

struct lk_engine {
    lk_gate gate;
    lk_engine_opts opts; /* its texts are gone after creation */
    lk_graph *graph;
    lk_grid grid;
    lk_device *dev;
    lk_params *params;
    float *grads;     /* device: of params, where they are not the group's memory */
    float *shared;    /* the group's memory: gradients, or a copy of this rank's sums (staging.h); NULL: no group */
    float *sums_copy; /* of partial sums that are gathered in mid-pass (staging.h) */
    lk_plan *plan;
    lk_optim *optim;
    lk_waves *waves;
    lk_buckets *buckets;
    const lk_channel_type *channel; /* between the devices; NULL: the group sums gradients */
    lk_device_sums *direct;         /* where there is a channel */
    lk_engine_lane *lanes;
    int lane_count;
    size_t most;                   /* samples of this rank in a step */
    lk_engine_step_inputs *inputs; /* device, with ids and labels for that many */
    float *losses;   /* device, (batch): of a step's samples of all ranks, of which this one fills in its own */
    int32_t *places; /* device, (most): of their labels among the classes by score */
    lk_resident *residents[LK_MAX_RESIDENTS];
    lk_recorded *ahead;      /* NULL where steps are done one by one */
    int pending;             /* steps that were sent and whose results were not received */
    bool at_once;            /* the only one of them is done: */
    lk_metrics finished;     /* its results */
    uint64_t equal_at;       /* steps counted when replicas were last known to be equal */
    bool replicas_differ;    /* the last comparison found it */
    bool has_grads;          /* gradients of the last step are there: */
    bool ready;              /* and no update was made by them */
    bool agreed;             /* every rank has the failure at hand */
    bool doubtful;           /* some rank has gradients so large that their sum may not be finite */
    int (*level)(void *arg); /* what this rank raises; NULL: nothing */
    void *level_arg;
    int raised;    /* the largest of all ranks, in the last step or evaluation */
    int raised_by; /* the rank that raised it, where it is above 0 */

    /* Of the step or evaluation at hand; host. */
    float *loss;                      /* (samples of this rank) */
    int32_t *place;                   /* the same, as places */
    size_t results;                   /* room in both */
    double (*leaves)[LK_METRIC_SUMS]; /* (shards of this rank) */
    lk_metrics own;                   /* of this rank's samples in the last step */
    lk_waits waits;
};

/* Whether this rank computes losses. */
static inline bool lk__engine_has_losses(const lk_engine *engine)
{
    return engine->grid.stage == engine->grid.stages - 1;
}

#endif
