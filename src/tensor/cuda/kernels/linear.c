/* linear.c - linear layers of the CUDA device: forward passes and input gradients are products by cuBLASLt, or by own
 * kernels where the layer is small (linear_small.h); weight gradients are those of weights.h.
 *
 * cuBLASLt is column-major: a row-major (n, i) with its pitch is a column-major (i, n). Pads take part in the
 * products; they are zero and stay zero. Algorithms are those of the heuristics' lists, without those with an in-place
 * reduction (which adds in the order of arrival) or a reduction in bf16; split-K through the workspace adds its parts
 * in order. Each pass pins the bits of one kind of algorithm for the layer (pinned.h). Rows that are not whole vectors
 * use the direct engine. */
#include <stdio.h>

#include "base/mem.h"
#include "tensor/cuda/kernels/bias.h"
#include "tensor/cuda/kernels/conv2d.h"
#include "tensor/cuda/kernels/linear_small.h"
#include "tensor/cuda/kernels/pinned.h"
#include "tensor/cuda/kernels/weights.h"

enum { ALIGNMENT = 16, MOST_ATTEMPTS = 8 };

/* Numbers of samples for which algorithms are listed. */
static const int asked_samples[] = {64, 1024};
enum { LISTS = sizeof asked_samples / sizeof *asked_samples, MOST_OFFERED = LISTS * MOST_ATTEMPTS };

/* A fixed limit, because the choice depends on it. */
static const size_t most_workspace = (size_t)32 << 20;

static const float one = 1.0f, zero = 0.0f;

/* The matrices of a product, for a number of samples, its algorithm, and the workspace that it needs. */
typedef struct matrices {
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
} matrices;

typedef struct linear_plan {
    lk_cuda_plan base;
    lk_cuda_libraries *libs;
    /* The own kernel that is used instead of all below, or NULL. */
    void (*own)(const lk_cuda_problem *problem, const lk_cuda_io *io);
    cublasLtMatmulDesc_t op;
    cublasLtMatmulHeuristicResult_t offered[MOST_OFFERED]; /* the candidates */
    int taken;                                             /* of them, for the next calls */
    lk_cuda_pinned pinned;
    bool own_relu; /* the epilogue's ReLU drops NaN, or cannot be tested without a bias */
} linear_plan;

/* d = op(a) op(b): m rows, n columns, a sum over k; ld of each matrix as stored. */
typedef struct product {
    cublasOperation_t op_a, op_b;
    uint64_t m, n, k;
    int64_t ld_a, ld_b, ld_d;
    cudaDataType_t in, out;
    cublasLtEpilogue_t epilogue;
} product;

/* As lk__cuda_graph_lacks_memory. */
static bool lacks_memory(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_ALLOC_FAILED ||
           (status != CUBLAS_STATUS_SUCCESS && cudaPeekAtLastError() == cudaErrorMemoryAllocation);
}

static lk_status failure(const linear_plan *plan, const lk_cuda_problem *problem, cublasStatus_t failed)
{
    static const char *const passes[] = {
        [LK_CUDA_PASS_FORWARD] = "linear layer", [LK_CUDA_PASS_GRAD_INPUT] = "gradient of the input of a linear layer"};
    return lk__fail(lacks_memory(failed) ? LK_STATUS_MEMORY : LK_STATUS_UNSUPPORTED,
                    "cuBLASLt %zu: %s: status %d (n %d, in %d, out %d)", plan->libs->cublasLtGetVersion(),
                    passes[problem->pass], (int)failed, problem->n, problem->x_pitch, problem->y_pitch);
}

static cublasLtEpilogue_t forward_epilogue(const linear_plan *plan, const lk_cuda_problem *problem)
{
    if (!problem->bias)
        return CUBLASLT_EPILOGUE_DEFAULT;
    return problem->relu && !plan->own_relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
}

static product product_of(const linear_plan *plan, const lk_cuda_problem *problem)
{
    cudaDataType_t type = problem->values == LK_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    uint64_t n = (uint64_t)problem->n, i = (uint64_t)problem->x_pitch, o = (uint64_t)problem->y_pitch;
    product p = {.op_a = CUBLAS_OP_N, .op_b = CUBLAS_OP_N, .in = type, .out = type};
    p.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    p.ld_a = p.ld_d = problem->x_pitch;
    p.ld_b = problem->y_pitch;
    if (problem->pass == LK_CUDA_PASS_FORWARD) { /* y = w^T x */
        p.op_a = CUBLAS_OP_T;
        p.m = o, p.n = n, p.k = i;
        p.ld_b = problem->x_pitch;
        p.ld_d = problem->y_pitch;
        p.epilogue = forward_epilogue(plan, problem);
    } else { /* dx = w dy */
        p.m = i, p.n = n, p.k = o;
    }
    return p;
}

