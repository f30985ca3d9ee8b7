/* own.c - ops of the program's own: the table of them, and the functions of their rows (op.h), which prepare the calls
 * of the program's functions. own_check.c tries them out.
 *
 * The program's functions see dense f32. Where a device pads its activations or has them in bf16, scratch has copies.
 *
 * saved: leaves (shards, parameters), stack (LK_TREE_MAX_DEPTH, largest parameter), workspace (n, workspace)
 * scratch: copies of x, y, dy and dx, if the device's activations are not dense f32 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "base/text.h"
#include "nn/op.h"

_Static_assert((int)LK_OP_MAX_INPUTS == (int)LK_MAX_INPUTS && (int)LK_OP_MAX_PARAMS == (int)LK_MAX_PARAMS,
               "the limits of op.h are those of graph.h");

enum { MAX_NAME = 64, MAX_SUFFIX = 24, ALIGN_FLOATS = LK_ALIGN / sizeof(float) };

typedef struct own_op {
    lk_op op; /* the row that layers point to */
    lk_op_def def;
    char name[MAX_NAME];
    char params[LK_OP_MAX_PARAMS][MAX_SUFFIX];
    int param_count;
} own_op;

/* Rows are added, never changed: readers need no lock. */
static own_op rows[LK_OP_LIMIT];
static atomic_int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const own_op *row_of(const lk_layer *layer)
{
    return (const own_op *)layer->op;
}

static const own_op *find(const char *name)
{
    int end = atomic_load(&count);
    for (int i = 0; i < end; i++) {
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    }
    return NULL;
}

static lk_status check_param(const own_op *own, int slot, const lk_op_param *param)
{
    const char *op = own->name, *name = own->params[slot];
    bool fan = param->first == LK_OP_FIRST_UNIFORM;
    LK_TRY(LK_CLEAR(param, "lk_op_param"));
    if (param->ndim < 1 || param->ndim > 4)
        return lk__fail(LK_STATUS_USAGE, "op '%s': parameter '%s' has %d dimensions; 1 to 4 are possible", op, name,
                        param->ndim);
    for (int i = 0; i < param->ndim; i++) {
        if (!param->dims[i])
            return lk__fail(LK_STATUS_USAGE, "op '%s': `dims[%d]` of parameter '%s' is 0", op, i, name);
    }
    if ((unsigned)param->first >= LK_OP_FIRST_COUNT)
        return lk__fail(LK_STATUS_USAGE, "op '%s': `first` of parameter '%s' is %d, which is no lk_op_first", op, name,
                        (int)param->first);
    if (!isfinite(param->number) || (fan && param->number < 1) ||
        (param->first == LK_OP_FIRST_NORMAL && param->number < 0))
        return lk__fail(LK_STATUS_USAGE, "op '%s': `number` of parameter '%s' is %g; %s", op, name, param->number,
                        fan ? "a fan in is at least 1" : "it must be finite, and a standard deviation at least 0");
    return LK_OK;
}

static lk_op_slot slot_of(const own_op *own, int slot, const lk_op_param *param)
{
    static const lk_op_fill fills[LK_OP_FIRST_COUNT] = {[LK_OP_FIRST_CONSTANT] = LK_OP_FILL_CONSTANT,
                                                        [LK_OP_FIRST_UNIFORM] = LK_OP_FILL_UNIFORM,
                                                        [LK_OP_FIRST_NORMAL] = LK_OP_FILL_NORMAL};
    bool fan = param->first == LK_OP_FIRST_UNIFORM;
    lk_op_slot out = {.suffix = own->params[slot],
                      .ndim = param->ndim,
                      .fill = fills[param->first],
                      .spread = fan ? 1 / sqrt(param->number) : param->number};
    memcpy(out.dims, param->dims, sizeof out.dims);
    return out;
}

