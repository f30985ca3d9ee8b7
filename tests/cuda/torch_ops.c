/* torch_ops.c - runs every op, loss and optimiser on the device under test and on the CPU, and writes inputs and
 * results to a file that torch_ops.py compares with PyTorch.
 *
 *     test_cuda_torch_ops FILE.safetensors
 *
 * A case is a chain of layers, such as "conv2d:out=26,kernel=3 relu". A plan runs it like a stage of a pipeline: inputs
 * are x and dy, results are y and dx. With the word `first` the chain begins at the images and has no dx; with `eval`
 * it runs forward in evaluation; `add`, `mul` and `concat` have x and the largest value of the 3x3 pixels around it.
 *
 * Tensors are named CASE/PRECISION/BATCH/WHOSE/WHAT. WHOSE is in, device or cpu. Activations are (n, h, w, c),
 * parameters have PyTorch's order; all values are floats that the device's value type can hold. */
#include "tensor/kernel_test.h"

#include "cuda/torch_layers.h"
#include "nn/graph.h"
#include "nn/op.h"
#include "nn/plan.h"
#include "optim/optim.h"
#include "parallel/step/waves.h"

static lk_state *file;

enum { MAX_NAME = 256, MAX_WORD = 64, STEPS = 5, CLASSES = 21, SEED = 3 };

/* PyramidNet's channels are odd: 21, 26, 31. */
typedef struct ops_case {
    const char *chain;
    lk_shape x;  /* n is the batch's */
    float scale; /* of x; 0: 1 */
} ops_case;

