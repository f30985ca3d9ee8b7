/* channel.c - the stream of a channel, and its order against the device's stream. */
#include "tensor/cuda/runtime/channel.h"

#include <stdio.h>

#include "base/mem.h"
#include "tensor/cuda/runtime/memory.h"

const lk_channel_type *const lk__cuda_channels[] = {
#ifdef LK_HAVE_NCCL
    &lk__cuda_channel_nccl,
#endif
    &lk__cuda_channel_ipc,
    NULL,
};

lk_status lk__cuda_channel_device_id(lk_device *dev, char device_id[LK_CHANNEL_DEVICE_ID])
{
    struct cudaDeviceProp props;
    char id[2 * sizeof props.uuid.bytes + 1];
    LK_TRY(lk__cuda_status(dev, cudaGetDeviceProperties(&props, ((lk_cuda_device *)dev)->index), "asking for its id"));
    for (size_t i = 0; i < sizeof props.uuid.bytes; i++)
        snprintf(id + 2 * i, 3, "%02x", (unsigned char)props.uuid.bytes[i]);
    snprintf(device_id, LK_CHANNEL_DEVICE_ID, "GPU %s", id);
    return LK_OK;
}

static cudaError_t create_events(lk_channel *channel)
{
    cudaError_t error = cudaStreamCreateWithFlags(&channel->stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaEventCreateWithFlags(&channel->order, cudaEventDisableTiming);
    for (int i = 0; error == cudaSuccess && i < channel->opts.marks; i++)
        error = cudaEventCreateWithFlags(&channel->marks[i], cudaEventDisableTiming);
    return error;
}

lk_status lk__cuda_channel_init(lk_device *dev, const lk_channel_opts *opts, lk_channel *channel)
{
    *channel = (lk_channel){.cuda = (lk_cuda_device *)dev, .opts = *opts};
    LK_TRY(lk__cuda_use(dev));
    LK_TRY(LK_ALLOC((size_t)opts->marks + 1, "a channel", &channel->marks));
    return lk__cuda_status(dev, create_events(channel), "creating streams");
}

void lk__cuda_channel_fini(lk_channel *channel)
{
    for (int i = 0; channel->marks && i < channel->opts.marks; i++) {
        if (channel->marks[i])
            (void)cudaEventDestroy(channel->marks[i]);
    }
    if (channel->order)
        (void)cudaEventDestroy(channel->order);
    if (channel->stream)
        (void)cudaStreamDestroy(channel->stream);
    (void)cudaGetLastError();
    lk__mem_free(channel->marks);
}

lk_status lk__cuda_channel_use(const lk_channel *channel)
{
    if (channel->lost)
        return lk__fail(LK_STATUS_IO, "cuda:%d: work between GPUs was given up after a failure", channel->cuda->index);
    return lk__cuda_use(&channel->cuda->base);
}

lk_status lk__cuda_channel_follow(lk_channel *channel)
{
    lk_device *dev = &channel->cuda->base;
    LK_TRY(lk__cuda_channel_use(channel));
    cudaStream_t before = lk__cuda_stream(dev);
    LK_TRY(lk__cuda_status(dev, cudaEventRecord(channel->order, before), "recording an event"));
    return lk__cuda_status(dev, cudaStreamWaitEvent(channel->stream, channel->order, 0), "ordering two streams");
}

lk_status lk__cuda_channel_add(lk_channel *channel, size_t count, const float *a, const float *b, float *out)
{
    LK_TRY(lk__cuda_channel_use(channel));
    if (count > 0)
        lk__cuda_add_on(&channel->cuda->base, channel->stream, count, a, b, out);
    return LK_OK;
}

lk_status lk__cuda_channel_mark(lk_channel *channel, int mark)
{
    LK_TRY(lk__cuda_channel_use(channel));
    return lk__cuda_status(&channel->cuda->base, cudaEventRecord(channel->marks[mark], channel->stream),
                           "recording an event");
}

lk_status lk__cuda_channel_lead(lk_channel *channel, int mark)
{
    lk_device *dev = &channel->cuda->base;
    LK_TRY(lk__cuda_channel_use(channel));
    return lk__cuda_status(dev, cudaStreamWaitEvent(lk__cuda_stream(dev), channel->marks[mark], 0),
                           "ordering two streams");
}

/* A mark that was recorded while the device records is captured: its event has no meaning outside of the
 * recording. */
lk_status lk__cuda_channel_reached(lk_channel *channel, int mark, bool *done)
{
    LK_TRY(lk__cuda_channel_use(channel));
    cudaError_t error = cudaEventQuery(channel->marks[mark]);
    *done = error != cudaErrorNotReady;
    if (error != cudaErrorNotReady && error != cudaErrorCapturedEvent)
        return lk__cuda_status(&channel->cuda->base, error, "work between GPUs");
    (void)cudaGetLastError();
    return LK_OK;
}
