/* nccl.h - channels of CUDA devices, by NCCL.
 *
 * NCCL is opened at run time, by the first channel; its header is wanted at build time,
 * and without it devices have no channel. Two ranks may have one GPU where each has an
 * NCCL_HOSTID of its own in its environment, by which NCCL takes them to be on two
 * hosts. */
#ifndef LK_TENSOR_CUDA_NCCL_H
#define LK_TENSOR_CUDA_NCCL_H

#include "tensor/channel.h"

#ifdef LK_HAVE_NCCL
extern const lk_channel_type lk__nccl_channel;
#define LK_NCCL_CHANNEL (&lk__nccl_channel)
#else
#define LK_NCCL_CHANNEL NULL
#endif

#endif
