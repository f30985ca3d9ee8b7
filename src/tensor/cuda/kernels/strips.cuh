/* strips.cuh - strips of output pixels in a row, one for each thread, for convolutions by own kernels. For nvcc
 * only. */
#ifndef LK_TENSOR_CUDA_KERNELS_STRIPS_CUH
#define LK_TENSOR_CUDA_KERNELS_STRIPS_CUH

typedef struct strip_position {
    int n, p, q; /* of its first pixel */
} strip_position;

/* For a shape with p rows in each sample and strips_a_row strips of `pixels` pixels in each row. */
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
