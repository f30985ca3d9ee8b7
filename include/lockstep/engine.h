/* engine.h - training steps on the lockstep law.
 *
 * An engine holds a compiled graph, its parameters and an optimiser. A step is
 * cut into shards; every sum over samples is taken per shard and folded over
 * one fixed tree, so the weights after a step do not depend on threads, waves,
 * ranks or machine.
 *
 * With a group, each rank has an engine of its own and all make the same calls
 * in the same order. The ranks are a grid: replicas of the model, which share
 * the shards of a batch, times the stages that the model is cut into, which
 * share its layers. Rank r is stage r % stages of replica r / stages. Calls
 * marked "together" talk to the other ranks; an error in one breaks the job,
 * and every rank gets it.
 *
 * Threads: any thread may call an engine, but one at a time. A call that returns a
 * status while another call of the same engine has not returned, by another thread or
 * around the function given to lk_engine_set_signal_source, is USAGE and touches nothing.
 * lk_engine_layout, lk_engine_shard_range and lk_engine_depth read what never changes and may
 * be called at any time; the other calls without a status, lk_engine_destroy among them,
 * do not notice and must not be made meanwhile, but by the function given to
 * lk_engine_set_signal_source, which may read. Different engines may be called at the same time,
 * unless they have the same group (group.h).
 *
 * Processes: an engine works in the process that made it. In one that was forked later
 * (lk_spawn) its calls are USAGE, and lk_engine_destroy does nothing. */
#ifndef LOCKSTEP_ENGINE_H
#define LOCKSTEP_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/data.h>
#include <lockstep/graph.h>
#include <lockstep/group.h>
#include <lockstep/state.h>
#include <lockstep/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_engine lk_engine;

/* In what order gradients of several ranks are added up. */
typedef enum lk_reduce_order {
    LK_REDUCE_ORDER_TREE,   /* the law's */
    LK_REDUCE_ORDER_BACKEND /* one of the devices' own: the bits depend on the number of ranks, and are outside the law
                             */
} lk_reduce_order;

/* Zero means the default. */
typedef struct lk_engine_opts {
    const char *device; /* "cpu", the default, or "cuda:N"; "cuda" is GPU 0 */
    int threads;        /* default: this rank's part of the cores that its process may use */
    size_t batch;       /* samples a step, of all ranks together; required */
    int shards;         /* default 16, on GPUs one a replica; part of the result */
    size_t micro_batch; /* samples of a rank in one wave; default: all; pipelined, four waves a stage */
    lk_bn_mode bn;
    lk_precision precision; /* of values on a GPU */
    const char *optimizer;  /* "sgd", "adam", "adamw", "adadelta", with parameters: "sgd:momentum=.9" */
    double lr;              /* not below 0; default, and 0: the optimiser's */
    uint64_t seed;
    bool eval_only;         /* no step will be taken: one is refused, and what it would need is not asked for */
    bool allow_nonfinite;   /* go on when a loss or gradient is not finite */
    double clip_norm;       /* the gradient is scaled down to this norm; 0: never */
    double label_smoothing; /* of the training loss, in [0,1): so much of a label's weight is spread over classes */

    lk_group *group;        /* the ranks, borrowed until the engine is destroyed; NULL: this rank alone */
    size_t bucket_bytes;    /* gradients are summed in ranges of so many bytes; default 4 MB */
    lk_reduce_order reduce; /* ENGINE is an error where NCCL does not sum gradients */
    /* Who adds gradients up, with the same bits: "host" the group, in the host's memory; "nccl" or "ipc" that one, on
     * the GPUs, or it is an error; NULL or "auto" the first of "nccl", "ipc" and "host" that can. */
    const char *gradient_backend;
    const char *stages; /* "2", or "fc1,fc2": the named layers begin stages 1 and 2; NULL: one stage */
    bool pipelined;     /* stages work at the same time, each on another wave */
    int check_every;    /* steps, as lk_engine_steps counts, between comparisons of replicas; default 100, -1: none */
} lk_engine_opts;

/* graph may be destroyed afterwards. Together: options that belong to the
 * result must agree, and all start from the parameters of replica 0. USAGE where
 * BatchNorm would see one value per channel in every batch, or in every shard. */
lk_status lk_engine_create(const lk_graph *graph, const lk_engine_opts *opts, lk_engine **out) LK_CHECKED;
/* Ranks that share a GPU wait here for each other, as long as their job is whole. */
void lk_engine_destroy(lk_engine *engine);

typedef struct lk_metrics {
    size_t count;   /* samples */
    size_t correct; /* whose largest score is their label's; the first of equals */
    size_t top5;    /* whose label's score is among the five largest */
    double loss;    /* mean over the samples */
} lk_metrics;

/* Where an engine stands among the ranks. */
typedef struct lk_layout {
    int replica, replicas, stage, stages;
    int first_layer, last_layer;  /* layers [first,last) of the graph are this stage; layer 0 is the input, in none */
    int threads;                  /* that this rank computes with */
    size_t capacity;              /* samples in a wave */
    bool one_wave;                /* BatchNorm over the batch: a step is one wave, stages take turns */
    const char *gradient_backend; /* who adds gradients up: "nccl", "ipc"; NULL: the group */
} lk_layout;
lk_layout lk_engine_layout(const lk_engine *engine);
/* The share of each batch that this rank should load; in a group it may also be
 * given whole batches. */
lk_shard_range lk_engine_shard_range(const lk_engine *engine);

/* Keeps a loader's samples on the engine's device, where that has memory of its own,
 * they are bytes of one size whose transforms are among crop and flip, and they take
 * at most half of what is free there. From its next start on the loader brings
 * labels and ids, its batches are for this engine alone, and it is of no use without
 * it; the bits of steps and evaluations stay the same. Reads the whole data set. Two loaders can be placed,
 * one for training and one for testing. *placed says whether; that it does not fit
 * is no error. Talks to no other rank, and stages but the first place nothing. */
