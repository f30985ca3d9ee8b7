/* train.h - the training loop: epochs of steps, evaluations, checkpoints and resuming in one call.
 *
 * lk_train is the loop of `lockstep train`: with the same options it ends with the same bits, in any number of ranks.
 * Model and data are names, or a graph and data sets of the program's own:
 *
 *     lk_train_opts opts = {.graph = graph, .train = data, .epochs = 3, .checkpoint = "run", .resume = "auto"};
 *     lk_train_events events = {.test = print_test};
 *     if (lk_train(&opts, &events, NULL) != LK_OK)
 *         fprintf(stderr, "%s\n", lk_error_detail());
 *
 * This program saves a checkpoint after each epoch; if it is started again after a crash, it resumes from the newest
 * checkpoint and ends with the bits of a run that was not interrupted. Started by `lockstep run -n 2`, torchrun,
 * mpirun or srun, its processes are the ranks of one job.
 *
 * Threads: the thread that calls lk_train runs the loop and calls the event functions. Several threads may be in
 * lk_train at once if they use different groups (the ranks of lk_group_create_threads) or no group. The functions
 * below that take an lk_train_run may be called only in an event function of this run. */
#ifndef LOCKSTEP_TRAIN_H
#define LOCKSTEP_TRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/data.h>
#include <lockstep/engine.h>
#include <lockstep/graph.h>
#include <lockstep/group.h>
#include <lockstep/status.h>

LK_API_BEGIN

/* Whether ranks that are slower than others get fewer of the shards of a batch, while the run goes on. */
typedef enum lk_balance_mode {
    LK_BALANCE_MODE_AUTO, /* yes, between replicas on CPUs without other stages */
    LK_BALANCE_MODE_EVEN  /* no: all have the same number */
} lk_balance_mode;

/* Zero and NULL mean the default, which is that of `lockstep train`. Everything is borrowed until lk_train returns.
 * All ranks must give the same options (else MISMATCH); `threads`, `workers`, `device` and paths may differ. */
typedef struct lk_train_opts {
    /* The model: one of these two. */
    const char *model;     /* as in lk_model_build; default "cnn" where the data are named, too */
    const lk_graph *graph; /* a graph of the program's own */

    /* The data: names, or data sets of the program's own. */
    const char *data, *data_dir;    /* as in lk_dataset_open; default "digits" where the model is named, too */
    const lk_dataset *train, *test; /* `test` NULL: there are no tests */
    const char *augment;            /* transforms of training samples (lk_loader_opts); default "auto" */
    const char *test_augment;       /* transforms of other samples, none of them random; default "auto" */

    /* How long, and which samples. */
    size_t batch;      /* samples of a batch, of all ranks; default 64 */
    size_t accumulate; /* batches that make a step, in the memory of one; default 1 */
    size_t test_batch; /* samples of a batch in evaluations; default 1000 */
    size_t epochs;     /* default 14 */
    size_t max_steps;  /* the run ends after this many steps; default: no limit */
    uint64_t seed;     /* of all random numbers; 0 is a seed like any other. `lockstep train` has 1 without --seed */
    bool drop_last;    /* in training, leave out the last batch of an epoch if it is smaller than the others */
    bool dry_run;      /* train and test one batch each */
    bool no_test;      /* no evaluation of test data */
    double val_split;  /* part of the training data that is kept for validation, up to 0.9; default 0: none */
    size_t early_stop; /* stop when this many epochs have not improved the result; default: never */

    /* How the weights begin and change. */
    const char *init;       /* as in lk_init_all, for `model`; default: the model's own */
    const char *init_from;  /* a file of initial weights; default: none */
    const char *init_skip;  /* layers, separated by commas, that are not taken from that file; default: none */
    const char *optimizer;  /* as in lk_engine_opts; default "adadelta" */
    double lr;              /* default: the optimiser's */
    const char *schedule;   /* of the learning rate, "constant", "cosine" ...; default "step:size=1,gamma=0.7" */
    double clip_norm;       /* as in lk_engine_opts; default: never */
    double label_smoothing; /* as in lk_engine_opts; default 0 */
    lk_bn_mode bn;
    lk_precision precision; /* zero is fp32; LK_PRECISION_AUTO is what `lockstep train` has without --precision */

    /* How the work is divided. Of these options only `shards`, `reduce` and the backend "mpi" change bits. */
    /* The ranks, borrowed. NULL: if a launcher has started this process as a task of several
     * (lk_group_opts.init_method, env://), lk_train joins them and leaves at the end; otherwise there is one rank.
     * A failure aborts the job, unless all ranks have found it together: different options, a checkpoint of another
     * run. */
    lk_group *group;
    bool alone;         /* with `group` NULL: one rank, also where a launcher has started several */
    const char *device; /* of this rank, as in lk_engine_opts; default "cpu" */
    int threads;        /* as in lk_engine_opts */
    int workers;        /* threads that prepare batches, -1: none; default 1, and for image files the cores that
                         * training leaves free, up to 16 */
    int shards; /* parts of a batch whose sums are added over the tree; default 16, or one for each replica if there are
                   more */
    size_t micro_batch; /* largest number of samples of a rank in a wave; default: its part of a batch */
    double bucket_mb;   /* size of a bucket of gradients, in units of 2^20 bytes; default 4 */
    lk_reduce_order reduce;
    const char *backend; /* as in lk_engine_opts */
    const char *stages;  /* as in lk_engine_opts */
    bool pipelined;      /* as in lk_engine_opts */
    int check_every;     /* steps between comparisons of the replicas; default 100, -1: only before saves and tests */
    lk_balance_mode balance;

    /* What is saved. Rank 0 writes; every rank reads the checkpoint that it resumes from. */
    const char *checkpoint; /* the folder for checkpoints, DIR/step-N and DIR/best; default: none are saved */
    size_t save_every;      /* steps between checkpoints; default: one after each epoch */
    size_t keep;            /* newest checkpoints that are kept, beside the best one; default 3 */
    /* NULL: a new run. "auto": the newest checkpoint in the folder `checkpoint`; a new run if there is none. Or a
     * checkpoint, or a folder of checkpoints. A run resumes only with the model and the options that change the result
     * (else USAGE, which says what differs) and with the data (else MISMATCH) as they were; `epochs` may grow where the
     * learning rates of earlier steps stay the same. */
    const char *resume;
    bool reshard;           /* the checkpoint may have another number of shards: the run ends with other bits */
    const char *save_model; /* a file for the final model; with "{rank}" in it every rank saves one; default: none */
    const char *trace;      /* the steps to trace for Perfetto, as "10" or "10-14", from 1; default: none */
    const char *trace_file; /* default "trace.json" */
    lk_conv_mode conv;      /* as in lk_engine_opts */
    uint64_t reserved[31];  /* zero */
} lk_train_opts;