static const ops_case cases[] = {
    {"first conv2d:out=21,kernel=3,pad=1", {.c = 3, .h = 9, .w = 7}, 0},
    {"first conv2d:out=26,kernel=5,stride=2,pad=2 relu", {.c = 1, .h = 9, .w = 11}, 0},
    {"conv2d:out=26,kernel=3,pad=1", {.c = 21, .h = 9, .w = 7}, 0},
    {"conv2d:out=31,kernel=3,pad=1,stride=2,no_bias", {.c = 26, .h = 9, .w = 7}, 0},
    {"conv2d:out=26,kernel=1", {.c = 21, .h = 5, .w = 7}, 0},
    {"conv2d:out=31,kernel=1,stride=2,no_bias", {.c = 26, .h = 7, .w = 7}, 0},
    {"conv2d:out=31,kernel=5", {.c = 21, .h = 9, .w = 7}, 0},
    {"conv2d:out=26,kernel=3,pad=1 relu", {.c = 31, .h = 7, .w = 5}, 0},
    {"relu conv2d:out=26,kernel=3,pad=1", {.c = 21, .h = 7, .w = 5}, 0},
    {"conv2d:out=14,kernel=3,pad=1,groups=7", {.c = 21, .h = 7, .w = 5}, 0},
    {"conv2d:out=31,kernel=3,pad=1,groups=31", {.c = 31, .h = 7, .w = 9}, 0},
    {"conv2d:out=26,kernel=3,pad=1,stride=2,groups=26,no_bias", {.c = 26, .h = 9, .w = 7}, 0},
    {"conv2d:out=42,kernel=3,pad=1,groups=21", {.c = 21, .h = 5, .w = 7}, 0},
    {"conv_transpose2d:out=26,kernel=3,stride=2,pad=1,out_pad=1", {.c = 21, .h = 5, .w = 7}, 0},
    {"conv_transpose2d:out=3,kernel=4,stride=2,pad=1", {.c = 26, .h = 5, .w = 4}, 0},
    {"conv_transpose2d:out=14,kernel=2,groups=7,no_bias", {.c = 21, .h = 5, .w = 7}, 0},
    {"conv2d:out=26,kernel=1,kernel_w=7,pad_w=3", {.c = 21, .h = 5, .w = 9}, 0},
    {"conv2d:out=26,kernel=7,kernel_w=1,pad=3,no_pad_w relu", {.c = 21, .h = 9, .w = 5}, 0},
    {"conv2d:out=31,kernel=3,kernel_w=5,stride=2,stride_w=1,pad=1,pad_w=2,no_bias", {.c = 26, .h = 9, .w = 7}, 0},
    {"first conv2d:out=26,kernel=3,pad=1,no_pad_w", {.c = 3, .h = 9, .w = 7}, 0},
    {"conv2d:out=26,kernel=3,pad=2,dilation=2", {.c = 21, .h = 9, .w = 7}, 0},
    {"first conv2d:out=26,kernel=3,pad=2,dilation=2", {.c = 3, .h = 9, .w = 7}, 0},
    {"conv2d:out=26,kernel=3,pad=1,pad_w=3,dilation=1,dilation_w=3", {.c = 31, .h = 9, .w = 11}, 0},
    {"conv2d:out=26,kernel=3,stride=2,pad=2,dilation=2,dilation_w=3", {.c = 21, .h = 9, .w = 11}, 0},
    {"conv2d:out=14,kernel=3,kernel_w=2,pad=2,dilation=2,groups=7", {.c = 21, .h = 7, .w = 9}, 0},
    {"conv2d:out=31,kernel=3,pad=1,no_pad_w,groups=31", {.c = 31, .h = 7, .w = 9}, 0},
    {"conv2d:out=31,kernel=3,pad=2,dilation=2,groups=31", {.c = 31, .h = 7, .w = 9}, 0},
    {"conv2d:out=26,kernel=3,kernel_w=5,stride=2,stride_w=1,pad=1,pad_w=2,groups=26", {.c = 26, .h = 9, .w = 7}, 0},
    {"conv_transpose2d:out=26,kernel=3,kernel_w=5,stride=2,stride_w=1,pad=1,pad_w=2", {.c = 21, .h = 5, .w = 7}, 0},
    {"conv_transpose2d:out=26,kernel=3,stride=2,pad=2,dilation=2,out_pad=1", {.c = 21, .h = 5, .w = 7}, 0},
    {"linear:out=31", {.c = 21, .h = 1, .w = 1}, 0},
    {"linear:out=26 relu", {.c = 1031, .h = 1, .w = 1}, 0},
    {"relu linear:out=21", {.c = 31, .h = 1, .w = 1}, 0},
    {"embedding:rows=12,out=21", {.c = 9, .h = 1, .w = 1}, 0},
    {"embedding:rows=700,out=131", {.c = 1, .h = 1, .w = 40}, 0},
    {"flatten linear:out=31", {.c = 26, .h = 3, .w = 5}, 0},
    {"batchnorm2d", {.c = 21, .h = 9, .w = 7}, 0},
    {"batchnorm2d relu", {.c = 31, .h = 5, .w = 7}, 0},
    {"batchnorm2d relu6", {.c = 26, .h = 5, .w = 7}, 0},
    {"eval batchnorm2d", {.c = 26, .h = 5, .w = 7}, 0},
    {"groupnorm:groups=7", {.c = 21, .h = 9, .w = 7}, 0},
    {"groupnorm:groups=1", {.c = 31, .h = 9, .w = 11}, 0},
    {"layernorm", {.c = 26, .h = 5, .w = 7}, 0},
    {"relu", {.c = 21, .h = 5, .w = 7}, 0},
    {"relu6", {.c = 26, .h = 5, .w = 7}, 8},
    {"leaky_relu:slope=.25", {.c = 31, .h = 5, .w = 7}, 0},
    {"sigmoid", {.c = 21, .h = 5, .w = 7}, 8},
    {"tanh", {.c = 26, .h = 5, .w = 7}, 4},
    {"silu", {.c = 31, .h = 5, .w = 7}, 8},
    {"gelu", {.c = 21, .h = 5, .w = 7}, 4},
    {"gelu_tanh", {.c = 26, .h = 5, .w = 7}, 4},
    {"maxpool2d:kernel=2", {.c = 21, .h = 8, .w = 6}, 0},
    {"maxpool2d:kernel=3,stride=2,pad=1", {.c = 31, .h = 9, .w = 7}, 0},
    {"maxpool2d:kernel=1,kernel_w=5,stride=2,stride_w=1,pad_w=2", {.c = 31, .h = 9, .w = 7}, 0},
    {"maxpool2d:kernel=3,stride=1,pad=1,dilation=2", {.c = 21, .h = 9, .w = 7}, 0},
    {"maxpool2d:kernel=2,kernel_w=3,stride=2,pad_w=1,dilation=3,dilation_w=2,ceil", {.c = 26, .h = 8, .w = 9}, 0},
    {"maxpool2d:kernel=2,ceil", {.c = 31, .h = 7, .w = 5}, 0},
    {"avgpool2d:kernel=2", {.c = 21, .h = 8, .w = 6}, 0},
    {"avgpool2d:kernel=3,stride=2,pad=1", {.c = 26, .h = 9, .w = 7}, 0},
    {"avgpool2d:kernel=2,ceil", {.c = 31, .h = 7, .w = 5}, 0},
    {"avgpool2d:kernel=3,kernel_w=2,stride=2,stride_w=3,pad=1,no_pad_w,ceil", {.c = 26, .h = 8, .w = 7}, 0},
    {"avgpool2d:kernel=1,kernel_w=7,pad_w=3", {.c = 21, .h = 5, .w = 11}, 0},
    {"global_maxpool", {.c = 26, .h = 7, .w = 5}, 0},
    {"global_avgpool", {.c = 31, .h = 7, .w = 5}, 0},
    {"dropout:p=.25", {.c = 21, .h = 5, .w = 7}, 0},
    {"dropout2d:p=.5", {.c = 31, .h = 5, .w = 7}, 0},
    {"pad_channels:out=31", {.c = 26, .h = 5, .w = 7}, 0},
    {"flatten", {.c = 21, .h = 5, .w = 7}, 0},
    {"add", {.c = 26, .h = 5, .w = 7}, 0},
    {"mul", {.c = 26, .h = 5, .w = 7}, 0},
    {"matmul", {.c = 21, .h = 3, .w = 21}, 0},
    {"transpose:a=1,b=2", {.c = 21, .h = 5, .w = 7}, 0},
    {"transpose:a=1,b=3", {.c = 26, .h = 5, .w = 7}, 0},
    {"transpose:a=2,b=3", {.c = 31, .h = 5, .w = 7}, 0},
    {"reshape:height=15,width=7,out=4", {.c = 12, .h = 5, .w = 7}, 0},
    {"concat", {.c = 21, .h = 5, .w = 7}, 0},
    {"softmax", {.c = 31, .h = 5, .w = 7}, 4},
    {"log_softmax", {.c = CLASSES, .h = 1, .w = 1}, 4},
    {"nll_loss", {.c = CLASSES, .h = 1, .w = 1}, 0},
    {"nll_loss:smoothing=.1", {.c = CLASSES, .h = 1, .w = 1}, 0},
    {"log_softmax nll_loss", {.c = CLASSES, .h = 1, .w = 1}, 4},
    {"cross_entropy", {.c = CLASSES, .h = 1, .w = 1}, 4},
    {"cross_entropy:smoothing=.1", {.c = CLASSES, .h = 1, .w = 1}, 4},
    {"nll_loss:weighted", {.c = CLASSES, .h = 1, .w = 1}, 0},
    {"cross_entropy:weighted", {.c = CLASSES, .h = 1, .w = 1}, 4},
    {"cross_entropy:weighted,smoothing=.1", {.c = CLASSES, .h = 1, .w = 1}, 4},
    {"soft_cross_entropy", {.c = 1031, .h = 1, .w = 1}, 4},
    {"soft_cross_entropy:weighted,smoothing=.1", {.c = CLASSES, .h = 1, .w = 1}, 4},
    {"mse_loss", {.c = 21, .h = 5, .w = 7}, 0},
    {"l1_loss", {.c = 3, .h = 9, .w = 7}, 0},
    {"huber_loss:p=.75", {.c = 26, .h = 1, .w = 1}, 4},
    {"smooth_l1_loss:p=.5", {.c = 31, .h = 5, .w = 7}, 4},
    {"bce_with_logits_loss", {.c = 21, .h = 5, .w = 7}, 8},
    {"bce_with_logits_loss:weighted", {.c = 26, .h = 1, .w = 1}, 8},
};