/* Calls the program's function; its detail gets the name of the op. */
static lk_status ask_shape(const own_op *own, lk_op_shape *shape)
{
    lk__fail_clear();
    lk_status status = own->def.shape(shape);
    return status == LK_OK ? LK_CLEAR(shape, "lk_op_shape") : lk__fail_callback(status, "op '%s'", own->name);
}

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    const own_op *own = row_of(layer);
    lk_op_shape shape = {.attr = layer->own.attr_bytes ? layer->own.attr : NULL,
                         .attr_bytes = layer->own.attr_bytes,
                         .arg = own->def.arg,
                         .param_count = own->param_count};
    for (int i = 0; i < layer->input_count; i++) {
        layer->own.x[i] = lk__op_input_shape(graph, layer, i);
        shape.x[i] = lk__op_size(layer->own.x[i]);
    }
    shape.y = shape.x[0];
    LK_TRY(ask_shape(own, &shape));
    if (!shape.y.height || !shape.y.width || !shape.y.channels)
        return lk__fail(LK_STATUS_USAGE,
                        "op '%s': its output has height %zu, width %zu and %zu channels; none may be 0", own->name,
                        shape.y.height, shape.y.width, shape.y.channels);
    if (shape.param_count < 0 || shape.param_count > own->param_count)
        return lk__fail(LK_STATUS_USAGE, "op '%s': `param_count` is %d; its definition names %d parameters", own->name,
                        shape.param_count, own->param_count);
    if (shape.workspace > (size_t)1 << 34)
        return lk__fail(LK_STATUS_USAGE, "op '%s': a workspace of %zu floats a sample; at most 2^34 are possible",
                        own->name, shape.workspace);
    layer->shape = (lk_shape){.n = 1, .c = shape.y.channels, .h = shape.y.height, .w = shape.y.width};
    layer->own.workspace = shape.workspace;
    layer->param_count = shape.param_count;
    for (int i = 0; i < shape.param_count; i++) {
        LK_TRY(check_param(own, i, &shape.param[i]));
        layer->params[i] = slot_of(own, i, &shape.param[i]);
    }
    return LK_OK;
}

static lk_status supports(const lk_device *dev, const lk_layer *layer)
{
    const own_op *own = row_of(layer);
    if (dev->type->host_memory || own->def.cuda_forward)
        return LK_OK;
    return lk__fail(LK_STATUS_UNSUPPORTED,
                    "layer %d: op '%s' has no functions for %s: set `cuda_forward` and `cuda_backward` of its "
                    "lk_op_def, or compute on the CPU (`device` cpu)",
                    layer->index, own->name, dev->type->name);
}

/* Floats of all parameters, and of the largest. */
typedef struct param_floats {
    size_t all, largest;
} param_floats;

static param_floats floats_of(const lk_layer *layer)
{
    param_floats floats = {0};
    for (int i = 0; i < layer->param_count; i++) {
        size_t one = lk__op_slot_count(&layer->params[i]);
        floats.all += one;
        floats.largest = lk__size_max(floats.largest, one);
    }
    return floats;
}

/* Floats of leaves and stack: where the workspace begins. */
static size_t leaf_floats(const lk_layer *layer, int shards)
{
    param_floats floats = floats_of(layer);
    return lk__size_round_up((size_t)shards * floats.all + LK_TREE_MAX_DEPTH * floats.largest, ALIGN_FLOATS);
}

static size_t saved(lk_device *dev, const lk_layer *layer, size_t n, int shards)
{
    (void)dev;
    return leaf_floats(layer, shards) + n * layer->own.workspace;
}

static bool is_dense(const lk_device *dev, lk_shape shape)
{
    return dev->values == LK_DTYPE_F32 && lk__device_pitch(dev, shape.c) == shape.c;
}

/* Bytes of a dense copy of n samples, or 0 if the tensor needs none. */
static size_t copy_bytes(const lk_device *dev, lk_shape shape)
{
    return is_dense(dev, shape) ? 0 : lk__size_round_up(lk__shape_count(shape) * sizeof(float), LK_ALIGN);
}

static size_t scratch(lk_device *dev, const lk_layer *layer, lk_shape x, lk_shape y)
{
    size_t bytes = 2 * copy_bytes(dev, y);
    for (int i = 0; i < layer->input_count; i++) {
        lk_shape shape = layer->own.x[i];
        shape.n = x.n;
        bytes += 2 * copy_bytes(dev, shape);
    }
    return bytes;
}

/* One pass over a wave: the arguments for the program's function with all samples of the wave. */
typedef struct own_pass {
    const lk_op_call *call;
    void (*run)(const lk_op_args *args);
    lk_op_args args;
    char *room; /* the scratch that is not in use */
} own_pass;

