/* engine.h - the engine: training steps and evaluations that obey the lockstep law.
 *
 * An engine holds a compiled graph, its parameters and an optimiser. The batch of a step is cut
 * into shards. Every sum over samples is computed for each shard and folded over one fixed tree, so
 * the weights after a step do not depend on threads, waves, ranks or machine.
 *
 * With a group, each rank has its own engine, and all ranks make the same calls in the same order.
 * The ranks are a grid of replicas times stages: the replicas of the model share the shards of each
 * batch, and the stages of a replica share the layers of the model. Rank r is stage r % stages of
 * replica r / stages. Calls marked "Collective" communicate: they may block until all ranks have
 * made the call, and an error in one of them breaks the job at every rank.
 *
 * Threads: any thread may call an engine, but only one at a time. A call that returns a status is
 * USAGE and changes nothing if it is made while another call of this engine is running, in another
 * thread or in the function of lk_engine_set_signal_source. lk_engine_layout,
 * lk_engine_shard_range and lk_engine_depth may be called at any time: their results never change.
 * The other functions without a status, such as lk_engine_destroy, do not detect a running call and
 * must not be called during one, with one exception: the function of lk_engine_set_signal_source
 * may call those that only read. Different engines may be called at the same time unless they have
 * the same group (group.h).
 *
 * Processes: an engine works only in the process that created it. In a process that was forked
 * later (lk_spawn), its calls return USAGE, and lk_engine_destroy does nothing.
 *
 * Errors: every function that returns a status may return
 *   USAGE        in a second thread or a forked process (see above), and while steps or evaluations are under way,
 *                except lk_engine_send, lk_engine_send_eval, lk_engine_receive, lk_engine_set_lr and
 *                lk_engine_set_grad_norm
 *   IO           the device failed
 * and in a collective call also PEER, MISMATCH, IO and UNSUPPORTED as in group.h. The comments of the functions name
 * what is special to them.
 * With a group, a failure that one rank finds alone breaks the job at every rank. All ranks find the following failures
 * together, and the job continues: NONFINITE; MISMATCH of settings, batch sizes, weights and replicas between the
 * ranks; USAGE if all weights of a batch are 0. Without a group an engine can be used after every failure but IO. */
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

LK_API_BEGIN

typedef struct lk_engine lk_engine;

/* The order in which the gradients of several ranks are added. */
typedef enum lk_reduce_order {
    LK_REDUCE_ORDER_TREE,  /* the order of the fixed tree: the law holds */
    LK_REDUCE_ORDER_ENGINE /* that of NCCL or MPI: the law does not hold, the bits depend on the number of ranks */
} lk_reduce_order;

