/* record.h - the slots of device.h for recorded steps and for memory that host and GPU share. */
#ifndef LK_TENSOR_CUDA_RUNTIME_RECORD_H
#define LK_TENSOR_CUDA_RUNTIME_RECORD_H

#include "tensor/cuda/runtime/cuda.h"

lk_status lk__cuda_record(lk_device *dev, lk_status (*work)(void *arg), void *arg,
                          lk_device_recording **out) LK_CHECKED;
lk_status lk__cuda_play(lk_device *dev, lk_device_recording *recording) LK_CHECKED;
void lk__cuda_forget(lk_device *dev, lk_device_recording *recording);
lk_status lk__cuda_alloc_host(lk_device *dev, size_t bytes, const char *what, void **out) LK_CHECKED;
void lk__cuda_free_host(lk_device *dev, void *block);

#endif
