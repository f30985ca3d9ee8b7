/* run.h - one rank of a run under way, for the files of train/ that run it: run.c, loop.c and those that are named
 * before their functions below. */
#ifndef LK_TRAIN_RUN_H
#define LK_TRAIN_RUN_H

#include "tensor/gauge.h"
#include "train/balance.h"
#include "train/parts.h"

enum { LK_DETAIL_BYTES = 2048 };

/* The trace of a run. */
typedef struct lk_run_trace {
    size_t first, last; /* steps, from 1; 0: none */
    bool on;            /* between the first and the last */
    double since;       /* when the trace began, on the clock of rank 0 */
    double offset;      /* what this rank adds to its clock to get that of rank 0 */
} lk_run_trace;

/* Moves of shards between ranks (moves.c). */
typedef struct lk_run_moves {
    bool on;
    int count;                     /* steps of the window so far */
    double own[LK_BALANCE_WINDOW]; /* their times, as in lk_balance_times */
    double whole[LK_BALANCE_WINDOW];
    double own_at, at; /* this rank's own time, and the clock, after the last step; at 0: none */
    lk_balance balance;
    lk_balance_times *all; /* (replicas) */
    int *next;             /* (replicas + 1) */
} lk_run_moves;

/* Everything that a rank owns, and its progress. */
struct lk_train_run {
    const lk_train_rank *rank;
    const lk_train_opts *opts;
    const lk_train_shared *shared;
    const lk_train_hooks *hooks;
    lk_train_fault fault;
    lk_train_outcome result;
    lk_train_rank_info self;
    lk_shard_range share; /* that this rank trains; self.share is the even one, of evaluations */
    lk_run_moves moves;
    lk_engine *engine;
    lk_loader *loader, *test_loader, *val_loader;
    lk_train_effective effective;
    size_t total_steps;
    lk_position at;
    lk_position saved; /* the position of the newest checkpoint */
    int saved_shards;  /* shards of the checkpoint that the run resumed from, if they differ; else 0 */
    char other_device[LK_DEVICE_NOTES_TEXT]; /* what lk__device_notes_compare says of that checkpoint */
    bool mixed_devices;                      /* the facts of the ranks' devices differ */
    bool test_checked;                       /* the test files were read and compared */
    bool touched;                            /* data files have other times than when that checkpoint was saved */
    int signal_level;                        /* what all ranks agreed to do: an LK_SIGNAL_LEVEL_ value */
    int signal_rank;                         /* the rank that received the signal */
    size_t signal_saved;                     /* the step after which the last LK_SIGNAL_LEVEL_SAVE was carried out */
    size_t under_way;                        /* steps that were sent and not yet received */
    double began, epoch_began, step_began;
    double earlier;        /* seconds of the same run folder's run before this process, as the checkpoint has them */
    double earlier_epochs; /* seconds of training steps in earlier epochs */
    lk_run_trace trace;
    lk_metrics running; /* of this rank's samples in this epoch; sums instead of means */
    lk_train_use use;   /* of this rank so far; `other` and what the process knows are added by use.c */
    lk_train_use used;  /* the same at the last event of uses */
    double cpu_began;
    size_t uses_every;         /* rank 0's value, at all ranks */
    lk_gauge *gauge;           /* of this rank's GPU, while uses are gathered; or NULL */
    lk_train_use *uses;        /* (ranks) at rank 0, NULL elsewhere */
    bool states;               /* rank 0 has an event for states */
    bool unsaved;              /* the run is complete, and this rank could not write its model */
    size_t norm_every;         /* rank 0's value, at all ranks */
    bool asks_stop;            /* lk_train_stop was called at this rank */
    lk_status asked;           /* the status of lk_train_fail */
    char why[LK_DETAIL_BYTES]; /* its detail */
};

/* run.c: creates the engine and the loader, and loads the initial weights or the checkpoint. */
lk_status lk__run_open(lk_train_run *run) LK_CHECKED;
void lk__run_close(lk_train_run *run);
/* Collective: MISMATCH at every rank if the contents of data files in memory differ between ranks. split as in
 * lk__train_agree_files. */
lk_status lk__run_compare_files(lk_train_run *run, const char *split, const lk_dataset *data) LK_CHECKED;
/* Samples of a step. */
size_t lk__run_batch(const lk_train_run *run);

/* The next functions take the status of an operation, record who has failed (lk_train_fault) and return the
 * status. This one: only this rank did the operation; a failure aborts the job, so that no rank waits. */
lk_status lk__run_own_result(lk_train_run *run, lk_status status) LK_CHECKED;
/* Every rank did the operation and got the same status, because its inputs have been compared. */
lk_status lk__run_common_result(lk_train_run *run, lk_status status) LK_CHECKED;
/* Collective: every rank did the operation, on files that may differ between hosts. If any rank has failed,
 * the call fails at all ranks. If the other ranks have succeeded, the failed ranks abort the job. */
lk_status lk__run_vote(lk_train_run *run, lk_status status) LK_CHECKED;
/* The operation is a collective call of the engine or the group. A failure that only this rank knows aborts
 * the job. */
lk_status lk__run_collective_result(lk_train_run *run, lk_status status) LK_CHECKED;