/* Zero means the default. Strings are needed during lk_engine_create only. */
typedef struct lk_engine_opts {
    const char *device; /* "cpu" (default) or "cuda:N"; "cuda" is "cuda:0" */
    int threads;        /* default: this rank's part of the cores that its process may use */
    size_t batch;       /* the largest batch of a step, in samples of all ranks; required */
    int shards;         /* default 16, or one for each replica if there are more. Changes the bits of the result */
    size_t micro_batch; /* largest number of samples of a rank in a wave; default: all its samples, but
                         * four waves for each stage where stages are pipelined */
    lk_bn_mode bn;
    lk_precision precision; /* zero is fp32; on the CPU the ones with tf32 are UNSUPPORTED */
    const char *optimizer;  /* a name of lk_optimizer_list, default "sgd"; with parameters: "sgd:momentum=.9" */
    double lr;              /* not below 0; 0: the optimiser's default */
    uint64_t seed;
    bool eval_only;         /* the engine only evaluates: steps return USAGE, and checks for steps are left out */
    bool allow_nonfinite;   /* continue when a loss or a gradient is not finite */
    double clip_norm;       /* scale the gradient down to this norm if its norm is larger; 0: never */
    double label_smoothing; /* in [0,1): the part of a label's weight that the training loss spreads over all classes;
                             * USAGE above 0 for losses without classes */

    lk_group *group;        /* the ranks, borrowed until the engine is destroyed; NULL: one rank */
    size_t bucket_bytes;    /* size of a bucket of gradients, in bytes; default 4 MiB */
    lk_reduce_order reduce; /* LK_REDUCE_ORDER_ENGINE is USAGE unless NCCL or MPI sums the gradients */
    /* What sums gradients and moves activations between stages; the bits are the same with each but "mpi". "host": the
     * group, in host memory. "nccl", "ipc": this channel between the GPUs, USAGE if it cannot. "mpi": MPI_Iallreduce of
     * a group over MPI; only with LK_REDUCE_ORDER_ENGINE; the group moves activations. NULL or "auto": for sums the
     * first of "nccl", "ipc" and "host" that can, with LK_REDUCE_ORDER_ENGINE the first of "nccl" and "mpi"; for each
     * two neighbouring stages the first of "nccl", "ipc" and "host" that can. An engine for evaluation alone uses the
     * group. */
    const char *backend;
    const char *stages;    /* a number, or the layers at which stages 1, 2 ... begin: "fc1,fc2"; NULL: one stage */
    bool pipelined;        /* stages compute at the same time, each on a different wave */
    int check_every;       /* steps (lk_engine_steps) between comparisons of the replicas; default 100, -1: never */
    const char *outputs;   /* nodes whose values lk_engine_forward_outputs can give, separated by commas; NULL: none */
    bool input_grads;      /* lk_engine_gradients also computes the gradients of the samples */
    lk_conv_mode conv;     /* changes the bits of the result */
    uint64_t reserved[14]; /* zero */
} lk_engine_opts;

/* Creates an engine; it copies graph. Collective: options that change the result must be equal at
 * all ranks (else MISMATCH), and all replicas get the parameters of replica 0. Returns the mistake of lk_graph_check if
 * the graph has one. USAGE if an option is out of its range or does not fit another one or the model, if a name in
 * `optimizer`, `stages` or `outputs` is unknown, and if a BatchNorm would always normalise a single value per channel.
 * UNSUPPORTED without the device or a library that it needs, and if it cannot run the model: in this precision, or
 * because an own op, loss or optimiser has no function for it. MEMORY: the detail says what is needed, and what would
 * fit. */
lk_status lk_engine_create(const lk_graph *graph, const lk_engine_opts *opts, lk_engine **out) LK_CHECKED;
/* Destroys an engine. Ranks that share a GPU block here until all of them destroy their engines, unless
 * their job is broken. */
void lk_engine_destroy(lk_engine *engine);

typedef struct lk_metrics {
    size_t count; /* samples */
    /* Samples whose label has the largest score; of equal scores the first class counts. soft_cross_entropy: the label
     * is the first class with the largest target. bce_with_logits_loss: samples of which every element has x > 0
     * exactly where the target is above 0.5. Own losses: samples whose `rank` (lk_loss_def) is 0, or none without it.
     * Other losses of float targets: 0. */
    size_t correct;
    /* Samples whose label has one of the five largest scores; own losses: those whose `rank` is below 5. The same
     * number as `correct` for other losses without labels. */
    size_t top5;
    double loss; /* mean over the samples; with weights sum(w * loss) / sum(w), or 0 if the sum of the weights is 0 */
    /* Losses of float targets: the means over all elements of |e| and e^2, without weights. e is x - target;
     * bce_with_logits_loss: sigmoid(x) - target; soft_cross_entropy: probability - target. 0 for losses of labels, and
     * for own losses whose target does not have as many floats as x. */
    double absolute_error, squared_error;
    double weight;        /* the sum of the samples' weights; without weights it is count */
    uint64_t reserved[5]; /* zero */
} lk_metrics;

