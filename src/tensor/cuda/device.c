/* device.c - the CUDA device: open, close, and the table of its functions.
 *
 * Nothing starts CUDA before open, because ranks are forked and a process that has started CUDA cannot pass it
 * on to its children. */
#include <stdio.h>

#include "base/mem.h"
#include "tensor/cuda/kernels/plans.h"
#include "tensor/cuda/runtime/channel.h"
#include "tensor/cuda/runtime/marks.h"
#include "tensor/cuda/runtime/memory.h"
#include "tensor/cuda/runtime/query.h"
#include "tensor/cuda/runtime/record.h"

/* Waiting spins while there is a core for every thread, because waking a thread takes as long as a short step
 * (so cudaDeviceScheduleBlockingSync is not used). Otherwise waiting yields the core. CUDA's own choice knows
 * the threads of this process only. */
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
        error = cudaEventCreateWithFlags(&cuda->multiplied, cudaEventDisableTiming);
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

/* Also closes a device that was opened in part. Other ranks of this process may use the same GPU, so everything
 * is freed one by one. */
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
    lk__mem_free(cuda->nccl);
    lk__cuda_workspace_destroy(dev, cuda->side_workspace);
    lk__cuda_workspace_destroy(dev, cuda->workspace);
    lk__cuda_staging_destroy(cuda->staging);
    lk__cuda_marks_destroy(cuda->marks);
    if (cuda->joined)
        (void)cudaEventDestroy(cuda->joined);
    if (cuda->multiplied)
        (void)cudaEventDestroy(cuda->multiplied);
    if (cuda->forked)
        (void)cudaEventDestroy(cuda->forked);
    if (cuda->side)
        (void)cudaStreamDestroy(cuda->side);
    if (cuda->stream)
        (void)cudaStreamDestroy(cuda->stream);
    (void)cudaGetLastError();
    lk__mem_free(cuda);
}

static lk_status check(int index)
{
    char why[1024];
    lk_status status = lk__cuda_check(index);
    if (status == LK_OK)
        return LK_OK;
    snprintf(why, sizeof why, "%s", lk_error_detail());
    return lk__fail(status, "%s; '`device` cpu' needs no GPU", why);
}

static lk_status cuda_open(const lk_device_opts *opts, lk_device **out)
{
    lk_cuda_device *cuda;
    LK_TRY(check(opts->index));
    LK_TRY(LK_ALLOC(1, "device", &cuda));
    cuda->base = (lk_device){.type = &lk__device_cuda, .kernels = &lk__cuda_kernels};
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

static bool cuda_address(int index, char out[LK_DEVICE_ADDRESS])
{
    bool known = cudaDeviceGetPCIBusId(out, LK_DEVICE_ADDRESS, index) == cudaSuccess;
    (void)cudaGetLastError();
    return known;
}

const lk_device_type lk__device_cuda = {
    .name = "cuda",
    .precision = LK_PRECISION_TF32CONV,
    .flat_views = true,
    .loss_views = true,
    .signs = true,
    .pools = lk__cuda_batchnorm_pools,
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
    .mark = lk__cuda_mark,
    .mark_time = lk__cuda_mark_time,
    .channels = lk__cuda_channels,
    .address = cuda_address,
    .facts = lk__cuda_facts,
    .describe = lk__cuda_describe,
    .explain = lk__cuda_explain,
};
