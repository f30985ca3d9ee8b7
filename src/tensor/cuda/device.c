/* device.c - the CUDA device: opening and closing, its two streams, faults.
 *
 * Nothing happens before open: ranks are forked, and a process that has started
 * CUDA cannot hand it to its children. */
#include <stdio.h>

#include "base/mem.h"
#include "tensor/cuda/channel.h"
#include "tensor/cuda/memory.h"
#include "tensor/cuda/plans.h"
#include "tensor/cuda/query.h"
#include "tensor/cuda/record.h"

/* What to do about it. */
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

/* Makes `after` wait for all that `before` has been given. */
static void order(lk_device *dev, cudaStream_t before, cudaEvent_t event, cudaStream_t after)
{
    if (lk__cuda_keep(dev, cudaEventRecord(event, before), "marking a place in a stream"))
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
    cuda->side_busy = false;
    return stream;
}

cudaStream_t lk__cuda_fork(lk_device *dev)
{
    lk_cuda_device *cuda = (lk_cuda_device *)dev;
    /* The main stream does not go on beside work of two layers: what the first one
     * reads may have been given away by then. */
    order(dev, lk__cuda_stream(dev), cuda->forked, cuda->side);
    cuda->side_busy = true;
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

/* Waiting spins while there is a core for every thread, since being woken takes as long
 * as a short step does (so no cudaDeviceScheduleBlockingSync); otherwise it gives the
 * core away. CUDA's own choice knows the threads of this process alone. */
static unsigned how_to_wait(const lk_device_opts *opts)
{
    return opts->crowded ? cudaDeviceScheduleYield : cudaDeviceScheduleSpin;
}

static cudaError_t create_streams(lk_cuda_device *cuda)
{
    cudaError_t error = cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&cuda->side, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaEventCreateWithFlags(&cuda->forked, cudaEventDisableTiming);
    if (error == cudaSuccess)
        error = cudaEventCreateWithFlags(&cuda->joined, cudaEventDisableTiming);
    return error;
}

static lk_status start(lk_cuda_device *cuda, const lk_device_opts *opts)
{
    lk_device *dev = &cuda->base;
    LK_TRY(lk__cuda_status(dev, cudaSetDevice(cuda->index), "opening the device"));
    LK_TRY(lk__cuda_status(dev, cudaSetDeviceFlags(how_to_wait(opts)), "opening the device"));
    LK_TRY(lk__cuda_status(dev, create_streams(cuda), "creating streams"));
    LK_TRY(lk__cuda_staging_create(dev, &cuda->staging));
    LK_TRY(lk__cuda_workspace_create(&cuda->workspace));
    LK_TRY(lk__cuda_workspace_create(&cuda->side_workspace));
    return lk__cuda_plans_create(&cuda->plans);
}

/* Of a device that was opened in part, too. Other ranks of this process may use the
 * same GPU, so what was made is given back one by one. */
static void cuda_close(lk_device *dev)
{
    lk_cuda_device *cuda = (lk_cuda_device *)dev;
    (void)cudaSetDevice(cuda->index);
    if (cuda->stream)
        (void)cudaStreamSynchronize(cuda->stream);
    if (cuda->side)
        (void)cudaStreamSynchronize(cuda->side);
    lk__cuda_plans_destroy(cuda->plans);
    lk__cuda_libraries_fini(&cuda->libraries);
    lk__free(cuda->nccl);
    lk__cuda_workspace_destroy(dev, cuda->side_workspace);
    lk__cuda_workspace_destroy(dev, cuda->workspace);
    lk__cuda_staging_destroy(cuda->staging);
    if (cuda->joined)
        (void)cudaEventDestroy(cuda->joined);
    if (cuda->forked)
        (void)cudaEventDestroy(cuda->forked);
    if (cuda->side)
        (void)cudaStreamDestroy(cuda->side);
    if (cuda->stream)
        (void)cudaStreamDestroy(cuda->stream);
    (void)cudaGetLastError();
    lk__free(cuda);
}

static lk_status check(int index)
{
    char why[1024];
    lk_status status = lk__cuda_check(index);
    if (status == LK_OK)
        return LK_OK;
    snprintf(why, sizeof why, "%s", lk_error_detail());
    return lk__fail(status, "%s; '--devices cpu' needs no GPU", why);
}

static lk_status cuda_open(const lk_device_opts *opts, lk_device **out)
{
    lk_cuda_device *cuda;
    LK_TRY(check(opts->index));
    LK_TRY(LK_ALLOC(1, "device", &cuda));
    cuda->base = (lk_device){.type = &lk__cuda_device, .kernels = &lk__cuda_kernels};
    cuda->base.values = opts->precision == LK_PRECISION_BF16 ? LK_DTYPE_BF16 : LK_DTYPE_F32;
    cuda->index = opts->index;
    cuda->precision = opts->precision;
    lk_status status = start(cuda, opts);
    if (status != LK_OK) {
        cuda_close(&cuda->base);
        return status;
    }
    *out = &cuda->base;
    return LK_OK;
}

const lk_device_type lk__cuda_device = {
    .name = "cuda",
    .by_shard = true,
    .flat_views = true,
    .loss_views = true,
    .most_samples = 65535,
    .prompt_upload = LK_CUDA_PROMPT_UPLOAD,
    .pitch = lk__cuda_pitch,
    .weight_count = lk__cuda_weight_count,
    .pack = lk__cuda_pack,
    .unpack = lk__cuda_unpack,
    .count = lk__cuda_count,
    .probe = lk__cuda_probe,
    .open = cuda_open,
    .close = cuda_close,
    .alloc = lk__cuda_alloc,
    .free = lk__cuda_free,
    .room = lk__cuda_room,
    .upload = lk__cuda_upload,
    .download = lk__cuda_download,
    .sync = lk__cuda_sync,
    .record = lk__cuda_record,
    .play = lk__cuda_play,
    .forget = lk__cuda_forget,
    .poll = lk__cuda_poll,
    .alloc_host = lk__cuda_alloc_host,
    .free_host = lk__cuda_free_host,
    .channels = lk__cuda_channels,
    .describe = lk__cuda_describe,
};
