/* conv2d_graph.c - cuDNN's graph interface, in which everything is a descriptor with attributes. Pads of channels,
 * which are zero, are passed as channels: unpadded numbers of channels take up to 2.5 times as long. */
#include "tensor/cuda/kernels/conv2d_graph.h"

#include "base/mem.h"

enum { MOST_PARTS = 64, MOST_NOTES = 32, MOST_OPS = 3, ALIGNMENT = 16 };

/* Identify the tensors of a graph. */
enum { ID_X = 1, ID_W, ID_Y, ID_BIAS, ID_PRODUCT, ID_BIASED };

/* A fixed limit, because the choice must not depend on how much memory is free. */
static const int64_t most_workspace = (int64_t)1 << 30;

/* Descriptors under construction. After the first failure, further calls do nothing. */
typedef struct builder {
    lk_cuda_libraries *libs;
    cudnnStatus_t status;
    int count;
    cudnnBackendDescriptor_t parts[MOST_PARTS];
} builder;

struct lk_cuda_graph {
    builder parts;
    int pass;
    bool biased;
    cudnnBackendDescriptor_t plan;
    int64_t workspace;
};

static cudnnBackendDescriptor_t add(builder *b, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;
    if (b->status == CUDNN_STATUS_SUCCESS && b->count == MOST_PARTS)
        b->status = CUDNN_STATUS_INTERNAL_ERROR;
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = b->libs->cudnnBackendCreateDescriptor(type, &made);
    if (made)
        b->parts[b->count++] = made;
    return made;
}

static void clear(builder *b)
{
    while (b->count > 0)
        (void)b->libs->cudnnBackendDestroyDescriptor(b->parts[--b->count]);
}

static void set(builder *b, cudnnBackendDescriptor_t at, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = b->libs->cudnnBackendSetAttribute(at, name, type, count, values);
}

