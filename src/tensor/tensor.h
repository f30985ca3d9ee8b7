/* tensor.h - what kernels are given: a view of memory with a shape.
 *
 * A tensor has samples n, channels c, height h and width w. Memory order is
 * n, h, w, c (channels last) on every device; the logical order, which state
 * dicts, random numbers and flatten use, is PyTorch's n, c, h, w. A vector of
 * features is c with h = w = 1, where both orders agree. */
#ifndef LK_TENSOR_TENSOR_H
#define LK_TENSOR_TENSOR_H

#include <stddef.h>

#include <lockstep/state.h>

typedef struct lk_shape {
    size_t n, c, h, w;
} lk_shape;

typedef struct lk_tensor {
    void *data; /* in the device's memory */
    lk_dtype dtype;
    lk_shape shape;
} lk_tensor;

static inline size_t lk__shape_sample(lk_shape shape)
{
    return shape.c * shape.h * shape.w;
}

static inline size_t lk__shape_count(lk_shape shape)
{
    return shape.n * lk__shape_sample(shape);
}

/* Float elements of a tensor; only kernels of devices whose memory the host
 * can address may dereference it. */
static inline float *lk__f32(const lk_tensor *tensor)
{
    return tensor->data;
}

#endif
