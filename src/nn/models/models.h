/* models.h - what the families of models share. The file of a family has its builders and its rows; zoo.c has the
 * table of all models.
 *
 * Layers are built in the order in which PyTorch lists their keys. */
#ifndef LK_NN_MODELS_MODELS_H
#define LK_NN_MODELS_MODELS_H

#include <lockstep/graph.h>

typedef struct lk_model_args {
    const char *spec; /* the whole "name:key=value" text; the model reads its own parameters */
    lk_model_shape shape;
    int size;  /* the member of the family: 18 for resnet18 */
    bool mean; /* the variant that ends with a mean over the pixels */
} lk_model_args;

typedef struct lk_model {
    lk_model_info info;
    lk_status (*build)(const lk_model_args *args, lk_graph *graph);
    lk_model_shape usual; /* the data set's shape that it was made for: channels, height, width, classes */
    lk_model_shape small; /* the same with the switch "cifar"; all 0: it has no such switch */
    int size;             /* as in lk_model_args */
    bool mean;
} lk_model;

/* The families, in the order in which their models are listed. FAMILY.c defines lk__model_FAMILY, an array of rows
 * that ends with a row without a builder. */
#define LK_MODEL_FAMILIES(X) X(cnn) X(mlp) X(lenet5) X(convs) X(vgg) X(resnet20) X(resnet) X(mobilenet_v2) X(pyramidnet)

#define LK_MODEL_DECLARE(family) extern const lk_model lk__model_##family[];
LK_MODEL_FAMILIES(LK_MODEL_DECLARE)

/* The sample: the first node of every model. */
lk_node lk__model_input(const lk_model_args *args, lk_graph *graph);

/* Names of a convolution and of the BatchNorm after it: the prefix and one more part each. */
typedef struct lk_model_conv_bn_keys {
    const char *prefix, *conv, *bn;
} lk_model_conv_bn_keys;

/* A convolution without a bias, and BatchNorm. */
lk_node lk__model_conv_bn(lk_graph *graph, lk_node x, lk_model_conv_bn_keys keys, lk_conv2d_opts opts);

/* The mean over the pixels, and scores of the classes. */
lk_node lk__model_mean_and_linear(lk_graph *graph, lk_node x, const char *name, size_t classes);

#endif
