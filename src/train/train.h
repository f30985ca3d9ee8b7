/* train.h - the training loop: epochs, evaluations, checkpoints.
 *
 * A process runs one or more ranks, each in its own thread; every rank runs the same loop over its share of
 * the batches. The loop prints nothing: it calls the caller's hooks. The public lk_train and the program both call
 * lk__train. */
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
#include "parallel/step/meter.h"

/* The commands that have an option: bits of lk_option.commands. */
enum {
    LK_FOR_TRAIN = 1 << 0,
    LK_FOR_EVAL = 1 << 1,
    LK_FOR_BENCH = 1 << 2,
    LK_FOR_INFO = 1 << 3,
    LK_FOR_PREDICT = 1 << 20 /* the program's other commands are between */
};
/* The row of an option of lk_train_opts; NULL after the last. */
const lk_option *lk__train_option(size_t index);

/* settings.c: the options of a public call become settings, in which a zero is a zero: fills in the defaults of the
 * rows, and checks the ranges (USAGE). Does not set batch and shards of a whole step. */
lk_status lk__train_settings(const lk_train_opts *given, lk_train_opts *out) LK_CHECKED;
/* Makes batch and shards, of one of `accumulate` batches, those of a whole step. USAGE if there are too many shards. */
lk_status lk__train_accumulate(lk_train_opts *settings) LK_CHECKED;
/* The shards of a step if none were given, after lk__train_accumulate: more than the usual 16 for each batch if there
 * are more replicas. Where that would be too many, the engine refuses the replicas. */
int lk__train_default_shards(const lk_train_opts *settings, int ranks);
/* The note of `model` for a graph of the program's own. */
enum { LK_TRAIN_GRAPH_TEXT = 96 };
void lk__train_graph_text(const lk_graph *graph, char text[LK_TRAIN_GRAPH_TEXT]);
/* Whether a note of `model` is of that kind. */
bool lk__train_is_graph(const char *model);

/* The workers of a loader for this engine: those of the settings, or the automatic number. */
int lk__train_workers(const lk_train_opts *settings, const lk_dataset *data, const lk_engine *engine);

/* What a user asks a run under way to do, as a signal level (lk_engine_set_signal_source). The level for a stop
 * is LK_SIGNAL_LEVEL_STOP plus the number of the signal that the process received. */
enum { LK_SIGNAL_LEVEL_NONE, LK_SIGNAL_LEVEL_SAVE, LK_SIGNAL_LEVEL_STOP };

/* A rank of the job; without a group it is rank 0 of 1. */
typedef struct lk_train_rank_info {
    int rank, ranks, local_rank;
    const char *host, *transport, *device; /* host and transport are "" without a group */
    lk_layout layout;
    lk_shard_range share;
} lk_train_rank_info;

/* Before the first step, once. Pointers are borrowed and valid until the run ends. */
typedef struct lk_train_begin {
    const lk_dataset_info *train, *test; /* test is NULL with no_test */
    const lk_dataset_info *val;          /* the samples that val_split holds back, or NULL */
    const char *augment, *test_augment;  /* the transforms, with "auto" resolved; "none" if there are none */
    size_t parameters, batches, steps;   /* batches of an epoch; steps of the whole run */
    size_t batch;                        /* samples of a step */
    lk_train_rank_info self;
    const char (*cuts)[LK_LAYER_TEXT]; /* (stages - 1) the first layers of stages 1, 2 ... */
    int better_shards;          /* the next larger number of shards that is replicas * 2^k; 0: `shards` is good */
    size_t done;                /* steps of the checkpoint that the run resumes from, else 0 */
    double earlier;             /* seconds of the run up to this checkpoint, in the same run folder; 0: unknown */
    double lr;                  /* the base rate: the option, or the optimiser's own */
    lk_lr_schedule_rates rates; /* of the steps that are left; all 0 if none are left */
    bool watches;               /* the schedule lowers these rates when results are no better */
    size_t warmup;              /* steps of the warm-up, if the run is too short for it; else 0 */
    bool extends;               /* a larger --epochs does not change the rates of the `done` steps */
    int saved_shards;           /* shards of the checkpoint, if they differ; else 0 */
    const char *other_device;   /* what differs from the device and the precision of the checkpoint; or "" */
    bool mixed_devices;         /* ranks have different GPUs, or other versions of libraries */
    size_t agreed; /* the last step, up to `done`, after which the replicas were known to be equal; 0: unknown */
    bool traced;   /* all steps of `trace` were done before the run resumed: there will be no trace */
    bool touched;  /* data files have other times than when the checkpoint was saved, and only some contents are
                    * compared */
} lk_train_begin;

