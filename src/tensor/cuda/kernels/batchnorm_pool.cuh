/* batchnorm_pool.cuh - a max pooling that the passes of batch normalisation compute: where windows are, which of their
 * pixels have won, and the gradient of a pixel. For nvcc only.
 *
 * Windows are KxK with stride 2: K is 2, without padding, or 3. The kernels have the bits of batchnorm.cuh's passes and
 * of pool2d.cu: what these store is rounded here, too, and sums have their order. */
#ifndef LK_TENSOR_CUDA_KERNELS_BATCHNORM_POOL_CUH
#define LK_TENSOR_CUDA_KERNELS_BATCHNORM_POOL_CUH

#include "tensor/cuda/kernels/batchnorm.cuh"
#include "tensor/cuda/kernels/mma.cuh"

/* The windows over an image, and a grid of what a kernel's threads have: pixels, windows or squares of 2x2 pixels. */
struct lk_bn_pool {
    int h, w, oh, ow; /* pixels of x, and windows */
    int pad_h, pad_w;
    divisor row, rows; /* columns of a row of the grid, rows of a sample */
    /* The gradient of a window is added to this in a pixel that no other window has: as maxpool_grad_input, which adds
     * it to 0, or copies it if the windows are 2x2 and have all pixels. Only -0.0 makes a difference. */
    float zero;
};

/* Whether windows are 2x2; otherwise they are 3x3. */
static inline bool lk__bn_pool_by_2(const lk_pool2d_desc *pool)
{
    return pool->h.kernel == 2;
}

/* y is the pooled tensor; the grid has `height` rows of `width` columns. */
static inline lk_bn_pool lk__bn_pool(const lk_pool2d_desc *pool, const lk_tensor *x, const lk_tensor *y, size_t height,
                                     size_t width)
{
    lk_bn_pool p;
    p.h = (int)x->shape.h;
    p.w = (int)x->shape.w;
    p.oh = (int)y->shape.h;
    p.ow = (int)y->shape.w;
    p.pad_h = (int)pool->h.pad;
    p.pad_w = (int)pool->w.pad;
    p.row = divisor_of((unsigned)width);
    p.rows = divisor_of((unsigned)height);
    p.zero = lk__bn_pool_by_2(pool) && p.h == 2 * p.oh && p.w == 2 * p.ow ? -0.0f : 0.0f;
    return p;
}

/* Element `index` of the grid. */
struct lk_bn_place {
    unsigned sample;
    int y, x;
};

static __device__ __forceinline__ lk_bn_place lk__bn_place(const lk_bn_pool &p, uint32_t index)
{
    unsigned row = quotient(index, p.row), sample = quotient(row, p.rows);
    return {sample, (int)(row - sample * p.rows.by), (int)(index - row * p.row.by)};
}

/* The number of a pixel, or of a window, among those of all samples. */
static __device__ __forceinline__ size_t lk__bn_pixel(const lk_bn_pool &p, unsigned sample, int y, int x)
{
    return (sample * (unsigned)p.h + (unsigned)y) * (unsigned)p.w + (unsigned)x;
}

static __device__ __forceinline__ size_t lk__bn_window(const lk_bn_pool &p, unsigned sample, int y, int x)
{
    return (sample * (unsigned)p.oh + (unsigned)y) * (unsigned)p.ow + (unsigned)x;
}

/* The index of V channels of a window, as bytes in words. */
template <int V>
struct lk_bn_winners {
    unsigned words[(V + 3) / 4];

    __device__ __forceinline__ void load(const uint8_t *p)
    {
        if constexpr (V == 1) {
            words[0] = p[0];
        } else if constexpr (V == 4) {
            words[0] = *(const unsigned *)p;
        } else {
            uint2 u = *(const uint2 *)p;
            words[0] = u.x, words[1] = u.y;
        }
    }

    __device__ __forceinline__ void store(uint8_t *p) const
    {
        if constexpr (V == 1)
            p[0] = (uint8_t)words[0];
        else if constexpr (V == 4)
            *(unsigned *)p = words[0];
        else
            *(uint2 *)p = make_uint2(words[0], words[1]);
    }
};

/* A tap in each byte of a word. No index has LK_BN_NO_TAP. */
enum { LK_BN_NO_TAP = 254 };

static __device__ __forceinline__ unsigned lk__bn_taps(int tap)
{
    return (unsigned)tap * 0x01010101u;
}

/* Whether channel i of a word of lk_bn_winners has the tap. */
static __device__ __forceinline__ bool lk__bn_won(unsigned word, unsigned taps, int i)
{
    return ((word ^ taps) & 255u << 8 * i) == 0;
}

void lk__cuda_batchnorm_pool_forward(lk_device *dev, const lk_batchnorm_desc *desc, const lk_tensor *x,
                                     const lk_shards *shards, const lk_moments *moments, lk_tensor *y);
void lk__cuda_batchnorm_pool_grad(lk_device *dev, const lk_batchnorm_desc *desc, const lk_batchnorm_grad *grad,
                                  const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                                  const lk_moments *moments, lk_tensor *dx);

/* A launch of the blocks that sum dy and dy * xhat, with the tiling, the results and the order of those in
 * batchnorm_sums.cu. */
struct lk_bn_pool_sums {
    const lk_bn_tiling *tiling;
    const lk_bn_runs *runs;
    lk_bn_sources from;
    const lk_pool2d_desc *pool;
    const uint8_t *index;
    const lk_tensor *x, *dy;
    uint32_t spans;
    float *parts;
};
void lk__cuda_batchnorm_pool_sums(cudaStream_t stream, const lk_bn_pool_sums &sums);

#endif