/* The position of an engine in the grid, and how it computes. */
typedef struct lk_layout {
    int replica, replicas, stage, stages;
    int first_layer, last_layer; /* the stage is layers [first,last) of the graph; layer 0, the input, is in no stage */
    int threads;                 /* threads of this rank */
    size_t capacity;             /* largest number of samples in a wave */
    bool one_wave;               /* BatchNorm over the batch: a step is one wave, and stages compute in turn */
    const char *gradient_backend; /* what sums gradients: "nccl", "ipc", "mpi"; NULL: the group */
    /* What moves activations from GPU to GPU between stages: "nccl", "ipc" or "nccl and ipc". NULL: there is one stage,
     * or at least one pair of neighbouring stages uses the group, through host memory. The same at all ranks. */
    const char *stage_backend;
    /* Why stages on GPUs use the group although no option asks for it: "rank 1: NCCL 2.14 or later ..."; NULL: they do
     * not. */
    const char *stage_obstacle;
    uint64_t reserved[6]; /* zero */
} lk_layout;
/* The engine's layout, which never changes. Its strings are valid until the engine is destroyed. */
lk_layout lk_engine_layout(const lk_engine *engine);
/* The share of each batch that this rank needs. The caller may give the engine this share of a batch, or
 * the whole batch. */
lk_shard_range lk_engine_shard_range(const lk_engine *engine);

/* Copies all samples of a loader's data set to the engine's device. The bits of steps and
 * evaluations stay the same, and batches need no upload of samples. *cached says whether the samples were
 * copied; LK_OK and false if they cannot be: the device must have its own memory, the samples must
 * have the shape of the model's input and one size, with no other transforms than crop and flip, and they must take at
 * most half of the free memory. Images (U8 with 1 or 3 channels) take one byte a value there; all other samples take
 * four, as the floats of a batch. An engine can cache two loaders' data sets, one for training and one for testing.
 * From its next lk_loader_start, a cached loader gives batches of labels, targets and ids, which only this engine can
 * use; where a function reads the samples (lk_dataset_create), it still reads them for their targets. Reads the whole
 * data set. MISMATCH if a sample of floats has a value that the model cannot take (lk_embedding). Not collective: does
 * not communicate, and only stage 0 caches. USAGE if another engine has cached the loader; the error of the data set if
 * a sample cannot be read. */
lk_status lk_engine_cache_dataset(lk_engine *engine, lk_loader *loader, bool *cached) LK_CHECKED;

/* Collective: forward, backward, sum of gradients and update. The batch, of all ranks, has 1 to
 * lk_engine_opts.batch samples. Every rank gets the metrics of the whole batch.
 * NONFINITE if a loss or a gradient is not finite, unless lk_engine_opts.allow_nonfinite; the detail says where, and
 * the engine is in its state before the step. MISMATCH if samples do not have the size of the model's input, or have a
 * value that an embedding cannot use; if the batch does not have the targets that the loss learns, or a label or a
 * weight is not allowed; if the batch is neither whole nor this rank's share; if the ranks have batches of different
 * sizes, or only some give weights; and if a comparison of the replicas is due and they differ. USAGE if the batch has
 * no sample or too many, lacks samples, labels or ids, is of another engine's cached loader, or has only weights of 0;
 * if the engine was created with eval_only; and after 2^32 - 1 steps. */
lk_status lk_engine_step(lk_engine *engine, const lk_batch *batch, lk_metrics *out) LK_CHECKED;
/* A step in two calls. lk_engine_send starts a step and returns when the memory of the batch may be
 * used again; lk_engine_receive blocks until the oldest step or evaluation under way is done and returns
 * its metrics. A GPU can have up to lk_engine_depth of them under way if there is one rank, or NCCL sums
 * the gradients, or the engine only evaluates. lk_engine_can_send says whether a step of `total` samples can
 * be sent now; true if nothing is under way. All ranks must send and receive in the same order. Functions
 * that read or change the state return USAGE while anything is under way. lk_engine_steps counts the steps
 * sent. After NONFINITE nothing is under way, and the engine is in its state before the step that failed. A batch with
 * `weights` can be sent only if nothing is under way.
 * lk_engine_send returns what lk_engine_step returns, and USAGE if the step cannot be sent now. lk_engine_receive
 * returns the NONFINITE or MISMATCH of a step that was still under way when lk_engine_send returned, and USAGE if
 * nothing is under way. */
