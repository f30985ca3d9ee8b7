/* graph.h - describing a network as a static graph of layers.
 *
 * A builder adds a layer and returns its node, which is an input of later builders. Builders
 * return no status: the graph keeps the first mistake (for example a kernel larger than its
 * input, or a node of another graph), later builders do nothing, and lk_graph_check and
 * lk_engine_create return the mistake.
 *
 * Errors: a mistake is USAGE, except that lk_op_add (op.h) of an op that is not registered is NOT_FOUND, that the
 * function `shape` of an own op chooses the status of its mistakes, and that a builder without memory leaves MEMORY.
 *
 * The number of a layer in the order of building is part of its random numbers: of its first weights and of dropout. C
 * does not define the order in which the arguments of a call are evaluated. So build the nodes for a builder that takes
 * two of them in statements of their own; otherwise compilers differ in the order, and machines in the result.
 *
 * Threads: one thread at a time may build a graph. While no thread builds it, several threads
 * may read it at the same time (lk_graph_check, lk_graph_shape, lk_graph_parameters, lk_engine_create).
 * Different graphs are independent. */
#ifndef LOCKSTEP_GRAPH_H
#define LOCKSTEP_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

LK_API_BEGIN

typedef struct lk_graph lk_graph;
typedef struct lk_node {
    int index;      /* index of the layer in the graph; negative after a mistake */
    unsigned graph; /* identifies the graph; 0: none */
} lk_node;

/* Creates a graph without layers; the caller owns *out. Fails with MEMORY only. */
lk_status lk_graph_create(lk_graph **out) LK_CHECKED;
void lk_graph_destroy(lk_graph *graph);

/* Returns the first mistake of the builders. LK_OK if there was none and the graph is complete:
 * it has one input, a loss as its last node, and every other node is an input of a later one; otherwise USAGE. */
lk_status lk_graph_check(const lk_graph *graph) LK_CHECKED;

/* What BatchNorm layers normalise over in training. */
typedef enum lk_bn_mode {
    LK_BN_MODE_BATCH, /* over the whole batch of all ranks */
    LK_BN_MODE_SHARD  /* over each shard separately */
} lk_bn_mode;

/* How CPUs compute convolutions. Each has results of its own, with the same bits at any number of ranks and threads and
 * with every instruction set. GPUs ignore it. */
typedef enum lk_conv_mode {
    LK_CONV_MODE_WINOGRAD, /* by Winograd's algorithm where the layer's shape makes it faster: 3x3 windows with stride 1
                            * and at least 16 channels; with larger errors of rounding */
    LK_CONV_MODE_DIRECT    /* as sums of products */
} lk_conv_mode;

/* In all option structs, zero means the default. Sizes are in pixels.
 *
 * Windows of convolutions and pools. kernel, stride, pad and dilation are those of the height. An option whose name
 * ends in _w is that of the width; 0 means the same as the height has. So {.kernel = 3} is 3x3, and {.kernel = 3,
 * .kernel_w = 5} has 3 rows and 5 columns. Because 0 means "as the height", pad_w = LK_ZERO_PAD says that the width has
 * no padding although the height has: {.kernel = 7, .kernel_w = 1, .pad = 3, .pad_w = LK_ZERO_PAD}. dilation is the
 * distance of neighbouring taps; a kernel of k taps then spans (k - 1) * dilation + 1 pixels, at most 65536. */
#define LK_ZERO_PAD SIZE_MAX

typedef struct lk_conv2d_opts {
    size_t out;    /* output channels, required */
    size_t kernel; /* required */
    size_t stride; /* default 1 */
    size_t pad;    /* zeros on each side, below the pixels that the kernel spans; default 0 */
    bool no_bias;
    size_t groups;             /* groups of channels, as in PyTorch; each is convolved separately; default 1 */
    size_t dilation;           /* default 1 */
    size_t kernel_w, stride_w; /* of the width; 0: as kernel, stride */
    size_t pad_w;              /* 0: as pad; LK_ZERO_PAD: none */
    size_t dilation_w;         /* 0: as dilation */
    uint64_t reserved[3];      /* zero */
} lk_conv2d_opts;

/* As PyTorch's ConvTranspose2d. The sides of the output are (side - 1) * stride - 2 * pad + dilation * (kernel - 1) + 1
 * + out_pad. */
