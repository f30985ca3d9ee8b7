/* conv2d.h - the engines of convolutions: cuDNN, and own kernels for fp32 and for what cuDNN does not do, or does more
 * slowly. */
#ifndef LK_TENSOR_CUDA_KERNELS_CONV2D_H
#define LK_TENSOR_CUDA_KERNELS_CONV2D_H

#include "tensor/cuda/kernels/plans.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Own kernels enqueue a forward pass or an input gradient and keep faults with the device. weights.h declares their
 * weight gradients. */

/* 3x3 without dilation; both strides are equal and at most `stride`; at most one pixel of padding on each side. */
static inline bool lk__cuda_is_3x3(const lk_cuda_problem *problem, int stride)
{
    const lk_cuda_window *h = &problem->along_h, *w = &problem->along_w;
    return h->kernel == 3 && w->kernel == 3 && h->dilation == 1 && w->dilation == 1 && h->stride == w->stride &&
           h->stride <= stride && h->pad <= 1 && w->pad <= 1;
}

/* Forward passes in bf16 and tf32 by tensor cores, for c <= 4, one group, no dilation, and a pitch of y that is a
 * multiple of 8. lk__cuda_stem_suits says whether the kernel has enough shared memory for the window, too; it has for
 * 3x3. */
bool lk__cuda_stem_suits(const lk_cuda_problem *problem);
void lk__cuda_stem(const lk_cuda_problem *problem, const lk_cuda_io *io);

/* Forward passes in fp32, for c <= 4, 3x3 without dilation, stride 1, pad 0 or 1 along each axis, one group, and a
 * pitch of y that is a multiple of 8 up to 256. */
void lk__cuda_first(const lk_cuda_problem *problem, const lk_cuda_io *io);

/* For one channel of x and y in each group, 3x3 without dilation, stride 1 or 2, pad 0 or 1 along each axis, and a
 * pitch that is a multiple of 8. */
void lk__cuda_depthwise(const lk_cuda_problem *problem, const lk_cuda_io *io);

/* For one group in fp32, and sides, pads and windows of at most 16384 pixels, which lk__cuda_fp32_suits tests. The
 * bits of a sample do not depend on the number of samples of the call. Input gradients are masked, too
 * (lk_cuda_io.mask). */
bool lk__cuda_fp32_suits(const lk_cuda_problem *problem);
void lk__cuda_fp32(const lk_cuda_problem *problem, const lk_cuda_io *io);

/* For some layers with stride 1 in tf32 and bf16, on GPUs of compute capability 9.0, which lk__cuda_taps_suits tests;
 * by the layer only. The bits of a sample do not depend on the number of samples of the call. Input gradients are
 * masked, too. */
bool lk__cuda_taps_suits(const lk_cuda_problem *problem);
void lk__cuda_taps(const lk_cuda_problem *problem, const lk_cuda_io *io);

/* The input gradient of a 1x1 kernel with a stride, from the gradients of the pixels that the kernel reads
 * (n, p, q, x_pitch): zeros between them. */
void lk__cuda_scatter(const lk_cuda_problem *problem, const lk_cuda_io *io, const void *compact);

/* For any convolution or linear layer; slower. */
void lk__cuda_direct(const lk_cuda_problem *problem, const lk_cuda_io *io);

/* cuDNN's engine for a forward pass or an input gradient, of any n. */
typedef struct lk_cuda_cudnn lk_cuda_cudnn;
lk_status lk__cuda_cudnn_create(lk_cuda_libraries *libs, const lk_cuda_problem *problem,
                                lk_cuda_cudnn **out) LK_CHECKED;
void lk__cuda_cudnn_destroy(lk_cuda_cudnn *cudnn);
/* The first run chooses the engine; sets *refused if there is none. problem has the n of this run. */
lk_status lk__cuda_cudnn_run(lk_cuda_cudnn *cudnn, const lk_cuda_problem *problem, const lk_cuda_io *io,
                             bool *refused) LK_CHECKED;
/* The engine, and how n samples are divided among calls; after the first run that was not refused. */
void lk__cuda_cudnn_describe(const lk_cuda_cudnn *cudnn, int n, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