int lk_engine_depth(const lk_engine *engine);
bool lk_engine_can_send(const lk_engine *engine, size_t total);
lk_status lk_engine_send(lk_engine *engine, const lk_batch *batch) LK_CHECKED;
lk_status lk_engine_receive(lk_engine *engine, lk_metrics *out) LK_CHECKED;
/* Collective: forward in evaluation mode. The batch has at least one sample, and may be larger than
 * lk_engine_opts.batch. Every rank gets the metrics of the whole batch. MISMATCH and USAGE for batches as in
 * lk_engine_step. A loss that is not finite is no error, and neither are weights that are all 0. */
lk_status lk_engine_eval(lk_engine *engine, const lk_batch *batch, lk_metrics *out) LK_CHECKED;
/* An evaluation in two calls: lk_engine_send_eval starts it as lk_engine_send starts a step, and
 * lk_engine_receive returns its metrics. It evaluates the model as it is after the steps sent before. Steps
 * and evaluations may be under way together. lk_engine_can_send_eval says whether an evaluation of `total`
 * samples can be sent now; otherwise sending it is USAGE. Errors of batches as in lk_engine_eval. */
bool lk_engine_can_send_eval(const lk_engine *engine, size_t total);
lk_status lk_engine_send_eval(lk_engine *engine, const lk_batch *batch) LK_CHECKED;
/* Outputs: what a model computes for the samples of a batch, in evaluation mode. The scores of a model are the input of
 * its loss: for lk_cross_entropy the scores of the classes before softmax, for lk_nll_loss log-probabilities. Other
 * nodes must be named by lk_engine_opts.outputs when the engine is created: by the name of their builder ("fc1"), by
 * that of lk_name, or as messages write a layer without a name ("relu after fc1"). A name that no node has, or several
 * have, is USAGE, and the detail lists the nodes. The value of a node is its own: for "conv1", what the convolution
 * computes, before a ReLU that follows. Naming nodes changes no bit of training; it may take memory and time, since
 * fewer layers share memory and kernels.
 *
 * Values are f32, also where the engine computes in bf16. Those of a sample are in PyTorch's order (C, H, W), unlike
 * the samples themselves; for a sequence that is (C, T). */
typedef struct lk_output {
    const char *node; /* a name of lk_engine_opts.outputs; NULL: the scores */
    float *values;    /* (samples of the whole batch, lk_engine_output_floats) */
} lk_output;

/* Collective: forward in evaluation mode; writes the scores (total, lk_engine_output_floats(engine, NULL)) of every
 * sample of the whole batch, at every rank, whether the ranks give the whole batch or their shares, and in whichever
 * stage the scores are. labels and targets of the batch are not read and may be NULL, and ids too unless source is set.
 * The batch may be larger than lk_engine_opts.batch. The first call of a size may allocate memory; later calls do not,
 * except for messages of a group. Counts as an evaluation for lk_engine_set_signal_source. USAGE if a pointer is NULL,
 * the batch has no sample, or a step is under way; MISMATCH if the samples have another size than the model's input, or
 * the ranks have batches of different sizes. */
lk_status lk_engine_forward(lk_engine *engine, const lk_batch *batch, float *scores) LK_CHECKED;
/* As lk_engine_forward, for `count` outputs, at least 1, in one pass. All ranks must ask for the same nodes in the same
 * order. USAGE also if lk_engine_opts.outputs does not have a node. */
lk_status lk_engine_forward_outputs(lk_engine *engine, const lk_batch *batch, const lk_output *outputs,
                                    size_t count) LK_CHECKED;
/* The floats that an output has for each sample; node NULL: the scores. 0 if there is no such output. */
size_t lk_engine_output_floats(const lk_engine *engine, const char *node);
/* Collective: the two halves of a step. lk_engine_gradients computes the gradients and BatchNorm's
 * running statistics; lk_engine_update updates the parameters, and needs a successful
 * lk_engine_gradients before it (else USAGE). lk_engine_gradients alone counts as a training step
 * (lk_engine_steps, new dropout masks), so a program may also update the parameters itself
 * (lk_engine_grads, lk_engine_set_state). lk_engine_gradients returns what lk_engine_step returns, except that
 * lk_engine_update compares replicas: MISMATCH if they differ. */
lk_status lk_engine_gradients(lk_engine *engine, const lk_batch *batch, lk_metrics *out) LK_CHECKED;
lk_status lk_engine_update(lk_engine *engine) LK_CHECKED;