static void set_part(builder *b, cudnnBackendDescriptor_t at, cudnnBackendAttributeName_t name,
                     cudnnBackendDescriptor_t part)
{
    set(b, at, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

static void finalize(builder *b, cudnnBackendDescriptor_t at)
{
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = b->libs->cudnnBackendFinalize(at);
}

static cudnnDataType_t values_of(const lk_cuda_problem *p)
{
    return p->values == LK_DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/* dims are n, channels, height, width; memory is channels last. Numbers below ID_PRODUCT are tensors in memory; the
 * others exist only inside of a kernel. */
static cudnnBackendDescriptor_t add_tensor(builder *b, int64_t id, cudnnDataType_t type, const int64_t dims[4])
{
    int64_t strides[4] = {dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]}, alignment = ALIGNMENT;
    bool inside = id >= ID_PRODUCT;
    cudnnBackendDescriptor_t t = add(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(b, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(b, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    set(b, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(b, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(b, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(b, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inside);
    finalize(b, t);
    return t;
}

static cudnnBackendDescriptor_t add_convolution(builder *b, const lk_cuda_problem *p)
{
    static const int64_t dims = 2;
    static const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    static const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t pads[2] = {p->along_h.pad, p->along_w.pad}, strides[2] = {p->along_h.stride, p->along_w.stride};
    int64_t dilations[2] = {p->along_h.dilation, p->along_w.dilation};
    cudnnBackendDescriptor_t c = add(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(b, c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
    set(b, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    set(b, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(b, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
    set(b, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
    set(b, c, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations);
    set(b, c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides);
    finalize(b, c);
    return c;
}

/* The names of the attributes of a pass's operation: x, w and y are the tensors or their gradients. */
typedef struct pass_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
} pass_names;

static const pass_names passes[] = {
    [LK_CUDA_PASS_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [LK_CUDA_PASS_GRAD_INPUT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
};

static cudnnBackendDescriptor_t add_pass(builder *b, const lk_cuda_problem *p, cudnnBackendDescriptor_t y)
{
    static const float one = 1.0f, zero = 0.0f;
    const pass_names *names = &passes[p->pass];
    int64_t x_dims[4] = {p->n, p->x_pitch, p->h, p->w};
    int64_t w_dims[4] = {p->y_pitch, lk__cuda_depth(p), p->along_h.kernel, p->along_w.kernel};
    cudnnBackendDescriptor_t x = add_tensor(b, ID_X, values_of(p), x_dims);
    cudnnBackendDescriptor_t w = add_tensor(b, ID_W, values_of(p), w_dims);
    cudnnBackendDescriptor_t convolution = add_convolution(b, p), op = add(b, names->type);
    set_part(b, op, names->x, x);
    set_part(b, op, names->w, w);
    set_part(b, op, names->y, y);
    set_part(b, op, names->convolution, convolution);
    set(b, op, names->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(b, op, names->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    finalize(b, op);
    return op;
}

/* y = x + bias, or y = max(x, 0) where bias is NULL. */
static cudnnBackendDescriptor_t add_pointwise(builder *b, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t bias,
                                              cudnnBackendDescriptor_t y)
{
    static const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    static const cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
    cudnnPointwiseMode_t mode = bias ? CUDNN_POINTWISE_ADD : CUDNN_POINTWISE_RELU_FWD;
    cudnnBackendDescriptor_t kind = add(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(b, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(b, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math);
    if (!bias)
        set(b, kind, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &nan);
    finalize(b, kind);
    cudnnBackendDescriptor_t op = add(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_part(b, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    set_part(b, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (bias)
        set_part(b, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bias);
    set_part(b, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    finalize(b, op);
    return op;
}

/* The operations of the problem: the convolution, then bias and ReLU if it has them. */
static int add_ops(builder *b, const lk_cuda_problem *p, cudnnBackendDescriptor_t ops[MOST_OPS])
{
    int64_t dims[4] = {p->n, p->y_pitch, p->p, p->q}, bias_dims[4] = {1, p->y_pitch, 1, 1};
    int count = 1;
    bool biased = p->pass == LK_CUDA_PASS_FORWARD && p->bias, relu = p->pass == LK_CUDA_PASS_FORWARD && p->relu;
    cudnnBackendDescriptor_t y = add_tensor(b, ID_Y, values_of(p), dims), at = y;
    if (biased || relu)
        at = add_tensor(b, ID_PRODUCT, CUDNN_DATA_FLOAT, dims);
    ops[0] = add_pass(b, p, at);
    if (biased) {
        cudnnBackendDescriptor_t bias = add_tensor(b, ID_BIAS, values_of(p), bias_dims);
        cudnnBackendDescriptor_t sum = relu ? add_tensor(b, ID_BIASED, CUDNN_DATA_FLOAT, dims) : y;
        ops[count++] = add_pointwise(b, at, bias, sum);
        at = sum;
    }
    if (relu)
        ops[count++] = add_pointwise(b, at, NULL, y);
    return count;
}

static cudnnBackendDescriptor_t add_graph(builder *b, const lk_cuda_problem *p)
{
    cudnnBackendDescriptor_t ops[MOST_OPS];
    int count = add_ops(b, p, ops);
    cudnnBackendDescriptor_t graph = add(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(b, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, ops);
    set(b, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->libs->cudnn);
    finalize(b, graph);
    return graph;
}

/* Reads at most `most` values of an attribute; returns how many there are, 0 after a failure. */
static int64_t get(builder *b, cudnnBackendDescriptor_t at, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, int64_t most, void *values)
{
    int64_t count = 0;
    if (b->status != CUDNN_STATUS_SUCCESS ||
        b->libs->cudnnBackendGetAttribute(at, name, type, most, &count, values) != CUDNN_STATUS_SUCCESS)
        return 0;
    return count < most ? count : most;
}

static bool suits(builder *b, const lk_cuda_problem *p, cudnnBackendDescriptor_t engine)
{
    cudnnBackendNumericalNote_t notes[MOST_NOTES];
    int64_t count = get(b, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, MOST_NOTES, notes);
    bool strict = p->precision == LK_PRECISION_FP32;
    for (int64_t i = 0; i < count; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
            (strict &&
             (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)))
            return false;
    return true;
}

/* Reads engine and knobs of a configuration; false if they do not suit the problem. */
static bool read_choice(builder *b, const lk_cuda_problem *p, cudnnBackendDescriptor_t config, lk_cuda_choice *out)
{
    cudnnBackendDescriptor_t engine = add(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR), knobs[LK_CUDA_MOST_KNOBS];
    *out = (lk_cuda_choice){0};
    if (!get(b, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine) ||
        !get(b, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &out->engine) || !suits(b, p, engine))
        return false;
    for (int i = 0; i < LK_CUDA_MOST_KNOBS; i++)
        knobs[i] = add(b, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    out->knobs = (int)get(b, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                          LK_CUDA_MOST_KNOBS, knobs);
    for (int i = 0; i < out->knobs; i++) {
        cudnnBackendKnobType_t type;
        if (!get(b, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type) ||
            !get(b, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &out->value[i]))
            return false;
        out->knob[i] = (int64_t)type;
    }
    return true;
}

/* The number of a list's first engines that count. */
enum { MOST_OFFERED = 8 };

/* Asks cuDNN's heuristics; returns the number of configurations. */
static int ask(builder *b, cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode,
               cudnnBackendDescriptor_t configs[MOST_OFFERED])
{
    cudnnBackendDescriptor_t heuristics = add(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_part(b, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(b, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finalize(b, heuristics);
    for (int i = 0; i < MOST_OFFERED; i++)
        configs[i] = add(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    return (int)get(b, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_OFFERED, configs);
}

static bool is_same(const lk_cuda_choice *a, const lk_cuda_choice *b)
{
    bool same = a->engine == b->engine && a->knobs == b->knobs;
    for (int i = 0; same && i < a->knobs; i++)
        same = a->knob[i] == b->knob[i] && a->value[i] == b->value[i];
    return same;
}

static void add_choice(lk_cuda_choices *all, const lk_cuda_choice *choice, int weight)
{
    int i = 0;
    while (i < all->count && !is_same(&all->at[i], choice))
        i++;
    if (i == LK_CUDA_MOST_CANDIDATES)
        return;
    if (i == all->count) {
        all->at[all->count++] = *choice;
        all->weight[i] = 0;
    }
    all->weight[i] += weight;
}

/* Adds the list of one mode of the heuristics. */
static void add_offered(lk_cuda_libraries *libs, const lk_cuda_problem *problem, cudnnBackendHeurMode_t mode,
                        lk_cuda_choices *out)
{
    builder graph = {.libs = libs}, knobs = {.libs = libs};
    cudnnBackendDescriptor_t configs[MOST_OFFERED];
    int offered = ask(&graph, add_graph(&graph, problem), mode, configs);
    for (int i = 0, rank = 0; i < offered; i++) {
        lk_cuda_choice choice;
        if (read_choice(&knobs, problem, configs[i], &choice))
            add_choice(out, &choice, lk__cuda_pinned_weight(rank++));
        clear(&knobs);
        knobs.status = CUDNN_STATUS_SUCCESS;
    }
    clear(&graph);
}

lk_status lk__cuda_choices_add(lk_cuda_libraries *libs, const lk_cuda_problem *problem, lk_cuda_choices *out)
{
    LK_TRY(lk__cuda_libraries_cudnn(libs));
    add_offered(libs, problem, CUDNN_HEUR_MODE_A, out);
    add_offered(libs, problem, CUDNN_HEUR_MODE_B, out);
    return LK_OK;
}

void lk__cuda_choices_sort(lk_cuda_choices *choices)
{
    for (int i = 1; i < choices->count; i++)
        for (int j = i; j > 0 && choices->weight[j] > choices->weight[j - 1]; j--) {
            lk_cuda_choice choice = choices->at[j];
            int weight = choices->weight[j];
            choices->at[j] = choices->at[j - 1];
            choices->weight[j] = choices->weight[j - 1];
            choices->at[j - 1] = choice;
            choices->weight[j - 1] = weight;
        }
}

static cudnnBackendDescriptor_t add_config(builder *b, cudnnBackendDescriptor_t graph, const lk_cuda_choice *choice)
{
    cudnnBackendDescriptor_t engine = add(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR), knobs[LK_CUDA_MOST_KNOBS];
    set_part(b, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    set(b, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &choice->engine);
    finalize(b, engine);
    for (int i = 0; i < choice->knobs; i++) {
        cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)choice->knob[i];
        knobs[i] = add(b, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        set(b, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
        set(b, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &choice->value[i]);
        finalize(b, knobs[i]);
    }
    cudnnBackendDescriptor_t config = add(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    set_part(b, config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    if (choice->knobs)
        set(b, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, choice->knobs, knobs);
    finalize(b, config);
    return config;
}

static void add_plan(lk_cuda_graph *graph, const lk_cuda_problem *problem, const lk_cuda_choice *choice)
{
    builder *b = &graph->parts;
    cudnnBackendDescriptor_t config = add_config(b, add_graph(b, problem), choice);
    graph->plan = add(b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(b, graph->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->libs->cudnn);
    set_part(b, graph->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    finalize(b, graph->plan);
    (void)get(b, graph->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &graph->workspace);
}

bool lk__cuda_graph_lacks_memory(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
           status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
           (status != CUDNN_STATUS_SUCCESS && cudaPeekAtLastError() == cudaErrorMemoryAllocation);
}

lk_status lk__cuda_graph_create(lk_cuda_libraries *libs, const lk_cuda_problem *problem, const lk_cuda_choice *choice,
                                lk_cuda_graph **out)
{
    lk_cuda_graph *graph;
    LK_TRY(LK_ALLOC(1, "the plan of a convolution", &graph));
    graph->parts.libs = libs;
    graph->pass = problem->pass;
    graph->biased = problem->pass == LK_CUDA_PASS_FORWARD && problem->bias;
    add_plan(graph, problem, choice);
    bool lacks_memory = lk__cuda_graph_lacks_memory(graph->parts.status);
    if (graph->parts.status != CUDNN_STATUS_SUCCESS || graph->workspace > most_workspace) {
        (void)cudaGetLastError(); /* clears the error of the attempt */
        lk__cuda_graph_destroy(graph);
        graph = NULL;
    }
    if (lacks_memory)
        return lk__fail(LK_STATUS_MEMORY, "cuDNN has no memory for an algorithm of a convolution");
    *out = graph;
    return LK_OK;
}

void lk__cuda_graph_destroy(lk_cuda_graph *graph)
{
    if (!graph)
        return;
    clear(&graph->parts);
    lk__mem_free(graph);
}

size_t lk__cuda_graph_workspace(const lk_cuda_graph *graph)
{
    return (size_t)graph->workspace;
}

cudnnStatus_t lk__cuda_graph_run(lk_cuda_graph *graph, const lk_cuda_io *io, void *workspace)
{
    static const int64_t ids[] = {ID_X, ID_W, ID_Y, ID_BIAS};
    builder b = {.libs = graph->parts.libs};
    bool forward = graph->pass == LK_CUDA_PASS_FORWARD;
    const void *tensors[] = {forward ? io->x : io->dx, io->w, forward ? io->y : io->dy, io->b};
    b.status = b.libs->cudnnSetStream(b.libs->cudnn, io->stream);
    cudnnBackendDescriptor_t pack = add(&b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, graph->biased ? 4 : 3, tensors);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, graph->biased ? 4 : 3, ids);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finalize(&b, pack);
    if (b.status == CUDNN_STATUS_SUCCESS)
        b.status = b.libs->cudnnBackendExecute(b.libs->cudnn, graph->plan, pack);
    cudnnStatus_t status = b.status;
    clear(&b);
    return status;
}