static own_pass pass_of(const lk_op_call *call, void (*run)(const lk_op_args *args))
{
    const lk_layer *layer = call->layer;
    float *kept = call->saved;
    own_pass pass = {.call = call, .run = run, .room = call->scratch};
    pass.args = (lk_op_args){.n = call->wave->n,
                             .y_size = lk__op_size(layer->shape),
                             .attr = layer->own.attr_bytes ? layer->own.attr : NULL,
                             .attr_bytes = layer->own.attr_bytes,
                             .arg = row_of(layer)->def.arg,
                             .train = call->wave->train};
    if (layer->own.workspace)
        pass.args.workspace = kept + leaf_floats(layer, call->shards);
    for (int i = 0; i < layer->input_count; i++)
        pass.args.x_size[i] = lk__op_size(layer->own.x[i]);
    for (int i = 0; i < layer->param_count; i++)
        pass.args.param[i] = call->param[i];
    return pass;
}

/* A tensor as dense f32: itself, or room for a copy. */
static lk_tensor dense(own_pass *pass, const lk_tensor *tensor)
{
    lk_tensor copy = {.data = pass->room, .dtype = LK_DTYPE_F32, .shape = tensor->shape};
    if (is_dense(pass->call->dev, tensor->shape))
        return *tensor;
    pass->room += copy_bytes(pass->call->dev, tensor->shape);
    return copy;
}

/* An input of the pass as dense f32. */
static float *read_dense(own_pass *pass, const lk_tensor *tensor)
{
    lk_tensor to = dense(pass, tensor);
    if (to.data != tensor->data)
        pass->call->k->copy(pass->call->dev, tensor, &to);
    return lk__tensor_f32(&to);
}

/* Writes a result of the pass to its tensor. */
static void write_back(const own_pass *pass, float *values, lk_tensor *tensor)
{
    lk_tensor from = {.data = values, .dtype = LK_DTYPE_F32, .shape = tensor->shape};
    if (from.data != tensor->data)
        pass->call->k->copy(pass->call->dev, &from, tensor);
}

static void read_inputs(own_pass *pass)
{
    for (int i = 0; i < pass->call->layer->input_count; i++)
        pass->args.x[i] = read_dense(pass, &pass->call->x[i]);
}

/* The arguments for samples [begin,end) of the wave. */
static lk_op_args samples_of(const own_pass *pass, size_t begin, size_t end, void *stream)
{
    const lk_layer *layer = pass->call->layer;
    size_t y = lk__shape_sample(layer->shape);
    lk_op_args args = pass->args;
    args.n = end - begin;
    args.stream = stream;
    args.y += begin * y;
    if (args.dy)
        args.dy += begin * y;
    if (args.workspace)
        args.workspace += begin * layer->own.workspace;
    for (int i = 0; i < layer->input_count; i++) {
        size_t x = lk__shape_sample(layer->own.x[i]);
        args.x[i] += begin * x;
        if (args.dx[i])
            args.dx[i] += begin * x;
    }
    return args;
}

static void run_samples(void *arg, size_t begin, size_t end, void *stream)
{
    const own_pass *pass = arg;
    lk_op_args args = samples_of(pass, begin, end, stream);
    pass->run(&args);
}

/* The leaves of shards [begin,end) of wave->leaves. */
static void run_shards(void *arg, size_t begin, size_t end, void *stream)
{
    const own_pass *pass = arg;
    const lk_layer *layer = pass->call->layer;
    const size_t *first = pass->call->wave->leaves.begin;
    for (size_t shard = begin; shard < end; shard++) {
        if (first[shard] == first[shard + 1])
            continue;
        lk_op_args args = samples_of(pass, first[shard], first[shard + 1], stream);
        float *leaf = (float *)pass->call->saved + shard * floats_of(layer).all;
        for (int i = 0; i < layer->param_count; i++) {
            args.grad[i] = leaf;
            leaf += lk__op_slot_count(&layer->params[i]);
        }
        pass->run(&args);
    }
}

