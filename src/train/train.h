/* train.h - the training loop: epochs, evaluation, what is reported and saved.
 *
 * It prints nothing: events go to the caller, which is the program. */
#ifndef LK_TRAIN_TRAIN_H
#define LK_TRAIN_TRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/lockstep.h>

/* Values of the program's options; the table of options has the defaults. */
typedef struct lk_train_opts {
    const char *model, *data, *data_dir, *augment;
    size_t batch, test_batch, epochs, max_steps; /* max_steps 0: no limit */
    double lr;                                   /* 0: the optimiser's default */
    const char *optimizer, *schedule;
    uint64_t seed;
    int threads, workers, shards; /* threads 0: every core this process may use */
    size_t micro_batch;
    lk_bn_mode bn;
    const char *device;
    const char *init_from;  /* NULL or a file to start from */
    const char *save_model; /* NULL or where to save; {rank} stands for the rank */
    bool dry_run;           /* one batch of training and of testing */
    bool no_test;
} lk_train_opts;

/* Once, before the first step. */
typedef struct lk_train_start {
    const lk_dataset_info *train, *test; /* borrowed for the run; test is NULL with no_test */
    size_t parameters, batches, steps;   /* batches an epoch; steps in all */
    int threads;
    bool one_wave; /* BatchNorm over the batch: micro_batch has no effect */
} lk_train_start;

/* After each step. */
typedef struct lk_train_step {
    size_t epoch; /* from 1 */
    size_t batch; /* from 0, in the epoch */
    size_t seen;  /* samples of this epoch before this batch */
    size_t step;  /* from 1, in the run */
    lk_metrics metrics;
    double lr;
    size_t samples;       /* of the run, this batch included */
    double seconds;       /* since the first step began */
    double train_seconds; /* the same without evaluations */
} lk_train_step;

/* After each epoch's evaluation. */
typedef struct lk_train_test {
    size_t epoch;
    lk_metrics metrics;
    double train_loss; /* mean over the epoch's samples */
    double seconds;    /* since the first step began */
} lk_train_test;

typedef struct lk_train_result {
    size_t steps, samples;
    double seconds;       /* of training and evaluation */
    double train_seconds; /* of training steps alone */
    lk_metrics test;      /* the last evaluation; count 0 if there was none */
    uint64_t hash;        /* of the final state */
    char saved[4096];     /* where the model was saved, or "" */
} lk_train_result;

typedef struct lk_train_events {
    void *arg;
    void (*start)(void *arg, const lk_train_start *start); /* each may be NULL */
    void (*step)(void *arg, const lk_train_step *step);
    void (*test)(void *arg, const lk_train_test *test);
} lk_train_events;

/* What can be known to be wrong (a folder that cannot be written to, a
 * malformed init_from) is reported before the first step, damaged test files
 * after it. A model whose evaluation fails is saved all the same, unless it is
 * the loss that is not finite; weights that are not finite are NONFINITE, too,
 * and never saved. */
lk_status lk__train(const lk_train_opts *opts, const lk_train_events *events, lk_train_result *out) LK_CHECKED;

/* Loads a model file into the named model and evaluates it on a split of the
 * data. Uses model, data, data_dir, batch, test_batch, threads, workers,
 * shards, device and init_from of opts. */
lk_status lk__evaluate(const lk_train_opts *opts, lk_split split, lk_metrics *out) LK_CHECKED;

#endif
