/* conv2d_cudnn.c - convolutions by cuDNN.
 *
 * Algorithms are tried in cuDNN's order of preference, without those that it calls non-deterministic. Pads,
 * which are zero, are passed as channels: unpadded numbers of channels take up to 2.5 times as long. */
#include "base/mem.h"
#include "tensor/cuda/kernels/bias.h"
#include "tensor/cuda/kernels/conv2d.h"

enum { MOST_CANDIDATES = 16, WORKSPACE_ALIGN = 256 };

/* A fixed limit, because the choice must not depend on how much memory is free. */
static const size_t most_workspace = (size_t)1 << 30;

typedef struct candidate {
    int algo; /* a value of the pass's algorithm enum */
    cudnnMathType_t math;
    size_t workspace;
} candidate;

struct lk_cuda_cudnn {
    lk_cuda_libraries *libs;
    lk_cuda_problem problem;
    cudnnTensorDescriptor_t x, y, bias;
    cudnnFilterDescriptor_t w;
    cudnnActivationDescriptor_t activation; /* of the forward pass with bias: ReLU or identity */
    cudnnConvolutionDescriptor_t conv;
    candidate list[MOST_CANDIDATES]; /* the deterministic ones, in cuDNN's order */
    int count, at;
    bool proven;   /* list[at] has run */
    bool fused;    /* cuDNN adds bias and ReLU; false after it has refused */
    bool asked;    /* list[at] was tested: does its ReLU pass NaN? */
    bool own_relu; /* it does not: cuDNN adds at most the bias */
};

static const float one = 1.0f, zero = 0.0f;

static lk_status failure(const lk_cuda_cudnn *cudnn, const char *what, cudnnStatus_t failed)
{
    const lk_cuda_problem *p = &cudnn->problem;
    return lk__fail(LK_STATUS_UNSUPPORTED,
                    "cuDNN %zu: %s: %s (n %d, %dx%d, channels %d to %d, kernel %dx%d, stride %dx%d, pad %dx%d, "
                    "dilation %dx%d, groups %d)",
                    cudnn->libs->cudnnGetVersion(), what, cudnn->libs->cudnnGetErrorString(failed), p->n, p->h, p->w,
                    p->c, p->k, p->along_h.kernel, p->along_w.kernel, p->along_h.stride, p->along_w.stride,
                    p->along_h.pad, p->along_w.pad, p->along_h.dilation, p->along_w.dilation, p->groups);
}

static cudnnStatus_t create_descriptors(lk_cuda_cudnn *cudnn)
{
    lk_cuda_libraries *libs = cudnn->libs;
    cudnnStatus_t s = libs->cudnnCreateTensorDescriptor(&cudnn->x);
    if (s == CUDNN_STATUS_SUCCESS)
        s = libs->cudnnCreateTensorDescriptor(&cudnn->y);
    if (s == CUDNN_STATUS_SUCCESS)
        s = libs->cudnnCreateTensorDescriptor(&cudnn->bias);
    if (s == CUDNN_STATUS_SUCCESS)
        s = libs->cudnnCreateFilterDescriptor(&cudnn->w);
    if (s == CUDNN_STATUS_SUCCESS)
        s = libs->cudnnCreateActivationDescriptor(&cudnn->activation);
    if (s == CUDNN_STATUS_SUCCESS)
        s = libs->cudnnCreateConvolutionDescriptor(&cudnn->conv);
    return s;
}

static cudnnStatus_t describe_tensors(lk_cuda_cudnn *cudnn)
{
    lk_cuda_libraries *libs = cudnn->libs;
    const lk_cuda_problem *p = &cudnn->problem;
    cudnnDataType_t type = p->values == LK_DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    cudnnStatus_t s = libs->cudnnSetTensor4dDescriptor(cudnn->x, CUDNN_TENSOR_NHWC, type, p->n, p->x_pitch, p->h, p->w);
    if (s == CUDNN_STATUS_SUCCESS)
        s = libs->cudnnSetTensor4dDescriptor(cudnn->y, CUDNN_TENSOR_NHWC, type, p->n, p->y_pitch, p->p, p->q);
    if (s == CUDNN_STATUS_SUCCESS)
        s = libs->cudnnSetTensor4dDescriptor(cudnn->bias, CUDNN_TENSOR_NHWC, type, 1, p->y_pitch, 1, 1);
    if (s == CUDNN_STATUS_SUCCESS)
        s = libs->cudnnSetFilter4dDescriptor(cudnn->w, type, CUDNN_TENSOR_NHWC, p->y_pitch, lk__cuda_depth(p),
                                             p->along_h.kernel, p->along_w.kernel);
    if (s == CUDNN_STATUS_SUCCESS)
        s = libs->cudnnSetActivationDescriptor(cudnn->activation, CUDNN_ACTIVATION_IDENTITY, CUDNN_NOT_PROPAGATE_NAN,
                                               0.0);
    return s;
}

