/* law.h - runs of the engine on generated data, and the state hash at their end.
 *
 * A sample depends only on its id: every machine generates the same samples. */
#ifndef LK_TESTS_LAW_H
#define LK_TESTS_LAW_H

#include <lockstep/lockstep.h>

#include "base/rng.h"
#include "check.h"
#include "own_ops.h"

/* A parameter group of a case. */
typedef struct law_group {
    const char *pattern; /* NULL after the last */
    lk_param_group group;
} law_group;

typedef struct law_case {
    const char *model;
    lk_model_shape shape;
    lk_bn_mode bn;
    const char *optimizer;
    double lr;
    int steps;
    size_t batch;
    int shards;
    uint64_t hash;    /* of the state after the last step */
    int first;        /* step number of the first batch */
    double clip_norm; /* 0: none */
    double label_smoothing;
    lk_conv_mode conv;
    lk_precision precision;
    const law_group *groups; /* set before the first step; NULL: none */
} law_case;

/* How a case is run; the result must not depend on it. */
typedef struct law_way {
    const char *device; /* NULL: the default */
    const char *isa;    /* NULL: the best */
    int threads;
    size_t micro_batch;
    /* For several ranks (ranks.h). */
    int ranks;
    int devices;           /* ranks in each process, except with "inproc"; 0: one */
    const char *transport; /* "inproc", "shm", "tcp", "auto" */
    const char *hosts;     /* a letter for each rank; NULL: one host */
    const char *stages;
    bool pipelined;
    size_t bucket_bytes;
    bool share;      /* a rank gets its shards of each batch; else whole batches */
    bool halves;     /* a step is lk_engine_gradients and lk_engine_update */
    int check_every; /* steps between two comparisons of replicas; 0: the default */
    bool unrecorded; /* the device cannot record these steps (test_recorded_ranks.c) */
} law_way;

static inline void law_require(lk_status status)
{
    if (status != LK_OK)
        fail_msg("%s: %s", lk_status_string(status), lk_error_detail());
}

/* Fills sample `id` and returns its label: values in (-2, 2) with 12 bits; the position of a bright
 * block depends on the label. */
static inline int32_t law_sample(lk_model_shape shape, uint32_t id, float *x)
{
    lk_rng rng = lk__rng(7, LK_RNG_PURPOSE_AUGMENT, 0, 0, id);
    size_t count = shape.channels * shape.height * shape.width;
    for (size_t i = 0; i < count; i++)
        x[i] = (float)((int)(lk__rng_u32(&rng, i) >> 20) - 2048) * 0x1p-10f;
    uint32_t label = id % (uint32_t)shape.classes;
    for (size_t i = 0; i < shape.width * shape.channels * 2; i++)
        x[(label * 2 * shape.width * shape.channels + i) % count] += 1.5f;
    return (int32_t)label;
}

/* Every 5th step has half a batch, every 7th step one sample. */
static inline size_t law_count(const law_case *c, int step)
{
    if (step % 7 == 6)
        return 1;
    return step % 5 == 4 ? (c->batch + 1) / 2 : c->batch;
}

/* Gives the batch what the loss of these models learns: its own samples as targets, and weights by position. */
static inline void law_targets(const char *model, lk_batch *batch)
{
    static const float weights[64] = {1,    0.5f, 3, 0, 2, 0.25f, 1, 7, 0.125f, 1, 0, 4, 1.5f, 2, 1, 0.75f,
                                      0.5f, 1,    1, 2, 0, 1,     5, 1, 0.5f,   3, 1, 1, 2,    6, 0, 1};
    bool images = strcmp(model, "autoencoder") == 0 || strcmp(model, "robust") == 0 || strcmp(model, "own_loss") == 0;
    if (images) {
        batch->targets = batch->x;
        batch->target_floats = batch->sample_floats;
    }
    if (strcmp(model, "weighted") == 0 || strcmp(model, "robust") == 0)
        batch->weights = weights;
}

static inline void law_batch(const law_case *c, int step, float *x, int32_t *labels, uint32_t *ids, lk_batch *batch)
{
    size_t sample = c->shape.channels * c->shape.height * c->shape.width;
    *batch = (lk_batch){.count = law_count(c, step), .sample_floats = sample, .x = x, .labels = labels, .ids = ids};
    for (size_t i = 0; i < batch->count; i++) {
        ids[i] = (uint32_t)((size_t)step * c->batch + i);
        labels[i] = law_sample(c->shape, ids[i], x + i * sample);
    }
    if (c->model)
        law_targets(c->model, batch);
}