typedef struct lk_conv_transpose2d_opts {
    size_t out;    /* output channels, required */
    size_t kernel; /* required */
    size_t stride; /* default 1 */
    size_t pad;    /* below the pixels that the kernel spans; default 0 */
    bool no_bias;
    size_t groups;             /* default 1 */
    size_t out_pad;            /* rows more at the lower side, below the stride, default 0 */
    size_t dilation;           /* default 1 */
    size_t kernel_w, stride_w; /* of the width; 0: as kernel, stride */
    size_t pad_w;              /* 0: as pad; LK_ZERO_PAD: none */
    size_t out_pad_w;          /* columns more at the right side; 0: as out_pad; LK_ZERO_PAD: none */
    size_t dilation_w;         /* 0: as dilation */
    uint64_t reserved[2];      /* zero */
} lk_conv_transpose2d_opts;

/* A window has at most 255 pixels. */
typedef struct lk_maxpool2d_opts {
    size_t kernel;        /* required */
    size_t stride;        /* default: kernel */
    size_t pad;           /* on each side, at most half of the window, default 0; never the maximum */
    size_t dilation;      /* at most the side of the input; default 1 */
    size_t kernel_w;      /* of the width; 0: as kernel */
    size_t stride_w;      /* 0: as stride; if that is 0 too: the window's width */
    size_t pad_w;         /* 0: as pad; LK_ZERO_PAD: none */
    size_t dilation_w;    /* 0: as dilation */
    bool ceil;            /* the last window may reach beyond the padded input */
    uint64_t reserved[2]; /* zero */
} lk_maxpool2d_opts;

typedef struct lk_avgpool2d_opts {
    size_t kernel;        /* required */
    size_t stride;        /* default: kernel */
    size_t pad;           /* zeros on each side, at most half of the window, default 0; the mean includes them */
    bool ceil;            /* the last window may reach beyond the padded input; the mean leaves that part out */
    size_t kernel_w;      /* of the width; 0: as kernel */
    size_t stride_w;      /* 0: as stride; if that is 0 too: the window's width */
    size_t pad_w;         /* 0: as pad; LK_ZERO_PAD: none */
    uint64_t reserved[5]; /* zero */
} lk_avgpool2d_opts;

/* Shapes. A node has a height, a width and channels for each sample. A vector has height and width 1. A sequence of T
 * vectors with C features, PyTorch's (N, T, C), has height 1, width T and C channels; with H heads, (N, H, T, C), it
 * has height H. In memory the order is height, width, channels, so the channels are PyTorch's last axis there; images,
 * which PyTorch keeps as (N, C, H, W), are converted at the input and by lk_flatten. */

/* Builders. `name` is the prefix of the layer's keys in a state dict: "conv1" gives conv1.weight
 * and conv1.bias. The name is copied. */
lk_node lk_input(lk_graph *graph, size_t channels, size_t height, size_t width);
lk_node lk_conv2d(lk_graph *graph, lk_node x, const char *name, lk_conv2d_opts opts);
/* Transposed convolution, which enlarges images. Its weight is (input channels, out / groups, kernel,
 * kernel_w). */
lk_node lk_conv_transpose2d(lk_graph *graph, lk_node x, const char *name, lk_conv_transpose2d_opts opts);
/* out: output features. x is a vector, or a sequence, whose vectors are multiplied with the same weights, as
 * nn.Linear does with (N, T, C). */
lk_node lk_linear(lk_graph *graph, lk_node x, const char *name, size_t out);
/* As nn.Embedding(rows, width): its weight is (rows, width), first normal with mean 0 and deviation 1. x is a vector of
 * T ids, or a sequence of T ids with one channel; the result is a sequence of T vectors: height 1, width T and `width`
 * channels. An id is a float with a whole number in [0,rows); rows is at most 2^24. If x is the input of the graph, a
 * step or evaluation with another value is MISMATCH, and names sample and value. Behind other layers the vector of such
 * an id is NaN, and a step is NONFINITE. bf16 cannot hold ids: lk_engine_create is UNSUPPORTED. */