/* Where the time of a rank's training steps went, in seconds. The four add up to the time of the steps. */
typedef struct lk_train_phases {
    double data;    /* waiting for the loader, because the next batch was not ready */
    double compute; /* own work in steps; with lk_train_use.joint also waits for other ranks */
    double wait;    /* waiting for other ranks in sums, stages and agreements */
    double other;   /* the event functions */
} lk_train_phases;

/* What one rank has used: since this process started (lk_train_outcome), or since the last event (lk_train_uses). Ranks
 * send it to rank 0 as bytes, so there are no pointers in it. */
typedef struct lk_train_use {
    int64_t rank;
    uint64_t steps, samples; /* samples of this rank's share; with stages, those that pass through its stage */
    int64_t shards;          /* of each batch that the rank trains at this moment */
    double seconds;          /* of training steps, without evaluations and saves */
    lk_train_phases phases;
    uint64_t loaded;           /* training samples that the loader's threads have made; 0: others hold the samples */
    double loader_seconds;     /* of these threads together */
    int64_t loader_threads;    /* the workers, or 1 */
    double cpu_seconds;        /* CPU time of the rank's process, evaluations included */
    double memory_mb, peak_mb; /* of the rank's process in host memory, in units of 10^6 bytes: now, and at most */
    char host[64];             /* "" in a run of one rank */
    char device[32];
    double gpu_pct, gpu_memory_mb, gpu_celsius; /* as in tensor/gauge.h, at this moment; NaN: unknown, or no GPU */
    int64_t joint; /* 1: a channel between GPUs sums the gradients, so waits for other ranks are part of compute */
} lk_train_use;

/* The uses of all ranks since the last such event, or since the first step; at rank 0 only. */
typedef struct lk_train_uses {
    size_t step;    /* steps done */
    double seconds; /* since the first step began */
    int ranks;
    const lk_train_use *use; /* (ranks) */
} lk_train_uses;

/* The parts of a step, for its trace. */
#define LK_TRAIN_TRACE_PART_LIST(X) \
    X(DATA, "data")                 \
    X(FORWARD, "forward")           \
    X(BACKWARD, "backward")         \
    X(SUMS, "sums")                 \
    X(UPDATE, "update")             \
    X(CHECK, "check")               \
    X(DEVICE, "device")             \
    X(OTHER, "other")               \
    X(WAIT, "waiting")

typedef enum lk_train_trace_part {
#define LK_TRAIN_TRACE_PART_ENUM(name, text) LK_TRAIN_TRACE_PART_##name,
    LK_TRAIN_TRACE_PART_LIST(LK_TRAIN_TRACE_PART_ENUM)
#undef LK_TRAIN_TRACE_PART_ENUM
        LK_TRAIN_TRACE_PART_COUNT
} lk_train_trace_part;
extern const char *const lk__train_trace_parts[LK_TRAIN_TRACE_PART_COUNT];

/* The traced steps of one rank: mean seconds of a step, and of its parts. WAIT is waiting for other ranks; the other
 * parts are the rank's own work. */
typedef struct lk_train_trace_row {
    int rank;
    double step;
    double parts[LK_TRAIN_TRACE_PART_COUNT];
} lk_train_trace_row;

