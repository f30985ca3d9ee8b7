/* optim.h - optimisers and learning-rate schedules: lists of them, rates for a program's own loop, and rules of the
 * program's own.
 *
 * A schedule is a pure function of the position in a run: it has no state to save, and the same rate is the same double
 * on every machine.
 *
 * Threads: any thread may call these functions. A schedule is never changed after its creation, so several threads may
 * use it.
 *
 * Lifetimes: rows of lists are valid until the process ends. */
#ifndef LOCKSTEP_OPTIM_H
#define LOCKSTEP_OPTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

LK_API_BEGIN

/* A row of a table of optimisers or schedules. */
typedef struct lk_optim_info {
    const char *name;
    const char *summary; /* parameters and their defaults */
} lk_optim_info;
/* Row `index` of the optimisers, which lk_engine_opts.optimizer names, with those of lk_optimizer_register; NULL after
 * the last. */
const lk_optim_info *lk_optimizer_list(size_t index);

/* Numbers of an update. */
typedef struct lk_optimizer_numbers {
    double lr;           /* the learning rate of these elements */
    double weight_decay; /* of these elements; 0 if the rule has no parameter of this name */
    uint64_t step;       /* training steps so far, this one included: 1 in the first step */
} lk_optimizer_numbers;

enum { LK_OPTIMIZER_MAX_PARAMS = 8, LK_OPTIMIZER_MAX_STATES = 4 };

/* What an update function works on: `count` elements of flat arrays. */
typedef struct lk_optimizer_update {
    size_t count;
    const float *grads; /* (count) */
    float *params;      /* (count) */
    /* (count) each, in the order of the definition; zero before the first step */
    float *states[LK_OPTIMIZER_MAX_STATES];
    const double *values;                /* the rule's parameters in the order of the definition; always host memory */
    const lk_optimizer_numbers *numbers; /* memory of the device: a recorded step reads new numbers in every replay */
    const uint32_t *skip;                /* memory of the device, or NULL: if it is not 0, nothing may be changed */
    void *stream;                        /* the cudaStream_t to enqueue on; NULL on the CPU */
    uint64_t reserved[8];                /* zero */
} lk_optimizer_update;

/* Updates elements. It must not fail, and element i of params and states may depend only on element i of the arrays and
 * on the numbers: then the law holds for the rule. An element that is 0 in all arrays must stay 0: the arrays have gaps
 * between tensors. It must not call other functions of the library than those of op.h that compute (lk_op_exp and its
 * neighbours). On the CPU several threads call it at the same time, for different parts of the parameters, and memory
 * of the device is host memory. On CUDA it enqueues kernels on the stream and does not wait: the call may be recorded.
 */
typedef void (*lk_optimizer_fn)(void *arg, const lk_optimizer_update *update);

/* A parameter of a rule, as "momentum" in "sgd:momentum=.9". */
typedef struct lk_optimizer_param {
    const char *name;
    double value;    /* the default */
    double min, max; /* the legal range; both 0: any number */
} lk_optimizer_param;

/* A rule of the program's own. */
typedef struct lk_optimizer_def {
    const char *name; /* letters, digits and '_' */
    double lr;        /* the default learning rate, above 0 */
    /* (param_count) A parameter "weight_decay" becomes lk_optimizer_numbers.weight_decay, and parameter groups may
     * change it. */
    const lk_optimizer_param *params;
    size_t param_count;
    /* (state_count) Names of the state arrays: "exp_avg" has keys like "exp_avg.fc.weight". */
    const char *const *states;
    size_t state_count;
    lk_optimizer_fn cpu;
    lk_optimizer_fn cuda; /* NULL: engines on GPUs refuse the rule with UNSUPPORTED */
    void *arg;            /* of the functions; must outlive all engines that use the rule */
    uint64_t reserved[8]; /* zero */
} lk_optimizer_def;

/* Adds a rule to the table of optimisers until this process ends: lk_engine_opts.optimizer may then be its name,
 * with parameters. The definition is copied, but not what arg points to. Its states are in lk_engine_optimizer_state
 * and in checkpoints, by their names. All ranks must register the same. USAGE if a name is missing, malformed or taken,
 * a number is out of its range, or the process has registered 32 rules. */
lk_status lk_optimizer_register(const lk_optimizer_def *def) LK_CHECKED;

/* The position of a step in a run. */
typedef struct lk_lr_schedule_at {
    size_t epoch, epochs;  /* from 0; epochs of the run */
    size_t batch, batches; /* from 0, in the epoch; batches of an epoch, at least 1 */
    size_t drops;          /* lk_lr_schedule_watch.drops at this step */
} lk_lr_schedule_at;

/* spec is the name of a schedule with parameters: "step:size=1,gamma=.7". All schedules take a
 * warm-up of N steps, warmup_steps=N, or of E epochs, warmup=E; then N is E times the batches of an
 * epoch. The warm-up raises the rate at each step: base_lr * (step + 1) / N.
 *
 * After the warm-up the schedule starts at its own step 0, as in PyTorch's
 * SequentialLR([LinearLR(1/N, total_iters=N-1), ...], [N]) that is stepped after each batch. step,
 * multistep and exponential count epochs from the end of the warm-up. cosine and gaussian fall from
 * there to the end of the run, or of its epoch `epochs` and then stay; they change after each epoch
 * or, with by_step, after each step. onecycle rises and falls over the whole run and takes no
 * warm-up: lr is its highest rate. plateau falls after epochs whose results are no better. */
typedef struct lk_lr_schedule lk_lr_schedule;
/* USAGE if the spec has no known name or a wrong parameter. The caller owns *out. */
lk_status lk_lr_schedule_create(const char *spec, lk_lr_schedule **out) LK_CHECKED;
void lk_lr_schedule_destroy(lk_lr_schedule *schedule);
/* USAGE if the schedule does not fit base_lr and the run, whose epochs and batches are in `at`. A
 * run may end in its warm-up: recipes are tested with fewer epochs. */
lk_status lk_lr_schedule_check(const lk_lr_schedule *schedule, double base_lr, lk_lr_schedule_at at) LK_CHECKED;
/* Steps of the warm-up; 0 without one. */
size_t lk_lr_schedule_warmup(const lk_lr_schedule *schedule, size_t batches);
/* The rate of the step at this position, for lk_engine_set_lr. 0 if at.batches is 0. */
double lk_lr_schedule_lr(const lk_lr_schedule *schedule, double base_lr, lk_lr_schedule_at at);

/* What a schedule has seen of the results of epochs, as in PyTorch's ReduceLROnPlateau: a part of the
 * run's state. All fields are 0 before the first result. */
typedef struct lk_lr_schedule_watch {
    double best;
    size_t results;  /* counted results */
    size_t bad;      /* counted results that were no better, since the best one or the last drop */
    size_t cooldown; /* results that are still ignored after a drop */
    size_t drops;    /* how often the rate was lowered */
} lk_lr_schedule_watch;
typedef struct lk_lr_schedule_result {
    double loss, accuracy; /* accuracy in [0,1] */
} lk_lr_schedule_result;
/* Whether rates depend on results. */
bool lk_lr_schedule_watches(const lk_lr_schedule *schedule);
/* Counts the result of the epoch whose last step is `at`. Results in the warm-up are not counted. Does
 * nothing if the schedule does not watch. */
void lk_lr_schedule_observe(const lk_lr_schedule *schedule, lk_lr_schedule_at at, lk_lr_schedule_result result,
                            lk_lr_schedule_watch *watch);
/* Row `index` of the schedules; NULL after the last. */
const lk_optim_info *lk_lr_schedule_list(size_t index);

LK_API_END
#endif
