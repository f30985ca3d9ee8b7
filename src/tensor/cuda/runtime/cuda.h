/* cuda.h - the CUDA device as its kernels see it.
 *
 * Slots are C functions with the names of LK_KERNEL_LIST, most of them in .cu
 * files. They enqueue on the device's stream and can be captured: after the first
 * call for a shape nothing is allocated and the host waits for nothing. Results are
 * the same bits in every run: no atomics on floats, sums in an order that depends
 * on shapes alone.
 *
 * Activations have a pitch of channels rounded up to 8, or as they are below 4
 * (images); n is at most 65535. Weights of convolutions are
 * (pitch of out, kernel, kernel, pitch of in), with groups
 * (pitch of out, kernel, kernel, in); those of linear layers
 * (pitch of out, pixels, pitch of in / pixels). */
#ifndef LK_TENSOR_CUDA_RUNTIME_CUDA_H
#define LK_TENSOR_CUDA_RUNTIME_CUDA_H

#include <cuda_runtime_api.h>

#include "tensor/cuda/runtime/libraries.h"
#include "tensor/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory of the device's own that a kernel may use while it runs; what is outgrown
 * is kept to the end, for recorded steps use it. */
typedef struct lk_cuda_workspace lk_cuda_workspace;

/* Pinned memory that uploads go through. */
typedef struct lk_cuda_staging lk_cuda_staging;

/* NCCL's functions. */
typedef struct lk_cuda_nccl lk_cuda_nccl;

/* Plans of convolutions and linear layers, by shape. */
typedef struct lk_cuda_plans lk_cuda_plans;

typedef struct lk_cuda_device {
    lk_device base;
    int index;
    lk_precision precision;
    cudaStream_t stream, side;
    cudaEvent_t forked, joined;
    bool side_busy; /* work is on the side stream that the main one has not waited for */
    lk_cuda_workspace *workspace, *side_workspace;
    lk_cuda_staging *staging;
    lk_cuda_libraries libraries;
    lk_cuda_plans *plans;
    lk_cuda_nccl *nccl; /* NULL until a channel is asked for */
    /* The first fault of a slot, told by the next sync. */
    lk_status failed;
    char reason[512];
} lk_cuda_device;

/* The stream for a slot's work, after all that was enqueued before. */
cudaStream_t lk__cuda_stream(lk_device *dev);
/* The side stream, for a gradient of weights, after all that was enqueued before on
 * either. What lk__cuda_beside gives next runs at the same time; lk__cuda_stream and
 * the next fork wait. */
cudaStream_t lk__cuda_fork(lk_device *dev);
/* The main stream, without waiting for the side stream. */
cudaStream_t lk__cuda_beside(lk_device *dev);
/* So many bytes for this call; NULL after a failure, which is kept. */
void *lk__cuda_scratch(lk_device *dev, size_t bytes);
void *lk__cuda_side_scratch(lk_device *dev, size_t bytes);

/* Keeps the first failure, for slots return nothing. True when all is well. */
bool lk__cuda_keep(lk_device *dev, cudaError_t error, const char *what);
/* The same of a status with its detail. */
bool lk__cuda_keep_status(lk_device *dev, lk_status status);
/* After a launch. */
static inline void lk__cuda_launched(lk_device *dev, const char *what)
{
    (void)lk__cuda_keep(dev, cudaGetLastError(), what);
}

/* out = a + b on another stream, with the bits of the reduce slot. */
void lk__cuda_add_on(lk_device *dev, cudaStream_t stream, size_t count, const float *a, const float *b, float *out);

#define LK_DECLARE(slot) __typeof__(*((const lk_kernels *)0)->slot) lk__cuda_##slot;
LK_KERNEL_LIST(LK_DECLARE)
#undef LK_DECLARE

extern const lk_kernels lk__cuda_kernels;

size_t lk__cuda_pitch(size_t channels);
size_t lk__cuda_weight_count(const lk_device_weight *weight);
void lk__cuda_pack(const lk_device_weight *weight, const float *plain, float *packed);
void lk__cuda_unpack(const lk_device_weight *weight, const float *packed, float *plain);

#ifdef __cplusplus
}
#endif
#endif
