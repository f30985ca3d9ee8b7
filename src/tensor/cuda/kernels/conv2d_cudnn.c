/* conv2d_cudnn.c - forward passes and input gradients of convolutions by cuDNN, by engines and knobs with the bits that
 * are pinned for the layer (pinned.h). */
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "tensor/cuda/kernels/bias.h"
#include "tensor/cuda/kernels/conv2d.h"
#include "tensor/cuda/kernels/conv2d_graph.h"
#include "tensor/cuda/kernels/pinned.h"

struct lk_cuda_cudnn {
    lk_cuda_libraries *libs;
    lk_cuda_problem problem; /* as the engine computes it: bias and relu are 0 if own kernels compute them */
    bool own_post;           /* they do */
    lk_cuda_choices offered; /* the candidates */
    int taken;               /* of them, for the next calls */
    lk_cuda_pinned pinned;
};

static lk_status failure(const lk_cuda_cudnn *cudnn, cudnnStatus_t failed)
{
    const lk_cuda_problem *p = &cudnn->problem;
    return lk__fail(lk__cuda_graph_lacks_memory(failed) ? LK_STATUS_MEMORY : LK_STATUS_UNSUPPORTED,
                    "cuDNN %zu: convolution: %s (%dx%d, channels %d to %d, kernel %dx%d, stride %dx%d, pad %dx%d, "
                    "dilation %dx%d, groups %d)",
                    cudnn->libs->cudnnGetVersion(), cudnn->libs->cudnnGetErrorString(failed), p->h, p->w, p->c, p->k,
                    p->along_h.kernel, p->along_w.kernel, p->along_h.stride, p->along_w.stride, p->along_h.pad,
                    p->along_w.pad, p->along_h.dilation, p->along_w.dilation, p->groups);
}

static lk_status prepare_call(void *layer, const lk_cuda_problem *problem, void **call)
{
    lk_cuda_cudnn *cudnn = layer;
    lk_cuda_problem part = cudnn->problem;
    lk_cuda_graph *graph;
    part.n = problem->n;
    LK_TRY(lk__cuda_graph_create(cudnn->libs, &part, &cudnn->offered.at[cudnn->taken], &graph));
    *call = graph;
    return LK_OK;
}

static size_t call_workspace(const void *call)
{
    return lk__cuda_graph_workspace(call);
}

static lk_status run_call(void *layer, void *call, const lk_cuda_problem *problem, const lk_cuda_io *io,
                          void *workspace)
{
    cudnnStatus_t status = lk__cuda_graph_run(call, io, workspace);
    (void)problem;
    return status == CUDNN_STATUS_SUCCESS ? LK_OK : failure(layer, status);
}

static void destroy_call(void *layer, void *call)
{
    (void)layer;
    lk__cuda_graph_destroy(call);
}

static lk_status passes_nan(void *layer, const lk_cuda_problem *problem, const lk_cuda_io *io, bool *out)
{
    const lk_cuda_cudnn *cudnn = layer;
    return !problem->relu ? LK_OK : lk__cuda_pinned_passes_nan(&cudnn->pinned, problem, io, out);
}

static void take(void *layer, int candidate)
{
    lk_cuda_cudnn *cudnn = layer;
    cudnn->taken = candidate;
}

static const lk_cuda_pinned_type calls = {
    .take = take,
    .suits = passes_nan,
    .prepare = prepare_call,
    .workspace = call_workspace,
    .run = run_call,
    .destroy = destroy_call,
};

lk_status lk__cuda_cudnn_create(lk_cuda_libraries *libs, const lk_cuda_problem *problem, lk_cuda_cudnn **out)
{
    lk_cuda_cudnn *cudnn;
    LK_TRY(lk__cuda_libraries_cudnn(libs));
    LK_TRY(LK_ALLOC(1, "the plan of a convolution", &cudnn));
    cudnn->libs = libs;
    cudnn->problem = *problem;
    cudnn->pinned = (lk_cuda_pinned){.type = &calls, .trial = &lk__cuda_trial, .layer = cudnn};
    *out = cudnn;
    return LK_OK;
}

void lk__cuda_cudnn_destroy(lk_cuda_cudnn *cudnn)
{
    if (!cudnn)
        return;
    lk__cuda_pinned_clear(&cudnn->pinned);
    lk__mem_free(cudnn);
}

/* Chooses among the engines that cuDNN offers for cudnn->problem, for a usual and for a large number of samples. */
static lk_status pin(lk_cuda_cudnn *cudnn, const lk_cuda_io *io)
{
    static const int samples[] = {64, 256};
    lk_cuda_problem asked = cudnn->problem;
    cudnn->offered.count = 0;
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        asked.n = samples[i];
        LK_TRY(lk__cuda_choices_add(cudnn->libs, &asked, &cudnn->offered));
    }
    lk__cuda_choices_sort(&cudnn->offered);
    return lk__cuda_pinned_choose(&cudnn->pinned, cudnn->offered.weight, cudnn->offered.count, &cudnn->problem, io);
}

/* Engines that add bias and ReLU come first, then those that do not. */
static lk_status choose_pinned(lk_cuda_cudnn *cudnn, const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    bool relu = problem->relu, post = problem->bias || relu;
    cudnn->problem.bias = problem->bias;
    cudnn->problem.relu = problem->relu;
    cudnn->own_post = relu && !cudnn->problem.bias;
    if (!cudnn->own_post)
        LK_TRY(pin(cudnn, io));
    if (cudnn->pinned.chosen || !post)
        return LK_OK;
    cudnn->problem.bias = cudnn->problem.relu = 0;
    cudnn->own_post = true;
    return pin(cudnn, io);
}

lk_status lk__cuda_cudnn_run(lk_cuda_cudnn *cudnn, const lk_cuda_problem *problem, const lk_cuda_io *io, bool *refused)
{
    if (!cudnn->pinned.chosen)
        LK_TRY(choose_pinned(cudnn, problem, io));
    *refused = !cudnn->pinned.chosen;
    if (*refused)
        return LK_OK;
    LK_TRY(lk__cuda_pinned_run(&cudnn->pinned, problem, io));
    if (cudnn->own_post)
        lk__cuda_bias_relu(problem, io);
    return LK_OK;
}

void lk__cuda_cudnn_describe(const lk_cuda_cudnn *cudnn, int n, char *text, size_t bytes)
{
    char parts[LK_CUDA_PINNED_TEXT];
    int candidate = lk__cuda_pinned_describe(&cudnn->pinned, &cudnn->problem, n, parts);
    snprintf(text, bytes, "cuDNN engine %" PRId64 ", %s", cudnn->offered.at[candidate].engine, parts);
}