/* After the last traced step, at rank 0. */
typedef struct lk_train_trace {
    const char *path;
    const char *error;  /* why the file could not be written; NULL: it was */
    size_t first, last; /* steps */
    int ranks;
    size_t spans, dropped;          /* events in the file, and events that did not fit into memory */
    const lk_train_trace_row *rows; /* (ranks) */
    int slowest;                    /* the rank that waits least for others */
    lk_train_trace_part part;       /* in which it differs most from the others; of one rank, its longest part */
    double more;     /* seconds of a step that it spends longer in that part than the others, on average */
    double awaited;  /* seconds of a step that the others wait longer than it does, on average */
    bool holds_back; /* these are a notable part of the step */
} lk_train_trace;

typedef struct lk_train_outcome {
    int ranks;
    bool stopped;             /* the run was stopped by a request, before its end */
    int stop_signal;          /* the number of the signal; 0: none */
    int stop_rank;            /* the rank that got it, the lowest of several */
    char stop_host[64];       /* of that rank; "" for a run of one rank */
    char checkpoint[4096];    /* rank 0: the last checkpoint that was saved, or "" */
    size_t steps, samples;    /* steps of the run; samples since this process started */
    double seconds;           /* of training and evaluation */
    double train_seconds;     /* of training steps alone */
    lk_waits waits;           /* of this rank; not known if joint */
    bool joint;               /* as in lk_train_use */
    size_t moves;             /* how often shards were moved between ranks since this process started */
    const lk_train_use *uses; /* (ranks) in the events of rank 0; NULL elsewhere, and after the run */
    lk_metrics test;          /* of the last evaluation; count is 0 if there was none */
    lk_metrics val;           /* the same of the validation data */
    size_t best_step;         /* the step with the best evaluation, of the validation data if there are any; 0: none */
    size_t best_correct;      /* of that evaluation */
    double best_loss;         /* the same */
    size_t stale;             /* epochs without a better result, after which the run ended early; 0: it did not */
    uint64_t hash;            /* of the final state */
    char saved[4096];         /* the path of the model that this rank saved, or "" */
} lk_train_outcome;

/* When a state is given to lk_train_hooks.state. */
typedef enum lk_train_moment {
    LK_TRAIN_MOMENT_FIRST, /* before the first step; not in a run that resumes */
    LK_TRAIN_MOMENT_EPOCH, /* after the last step of an epoch, before its evaluation */
    LK_TRAIN_MOMENT_FINAL  /* after the run */
} lk_train_moment;

/* The state of the whole model, borrowed during the call. */
typedef struct lk_train_state {
    lk_train_moment moment;
    size_t step; /* steps done */
    const lk_state *model;
    const lk_state *grads; /* of the last step; NULL except after an epoch */
} lk_train_state;

/* What a rank does while it takes no steps. */
typedef enum lk_train_activity {
    LK_TRAIN_ACTIVITY_OPEN, /* opens data, model and checkpoint; emitted once for the process, by its first rank */
    LK_TRAIN_ACTIVITY_JOIN, /* waits for the other ranks of the job */
    LK_TRAIN_ACTIVITY_PLAN, /* plans the model on its device, and loads first weights */
    LK_TRAIN_ACTIVITY_STEP, /* takes steps again */
    LK_TRAIN_ACTIVITY_TEST, /* evaluates */
    LK_TRAIN_ACTIVITY_END,  /* copies, compares, hashes and saves the final model */
    LK_TRAIN_ACTIVITY_COUNT
} lk_train_activity;

/* Functions that follow the run of a rank; each may be NULL. The thread of the rank calls them. start, before_step,
 * step, epoch, test and saved are those of lk_train_events. */
