/* strips.cuh - rows of output pixels in strips, a thread each: of the convolutions that
 * own kernels do. For nvcc only. */
#ifndef LK_TENSOR_CUDA_KERNELS_STRIPS_CUH
#define LK_TENSOR_CUDA_KERNELS_STRIPS_CUH

typedef struct strip_position {
    int n, p, q; /* of its first pixel */
} strip_position;

/* Of a shape with p rows a sample and strips_a_row strips a row, of `pixels` each. */
template <int pixels, class S>
static __device__ __forceinline__ strip_position strip_at(const S &s, unsigned strip)
{
    strip_position at;
    unsigned row = strip / (unsigned)s.strips_a_row;
    at.q = (int)(strip - row * (unsigned)s.strips_a_row) * pixels;
    at.n = (int)(row / (unsigned)s.p);
    at.p = (int)(row - (unsigned)at.n * (unsigned)s.p);
    return at;
}

#endif
