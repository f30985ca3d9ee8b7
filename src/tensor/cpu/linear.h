/* linear.h - what linear's sources share. */
#ifndef LK_TENSOR_CPU_LINEAR_H
#define LK_TENSOR_CPU_LINEAR_H

#include <stddef.h>

#include "tensor/cpu/vec.h"

/* Scratch floats a thread of the weight gradient needs for n samples. */
#define lk__linear_weight_floats LK_KERNEL(linear_weight_floats)
size_t lk__linear_weight_floats(size_t n);

#endif
