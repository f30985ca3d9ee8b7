/* train.h - the training loop: epochs, evaluation, what is reported and saved.
 *
 * A process runs one rank or several, a thread each; every rank runs the same
 * loop over its share of the batches. It prints nothing: events go to the
 * caller, which is the program. */
#ifndef LK_TRAIN_TRAIN_H
#define LK_TRAIN_TRAIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/lockstep.h>

#include "base/option.h"
#include "optim/optim.h"
#include "parallel/layout/partition.h"

/* Values of the options; lk__train_option has their rows, with the defaults. */
typedef struct lk_train_opts {
    const char *model, *data, *data_dir;
    const char *augment, *test_augment;          /* lists of transforms, or "auto" */
    const char *init;                            /* NULL: the model's own, else a policy for all layers */
    size_t batch, test_batch, epochs, max_steps; /* max_steps 0: no limit */
    double lr;                                   /* 0: the optimiser's default */
    const char *optimizer, *schedule;
    uint64_t seed;
    int threads, workers, shards; /* threads 0: this rank's part of the cores that its process may use */
    size_t micro_batch;           /* samples of a rank in one wave; 0: its part of batch / accumulate */
    size_t accumulate;            /* waves that a step was asked to have; batch and shards are of the whole step */
    lk_bn_mode bn;
    lk_precision precision;
    double clip_norm; /* 0: never */
    double label_smoothing;
    double bucket_mb; /* of 2^20 bytes; 0: the engine's default */
    lk_reduce_order reduce;
    const char *gradient_backend; /* as in lk_engine_opts */
    int check_every;              /* steps; 0: only before saves and tests */
    const char *stages;           /* as in lk_engine_opts; NULL: one */
    bool pipelined;
    const char *device;     /* of lk__train_evaluate; ranks have their own */
    const char *init_from;  /* NULL or a file to start from */
    const char *init_skip;  /* NULL or the layers, with commas between them, that are not taken from it */
    const char *save_model; /* NULL or where to save; {rank} stands for the rank, and then each saves */
    bool dry_run;           /* one batch of training and of testing */
    bool no_test;
    const char *checkpoint; /* NULL or the folder to save checkpoints in */
    size_t save_every;      /* steps; 0: after each epoch */
    size_t keep;            /* checkpoints */
    const char *resume;     /* NULL or the checkpoint to go on from, as lk__resume_find chose it */
    bool resume_exact;      /* it was named, not chosen as the newest */
    bool reshard;           /* its number of shards may differ */
} lk_train_opts;

/* What reads an option: a bit each in lk_option.commands. */
enum { LK_FOR_TRAIN = 1 << 0, LK_FOR_EVAL = 1 << 1, LK_FOR_BENCH = 1 << 2, LK_FOR_INFO = 1 << 3 };
/* The row of an option of lk_train_opts; NULL after the last. */
const lk_option *lk__train_option(size_t index);

/* What may be asked of a run under way, the stronger the larger: LK_WISH_STOP plus the
 * number of the signal that asks for it. */
enum { LK_WISH_NONE, LK_WISH_SAVE, LK_WISH_STOP };

/* A rank and where it stands; alone it is rank 0 of 1. */
typedef struct lk_train_place {
    int rank, ranks, local_rank;
    const char *host, *transport, *device; /* transport "" when alone */
    lk_layout layout;
    lk_shard_range share;
} lk_train_place;

