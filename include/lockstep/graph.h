/* graph.h - describing a network as a static graph of layers.
 *
 * Builders return a node to feed into the next one. They do not return a
 * status: the first mistake (a kernel larger than its input, say) is kept in
 * the graph, later calls do nothing, and lk_graph_check or lk_engine_create
 * reports it. So a network reads top to bottom. A node of another graph is such a
 * mistake.
 *
 * Threads: a graph may be built by one thread at a time; a graph that is not being
 * built may be read (lk_graph_check, lk_graph_parameters, lk_engine_create) by several
 * at the same time. Different graphs are independent. */
#ifndef LOCKSTEP_GRAPH_H
#define LOCKSTEP_GRAPH_H

#include <stdbool.h>
#include <stddef.h>

#include <lockstep/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_graph lk_graph;
typedef struct lk_node {
    int index;      /* position in the graph; negative after a mistake */
    unsigned graph; /* which graph that is; 0: none */
} lk_node;

lk_status lk_graph_create(lk_graph **out) LK_CHECKED;
void lk_graph_destroy(lk_graph *graph);

/* The first mistake made while building, or LK_OK for a whole graph: one
 * input, one loss as its last node, and no node whose result nobody uses. */
lk_status lk_graph_check(const lk_graph *graph) LK_CHECKED;

/* What BatchNorm layers normalise over in training. */
typedef enum lk_bn_mode {
    LK_BN_BATCH, /* normalise over the global batch */
    LK_BN_SHARD  /* normalise each shard alone */
} lk_bn_mode;

/* Zero means the default in all option structs. */
typedef struct lk_conv2d_opts {
    size_t out;    /* output channels, required */
    size_t kernel; /* square kernel, required */
    size_t stride; /* default 1 */
    size_t pad;    /* zeros on each side, default 0 */
    bool no_bias;
    size_t groups; /* parts that the channels are cut into, each convolved alone; default 1 */
} lk_conv2d_opts;

typedef struct lk_maxpool2d_opts {
    size_t kernel; /* required */
    size_t stride; /* default: kernel */
    size_t pad;
} lk_maxpool2d_opts;

typedef struct lk_avgpool2d_opts {
    size_t kernel; /* required */
    size_t stride; /* default: kernel */
    size_t pad;    /* zeros, which count */
    bool ceil;     /* a last window may stick out; what sticks out does not count */
} lk_avgpool2d_opts;

/* name is the prefix of the layer's keys in a state dict: "conv1" gives
 * conv1.weight and conv1.bias. */
lk_node lk_input(lk_graph *graph, size_t channels, size_t height, size_t width);
lk_node lk_conv2d(lk_graph *graph, lk_node x, const char *name, lk_conv2d_opts opts);
lk_node lk_linear(lk_graph *graph, lk_node x, const char *name, size_t out);
lk_node lk_batchnorm2d(lk_graph *graph, lk_node x, const char *name);
lk_node lk_relu(lk_graph *graph, lk_node x);
/* min(max(x, 0), 6). */
lk_node lk_relu6(lk_graph *graph, lk_node x);
lk_node lk_maxpool2d(lk_graph *graph, lk_node x, lk_maxpool2d_opts opts);
lk_node lk_avgpool2d(lk_graph *graph, lk_node x, lk_avgpool2d_opts opts);
lk_node lk_global_avgpool(lk_graph *graph, lk_node x);
lk_node lk_dropout(lk_graph *graph, lk_node x, double p);
/* Drops whole channels. */
lk_node lk_dropout2d(lk_graph *graph, lk_node x, double p);
/* x with channels of zeros behind its own, `channels` in all. */
lk_node lk_pad_channels(lk_graph *graph, lk_node x, size_t channels);
lk_node lk_flatten(lk_graph *graph, lk_node x);
lk_node lk_add(lk_graph *graph, lk_node a, lk_node b);
lk_node lk_log_softmax(lk_graph *graph, lk_node x);
/* Losses: means over the batch. nll takes log-probabilities, cross_entropy
 * takes scores. */
lk_node lk_nll_loss(lk_graph *graph, lk_node x);
lk_node lk_cross_entropy(lk_graph *graph, lk_node x);

/* How the weights of convolutions and linear layers begin; what BatchNorm has
 * begins as ones and zeros. A policy is one of
 *   "default"          PyTorch's for such a layer: uniform in +-1/sqrt(fan in), its bias too
 *   "kaiming_normal"   "kaiming_uniform": variance 2 / fan, for ReLU
 *   "xavier_normal"    "xavier_uniform": variance 2 / (fan in + fan out)
 *   "normal:std=.01"
 * kaiming takes "fan_out" for the other fan; all but default take "zero_bias", else
 * biases begin as the default's. Each returns x, so that it can stand around a
 * builder: lk_init(g, lk_conv2d(...), "kaiming_normal:fan_out"). */
lk_node lk_init(lk_graph *graph, lk_node x, const char *policy);
/* The same for every convolution and linear layer of the graph so far. */
void lk_init_all(lk_graph *graph, const char *policy);

/* What a named model must fit: one sample's shape and the number of classes. */
typedef struct lk_model_shape {
    size_t channels, height, width, classes;
} lk_model_shape;

/* Builds a model of the zoo by its name in lk_model_list, with parameters as in
 * "cnn:dropout=0". */
lk_status lk_model_build(const char *spec, lk_model_shape shape, lk_graph **out) LK_CHECKED;

/* Rows of the model table, NULL after the last. */
typedef struct lk_model_info {
    const char *name;
    const char *summary;
    const char *params; /* "key=default (meaning), ..." or "" */
} lk_model_info;
const lk_model_info *lk_model_list(size_t index);

/* Trainable parameters of a graph, counted in elements. */
size_t lk_graph_parameters(const lk_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