/* Number of samples, and the capacity of the plan. */
static const struct {
    size_t n, room;
} batches[] = {{1, 1}, {7, 8}};

/* One case with one batch, and its inputs. */
typedef struct ops_job {
    const ops_case *c;
    size_t n, room;
    uint32_t stream; /* first random stream of the case */
    lk_graph *graph;
    int begin; /* its first layer */
    bool eval, loss;
    float smoothing;
    float rows;    /* of an embedding: x has ids below it; 0: x has any values */
    float *x, *dy; /* (n, h, w, c), of y's shape */
    int32_t *labels;
    float *targets; /* (n, h, w, c), of y's shape, or NULL */
    uint32_t *ids;
    lk_state *state; /* parameters and buffers */
} ops_job;

static void add_word(ops_job *job, const char *word, lk_node *x)
{
    const lk_names names = {.what = "a chain", .kind = "layer", .next = layer_type_name};
    double values[VALUES];
    size_t found;
    if (strcmp(word, "first") == 0)
        return;
    if (strcmp(word, "eval") == 0) {
        job->eval = true;
        return;
    }
    assert_ok(lk__spec_find(word, &names, &found));
    assert_ok(lk__spec_values(word, "a chain", params_of_layers, VALUES, values));
    *x = layer_types[found].add ? layer_types[found].add(job->graph, *x, values)
                                : layer_types[found].plain(job->graph, *x);
    job->smoothing = (float)values[SMOOTHING];
    job->rows = (float)values[ROWS];
}

