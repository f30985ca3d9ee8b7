/* linear.h - shared by the sources of the linear layer. */
#ifndef LK_TENSOR_CPU_LINEAR_H
#define LK_TENSOR_CPU_LINEAR_H

#include <stddef.h>

#include "tensor/cpu/vec.h"

/* Scratch floats of the weight gradient for n samples and `out` features. */
#define lk__linear_weight_floats LK_KERNEL(linear_weight_floats)
size_t lk__linear_weight_floats(size_t n, size_t out, size_t threads);

#endif
