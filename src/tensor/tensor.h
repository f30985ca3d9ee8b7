/* tensor.h - the argument of kernels: a view of memory with a shape.
 *
 * A tensor has n samples, c channels, height h and width w. The memory order is n, h, w, c (channels last) on
 * every device. State dicts, random numbers and flatten use the logical order, PyTorch's n, c, h, w. A vector
 * of features has c elements and h = w = 1; there both orders agree.
 *
 * A device may store pixels further apart than their channels need (pitch). The pads between them are zero in
 * every input and output of a kernel. */
#ifndef LK_TENSOR_TENSOR_H
#define LK_TENSOR_TENSOR_H

#include <stddef.h>

#include <lockstep/state.h>

/* The device that owns the memory of tensors (device.h). */
typedef struct lk_device lk_device;

typedef struct lk_shape {
    size_t n, c, h, w;
} lk_shape;

typedef struct lk_tensor {
    void *data;     /* in the device's memory */
    lk_dtype dtype; /* f32, or bf16 if the device computes in bf16 */
    lk_shape shape;
    size_t pitch; /* elements from one pixel to the next; 0: shape.c */
} lk_tensor;

static inline size_t lk__shape_sample(lk_shape shape)
{
    return shape.c * shape.h * shape.w;
}

static inline size_t lk__shape_count(lk_shape shape)
{
    return shape.n * lk__shape_sample(shape);
}

static inline size_t lk__tensor_pitch(const lk_tensor *tensor)
{
    return tensor->pitch ? tensor->pitch : tensor->shape.c;
}

/* Bytes of one sample, pads included. */
static inline size_t lk__tensor_stride(const lk_tensor *tensor)
{
    return tensor->shape.h * tensor->shape.w * lk__tensor_pitch(tensor) * lk_dtype_size(tensor->dtype);
}

/* Samples [begin, begin + n). */
static inline lk_tensor lk__tensor_rows(const lk_tensor *tensor, size_t begin, size_t n)
{
    lk_tensor rows = *tensor;
    rows.shape.n = n;
    rows.data = (char *)tensor->data + begin * lk__tensor_stride(tensor);
    return rows;
}

/* The elements as floats. Only kernels of devices with host memory may dereference the result. */
static inline float *lk__tensor_f32(const lk_tensor *tensor)
{
    return (float *)tensor->data;
}

#endif
