/* zoo.c - the table of models. */
#include "nn/zoo.h"

#include "base/spec.h"
#include "base/status.h"
#include "nn/models/models.h"

typedef struct row {
    lk_model_info info;
    lk_model_fn build;
    const lk_model_shape *usual; /* what it was made for */
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
     &mnist,
     0,
     false},
    {{"mlp", "four linear layers", "hidden=64"}, lk__model_mlp, &mnist, 0, false},
    {{"fc", "LeNet-300-100: three linear layers", ""}, lk__model_fc, &mnist, 0, false},
    {{"debug", "one linear layer", ""}, lk__model_debug, &mnist, 0, false},
    {{"conv2", "2 convolutions and three linear layers", ""}, lk__model_convs, &cifar, 2, false},
    {{"conv4", "4 convolutions and three linear layers", ""}, lk__model_convs, &cifar, 4, false},
    {{"conv6", "6 convolutions and three linear layers", ""}, lk__model_convs, &cifar, 6, false},
    {{"conv2a", "2 convolutions, a mean, one linear layer", ""}, lk__model_convs, &cifar, 2, true},
    {{"conv4a", "4 convolutions, a mean, one linear layer", ""}, lk__model_convs, &cifar, 4, true},
    {{"conv6a", "6 convolutions, a mean, one linear layer", ""}, lk__model_convs, &cifar, 6, true},
    {{"vgg11", VGG " vgg11_bn", VGG_PARAMS}, lk__model_vgg, &imagenet, 11, false},
    {{"vgg13", VGG " vgg13_bn", VGG_PARAMS}, lk__model_vgg, &imagenet, 13, false},
    {{"vgg16", VGG " vgg16_bn", VGG_PARAMS}, lk__model_vgg, &imagenet, 16, false},
    {{"vgg19", VGG " vgg19_bn", VGG_PARAMS}, lk__model_vgg, &imagenet, 19, false},
    {{"resnet20", "residual network (CIFAR)", "width=16"}, lk__model_resnet20, &cifar, 20, false},
    {{"resnet18", RESNET, RESNET_PARAMS}, lk__model_resnet, &imagenet, 18, false},
    {{"resnet34", RESNET, RESNET_PARAMS}, lk__model_resnet, &imagenet, 34, false},
    {{"resnet50", RESNET ", of bottlenecks", RESNET_PARAMS}, lk__model_resnet, &imagenet, 50, false},
    {{"resnet101", RESNET ", of bottlenecks", RESNET_PARAMS}, lk__model_resnet, &imagenet, 101, false},
    {{"resnet152", RESNET ", of bottlenecks", RESNET_PARAMS}, lk__model_resnet, &imagenet, 152, false},
    {{"mobilenet_v2", "torchvision's, with depthwise convolutions",
      "width=1 (of all channels), cifar=0 (1: for small images), dropout=1 (0: off)"},
     lk__model_mobilenet_v2,
     &imagenet,
     0,
     false},
    {{"pyramidnet", "pyramidal residual network (CIFAR)", "blocks=17 (a stage), alpha=270 (how much wider it grows)"},
     lk__model_pyramidnet,
     &cifar,
     0,
     false},
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

static const lk_names names = {.what = "--model", .kind = "model", .next = name_at};

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

/* Whether "cifar" is on; keys are those of all models that were made for large
 * images. A spec that is wrong is told so when it is built. */
static bool is_for_small(const char *spec)
{
    double cifar_on = 0, other[2] = {1, 1};
    const lk_spec_key keys[] = {{.name = "cifar", .value = &cifar_on, .max = 1, .whole = true},
                                {.name = "dropout", .value = &other[0], .max = 1, .whole = true},
                                {.name = "width", .value = &other[1], .max = 100}};
    return lk__spec_params(spec, "--model", keys, 3) == LK_OK && cifar_on > 0;
}

lk_status lk__model_usual_shape(const char *spec, lk_model_shape *out)
{
    size_t found = 0;
    LK_TRY(lk__spec_find(spec, &names, &found));
    const lk_model_shape *usual = rows[found].usual;
    *out = usual == &imagenet && is_for_small(spec) ? cifar : *usual;
    return LK_OK;
}
