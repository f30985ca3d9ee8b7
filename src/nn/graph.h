/* graph.h - the graph inside the module nn: layers in the order of building, which is also an order of
 * execution.
 *
 * A layer's index in the graph is part of the address of its random numbers; compilation must not change it. */
#ifndef LK_NN_GRAPH_H
#define LK_NN_GRAPH_H

#include <stdint.h>

#include <lockstep/graph.h>
#include <lockstep/op.h>

#include "tensor/device.h"

typedef struct lk_op lk_op;

enum { LK_MAX_INPUTS = 2, LK_MAX_PARAMS = 4, LK_MAX_BUFFERS = 2, LK_MAX_NAME = 128 };

typedef enum lk_op_fill {
    LK_OP_FILL_FAN,     /* uniform in +-1/sqrt(fan_in), PyTorch's default */
    LK_OP_FILL_UNIFORM, /* in +-spread */
    LK_OP_FILL_NORMAL,  /* of standard deviation spread */
    LK_OP_FILL_ZERO,
    LK_OP_FILL_ONE,
    LK_OP_FILL_CONSTANT /* spread */
} lk_op_fill;

/* A parameter or a buffer: one key of the state dict. */
typedef struct lk_op_slot {
    const char *suffix; /* "weight"; the key is "<layer name>.weight" */
    int ndim;
    size_t dims[4];
    lk_op_fill fill;         /* the default is LK_OP_FILL_FAN */
    size_t fan_in;           /* for LK_OP_FILL_FAN */
    double spread;           /* for LK_OP_FILL_UNIFORM, LK_OP_FILL_NORMAL and LK_OP_FILL_CONSTANT */
    lk_device_weight weight; /* for weights: their shape, by which a device may reorder them; pixels is set later */
} lk_op_slot;

typedef struct lk_layer {
    const lk_op *op;
    int index;
    char name[LK_MAX_NAME];  /* "" for layers without parameters */
    char alias[LK_MAX_NAME]; /* of lk_name; "" if there is none. No part of the model's hash */
    int inputs[LK_MAX_INPUTS];
    int input_count;
    lk_shape shape; /* of the output, n = 1 */
    lk_op_slot params[LK_MAX_PARAMS];
    int param_count;
    lk_op_slot buffers[LK_MAX_BUFFERS];
    int buffer_count;
    bool counts_batches; /* has num_batches_tracked */
    bool in_place;       /* y may be x, and dx may be dy */
    /* Attributes of the layer; each op reads its own. */
    struct {
        size_t out; /* outputs, channels; groupnorm: groups */
        bool no_bias;
        lk_conv2d_desc conv;
        lk_pool2d_desc pool;
        bool ceil;         /* of pools */
        double number;     /* dropout: p; leaky_relu: slope; huber_loss: delta; smooth_l1_loss: beta */
        bool by_channel;   /* of dropout */
        int axes[2];       /* of transpose */
        size_t out_pad[2]; /* of conv_transpose2d: of the height and of the width */
    } attr;
    /* The fields of an op of the program's own; all zero for other ops. */
    struct {
        _Alignas(16) unsigned char attr[LK_OP_MAX_ATTR]; /* the bytes after attr_bytes are zero */
        size_t attr_bytes;
        lk_shape x[LK_MAX_INPUTS]; /* of the inputs */
        size_t workspace;          /* floats of a sample */
    } own;
} lk_layer;

struct lk_graph {
    unsigned id; /* unique in the process, from 1 */
    lk_layer *layers;
    int count, room;
    float *class_weights; /* (channels of the loss's input), or NULL */
    size_t classes;       /* their number */
    lk_status status;     /* of the first mistake */
    char detail[512];
};

/* For the public builders, which are in the files of their ops: adds a layer, whose op and attributes are set. name may
 * be NULL. */
lk_node lk__graph_add_layer(lk_graph *graph, lk_layer layer, const char *name, const lk_node *inputs, int input_count);

/* Whether the layer has this name, from its builder or from lk_name. */
bool lk__layer_is_named(const lk_layer *layer, const char *name);

/* Keeps lk__fail's last detail as the mistake of a graph that had none. Returns an invalid node. */
lk_node lk__graph_reject(lk_graph *graph, lk_status status);
/* Rejects the options of a builder if their reserved words are not 0 (LK_CLEAR); a graph may be NULL. */
void lk__graph_check_clear(lk_graph *graph, lk_status clear);

/* USAGE if a node, given as `role` ("layer 3 (add): input 0"), does not belong to the graph. */
lk_status lk__graph_check_node(const lk_graph *graph, lk_node node, const char *role) LK_CHECKED;

static inline size_t lk__op_slot_count(const lk_op_slot *def)
{
    size_t count = 1;
    for (int i = 0; i < def->ndim; i++)
        count *= def->dims[i];
    return count;
}

/* Key of a slot: "conv1.weight". */
enum { LK_MAX_KEY = LK_MAX_NAME + 32 };
void lk__op_slot_key(const lk_layer *layer, const char *suffix, char key[LK_MAX_KEY]);

/* Whether this layer flattens for one linear layer only, and is the only reader of its input: a device may then
 * leave the tensor unflattened. */
bool lk__graph_flat_view(const lk_graph *graph, const lk_layer *layer);
/* Whether this layer is a log_softmax for one nll_loss only, and is the only reader of its input. */
bool lk__graph_loss_view(const lk_graph *graph, const lk_layer *layer);

/* The loss of a complete graph. */
static inline const lk_layer *lk__graph_loss(const lk_graph *graph)
{
    return &graph->layers[graph->count - 1];
}

/* Floats of a sample's target of a complete graph; 0: targets are labels. */
size_t lk__graph_target_floats(const lk_graph *graph);

/* The class weights of a complete graph that are weights of its samples, by their labels; NULL: none. */
const float *lk__graph_label_weights(const lk_graph *graph);

/* Whether a layer needs sums over all samples during a pass. */
bool lk__graph_has_sums(const lk_graph *graph);

/* Whether the layers that read the graph's input can use these samples, (count, h, w, c) in host memory; MISMATCH
 * otherwise. ids are theirs. */
lk_status lk__graph_check_samples(const lk_graph *graph, const float *x, size_t count, const uint32_t *ids) LK_CHECKED;

/* Hash of layers, their order, names, shapes, attributes and initial values of parameters: equal for equal
 * models. */
uint64_t lk__graph_hash(const lk_graph *graph);

/* Has CPUs compute convolutions as LK_CONV_MODE_WINOGRAD says. */
void lk__graph_use_winograd(lk_graph *graph);

/* A deep copy. */
lk_status lk__graph_copy(const lk_graph *graph, lk_graph **out) LK_CHECKED;

#endif
