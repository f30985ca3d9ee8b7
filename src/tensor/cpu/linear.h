/* linear.h - shared by the sources of the linear layer. */
#ifndef LK_TENSOR_CPU_LINEAR_H
#define LK_TENSOR_CPU_LINEAR_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/cpu/vec.h"
#include "tensor/shards.h"
#include "tensor/tensor.h"

/* Scratch floats of the weight gradient for n samples and `out` features. */
#define lk__linear_weight_floats LK_KERNEL(linear_weight_floats)
size_t lk__linear_weight_floats(size_t n, size_t out, size_t threads);

/* Kernels for up to LK_LINEAR_FEW samples, whose limit is reading weights and writing their gradients. They return
 * false and do nothing where other kernels are faster; the bits are the same. */
enum { LK_LINEAR_FEW = 8 };

typedef struct lk_linear_few {
    size_t rows, len, cols;
    const float *a;    // (rows, len)
    const float *w;    // forward pass: (cols, len); input gradient: (len, cols)
    const float *bias; // (cols) or NULL; forward pass only
    bool relu;
    const float *mask; // (rows, cols) or NULL; input gradient only
    float *c;          // (rows, cols)
} lk_linear_few;

#define lk__linear_few_forward LK_KERNEL(linear_few_forward)
bool lk__linear_few_forward(lk_device *dev, const lk_linear_few *p);
#define lk__linear_few_grad_input LK_KERNEL(linear_few_grad_input)
bool lk__linear_few_grad_input(lk_device *dev, const lk_linear_few *p);
#define lk__linear_few_grad_weight LK_KERNEL(linear_few_grad_weight)
bool lk__linear_few_grad_weight(lk_device *dev, const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                                lk_partials dw);

/* The gradient of the bias. */
#define lk__linear_grad_bias LK_KERNEL(linear_grad_bias)
void lk__linear_grad_bias(lk_device *dev, const lk_tensor *dy, const lk_shards *shards, lk_partials db);

#endif
