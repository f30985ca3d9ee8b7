/* parts.h - types and functions that the files of train/ share. */
#ifndef LK_TRAIN_PARTS_H
#define LK_TRAIN_PARTS_H

#include "data/sets/dataset.h"
#include "data/transform/transforms.h"
#include "optim/optim.h"
#include "tensor/device.h"
#include "train/saver.h"
#include "train/train.h"

/* Notes that identify the training data by their content (data_notes.c). Any thread may call. */
typedef struct lk_data_notes lk_data_notes;
lk_status lk__data_notes_create(lk_data_notes **out) LK_CHECKED;
/* Sets the data, borrowed. Must precede the calls below. */
void lk__data_notes_set(lk_data_notes *notes, const lk_dataset *data);
void lk__data_notes_destroy(lk_data_notes *notes);
/* Reads all data files or many of them, unless an earlier call has read them. May take long: a run should not
 * wait for it before its first step. */
lk_status lk__data_notes_read(lk_data_notes *notes) LK_CHECKED;
/* Reads the data, and adds the notes to a checkpoint. For lk_saver_opts.complete; notes is an lk_data_notes. */
lk_status lk__data_notes_add(void *notes, lk_checkpoint *checkpoint) LK_CHECKED;
/* After lk__data_notes_read: MISMATCH if the data differ from those of the checkpoint `resume`; the detail says
 * how. *touched: the times of files differ, and only some of the files are compared by content. */
lk_status lk__data_notes_check(lk_data_notes *notes, const lk_train_opts *opts, const lk_checkpoint *resume,
                               bool *touched) LK_CHECKED;

/* device_notes.c: adds the notes of a device that is open: its kind and its facts. */
lk_status lk__device_notes_add(const char *device, lk_checkpoint *checkpoint) LK_CHECKED;
/* Collective: whether ranks have devices with different facts. The devices are open. */
lk_status lk__device_notes_mixed(lk_group *group, const char *device, bool *out) LK_CHECKED;
/* What differs from the device and the precision of the checkpoint: "cuDNN 9.13.0 instead of 9.9.0, precision bf16
 * instead of tf32". "": nothing, as far as the checkpoint has notes. The device is open. */
enum { LK_DEVICE_NOTES_TEXT = 4 * 2 * LK_DEVICE_FACT_VALUE };
void lk__device_notes_compare(const char *device, lk_precision precision, const lk_checkpoint *resume,
                              char text[LK_DEVICE_NOTES_TEXT]);

/* What the ranks of a process share; they only read it. */
typedef struct lk_train_shared {
    lk_state *initial;     /* the weights of init_from, or NULL */
    lk_checkpoint *resume; /* the checkpoint of opts->resume, or NULL */
    lk_saver *saver;       /* if this process has rank 0 and checkpoints are saved; else NULL */
    lk_lr_schedule *schedule;
    const lk_dataset *train, *test; /* test is NULL with no_test */
    const lk_dataset *whole, *val;  /* with val_split all training data, and the part that train has not; or NULL */
    lk_dataset *opened[4];          /* those that are not the program's own; later ones may borrow earlier ones */
    int opened_count;
    lk_store *store;                    /* the memory of their files that other processes share; or NULL */
    char test_augment[LK_AUGMENT_TEXT]; /* transforms that give test samples the model's shape */
    char val_augment[LK_AUGMENT_TEXT];  /* the same of val */
    lk_data_notes *data_notes;          /* of all training data */
    const lk_graph *graph;
    lk_graph *built;             /* the graph, unless it is the program's own */
    lk_sample_shape shape;       /* of the model's input */
    char seen[LK_AUGMENT_TEXT];  /* transforms of images that are not trained on, or "" */
    char (*cuts)[LK_LAYER_TEXT]; /* as in lk_train_begin, or NULL */
} lk_train_shared;

/* Opens and checks everything that needs no other rank. Large data files are read by lk__train_begin_data if the job
 * has other processes; otherwise they may still be being unpacked in the background when it returns. On failure nothing
 * is left open. */
lk_status lk__train_shared_open(const lk_train_ranks *ranks, lk_train_shared *out) LK_CHECKED;
void lk__train_shared_close(lk_train_shared *shared);

/* Whether other processes may share the data: then lk__train_begin_data must be called. */
static inline bool lk__train_may_share(const lk_train_ranks *ranks)
{
    return ranks->joins || !ranks->one_process;
}
/* share.c. Collective if there is a group: starts reading the data files, which the processes of a host share. reads:
 * of the `threads` ranks of this process, this one does it for all. A failure aborts the job. */