/* A layer before the chain, which never runs, makes the plan compute the gradient of the chain's input. */
static void build_graph(ops_job *job)
{
    const ops_case *c = job->c;
    bool first = strncmp(c->chain, "first", 5) == 0;
    char chain[MAX_NAME], *rest = NULL;
    assert_ok(lk_graph_create(&job->graph));
    lk_node x = lk_input(job->graph, c->x.c, c->x.h, c->x.w);
    if (!first)
        x = lk_conv2d(job->graph, x, "before", (lk_conv2d_opts){.out = c->x.c, .kernel = 1});
    job->begin = job->graph->count;
    snprintf(chain, sizeof chain, "%s", c->chain);
    for (char *word = strtok_r(chain, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        add_word(job, word, &x);
    if (job->graph->status != LK_OK)
        fail_msg("%s: %s", c->chain, job->graph->detail);
    job->loss = strstr(c->chain, "loss") || strstr(c->chain, "entropy");
}

static lk_shape input_shape(const ops_job *job)
{
    lk_shape shape = job->c->x;
    shape.n = job->n;
    return shape;
}

static lk_shape output_shape(const ops_job *job)
{
    lk_shape shape = job->graph->layers[job->graph->count - 1].shape;
    shape.n = job->n;
    return shape;
}

/* The description of a case for torch_ops.py. */

static lk_state_entry *new_entry(const ops_job *job, const char *whose, const char *what, lk_dtype dtype, int ndim,
                                 const size_t *dims)
{
    char name[MAX_NAME];
    lk_state_entry *entry;
    snprintf(name, sizeof name, "%s/%s/%zu of %zu/%s/%s", job->c->chain, fx_precisions[precision], job->n, job->room,
             whose, what);
    assert_ok(lk_state_add(file, name, dtype, ndim, dims, &entry));
    return entry;
}

static void keep_tensor(const ops_job *job, const char *whose, const char *what, lk_shape s, const float *dense)
{
    lk_state_entry *entry = new_entry(job, whose, what, LK_DTYPE_F32, 4, (const size_t[]){s.n, s.h, s.w, s.c});
    memcpy(entry->data, dense, entry->bytes);
}

/* All entries of the layer under test, except its counter of batches. */
static void keep_state(const ops_job *job, const char *whose, const char *prefix, const lk_state *state)
{
    for (size_t i = 0; i < lk_state_count(state); i++) {
        const lk_state_entry *from = lk_state_at(state, i);
        if (strncmp(from->name, layer_name, strlen(layer_name)) != 0 || from->dtype != LK_DTYPE_F32)
            continue;
        char what[MAX_WORD];
        snprintf(what, sizeof what, "%s%s", prefix, strchr(from->name, '.') + 1);
        memcpy(new_entry(job, whose, what, from->dtype, from->ndim, from->dims)->data, from->data, from->bytes);
    }
}

/* Inputs. */

/* Values other than 0, so that a 0 shows a dropped element. */
static float *random_tensor(lk_shape shape, float scale, uint32_t stream)
{
    float *values = random_values(lk__shape_count(shape), stream);
    for (size_t i = 0; i < lk__shape_count(shape); i++)
        values[i] = values[i] != 0 ? values[i] * (scale > 0 ? scale : 1) : 0.5f;
    return values;
}

static void draw_state(ops_job *job)
{
    lk_params *params;
    assert_ok(lk__params_create(job->graph, cpu, job->begin, job->graph->count, &params));
    assert_ok(lk__params_export(params, &job->state));
    lk__params_destroy(params);
    for (size_t i = 0; i < lk_state_count(job->state); i++) {
        const lk_state_entry *entry = lk_state_at(job->state, i);
        if (entry->dtype != LK_DTYPE_F32)
            continue;
        size_t count = entry->bytes / sizeof(float);
        float *values = random_values(count, job->stream + 2 + (uint32_t)i);
        for (size_t j = 0; j < count && strstr(entry->name, "running_var"); j++)
            values[j] = 0.5f + fabsf(values[j]);
        memcpy(entry->data, values, entry->bytes);
        free(values);
    }
}

static void draw_labels(ops_job *job)
{
    lk_rng rng = lk__rng(SEED, LK_RNG_PURPOSE_DIGITS, 0, 0, job->stream);
    job->labels = calloc(job->n, sizeof *job->labels);
    job->ids = calloc(job->n, sizeof *job->ids);
    assert_true(job->labels && job->ids);
    for (size_t i = 0; i < job->n; i++) {
        job->labels[i] = (int32_t)(lk__rng_u32(&rng, i) % CLASSES);
        job->ids[i] = (uint32_t)(100 + 3 * i);
    }
}

/* Targets in [0,1). */
static void draw_targets(ops_job *job)
{
    size_t count = lk__shape_count(output_shape(job));
    job->targets = random_tensor(output_shape(job), 1, job->stream + 1);
    for (size_t i = 0; i < count; i++)
        job->targets[i] = fabsf(job->targets[i]) - floorf(fabsf(job->targets[i]));
    keep_tensor(job, "in", "targets", output_shape(job), job->targets);
}

static void draw_inputs(ops_job *job)
{
    job->x = random_tensor(input_shape(job), job->c->scale, job->stream);
    for (size_t i = 0; job->rows > 0 && i < lk__shape_count(input_shape(job)); i++)
        job->x[i] = floorf((job->x[i] + 1) / 2 * job->rows);
    job->dy = random_tensor(output_shape(job), 1, job->stream + 1);
    draw_labels(job);
    draw_state(job);
    keep_tensor(job, "in", "x", input_shape(job), job->x);
    keep_state(job, "in", "", job->state);
    if (job->graph->layers[job->graph->count - 1].op->targets) {
        draw_targets(job);
    } else if (job->loss) {
        lk_state_entry *entry = new_entry(job, "in", "labels", LK_DTYPE_I32, 1, &job->n);
        memcpy(entry->data, job->labels, entry->bytes);
    } else if (!job->eval) {
        keep_tensor(job, "in", "dy", output_shape(job), job->dy);
    }
}

static void job_free(ops_job *job)
{
    free(job->x);
    free(job->dy);
    free(job->labels);
    free(job->targets);
    free(job->ids);
    lk_state_destroy(job->state);
    lk_graph_destroy(job->graph);
}

/* Running one. */

typedef struct ops_run {
    const ops_job *job;
    lk_device *d;
    const char *whose;
    lk_params *params;
    lk_waves *waves;
    lk_plan *plan;
    lk_op_wave wave;
} ops_run;

static void create_plan(ops_run *run)
{
    const ops_job *job = run->job;
    int last = job->graph->count;
    lk_waves_opts opts = {.shards = 1, .bounds = (const int[]){0, 1}, .replicas = 1, .batch = job->room};
    assert_ok(lk__waves_create(&opts, &run->waves));
    lk__waves_cut(run->waves, job->n);
    assert_ok(lk__params_create(job->graph, run->d, job->begin, last, &run->params));
    assert_ok(lk__params_import(run->params, job->state));
    float *zeros = new_floats(run->params->count);
    run->params->grads = fx_floats(run->d, zeros, run->params->count);
    free(zeros);
    lk_plan_opts plan = {.first = job->begin,
                         .last = last,
                         .capacity = run->waves->capacity,
                         .lanes = 1,
                         .shards = 1,
                         .slots = run->waves->most_roots,
                         .all_roots = run->waves->all_roots,
                         .total_slots = run->waves->total_slots};
    assert_ok(lk__plan_create(job->graph, run->params, &plan, &run->plan));
}

static void describe_wave(ops_run *run)
{
    const ops_job *job = run->job;
    const uint32_t step = 5;
    run->wave = lk__waves_at(run->waves, 0);
    run->wave.train = !job->eval;
    run->wave.last = true;
    run->wave.search = -1;
    run->wave.seed = SEED;
    run->wave.step = fx_put(run->d, &step, sizeof step);
    run->wave.grad_scale = 1.0f / (float)job->n;
    run->wave.step_rows = job->n;
    run->wave.smoothing = job->smoothing;
    run->wave.ids = fx_put(run->d, job->ids, job->n * sizeof *job->ids);
    run->wave.labels = fx_put(run->d, job->labels, job->n * sizeof *job->labels);
    if (job->targets) {
        run->wave.targets = fx_floats(run->d, job->targets, lk__shape_count(output_shape(job)));
        run->wave.error = fx_no_floats(run->d, 2 * job->n);
    }
    run->wave.loss = fx_no_floats(run->d, job->n);
    run->wave.label_rank = fx_blank(run->d, job->n * sizeof *run->wave.label_rank);
}

/* Copies to the input of the plan, or to the gradient of its output. */
static void put_values(ops_run *run, lk_tensor to, const float *dense)
{
    to.shape.n = run->job->n;
    lk_tensor from = fx_input(run->d, to.shape, dense);
    run->d->kernels->copy(run->d, &from, &to);
}

static void keep_values(const ops_run *run, const char *what, lk_tensor from)
{
    if (!from.data)
        return;
    from.shape.n = run->job->n;
    float *dense = new_floats(lk__shape_count(from.shape));
    fx_read(run->d, &from, dense);
    keep_tensor(run->job, run->whose, what, from.shape, dense);
    free(dense);
}

static void keep_losses(const ops_run *run)
{
    size_t n = run->job->n;
    lk_state_entry *loss = new_entry(run->job, run->whose, "loss", LK_DTYPE_F32, 1, &n);
    fx_get(run->d, run->wave.loss, loss->bytes, loss->data);
    lk_state_entry *place = new_entry(run->job, run->whose, "place", LK_DTYPE_I32, 1, &n);
    fx_get(run->d, run->wave.label_rank, place->bytes, place->data);
}

static void run_backward(ops_run *run)
{
    lk_state *state;
    if (!run->job->loss)
        put_values(run, lk__plan_output_grad(run->plan, 0), run->job->dy);
    assert_ok(lk__plan_backward(run->plan, &run->wave));
    assert_ok(lk__plan_finish(run->plan, &run->wave));
    keep_values(run, "dx", lk__plan_input_grad(run->plan, 0));
    assert_ok(lk__params_export_grads(run->params, &state));
    keep_state(run->job, run->whose, "grad.", state);
    lk_state_destroy(state);
}

/* A step without an update changes running statistics only. */
static void keep_buffers(const ops_run *run)
{
    lk_state *state;
    if (!strstr(run->job->c->chain, "batchnorm2d"))
        return;
    assert_ok(lk__params_export(run->params, &state));
    keep_state(run->job, run->whose, "after.", state);
    lk_state_destroy(state);
}

static void run_on(const ops_job *job, lk_device *d, const char *whose)
{
    ops_run run = {.job = job, .d = d, .whose = whose};
    fx_block_count = 0;
    create_plan(&run);
    describe_wave(&run);
    put_values(&run, lk__plan_input(run.plan, 0), job->x);
    assert_ok(lk__plan_forward(run.plan, &run.wave));
    if (job->loss)
        keep_losses(&run);
    else
        keep_values(&run, "y", lk__plan_output(run.plan, 0));
    if (!job->eval)
        run_backward(&run);
    keep_buffers(&run);
    fx_release(d);
    lk__plan_destroy(run.plan);
    lk__params_destroy(run.params);
    lk__waves_destroy(run.waves);
}

static void write_layers(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            ops_job job = {.c = &cases[i], .n = batches[b].n, .room = batches[b].room};
            if (precision == LK_PRECISION_BF16 && strstr(cases[i].chain, "embedding"))
                continue; /* bf16 cannot hold ids */
            job.stream = (uint32_t)(64 * (i * sizeof batches / sizeof *batches + b));
            build_graph(&job);
            draw_inputs(&job);
            run_on(&job, cpu, "cpu");
            run_on(&job, dev, "device");
            job_free(&job);
        }
    }
}