/* A run under way, as event functions see it. */
typedef struct lk_train_run lk_train_run;

/* The engine of this rank, borrowed, to look at or to change. All ranks must make the same collective calls in the same
 * event function. Between `before_step` and `step` of one step, and while later steps are under way, functions that
 * read or change the state are USAGE (lk_engine_send); no step is under way in `start`, `epoch` and `test`, nor in
 * `before_step` and `step` of a run that has `before_step`. lk_engine_step, lk_engine_destroy and other functions that
 * take or undo steps break the run. */
lk_engine *lk_train_engine(lk_train_run *run);
/* Asks for an end at all ranks, whichever rank asks. lk_train then saves a checkpoint if it has a folder, saves the
 * model if `save_model` is given, and returns LK_OK with lk_train_result.stopped. A call in `before_step` ends the
 * run after this step; a call in `step` or `saved`, after the next step or at the end of the epoch (on a GPU that has
 * steps under way: after these); a call in another function, at once. The result is the same for any number of ranks. A
 * signal handler may set a flag at which `before_step` looks. */
void lk_train_stop(lk_train_run *run);
/* Ends the run with a failure: lk_train returns `status` and this thread's detail (lk_fail) at this rank, and the other
 * ranks get PEER with the detail. Later calls and LK_OK have no effect. */
void lk_train_fail(lk_train_run *run, lk_status status);

/* In the structs below `run` is the run, and pointers are borrowed during the call. */

/* Before the first step. */
typedef struct lk_train_start {
    lk_train_run *run;
    int rank, ranks;
    const lk_dataset_info *train, *test, *val; /* test and val are NULL if there are none */
    size_t parameters;                         /* of the model */
    size_t batch;                              /* samples of a step */
    size_t batches;                            /* steps of an epoch */
    size_t steps;                              /* steps of the run */
    size_t done;                               /* steps of the checkpoint that the run resumes from; 0: a new run */
    const char *resumed;                       /* the path of this checkpoint; NULL: a new run */
    double lr;                                 /* the base rate of the schedule */
    uint64_t reserved[8];                      /* zero */
} lk_train_start;

/* Before a step. The engine has the learning rate of the schedule; lk_engine_set_lr changes that of this step. */
typedef struct lk_train_next {
    lk_train_run *run;
    size_t epoch, batch, step; /* as in lk_train_step, of the step that follows */
    double lr;
    uint64_t reserved[4]; /* zero */
} lk_train_next;

