/* cuda.h - the CUDA device as its kernels see it.
 *
 * Slots are C functions with the names of LK_KERNEL_LIST, most of them in .cu files. They enqueue on the
 * device's stream and can be captured: after the first call for a shape they allocate nothing, and the host
 * does not wait. Results are the same bits in every run: no atomics on floats, and sums in an order that
 * depends on shapes only.
 *
 * The pitch of activations is the number of channels rounded up to 8, or the number itself if it is below 4
 * (images); n is at most 65535. Weights of convolutions are (pitch of out, kernel, kernel, pitch of in), with
 * groups (pitch of out, kernel, kernel, in). Weights of linear layers are (pitch of out, pixels, pitch of in /
 * pixels). */
#ifndef LK_TENSOR_CUDA_RUNTIME_CUDA_H
#define LK_TENSOR_CUDA_RUNTIME_CUDA_H

#include <cuda_runtime_api.h>

#include "tensor/cuda/runtime/libraries.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory that a kernel may use while it runs. A block that became too small is kept until the device is closed,
 * because recorded steps use it. */
typedef struct lk_cuda_workspace lk_cuda_workspace;

/* Pinned memory through which uploads are copied. */
typedef struct lk_cuda_staging lk_cuda_staging;

/* Events for traces. */
typedef struct lk_cuda_marks lk_cuda_marks;

/* NCCL's functions. */
typedef struct lk_cuda_nccl lk_cuda_nccl;

/* Plans of convolutions and linear layers, by shape. */
typedef struct lk_cuda_plans lk_cuda_plans;

typedef struct lk_cuda_device {
    lk_device base;
    int index;
    lk_precision precision;
    cudaStream_t stream, side;
    cudaEvent_t forked, multiplied, joined;
    bool side_busy;      /* the side stream has work that the main stream has not waited for */
    bool side_folds;     /* that work is only folds, apart from what the event `multiplied` covers */
    bool side_awaited;   /* the main stream has waited for that event */
    const void *side_dy; /* of the last weight gradient, until an input gradient has run; NULL: none */
    lk_cuda_workspace *workspace, *side_workspace;
    lk_cuda_staging *staging;
    lk_cuda_libraries libraries;
    lk_cuda_plans *plans;
    lk_cuda_nccl *nccl;   /* NULL until the first channel is loaded */
    lk_cuda_marks *marks; /* NULL until the first mark */
    /* The first fault of a slot, returned by the next sync. */
    lk_status failed;
    char reason[512];
} lk_cuda_device;

/* The precision of convolutions or, otherwise, of linear layers: FP32, TF32 or BF16. */
static inline lk_precision lk__cuda_precision(const lk_device *dev, bool convolution)
{
    lk_precision precision = ((const lk_cuda_device *)dev)->precision;
    if (precision != LK_PRECISION_TF32CONV)
        return precision;
    return convolution ? LK_PRECISION_TF32 : LK_PRECISION_FP32;
}

/* The stream for a slot's work; the work runs after everything enqueued before. */
cudaStream_t lk__cuda_stream(lk_device *dev);
/* The side stream, for a weight gradient; the work runs after everything enqueued before on either stream. Work
 * on the stream that lk__cuda_beside returns next runs at the same time; lk__cuda_stream and the next fork wait
 * for the side stream. */
cudaStream_t lk__cuda_fork(lk_device *dev, const void *dy);
/* The main stream, without waiting for the side stream. */
cudaStream_t lk__cuda_beside(lk_device *dev);
/* The main stream, for an input gradient: beside the weight gradient of the same layer, which has the same dy. If that
 * layer has none (frozen weights), it waits for the products of the layer before, whose memory may have been reused. */
cudaStream_t lk__cuda_beside_own(lk_device *dev, const void *dy);
/* Called after the products of a weight gradient, which read activations. Later work on the side stream until the next
 * fork reads and writes only the side stream's scratch memory and the gradients of that layer's weights and bias. */
void lk__cuda_side_multiplied(lk_device *dev);
/* The main stream, for a slot that uses no gradient of the layer that forked last. Waits for that layer's products, but
 * not for its folds. */
cudaStream_t lk__cuda_ahead(lk_device *dev);
/* This many bytes for one call; NULL after a failure, which is kept. */
void *lk__cuda_scratch(lk_device *dev, size_t bytes);
void *lk__cuda_side_scratch(lk_device *dev, size_t bytes);

/* Keeps the first failure, because slots return nothing. Returns true if there was none. */
bool lk__cuda_keep(lk_device *dev, cudaError_t error, const char *what);
/* lk__cuda_keep for a status and its detail. */
bool lk__cuda_keep_status(lk_device *dev, lk_status status);
/* Called after every launch. */
static inline void lk__cuda_launched(lk_device *dev, const char *what)
{
    (void)lk__cuda_keep(dev, cudaGetLastError(), what);
}

/* out = a + b on another stream, the same bits as the slot `reduce`. */
void lk__cuda_add_on(lk_device *dev, cudaStream_t stream, size_t count, const float *a, const float *b, float *out);

#define LK_DECLARE(slot) __typeof__(*((const lk_kernels *)0)->slot) lk__cuda_##slot;
LK_KERNEL_LIST(LK_DECLARE)
#undef LK_DECLARE

extern const lk_kernels lk__cuda_kernels;

size_t lk__cuda_pitch(size_t channels);
bool lk__cuda_batchnorm_pools(const lk_pool2d_desc *windows);
size_t lk__cuda_weight_count(const lk_device_weight *weight);
void lk__cuda_pack(const lk_device_weight *weight, const float *plain, float *packed);
void lk__cuda_unpack(const lk_device_weight *weight, const float *packed, float *plain);

#ifdef __cplusplus
}
#endif
#endif