static cublasStatus_t set(const linear_plan *plan, cublasLtMatmulDescAttributes_t attribute, const void *value,
                          size_t bytes)
{
    return plan->libs->cublasLtMatmulDescSetAttribute(plan->op, attribute, value, bytes);
}

static cublasStatus_t describe_op(linear_plan *plan, const lk_cuda_problem *problem, const product *p)
{
    int32_t bias_type = (int32_t)p->out;
    /* The heuristics want a pointer; each run sets its own. */
    const void *somewhere = (const void *)(uintptr_t)256;
    bool bias = p->epilogue != CUBLASLT_EPILOGUE_DEFAULT;
    cublasComputeType_t compute =
        problem->precision == LK_PRECISION_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasStatus_t s = plan->libs->cublasLtMatmulDescCreate(&plan->op, compute, CUDA_R_32F);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = set(plan, CUBLASLT_MATMUL_DESC_TRANSA, &p->op_a, sizeof p->op_a);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = set(plan, CUBLASLT_MATMUL_DESC_TRANSB, &p->op_b, sizeof p->op_b);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue, sizeof p->epilogue);
    if (s == CUBLAS_STATUS_SUCCESS && bias)
        s = set(plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof bias_type);
    if (s == CUBLAS_STATUS_SUCCESS && bias)
        s = set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &somewhere, sizeof somewhere);
    return s;
}

static void free_matrices(const linear_plan *plan, matrices *m)
{
    if (!m)
        return;
    if (m->a)
        (void)plan->libs->cublasLtMatrixLayoutDestroy(m->a);
    if (m->b)
        (void)plan->libs->cublasLtMatrixLayoutDestroy(m->b);
    if (m->d)
        (void)plan->libs->cublasLtMatrixLayoutDestroy(m->d);
    lk__mem_free(m);
}

static lk_status make_matrices(const linear_plan *plan, const lk_cuda_problem *problem, matrices **out)
{
    lk_cuda_libraries *libs = plan->libs;
    product p = product_of(plan, problem);
    bool a_n = p.op_a == CUBLAS_OP_N, b_n = p.op_b == CUBLAS_OP_N;
    matrices *m;
    LK_TRY(LK_ALLOC(1, "the plan of a linear layer", &m));
    cublasStatus_t s = libs->cublasLtMatrixLayoutCreate(&m->a, p.in, a_n ? p.m : p.k, a_n ? p.k : p.m, p.ld_a);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = libs->cublasLtMatrixLayoutCreate(&m->b, p.in, b_n ? p.k : p.n, b_n ? p.n : p.k, p.ld_b);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = libs->cublasLtMatrixLayoutCreate(&m->d, p.out, p.m, p.n, p.ld_d);
    if (s != CUBLAS_STATUS_SUCCESS) {
        free_matrices(plan, m);
        return failure(plan, problem, s);
    }
    *out = m;
    return LK_OK;
}

static cublasStatus_t prefer(const linear_plan *plan, uint32_t reductions, cublasLtMatmulPreference_t pref)
{
    static const cublasLtMatmulPreferenceAttributes_t pointers[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    lk_cuda_libraries *libs = plan->libs;
    uint32_t alignment = ALIGNMENT;
    cublasStatus_t s = libs->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                  &most_workspace, sizeof most_workspace);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = libs->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                                       sizeof reductions);
    for (size_t i = 0; s == CUBLAS_STATUS_SUCCESS && i < sizeof pointers / sizeof *pointers; i++)
        s = libs->cublasLtMatmulPreferenceSetAttribute(pref, pointers[i], &alignment, sizeof alignment);
    return s;
}

