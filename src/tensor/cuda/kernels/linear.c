/* linear.c - linear layers of the CUDA device: three products by cuBLASLt.
 *
 * cuBLASLt is column-major: a row-major (n, i) with its pitch is a column-major (i, n). Pads take part in the
 * products; they are zero and stay zero. The algorithm is the first of the heuristics' list without an in-place
 * reduction (which adds in the order of arrival) and without a reduction in bf16; split-K through the workspace
 * adds its parts in order. Rows that are not whole vectors use the direct engine. */
#include "base/mem.h"
#include "tensor/cuda/kernels/bias.h"
#include "tensor/cuda/kernels/conv2d.h"

enum { ALIGNMENT = 16, MOST_ATTEMPTS = 8 };

/* A fixed limit, because the choice depends on it. */
static const size_t most_workspace = (size_t)32 << 20;

static const float one = 1.0f, zero = 0.0f;

typedef struct linear_plan {
    lk_cuda_plan base;
    lk_cuda_libraries *libs;
    bool direct; /* own kernels are used, and the fields below are not */
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
    int attempt;    /* position of algo in the heuristics' list */
    bool proven;    /* algo has run */
    bool bias_grad; /* the product of the weight gradient computes the bias gradient too */
    bool own_relu;  /* the epilogue's ReLU drops NaN, or cannot be tested without a bias */
} linear_plan;

/* d = op(a) op(b): m rows, n columns, a sum over k; ld of each matrix as stored. */
typedef struct product {
    cublasOperation_t op_a, op_b;
    uint64_t m, n, k;
    int64_t ld_a, ld_b, ld_d;
    cudaDataType_t in, out;
    cublasLtEpilogue_t epilogue;
} product;