typedef struct lk_train_hooks {
    void *arg;
    /* An activity begins, or is further: done of total batches (0 of 0: unknown). May come before start. */
    void (*activity)(void *arg, lk_train_activity activity, size_t done, size_t total);
    lk_engine_meter *meter; /* of the rank's steps, for other threads of the caller; NULL: none */
    void (*begin)(void *arg, const lk_train_begin *begin);
    void (*start)(void *arg, const lk_train_start *start);
    void (*before_step)(void *arg, const lk_train_next *next);
    void (*step)(void *arg, const lk_train_step *step);
    void (*epoch)(void *arg, const lk_train_epoch *epoch);
    void (*test)(void *arg, const lk_train_test *test);
    /* Called also before a failure of the last save, with "" in result->saved: the training itself is complete. */
    void (*end)(void *arg, const lk_train_outcome *result);
    /* Called instead of end if the run was stopped. Every rank waits until it has returned at all ranks. */
    void (*stopped)(void *arg, const lk_train_outcome *result);
    void (*saved)(void *arg, const lk_train_saved *saved);
    lk_notice_fn notice; /* a sentence for the user before the first step, at rank 0, for callers without `begin` */
    void (*trace)(void *arg, const lk_train_trace *trace);
    /* Called at rank 0 after the step event of every batch whose number is a multiple of uses_every (0: never). The
     * uses of all ranks are gathered for it by one small collective call. Rank 0's uses_every counts for all ranks. */
    void (*uses)(void *arg, const lk_train_uses *uses);
    size_t uses_every;
    /* Called at rank 0. The ranks of the first replica gather the state for it, a copy of the model at each. */
    void (*state)(void *arg, const lk_train_state *state);
    /* The steps of batches whose number is a multiple of it compute the gradient's norm; 0: none. Rank 0's value counts
     * for all ranks. */
    size_t norm_every;
    /* For tests: the seconds that the rank needs for a step with these shards, apart from waits, instead of the time
     * that was measured (moves.c). */
    double (*step_time)(void *arg, lk_shard_range share);
} lk_train_hooks;

/* Who has failed; the most informative failure first. */
typedef enum lk_train_fault {
    LK_TRAIN_FAULT_SETUP,  /* this process, before it joined */
    LK_TRAIN_FAULT_OWN,    /* this rank; it has aborted the job */
    LK_TRAIN_FAULT_COMMON, /* every rank, with the same detail */
    LK_TRAIN_FAULT_PEER,   /* another rank */
    LK_TRAIN_FAULT_DEVICE  /* no rank: a GPU that the user has not named cannot be used, and no rank has started */
} lk_train_fault;

typedef struct lk_train_failure {
    lk_status status;
    lk_train_fault fault;
    int rank; /* -1: it had not joined */
    char detail[2048];
    bool speaker;          /* for LK_TRAIN_FAULT_DEVICE: this process, of all, prints the reason for the user */
    bool begun;            /* the first step had begun */
    bool saves;            /* this process has rank 0, which saves checkpoints */
    char checkpoint[4096]; /* the last checkpoint that was saved, or "" */
    size_t writing;        /* the step of a later checkpoint that is being written; 0: none */
    char *history;         /* after a timeout or different calls: the group's last calls, owned; else NULL */
} lk_train_failure;

/* The ranks of a process that have joined their job, with everything that they share. */
typedef struct lk_train_crew lk_train_crew;

