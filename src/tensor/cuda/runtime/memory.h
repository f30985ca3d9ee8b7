/* memory.h - memory of a CUDA device, and bytes on their way to and from it. */
#ifndef LK_TENSOR_CUDA_RUNTIME_MEMORY_H
#define LK_TENSOR_CUDA_RUNTIME_MEMORY_H

#include "tensor/cuda/runtime/cuda.h"

/* Four uploads of so many bytes can be on their way. */
enum { LK_CUDA_PROMPT_UPLOAD = 4 << 20 };

/* The slots of lk_device_type. Uploads up to 16 MiB wait only where as much is still
 * on its way; larger ones block. None may be recorded: their host memory is gone
 * when the record runs. */
lk_status lk__cuda_alloc(lk_device *dev, size_t bytes, const char *what, void **out) LK_CHECKED;
void lk__cuda_free(lk_device *dev, void *block);
size_t lk__cuda_room(lk_device *dev);
lk_status lk__cuda_upload(lk_device *dev, const void *host, size_t bytes, void *dst) LK_CHECKED;
lk_status lk__cuda_download(lk_device *dev, const void *src, size_t bytes, void *host) LK_CHECKED;

/* Not zeroed, and nothing is enqueued: a kernel's slot may be under way. */
lk_status lk__cuda_alloc_raw(lk_device *dev, size_t bytes, const char *what, void **out) LK_CHECKED;

lk_status lk__cuda_staging_create(lk_device *dev, lk_cuda_staging **out) LK_CHECKED;
void lk__cuda_staging_destroy(lk_cuda_staging *staging);

lk_status lk__cuda_workspace_create(lk_cuda_workspace **out) LK_CHECKED;
void lk__cuda_workspace_destroy(lk_device *dev, lk_cuda_workspace *workspace);

/* Makes the device current for the calling thread. */
lk_status lk__cuda_use(lk_device *dev) LK_CHECKED;
/* The error in words, as the thread's detail. The runtime forgets it, or the next
 * launch would be blamed for it. LK_OK for success. */
lk_status lk__cuda_status(lk_device *dev, cudaError_t error, const char *what) LK_CHECKED;
/* The kept fault, which is forgotten. */
lk_status lk__cuda_fault(lk_device *dev) LK_CHECKED;
/* Waits for all work, and tells the kept fault. */
lk_status lk__cuda_sync(lk_device *dev) LK_CHECKED;
lk_status lk__cuda_poll(lk_device *dev, bool *idle) LK_CHECKED;

#endif