static lk_status failure(const linear_plan *plan, const lk_cuda_problem *problem, cublasStatus_t failed)
{
    static const char *const passes[] = {[LK_CUDA_PASS_FORWARD] = "linear layer",
                                         [LK_CUDA_PASS_GRAD_INPUT] = "gradient of the input of a linear layer",
                                         [LK_CUDA_PASS_GRAD_WEIGHT] = "gradient of the weights of a linear layer"};
    return lk__fail(LK_STATUS_UNSUPPORTED, "cuBLASLt %zu: %s: status %d (n %d, in %d, out %d)",
                    plan->libs->cublasLtGetVersion(), passes[problem->pass], (int)failed, problem->n, problem->x_pitch,
                    problem->y_pitch);
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
    switch (problem->pass) {
    case LK_CUDA_PASS_FORWARD: /* y = w^T x */
        p.op_a = CUBLAS_OP_T;
        p.m = o, p.n = n, p.k = i;
        p.ld_b = problem->x_pitch;
        p.ld_d = problem->y_pitch;
        p.epilogue = forward_epilogue(plan, problem);
        break;
    case LK_CUDA_PASS_GRAD_INPUT: /* dx = w dy */
        p.m = i, p.n = n, p.k = o;
        break;
    default: /* dw = x dy^T */
        p.op_b = CUBLAS_OP_T;
        p.m = i, p.n = o, p.k = n;
        p.out = CUDA_R_32F;
        if (plan->bias_grad)
            p.epilogue = CUBLASLT_EPILOGUE_BGRADB;
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

static cublasStatus_t describe(linear_plan *plan, const lk_cuda_problem *problem)
{
    lk_cuda_libraries *libs = plan->libs;
    product p = product_of(plan, problem);
    bool a_n = p.op_a == CUBLAS_OP_N, b_n = p.op_b == CUBLAS_OP_N;
    cublasStatus_t s = describe_op(plan, problem, &p);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = libs->cublasLtMatrixLayoutCreate(&plan->a, p.in, a_n ? p.m : p.k, a_n ? p.k : p.m, p.ld_a);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = libs->cublasLtMatrixLayoutCreate(&plan->b, p.in, b_n ? p.k : p.n, b_n ? p.n : p.k, p.ld_b);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = libs->cublasLtMatrixLayoutCreate(&plan->d, p.out, p.m, p.n, p.ld_d);
    return s;
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

/* The heuristics' algorithm number `attempt`; `reductions` allows split-K through the workspace or not. */
static cublasStatus_t find_algorithm(linear_plan *plan, uint32_t reductions)
{
    lk_cuda_libraries *libs = plan->libs;
    cublasLtMatmulPreference_t pref = NULL;
    cublasLtMatmulHeuristicResult_t found[MOST_ATTEMPTS];
    int count = 0, at = plan->attempt;
    cublasStatus_t s = libs->cublasLtMatmulPreferenceCreate(&pref);
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    s = prefer(plan, reductions, pref);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = libs->cublasLtMatmulAlgoGetHeuristic(libs->lt, plan->op, plan->a, plan->b, plan->d, plan->d, pref, at + 1,
                                                 found, &count);
    (void)libs->cublasLtMatmulPreferenceDestroy(pref);
    if (s == CUBLAS_STATUS_SUCCESS && (count <= at || found[at].state != CUBLAS_STATUS_SUCCESS))
        s = CUBLAS_STATUS_NOT_SUPPORTED;
    if (s == CUBLAS_STATUS_SUCCESS) {
        plan->algo = found[at].algo;
        plan->workspace = found[at].workspaceSize;
    }
    return s;
}

static cublasStatus_t choose(linear_plan *plan)
{
    cublasStatus_t s = find_algorithm(plan, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    return s == CUBLAS_STATUS_NOT_SUPPORTED ? find_algorithm(plan, CUBLASLT_REDUCTION_SCHEME_NONE) : s;
}

static void forget(linear_plan *plan)
{
    lk_cuda_libraries *libs = plan->libs;
    if (plan->op)
        (void)libs->cublasLtMatmulDescDestroy(plan->op);
    if (plan->a)
        (void)libs->cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b)
        (void)libs->cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->d)
        (void)libs->cublasLtMatrixLayoutDestroy(plan->d);
    plan->op = NULL;
    plan->a = plan->b = plan->d = NULL;
}

/* Chooses an algorithm with the bias gradient if one is wanted and exists, otherwise one without. */
static lk_status prepare(linear_plan *plan, const lk_cuda_problem *problem)
{
    LK_TRY(lk__cuda_libraries_lt(plan->libs));
    /* In f32 it takes 1.5 us, as long as an own kernel; in bf16 up to 38 us. */
    plan->bias_grad = problem->pass == LK_CUDA_PASS_GRAD_WEIGHT && problem->bias && problem->values == LK_DTYPE_F32;
    cublasStatus_t s = describe(plan, problem);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = choose(plan);
    if (s != CUBLAS_STATUS_SUCCESS && plan->bias_grad) {
        forget(plan);
        plan->bias_grad = false;
        s = describe(plan, problem);
        if (s == CUBLAS_STATUS_SUCCESS)
            s = choose(plan);
    }
    plan->direct = s == CUBLAS_STATUS_NOT_SUPPORTED;
    return s == CUBLAS_STATUS_SUCCESS || plan->direct ? LK_OK : failure(plan, problem, s);
}

/* The product of the pass; the epilogue may add the bias or compute its gradient. */
static cublasStatus_t multiply(const linear_plan *plan, const lk_cuda_io *io, void *workspace)
{
    const lk_cuda_problem *problem = &plan->base.problem;
    const void *a = io->w, *b = io->x, *bias = problem->bias ? io->b : NULL;
    void *d = io->y;
    if (problem->pass == LK_CUDA_PASS_GRAD_INPUT) {
        b = io->dy;
        d = io->dx;
    } else if (problem->pass == LK_CUDA_PASS_GRAD_WEIGHT) {
        a = io->x;
        b = io->dy;
        d = io->dw;
        bias = plan->bias_grad ? io->db : NULL;
    }
    cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
    if (bias)
        s = set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    return plan->libs->cublasLtMatmul(plan->libs->lt, plan->op, &one, a, plan->a, b, plan->b, &zero, d, plan->d, d,
                                      plan->d, &plan->algo, workspace, plan->workspace, io->stream);
}

/* Replaces an algorithm whose ReLU drops NaN by one without ReLU. */
static lk_status ask_relu(linear_plan *plan, const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    lk_cuda_io nan;
    void *workspace;
    bool passes = true;
    LK_TRY(lk__cuda_nan_bias(problem, io, plan->workspace, &nan, &workspace));
    if (multiply(plan, &nan, workspace) == CUBLAS_STATUS_SUCCESS)
        LK_TRY(lk__cuda_passed_nan(problem, io, &passes));
    else
        (void)cudaGetLastError(); /* clears the error of the attempt */
    if (passes)
        return LK_OK;
    forget(plan);
    plan->own_relu = true;
    return prepare(plan, problem);
}

/* Tries one algorithm after the other until one runs; the direct engine is the last. */
static lk_status run_library(linear_plan *plan, const lk_cuda_io *io)
{
    const lk_cuda_problem *problem = &plan->base.problem;
    while (!plan->direct) {
        void *workspace;
        if (problem->relu && !plan->own_relu && !plan->proven)
            LK_TRY(ask_relu(plan, problem, io));
        if (plan->direct)
            break;
        LK_TRY(lk__cuda_workspace(io, plan->workspace, &workspace));
        cublasStatus_t s = multiply(plan, io, workspace);
        if (s == CUBLAS_STATUS_SUCCESS) {
            plan->proven = true;
            return LK_OK;
        }
        if (plan->proven || s == CUBLAS_STATUS_ALLOC_FAILED)
            return failure(plan, problem, s);
        (void)cudaGetLastError(); /* clears the error of the attempt */
        plan->direct = ++plan->attempt == MOST_ATTEMPTS || choose(plan) != CUBLAS_STATUS_SUCCESS;
    }
    return LK_OK;
}

static lk_status run(lk_cuda_plan *base, const lk_cuda_io *io)
{
    linear_plan *plan = (linear_plan *)base;
    LK_TRY(run_library(plan, io));
    if (plan->direct) {
        void *workspace;
        LK_TRY(lk__cuda_workspace(io, lk__cuda_direct_bytes(&base->problem), &workspace));
        lk__cuda_direct(&base->problem, io, workspace);
    } else if (plan->own_relu) {
        lk_cuda_io biased = *io;
        biased.b = NULL;
        lk__cuda_bias_relu(&base->problem, &biased);
    }
    bool bias = base->problem.pass == LK_CUDA_PASS_GRAD_WEIGHT && io->db && (plan->direct || !plan->bias_grad);
    return bias ? lk__cuda_bias_grad(&base->problem, io) : LK_OK;
}

static void destroy(lk_cuda_plan *base)
{
    forget((linear_plan *)base);
    lk__mem_free(base);
}

static lk_status make_plan(lk_cuda_device *dev, const lk_cuda_problem *problem, lk_cuda_plan **out)
{
    linear_plan *plan;
    LK_TRY(LK_ALLOC(1, "the plan of a linear layer", &plan));
    plan->base.run = run;
    plan->base.destroy = destroy;
    plan->libs = &dev->libraries;
    plan->direct = problem->x_pitch % 8 || problem->y_pitch % 8;
    plan->own_relu = problem->relu && !problem->bias;
    lk_status status = plan->direct ? LK_OK : prepare(plan, problem);
    if (status != LK_OK) {
        destroy(&plan->base);
        return status;
    }
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
        .precision = (int)((lk_cuda_device *)dev)->precision,
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

void lk__cuda_linear_forward(lk_device *dev, const lk_tensor *x, const void *w, const void *b, bool relu, lk_tensor *y,
                             void *scratch)
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
    lk__cuda_run(&problem, make_plan, &io);
}

void lk__cuda_linear_grad_input(lk_device *dev, const lk_tensor *dy, const void *w, const lk_tensor *mask,
                                lk_tensor *dx, void *scratch)
{
    (void)scratch;
    if (!dy->shape.n)
        return;
    lk_cuda_problem problem = problem_of(dev, LK_CUDA_PASS_GRAD_INPUT, dx, dy);
    lk_cuda_io io = {.dev = dev, .stream = lk__cuda_beside(dev), .scratch = lk__cuda_scratch};
    io.dy = dy->data;
    io.w = w;
    io.mask = mask ? mask->data : NULL;
    io.dx = dx->data;
    lk__cuda_run(&problem, make_plan, &io);
}

void lk__cuda_linear_grad_weight(lk_device *dev, const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                                 lk_partials dw, lk_partials db, void *scratch)
{
    (void)scratch;
    lk_cuda_problem problem = problem_of(dev, LK_CUDA_PASS_GRAD_WEIGHT, x, dy);
    problem.bias = db.slot0 != NULL;
    lk__cuda_run_leaves(dev, problem, make_plan, x, dy, shards, dw, db);
}