static cudnnStatus_t describe_convolution(lk_cuda_cudnn *cudnn)
{
    lk_cuda_libraries *libs = cudnn->libs;
    const lk_cuda_problem *p = &cudnn->problem;
    cudnnMathType_t math = p->precision == LK_PRECISION_FP32   ? CUDNN_FMA_MATH
                           : p->precision == LK_PRECISION_BF16 ? CUDNN_TENSOR_OP_MATH
                                                               : CUDNN_DEFAULT_MATH;
    const lk_cuda_window *h = &p->along_h, *w = &p->along_w;
    cudnnStatus_t s =
        libs->cudnnSetConvolution2dDescriptor(cudnn->conv, h->pad, w->pad, h->stride, w->stride, h->dilation,
                                              w->dilation, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    if (s == CUDNN_STATUS_SUCCESS && p->groups > 1)
        s = libs->cudnnSetConvolutionGroupCount(cudnn->conv, p->groups);
    if (s == CUDNN_STATUS_SUCCESS)
        s = libs->cudnnSetConvolutionMathType(cudnn->conv, math);
    return s;
}

static cudnnStatus_t workspace_of(const lk_cuda_cudnn *cudnn, int algo, size_t *bytes)
{
    lk_cuda_libraries *libs = cudnn->libs;
    switch (cudnn->problem.pass) {
    case LK_CUDA_PASS_FORWARD:
        return libs->cudnnGetConvolutionForwardWorkspaceSize(libs->cudnn, cudnn->x, cudnn->w, cudnn->conv, cudnn->y,
                                                             (cudnnConvolutionFwdAlgo_t)algo, bytes);
    case LK_CUDA_PASS_GRAD_INPUT:
        return libs->cudnnGetConvolutionBackwardDataWorkspaceSize(libs->cudnn, cudnn->w, cudnn->y, cudnn->conv,
                                                                  cudnn->x, (cudnnConvolutionBwdDataAlgo_t)algo, bytes);
    default:
        return libs->cudnnGetConvolutionBackwardFilterWorkspaceSize(
            libs->cudnn, cudnn->x, cudnn->y, cudnn->conv, cudnn->w, (cudnnConvolutionBwdFilterAlgo_t)algo, bytes);
    }
}

/* Appends an algorithm if it is deterministic, has the right precision and stays within the limit. */
static void consider(lk_cuda_cudnn *cudnn, int algo, cudnnStatus_t offered, cudnnDeterminism_t determinism,
                     cudnnMathType_t math)
{
    if (offered != CUDNN_STATUS_SUCCESS || determinism != CUDNN_DETERMINISTIC || cudnn->count == MOST_CANDIDATES)
        return;
    if (cudnn->problem.precision == LK_PRECISION_FP32) {
        if (math != CUDNN_FMA_MATH && math != CUDNN_DEFAULT_MATH)
            return;
        math = CUDNN_FMA_MATH;
    }
    for (int i = 0; i < cudnn->count; i++)
        if (cudnn->list[i].algo == algo && cudnn->list[i].math == math)
            return;
    size_t bytes = 0;
    if (cudnn->libs->cudnnSetConvolutionMathType(cudnn->conv, math) != CUDNN_STATUS_SUCCESS ||
        workspace_of(cudnn, algo, &bytes) != CUDNN_STATUS_SUCCESS || bytes > most_workspace)
        return;
    cudnn->list[cudnn->count++] = (candidate){.algo = algo, .math = math, .workspace = bytes};
}

static void list_forward(lk_cuda_cudnn *cudnn)
{
    lk_cuda_libraries *libs = cudnn->libs;
    cudnnConvolutionFwdAlgoPerf_t list[MOST_CANDIDATES];
    int count = 0;
    if (libs->cudnnGetConvolutionForwardAlgorithm_v7(libs->cudnn, cudnn->x, cudnn->w, cudnn->conv, cudnn->y,
                                                     MOST_CANDIDATES, &count, list) == CUDNN_STATUS_SUCCESS)
        for (int i = 0; i < count; i++)
            consider(cudnn, (int)list[i].algo, list[i].status, list[i].determinism, list[i].mathType);
}

static void list_grad_input(lk_cuda_cudnn *cudnn)
{
    lk_cuda_libraries *libs = cudnn->libs;
    cudnnConvolutionBwdDataAlgoPerf_t list[MOST_CANDIDATES];
    int count = 0;
    if (libs->cudnnGetConvolutionBackwardDataAlgorithm_v7(libs->cudnn, cudnn->w, cudnn->y, cudnn->conv, cudnn->x,
                                                          MOST_CANDIDATES, &count, list) == CUDNN_STATUS_SUCCESS)
        for (int i = 0; i < count; i++)
            consider(cudnn, (int)list[i].algo, list[i].status, list[i].determinism, list[i].mathType);
}

static void list_grad_weight(lk_cuda_cudnn *cudnn)
{
    lk_cuda_libraries *libs = cudnn->libs;
    cudnnConvolutionBwdFilterAlgoPerf_t list[MOST_CANDIDATES];
    int count = 0;
    if (libs->cudnnGetConvolutionBackwardFilterAlgorithm_v7(libs->cudnn, cudnn->x, cudnn->y, cudnn->conv, cudnn->w,
                                                            MOST_CANDIDATES, &count, list) == CUDNN_STATUS_SUCCESS)
        for (int i = 0; i < count; i++)
            consider(cudnn, (int)list[i].algo, list[i].status, list[i].determinism, list[i].mathType);
}

/* Chooses the first algorithm of the list, from `first` on, that cuDNN accepts. */
static void take(lk_cuda_cudnn *cudnn, int first)
{
    cudnn->at = first;
    while (cudnn->at < cudnn->count &&
           cudnn->libs->cudnnSetConvolutionMathType(cudnn->conv, cudnn->list[cudnn->at].math) != CUDNN_STATUS_SUCCESS)
        cudnn->at++;
}

static lk_status choose(lk_cuda_cudnn *cudnn)
{
    static void (*const lists[])(lk_cuda_cudnn *) = {[LK_CUDA_PASS_FORWARD] = list_forward,
                                                     [LK_CUDA_PASS_GRAD_INPUT] = list_grad_input,
                                                     [LK_CUDA_PASS_GRAD_WEIGHT] = list_grad_weight};
    cudnnStatus_t s = create_descriptors(cudnn);
    if (s == CUDNN_STATUS_SUCCESS)
        s = describe_tensors(cudnn);
    if (s == CUDNN_STATUS_SUCCESS)
        s = describe_convolution(cudnn);
    if (s != CUDNN_STATUS_SUCCESS)
        return failure(cudnn, "description of a convolution", s);
    lists[cudnn->problem.pass](cudnn);
    take(cudnn, 0);
    return LK_OK;
}

lk_status lk__cuda_cudnn_create(lk_cuda_libraries *libs, const lk_cuda_problem *problem, lk_cuda_cudnn **out)
{
    lk_cuda_cudnn *cudnn;
    LK_TRY(lk__cuda_libraries_cudnn(libs));
    LK_TRY(LK_ALLOC(1, "the plan of a convolution", &cudnn));
    cudnn->libs = libs;
    cudnn->problem = *problem;
    cudnn->fused = problem->bias;
    lk_status status = choose(cudnn);
    if (status != LK_OK || cudnn->at == cudnn->count) {
        lk__cuda_cudnn_destroy(cudnn);
        cudnn = NULL;
    }
    if (status == LK_OK)
        *out = cudnn;
    return status;
}

void lk__cuda_cudnn_destroy(lk_cuda_cudnn *cudnn)
{
    if (!cudnn)
        return;
    lk_cuda_libraries *libs = cudnn->libs;
    if (cudnn->x)
        (void)libs->cudnnDestroyTensorDescriptor(cudnn->x);
    if (cudnn->y)
        (void)libs->cudnnDestroyTensorDescriptor(cudnn->y);
    if (cudnn->bias)
        (void)libs->cudnnDestroyTensorDescriptor(cudnn->bias);
    if (cudnn->w)
        (void)libs->cudnnDestroyFilterDescriptor(cudnn->w);
    if (cudnn->activation)
        (void)libs->cudnnDestroyActivationDescriptor(cudnn->activation);
    if (cudnn->conv)
        (void)libs->cudnnDestroyConvolutionDescriptor(cudnn->conv);
    lk__mem_free(cudnn);
}

/* Errors that may be gone the next time and so must not change the choice. */
static bool is_passing(cudnnStatus_t s)
{
    return s == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
           s == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

/* Whether s means that cuDNN does not support this at all. After the algorithm has run once, every error is a
 * fault. */
static bool is_refusal(const lk_cuda_cudnn *cudnn, cudnnStatus_t s)
{
    if (s == CUDNN_STATUS_SUCCESS || cudnn->proven || is_passing(s))
        return false;
    (void)cudaGetLastError(); /* clears the error of the attempt */
    return true;
}

/* The forward pass with bias and ReLU in one call. */
static cudnnStatus_t forward_fused(lk_cuda_cudnn *cudnn, const lk_cuda_io *io, void *workspace)
{
    lk_cuda_libraries *libs = cudnn->libs;
    const candidate *c = &cudnn->list[cudnn->at];
    return libs->cudnnConvolutionBiasActivationForward(
        libs->cudnn, &one, cudnn->x, io->x, cudnn->w, io->w, cudnn->conv, (cudnnConvolutionFwdAlgo_t)c->algo, workspace,
        c->workspace, &zero, cudnn->y, io->y, cudnn->bias, io->b, cudnn->activation, cudnn->y, io->y);
}

static cudnnStatus_t set_activation(const lk_cuda_cudnn *cudnn, cudnnActivationMode_t mode, cudnnNanPropagation_t nan)
{
    return cudnn->libs->cudnnSetActivationDescriptor(cudnn->activation, mode, nan, 0.0);
}

/* Sets this form of cuDNN's ReLU; *passes: it runs and passes NaN. */
static lk_status try_relu(lk_cuda_cudnn *cudnn, const lk_cuda_io *io, cudnnNanPropagation_t form, bool *passes)
{
    lk_cuda_io nan;
    void *workspace;
    *passes = false;
    LK_TRY(lk__cuda_nan_bias(&cudnn->problem, io, cudnn->list[cudnn->at].workspace, &nan, &workspace));
    cudnnStatus_t s = set_activation(cudnn, CUDNN_ACTIVATION_RELU, form);
    if (s == CUDNN_STATUS_SUCCESS)
        s = forward_fused(cudnn, &nan, workspace);
    if (s == CUDNN_STATUS_SUCCESS)
        return lk__cuda_passed_nan(&cudnn->problem, io, passes);
    (void)cudaGetLastError(); /* clears the error of the attempt */
    return LK_OK;
}

/* cuDNN documents that one form of its ReLU drops NaN, and sometimes refuses the other. If neither passes NaN,
 * an own kernel computes the ReLU. */
static lk_status choose_relu(lk_cuda_cudnn *cudnn, const lk_cuda_io *io)
{
    bool passes;
    LK_TRY(try_relu(cudnn, io, CUDNN_PROPAGATE_NAN, &passes));
    if (!passes)
        LK_TRY(try_relu(cudnn, io, CUDNN_NOT_PROPAGATE_NAN, &passes));
    cudnn->asked = true;
    cudnn->own_relu = !passes;
    cudnnStatus_t s = CUDNN_STATUS_SUCCESS;
    if (!passes)
        s = set_activation(cudnn, CUDNN_ACTIVATION_IDENTITY, CUDNN_NOT_PROPAGATE_NAN);
    return s == CUDNN_STATUS_SUCCESS ? LK_OK : failure(cudnn, "description of a convolution", s);
}

/* The bias by cuDNN, the ReLU by cuDNN or by an own kernel. */
static cudnnStatus_t forward_in_one(lk_cuda_cudnn *cudnn, const lk_cuda_io *io, void *workspace)
{
    cudnnStatus_t s = forward_fused(cudnn, io, workspace);
    lk_cuda_io biased = *io;
    biased.b = NULL;
    if (s == CUDNN_STATUS_SUCCESS && cudnn->own_relu)
        lk__cuda_bias_relu(&cudnn->problem, &biased);
    return s;
}

static cudnnStatus_t forward(lk_cuda_cudnn *cudnn, const lk_cuda_io *io, void *workspace)
{
    lk_cuda_libraries *libs = cudnn->libs;
    const candidate *c = &cudnn->list[cudnn->at];
    bool identity = !cudnn->problem.relu || cudnn->own_relu;
    cudnnStatus_t s;
    /* Only one algorithm accepts the identity. */
    if (cudnn->fused && (!identity || c->algo == (int)CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)) {
        s = forward_in_one(cudnn, io, workspace);
        if (!is_refusal(cudnn, s))
            return s;
        cudnn->fused = false;
    }
    s = libs->cudnnConvolutionForward(libs->cudnn, &one, cudnn->x, io->x, cudnn->w, io->w, cudnn->conv,
                                      (cudnnConvolutionFwdAlgo_t)c->algo, workspace, c->workspace, &zero, cudnn->y,
                                      io->y);
    if (s == CUDNN_STATUS_SUCCESS && (cudnn->problem.bias || cudnn->problem.relu))
        lk__cuda_bias_relu(&cudnn->problem, io);
    return s;
}

static cudnnStatus_t grad_input(lk_cuda_cudnn *cudnn, const lk_cuda_io *io, void *workspace)
{
    lk_cuda_libraries *libs = cudnn->libs;
    const candidate *c = &cudnn->list[cudnn->at];
    return libs->cudnnConvolutionBackwardData(libs->cudnn, &one, cudnn->w, io->w, cudnn->y, io->dy, cudnn->conv,
                                              (cudnnConvolutionBwdDataAlgo_t)c->algo, workspace, c->workspace, &zero,
                                              cudnn->x, io->dx);
}

/* Bytes of the weight gradient in bf16, which comes before the algorithm's workspace. The gradient is widened
 * here, because cuDNN takes 7 to 10 times as long for an f32 result of bf16 inputs. */
static size_t narrow_bytes(const lk_cuda_problem *problem)
{
    if (problem->pass != LK_CUDA_PASS_GRAD_WEIGHT || problem->values != LK_DTYPE_BF16)
        return 0;
    return lk__size_round_up(lk__cuda_weights(problem) * lk_dtype_size(LK_DTYPE_BF16), WORKSPACE_ALIGN);
}

static cudnnStatus_t grad_weight(lk_cuda_cudnn *cudnn, const lk_cuda_io *io, void *workspace)
{
    lk_cuda_libraries *libs = cudnn->libs;
    const candidate *c = &cudnn->list[cudnn->at];
    size_t narrow = narrow_bytes(&cudnn->problem);
    void *dw = narrow ? workspace : io->dw, *room = c->workspace ? (char *)workspace + narrow : NULL;
    cudnnStatus_t s = libs->cudnnConvolutionBackwardFilter(libs->cudnn, &one, cudnn->x, io->x, cudnn->y, io->dy,
                                                           cudnn->conv, (cudnnConvolutionBwdFilterAlgo_t)c->algo, room,
                                                           c->workspace, &zero, cudnn->w, dw);
    if (s == CUDNN_STATUS_SUCCESS && narrow)
        lk__cuda_widen(&cudnn->problem, io, dw);
    return s;
}

lk_status lk__cuda_cudnn_run(lk_cuda_cudnn *cudnn, const lk_cuda_io *io, bool *refused)
{
    static cudnnStatus_t (*const passes[])(lk_cuda_cudnn *, const lk_cuda_io *,
                                           void *) = {[LK_CUDA_PASS_FORWARD] = forward,
                                                      [LK_CUDA_PASS_GRAD_INPUT] = grad_input,
                                                      [LK_CUDA_PASS_GRAD_WEIGHT] = grad_weight};
    const lk_cuda_problem *problem = &cudnn->problem;
    cudnnStatus_t s = cudnn->libs->cudnnSetStream(cudnn->libs->cudnn, io->stream);
    if (s != CUDNN_STATUS_SUCCESS)
        return failure(cudnn, "stream", s);
    while (cudnn->at < cudnn->count) {
        void *workspace;
        if (problem->pass == LK_CUDA_PASS_FORWARD && problem->relu && cudnn->fused && !cudnn->asked)
            LK_TRY(choose_relu(cudnn, io));
        LK_TRY(lk__cuda_workspace(io, narrow_bytes(problem) + cudnn->list[cudnn->at].workspace, &workspace));
        s = passes[problem->pass](cudnn, io, workspace);
        if (s == CUDNN_STATUS_SUCCESS) {
            cudnn->proven = true;
            return LK_OK;
        }
        if (!is_refusal(cudnn, s))
            return failure(cudnn, "convolution", s);
        take(cudnn, cudnn->at + 1);
        cudnn->asked = false;
    }
    *refused = true;
    return LK_OK;
}
