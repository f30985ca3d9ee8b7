/* marks.h - the slots mark and mark_time of device.h: events on the device's stream. */
#ifndef LK_TENSOR_CUDA_RUNTIME_MARKS_H
#define LK_TENSOR_CUDA_RUNTIME_MARKS_H

#include "tensor/cuda/runtime/cuda.h"

lk_status lk__cuda_mark(lk_device *dev, int index) LK_CHECKED;
bool lk__cuda_mark_time(lk_device *dev, int index, double *out);
void lk__cuda_marks_destroy(lk_cuda_marks *marks);

#endif