static inline lk_engine_opts law_opts(const law_case *c, const law_way *way)
{
    return (lk_engine_opts){.device = way->device,
                            .threads = way->threads,
                            .batch = c->batch,
                            .shards = c->shards,
                            .micro_batch = way->micro_batch,
                            .precision = c->precision,
                            .bn = c->bn,
                            .optimizer = c->optimizer,
                            .lr = c->lr,
                            .seed = 3,
                            .clip_norm = c->clip_norm,
                            .label_smoothing = c->label_smoothing,
                            .conv = c->conv,
                            .bucket_bytes = way->bucket_bytes,
                            .stages = way->stages,
                            .pipelined = way->pipelined,
                            .check_every = way->check_every};
}

/* Model "ops": operations that no built-in model has in all forms: grouped convolutions, one input
 * channel for several output channels, windows over the border and windows with padding. */
static inline void law_build_ops(lk_model_shape shape, lk_graph *g)
{
    lk_node x = lk_input(g, shape.channels, shape.height, shape.width);
    x = lk_conv2d(g, x, "one", (lk_conv2d_opts){.out = 12, .kernel = 3, .pad = 1, .groups = 3});
    x = lk_relu6(g, lk_batchnorm2d(g, x, "bn"));
    lk_node y = lk_conv2d(g, x, "two", (lk_conv2d_opts){.out = 20, .kernel = 3, .stride = 2, .groups = 4});
    x = lk_pad_channels(g, lk_avgpool2d(g, x, (lk_avgpool2d_opts){.kernel = 3, .stride = 2}), 20);
    x = lk_dropout2d(g, lk_add(g, x, y), 0.2);
    x = lk_avgpool2d(g, x, (lk_avgpool2d_opts){.kernel = 2, .stride = 2, .ceil = true});
    x = lk_avgpool2d(g, x, (lk_avgpool2d_opts){.kernel = 3, .stride = 2, .pad = 1});
    x = lk_init(g, lk_linear(g, lk_flatten(g, x), "fc", shape.classes), "kaiming_normal");
    lk_nll_loss(g, lk_log_softmax(g, x));
}

/* Model "leaky": leaky ReLU after a convolution and after a linear layer. */
static inline void law_build_leaky(lk_model_shape shape, lk_graph *g)
{
    lk_node x = lk_input(g, shape.channels, shape.height, shape.width);
    x = lk_leaky_relu(g, lk_conv2d(g, x, "conv", (lk_conv2d_opts){.out = 7, .kernel = 3, .stride = 2}), 0.1);
    x = lk_leaky_relu(g, lk_linear(g, lk_flatten(g, x), "fc1", 21), 0.01);
    lk_cross_entropy(g, lk_linear(g, x, "fc2", shape.classes));
}

/* Model "gates": the functions of one element, and products. */
static inline void law_build_gates(lk_model_shape shape, lk_graph *g)
{
    lk_conv2d_opts conv = {.out = 9, .kernel = 3, .stride = 2};
    lk_node x = lk_input(g, shape.channels, shape.height, shape.width);
    x = lk_gelu(g, lk_conv2d(g, x, "conv", (lk_conv2d_opts){.out = 7, .kernel = 3}));
    lk_node value = lk_tanh(g, lk_conv2d(g, x, "value", conv));
    lk_node gate = lk_sigmoid(g, lk_conv2d(g, x, "gate", conv));
    x = lk_mul(g, value, gate);
    x = lk_silu(g, lk_linear(g, lk_flatten(g, x), "fc1", 21));
    x = lk_gelu_tanh(g, lk_linear(g, x, "fc2", 19));
    lk_cross_entropy(g, lk_linear(g, x, "fc3", shape.classes));
}

