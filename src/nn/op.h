/* op.h - an operation: one row of functions, called by the plan.
 *
 * The functions process one layer and one wave of samples. They only enqueue kernels of the device, and own no
 * memory. */
#ifndef LK_NN_OP_H
#define LK_NN_OP_H

#include "nn/graph.h"
#include "tensor/device.h"

/* One wave of samples in the plan. */
typedef struct lk_op_wave {
    lk_shards shards;
    lk_shards leaves; /* shards whose parameter gradients are wanted: all, or one in a search */
    int search;       /* the index of that shard; -1: no search */
    int own_roots;    /* partial sums that this rank has after its last wave */
    lk_shards roots;  /* the partial sums of all ranks, each described as a shard */
    int lane;         /* which of the plan's copies of activations it uses */
    size_t n;         /* samples */
    bool train;       /* false: evaluation */
    bool last;        /* the last wave of this rank's step */
    bool no_loss;     /* the loss is not computed; only in evaluation */
    lk_bn_mode bn;
    uint64_t seed;
    /* (n, h, w, c) f32, device: the samples, which the layers of the plan read instead of its input; NULL: they are in
     * the plan's input. */
    const float *samples;
    const uint32_t *step;  /* device */
    float grad_scale;      /* 1 / samples of the global batch */
    size_t step_rows;      /* samples of the global batch */
    const uint32_t *ids;   /* (n), device */
    const int32_t *labels; /* (n), device */
    const float *targets;  /* (n, floats of a target), device; NULL: the loss learns labels */
    const float *weights;  /* (n), device; NULL: all samples have weight 1 */
    float *loss;           /* (n), device */
    int32_t *label_rank;   /* (n), device */
    float *error;          /* (n, 2), device: of lk_loss_results; NULL: the loss learns labels */
    float smoothing;       /* label smoothing; 0 in evaluation */
    const lk_flag *flag;   /* device; running statistics do not change if it is bad. NULL: never bad */
} lk_op_wave;

/* The two sums over samples that a layer may need during a pass. */
typedef enum lk_op_sum { LK_OP_SUM_FORWARD, LK_OP_SUM_BACKWARD, LK_OP_SUM_COUNT } lk_op_sum;

typedef struct lk_op_call {
    lk_device *dev;
    const lk_kernels *k;
    const lk_layer *layer;
    const lk_op_wave *wave;
    bool relu;               /* this layer computes the ReLU or ReLU6 that follows */
    bool six;                /* the ReLU that follows is a ReLU6 */
    bool relu_grad;          /* backward computes the gradient of that ReLU, too: dy is the gradient of its result */
    bool mask;               /* x[0] is the result of a ReLU: dx[0] is 0 where x[0] <= 0 */
    bool add;                /* dx[0] contains a part of the gradient; this layer adds to it */
    const lk_layer *dropout; /* NULL, or the dropout layer that follows, or follows the ReLU; this layer computes it */
    const lk_layer *masked_dropout; /* NULL, or with mask: a dropout layer between that ReLU and this layer, which has
                                     * made x[0]; backward computes its gradient, too */
    bool scores;                    /* x[0] is the previous layer's input: this layer computes both */
    /* NULL, or the max pooling that follows, or follows the ReLU; this layer computes it: y and dy are the pooling's.
     */
    const lk_layer *pool;
    uint8_t *pool_index; /* what that pooling saves */
    lk_tensor x[LK_MAX_INPUTS], y;
    lk_tensor other; /* data NULL, or a tensor that is added to y before the ReLU: it has y's channels or fewer */
    lk_tensor dy;
    lk_batchnorm_addition rest;  /* part.data NULL, or add_sums completes dy by this addition (LK_OP_ADDS_DY) */
    uint8_t *signs;              /* NULL, or forward writes the signs of y, if it trains (lk_batchnorm_desc) */
    lk_tensor dx[LK_MAX_INPUTS]; /* data NULL if no gradient is wanted */
    float *param[LK_MAX_PARAMS];
    const void *value[LK_MAX_PARAMS]; /* the same in the device's value type */
    lk_partials grad[LK_MAX_PARAMS];  /* slot0 NULL: not wanted (LK_OP_SKIPS_GRADS) */
    float *buffer[LK_MAX_BUFFERS];
    void *saved; /* kept from the forward pass of a wave to its backward pass */
    /* Entries of op->sum_width floats: this rank's partial sums, kept from the first wave of the step to the
     * last, and in slot 0 of total the sum over all ranks. Both have the same memory if there is one rank: its partial
     * sum is the total. */
    lk_partials partial[LK_OP_SUM_COUNT], total[LK_OP_SUM_COUNT];
    int shards;                 /* of this rank: the size of per-shard arrays */
    const float *class_weights; /* of a loss, (channels of x[0]); NULL: none */
    void *scratch;
} lk_op_call;