/* The heuristics' list for these matrices; `reductions` allows split-K through the workspace or not. */
static int list_algorithms(const linear_plan *plan, const matrices *m, uint32_t reductions,
                           cublasLtMatmulHeuristicResult_t found[MOST_ATTEMPTS])
{
    lk_cuda_libraries *libs = plan->libs;
    cublasLtMatmulPreference_t pref = NULL;
    int count = 0;
    if (libs->cublasLtMatmulPreferenceCreate(&pref) != CUBLAS_STATUS_SUCCESS)
        return 0;
    if (prefer(plan, reductions, pref) != CUBLAS_STATUS_SUCCESS ||
        libs->cublasLtMatmulAlgoGetHeuristic(libs->lt, plan->op, m->a, m->b, m->d, m->d, pref, MOST_ATTEMPTS, found,
                                             &count) != CUBLAS_STATUS_SUCCESS)
        count = 0;
    (void)libs->cublasLtMatmulPreferenceDestroy(pref);
    return count;
}

/* The algorithms to try for the problem. */
static lk_status list_all(const linear_plan *plan, const lk_cuda_problem *problem,
                          cublasLtMatmulHeuristicResult_t found[MOST_ATTEMPTS], int *count)
{
    matrices *m;
    LK_TRY(make_matrices(plan, problem, &m));
    *count = list_algorithms(plan, m, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, found);
    if (*count == 0)
        *count = list_algorithms(plan, m, CUBLASLT_REDUCTION_SCHEME_NONE, found);
    free_matrices(plan, m);
    return LK_OK;
}

/* The product of the pass; the epilogue may add the bias. */
static lk_status multiply(const linear_plan *plan, const matrices *m, const lk_cuda_problem *problem,
                          const lk_cuda_io *io, void *workspace)
{
    const void *a = io->w, *b = io->x, *bias = problem->bias ? io->b : NULL;
    void *d = io->y;
    if (problem->pass == LK_CUDA_PASS_GRAD_INPUT) {
        b = io->dy;
        d = io->dx;
    }
    cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
    if (bias)
        s = set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = plan->libs->cublasLtMatmul(plan->libs->lt, plan->op, &one, a, m->a, b, m->b, &zero, d, m->d, d, m->d,
                                       &m->algo, workspace, m->workspace, io->stream);
    return s == CUBLAS_STATUS_SUCCESS ? LK_OK : failure(plan, problem, s);
}

/* The matrices for the problem's samples; *call is NULL if the algorithm does not support them within the limit of
 * workspace. */
static lk_status prepare_call(void *layer, const lk_cuda_problem *problem, void **call)
{
    linear_plan *plan = layer;
    cublasLtMatmulHeuristicResult_t checked = {0};
    matrices *m;
    LK_TRY(make_matrices(plan, problem, &m));
    m->algo = plan->offered[plan->taken].algo;
    cublasStatus_t s =
        plan->libs->cublasLtMatmulAlgoCheck(plan->libs->lt, plan->op, m->a, m->b, m->d, m->d, &m->algo, &checked);
    if (s != CUBLAS_STATUS_SUCCESS || checked.workspaceSize > most_workspace) {
        free_matrices(plan, m);
        m = NULL;
    }
    if (lacks_memory(s))
        return failure(plan, problem, s);
    if (m)
        m->workspace = checked.workspaceSize;
    *call = m;
    return LK_OK;
}

static size_t call_workspace(const void *call)
{
    return ((const matrices *)call)->workspace;
}

static lk_status run_call(void *layer, void *call, const lk_cuda_problem *problem, const lk_cuda_io *io,
                          void *workspace)
{
    return multiply(layer, call, problem, io, workspace);
}

static void destroy_call(void *layer, void *call)
{
    free_matrices(layer, call);
}

static lk_status passes_nan(void *layer, const lk_cuda_problem *problem, const lk_cuda_io *io, bool *out)
{
    const linear_plan *plan = layer;
    return !problem->relu || plan->own_relu ? LK_OK : lk__cuda_pinned_passes_nan(&plan->pinned, problem, io, out);
}

static void take(void *layer, int candidate)
{
    linear_plan *plan = layer;
    plan->taken = candidate;
}

static const lk_cuda_pinned_type calls = {
    .take = take,
    .suits = passes_nan,
    .prepare = prepare_call,
    .workspace = call_workspace,
    .run = run_call,
    .destroy = destroy_call,
};