/* Model "norms": normalisation of groups and of pixels, softmax, concatenation and both global poolings. */
static inline void law_build_norms(lk_model_shape shape, lk_graph *g)
{
    lk_node x = lk_input(g, shape.channels, shape.height, shape.width);
    x = lk_conv2d(g, x, "conv1", (lk_conv2d_opts){.out = 12, .kernel = 3, .stride = 2});
    x = lk_relu(g, lk_groupnorm(g, x, "groups", 4));
    lk_node y = lk_softmax(g, lk_conv2d(g, x, "conv2", (lk_conv2d_opts){.out = 21, .kernel = 3, .pad = 1}));
    x = lk_layernorm(g, lk_concat(g, x, y), "layer");
    y = lk_global_avgpool(g, x);
    x = lk_concat(g, y, lk_global_maxpool(g, x));
    lk_cross_entropy(g, lk_linear(g, x, "fc", shape.classes));
}

/* Model "attention": three heads over the pixels of an image. */
static inline void law_build_attention(lk_model_shape shape, lk_graph *g)
{
    enum { TOKENS = 12, WIDTH = 12, HEADS = 3 };
    static const char *const names[] = {"query", "key", "value"};
    lk_node x = lk_input(g, shape.channels, shape.height, shape.width), part[3];
    x = lk_conv2d(g, x, "patches", (lk_conv2d_opts){.out = WIDTH, .kernel = 3, .stride = 4});
    x = lk_reshape(g, x, 1, TOKENS, WIDTH);
    lk_node y = lk_layernorm(g, x, "norm");
    for (int i = 0; i < 3; i++) {
        part[i] = lk_linear(g, y, names[i], WIDTH);
        part[i] = lk_transpose(g, lk_reshape(g, part[i], TOKENS, HEADS, WIDTH / HEADS), 1, 2);
    }
    y = lk_softmax(g, lk_matmul(g, part[0], lk_transpose(g, part[1], 2, 3)));
    y = lk_reshape(g, lk_transpose(g, lk_matmul(g, y, part[2]), 1, 2), 1, TOKENS, WIDTH);
    x = lk_global_avgpool(g, lk_gelu(g, lk_add(g, x, y)));
    lk_cross_entropy(g, lk_linear(g, x, "fc", shape.classes));
}

/* Model "upsampled": transposed convolutions, one of them in groups and without a bias. */
static inline void law_build_upsampled(lk_model_shape shape, lk_graph *g)
{
    lk_node x = lk_input(g, shape.channels, shape.height, shape.width);
    x = lk_relu(g, lk_conv2d(g, x, "conv", (lk_conv2d_opts){.out = 10, .kernel = 3, .stride = 3}));
    x = lk_conv_transpose2d(g, x, "up1",
                            (lk_conv_transpose2d_opts){.out = 21, .kernel = 3, .stride = 2, .pad = 1, .out_pad = 1});
    x = lk_conv_transpose2d(g, lk_relu(g, x), "up2",
                            (lk_conv_transpose2d_opts){.out = 6, .kernel = 2, .groups = 3, .no_bias = true});
    lk_cross_entropy(g, lk_linear(g, lk_flatten(g, x), "fc", shape.classes));
}

/* Model "own": ops that are registered from outside, and an embedding. */
static inline void law_build_own(lk_model_shape shape, lk_graph *g)
{
    own_ops_register();
    lk_node x = lk_input(g, shape.channels, shape.height, shape.width), gate[2];
    x = lk_flatten(g, lk_avgpool2d(g, x, (lk_avgpool2d_opts){.kernel = 4}));
    x = lk_op_add(g, "bucket", NULL, &x, 1, NULL, 0);
    x = lk_embedding(g, x, "words", BUCKETS, 13);
    x = lk_linear(g, x, "up", 21);
    x = lk_op_add(g, "swish", "swish", &x, 1, NULL, 0);
    gate[0] = lk_linear(g, x, "value", 9);
    gate[1] = lk_sigmoid(g, lk_linear(g, x, "gate", 9));
    x = lk_op_add(g, "gate", "gated", gate, 2, NULL, 0);
    lk_cross_entropy(g, lk_linear(g, lk_global_avgpool(g, x), "fc", shape.classes));
}

/* Model "autoencoder": learns its own input, an image. */
static inline void law_build_autoencoder(lk_model_shape shape, lk_graph *g)
{
    lk_node x = lk_input(g, shape.channels, shape.height, shape.width);
    x = lk_relu(g, lk_conv2d(g, x, "down", (lk_conv2d_opts){.out = 6, .kernel = 3, .stride = 2, .pad = 1}));
    x = lk_gelu(
        g, lk_conv_transpose2d(g, x, "up", (lk_conv_transpose2d_opts){.out = 8, .kernel = 3, .stride = 2, .pad = 1}));
    lk_mse_loss(g, lk_conv2d(g, x, "last", (lk_conv2d_opts){.out = shape.channels, .kernel = 3, .pad = 1}));
}