/* Optimisers; their arrays are floats in every precision. */

static const struct {
    const char *spec;
    double lr;
} optimizers[] = {
    {"sgd", 0.125},
    {"sgd:momentum=.9", 0.125},
    {"sgd:momentum=.9,nesterov,weight_decay=.25", 0.125},
    {"sgd:momentum=.9,dampening=.5,weight_decay=.25", 0.125},
    {"adam", 0.0625},
    {"adam:beta1=.8,beta2=.99,weight_decay=.25", 0.0625},
    {"adamw", 0.0625},
    {"adamw:weight_decay=.5", 0.0625},
    {"adadelta", 1},
    {"adadelta:rho=.8,weight_decay=.25", 0.5},
    {"rmsprop", 0.01},
    {"rmsprop:momentum=.9,centered=1,weight_decay=.25", 0.01},
};

enum { ELEMENTS = 1031 };

static lk_state_entry *new_array(const char *spec, const char *whose, const char *what, size_t rows, size_t count)
{
    const ops_case c = {.chain = spec};
    const ops_job job = {.c = &c, .n = STEPS, .room = STEPS};
    return new_entry(&job, whose, what, LK_DTYPE_F32, 2, (const size_t[]){rows, count});
}

/* Parameters after every step, and the optimiser's state at the end. */
static void optimize_on(lk_device *d, const char *whose, size_t index, const float *first, const float *grads)
{
    const char *spec = optimizers[index].spec;
    lk_optim *optim;
    lk_state_entry *entry;
    fx_block_count = 0;
    assert_ok(lk__optim_create(spec, optimizers[index].lr, d, ELEMENTS, &optim));
    float *param = fx_floats(d, first, ELEMENTS);
    entry = new_array(spec, whose, "param", STEPS, ELEMENTS);
    for (size_t s = 0; s < STEPS; s++) {
        lk_optim_range range = {
            .grads = fx_floats(d, grads + s * ELEMENTS, ELEMENTS), .params = param, .end = ELEMENTS};
        lk__optim_count(optim);
        assert_ok(lk__optim_begin(optim));
        lk__optim_range(optim, &range);
        fx_get_floats(d, param, ELEMENTS, (float *)entry->data + s * ELEMENTS);
    }
    for (size_t i = 0; i < lk__optim_states(optim); i++) {
        entry = new_array(spec, whose, lk__optim_state_name(optim, i), 1, ELEMENTS);
        fx_get_floats(d, lk__optim_state(optim, i), ELEMENTS, entry->data);
    }
    fx_release(d);
    lk__optim_destroy(optim);
}

