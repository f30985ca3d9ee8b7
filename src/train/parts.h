/* parts.h - pieces of a run that the files of this module share. */
#ifndef LK_TRAIN_PARTS_H
#define LK_TRAIN_PARTS_H

#include "data/sets/dataset.h"
#include "data/transform/transforms.h"
#include "optim/optim.h"
#include "train/saver.h"
#include "train/train.h"

/* What the training data are, by their content; data_notes.c. Any thread may call. */
typedef struct lk_data_notes lk_data_notes;
lk_status lk__data_notes_create(lk_data_notes **out) LK_CHECKED;
/* Before anything is asked: the data, borrowed. */
void lk__data_notes_set(lk_data_notes *notes, const lk_dataset *data);
void lk__data_notes_destroy(lk_data_notes *notes);
/* Reads the data, unless that was done: all of them, or much, which is not for the
 * first moments of a run. */
lk_status lk__data_notes_read(lk_data_notes *notes) LK_CHECKED;
/* Reads, and adds the notes to a checkpoint; an lk_data_notes as lk_saver_opts.complete. */
lk_status lk__data_notes_add(void *notes, lk_checkpoint *checkpoint) LK_CHECKED;
/* After lk__data_notes_read: MISMATCH, which says in what they differ, unless resume
 * notes the same. *touched: the times of files differ, and only some of them are
 * compared by content. */
lk_status lk__data_notes_check(lk_data_notes *notes, const lk_train_opts *opts, const lk_checkpoint *resume,
                               bool *touched) LK_CHECKED;

/* What the ranks of a process have in common; they only read it. */
typedef struct lk_train_shared {
    lk_state *initial;     /* of init_from, or NULL */
    lk_checkpoint *resume; /* of opts->resume, or NULL */
    lk_saver *saver;       /* where rank 0 is and checkpoints are saved, or NULL */
    lk_lr_schedule *schedule;
    lk_dataset *train, *test;           /* test is NULL with no_test */
    char test_augment[LK_AUGMENT_TEXT]; /* what brings test samples to the model's shape */
    lk_data_notes *data_notes;          /* of train */
    lk_graph *graph;
    char (*cuts)[LK_LAYER_TEXT]; /* as in lk_train_start, or NULL */
} lk_train_shared;

/* Opens and checks all that can be without the other ranks. Files may still be
 * unpacking when it returns. On failure there is nothing to close. */
lk_status lk__train_shared_open(const lk_train_ranks *ranks, lk_train_shared *out) LK_CHECKED;
void lk__train_shared_close(lk_train_shared *shared);

/* One rank of a run. */
typedef struct lk_train_rank {
    const lk_train_opts *opts;
    const lk_train_shared *shared;
    lk_group *group; /* NULL: alone */
    const char *device;
    const lk_train_events *events;
    atomic_int *wish; /* or NULL */
} lk_train_rank;

/* What a rank knows of its failure, beside the status. */
typedef struct lk_train_rank_failure {
    lk_train_fault fault;
    bool begun;  /* the first step had begun */
    bool teller; /* as in lk_train_failure */
} lk_train_rank_failure;
/* Trains, tests and saves. A failure that the others cannot know of has been told
 * to them; *failure is set on failure. */
lk_status lk__train_rank(const lk_train_rank *rank, lk_train_result *out, lk_train_rank_failure *failure) LK_CHECKED;

/* Together: MISMATCH at every rank, naming rank and option, unless all were told
 * to train on the same data in the same way. *agreed as in lk__agree_lines. */
lk_status lk__train_agree(const lk_train_rank *rank, bool *agreed) LK_CHECKED;

/* Together, unless the rank is alone: whether all ranks can use their devices. A device
 * that was named is not tried. UNSUPPORTED at every rank whose device was not named where
 * some ranks use GPUs and one cannot, with the reason of the first such rank; *teller is
 * then the rank whose process tells the user, and -1 otherwise. MISMATCH, told to all, at
 * a rank whose GPU was named while others cannot use theirs. */
lk_status lk__train_settle(const lk_train_rank *rank, bool named, int *teller) LK_CHECKED;

/* Waits until data can be read, and reports what is wrong with its files. */
lk_status lk__train_check_readable(const lk_dataset *data) LK_CHECKED;

/* The transforms of training: augment, or what "auto" is for these data. */
const char *lk__train_augment(const lk_dataset *data, const char *augment);
/* The transforms of the test split where nothing is trained, and the shape that they
 * give: that of the test transforms in opts, whatever those of training are, or where
 * they are "auto" that of training. */