/* Collective: between lk_engine_gradients and lk_engine_update, replaces the gradients. Every rank gives a state with
 * the keys and shapes of lk_engine_grads, of the whole model; the values of replica 0 count. The update uses them as
 * they are, without clipping; values of frozen parameters are ignored. USAGE if there are no gradients to update by.
 * MISMATCH if a key is missing, unknown or has another shape, NONFINITE if a value is not finite, unless
 * lk_engine_opts.allow_nonfinite; nothing is replaced then. */
lk_status lk_engine_set_grads(lk_engine *engine, const lk_state *grads) LK_CHECKED;

/* Copies the gradients of this rank's samples in the last lk_engine_gradients, of the loss that its metrics have, to
 * dx: (N, H, W, C) for the N samples of lk_engine_shard_range, f32. USAGE without lk_engine_opts.input_grads, before
 * lk_engine_gradients has succeeded, and at stages other than 0, which have no samples. */
lk_status lk_engine_input_grads(const lk_engine *engine, float *dx) LK_CHECKED;

/* Metrics of this rank's samples in the last step. count is 0 except at the last stage, and after a
 * failure. */
lk_metrics lk_engine_own_metrics(const lk_engine *engine);
/* Whether later steps (lk_engine_step, lk_engine_send, lk_engine_update) compute the norm of the gradient; off at
 * first. All ranks must set the same. May be called while steps are under way. Has no errors of its own. */
lk_status lk_engine_set_grad_norm(lk_engine *engine, bool on) LK_CHECKED;
/* The 2-norm of the whole model's gradient in the last step that was received, before clipping; the same bits
 * however the work was divided. NaN if that step did not compute it, and after a failure. With clip_norm every step
 * computes it. */
double lk_engine_grad_norm(const lk_engine *engine);
/* Seconds, over all steps so far, in which this rank waited for other ranks (folding sums is
 * included): `gradients` after its backward pass, `other` before (stages, BatchNorm). */
typedef struct lk_waits {
    double gradients, other;
} lk_waits;
lk_waits lk_engine_waits(const lk_engine *engine);
/* Collective: compares parameters, buffers and optimiser state of the replicas. MISMATCH: the detail
 * names rank, tensor and step. Steps do this every check_every steps. */
lk_status lk_engine_check(lk_engine *engine) LK_CHECKED;

/* The learning rate of the next update. */
double lk_engine_lr(const lk_engine *engine);
/* Sets the learning rate of later updates; all ranks must set the same. May be called while steps
 * are under way. USAGE, and the rate is kept, if lr is negative, NaN or too large for a float. With
 * a rate of 0, updates keep the parameters and change only the optimiser's state (in lk_engine_opts,
 * 0 means the default). */
lk_status lk_engine_set_lr(lk_engine *engine, double lr) LK_CHECKED;
/* Settings of a group of parameters. Zero means the default. */
typedef struct lk_param_group {
    double lr_scale;      /* the learning rate is lk_engine_lr times this, above 0; 0: 1 */
    double weight_decay;  /* 0: the optimiser's own; LK_NO_DECAY: none */
    bool frozen;          /* updates keep the parameters, and steps compute no gradients for them */
    uint64_t reserved[8]; /* zero */
} lk_param_group;
#define LK_NO_DECAY (-1.0)
/* Gives the parameters whose keys match the pattern these settings, in place of what earlier calls gave them. In a
 * pattern, '*' is any text, also with dots, and '?' is any one character: "fc.*", "*.bias". Updates use the settings
 * from the next one on, as PyTorch's optimisers use parameter groups. Settings are in no state or checkpoint: a
 * program that resumes sets them again.
 *
 * Frozen parameters are as PyTorch's with requires_grad=False. The backward pass ends at the lowest layer that has a
 * trained parameter. lk_engine_grads gives zeros for frozen parameters, and norms do not count them. Their optimiser
 * state stays as it is. BatchNorm's running statistics change in every step, also in frozen layers. A call that
 * freezes or unfreezes a parameter invalidates the last gradients: lk_engine_grads and lk_engine_update need new ones.
 *
 * Collective: all ranks must set the same. MISMATCH if they do not, and if no key matches; the detail has the keys.
 * USAGE if a value is out of its range, if the optimiser has no weight decay, if the parameters would have over 16
 * different settings, and while steps are under way. MEMORY if memory is short. Settings are kept on failure. */
