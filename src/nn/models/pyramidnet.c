/* pyramidnet.c - the additive pyramidal residual network for CIFAR: every block is a little wider than the one
 * before. 24,253,410 parameters and 880 entries on 3x32x32.
 *
 * Channels grow by alpha / (3 (blocks + 1)) in each block, so the 108 layers, with 17 blocks in each stage, end
 * at 271 channels, not at 16 + alpha. A shortcut has no parameters: a mean of 2x2 pixels if the block has
 * stride 2, and channels of zeros. */
#include <math.h>
#include <stdio.h>

#include "base/spec.h"
#include "nn/models/models.h"

enum { STAGES = 3, KEY = 64, FIRST = 16 };

typedef struct block {
    const char *prefix;
    size_t in, out, stride;
} block;

static lk_node shortcut(lk_graph *graph, lk_node x, const block *b)
{
    if (b->stride > 1)
        x = lk_avgpool2d(graph, x, (lk_avgpool2d_opts){.kernel = b->stride, .ceil = true});
    return b->out > b->in ? lk_pad_channels(graph, x, b->out) : x;
}

static lk_node residual(lk_graph *graph, lk_node x, const block *b)
{
    char key[KEY];
    snprintf(key, sizeof key, "%sbn1", b->prefix);
    lk_node y =
        lk__model_conv_bn(graph, lk_batchnorm2d(graph, x, key), (lk_model_conv_bn_keys){b->prefix, "conv1", "bn2"},
                          (lk_conv2d_opts){.out = b->out, .kernel = 3, .stride = b->stride, .pad = 1});
    y = lk__model_conv_bn(graph, lk_relu(graph, y), (lk_model_conv_bn_keys){b->prefix, "conv2", "bn3"},
                          (lk_conv2d_opts){.out = b->out, .kernel = 3, .pad = 1});
    return lk_add(graph, y, shortcut(graph, x, b));
}

static lk_node stages(lk_graph *graph, lk_node x, int blocks, double growth)
{
    double width = FIRST;
    block b = {.out = FIRST};
    for (int stage = 0; stage < STAGES; stage++) {
        for (int i = 0; i < blocks; i++) {
            char prefix[KEY / 2];
            snprintf(prefix, sizeof prefix, "layer%d.%d.", stage + 1, i);
            width += growth;
            /* Halves are rounded to even, as by Python's round. */
            b = (block){
                .prefix = prefix, .in = b.out, .out = (size_t)rint(width), .stride = stage > 0 && i == 0 ? 2 : 1};
            x = residual(graph, x, &b);
        }
    }
    return x;
}

static lk_status build(const lk_model_args *args, lk_graph *graph)
{
    double blocks = 17, alpha = 270;
    const lk_spec_key keys[] = {{.name = "blocks", .value = &blocks, .min = 1, .max = 1000, .whole = true},
                                {.name = "alpha", .value = &alpha, .min = 0, .max = 1e5}};
    LK_TRY(lk__spec_params(args->spec, "`model`", keys, 2));
    lk_node x = lk__model_input(args, graph);
    x = lk__model_conv_bn(graph, x, (lk_model_conv_bn_keys){"", "conv1", "bn1"},
                          (lk_conv2d_opts){.out = FIRST, .kernel = 3, .pad = 1});
    x = stages(graph, x, (int)blocks, alpha / (STAGES * (blocks + 1)));
    x = lk_relu(graph, lk_batchnorm2d(graph, x, "bn_out"));
    lk_init_all(graph, "kaiming_normal:fan_out");
    lk_cross_entropy(graph, lk__model_mean_and_linear(graph, x, "fc_out", args->shape.classes));
    return LK_OK;
}

const lk_model lk__model_pyramidnet[] = {
    {{"pyramidnet", "pyramidal residual network (CIFAR)", "blocks=17 (a stage), alpha=270 (how much wider it grows)"},
     build,
     .usual = {3, 32, 32, 10}},
    {.build = NULL},
};
