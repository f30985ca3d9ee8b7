/* channel.h - common to the channels of CUDA devices: a stream of their own, ordered against the device's
 * stream by events. The functions are slots of lk_channel_type. */
#ifndef LK_TENSOR_CUDA_RUNTIME_CHANNEL_H
#define LK_TENSOR_CUDA_RUNTIME_CHANNEL_H

#include "tensor/channel.h"
#include "tensor/cuda/runtime/cuda.h"

/* The first member of a channel's own struct. */
struct lk_channel {
    lk_cuda_device *cuda;
    lk_channel_opts opts;
    bool lost; /* it failed, or give_up was called */
    cudaStream_t stream;
    cudaEvent_t order;  /* event that orders the two streams */
    cudaEvent_t *marks; /* (opts.marks) */
};

/* The preferred channel first, NULL after the last. */
extern const lk_channel_type *const lk__cuda_channels[];
extern const lk_channel_type lk__cuda_channel_ipc, lk__cuda_channel_nccl;

/* "GPU <its id>", equal for all ranks that use this GPU. */
lk_status lk__cuda_channel_device_id(lk_device *dev, char device_id[LK_CHANNEL_DEVICE_ID]) LK_CHECKED;

/* The caller calls fini also if init fails. */
lk_status lk__cuda_channel_init(lk_device *dev, const lk_channel_opts *opts, lk_channel *channel) LK_CHECKED;
void lk__cuda_channel_fini(lk_channel *channel);
/* Fails if the channel is lost; otherwise makes the device current. */
lk_status lk__cuda_channel_use(const lk_channel *channel) LK_CHECKED;

lk_status lk__cuda_channel_follow(lk_channel *channel) LK_CHECKED;
lk_status lk__cuda_channel_add(lk_channel *channel, size_t count, const float *a, const float *b,
                               float *out) LK_CHECKED;
lk_status lk__cuda_channel_mark(lk_channel *channel, int mark) LK_CHECKED;
lk_status lk__cuda_channel_lead(lk_channel *channel, int mark) LK_CHECKED;
lk_status lk__cuda_channel_reached(lk_channel *channel, int mark, bool *done) LK_CHECKED;

#endif
