/* conv2d_scatter.cu - input gradients of 1x1 kernels with a stride: most pixels of dx have none. */
#include "tensor/cuda/kernels/conv2d.h"
#include "tensor/cuda/kernels/follow.cuh"
#include "tensor/cuda/kernels/vec.cuh"

/* Sizes in vectors of 16 bytes. */
typedef struct scattering {
    unsigned columns;            /* of a pixel */
    unsigned height, width;      /* of dx */
    unsigned rows, row_pixels;   /* of the gradients */
    unsigned stride_h, stride_w; /* dx has a gradient at multiples of them */
    size_t count;                /* of dx */
} scattering;

static __global__ void scatter(const scattering s, const uint4 *__restrict__ from, uint4 *__restrict__ dx)
{
    lk__cuda_await();
    size_t at = lk__cuda_thread();
    if (at >= s.count)
        return;
    unsigned i = (unsigned)at, pixel = i / s.columns, column = i - pixel * s.columns;
    unsigned line = pixel / s.width, w = pixel - line * s.width, n = line / s.height, h = line - n * s.height;
    unsigned p = h / s.stride_h, q = w / s.stride_w;
    uint4 v = {};
    if (p * s.stride_h == h && q * s.stride_w == w && p < s.rows && q < s.row_pixels)
        v = from[((size_t)n * s.rows + p) * s.row_pixels * s.columns + q * s.columns + column];
    dx[at] = v;
}

extern "C" void lk__cuda_scatter(const lk_cuda_problem *problem, const lk_cuda_io *io, const void *compact)
{
    size_t size = problem->values == LK_DTYPE_BF16 ? sizeof(lk_bf16) : sizeof(float);
    scattering s = {};
    s.columns = (unsigned)(problem->x_pitch * size / sizeof(uint4));
    s.height = (unsigned)problem->h;
    s.width = (unsigned)problem->w;
    s.rows = (unsigned)problem->p;
    s.row_pixels = (unsigned)problem->q;
    s.stride_h = (unsigned)problem->along_h.stride;
    s.stride_w = (unsigned)problem->along_w.stride;
    s.count = (size_t)problem->n * s.height * s.width * s.columns;
    lk__cuda_follow({lk__cuda_blocks(s.count), LK_THREADS, 0, io->stream}, scatter, s, (const uint4 *)compact,
                    (uint4 *)io->dx);
    lk__cuda_launched(io->dev, "gradient of a strided convolution");
}
