/* graph.h - describing a network as a static graph of layers.
 *
 * A builder adds a layer and returns its node, which is an input of later builders. Builders
 * return no status: the graph keeps the first mistake (for example a kernel larger than its
 * input, or a node of another graph), later builders do nothing, and lk_graph_check and
 * lk_engine_create return the mistake.
 *
 * The number of a layer in the order of building is part of its random numbers: of its first weights and of dropout. C
 * does not define the order in which the arguments of a call are evaluated. So build the nodes for a builder that takes
 * two of them in statements of their own; otherwise compilers differ in the order, and machines in the result.
 *
 * Threads: one thread at a time may build a graph. While no thread builds it, several threads
 * may read it at the same time (lk_graph_check, lk_graph_parameters, lk_engine_create).
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

/* Creates a graph without layers; the caller owns *out. */
lk_status lk_graph_create(lk_graph **out) LK_CHECKED;
void lk_graph_destroy(lk_graph *graph);

/* Returns the first mistake of the builders. LK_OK if there was none and the graph is complete:
 * it has one input, a loss as its last node, and every other node is an input of a later one. */
lk_status lk_graph_check(const lk_graph *graph) LK_CHECKED;

/* What BatchNorm layers normalise over in training. */
typedef enum lk_bn_mode {
    LK_BN_MODE_BATCH, /* over the whole batch of all ranks */
    LK_BN_MODE_SHARD  /* over each shard separately */
} lk_bn_mode;

/* In all option structs, zero means the default. Sizes are in pixels. */
typedef struct lk_conv2d_opts {
    size_t out;    /* output channels, required */
    size_t kernel; /* square kernel, required */
    size_t stride; /* default 1 */
    size_t pad;    /* zeros on each side, default 0 */
    bool no_bias;
    size_t groups;        /* groups of channels, as in PyTorch; each is convolved separately; default 1 */
    uint64_t reserved[8]; /* zero */
} lk_conv2d_opts;

/* As PyTorch's ConvTranspose2d. The sides of the output are (side - 1) * stride - 2 * pad + kernel + out_pad. */
typedef struct lk_conv_transpose2d_opts {
    size_t out;    /* output channels, required */
    size_t kernel; /* square kernel, required */
    size_t stride; /* default 1 */
    size_t pad;    /* below the kernel size, default 0 */
    bool no_bias;
    size_t groups;        /* default 1 */
    size_t out_pad;       /* rows and columns more at the lower and right side, below the stride, default 0 */
    uint64_t reserved[8]; /* zero */
} lk_conv_transpose2d_opts;

typedef struct lk_maxpool2d_opts {
    size_t kernel;        /* required */
    size_t stride;        /* default: kernel */
    size_t pad;           /* on each side, default 0; padded pixels are never the maximum */
    uint64_t reserved[8]; /* zero */
} lk_maxpool2d_opts;

typedef struct lk_avgpool2d_opts {
    size_t kernel;        /* required */
    size_t stride;        /* default: kernel */
    size_t pad;           /* zeros on each side, default 0; the mean includes them */
    bool ceil;            /* the last window may reach beyond the padded input; the mean leaves that part out */
    uint64_t reserved[8]; /* zero */
} lk_avgpool2d_opts;

/* Shapes. A node has a height, a width and channels for each sample. A vector has height and width 1. A sequence of T
 * vectors with C features, PyTorch's (N, T, C), has height 1, width T and C channels; with H heads, (N, H, T, C), it
 * has height H. In memory the order is height, width, channels, so the channels are PyTorch's last axis there; images,
 * which PyTorch keeps as (N, C, H, W), are converted at the input and by lk_flatten. */

/* Builders. `name` is the prefix of the layer's keys in a state dict: "conv1" gives conv1.weight
 * and conv1.bias. The name is copied. */
lk_node lk_input(lk_graph *graph, size_t channels, size_t height, size_t width);
lk_node lk_conv2d(lk_graph *graph, lk_node x, const char *name, lk_conv2d_opts opts);
/* Transposed convolution, which enlarges images. Its weight is (input channels, out / groups, kernel, kernel). */
lk_node lk_conv_transpose2d(lk_graph *graph, lk_node x, const char *name, lk_conv_transpose2d_opts opts);
/* out: output features. x is a vector, or a sequence, whose vectors are multiplied with the same weights, as
 * nn.Linear does with (N, T, C). */
lk_node lk_linear(lk_graph *graph, lk_node x, const char *name, size_t out);
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
/* Losses: the mean over the batch. The input of nll_loss is log-probabilities, that of
 * cross_entropy is scores. */
lk_node lk_nll_loss(lk_graph *graph, lk_node x);
lk_node lk_cross_entropy(lk_graph *graph, lk_node x);

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
 * "cnn:dropout=0". The caller owns *out (lk_graph_destroy). */
lk_status lk_model_build(const char *spec, lk_model_shape shape, lk_graph **out) LK_CHECKED;

/* A named model. */
typedef struct lk_model_info {
    const char *name;
    const char *summary;
    const char *params; /* "key=default (meaning), ..." or "" */
} lk_model_info;
/* Row `index` of the named models, counted from 0; NULL after the last. */
const lk_model_info *lk_model_list(size_t index);

/* Trainable parameters of a graph, in elements. */
size_t lk_graph_parameters(const lk_graph *graph);

LK_API_END
#endif