/* watch.c: the position in the schedule of a step that is done or next. */
lk_lr_schedule_at lk__run_schedule_at(const lk_train_run *run, size_t epoch, size_t batch);
/* Whether a result is better than one with so many correct samples and this loss. The loss counts where the model has
 * none of classes. */
bool lk__run_is_better(const lk_train_run *run, const lk_metrics *result, size_t correct, double loss);
/* Counts the result of an epoch, if the epoch is whole. */
void lk__run_watch(lk_train_run *run, const lk_metrics *result);
/* Makes this step the last one if early_stop says so. */
void lk__run_end_early(lk_train_run *run);

/* hooks.c: emits the events of lk_train_events; each fails if its function has called lk_train_fail. */
lk_status lk__run_emit_start(lk_train_run *run) LK_CHECKED;
/* The step that is sent next, with the rate of the schedule. */
lk_status lk__run_emit_next(lk_train_run *run, double lr) LK_CHECKED;
lk_status lk__run_emit_step(lk_train_run *run, const lk_metrics *metrics, double lr) LK_CHECKED;
lk_status lk__run_emit_epoch(lk_train_run *run) LK_CHECKED;
/* Emits the result of the validation data (val) or of the test data, if there are any. */
lk_status lk__run_emit_test(lk_train_run *run, bool val) LK_CHECKED;
/* The failure that a hook has asked for; LK_OK: none. Aborts the job. */
lk_status lk__run_asked(lk_train_run *run) LK_CHECKED;
/* Collective if hooks may ask: ranks agree on lk_train_stop where no step follows that would carry it. */
lk_status lk__run_agree_stop(lk_train_run *run) LK_CHECKED;

/* keep.c. Seconds of the run when the checkpoint was saved from which the run resumes in the same run folder; else 0.
 */
double lk__run_earlier(const lk_train_run *run);
/* Collective: saves a checkpoint of the current position, unless the newest one has this position. The
 * saver's thread writes it. The replicas are compared between copying and writing: a state in which they
 * differ is never saved. */
lk_status lk__run_save(lk_train_run *run, bool best) LK_CHECKED;
/* Collective: MISMATCH unless all replicas are equal. */
lk_status lk__run_check(lk_train_run *run) LK_CHECKED;
/* After a difference between replicas: rank 0 sets aside all checkpoints after the last step at which they
 * were equal, and adds this to the detail. Returns the failure. */
lk_status lk__run_distrust(lk_train_run *run, lk_status failure) LK_CHECKED;
/* Emits the event of a checkpoint that has been written; fails if writing has failed. Does not block. */
lk_status lk__run_saved(lk_train_run *run) LK_CHECKED;
/* Collective: blocks until nothing is being written, then does what lk__run_saved does. */
lk_status lk__run_await_saved(lk_train_run *run) LK_CHECKED;
/* trace.c. Reads the options; needs total_steps. */
lk_status lk__run_trace_open(lk_train_run *run) LK_CHECKED;
/* Collective. Before and after each step: begins the trace before the first traced step, and ends it after the last. */
lk_status lk__run_trace_before(lk_train_run *run) LK_CHECKED;
lk_status lk__run_trace_after(lk_train_run *run) LK_CHECKED;
/* Collective: ends a trace that has begun. For a run that stops. */
lk_status lk__run_trace_finish(lk_train_run *run) LK_CHECKED;
/* Whether the trace begins or ends after this number of steps, so that no later step may be sent before. */
bool lk__run_trace_cuts(const lk_train_run *run, size_t steps);
/* Ends recording, also after a failure. */
void lk__run_trace_close(lk_train_run *run);

/* After a failure, at rank 0 of a model with one stage: saves without the other ranks, and blocks until the
 * checkpoint is written. */
lk_status lk__run_save_without_peers(lk_train_run *run) LK_CHECKED;

/* states.c. Collective: all ranks learn from rank 0 whether it wants states, and norms of the gradient. */
lk_status lk__run_states_open(lk_train_run *run) LK_CHECKED;
/* Collective: emits the event of the state at this moment, if rank 0 wants it; no step may be under way. */
lk_status lk__run_emit_state(lk_train_run *run, lk_train_moment moment) LK_CHECKED;

/* moves.c. After the engine and run->self are there. */
lk_status lk__run_moves_open(lk_train_run *run) LK_CHECKED;
void lk__run_moves_close(lk_train_run *run);
/* A step of `total` samples was received. Collective after every window of steps: may move shards. */
lk_status lk__run_moves_step(lk_train_run *run, size_t total) LK_CHECKED;

/* use.c. Collective: all ranks learn from rank 0 how often uses are gathered. */
lk_status lk__run_uses_open(lk_train_run *run) LK_CHECKED;
void lk__run_uses_close(lk_train_run *run);
/* A step of `total` samples was received. Collective after every uses_every-th batch: emits the event of uses. */
lk_status lk__run_uses_step(lk_train_run *run, size_t total) LK_CHECKED;
/* Collective: gathers the uses since the start of the run into run->uses and the result. */
lk_status lk__run_uses_end(lk_train_run *run) LK_CHECKED;

#endif