lk_status lk_engine_cache_dataset(lk_engine *engine, lk_loader *loader, bool *placed) LK_CHECKED;

/* Together: forward, backward and one optimiser step. The batch may have
 * anything from 1 to the engine's batch of samples. The metrics are of the whole
 * batch, at every rank. After NONFINITE the engine is as before the step. */
lk_status lk_engine_step(lk_engine *engine, const lk_batch *batch, lk_metrics *out) LK_CHECKED;
/* The same in two halves: send enqueues a step and returns when the batch's memory
 * may be used again, receive waits for the oldest step that is under way. On a
 * device that works by itself (a GPU; a rank alone, or gradients summed by NCCL) up to
 * lk_engine_depth of them can be under way; can_send says whether one of `total`
 * samples can follow now, and one can always when there are none. Ranks must send and
 * receive the same steps in the same order, as far ahead as each other. After NONFINITE
 * none is under way, and the engine is as before the step that failed. Calls that read
 * or change the state want none; lk_engine_steps counts those that were sent. */
int lk_engine_depth(const lk_engine *engine);
bool lk_engine_can_send(const lk_engine *engine, size_t total);
lk_status lk_engine_send(lk_engine *engine, const lk_batch *batch) LK_CHECKED;
lk_status lk_engine_receive(lk_engine *engine, lk_metrics *out) LK_CHECKED;
/* Together: forward in evaluation mode; any count. */
lk_status lk_engine_eval(lk_engine *engine, const lk_batch *batch, lk_metrics *out) LK_CHECKED;
/* Together: the step in two halves: gradients (and BatchNorm's running
 * statistics), then the update of the parameters, which needs the gradients of a
 * whole first half. A first half that succeeds is a training step, with its own
 * dropout masks and its place in lk_engine_steps, whether an update follows or the
 * program changes the parameters itself (lk_engine_grads, lk_engine_set_state). */
lk_status lk_engine_gradients(lk_engine *engine, const lk_batch *batch, lk_metrics *out) LK_CHECKED;
lk_status lk_engine_update(lk_engine *engine) LK_CHECKED;

/* Of the last step, this rank's own samples only: count 0 but at the last stage,
 * and after a failure. */
lk_metrics lk_engine_own_metrics(const lk_engine *engine);
/* Seconds of all steps so far in which this rank waited for others, adding up
 * sums meanwhile: after its backward pass, and before that (stages, BatchNorm). */
typedef struct lk_waits {
    double gradients, other;
} lk_waits;
lk_waits lk_engine_waits(const lk_engine *engine);
/* Together: compares parameters, buffers and optimiser state of the replicas;
 * MISMATCH names rank, tensor and step. Steps do it every check_every. */
lk_status lk_engine_check(lk_engine *engine) LK_CHECKED;

double lk_engine_lr(const lk_engine *engine);
/* Of the updates that follow; may be called while steps are under way. USAGE, and the rate
 * stays, where lr is below 0, not a number or not finite as a float. With 0, unlike 0 in
 * lk_engine_opts, updates leave the parameters and advance the optimiser's state. All
 * ranks must set the same. */
lk_status lk_engine_set_lr(lk_engine *engine, double lr) LK_CHECKED;
/* Training steps so far, which dropout masks are drawn by: successful calls of
 * lk_engine_step, lk_engine_send and lk_engine_gradients, those that a restored optimiser
 * state had counted included. A failed step and lk_engine_update count nothing. */
uint64_t lk_engine_steps(const lk_engine *engine);

/* Together, where there are several stages: copies of parameters and buffers, or
 * of the last step's gradients, of the whole model under PyTorch's names. Gradients are
 * USAGE where the last step failed or there was none. */
lk_status lk_engine_state(const lk_engine *engine, lk_state **out) LK_CHECKED;
lk_status lk_engine_grads(const lk_engine *engine, lk_state **out) LK_CHECKED;
/* Together: replaces parameters and buffers by replica 0's state. A missing,
 * unknown or differently shaped key is MISMATCH and nothing is replaced; only
 * num_batches_tracked may be missing, as in old files, and then begins at 0. */
lk_status lk_engine_set_state(lk_engine *engine, const lk_state *state) LK_CHECKED;

/* Together, where there are several stages: a copy of what the optimiser keeps: its
 * arrays as "exp_avg.conv1.weight", in PyTorch's words; "steps" (i64), "lr" and
 * "powers" (f64). With parameters and buffers it is all that later steps depend on. */
lk_status lk_engine_optimizer_state(const lk_engine *engine, lk_state **out) LK_CHECKED;
/* Together: replaces it by replica 0's; as lk_engine_set_state, and nothing may be
 * missing. Steps are then counted from there, and lk_engine_update needs new gradients. */
lk_status lk_engine_set_optimizer_state(lk_engine *engine, const lk_state *state) LK_CHECKED;

/* In every step and evaluation, where the ranks exchange words in any case, each
 * raises the level that its function returns, 0 without one; afterwards every rank
 * has the largest. Thus ranks agree on when to save or to stop, whichever of them
 * was asked to, in the step in which it was. */
void lk_engine_set_signal_source(lk_engine *engine, int (*level)(void *arg), void *arg);
/* Of the last step or evaluation; 0 after one that failed. */
int lk_engine_agreed_signal(const lk_engine *engine);
/* The rank of the engine's group that raised that level, the lowest of several; 0
 * without a group; -1 where the level is 0. The same at every rank. */
int lk_engine_agreed_signal_rank(const lk_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