static void forward(const lk_op_call *call)
{
    const lk_op_def *def = &row_of(call->layer)->def;
    own_pass pass = pass_of(call, call->dev->type->host_memory ? def->forward : def->cuda_forward);
    lk_tensor y = call->y, result = dense(&pass, &y);
    read_inputs(&pass);
    pass.args.y = lk__tensor_f32(&result);
    call->k->run_parts(call->dev, call->wave->n, run_samples, &pass);
    write_back(&pass, pass.args.y, &y);
}

static void grad_params(own_pass *pass)
{
    const lk_op_call *call = pass->call;
    const lk_layer *layer = call->layer;
    size_t shards = (size_t)call->wave->leaves.count;
    param_floats floats = floats_of(layer);
    float *leaf = call->saved, *stack = leaf + (size_t)call->shards * floats.all;
    if (layer->param_count == 0)
        return;
    call->k->zero_bytes(call->dev, shards * floats.all * sizeof *leaf, leaf);
    call->k->run_parts(call->dev, shards, run_shards, pass);
    for (int i = 0; i < layer->param_count; i++) {
        size_t width = lk__op_slot_count(&layer->params[i]);
        lk__op_fold_leaves(call, width, leaf, floats.all, stack, call->grad[i]);
        leaf += width;
    }
}

static void grad_inputs(own_pass *pass)
{
    const lk_op_call *call = pass->call;
    bool wanted = false;
    for (int i = 0; i < call->layer->input_count; i++) {
        if (!call->dx[i].data)
            continue;
        lk_tensor dx = dense(pass, &call->dx[i]);
        pass->args.dx[i] = lk__tensor_f32(&dx);
        wanted = true;
    }
    if (!wanted)
        return;
    call->k->run_parts(call->dev, call->wave->n, run_samples, pass);
    for (int i = 0; i < call->layer->input_count; i++) {
        lk_tensor dx = call->dx[i];
        if (dx.data)
            write_back(pass, pass->args.dx[i], &dx);
    }
}

static void backward(const lk_op_call *call)
{
    const lk_op_def *def = &row_of(call->layer)->def;
    own_pass pass = pass_of(call, call->dev->type->host_memory ? def->backward : def->cuda_backward);
    read_inputs(&pass);
    pass.args.y = read_dense(&pass, &call->y);
    pass.args.dy = read_dense(&pass, &call->dy);
    grad_params(&pass);
    grad_inputs(&pass);
}

static lk_status check_def(const lk_op_def *def)
{
    LK_TRY(LK_CLEAR(def, "lk_op_def"));
    if (!lk__text_is_name(def->name, MAX_NAME - 1, "_-."))
        return lk__fail(LK_STATUS_USAGE, "op '%s': a name has 1 to %d letters, digits, '_', '-' or '.'", def->name,
                        MAX_NAME - 1);
    if (def->inputs < 1 || def->inputs > LK_OP_MAX_INPUTS)
        return lk__fail(LK_STATUS_USAGE, "op '%s': `inputs` is %d; 1 to %d are possible", def->name, def->inputs,
                        LK_OP_MAX_INPUTS);
    if (!def->shape || !def->forward || !def->backward)
        return lk__fail(LK_STATUS_USAGE, "op '%s': `%s` is NULL; `shape`, `forward` and `backward` are required",
                        def->name,
                        !def->shape     ? "shape"
                        : !def->forward ? "forward"
                                        : "backward");
    if (!def->cuda_forward != !def->cuda_backward)
        return lk__fail(LK_STATUS_USAGE,
                        "op '%s': `%s` is NULL and the other is not; give both functions of CUDA, or none", def->name,
                        def->cuda_forward ? "cuda_backward" : "cuda_forward");
    return LK_OK;
}

/* Copies the names of the parameters. */
static lk_status take_params(const lk_op_def *def, own_op *own)
{
    for (int i = 0; i < LK_OP_MAX_PARAMS && def->params[i]; i++) {
        if (!lk__text_is_name(def->params[i], MAX_SUFFIX - 1, "_"))
            return lk__fail(LK_STATUS_USAGE,
                            "op '%s': the name '%s' of parameter %d has not 1 to %d letters, digits or '_'", def->name,
                            def->params[i], i, MAX_SUFFIX - 1);
        for (int j = 0; j < i; j++) {
            if (strcmp(own->params[j], def->params[i]) == 0)
                return lk__fail(LK_STATUS_USAGE, "op '%s': two parameters are named '%s'", def->name, def->params[i]);
        }
        snprintf(own->params[i], MAX_SUFFIX, "%s", def->params[i]);
        own->param_count = i + 1;
    }
    return LK_OK;
}

