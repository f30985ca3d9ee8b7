/* run.h - one rank of a run under way, as the files that make it go see it. */
#ifndef LK_TRAIN_RUN_H
#define LK_TRAIN_RUN_H

#include "train/parts.h"

enum { LK_DETAIL_BYTES = 2048 };

/* Everything a rank owns, and how far it is. */
typedef struct lk_train_run {
    const lk_train_rank *rank;
    const lk_train_opts *opts;
    const lk_train_shared *shared;
    const lk_train_events *events;
    lk_train_fault fault;
    lk_train_result result;
    lk_train_place place;
    lk_engine *engine;
    lk_loader *loader, *test_loader;
    lk_train_effective effective;
    size_t total_steps;
    lk_position at;
    lk_position saved; /* what the newest checkpoint has */
    int saved_shards;  /* of the checkpoint that the run goes on from, where they differ; else 0 */
    bool touched;      /* files of the data have other times than when that was saved */
    int wish;          /* what all ranks agreed on, an LK_WISH */
    int wisher;        /* the rank that it was asked of */
    size_t wished;     /* the last step after which that was to save */
    size_t under_way;  /* steps that were sent and not received */
    double began, epoch_began, step_began;
    double earlier_epochs; /* seconds of training steps */
    lk_metrics running;    /* of this rank's samples in this epoch; loss is a sum */
} lk_train_run;

/* run.c: brings a rank to the place where it begins or goes on. */
lk_status lk__run_open(lk_train_run *run) LK_CHECKED;
void lk__run_close(lk_train_run *run);
/* Samples a step. */
size_t lk__run_batch(const lk_train_run *run);
/* The place of a batch in the schedule. */
lk_lr_schedule_at lk__run_schedule_at(const lk_train_run *run, size_t epoch, size_t batch);

/* Whose failure it is. That the others have no part in: they must not wait. */
lk_status lk__run_alone(lk_train_run *run, lk_status status) LK_CHECKED;
/* That every rank finds by itself, since it follows from what the ranks have compared. */
lk_status lk__run_equal_batches(lk_train_run *run, lk_status status) LK_CHECKED;
/* Together: of what each rank finds in files that may differ between hosts. Fails at
 * every rank where one has failed: where not all have, those that have tell the others. */
lk_status lk__run_vote(lk_train_run *run, lk_status status) LK_CHECKED;
/* Of the engine. One that could not be created has compared its options with theirs.
 * What is this rank's own, the others are told, unless the engine has told them. */
lk_status lk__run_together(lk_train_run *run, lk_status status) LK_CHECKED;

/* keep.c. Together: saves a checkpoint of where the run is, unless the newest one
 * is that; the writing goes on behind. Replicas are compared between the copy and the
 * writing: what differs between ranks is never saved. */
lk_status lk__run_save(lk_train_run *run, bool best) LK_CHECKED;
/* Together: MISMATCH unless all replicas are equal. */
lk_status lk__run_check(lk_train_run *run) LK_CHECKED;
/* After replicas were found to differ: at rank 0, checkpoints of later steps than the last at which
 * replicas were equal are set aside, and the detail says so; returns the failure. */
lk_status lk__run_distrust(lk_train_run *run, lk_status failure) LK_CHECKED;
/* Tells what has been saved, and fails as a save did. */
lk_status lk__run_saved(lk_train_run *run) LK_CHECKED;
/* Together: the same when nothing is being written any more. */
lk_status lk__run_await_saved(lk_train_run *run) LK_CHECKED;
/* After a failure, at rank 0 of a model in one stage: saves without the others, and
 * waits for it. */
lk_status lk__run_save_alone(lk_train_run *run) LK_CHECKED;

#endif