lk_status lk__train_begin_data(lk_group *group, bool reads, int threads, lk_train_shared *shared) LK_CHECKED;

/* All training data, those for validation included. */
static inline const lk_dataset *lk__train_whole(const lk_train_shared *shared)
{
    return shared->whole ? shared->whole : shared->train;
}

/* split.c: divides the training data by val_split. whole is borrowed by both parts. */
lk_status lk__train_split(const lk_train_opts *opts, const lk_dataset *whole, lk_dataset **train,
                          lk_dataset **val) LK_CHECKED;

/* One rank of a run. */
typedef struct lk_train_rank {
    const lk_train_opts *opts;
    const lk_train_shared *shared;
    lk_group *group; /* NULL: one rank */
    const char *device;
    const lk_train_hooks *hooks;
    atomic_int *signal_level; /* or NULL */
    const char *run_name;     /* as in lk_train_ranks */
    bool asks;                /* as in lk_train_ranks */
    bool one_process;         /* all ranks have the same `shared` */
} lk_train_rank;

/* Emits an activity, if somebody listens. hooks may be NULL. */
static inline void lk__train_activity(const lk_train_hooks *hooks, lk_train_activity activity, size_t done,
                                      size_t total)
{
    if (hooks && hooks->activity)
        hooks->activity(hooks->arg, activity, done, total);
}

/* A rank's failure, in addition to the status. */
typedef struct lk_train_rank_failure {
    lk_train_fault fault;
    bool begun;   /* the first step had begun */
    bool speaker; /* as in lk_train_failure */
} lk_train_rank_failure;
/* Trains, tests and saves. Aborts the job on a failure that the other ranks do not know. *failure is written
 * on failure only. */
lk_status lk__train_rank(const lk_train_rank *rank, lk_train_outcome *out, lk_train_rank_failure *failure) LK_CHECKED;

/* Collective: MISMATCH at every rank, with rank and option, unless the options and the data are equal at all
 * ranks. *agreed as in lk__agree_lines. */
lk_status lk__train_agree(const lk_train_rank *rank, bool *agreed) LK_CHECKED;
/* The same for the contents of data files that are kept in memory; blocks until they are loaded. lk__train_agree does
 * not wait for them: it compares some labels only. split: "training" or "test". */
lk_status lk__train_agree_files(const lk_train_rank *rank, const char *split, const lk_dataset *data,
                                bool *agreed) LK_CHECKED;

/* Checks whether all ranks can use their devices; collective if the rank has a group. A device that the user
 * has named is not tried. If some ranks use GPUs and one rank cannot, every rank whose device was not named
 * returns UNSUPPORTED with the reason of the first such rank, and *speaker is the rank whose process prints
 * it (otherwise -1); a rank whose GPU was named aborts the job with MISMATCH. */
lk_status lk__train_check_devices(const lk_train_rank *rank, bool named, int *speaker) LK_CHECKED;

/* Blocks until the data can be read; returns what is wrong with their files. */
lk_status lk__train_check_readable(const lk_dataset *data) LK_CHECKED;

/* The transforms of training: augment, or the data set's own if that is "auto". */
const char *lk__train_augment(const lk_dataset *data, const char *augment);
/* For an evaluation without training: the transforms of the test split, and the shape that they give. With
 * test_augment "auto", the shape is that of training. */
lk_status lk__train_evaluation_shape(const lk_train_opts *opts, const lk_dataset *data, lk_sample_shape *out,
                                     char text[LK_AUGMENT_TEXT]) LK_CHECKED;

/* Loads the weights of a file; a prefix "module." of all names is removed. */
lk_status lk__train_load_weights(const char *path, lk_state **out) LK_CHECKED;

/* Collective: gives the engine the state `file` of opts->init_from, except the layers of opts->init_skip.
 * Floating-point types are converted. If the state does not fit the model, the detail ends with the hint. */
lk_status lk__train_init_engine(lk_engine *engine, const lk_train_opts *opts, const lk_state *file,
                                const char *hint) LK_CHECKED;

/* An engine that only evaluates, with the weights of `state`, which are those of opts->init_from. Collective if there
 * is a group. */
typedef struct lk_train_evaluator {
    const char *device;
    lk_group *group; /* or NULL */
    size_t wave;     /* samples at once */
} lk_train_evaluator;
lk_status lk__train_load_engine(const lk_train_opts *opts, const lk_graph *graph, const lk_train_evaluator *on,
                                const lk_state *state, lk_engine **out) LK_CHECKED;

/* A loader of the engine's share that gives each sample once, in the order of the data set. */
lk_status lk__train_test_loader(const lk_train_opts *opts, const lk_dataset *data, const char *augment,
                                const lk_engine *engine, lk_loader **out) LK_CHECKED;