lk_node lk_embedding(lk_graph *graph, lk_node x, const char *name, size_t rows, size_t width);
/* As in PyTorch, with eps 1e-5 and momentum 0.1. */
lk_node lk_batchnorm2d(lk_graph *graph, lk_node x, const char *name);
/* As in PyTorch, with eps 1e-5. groupnorm normalises each group of a sample's channels over all pixels; `groups` must
 * divide the channels. layernorm normalises the channels of each pixel alone, as nn.LayerNorm(C) does with tensors
 * whose last axis is the channels. Both have a weight and a bias for each channel. */
lk_node lk_groupnorm(lk_graph *graph, lk_node x, const char *name, size_t groups);
lk_node lk_layernorm(lk_graph *graph, lk_node x, const char *name);
/* max(x, 0). */
lk_node lk_relu(lk_graph *graph, lk_node x);
/* min(max(x, 0), 6). */
lk_node lk_relu6(lk_graph *graph, lk_node x);
/* x where x > 0, else slope * x; slope is in [0,1). */
lk_node lk_leaky_relu(lk_graph *graph, lk_node x, double slope);
/* Functions of each element; the result has x's shape. silu is x * sigmoid(x); gelu is x * Phi(x), where Phi is the
 * distribution function of the normal distribution; gelu_tanh is PyTorch's approximation of gelu by tanh. */
lk_node lk_sigmoid(lk_graph *graph, lk_node x);
lk_node lk_tanh(lk_graph *graph, lk_node x);
lk_node lk_silu(lk_graph *graph, lk_node x);
lk_node lk_gelu(lk_graph *graph, lk_node x);
lk_node lk_gelu_tanh(lk_graph *graph, lk_node x);
/* The maximum and the mean of the pixels of each window. */
lk_node lk_maxpool2d(lk_graph *graph, lk_node x, lk_maxpool2d_opts opts);
lk_node lk_avgpool2d(lk_graph *graph, lk_node x, lk_avgpool2d_opts opts);
/* Mean and maximum of each channel over all pixels; the result is a vector of channels. */
lk_node lk_global_avgpool(lk_graph *graph, lk_node x);
lk_node lk_global_maxpool(lk_graph *graph, lk_node x);
/* p, in [0,1), is the probability that an element, or for dropout2d a whole channel, is set to 0. */
lk_node lk_dropout(lk_graph *graph, lk_node x, double p);
lk_node lk_dropout2d(lk_graph *graph, lk_node x, double p);
/* Appends channels of zeros to x, so that the result has `channels` channels. */
lk_node lk_pad_channels(lk_graph *graph, lk_node x, size_t channels);
/* x as a vector, in PyTorch's order: channels, height, width. */
lk_node lk_flatten(lk_graph *graph, lk_node x);
/* The sum and the product, element by element, of two nodes of the same shape. */
lk_node lk_add(lk_graph *graph, lk_node a, lk_node b);
lk_node lk_mul(lk_graph *graph, lk_node a, lk_node b);
/* The channels of a, then those of b, whose heights and widths must be equal. More than two nodes are concatenated by
 * more than one call. */
lk_node lk_concat(lk_graph *graph, lk_node a, lk_node b);
/* The product of the matrices of a and b, one for each sample and height: a is (width rows, channels columns) and b has
 * as many rows as a has columns, as torch.matmul of (N, H, T, C) tensors. */
lk_node lk_matmul(lk_graph *graph, lk_node a, lk_node b);
/* x with two of the axes 1 (height), 2 (width) and 3 (channels) exchanged, as PyTorch's x.transpose(a, b) of a tensor
 * (N, height, width, channels). */
lk_node lk_transpose(lk_graph *graph, lk_node x, int a, int b);
/* The same elements in another shape, in the order height, width, channels: the products must be equal. For a sequence
 * this is PyTorch's reshape of (N, T, C). Unlike lk_flatten, it does not change the order to (channels, height, width).
 */
lk_node lk_reshape(lk_graph *graph, lk_node x, size_t height, size_t width, size_t channels);
/* Probabilities: over the channels of each pixel. */
lk_node lk_softmax(lk_graph *graph, lk_node x);
/* Log-probabilities of a vector. */
lk_node lk_log_softmax(lk_graph *graph, lk_node x);
/* Losses end a graph. The loss of a batch is the mean over its samples; with weights it is sum(w * loss) / sum(w) (see
 * lk_weigh_classes, and `weights` in lk_batch).
 *
 * Losses of labels: a sample's target is its label. The input of nll_loss is log-probabilities, that of cross_entropy
 * is scores. Both take vectors. */
