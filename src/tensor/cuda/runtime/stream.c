/* stream.c - the device's two streams: errors of CUDA calls, order between the streams, waiting. */
#include <stdio.h>

#include "tensor/cuda/runtime/memory.h"
#include "tensor/cuda/runtime/query.h"

/* Advice to the user for an error. */
static const char *hint(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation         ? "; 'nvidia-smi' shows who uses its memory"
           : error == cudaErrorDevicesUnavailable     ? "; 'nvidia-smi' shows who has it for itself"
           : error == cudaErrorNoKernelImageForDevice ? "; this build has no kernels for it: build one with "
                                                        "-DLK_CUDA_ARCHS of its compute capability ('lockstep info')"
                                                      : "";
}

lk_status lk__cuda_status(lk_device *dev, cudaError_t error, const char *what)
{
    char title[LK_CUDA_TITLE];
    if (error == cudaSuccess)
        return LK_OK;
    (void)cudaGetLastError();
    lk_status status = error == cudaErrorMemoryAllocation         ? LK_STATUS_MEMORY
                       : error == cudaErrorNoKernelImageForDevice ? LK_STATUS_UNSUPPORTED
                                                                  : LK_STATUS_IO;
    return lk__fail(status, "%s: %s failed: %s (%s)%s", lk__cuda_title(((lk_cuda_device *)dev)->index, title), what,
                    cudaGetErrorString(error), cudaGetErrorName(error), hint(error));
}

bool lk__cuda_keep_status(lk_device *dev, lk_status status)
{
    lk_cuda_device *cuda = (lk_cuda_device *)dev;
    if (status != LK_OK && cuda->failed == LK_OK) {
        cuda->failed = status;
        snprintf(cuda->reason, sizeof cuda->reason, "%s", lk_error_detail());
    }
    return status == LK_OK;
}

bool lk__cuda_keep(lk_device *dev, cudaError_t error, const char *what)
{
    return error == cudaSuccess || lk__cuda_keep_status(dev, lk__cuda_status(dev, error, what));
}

lk_status lk__cuda_use(lk_device *dev)
{
    return lk__cuda_status(dev, cudaSetDevice(((lk_cuda_device *)dev)->index), "choosing the device");
}

/* Makes `after` wait for all work enqueued on `before`. */
static void order(lk_device *dev, cudaStream_t before, cudaEvent_t event, cudaStream_t after)
{
    if (lk__cuda_keep(dev, cudaEventRecord(event, before), "recording an event"))
        (void)lk__cuda_keep(dev, cudaStreamWaitEvent(after, event, 0), "ordering two streams");
}

cudaStream_t lk__cuda_beside(lk_device *dev)
{
    /* A thread may have several devices open. */
    (void)lk__cuda_keep_status(dev, lk__cuda_use(dev));
    return ((lk_cuda_device *)dev)->stream;
}

cudaStream_t lk__cuda_stream(lk_device *dev)
{
    lk_cuda_device *cuda = (lk_cuda_device *)dev;
    cudaStream_t stream = lk__cuda_beside(dev);
    if (cuda->side_busy)
        order(dev, cuda->side, cuda->joined, stream);
    cuda->side_busy = cuda->side_folds = false;
    cuda->side_dy = NULL;
    return stream;
}

void lk__cuda_side_multiplied(lk_device *dev)
{
    lk_cuda_device *cuda = (lk_cuda_device *)dev;
    cuda->side_folds = lk__cuda_keep(dev, cudaEventRecord(cuda->multiplied, cuda->side), "recording an event");
    cuda->side_awaited = false;
}

cudaStream_t lk__cuda_ahead(lk_device *dev)
{
    lk_cuda_device *cuda = (lk_cuda_device *)dev;
    if (!cuda->side_folds)
        return lk__cuda_stream(dev);
    cudaStream_t stream = lk__cuda_beside(dev);
    /* A second wait would keep the kernel behind it from starting early. */
    if (!cuda->side_awaited)
        cuda->side_awaited =
            lk__cuda_keep(dev, cudaStreamWaitEvent(stream, cuda->multiplied, 0), "ordering two streams");
    return stream;
}

cudaStream_t lk__cuda_beside_own(lk_device *dev, const void *dy)
{
    lk_cuda_device *cuda = (lk_cuda_device *)dev;
    bool own = cuda->side_dy == dy;
    cuda->side_dy = NULL;
    return own ? lk__cuda_beside(dev) : lk__cuda_ahead(dev);
}

cudaStream_t lk__cuda_fork(lk_device *dev, const void *dy)
{
    lk_cuda_device *cuda = (lk_cuda_device *)dev;
    /* Only one layer's work may run beside the main stream: later, memory that the layer reads may have been
     * reused. */
    order(dev, lk__cuda_stream(dev), cuda->forked, cuda->side);
    cuda->side_busy = true;
    cuda->side_dy = dy;
    return cuda->side;
}

lk_status lk__cuda_fault(lk_device *dev)
{
    lk_cuda_device *cuda = (lk_cuda_device *)dev;
    lk_status status = cuda->failed;
    cuda->failed = LK_OK;
    return status == LK_OK ? LK_OK : lk__fail(status, "%s", cuda->reason);
}

lk_status lk__cuda_sync(lk_device *dev)
{
    (void)lk__cuda_keep(dev, cudaStreamSynchronize(lk__cuda_stream(dev)), "work that was enqueued");
    return lk__cuda_fault(dev);
}

lk_status lk__cuda_poll(lk_device *dev, bool *idle)
{
    cudaError_t error = cudaStreamQuery(lk__cuda_beside(dev));
    *idle = error != cudaErrorNotReady;
    if (*idle)
        (void)lk__cuda_keep(dev, error, "work that was enqueued");
    return lk__cuda_fault(dev);
}