/* After a step. */
typedef struct lk_train_step {
    lk_train_run *run;
    size_t epoch;       /* from 1 */
    size_t batch;       /* from 0, in the epoch */
    size_t seen;        /* samples of this epoch before this batch */
    size_t step;        /* from 1, in the run */
    lk_metrics metrics; /* of the whole batch */
    lk_metrics own;     /* of this rank's samples; count is 0 except at the last stage */
    lk_metrics running; /* of this rank's samples so far in this epoch, since the run started or resumed */
    double lr;
    double grad_norm;     /* of the whole model's gradient, before clipping; NaN: not computed */
    size_t samples;       /* since this process started, including this batch */
    double seconds;       /* since the first step began */
    double train_seconds; /* the same without evaluations and saves */
    double batch_seconds; /* of this step, including the preparation of its batch */
    uint64_t reserved[8]; /* zero */
} lk_train_step;

/* After the last step of an epoch or of the run, before the evaluation. */
typedef struct lk_train_epoch {
    lk_train_run *run;
    size_t epoch;         /* from 1 */
    size_t step;          /* steps done */
    double train_loss;    /* mean over the epoch's samples; with weights as lk_metrics.loss */
    double seconds;       /* since the first step began */
    uint64_t reserved[4]; /* zero */
} lk_train_epoch;

/* After each epoch's evaluation; with val_split first for the validation data, then for the test data. */
typedef struct lk_train_test {
    lk_train_run *run;
    bool val; /* the validation data */
    size_t epoch;
    size_t step; /* steps done */
    lk_metrics metrics;
    double train_loss;    /* mean over the epoch's samples; with weights as lk_metrics.loss */
    double seconds;       /* since the first step began */
    bool best;            /* of the data that are judged: this is the best result so far */
    uint64_t reserved[4]; /* zero */
} lk_train_test;

/* A checkpoint that has been written; only rank 0 gets this event. */
typedef struct lk_train_saved {
    lk_train_run *run;
    const char *path;
    size_t step;
    bool best;            /* it has the best test result so far */
    bool again;           /* this step was saved before; the checkpoint now has its test result */
    double seconds;       /* of writing, during which training continued */
    uint64_t reserved[4]; /* zero */
} lk_train_saved;

/* Event functions; each may be NULL. In every epoch they come in this order: before_step and step for each step (with
 * steps under way, some before_step come before earlier steps), epoch, test; saved comes when a file is complete. A run
 * that stops skips `epoch` and `test` of an epoch that is not complete. */
typedef struct lk_train_events {
    void *arg;
    void (*start)(void *arg, const lk_train_start *start);
    /* With it, a GPU computes one step at a time. All ranks must have it, or none (else MISMATCH). A run whose rates it
     * changes must have it again when it resumes. */
    void (*before_step)(void *arg, const lk_train_next *next);
    void (*step)(void *arg, const lk_train_step *step);
    void (*epoch)(void *arg, const lk_train_epoch *epoch);
    void (*test)(void *arg, const lk_train_test *test);
    void (*saved)(void *arg, const lk_train_saved *saved);
    /* Sentences for the user: ranks that have not joined, damaged checkpoints that "auto" skips. */
    lk_notice_fn notice;
    /* The steps of batches whose number is a multiple of it compute the gradient's norm; 0: none. Rank 0's value counts
     * for all ranks. */
    size_t norm_every;
    uint64_t reserved[8]; /* zero */
} lk_train_events;

typedef struct lk_train_result {
    int rank, ranks;
    bool stopped;         /* lk_train_stop ended the run */
    size_t steps;         /* of the run, with those before it was resumed */
    size_t samples;       /* since this process started */
    double seconds;       /* of training and evaluation */
    double train_seconds; /* of training steps alone */
    lk_metrics test;      /* of the last evaluation of test data; count is 0 if there was none */
    lk_metrics val;       /* the same of the validation data */
    /* The step with the best evaluation, of the validation data if there are any; 0: none. cross_entropy, nll_loss and
     * soft_cross_entropy: the one with most correct samples. Other losses: the one with the least loss. */
    size_t best_step;
    size_t best_correct;   /* of that evaluation */
    double best_loss;      /* of that evaluation */
    size_t stale;          /* epochs without a better result, after which early_stop ended the run; 0: it did not */
    uint64_t hash;         /* of the final state (lk_state_hash) */
    char checkpoint[4096]; /* rank 0: the last checkpoint that was saved, or "" */
    uint64_t reserved[16]; /* zero */
} lk_train_result;

/* Trains, and blocks until the run ends. Collective if there are several ranks. events and out may be NULL.
 *
 * USAGE: options that are impossible, contradict each other or the checkpoint, or would have no effect; the detail
 * names the field. NOT_FOUND: no such data, file of weights or checkpoint. FORMAT: a damaged file. MISMATCH: ranks have
 * different options, or the checkpoint was saved with other data. NONFINITE: a loss, a gradient or the final weights;
 * nothing non-finite is saved. PEER: another rank failed. IO, MEMORY, UNSUPPORTED: as in the other headers. A failure
 * keeps the checkpoints that were saved. */
lk_status lk_train(const lk_train_opts *opts, const lk_train_events *events, lk_train_result *out) LK_CHECKED;

LK_API_END
#endif