/* Describes the product again, because the epilogue may have changed. */
static lk_status describe(linear_plan *plan, const lk_cuda_problem *problem)
{
    product p = product_of(plan, problem);
    LK_TRY(lk__cuda_libraries_lt(plan->libs));
    if (plan->op)
        (void)plan->libs->cublasLtMatmulDescDestroy(plan->op);
    plan->op = NULL;
    cublasStatus_t s = describe_op(plan, problem, &p);
    return s == CUBLAS_STATUS_SUCCESS ? LK_OK : failure(plan, problem, s);
}

/* The first choice for few samples outweighs all others. With few samples a large layer spends its time reading
 * weights. An algorithm that does not divide a long sum into parts then takes several times as long; with many samples
 * dividing costs little. */
static int weight_of(int list, int rank)
{
    enum { FIRST = 16 }; /* more than all other places together */
    int weight = lk__cuda_pinned_weight(rank);
    return list == 0 && rank == 0 ? FIRST * weight : weight;
}

/* Chooses among the algorithms of the heuristics' lists. */
static lk_status pin(linear_plan *plan, const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    lk_cuda_problem asked = *problem;
    int count[LISTS], weights[MOST_OFFERED], all = 0;
    cublasLtMatmulHeuristicResult_t lists[LISTS][MOST_ATTEMPTS];
    LK_TRY(describe(plan, problem));
    for (int i = 0; i < LISTS; i++) {
        asked.n = asked_samples[i];
        LK_TRY(list_all(plan, &asked, lists[i], &count[i]));
    }
    for (int rank = 0; rank < MOST_ATTEMPTS; rank++)
        for (int i = 0; i < LISTS; i++)
            if (rank < count[i]) {
                weights[all] = weight_of(i, rank);
                plan->offered[all++] = lists[i][rank];
            }
    return lk__cuda_pinned_choose(&plan->pinned, weights, all, problem, io);
}

/* If no algorithm with a ReLU will do, one without. */
static lk_status choose_pinned(linear_plan *plan, const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    LK_TRY(pin(plan, problem, io));
    if (!plan->pinned.chosen && problem->relu && !plan->own_relu) {
        plan->own_relu = true;
        LK_TRY(pin(plan, problem, io));
    }
    plan->own = plan->pinned.chosen ? NULL : lk__cuda_direct;
    return LK_OK;
}

static lk_status run_pinned(linear_plan *plan, const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    LK_TRY(lk__cuda_pinned_run(&plan->pinned, problem, io));
    if (plan->own_relu) {
        lk_cuda_io biased = *io;
        biased.b = NULL;
        lk__cuda_bias_relu(problem, &biased);
    }
    return LK_OK;
}

/* The dropout behind a forward pass. */
static void drop(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    lk_tensor y = {.data = io->y, .dtype = (lk_dtype)problem->values, .pitch = (size_t)problem->y_pitch};
    y.shape = (lk_shape){.n = (size_t)problem->n, .c = (size_t)problem->k, .h = 1, .w = 1};
    lk__cuda_dropout(io->dev, io->dropout, &y, &y);
}

static lk_status run(lk_cuda_plan *base, const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    linear_plan *plan = (linear_plan *)base;
    if (!plan->own && !plan->pinned.chosen)
        LK_TRY(choose_pinned(plan, problem, io));
    if (plan->own)
        plan->own(problem, io);
    else
        LK_TRY(run_pinned(plan, problem, io));
    if (io->dropout && problem->pass == LK_CUDA_PASS_FORWARD && !base->masks)
        drop(problem, io);
    return LK_OK;
}

static void describe_plan(const lk_cuda_plan *base, char *text, size_t bytes)
{
    const linear_plan *plan = (const linear_plan *)base;
    char parts[LK_CUDA_PINNED_TEXT];
    int32_t id = -1;
    size_t written;
    if (plan->own) {
        snprintf(text, bytes, "own %s, whole",
                 plan->own == lk__cuda_direct ? "direct kernel" : "kernel for small layers");
        return;
    }
    int candidate = lk__cuda_pinned_describe(&plan->pinned, &base->problem, base->n, parts);
    (void)plan->libs->cublasLtMatmulAlgoConfigGetAttribute(&plan->offered[candidate].algo, CUBLASLT_ALGO_CONFIG_ID, &id,
                                                           sizeof id, &written);
    snprintf(text, bytes, "cuBLASLt algorithm %d, %s", (int)id, parts);
}

