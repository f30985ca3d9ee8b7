/* parts.h - pieces of a run that the loop and the evaluation share. */
#ifndef LK_TRAIN_PARTS_H
#define LK_TRAIN_PARTS_H

#include "train/train.h"

/* Opens the training split and, unless opts->no_test, the test split; *test is
 * NULL with no_test. Files may still be unpacking when it returns. */
lk_status lk__open_splits(const lk_train_opts *opts, lk_dataset **train, lk_dataset **test) LK_CHECKED;

/* Waits until data can be read, and reports what is wrong with its files. */
lk_status lk__check_readable(const lk_dataset *data) LK_CHECKED;

/* The model of opts for samples like those of data. */
lk_status lk__build_model(const lk_train_opts *opts, const lk_dataset *data, lk_graph **out) LK_CHECKED;

/* Gives the engine a state that was read from path; NONFINITE when a weight is
 * not a finite number. */
lk_status lk__init_engine(lk_engine *engine, const lk_state *state, const char *path) LK_CHECKED;

/* A loader in the data set's order, without augmentation, each sample once. */
lk_status lk__test_loader(const lk_train_opts *opts, const lk_dataset *data, lk_loader **out) LK_CHECKED;

/* Metrics over the first max_batches batches of loader, 0 for all. */
lk_status lk__evaluate_batches(lk_engine *engine, lk_loader *loader, size_t max_batches, lk_metrics *out) LK_CHECKED;

/* NONFINITE, with the key, when an f32 tensor of state holds infinities or NaN;
 * what says whose state it is. */
lk_status lk__check_finite(const lk_state *state, const char *what) LK_CHECKED;

/* path with each {rank} replaced. */
lk_status lk__save_path(const char *path, int rank, char *out, size_t bytes) LK_CHECKED;
/* Finds out now whether a model can be saved at path later; leaves no trace. */
lk_status lk__save_check(const char *path) LK_CHECKED;

#endif