lk_status lk_engine_set_group(lk_engine *engine, const char *pattern, const lk_param_group *group) LK_CHECKED;
/* The number of training steps: successful calls of lk_engine_step, lk_engine_send and
 * lk_engine_gradients, and the steps of a restored optimiser state. A failed step and
 * lk_engine_update are not counted. Dropout masks are a function of this number. */
uint64_t lk_engine_steps(const lk_engine *engine);

/* Copies of the parameters and buffers, or of the last step's gradients, of the whole model under
 * PyTorch's names; the caller owns *out. Collective if there are several stages. lk_engine_grads is
 * USAGE if there was no step, the last one failed, or a parameter was frozen or unfrozen since. */
lk_status lk_engine_state(const lk_engine *engine, lk_state **out) LK_CHECKED;
lk_status lk_engine_grads(const lk_engine *engine, lk_state **out) LK_CHECKED;
/* Collective: replaces parameters and buffers. Every rank gives a state of the whole model; the values of replica 0
 * count. MISMATCH, and nothing is replaced, if a key is missing, unknown or has another shape; only num_batches_tracked
 * may be missing, as in old files, and is then 0. */
lk_status lk_engine_set_state(lk_engine *engine, const lk_state *state) LK_CHECKED;

/* Updates an exponential moving average of the weights, on the device: average = decay * average + (1 - decay) *
 * weights, as PyTorch's AveragedModel with get_ema_multi_avg_fn. The first call copies the weights. Buffers are copied,
 * not averaged. All ranks must make the same calls; does not communicate. USAGE if decay is not in [0,1), and while
 * steps are under way. MEMORY if the first call finds too little memory. */
lk_status lk_engine_average(lk_engine *engine, double decay) LK_CHECKED;
/* A copy of the average, as lk_engine_state; the caller owns *out. Collective if there are several stages. USAGE if
 * there is no average. */
lk_status lk_engine_averaged_state(const lk_engine *engine, lk_state **out) LK_CHECKED;
/* Collective: replaces the average, or begins one. States and MISMATCH as for lk_engine_set_state. */
lk_status lk_engine_set_averaged_state(lk_engine *engine, const lk_state *state) LK_CHECKED;

/* A copy of the optimiser's state, owned by the caller: arrays with PyTorch's names, as
 * "exp_avg.conv1.weight"; "steps" (i64); "lr" and "powers" (f64). Later steps depend only on this
 * state and on parameters and buffers. Collective if there are several stages. */
lk_status lk_engine_optimizer_state(const lk_engine *engine, lk_state **out) LK_CHECKED;
/* Collective: replaces the optimiser's state. Every rank gives a state of the whole model; the values of replica 0
 * count. MISMATCH as for lk_engine_set_state, and if a number is out of its range; no key may be missing.
 * lk_engine_steps continues from the state's "steps", and lk_engine_update needs new gradients. */
lk_status lk_engine_set_optimizer_state(lk_engine *engine, const lk_state *state) LK_CHECKED;

/* Sets this rank's signal source, a function that every step and evaluation calls in the calling
 * thread. It returns a signal level, not below 0; without a source the level is 0. After the step
 * every rank knows the largest level of all ranks. So ranks agree on the step after which they save
 * or stop, whichever rank was asked to; this needs no additional message. */
void lk_engine_set_signal_source(lk_engine *engine, int (*level)(void *arg), void *arg);
/* The largest signal level of all ranks in the last step or evaluation; 0 if the last one failed. */
int lk_engine_agreed_signal(const lk_engine *engine);
/* The rank whose signal level was the largest; of several such ranks, the lowest. -1 if the level is 0. 0
 * without a group. The result is the same at every rank. */
int lk_engine_agreed_signal_rank(const lk_engine *engine);

LK_API_END
#endif