/* Model "robust": the same by dense layers, with weights of samples. */
static inline void law_build_robust(lk_model_shape shape, lk_graph *g)
{
    lk_node x = lk_flatten(g, lk_input(g, shape.channels, shape.height, shape.width));
    x = lk_linear(g, lk_silu(g, lk_linear(g, x, "fc1", 20)), "fc2", shape.channels * shape.height * shape.width);
    lk_smooth_l1_loss(g, lk_reshape(g, x, shape.height, shape.width, shape.channels), 0.75);
}

/* d^2 / (1 + d^2) for each element, as a program's own loss. */
static inline float law_own_loss(void *arg, const float *x, size_t floats, int32_t label, const float *target,
                                 size_t target_floats, float *dx)
{
    float sum = 0;
    for (size_t i = 0; i < floats; i++) {
        float d = x[i] - target[i], whole = 1 + d * d;
        sum += d * d / whole;
        if (dx)
            dx[i] = 2 * d / (whole * whole);
    }
    return sum;
}

/* Model "own_loss": an own loss, which the first engine of a process registers. */
static inline void law_build_own_loss(lk_model_shape shape, lk_graph *g)
{
    static const lk_loss_def def = {.name = "law_own", .target_floats = LK_TARGETS_AS_X, .sample = law_own_loss};
    lk_node x = lk_input(g, shape.channels, shape.height, shape.width);
    x = lk_tanh(g, lk_conv2d(g, x, "conv", (lk_conv2d_opts){.out = 5, .kernel = 3, .pad = 1}));
    x = lk_conv2d(g, x, "last", (lk_conv2d_opts){.out = shape.channels, .kernel = 1});
    lk_status status = lk_loss_register(&def);
    CHECK(status == LK_OK || status == LK_STATUS_USAGE); /* registered before */
    lk_loss(g, x, def.name);
}

/* Model "weighted": weights of classes and of samples. */
static inline void law_build_weighted(lk_model_shape shape, lk_graph *g)
{
    static const float weights[10] = {1, 0, 0.5f, 2, 1, 3, 0.25f, 1, 1, 4};
    lk_node x = lk_flatten(g, lk_input(g, shape.channels, shape.height, shape.width));
    x = lk_linear(g, lk_relu(g, lk_linear(g, x, "fc1", 24)), "fc2", shape.classes);
    lk_weigh_classes(g, lk_nll_loss(g, lk_log_softmax(g, x)), weights, shape.classes);
}

/* Model "windows": windows that are not square, dilated, or both, in all kinds of convolutions and pools. */
static inline void law_build_windows(lk_model_shape shape, lk_graph *g)
{
    lk_node x = lk_input(g, shape.channels, shape.height, shape.width);
    x = lk_relu(g, lk_conv2d(g, x, "row", (lk_conv2d_opts){.out = 10, .kernel = 1, .kernel_w = 7, .pad_w = 3}));
    lk_conv2d_opts conv = {.out = 10, .kernel = 7, .kernel_w = 1, .pad = 3, .pad_w = LK_ZERO_PAD, .groups = 10};
    x = lk_conv2d(g, x, "column", conv);
    lk_maxpool2d_opts most = {.kernel = 2, .kernel_w = 3, .stride = 1, .pad_w = 1, .dilation = 3, .dilation_w = 2};
    x = lk_maxpool2d(g, x, most);
    conv = (lk_conv2d_opts){.out = 22, .kernel = 3, .pad = 2, .dilation = 2, .dilation_w = 3, .groups = 2};
    x = lk_relu(g, lk_conv2d(g, x, "dilated", conv));
    conv = (lk_conv2d_opts){.out = 22, .kernel = 3, .stride = 2, .stride_w = 3, .pad = 2, .dilation = 2, .groups = 22};
    x = lk_conv2d(g, x, "apart", conv);
    lk_conv_transpose2d_opts up = {.out = 7, .kernel = 2, .kernel_w = 3, .stride = 2, .stride_w = 1, .dilation_w = 2};
    x = lk_relu(g, lk_conv_transpose2d(g, x, "up", up));
    x = lk_avgpool2d(g, x, (lk_avgpool2d_opts){.kernel = 3, .kernel_w = 2, .pad = 1, .ceil = true});
    lk_cross_entropy(g, lk_linear(g, lk_flatten(g, x), "fc", shape.classes));
}

