/* record.c - recorded steps as CUDA graphs. */
#include <string.h>

#include "base/mem.h"
#include "tensor/cuda/runtime/memory.h"
#include "tensor/cuda/runtime/record.h"

struct lk_device_recording {
    cudaGraphExec_t graph;
};

/* Always ends the capture. A slot that failed has not enqueued its work. */
static lk_status capture(lk_device *dev, lk_status (*work)(void *arg), void *arg, cudaGraph_t *out)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    LK_TRY(lk__cuda_status(dev, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording a step"));
    (void)lk__cuda_keep_status(dev, work(arg));
    (void)lk__cuda_stream(dev); /* joins the side stream */
    (void)lk__cuda_keep(dev, cudaStreamEndCapture(stream, out), "recording a step");
    return lk__cuda_fault(dev);
}

lk_status lk__cuda_record(lk_device *dev, lk_status (*work)(void *arg), void *arg, lk_device_recording **out)
{
    lk_device_recording *recording;
    cudaGraph_t graph = NULL;
    LK_TRY(lk__cuda_sync(dev));
    LK_TRY(LK_ALLOC(1, "a recorded step", &recording));
    lk_status status = capture(dev, work, arg, &graph);
    if (status == LK_OK)
        status = lk__cuda_status(dev, cudaGraphInstantiate(&recording->graph, graph, 0), "recording a step");
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (status != LK_OK) {
        lk__mem_free(recording);
        return status;
    }
    *out = recording;
    return LK_OK;
}

lk_status lk__cuda_play(lk_device *dev, lk_device_recording *recording)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    return lk__cuda_status(dev, cudaGraphLaunch(recording->graph, stream), "a recorded step");
}

void lk__cuda_forget(lk_device *dev, lk_device_recording *recording)
{
    if (!recording)
        return;
    /* The recording may be in progress; a fault stays kept. */
    (void)lk__cuda_keep(dev, cudaStreamSynchronize(lk__cuda_stream(dev)), "work that was enqueued");
    (void)cudaGraphExecDestroy(recording->graph);
    lk__mem_free(recording);
}

lk_status lk__cuda_alloc_host(lk_device *dev, size_t bytes, const char *what, void **out)
{
    void *block;
    LK_TRY(lk__cuda_use(dev));
    if (cudaHostAlloc(&block, bytes, cudaHostAllocMapped) != cudaSuccess) {
        (void)cudaGetLastError();
        return lk__fail_memory(bytes, what);
    }
    memset(block, 0, bytes);
    *out = block;
    return LK_OK;
}

void lk__cuda_free_host(lk_device *dev, void *block)
{
    (void)dev;
    (void)cudaFreeHost(block);
}
