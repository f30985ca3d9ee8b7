/* linear_end.cuh - what follows the product of a linear layer in the same kernel. For nvcc only. */
#ifndef LK_TENSOR_CUDA_KERNELS_LINEAR_END_CUH
#define LK_TENSOR_CUDA_KERNELS_LINEAR_END_CUH

#include "tensor/cuda/kernels/dropout.cuh"
#include "tensor/cuda/kernels/plans.h"

/* Each result is rounded as if it had been stored before the dropout. */
template <class T>
struct linear_end {
    const T *bias; /* of the columns, or NULL */
    const T *mask; /* as the result, or NULL: the result is 0 where the mask is not above 0 */
    bool relu;
    lk_drop drop; /* of a forward pass; its ids are NULL if nothing is dropped */
    float scale;  /* with a mask: of the dropout that made it, or 1 */

    /* The result at a row and column, whose index is `at`. */
    __device__ __forceinline__ float apply(float sum, int row, int column, size_t at) const
    {
        float v[1];
        if (bias) {
            lk__cuda_load(bias + column, v);
            sum += v[0];
        }
        if (relu)
            sum = lk__cuda_relu1(sum);
        if (drop.ids)
            sum = lk__cuda_drop_one(drop, row, column, (float)(T)sum);
        if (mask) {
            lk__cuda_load(mask + at, v);
            sum = masked(v[0], sum);
        }
        return sum;
    }

    __device__ __forceinline__ float masked(float above, float sum) const
    {
        return lk__cuda_relu_grad1(above, (float)(T)sum * scale);
    }
};

template <class T>
static linear_end<T> linear_end_of(const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    linear_end<T> end = {};
    if (problem->pass == LK_CUDA_PASS_GRAD_INPUT) {
        end.mask = (const T *)io->mask;
        end.scale = io->dropout ? lk__dropout_desc_scale(io->dropout) : 1.0f;
        return end;
    }
    end.bias = (const T *)(problem->bias ? io->b : NULL);
    end.relu = problem->relu;
    if (io->dropout)
        end.drop = lk__cuda_drop(io->dropout, 1, (size_t)problem->y_pitch);
    return end;
}

#endif
