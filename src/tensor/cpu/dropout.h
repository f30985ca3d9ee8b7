/* dropout.h - dropout for max pooling, which keeps an index for each result. */
#ifndef LK_TENSOR_CPU_DROPOUT_H
#define LK_TENSOR_CPU_DROPOUT_H

#include "tensor/cpu/vec.h"
#include "tensor/kernels.h"

/* Drops elements of y, in place; sets the index of dropped elements to LK_POOL2D_NO_GRADIENT. */
void LK_KERNEL(dropout_indexed)(lk_device *dev, const lk_dropout_desc *dropout, lk_tensor *y, uint8_t *index);

#endif