lk_status lk__train_evaluation_shape(const lk_train_opts *opts, const lk_dataset *data, lk_sample_shape *out,
                                     char text[LK_AUGMENT_TEXT]) LK_CHECKED;

/* The weights in a file, with names as models have them: "module." before all of them
 * is removed. */
lk_status lk__train_load_weights(const char *path, lk_state **out) LK_CHECKED;

/* Together: gives the engine the state of the file opts->init_from, less what
 * opts->init_skip names, whatever floats it is made of. Where it does not fit, the
 * message ends with the hint. */
lk_status lk__train_init_engine(lk_engine *engine, const lk_train_opts *opts, const lk_state *file,
                                const char *hint) LK_CHECKED;

/* A loader in the data set's order, each sample once; share is what this rank
 * loads of each batch. */
lk_status lk__train_test_loader(const lk_train_opts *opts, const lk_dataset *data, const char *augment,
                                lk_shard_range share, lk_loader **out) LK_CHECKED;

/* Keeps the loader's samples on the engine's device, where they can be. */
lk_status lk__train_cache_samples(lk_engine *engine, lk_loader *loader) LK_CHECKED;

/* Metrics over the first max_batches batches of loader, 0 for all. *own tells
 * whether a failure was this rank's alone. watch, unless it is NULL, is asked after
 * each batch; false ends the evaluation, with a count of 0. */
typedef struct lk_train_watch {
    bool (*goes_on)(void *arg);
    void *arg;
} lk_train_watch;
lk_status lk__train_evaluate_batches(lk_engine *engine, lk_loader *loader, size_t max_batches,
                                     const lk_train_watch *watch, lk_metrics *out, bool *own) LK_CHECKED;

/* NONFINITE, with the key, when an f32 tensor of state holds infinities or NaN;
 * what says whose state it is. */
lk_status lk__train_check_finite(const lk_state *state, const char *what) LK_CHECKED;

/* How far a run is. */
typedef struct lk_position {
    size_t step;                    /* steps done */
    size_t epoch, batch;            /* the epoch at hand, from 0, and its batches that are done */
    size_t samples;                 /* of the epoch that were trained on */
    double loss;                    /* the sum of theirs */
    size_t tested;                  /* the step after which the last evaluation was; 0: none was */
    lk_metrics test;                /* what it gave */
    size_t best_step, best_correct; /* the evaluation that was best; step 0: none was */
    size_t agreed;                  /* the last step after which replicas were known to be equal; 0: not known */
} lk_position;
/* As notes of a checkpoint. */
lk_status lk__position_note(const lk_position *position, lk_checkpoint *checkpoint) LK_CHECKED;
/* FORMAT where a note is missing or no number; path is for messages. */
lk_status lk__position_read(const lk_checkpoint *checkpoint, const char *path, lk_position *out) LK_CHECKED;

/* "60000 training samples of 1x28x28 in 10 classes (hash 0123456789abcdef)" */
enum { LK_DATA_TEXT = 192 };
void lk__train_data_text(const lk_dataset *data, const char *split, uint64_t hash, char text[LK_DATA_TEXT]);

/* What options came to, beside opts. */
typedef struct lk_train_effective {
    double lr;
    size_t batches; /* of an epoch */
} lk_train_effective;
/* The options that a checkpoint keeps, as notes named like them; not what the data are. */
lk_status lk__train_options_note(const lk_train_rank *rank, const lk_train_effective *effective,
                                 lk_checkpoint *checkpoint) LK_CHECKED;
/* Whether the rates of the first `steps` are the same with both numbers of epochs. */
bool lk__train_rates_stay(const lk_train_rank *rank, const lk_train_effective *effective, size_t epochs, size_t saved,
                          size_t steps);
/* Whether the run may go on from the checkpoint, at this place: MISMATCH names the
 * first option that contradicts it, with both values, or in what the data differ, which
 * have been read. *shards are those of the checkpoint; *touched as in
 * lk__data_notes_check. */
lk_status lk__train_options_check(const lk_train_rank *rank, const lk_train_effective *effective,
                                  const lk_position *position, int *shards, bool *touched) LK_CHECKED;

/* Whether this rank saves the model. */
bool lk__train_saves(const lk_train_opts *opts, int rank);
/* path with each {rank} replaced. */
lk_status lk__train_save_path(const char *path, int rank, char *out, size_t bytes) LK_CHECKED;
/* Finds out now whether a model can be saved at path later; leaves no trace. */
lk_status lk__train_save_check(const char *path) LK_CHECKED;

#endif