lk_node lk_nll_loss(lk_graph *graph, lk_node x);
lk_node lk_cross_entropy(lk_graph *graph, lk_node x);
/* Losses of float targets: a sample's target (lk_batch.targets) has as many floats as x, in the order (H, W, C). x has
 * any shape, so an image may be the target. The loss of a sample is the mean over its elements, as PyTorch's mean over
 * (N, ...). d is x - target.
 * mse: d^2. l1: |d|. huber: d^2 / 2 where |d| < delta, otherwise delta (|d| - delta / 2); delta is above 0. smooth_l1:
 * d^2 / (2 beta) where |d| < beta, otherwise |d| - beta / 2; beta is not below 0. bce_with_logits: binary cross-entropy
 * of sigmoid(x), one label in [0,1] for each element. */
lk_node lk_mse_loss(lk_graph *graph, lk_node x);
lk_node lk_l1_loss(lk_graph *graph, lk_node x);
lk_node lk_huber_loss(lk_graph *graph, lk_node x, double delta);
lk_node lk_smooth_l1_loss(lk_graph *graph, lk_node x, double beta);
lk_node lk_bce_with_logits_loss(lk_graph *graph, lk_node x);
/* Cross-entropy of a vector of scores with a probability for each class as targets. */
lk_node lk_soft_cross_entropy(lk_graph *graph, lk_node x);

/* Gives the classes of a loss weights: (classes) numbers not below 0, copied, of which one is above 0. cross_entropy
 * and nll_loss: as PyTorch's `weight`; a sample's weight is that of its label. soft_cross_entropy: as PyTorch's
 * `weight` with probabilities; the weights of samples do not change. bce_with_logits_loss: as PyTorch's `pos_weight`,
 * for each channel of x. Returns loss. USAGE for other losses, another number of classes, and a second call. */
lk_node lk_weigh_classes(lk_graph *graph, lk_node loss, const float *weights, size_t classes);

/* A loss of the program's own, of one sample: returns the loss, and writes its gradient to dx (floats) unless dx is
 * NULL. It must write every element of dx, which are NaN before the call: an element that it leaves out makes the step
 * NONFINITE. x (floats) is the input in the order (H, W, C). The target is `label` if target_floats is 0, otherwise
 * target (target_floats). Threads of the engine call it at the same time for different samples. It must not call the
 * library, except the functions of op.h that compute (lk_op_exp and its neighbours), and its result must depend on its
 * arguments only: then the lockstep law holds. lk_loss_check (op.h) tries a loss out: it compares dx with finite
 * differences of the loss, and finds elements that are not written. */
typedef float (*lk_loss_fn)(void *arg, const float *x, size_t floats, int32_t label, const float *target,
                            size_t target_floats, float *dx);
/* How many answers the network prefers to the right one, for one sample: lk_metrics.correct counts samples with 0,
 * lk_metrics.top5 those below 5. A negative number: the sample counts in neither. The rules of lk_loss_fn hold. */
typedef int32_t (*lk_loss_rank_fn)(void *arg, const float *x, size_t floats, int32_t label, const float *target,
                                   size_t target_floats);
/* The rank of cross_entropy, for losses whose x are scores of classes: the scores above that of the label, and equal
 * ones of classes before it. With as many targets as x has floats, the label is the first class with the largest
 * target; with another number of targets the result is -1. NaN ranks before the label. arg is not used. */
int32_t lk_loss_label_rank(void *arg, const float *x, size_t floats, int32_t label, const float *target,
                           size_t target_floats);

/* The same for all samples of a wave, on a GPU. All pointers are memory of the device. */
typedef struct lk_loss_cuda_call {
    void *stream;          /* cudaStream_t: kernels must be enqueued there; the host must not wait */
    size_t count;          /* N: samples */
    size_t floats;         /* of a sample's x */
    const float *x;        /* (N, floats) */
    const int32_t *labels; /* (N), or NULL */
    size_t target_floats;  /* of a sample's target; 0: a label */
    const float *targets;  /* (N, target_floats), or NULL */
    const float *weights;  /* (N), or NULL: 1 */
    float scale;           /* factor of the gradient */
    float *loss;           /* (N) to write: weight * loss */
    float *dx;             /* (N, floats) to write: scale * weight * gradient; or NULL */
    int32_t *label_rank;   /* (N) the results of `rank`, to write if there are any; before the call: INT32_MAX */
    uint64_t reserved[7];  /* zero */
} lk_loss_cuda_call;
typedef void (*lk_loss_cuda_fn)(void *arg, const lk_loss_cuda_call *call);

