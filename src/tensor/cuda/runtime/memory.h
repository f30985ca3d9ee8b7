/* memory.h - memory of a CUDA device, and copies to and from it. */
#ifndef LK_TENSOR_CUDA_RUNTIME_MEMORY_H
#define LK_TENSOR_CUDA_RUNTIME_MEMORY_H

#include "tensor/cuda/runtime/cuda.h"

/* Four uploads of this many bytes can be under way. */
enum { LK_CUDA_PROMPT_UPLOAD = 4 << 20 };

/* Slots of lk_device_type. Uploads up to 16 MiB block only while as many bytes are under way; larger ones
 * always block. Uploads and downloads cannot be recorded: their host memory no longer exists when the recording
 * is played. */
lk_status lk__cuda_alloc(lk_device *dev, size_t bytes, const char *what, void **out) LK_CHECKED;
void lk__cuda_free(lk_device *dev, void *block);
size_t lk__cuda_room(lk_device *dev);
lk_status lk__cuda_upload(lk_device *dev, const void *host, size_t bytes, void *dst) LK_CHECKED;
lk_status lk__cuda_download(lk_device *dev, const void *src, size_t bytes, void *host) LK_CHECKED;

/* The memory is not zeroed and nothing is enqueued, because a kernel's slot may be in progress. */
lk_status lk__cuda_alloc_raw(lk_device *dev, size_t bytes, const char *what, void **out) LK_CHECKED;

lk_status lk__cuda_staging_create(lk_device *dev, lk_cuda_staging **out) LK_CHECKED;
void lk__cuda_staging_destroy(lk_cuda_staging *staging);

lk_status lk__cuda_workspace_create(lk_cuda_workspace **out) LK_CHECKED;
void lk__cuda_workspace_destroy(lk_device *dev, lk_cuda_workspace *workspace);

/* Makes the device current for the calling thread. */
lk_status lk__cuda_use(lk_device *dev) LK_CHECKED;
/* Describes the error in the thread's detail. The runtime's own error is cleared, otherwise the next launch
 * would return it. LK_OK for success. */
lk_status lk__cuda_status(lk_device *dev, cudaError_t error, const char *what) LK_CHECKED;
/* Returns the kept fault and clears it. */
lk_status lk__cuda_fault(lk_device *dev) LK_CHECKED;
/* Blocks until all work is complete; returns the kept fault. */
lk_status lk__cuda_sync(lk_device *dev) LK_CHECKED;
lk_status lk__cuda_poll(lk_device *dev, bool *idle) LK_CHECKED;

#endif