/* Once, before the first step. What is pointed to is borrowed for the run. */
typedef struct lk_train_start {
    const lk_dataset_info *train, *test; /* test is NULL with no_test */
    const char *augment, *test_augment;  /* what "auto" came to; "none" for nothing */
    size_t parameters, batches, steps;   /* batches an epoch; steps in all */
    size_t batch;                        /* samples a step */
    lk_train_place place;
    const char (*cuts)[LK_LAYER_TEXT]; /* (stages - 1) the layers that stages 1, 2 ... begin with */
    int better_shards;                 /* the next number that is replicas times a power of two; 0: the run's is */
    size_t done;                       /* steps that were done before: those of opts->resume */
    lk_lr_schedule_rates rates;        /* of the steps that are left; all 0 where there are none */
    size_t warmup;                     /* steps of a warm-up that the run is too short for; 0: it is not */
    bool extends;                      /* a larger --epochs leaves the rates of `done` steps as they are */
    int saved_shards;                  /* of the checkpoint, where they differ; else 0 */
    size_t agreed; /* at `done` or before: when replicas were last known to be equal; 0: not known */
    bool touched;  /* files of the data have other times than when it was saved, and not all are compared by content */
} lk_train_start;

/* After each step. */
typedef struct lk_train_step {
    size_t epoch;       /* from 1 */
    size_t batch;       /* from 0, in the epoch */
    size_t seen;        /* samples of this epoch before this batch */
    size_t step;        /* from 1, in the run */
    lk_metrics metrics; /* of the whole batch */
    lk_metrics own;     /* of this rank's samples; count 0 but at the last stage */
    lk_metrics running; /* the same of all its samples in this epoch, since the run began or was resumed */
    double lr;
    size_t samples;       /* since this process began, this batch included */
    double seconds;       /* since the first step began */
    double train_seconds; /* the same without evaluations */
    double batch_seconds; /* of this step, its batch's preparation included */
} lk_train_step;

/* After each epoch's evaluation. */
typedef struct lk_train_test {
    size_t epoch;
    lk_metrics metrics;
    double train_loss; /* mean over the epoch's samples */
    double seconds;    /* since the first step began */
} lk_train_test;

/* A checkpoint that is on the disk, told by rank 0. */
typedef struct lk_train_saved {
    const char *path;
    size_t step;
    bool best;      /* of all tests so far */
    bool again;     /* it was told before: now it has its test */
    double seconds; /* that writing took, while training went on */
} lk_train_saved;

typedef struct lk_train_result {
    int ranks;
    bool stopped;          /* before the end, as was wished */
    int stop_signal;       /* by which; 0: none */
    int stop_rank;         /* the rank that got it, the lowest of several */
    char stop_host[64];    /* of that rank; "" for a run of one rank */
    char checkpoint[4096]; /* rank 0: the last that was saved, or "" */
    size_t steps, samples; /* steps of the run; samples of this process's life */
    double seconds;        /* of training and evaluation */
    double train_seconds;  /* of training steps alone */
    lk_waits waits;        /* of this rank */
    lk_metrics test;       /* the last evaluation; count 0 if there was none */
    uint64_t hash;         /* of the final state */
    char saved[4096];      /* where this rank saved the model, or "" */
} lk_train_result;

/* What a rank tells, in its own thread; each may be NULL. */
typedef struct lk_train_events {
    void *arg;
    void (*start)(void *arg, const lk_train_start *start);
    void (*step)(void *arg, const lk_train_step *step);
    void (*test)(void *arg, const lk_train_test *test);
    void (*end)(void *arg, const lk_train_result *result);
    /* In place of end, of a run that is stopped. No rank of the job leaves before it
     * has returned at all of them. */
    void (*stopped)(void *arg, const lk_train_result *result);
    void (*saved)(void *arg, const lk_train_saved *saved);
} lk_train_events;

/* Whose failure it is, the most telling first. */
typedef enum lk_train_fault {
    LK_FAULT_SETUP,  /* this process's, before it joined */
    LK_FAULT_OWN,    /* this rank's; the others were told */
    LK_FAULT_COMMON, /* every rank has the same */
    LK_FAULT_PEER,   /* another rank's */
    LK_FAULT_DEVICE  /* nobody's: a GPU that was not named cannot be used, and no rank has begun */
} lk_train_fault;