/* In lk_loss_def.target_floats: as many as x has. */
#define LK_TARGETS_AS_X SIZE_MAX

typedef struct lk_loss_def {
    const char *name;     /* copied; not the name of another loss */
    size_t target_floats; /* floats of a sample's target; 0: a label in [0, channels of x) */
    lk_loss_fn sample;    /* required */
    lk_loss_cuda_fn cuda; /* NULL: engines on GPUs refuse the loss */
    void *arg;            /* of all functions; must outlive all engines that use the loss */
    lk_loss_rank_fn rank; /* NULL: no sample counts as right; lk_loss_label_rank: as for cross_entropy */
    uint64_t reserved[7]; /* zero */
} lk_loss_def;

/* Registers a loss of the program's own until this process ends. All ranks must register the same losses. Any
 * thread may call it. USAGE if the name is taken or does not have 1 to 127 characters, and after 64 losses. */
lk_status lk_loss_register(const lk_loss_def *def) LK_CHECKED;
/* A registered loss, or one of the library's own without a parameter, by its name: "mse_loss". USAGE if there is no
 * such loss. */
lk_node lk_loss(lk_graph *graph, lk_node x, const char *name);

/* Gives the layer x a name, by which lk_engine_opts.outputs and lk_engine_opts.stages find it; most useful for layers
 * without parameters. The keys of a layer's parameters stay as they are, and a layer that has a name from its builder
 * has two. No other layer may have this name. The name is 1 to 127 printable characters without blanks and commas, and
 * is copied. Returns x, so that a call can enclose a builder: lk_name(g, lk_relu(g, x), "features"). */
lk_node lk_name(lk_graph *graph, lk_node x, const char *name);

/* Sets the initial weights of the convolution or linear layer x. (The weights of a BatchNorm are
 * initially 1, its biases 0.) A policy is one of
 *   "default"          PyTorch's: weights and biases uniform in +-1/sqrt(fan in)
 *   "kaiming_normal"   "kaiming_uniform": variance 2 / fan, for ReLU
 *   "xavier_normal"    "xavier_uniform": variance 2 / (fan in + fan out)
 *   "normal:std=.01"
 * kaiming uses fan in, or with "fan_out" the fan out. All policies but "default" accept
 * "zero_bias"; without it, biases are those of "default". Returns x, so that a call can enclose
 * a builder: lk_init(g, lk_conv2d(...), "kaiming_normal:fan_out"). */
lk_node lk_init(lk_graph *graph, lk_node x, const char *policy);
/* Sets the policy of every convolution and linear layer that the graph has now. */
void lk_init_all(lk_graph *graph, const char *policy);

/* The shape of one sample, and the number of classes. */
typedef struct lk_model_shape {
    size_t channels, height, width, classes;
} lk_model_shape;

/* Builds a named model. `spec` is a name of lk_model_list, with parameters if wanted:
 * "cnn:dropout=0". The caller owns *out (lk_graph_destroy). USAGE if there is no such model or parameter, if a
 * parameter is out of its range, and if the model cannot take samples of this shape. */
lk_status lk_model_build(const char *spec, lk_model_shape shape, lk_graph **out) LK_CHECKED;

/* A named model. */
typedef struct lk_model_info {
    const char *name;
    const char *summary;
    const char *params; /* "key=default (meaning), ..." or "" */
} lk_model_info;
/* Row `index` of the named models, counted from 0; NULL after the last. */
const lk_model_info *lk_model_list(size_t index);

/* The shape of a sample that the graph takes, and the channels of its scores as `classes`. All 0 if the graph is not
 * complete (lk_graph_check). */
lk_model_shape lk_graph_shape(const lk_graph *graph);

/* Trainable parameters of a graph, in elements. */
size_t lk_graph_parameters(const lk_graph *graph);

LK_API_END
#endif