static void destroy(lk_cuda_plan *base)
{
    linear_plan *plan = (linear_plan *)base;
    lk__cuda_pinned_clear(&plan->pinned);
    if (plan->op)
        (void)plan->libs->cublasLtMatmulDescDestroy(plan->op);
    lk__mem_free(plan);
}

static lk_status make_plan(lk_cuda_device *dev, const lk_cuda_problem *problem, lk_cuda_plan **out)
{
    linear_plan *plan;
    LK_TRY(LK_ALLOC(1, "the plan of a linear layer", &plan));
    plan->base.run = run;
    plan->base.destroy = destroy;
    plan->base.describe = describe_plan;
    plan->libs = &dev->libraries;
    plan->pinned = (lk_cuda_pinned){.type = &calls, .trial = &lk__cuda_trial, .layer = plan};
    plan->base.masks = lk__cuda_linear_small_suits(problem);
    plan->own = plan->base.masks                               ? lk__cuda_linear_small
                : problem->x_pitch % 8 || problem->y_pitch % 8 ? lk__cuda_direct
                                                               : NULL;
    plan->own_relu = problem->relu && !problem->bias;
    *out = &plan->base;
    return LK_OK;
}

/* x and y, or their gradients. A row is a sample with its pads, in any shape. */
static lk_cuda_problem problem_of(lk_device *dev, lk_cuda_pass pass, const lk_tensor *x, const lk_tensor *y)
{
    int in = lk__cuda_int(x->shape.h * x->shape.w * lk__tensor_pitch(x));
    int out = lk__cuda_int(y->shape.h * y->shape.w * lk__tensor_pitch(y));
    return (lk_cuda_problem){
        .linear = 1,
        .pass = (int)pass,
        .values = (int)dev->values,
        .precision = (int)lk__cuda_precision(dev, false),
        .n = lk__cuda_int(x->shape.n),
        .h = 1,
        .w = 1,
        .c = in,
        .x_pitch = in,
        .p = 1,
        .q = 1,
        .k = out,
        .y_pitch = out,
        .along_h = {.kernel = 1, .stride = 1, .dilation = 1},
        .along_w = {.kernel = 1, .stride = 1, .dilation = 1},
        .groups = 1,
    };
}

/* Scratch is memory of the device itself (lk__cuda_scratch). */
size_t lk__cuda_linear_scratch(lk_device *dev, lk_shape x, lk_shape y)
{
    (void)dev, (void)x, (void)y;
    return 0;
}

void lk__cuda_linear_forward(lk_device *dev, const lk_tensor *x, const void *w, const void *b, bool relu,
                             const lk_dropout_desc *dropout, lk_tensor *y, void *scratch)
{
    (void)scratch;
    if (!x->shape.n)
        return;
    lk_cuda_problem problem = problem_of(dev, LK_CUDA_PASS_FORWARD, x, y);
    problem.bias = b != NULL;
    problem.relu = relu;
    lk_cuda_io io = {.dev = dev, .stream = lk__cuda_stream(dev), .scratch = lk__cuda_scratch};
    io.x = x->data;
    io.w = w;
    io.b = b;
    io.y = y->data;
    io.dropout = dropout;
    lk__cuda_run(&problem, make_plan, &io);
}

void lk__cuda_linear_grad_input(lk_device *dev, const lk_tensor *dy, const void *w, const lk_tensor *mask,
                                const lk_dropout_desc *dropout, lk_tensor *dx, void *scratch)
{
    (void)scratch;
    if (!dy->shape.n)
        return;
    lk_cuda_problem problem = problem_of(dev, LK_CUDA_PASS_GRAD_INPUT, dx, dy);
    lk_cuda_io io = {.dev = dev, .stream = lk__cuda_beside_own(dev, dy->data), .scratch = lk__cuda_scratch};
    io.dy = dy->data;
    io.w = w;
    io.mask = mask ? mask->data : NULL;
    io.dx = dx->data;
    io.dropout = dropout;
    lk__cuda_run(&problem, make_plan, &io);
}

void lk__cuda_linear_grad_weight(lk_device *dev, const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                                 lk_partials dw, lk_partials db, void *scratch)
{
    (void)scratch;
    lk_cuda_problem problem = problem_of(dev, LK_CUDA_PASS_GRAD_WEIGHT, x, dy);
    lk__cuda_weight_grads(dev, &problem, x, dy, shards, dw, db);
}