typedef struct lk_train_failure {
    lk_status status;
    lk_train_fault fault;
    int rank; /* -1: it had not joined */
    char detail[2048];
    bool teller;           /* of LK_FAULT_DEVICE: of all processes this one tells the user */
    bool begun;            /* the first step had begun */
    bool saves;            /* rank 0 is here, and saves checkpoints */
    char checkpoint[4096]; /* the last that it saved, or "" */
    size_t writing;        /* the step of a later one that is being written; 0: none is */
    char *history; /* the group's last calls, of a timeout or calls that differ; or NULL. lk__train_failure_fini frees
                      it */
} lk_train_failure;

/* Ranks of a process that have joined their job, with all that they share open. */
typedef struct lk_train_crew lk_train_crew;

/* The ranks of a process. */
typedef struct lk_train_ranks {
    const lk_train_opts *opts;
    int count;                     /* ranks here */
    int first;                     /* rank of the first */
    const char *const *devices;    /* (count) */
    const lk_group_opts *group;    /* how to join the other processes; threads and thread are filled in */
    bool alone;                    /* there are no others: of group the timeout and the notice count */
    const lk_train_events *events; /* (count) */
    atomic_int *wish;              /* an LK_WISH, taken by a rank that sees it; NULL: there are none */
    /* Told of a failure before a checkpoint that is being written is waited for, or
     * NULL. */
    void (*failed)(void *arg, const lk_train_failure *failure);
    void *arg;
    /* NULL: the devices were named. Otherwise a GPU that some rank of the job cannot use
     * is LK_FAULT_DEVICE at every process whose devices were not named, and their ranks
     * are left in *joined, joined and waiting. The caller must then call lk__train again,
     * with opts and devices of the CPU and all else the same, which takes *joined over.
     * *joined is NULL before the first call. */
    lk_train_crew **joined;
} lk_train_ranks;

/* Runs them to the end, each but the first in a thread of its own. out is of
 * the first; on failure *failure tells the most telling one, once. LK_FAULT_DEVICE is
 * not passed to ranks->failed.
 *
 * What can be known to be wrong (a folder that cannot be written to, a
 * malformed init_from) is reported before the first step, damaged test files
 * after it. A model whose evaluation fails is saved all the same, unless it is
 * the loss that is not finite; weights that are not finite are NONFINITE, too,
 * and never saved. */
lk_status lk__train(const lk_train_ranks *ranks, lk_train_result *out, lk_train_failure *failure) LK_CHECKED;
void lk__train_failure_fini(lk_train_failure *failure);

/* What --resume comes to. */
typedef struct lk_resume {
    char path[4096]; /* of the checkpoint; "": there is none, and the run begins */
    bool exact;      /* it was named */
    lk_checkpoint *notes;
    char why[2048]; /* a line for each newer one that does not verify, without the last newline */
} lk_resume;
/* where: a checkpoint, a folder of them, or NULL for `dir`, a folder that may not be
 * there yet. Verifies what it chooses. */
lk_status lk__resume_find(const char *where, const char *dir, lk_resume *out) LK_CHECKED;
void lk__resume_fini(lk_resume *resume);

/* What samples of either split are brought to for training with this `augment`. */
lk_status lk__train_shape(const lk_dataset *data, const char *augment, lk_sample_shape *out) LK_CHECKED;
/* The model of opts for the classes of data and samples of this shape. */
lk_status lk__train_build_model(const lk_train_opts *opts, const lk_dataset *data, lk_sample_shape shape,
                                lk_graph **out) LK_CHECKED;
/* What opts say of an engine. Batch and group are left 0: they depend on the data
 * and the job. */
lk_engine_opts lk__train_engine_opts(const lk_train_opts *opts);

/* Loads a model file into the named model and evaluates it on the test split of
 * the data, whose number of classes is told as well. Uses model, data, data_dir,
 * augment, test_augment, test_batch, threads, workers, shards, device and init_from
 * of opts. */
lk_status lk__train_evaluate(const lk_train_opts *opts, lk_metrics *out, size_t *classes) LK_CHECKED;

#endif
