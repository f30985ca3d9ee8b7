/* zoo.c - the table of models. */
#include "nn/models/zoo.h"

#include "base/spec.h"
#include "base/status.h"
#include "nn/models/models.h"

typedef struct row {
    lk_model_info info;
    lk_model_fn build;
    const lk_model_shape *usual; /* the data set's shape that it was made for */
    const lk_model_shape *small; /* the same with the switch "cifar"; NULL: it has no such switch */
    int size;                    /* as in lk_model_args */
    bool mean;
} row;

static const lk_model_shape mnist = {1, 28, 28, 10}, cifar = {3, 32, 32, 10}, imagenet = {3, 224, 224, 1000};

#define RESNET "torchvision's residual network"
#define RESNET_PARAMS "cifar=0 (1: a stem for small images)"
#define VGG "VGG with BatchNorm, torchvision's"
#define VGG_PARAMS "cifar=0 (1: for small images, one linear layer), dropout=1 (0: off)"

static const row rows[] = {
    {{"cnn", "two convolutions and two linear layers (MNIST)", "dropout=1 (0: off), dropout2d=0 (1: of channels)"},
     lk__model_cnn,
     .usual = &mnist},
    {{"mlp", "four linear layers", "hidden=64"}, lk__model_mlp, .usual = &mnist},
    {{"fc", "LeNet-300-100: three linear layers", ""}, lk__model_fc, .usual = &mnist},
    {{"debug", "one linear layer", ""}, lk__model_debug, .usual = &mnist},
    {{"conv2", "2 convolutions and three linear layers", ""}, lk__model_convs, &cifar, .size = 2},
    {{"conv4", "4 convolutions and three linear layers", ""}, lk__model_convs, &cifar, .size = 4},
    {{"conv6", "6 convolutions and three linear layers", ""}, lk__model_convs, &cifar, .size = 6},
    {{"conv2a", "2 convolutions, a mean, one linear layer", ""}, lk__model_convs, &cifar, .size = 2, .mean = true},
    {{"conv4a", "4 convolutions, a mean, one linear layer", ""}, lk__model_convs, &cifar, .size = 4, .mean = true},
    {{"conv6a", "6 convolutions, a mean, one linear layer", ""}, lk__model_convs, &cifar, .size = 6, .mean = true},
    {{"vgg11", VGG " vgg11_bn", VGG_PARAMS}, lk__model_vgg, &imagenet, .small = &cifar, .size = 11},
    {{"vgg13", VGG " vgg13_bn", VGG_PARAMS}, lk__model_vgg, &imagenet, .small = &cifar, .size = 13},
    {{"vgg16", VGG " vgg16_bn", VGG_PARAMS}, lk__model_vgg, &imagenet, .small = &cifar, .size = 16},
    {{"vgg19", VGG " vgg19_bn", VGG_PARAMS}, lk__model_vgg, &imagenet, .small = &cifar, .size = 19},
    {{"resnet20", "residual network (CIFAR)", "width=16"}, lk__model_resnet20, &cifar, .size = 20},
    {{"resnet18", RESNET, RESNET_PARAMS}, lk__model_resnet, &imagenet, .small = &cifar, .size = 18},
    {{"resnet34", RESNET, RESNET_PARAMS}, lk__model_resnet, &imagenet, .small = &cifar, .size = 34},
    {{"resnet50", RESNET ", of bottlenecks", RESNET_PARAMS}, lk__model_resnet, &imagenet, .small = &cifar, .size = 50},
    {{"resnet101", RESNET ", of bottlenecks", RESNET_PARAMS},
     lk__model_resnet,
     &imagenet,
     .small = &cifar,
     .size = 101},
    {{"resnet152", RESNET ", of bottlenecks", RESNET_PARAMS},
     lk__model_resnet,
     &imagenet,
     .small = &cifar,
     .size = 152},
    {{"mobilenet_v2", "torchvision's, with depthwise convolutions",
      "width=1 (of all channels), cifar=0 (1: for small images), dropout=1 (0: off)"},
     lk__model_mobilenet_v2,
     &imagenet,
     .small = &cifar},
    {{"pyramidnet", "pyramidal residual network (CIFAR)", "blocks=17 (a stage), alpha=270 (how much wider it grows)"},
     lk__model_pyramidnet,
     .usual = &cifar},
};

enum { ROWS = sizeof rows / sizeof *rows };

const lk_model_info *lk_model_list(size_t index)
{
    return index < ROWS ? &rows[index].info : NULL;
}

static const char *name_at(const void *arg, size_t index)
{
    (void)arg;
    return index < ROWS ? rows[index].info.name : NULL;
}

static const lk_names names = {.what = "`model`", .kind = "model", .next = name_at};

lk_status lk_model_build(const char *spec, lk_model_shape shape, lk_graph **out)
{
    size_t found = 0;
    lk_graph *graph;
    LK_TRY(lk__spec_find(spec, &names, &found));
    LK_TRY(lk_graph_create(&graph));
    lk_model_args args = {.spec = spec, .shape = shape, .size = rows[found].size, .mean = rows[found].mean};
    lk_status status;
    LK_TRY_GOTO(rows[found].build(&args, graph), destroy_graph);
    LK_TRY_GOTO(lk_graph_check(graph), destroy_graph);
    *out = graph;
    return LK_OK;

destroy_graph:
    lk_graph_destroy(graph);
    return status;
}

lk_status lk__model_usual_shape(const char *spec, lk_model_shape *out)
{
    size_t found = 0;
    LK_TRY(lk__spec_find(spec, &names, &found));
    const row *model = &rows[found];
    *out = model->small && lk__spec_has_switch(spec, "cifar") ? *model->small : *model->usual;
    return LK_OK;
}