/* The ranks of a process. */
typedef struct lk_train_ranks {
    const lk_train_opts *opts;   /* settings: a zero is a zero; batch and shards are those of a whole step */
    bool resume_exact;           /* the user has named the checkpoint opts->resume; false: the newest of a folder */
    const char *run_name;        /* of the run folder; a note of every checkpoint. NULL: none */
    int count;                   /* ranks of this process */
    int first;                   /* the number of its first rank in the job */
    const char *const *devices;  /* (count) */
    lk_group *joins;             /* of a single rank that has joined already, borrowed; NULL: the ranks join */
    const lk_group_opts *group;  /* how to join the other processes; threads and thread are filled in */
    bool one_process;            /* the job has no other processes; only timeout and notice of `group` are used */
    bool asks;                   /* hooks may call lk_train_stop: ranks agree on it after epochs, too */
    const lk_train_hooks *hooks; /* (count) */
    atomic_int *signal_level;    /* an LK_SIGNAL_LEVEL_ value; the rank that reads it resets it. NULL: nobody asks */
    /* Called with a failure, before lk__train waits for a checkpoint that is being written; or NULL. */
    void (*failed)(void *arg, const lk_train_failure *failure);
    void *arg;
    /* NULL: the user has named the devices. Otherwise, if some rank of the job cannot use its GPU, lk__train
     * returns LK_TRAIN_FAULT_DEVICE at every process whose devices were not named, and leaves its ranks in *joined,
     * still joined. The caller must then call lk__train again, with opts and devices for the CPU and
     * everything else the same; that call takes *joined over. *joined is NULL before the first call. */
    lk_train_crew **joined;
} lk_train_ranks;

/* Runs the ranks to the end: the first in the calling thread, each other one in its own thread. *out is the
 * first rank's result; on failure *failure is the most informative failure. ranks->failed is called with
 * every failure but LK_TRAIN_FAULT_DEVICE.
 *
 * Errors that can be found in advance (a folder that cannot be written, a malformed init_from) are returned
 * before the first step, damaged test files after it. If the evaluation fails, the model is saved anyway,
 * unless the test loss is not finite. Non-finite weights are NONFINITE and are never saved. */
lk_status lk__train(const lk_train_ranks *ranks, lk_train_outcome *out, lk_train_failure *failure) LK_CHECKED;
void lk__train_failure_fini(lk_train_failure *failure);

/* The sentence about mixed_devices. */
extern const char lk__train_mixed_text[];

/* The note of a checkpoint that has lk_train_ranks.run_name. */
extern const char lk__train_run_note[];

/* The checkpoint that --resume chooses. */
typedef struct lk_resume {
    char path[4096]; /* of the checkpoint; "": there is none, and a new run starts */
    bool exact;      /* the user has named this checkpoint */
    lk_checkpoint *notes;
    char why[2048]; /* a line for each newer checkpoint that is damaged, without the last newline */
} lk_resume;
/* where: a checkpoint or a folder of checkpoints; NULL: the folder `dir`, which may not exist yet. Verifies the
 * checkpoint that it chooses. */
lk_status lk__resume_find(const char *where, const char *dir, lk_resume *out) LK_CHECKED;
void lk__resume_fini(lk_resume *resume);

/* Reads `trace`: the first and the last step. USAGE if it is malformed. */
lk_status lk__train_trace_range(const char *text, size_t *first, size_t *last) LK_CHECKED;

/* The shape of the samples, of either split, after the transforms `augment` of training. */
lk_status lk__train_shape(const lk_dataset *data, const char *augment, lk_sample_shape *out) LK_CHECKED;
/* Builds the model of opts for samples of this shape and the classes of data. */
lk_status lk__train_build_model(const lk_train_opts *opts, const lk_dataset *data, lk_sample_shape shape,
                                lk_graph **out) LK_CHECKED;
/* The engine's options from opts. Batch and group are left 0: they depend on the data and the job. */
lk_engine_opts lk__train_engine_opts(const lk_train_opts *opts);

/* Loads a model file into the named model and evaluates it on the test split, shared by `count` ranks that are threads
 * of this process, each with a device of its own: devices (count). The result is the same for any count up to the
 * shards. *classes is the number of classes of the data. Uses model, data, data_dir, augment, test_augment, test_batch,
 * threads, workers, shards and init_from of opts. hooks may be NULL; only its activity is used. */
enum { LK_EVALUATE_MAX_RANKS = 64 };
lk_status lk__train_evaluate(const lk_train_opts *opts, const char *const *devices, int count,
                             const lk_train_hooks *hooks, lk_metrics *out, size_t *classes) LK_CHECKED;

#endif