static void write_optimizers(void **state)
{
    float *first = random_floats(ELEMENTS, 1), *grads = random_floats((size_t)STEPS * ELEMENTS, 2);
    for (size_t i = 0; precision == LK_PRECISION_FP32 && i < sizeof optimizers / sizeof *optimizers; i++) {
        const char *spec = optimizers[i].spec;
        memcpy(new_array(spec, "in", "param", 1, ELEMENTS)->data, first, ELEMENTS * sizeof *first);
        memcpy(new_array(spec, "in", "grads", STEPS, ELEMENTS)->data, grads, STEPS * ELEMENTS * sizeof *grads);
        *(float *)new_array(spec, "in", "lr", 1, 1)->data = (float)optimizers[i].lr;
        optimize_on(cpu, "cpu", i, first, grads);
        optimize_on(dev, "device", i, first, grads);
    }
    free(first);
    free(grads);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE.safetensors\n", argv[0]);
        return 2;
    }
    if (lk_state_create(&file) != LK_OK)
        return 1;
    int status = fx_main(TESTS(TEST(write_layers), TEST(write_optimizers)), FX_FP32 | FX_TF32 | FX_BF16);
    if (status == 0 && lk_state_save(file, argv[1]) != LK_OK) {
        fprintf(stderr, "%s\n", lk_error_detail());
        status = 1;
    }
    lk_state_destroy(file);
    return status;
}