/* Properties of an op that compilation (fuse.c) and lk_init use. */
enum {
    LK_OP_READS_X = 1,         /* backward reads x */
    LK_OP_READS_Y = 2,         /* backward reads y */
    LK_OP_FUSES_RELU = 4,      /* forward can apply a following ReLU */
    LK_OP_IS_RELU = 8,         /* is a ReLU that a layer before it may apply */
    LK_OP_PASSES_GRAD = 16,    /* the gradient of an input is dy itself */
    LK_OP_MASKS_DX = 32,       /* backward can apply the gradient of a ReLU before the layer */
    LK_OP_HAS_WEIGHTS = 64,    /* parameter 0 is weights, parameter 1 a bias */
    LK_OP_FUSES_ADD = 128,     /* forward can apply a following addition */
    LK_OP_FUSES_DROPOUT = 256, /* forward can apply a following dropout, also behind a ReLU that it applies */
    LK_OP_ADDS_DX = 512,       /* backward can add to dx[0] */
    /* backward can leave out gradients: of all parameters, or of those that are no weights */
    LK_OP_SKIPS_GRADS = 1024,
    LK_OP_IS_RELU6 = 2048,            /* is a ReLU6 that a layer before it may apply */
    LK_OP_FUSES_RELU6 = 4096,         /* forward can apply a following ReLU6 */
    LK_OP_FUSES_RELU_GRAD = 8192,     /* backward can apply the gradient of a ReLU or ReLU6 that forward has applied */
    LK_OP_ADDS_DY = 16384,            /* add_sums can complete dy (lk_op_call.rest), with a mask or with relu_grad */
    LK_OP_FUSES_DROPOUT_GRAD = 32768, /* backward can apply the gradient of a dropout that forward has applied */
    LK_OP_MASKS_DROPOUT = 65536,      /* backward can apply the gradients of a dropout and the ReLU before it */
    LK_OP_FUSES_POOL = 131072, /* both passes can apply a following max pooling that the device type pools, also behind
                                * a ReLU that forward applies */
};

struct lk_op {
    const char *name;
    unsigned flags;
    /* Checks the shapes of the inputs and the attributes; sets the layer's shape, params, buffers and in_place. */
    lk_status (*infer)(const lk_graph *graph, lk_layer *layer);
    /* MISMATCH if a sample of the graph's input, (h, w, c) in host memory, has a value that this layer, which reads
     * the input, cannot use. id names the sample. NULL: every value can be used. */
    lk_status (*check_sample)(const lk_layer *layer, const float *x, uint32_t id);
    /* UNSUPPORTED if the device cannot run the layer; called before memory is assigned. NULL: every device can. */
    lk_status (*supports)(const lk_device *dev, const lk_layer *layer);
    /* Floats in call->saved for n samples and `shards` shards. NULL: none. */
    size_t (*saved)(lk_device *dev, const lk_layer *layer, size_t n, int shards);
    /* Bytes of scratch for n samples. NULL: none. */
    size_t (*scratch)(lk_device *dev, const lk_layer *layer, lk_shape x, lk_shape y);
    /* Sums over samples that forward (backward) needs before it can start. sum_width: floats of an entry.
     * add_sums adds the wave's shards to call->partial. fold_sums folds the partial sums of all ranks,
     * (wave->roots.count, width), into call->total, unless the partial sums are the total. NULL: the op needs none.
     * With LK_BN_MODE_BATCH such a layer is a synchronisation point: all samples of the step must have arrived. With
     * LK_BN_MODE_SHARD the total of the forward sums is available after the step, the total of the backward sums never.
     */
    size_t (*sum_width)(const lk_layer *layer);
    void (*add_sums)(const lk_op_call *call, lk_op_sum which);
    void (*fold_sums)(const lk_op_call *call, lk_op_sum which, const float *entries);
    void (*forward)(const lk_op_call *call);
    /* NULL for an input and for a loss: the forward pass of a loss writes dx if the wave trains. */
    void (*backward)(const lk_op_call *call);
    /* Describes how running statistics are updated after a step whose losses and gradients are finite. NULL: the op
     * has none. */
    void (*running)(const lk_op_call *call, lk_batchnorm_update *out);
    /* Multiply-adds of one sample's forward pass. NULL: too few to count. */
    double (*macs)(const lk_layer *layer, lk_shape x);
    bool is_loss; /* the last layer */
    /* Of a loss: floats of a sample's target, at least 1. NULL: targets are labels. */
    size_t (*targets)(const lk_layer *layer);
    bool smooths; /* a loss of classes: takes label smoothing */
    bool weighs;  /* takes class weights, one for each channel of its input */
};

