/* models.h - one builder for each family of models; zoo.c has the table.
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

typedef lk_status (*lk_model_fn)(const lk_model_args *args, lk_graph *graph);

lk_status lk__model_cnn(const lk_model_args *args, lk_graph *graph) LK_CHECKED;
lk_status lk__model_convs(const lk_model_args *args, lk_graph *graph) LK_CHECKED;
lk_status lk__model_debug(const lk_model_args *args, lk_graph *graph) LK_CHECKED;
lk_status lk__model_fc(const lk_model_args *args, lk_graph *graph) LK_CHECKED;
lk_status lk__model_mlp(const lk_model_args *args, lk_graph *graph) LK_CHECKED;
lk_status lk__model_mobilenet_v2(const lk_model_args *args, lk_graph *graph) LK_CHECKED;
lk_status lk__model_pyramidnet(const lk_model_args *args, lk_graph *graph) LK_CHECKED;
lk_status lk__model_resnet(const lk_model_args *args, lk_graph *graph) LK_CHECKED;
lk_status lk__model_resnet20(const lk_model_args *args, lk_graph *graph) LK_CHECKED;
lk_status lk__model_vgg(const lk_model_args *args, lk_graph *graph) LK_CHECKED;

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
