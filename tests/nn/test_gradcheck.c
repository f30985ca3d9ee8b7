/* test_gradcheck.c - the gradients of every op against finite differences of the loss.
 *
 * The derivative is (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h. Its error has two parts:
 *   rounding: 18/12 * d / h, where d is the rounding error of the float32 loss: 2^-20 for a loss near 2,
 *     sixteen units in its last place;
 *   truncation: h^4 / 30 * f''''', which is smaller for the losses here.
 * With h = 2^-5 the sum is below 2 * 4.6e-5, which gives TOLERANCE. Gradients must be much larger than
 * TOLERANCE, which the test checks.
 *
 * The inputs avoid the kinks of ReLU, ReLU6 and max pooling: they are shifted to the middle of a slope or
 * beyond its end, and pooled values are monotone in well separated pixels. */
#include "golden/golden.h"
#include "gradcheck_graphs.h"

#define H 0x1p-5f
#define TOLERANCE 1e-4
#define SHIFT 2.0f

enum { BATCH = 6, MAX_ELEMENTS = 24 };

static const lk_model_shape narrow = {.channels = 1, .height = 6, .width = 6, .classes = 4};

typedef struct grad_case {
    const char *name;
    void (*build)(lk_graph *graph, lk_node x);
    const lk_model_shape *shape;
    lk_bn_mode bn;
    double label_smoothing;
    float target;  /* the loss learns float targets: this number plus up to 1. 0: it learns labels */
    bool weighted; /* the samples have weights */
} grad_case;

static const grad_case cases[] = {
    {"conv2d", build_conv2d, &wide, .bn = LK_BN_MODE_BATCH},
    {"conv2d in groups", build_conv2d_groups, &wide, .bn = LK_BN_MODE_BATCH},
    {"conv2d, not square", build_conv2d_windows, &wide, .bn = LK_BN_MODE_BATCH},
    {"linear", build_linear, &wide, .bn = LK_BN_MODE_BATCH},
    {"nll", build_nll, &wide, .bn = LK_BN_MODE_BATCH},
    {"nll, smoothed labels", build_nll, &wide, .bn = LK_BN_MODE_BATCH, .label_smoothing = 0.3},
    {"cross entropy, smoothed labels", build_linear, &wide, .bn = LK_BN_MODE_BATCH, .label_smoothing = 0.3},
    {"mse", build_mse, &wide, .target = 0.25f},
    {"mse, weighted", build_mse, &wide, .target = 0.25f, .weighted = true},
    {"l1", build_l1, &wide, .target = 4},
    {"huber", build_huber, &wide, .target = 0.25f},
    {"huber, far", build_huber_far, &wide, .target = 4},
    {"smooth_l1", build_smooth_l1, &wide, .target = 4},
    {"smooth_l1, far", build_smooth_l1_far, &wide, .target = 4, .weighted = true},
    {"bce", build_bce, &wide, .target = 0.125f},
    {"soft targets", build_soft, &wide, .target = 0.125f, .label_smoothing = 0.3},
    {"weighted classes", build_weighted, &wide, .label_smoothing = 0.3, .weighted = true},
    {"weighted classes, nll", build_weighted_nll, &wide, .weighted = true},
    {"log_softmax", build_log_softmax, &wide, .bn = LK_BN_MODE_BATCH},
    {"batchnorm", build_batchnorm, &wide, .bn = LK_BN_MODE_BATCH},
    {"batchnorm, shard by shard", build_batchnorm, &wide, .bn = LK_BN_MODE_SHARD},
    {"relu", build_relu, &wide, .bn = LK_BN_MODE_BATCH},
    {"relu6", build_relu6, &wide, .bn = LK_BN_MODE_BATCH},
    {"leaky_relu", build_leaky_relu, &wide, .bn = LK_BN_MODE_BATCH},
    {"sigmoid", build_sigmoid, &wide, .bn = LK_BN_MODE_BATCH},
    {"tanh", build_tanh, &wide, .bn = LK_BN_MODE_BATCH},
    {"silu", build_silu, &wide, .bn = LK_BN_MODE_BATCH},
    {"gelu", build_gelu, &wide, .bn = LK_BN_MODE_BATCH},
    {"gelu_tanh", build_gelu_tanh, &wide, .bn = LK_BN_MODE_BATCH},
    {"mul", build_mul, &wide, .bn = LK_BN_MODE_BATCH},
    {"maxpool", build_maxpool, &narrow, .bn = LK_BN_MODE_BATCH},
    {"maxpool, overlapping", build_maxpool_overlap, &narrow, .bn = LK_BN_MODE_BATCH},
    {"maxpool, not square", build_maxpool_windows, &narrow, .bn = LK_BN_MODE_BATCH},
    {"global_avgpool", build_global_avgpool, &wide, .bn = LK_BN_MODE_BATCH},
    {"global_maxpool", build_global_maxpool, &narrow, .bn = LK_BN_MODE_BATCH},
    {"softmax", build_softmax, &wide, .bn = LK_BN_MODE_BATCH},
    {"concat", build_concat, &wide, .bn = LK_BN_MODE_BATCH},
    {"groupnorm", build_groupnorm, &wide, .bn = LK_BN_MODE_BATCH},
    {"layernorm", build_layernorm, &wide, .bn = LK_BN_MODE_BATCH},
    {"linear of a sequence", build_linear_sequence, &wide, .bn = LK_BN_MODE_BATCH},
    {"attention", build_attention, &wide, .bn = LK_BN_MODE_BATCH},
    {"embedding", build_embedding, &wide, .bn = LK_BN_MODE_BATCH},
    {"ops of the program", build_own, &wide, .bn = LK_BN_MODE_BATCH},
    {"conv_transpose2d", build_conv_transpose2d, &wide, .bn = LK_BN_MODE_BATCH},
    {"conv_transpose2d, not square", build_transpose_windows, &wide, .bn = LK_BN_MODE_BATCH},
    {"avgpool", build_avgpool, &wide, .bn = LK_BN_MODE_BATCH},
    {"avgpool, overlapping", build_avgpool_overlap, &wide, .bn = LK_BN_MODE_BATCH},
    {"avgpool, not square", build_avgpool_windows, &wide, .bn = LK_BN_MODE_BATCH},
    {"dropout", build_dropout, &wide, .bn = LK_BN_MODE_BATCH},
    {"dropout2d", build_dropout2d, &wide, .bn = LK_BN_MODE_BATCH},
    {"pad_channels", build_pad_channels, &wide, .bn = LK_BN_MODE_BATCH},
    {"add", build_add, &wide, .bn = LK_BN_MODE_BATCH},
    {"residual", build_residual, &wide, .bn = LK_BN_MODE_BATCH},
    {"residual, shard by shard", build_residual, &wide, .bn = LK_BN_MODE_SHARD},
    {"pyramid", build_pyramid, &wide, .bn = LK_BN_MODE_BATCH},
    {"pyramid, shard by shard", build_pyramid, &wide, .bn = LK_BN_MODE_SHARD},
};