/* Caches the loader's data set on the engine's device, if possible. */
lk_status lk__train_cache_samples(lk_engine *engine, lk_loader *loader) LK_CHECKED;

/* Evaluates the first max_batches batches of loader; 0: all. *own: a failure is this rank's own, not that of a
 * collective call. may_continue is called after each batch; if it returns false, the evaluation ends with a
 * count of 0. */
typedef struct lk_train_watch {
    bool (*may_continue)(void *arg); /* or NULL */
    void *arg;
    const lk_train_hooks *hooks; /* called for every batch; or NULL */
} lk_train_watch;
lk_status lk__train_evaluate_batches(lk_engine *engine, lk_loader *loader, size_t max_batches,
                                     const lk_train_watch *watch, lk_metrics *out, bool *own) LK_CHECKED;

/* NONFINITE, with the key, if an f32 tensor of state has a non-finite value; `what` names the state in the
 * detail. */
lk_status lk__train_check_finite(const lk_state *state, const char *what) LK_CHECKED;

/* The progress of a run. */
typedef struct lk_position {
    size_t step;                    /* steps done */
    size_t epoch, batch;            /* the current epoch, from 0, and the number of its batches that are done */
    size_t samples;                 /* samples of these batches */
    double weight;                  /* the sum of the weights of these samples; without weights it is `samples` */
    double loss;                    /* the sum of their losses, each times its weight */
    size_t tested;                  /* the step of the last evaluation; 0: none */
    lk_metrics test;                /* its result */
    size_t best_step, best_correct; /* of the best evaluation, of the validation data if there are any; step 0: none */
    size_t agreed;                  /* the last step after which the replicas were known to be equal; 0: unknown */
    lk_metrics val;                 /* result of the validation, at the step `tested` */
    lk_lr_schedule_watch watch;     /* what the schedule has seen */
    size_t dropped;                 /* the step after which watch.drops last rose; 0: never */
    size_t judged, judged_best;     /* results of whole epochs, and the most correct samples of one */
    size_t stale;                   /* the last of these results that were no better */
    double best_loss, judged_loss;  /* as best_correct and judged_best */
} lk_position;
/* Adds the position to a checkpoint, as notes. */
lk_status lk__position_note(const lk_position *position, lk_checkpoint *checkpoint) LK_CHECKED;
/* FORMAT if a note is missing or not a number; path is for messages. */
lk_status lk__position_read(const lk_checkpoint *checkpoint, const char *path, lk_position *out) LK_CHECKED;

/* "60000 training samples of 1x28x28 in 10 classes (hash 0123456789abcdef)" */
enum { LK_DATA_TEXT = 192 };
void lk__train_data_text(const lk_dataset *data, const char *split, uint64_t hash, char text[LK_DATA_TEXT]);

/* Values that follow from the options and the data. */
typedef struct lk_train_effective {
    double lr;      /* the base rate, also where the option is 0 */
    size_t batches; /* of an epoch */
} lk_train_effective;
/* Adds the options that a checkpoint keeps as notes with their flags as names; not the notes of the data. */
lk_status lk__train_options_note(const lk_train_rank *rank, const lk_train_effective *effective,
                                 lk_checkpoint *checkpoint) LK_CHECKED;
/* Whether the learning rates of the first `steps` steps are equal with both numbers of epochs. */
bool lk__train_rates_stay(const lk_train_rank *rank, const lk_train_effective *effective, size_t epochs, size_t saved,
                          size_t steps);
/* Checks whether the run may resume from the checkpoint at this position. MISMATCH: the detail names the first
 * option that differs, with both values, or the difference in the data. Needs lk__data_notes_read. *shards are
 * those of the checkpoint; *touched as in lk__data_notes_check. */
lk_status lk__train_options_check(const lk_train_rank *rank, const lk_train_effective *effective,
                                  const lk_position *position, int *shards, bool *touched) LK_CHECKED;

/* Sets the notes of a state that say what the model is (description.h). */
lk_status lk__train_describe(const lk_train_opts *opts, const lk_train_shared *shared, lk_state *state) LK_CHECKED;

/* Whether this rank saves the final model. */
bool lk__train_saves(const lk_train_opts *opts, int rank);
/* Copies path, with each "{rank}" replaced by the rank. */
lk_status lk__train_save_path(const char *path, int rank, char *out, size_t bytes) LK_CHECKED;
/* Checks in advance whether a model can be saved as path; creates nothing that stays. */
lk_status lk__train_save_check(const char *path) LK_CHECKED;

#endif