/* Model "pooled": max pooling after batch normalisation, with a ReLU between them and without. */
static inline void law_build_pooled(lk_model_shape shape, lk_graph *g)
{
    lk_conv2d_opts conv = {.out = 12, .kernel = 3, .pad = 1};
    lk_node x = lk_input(g, shape.channels, shape.height, shape.width);
    x = lk_relu(g, lk_batchnorm2d(g, lk_conv2d(g, x, "conv1", conv), "bn1"));
    x = lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 3, .stride = 2, .pad = 1});
    x = lk_relu(g, lk_add(g, lk_batchnorm2d(g, lk_conv2d(g, x, "conv2", conv), "bn2"), x));
    x = lk_batchnorm2d(g, lk_conv2d(g, x, "conv3", (lk_conv2d_opts){.out = 21, .kernel = 3}), "bn3");
    x = lk_dropout(g, lk_maxpool2d(g, x, (lk_maxpool2d_opts){.kernel = 2}), 0.25);
    lk_cross_entropy(g, lk_linear(g, lk_flatten(g, x), "fc", shape.classes));
}

/* Model "line": one layer, so non-finite values reach the loss. */
static inline void law_build_line(lk_model_shape shape, lk_graph *g)
{
    lk_node x = lk_flatten(g, lk_input(g, shape.channels, shape.height, shape.width));
    lk_nll_loss(g, lk_log_softmax(g, lk_linear(g, x, "fc", shape.classes)));
}

/* Model "steep": two layers, the first zero, the second with one huge weight (law_steepen). The loss
 * is finite; the gradient overflows for large samples. */
static inline void law_build_steep(lk_model_shape shape, lk_graph *g)
{
    lk_node x = lk_flatten(g, lk_input(g, shape.channels, shape.height, shape.width));
    lk_cross_entropy(g, lk_linear(g, lk_linear(g, x, "first", 2), "second", shape.classes));
}

static inline lk_status law_steepen(lk_engine *engine)
{
    lk_state *state;
    LK_TRY(lk_engine_state(engine, &state));
    for (size_t i = 0; i < lk_state_count(state); i++)
        memset(lk_state_at(state, i)->data, 0, lk_state_at(state, i)->bytes);
    *(float *)lk_state_find(state, "second.weight")->data = 1e30f;
    lk_status status = lk_engine_set_state(engine, state);
    lk_state_destroy(state);
    return status;
}

/* Builds a built-in model, or one of the models above by its name. */
static inline lk_status law_build(const char *model, lk_model_shape shape, lk_graph **out)
{
    static const struct {
        const char *name;
        void (*build)(lk_model_shape shape, lk_graph *g);
    } own[] = {
        {"ops", law_build_ops},
        {"leaky", law_build_leaky},
        {"gates", law_build_gates},
        {"norms", law_build_norms},
        {"line", law_build_line},
        {"steep", law_build_steep},
        {"attention", law_build_attention},
        {"upsampled", law_build_upsampled},
        {"own", law_build_own},
        {"autoencoder", law_build_autoencoder},
        {"robust", law_build_robust},
        {"weighted", law_build_weighted},
        {"own_loss", law_build_own_loss},
        {"windows", law_build_windows},
        {"pooled", law_build_pooled},
    };
    for (size_t i = 0; i < COUNT_OF(own); i++) {
        if (strcmp(model, own[i].name) != 0)
            continue;
        LK_TRY(lk_graph_create(out));
        own[i].build(shape, *out);
        return LK_OK;
    }
    return lk_model_build(model, shape, out);
}

static inline lk_status law_create(const law_case *c, const lk_engine_opts *opts, lk_engine **out)
{
    lk_graph *graph;
    LK_TRY(law_build(c->model, c->shape, &graph));
    lk_status status = lk_engine_create(graph, opts, out);
    lk_graph_destroy(graph);
    for (const law_group *g = c->groups; status == LK_OK && g && g->pattern; g++)
        status = lk_engine_set_group(*out, g->pattern, &g->group);
    return status == LK_OK && strcmp(c->model, "steep") == 0 ? law_steepen(*out) : status;
}