/* The pixels of a sample are a permutation of evenly spaced values, so no two are close. */
static golden_batch make_batch(lk_model_shape shape)
{
    size_t sample = shape.channels * shape.height * shape.width;
    golden_batch batch = golden_batch_make(BATCH, shape);
    for (size_t i = 0; i < BATCH * sample; i++)
        batch.x[i] = (float)((i % sample * 23 + i / sample * 11) % sample) * 2.0f / (float)sample - 1.0f;
    for (size_t i = 0; i < BATCH; i++)
        batch.labels[i] = golden_label("gradcheck", i, (uint32_t)shape.classes);
    return batch;
}

static void give_targets(float least, float *targets, lk_batch *batch)
{
    for (size_t i = 0; i < BATCH * wide.classes; i++)
        targets[i] = least + (float)(i * 5 % 16) / 32;
    batch->targets = targets;
    batch->target_floats = wide.classes;
}

static bool starts(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* Values at which gradients are checked: value * scale + middle, plus and minus shift in turn.
 * - A bias before a ReLU shifts every second channel up and the others down. The scale of a BatchNorm there
 *   keeps the signal within that shift.
 * - A bias before a ReLU6 may shift to 3, on the slope, and to 8, above it.
 * - The curvature of BatchNorm depends on the size of its input, so weights before it are large against h.
 * - Weights before a pooling are not near 0, where the order of pixels changes. */
static const struct {
    const char *start, *end;
    int ndim;
    float scale, middle, shift;
} adjustments[] = {
    {.start = "shift", .end = ".bias", .ndim = 1, .scale = 0.0f, .middle = 0.0f, .shift = SHIFT},
    {.start = "shift", .end = ".weight", .ndim = 1, .scale = 0.25f, .middle = 0.0f, .shift = 0.0f},
    {.start = "six", .end = ".bias", .ndim = 1, .scale = 0.0f, .middle = 5.5f, .shift = -2.5f},
    {.start = "minus", .end = ".bias", .ndim = 1, .scale = 0.0f, .middle = -5.5f, .shift = 0.0f},
    {.start = "large", .end = ".weight", .ndim = 4, .scale = 4.0f, .middle = 0.0f, .shift = 0.0f},
    {.start = "pooled", .end = ".weight", .ndim = 4, .scale = 0.25f, .middle = 0.0f, .shift = 0.5f},
};

static void set_entry(const lk_state_entry *entry)
{
    golden_fill_entry(entry);
    float *values = entry->data;
    for (size_t p = 0; p < sizeof adjustments / sizeof *adjustments; p++) {
        if (!starts(entry->name, adjustments[p].start) || !golden_ends(entry->name, adjustments[p].end) ||
            entry->ndim != adjustments[p].ndim)
            continue;
        for (size_t i = 0; i < golden_count(entry); i++)
            values[i] = values[i] * adjustments[p].scale + adjustments[p].middle +
                        (i % 2 ? -adjustments[p].shift : adjustments[p].shift);
    }
}

typedef struct check {
    lk_engine *engine;
    lk_state *state;
    lk_state *first; /* the optimiser's: every loss is that of step 1, with its dropout masks */
    const lk_batch *batch;
} check;

static double loss_with(const check *c, float *value, float x)
{
    lk_metrics metrics;
    float old = *value;
    *value = x;
    assert_ok(lk_engine_set_state(c->engine, c->state));
    assert_ok(lk_engine_set_optimizer_state(c->engine, c->first));
    assert_ok(lk_engine_gradients(c->engine, c->batch, &metrics));
    *value = old;
    return metrics.loss;
}

static double difference(const check *c, float *value)
{
    float x = *value;
    double near = loss_with(c, value, x + H) - loss_with(c, value, x - H);
    double far = loss_with(c, value, x + 2 * H) - loss_with(c, value, x - 2 * H);
    return (8 * near - far) / (12 * (double)H);
}

static double check_entry(const check *c, const char *name, const lk_state_entry *grad)
{
    const lk_state_entry *entry = lk_state_find(c->state, grad->name);
    assert_non_null(entry);
    float *values = entry->data;
    size_t count = golden_count(entry), stride = (count + MAX_ELEMENTS - 1) / MAX_ELEMENTS;
    double largest = 0;
    for (size_t i = 0; i < count; i += stride) {
        double ours = golden_at(grad, i), truth = difference(c, &values[i]);
        largest = fmax(largest, fabs(ours));
        if (!(fabs(ours - truth) <= TOLERANCE))
            fail_msg("%s: d loss / d %s[%zu] is %.7f, differences give %.7f", name, grad->name, i, ours, truth);
    }
    return largest;
}

static void run_case(const grad_case *row)
{
    lk_graph *graph;
    assert_ok(lk_graph_create(&graph));
    row->build(graph, lk_input(graph, row->shape->channels, row->shape->height, row->shape->width));
    lk_engine_opts opts = {.threads = 1,
                           .batch = BATCH,
                           .shards = 2,
                           .bn = row->bn,
                           .optimizer = "sgd",
                           .seed = 7,
                           .label_smoothing = row->label_smoothing};
    golden_batch batch = make_batch(*row->shape);
    float targets[BATCH * 4];
    static const float weights[BATCH] = {1, 0.5f, 2, 0, 3, 1};
    if (row->target > 0)
        give_targets(row->target, targets, &batch.view);
    batch.view.weights = row->weighted ? weights : NULL;
    check c = {.batch = &batch.view};
    assert_ok(lk_engine_create(graph, &opts, &c.engine));
    lk_graph_destroy(graph);
    assert_ok(lk_engine_state(c.engine, &c.state));
    assert_ok(lk_engine_optimizer_state(c.engine, &c.first));
    for (size_t i = 0; i < lk_state_count(c.state); i++)
        set_entry(lk_state_at(c.state, i));

    lk_state *grads;
    lk_metrics metrics;
    assert_ok(lk_engine_set_state(c.engine, c.state));
    assert_ok(lk_engine_gradients(c.engine, &batch.view, &metrics));
    assert_ok(lk_engine_grads(c.engine, &grads));
    for (size_t i = 0; i < lk_state_count(grads); i++) {
        double largest = check_entry(&c, row->name, lk_state_at(grads, i));
        if (largest < 20 * TOLERANCE)
            fail_msg("%s: the gradients of %s are too small to tell", row->name, lk_state_at(grads, i)->name);
    }
    lk_state_destroy(grads);
    lk_state_destroy(c.first);
    lk_state_destroy(c.state);
    lk_engine_destroy(c.engine);
    golden_batch_free(&batch);
}

static void test_gradients(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_case(&cases[i]);
}

TEST_MAIN(NULL, NULL, TEST(test_gradients))
