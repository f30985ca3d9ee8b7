/* linear.h - shared by the sources of the linear layer. */
#ifndef LK_TENSOR_CPU_LINEAR_H
#define LK_TENSOR_CPU_LINEAR_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/cpu/vec.h"
#include "tensor/tensor.h"

/* Scratch floats of the weight gradient for n samples and `out` features. */
#define lk__linear_weight_floats LK_KERNEL(linear_weight_floats)
size_t lk__linear_weight_floats(size_t n, size_t out, size_t threads);

/* The forward pass of so few rows with so many outputs has a kernel of its own, with the same bits. Weights are (out,
 * features). */
#define lk__linear_row_fits LK_KERNEL(linear_row_fits)
bool lk__linear_row_fits(size_t rows, size_t cols);
#define lk__linear_row LK_KERNEL(linear_row)
void lk__linear_row(lk_device *dev, const lk_tensor *x, const float *w, const float *b, bool relu, lk_tensor *y);

#endif
