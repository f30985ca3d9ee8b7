/* record.c - whole steps as CUDA graphs. */
#include <string.h>

#include "base/mem.h"
#include "tensor/cuda/record.h"

struct lk_recording {
    cudaGraphExec_t graph;
};

static lk_status check(lk_device *dev, cudaError_t error, const char *what)
{
    return lk__cuda_keep(dev, error, what) ? LK_OK : dev->type->sync(dev);
}

/* Ends the capture in any case. */
static lk_status capture(lk_device *dev, lk_status (*work)(void *arg), void *arg, cudaGraph_t *out)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    LK_TRY(check(dev, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording a step"));
    lk_status status = work(arg);
    (void)lk__cuda_stream(dev); /* the side stream is a part of it */
    cudaError_t error = cudaStreamEndCapture(stream, out);
    return status == LK_OK ? check(dev, error, "recording a step") : status;
}

lk_status lk__cuda_record(lk_device *dev, lk_status (*work)(void *arg), void *arg, lk_recording **out)
{
    lk_recording *recording;
    cudaGraph_t graph = NULL;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "a recorded step", &recording));
    LK_TRY_GOTO(capture(dev, work, arg, &graph), free_recording);
    LK_TRY_GOTO(check(dev, cudaGraphInstantiate(&recording->graph, graph, 0), "recording a step"), destroy_graph);
    (void)cudaGraphDestroy(graph);
    *out = recording;
    return LK_OK;

destroy_graph:
    (void)cudaGraphDestroy(graph);
free_recording:
    lk__free(recording);
    return status;
}

lk_status lk__cuda_play(lk_device *dev, lk_recording *recording)
{
    return check(dev, cudaGraphLaunch(recording->graph, lk__cuda_stream(dev)), "a recorded step");
}

void lk__cuda_forget(lk_device *dev, lk_recording *recording)
{
    (void)dev->type->sync(dev);
    (void)cudaGraphExecDestroy(recording->graph);
    lk__free(recording);
}

lk_status lk__cuda_alloc_host(lk_device *dev, size_t bytes, const char *what, void **out)
{
    cudaError_t error = cudaHostAlloc(out, bytes, cudaHostAllocMapped);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return lk__fail_memory(bytes, what);
    }
    (void)dev;
    memset(*out, 0, bytes);
    return LK_OK;
}

void lk__cuda_free_host(lk_device *dev, void *block)
{
    (void)dev;
    (void)cudaFreeHost(block);
}