static lk_status add_row(const lk_op_def *def)
{
    int at = atomic_load(&count);
    if (find(def->name))
        return lk__fail(LK_STATUS_USAGE,
                        "op '%s' is registered already; register each op once, under a name of its own", def->name);
    if (at == LK_OP_LIMIT)
        return lk__fail(LK_STATUS_USAGE, "op '%s': this process has registered %d ops, and more are not possible",
                        def->name, LK_OP_LIMIT);
    own_op *own = &rows[at];
    *own = (own_op){.def = *def};
    LK_TRY(take_params(def, own));
    snprintf(own->name, sizeof own->name, "%s", def->name);
    own->op = (lk_op){.name = own->name,
                      .flags = LK_OP_READS_X | LK_OP_READS_Y,
                      .infer = infer,
                      .supports = supports,
                      .saved = saved,
                      .scratch = scratch,
                      .forward = forward,
                      .backward = backward};
    atomic_store(&count, at + 1);
    return LK_OK;
}

lk_status lk_op_register(const lk_op_def *def)
{
    LK_TRY(LK_GIVEN(def));
    LK_TRY(lk__fail_unless(def->name != NULL, "def->name", __func__));
    LK_TRY(check_def(def));
    pthread_mutex_lock(&lock);
    lk_status status = add_row(def);
    pthread_mutex_unlock(&lock);
    return status;
}

static lk_status unknown(const char *op)
{
    return lk__fail(LK_STATUS_NOT_FOUND, "no op '%s' is registered in this process; call lk_op_register first", op);
}

static lk_status check_add(const char *op, const lk_node *inputs, int input_count, const void *attr, size_t attr_bytes,
                           const own_op **out)
{
    LK_TRY(lk__fail_unless(op != NULL, "op", "lk_op_add"));
    LK_TRY(lk__fail_unless(inputs != NULL, "inputs", "lk_op_add"));
    LK_TRY(lk__fail_unless(attr != NULL || attr_bytes == 0, "attr", "lk_op_add"));
    const own_op *own = find(op);
    if (!own)
        return unknown(op);
    if (input_count != own->def.inputs)
        return lk__fail(LK_STATUS_USAGE, "op '%s' takes %d input%s, and got %d", op, own->def.inputs,
                        own->def.inputs == 1 ? "" : "s", input_count);
    if (attr_bytes > LK_OP_MAX_ATTR)
        return lk__fail(LK_STATUS_USAGE, "op '%s': attributes of %zu bytes; at most %d are possible", op, attr_bytes,
                        LK_OP_MAX_ATTR);
    *out = own;
    return LK_OK;
}

lk_node lk_op_add(lk_graph *graph, const char *op, const char *name, const lk_node *inputs, int input_count,
                  const void *attr, size_t attr_bytes)
{
    const own_op *own = NULL;
    if (!graph || graph->status != LK_OK)
        return (lk_node){.index = -1};
    lk_status status = check_add(op, inputs, input_count, attr, attr_bytes, &own);
    if (status != LK_OK)
        return lk__graph_reject(graph, status);
    lk_layer layer = {.op = &own->op, .own = {.attr_bytes = attr_bytes}};
    if (attr_bytes)
        memcpy(layer.own.attr, attr, attr_bytes);
    return lk__graph_add_layer(graph, layer, name, inputs, input_count);
}

lk_status lk__op_own_def(const char *op, const lk_op_def **out)
{
    const own_op *own = find(op);
    if (!own)
        return unknown(op);
    *out = &own->def;
    return LK_OK;
}

float lk_op_exp(float x)
{
    return lk__math_expf(x);
}

float lk_op_log(float x)
{
    return lk__math_logf(x);
}

float lk_op_tanh(float x)
{
    return lk__math_tanhf(x);
}

float lk_op_sigmoid(float x)
{
    return lk__math_sigmoidf(x);
}