/* The rows that other files look for. */
extern const lk_op lk__op_conv2d, lk__op_linear, lk__op_linear_sequence, lk__op_batchnorm2d, lk__op_dropout,
    lk__op_dropout2d, lk__op_maxpool2d, lk__op_pad_channels, lk__op_flatten, lk__op_add, lk__op_log_softmax,
    lk__op_nll_loss, lk__op_cross_entropy, lk__op_mse_loss, lk__op_l1_loss, lk__op_bce_with_logits_loss,
    lk__op_soft_cross_entropy;

/* Forward of a loss by the kernel target_loss. own is NULL except for LK_LOSS_KIND_OWN. */
void lk__op_run_target_loss(const lk_op_call *call, lk_loss_kind kind, const lk_loss_def *own);

/* Adds (count, width) rows, one for each shard of wave->leaves and `row` floats apart, to a parameter's gradient of
 * width floats. A gradient has slots only for the partial sums between waves: `stack`, (LK_TREE_MAX_DEPTH, width)
 * floats of the device, holds those of this wave. */
static inline void lk__op_fold_leaves(const lk_op_call *call, size_t width, const float *leaves, size_t row,
                                      float *stack, lk_partials grad)
{
    const lk_shards *shards = &call->wave->leaves;
    lk_partials sums = {stack, width};
    int end = shards->depth;
    for (int slot = 0; slot < shards->depth; slot++)
        call->k->copy_bytes(call->dev, width * sizeof(float), lk__partials_slot(grad, slot),
                            lk__partials_slot(sums, slot));
    call->k->rows_fold(call->dev, width, leaves, row, shards, sums);
    for (int i = 0; i < shards->count; i++)
        end += 1 - shards->merges[i];
    for (int slot = 0; slot < end; slot++)
        call->k->copy_bytes(call->dev, width * sizeof(float), lk__partials_slot(sums, slot),
                            lk__partials_slot(grad, slot));
}

/* The definition of an op, or of a loss, of the program's own; NOT_FOUND if none of this name is registered. */
lk_status lk__op_own_def(const char *op, const lk_op_def **out) LK_CHECKED;
lk_status lk__op_own_loss(const char *loss, const lk_loss_def **out) LK_CHECKED;

/* The size of a sample, as functions of the program see it. */
static inline lk_op_size lk__op_size(lk_shape shape)
{
    return (lk_op_size){.height = shape.h, .width = shape.w, .channels = shape.c};
}

/* The draws of a dropout layer in this wave, in *desc; NULL if it drops nothing. */
const lk_dropout_desc *lk__op_dropout_draws(const lk_op_call *call, const lk_layer *dropout, lk_dropout_desc *desc);

/* The shape of a layer's input number i. */
static inline lk_shape lk__op_input_shape(const lk_graph *graph, const lk_layer *layer, int i)
{
    return graph->layers[layer->inputs[i]].shape;
}

/* infer of an op whose two inputs and result have one shape. does: "adds", for the message. */
static inline lk_status lk__op_infer_equal(const lk_graph *graph, lk_layer *layer, const char *does)
{
    lk_shape a = lk__op_input_shape(graph, layer, 0), b = lk__op_input_shape(graph, layer, 1);
    if (a.c != b.c || a.h != b.h || a.w != b.w)
        return lk__fail(LK_STATUS_USAGE, "layer %d %s %zux%zux%zu and %zux%zux%zu; the shapes must be equal",
                        layer->index, does, a.c, a.h, a.w, b.c, b.h, b.w);
    layer->shape = a;
    return LK_OK;
}

#endif
