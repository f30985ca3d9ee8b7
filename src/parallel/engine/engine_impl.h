/* engine_impl.h - the engine as the files of parallel/ see it. */
#ifndef LK_PARALLEL_ENGINE_ENGINE_IMPL_H
#define LK_PARALLEL_ENGINE_ENGINE_IMPL_H

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
    /* Device, (capacity). */
    uint32_t *ids;
    int32_t *labels, *place;
    float *loss;
    float *samples; /* (capacity, h, w, c) as they come; NULL where the plan's input is just that */
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

/* What a recorded step gets from the host, in device memory: these, then its ids and
 * its labels. Other steps use the first part. */
typedef struct lk_engine_step_inputs {
    lk_engine_step_numbers numbers;
    uint64_t unused;                /* scalars begin at a multiple of 16 */
    char scalars[LK_SCALARS_BYTES]; /* the optimiser's */
} lk_engine_step_inputs;

/* The samples of a batch that are this rank's. */
typedef struct lk_engine_part {
    const float *x; /* (count, h, w, c); NULL but in the first stage, and there with resident */
    const lk_resident *resident;
    const int32_t *labels;
    const uint32_t *ids;
    size_t count; /* of this rank */
    size_t total; /* of all */
    uint32_t epoch;
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
    lk_engine_step_inputs *inputs; /* device */
    lk_resident *residents[LK_MAX_RESIDENTS];
    lk_recorded *ahead;      /* NULL where steps are done one by one */
    int pending;             /* steps that were sent and whose results were not received */
    bool at_once;            /* the only one of them is done: */
    lk_metrics finished;     /* its results */
    uint64_t step;           /* the one at hand, from 1 */
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
    int32_t *place;                   /* the same: of labels among the classes by score */
    size_t results;                   /* room in both */
    double (*leaves)[LK_METRIC_SUMS]; /* (shards of this rank) */
    lk_metrics own;                   /* of this rank's samples in the last step */
    lk_waits waits;
};

/* build.c: opts with a default for all that is not given but threads, which
 * depend on the ranks of a host. */
lk_engine_opts lk__engine_defaults(const lk_engine_opts *opts);
/* Ends a call that ranks make together. A failure that the others cannot
 * know of breaks the job, with this rank's reason; returns status. */
lk_status lk__engine_tell(const lk_engine *engine, lk_status status) LK_CHECKED;
/* engine.c: enqueues the optimiser's step over these elements; where flag, device
 * memory or NULL, is bad, they stay. */
void lk__engine_update_range(lk_engine *engine, size_t begin, size_t end, const lk_flag *flag);
/* Begins a public call that works on the engine's memory, and ends it; leave returns
 * status. enter_idle is for what reads or changes the state: USAGE while steps are
 * under way. A call that was not begun has touched nothing, and no other rank is told. */
lk_status lk__engine_enter(const lk_engine *engine) LK_CHECKED;
lk_status lk__engine_enter_idle(const lk_engine *engine) LK_CHECKED;
lk_status lk__engine_leave(const lk_engine *engine, lk_status status) LK_CHECKED;
/* state.c: as lk_engine_set_state finds it, MISMATCH where it does not fit; but this
 * rank's alone, and the others are not told. */
lk_status lk__engine_check_state(const lk_engine *engine, const lk_state *state) LK_CHECKED;
/* Whether every rank has the failure of the engine's last call. */
bool lk__engine_agreed(const lk_engine *engine);
/* engine.c: steps taken when replicas were last known to be equal, by comparison or
 * because all took over one state. A replica alone is equal to all there are. */
uint64_t lk__engine_equal_at(const lk_engine *engine);
/* Whether the last comparison of the replicas found that they differ. */
bool lk__engine_replicas_differ(const lk_engine *engine);

/* passes.c: forward and backward of all waves; fills loss and place, and starts buckets
 * as they become final. */
lk_status lk__engine_run_waves(lk_engine *engine, const lk_engine_part *part) LK_CHECKED;
/* The gradients of shard s of this replica alone, in slot 0; all its stages do
 * it together. */
lk_status lk__engine_run_leaf(lk_engine *engine, const lk_engine_part *part, int s) LK_CHECKED;
/* Of a step that is one wave: brings its samples to the device, where they do not
 * live there; then, behind what brings its inputs, enqueues what becomes of them, or of
 * those of the data set, and gives the wave. */
lk_status lk__engine_upload_step(lk_engine *engine, const lk_engine_part *part) LK_CHECKED;
lk_op_wave lk__engine_take_step(lk_engine *engine, const lk_resident *resident);
/* Forward in evaluation mode of samples [begin, begin + n) of the part. */
lk_status lk__engine_run_eval(lk_engine *engine, const lk_engine_part *part, size_t begin, size_t n) LK_CHECKED;
/* The plan's hooks. */
lk_plan_hooks lk__engine_pass_hooks(lk_engine *engine);
/* Whether a step cannot be split into waves. */
static inline bool lk__engine_takes_one_wave(const lk_engine *engine)
{
    return lk__graph_takes_one_wave(engine->graph, engine->opts.bn);
}
/* Whether this rank computes losses. */
static inline bool lk__engine_has_losses(const lk_engine *engine)
{
    return engine->grid.stage == engine->grid.stages - 1;
}

/* metrics.c: fills leaves from loss and place, which are of this rank's samples in a batch
 * of `total`; returns the metrics of those. */
lk_metrics lk__metrics_leaves(lk_engine *engine, size_t total);
/* Together: the metrics of all `total` samples. */
lk_status lk__metrics_total(lk_engine *engine, size_t total, lk_metrics *out) LK_CHECKED;

/* engine.c: this rank's level and its rank in one word, 0 for level 0; and the largest
 * of all ranks' words, as what lk_engine_agreed_signal tells. */
int64_t lk__engine_raise(const lk_engine *engine);
void lk__engine_note_raised(lk_engine *engine, int64_t word);

/* What to do about it. */
extern const char lk__nonfinite_advice[];

/* blame.c, together, after backward: whether all ranks have parts of one batch
 * (else MISMATCH), and their losses and gradients are finite (else NONFINITE, with
 * step and parameter, or sample or tensor and shard). Every rank gets the same failure. */
lk_status lk__nonfinite_check_step(lk_engine *engine, const lk_engine_part *part) LK_CHECKED;
/* The first of these alone, for an evaluation. These bring the raised levels round. */
lk_status lk__nonfinite_check_total(lk_engine *engine, size_t total) LK_CHECKED;
/* The same for a recorded step, and whether it was bad at any rank. */
lk_status lk__nonfinite_check_recorded(lk_engine *engine, size_t total, bool *bad) LK_CHECKED;
/* Together: NONFINITE with the text of the rank whose place is lowest; those with none
 * have -1, and a rank alone fails by its own. */
lk_status lk__nonfinite_fail(lk_engine *engine, int place, const char *text) LK_CHECKED;
/* Together, where a step was not finite: NONFINITE with the key of a parameter that is
 * not, if any rank has one; step is its number, from 1. */
lk_status lk__nonfinite_fail_parameters(lk_engine *engine, unsigned long long step) LK_CHECKED;
/* Together, where gradients are doubtful and all buckets are there: whether the
 * sums over ranks are finite, at every stage. */
lk_status lk__nonfinite_check_sums(lk_engine *engine) LK_CHECKED;

#endif