static inline lk_engine *law_engine(const law_case *c, law_way way)
{
    lk_engine *engine;
    lk_engine_opts opts = law_opts(c, &way);
    if (way.isa)
        setenv("LOCKSTEP_ISA", way.isa, 1);
    else
        unsetenv("LOCKSTEP_ISA");
    law_require(law_create(c, &opts, &engine));
    return engine;
}

/* Memory for batches of a case. */
typedef struct law_samples {
    float *x;        /* (N, H, W, C) */
    int32_t *labels; /* (N) */
    uint32_t *ids;   /* (N) */
} law_samples;

static inline law_samples law_samples_make(const law_case *c)
{
    size_t sample = c->shape.channels * c->shape.height * c->shape.width;
    return (law_samples){.x = malloc(c->batch * sample * sizeof(float)),
                         .labels = malloc(c->batch * sizeof(int32_t)),
                         .ids = malloc(c->batch * sizeof(uint32_t))};
}

static inline void law_samples_free(law_samples *samples)
{
    free(samples->x);
    free(samples->labels);
    free(samples->ids);
}

/* A batch of `count` samples without labels and ids. */
static inline lk_batch law_samples_only(const law_case *c, size_t count, law_samples *s)
{
    law_case wide = *c;
    lk_batch batch;
    wide.batch = count;
    *s = law_samples_make(&wide);
    law_batch(&wide, 0, s->x, s->labels, s->ids, &batch);
    batch.labels = NULL;
    batch.ids = NULL;
    return batch;
}

static inline uint64_t law_hash(const lk_engine *engine)
{
    lk_state *state;
    CHECK_OK(lk_engine_state(engine, &state));
    uint64_t hash = lk_state_hash(state);
    lk_state_destroy(state);
    return hash;
}

/* The hash of the model and of the optimiser's state. */
static inline uint64_t law_hash_all(const lk_engine *engine)
{
    lk_state *optimizer;
    CHECK_OK(lk_engine_optimizer_state(engine, &optimizer));
    uint64_t hash = law_hash(engine) * 3 + lk_state_hash(optimizer);
    lk_state_destroy(optimizer);
    return hash;
}

/* LAW_EVERY: where runs take long, every so many of the cases of a test or rows of a table is enough. */
static inline size_t law_every(void)
{
    const char *text = getenv("LAW_EVERY");
    return text ? strtoul(text, NULL, 10) : 1;
}

/* The steps of a run of the case: LAW_STEPS limits them where they take long. */
static inline int law_steps(const law_case *c)
{
    const char *text = getenv("LAW_STEPS");
    int limit = text ? (int)strtol(text, NULL, 10) : c->steps;
    return limit < c->steps ? limit : c->steps;
}

static inline uint64_t law_run(const law_case *c, law_way way)
{
    law_samples s = law_samples_make(c);
    lk_engine *engine = law_engine(c, way);
    for (int step = c->first; step < c->first + law_steps(c); step++) {
        lk_batch batch;
        lk_metrics metrics;
        law_batch(c, step, s.x, s.labels, s.ids, &batch);
        law_require(lk_engine_step(engine, &batch, &metrics));
    }
    uint64_t hash = law_hash(engine);
    lk_engine_destroy(engine);
    law_samples_free(&s);
    return hash;
}

static inline void law_expect(const law_case *c, law_way way, uint64_t want)
{
    uint64_t hash = law_run(c, way);
    if (hash != want)
        fail_msg("%s %s bn=%d batch %zu shards %d steps %d, run with %s, %d threads, micro-batch %zu: "
                 "hash 0x%016llx, expected 0x%016llx",
                 c->model, c->optimizer, (int)c->bn, c->batch, c->shards, c->steps, way.isa ? way.isa : "best",
                 way.threads, way.micro_batch, (unsigned long long)hash, (unsigned long long)want);
}

/* clang-format off */
#define LAW_MNIST {1, 28, 28, 10}
#define LAW_CIFAR {3, 32, 32, 10}
#define LAW_ODD {3, 15, 13, 10}
#define LAW_SMALL {3, 16, 16, 10}
#define LAW_TINY {3, 8, 8, 10}
/* clang-format on */

#endif
