/* norm.cu - sums of squares by blocks, their sum, and scaling, for clipping gradients by their norm.
 *
 * One warp computes a block of sum_squares; lane l is chain l of the CPU's 32, with the same bits. A thread
 * block has few warps, so that a small gradient uses all multiprocessors. */
#include "tensor/cuda/kernels/vec.cuh"

enum {
    WARPS = 2,      /* of a thread block */
    FOLDERS = 1024, /* threads that fold */
    TURNS = LK_NORM_BLOCK / LK_WARP,
    AT_ONCE = 32 /* loads of a lane issued together */
};
static_assert(LK_NORM_BLOCK % LK_WARP == 0 && TURNS % AT_ONCE == 0, "blocks are whole turns");

/* Elements beyond the end count as 0, which changes no sum of squares. The square of a float is exact in
 * double, so fusing changes nothing. */
static __global__ void block_sums(size_t count, const float *x, double *sums)
{
    lk__cuda_await();
    size_t block = lk__cuda_thread() / LK_WARP, begin = block * LK_NORM_BLOCK;
    if (begin >= count)
        return;
    uint32_t size = count - begin < LK_NORM_BLOCK ? (uint32_t)(count - begin) : (uint32_t)LK_NORM_BLOCK;
    double sum = 0;
    for (uint32_t at = (uint32_t)lk__cuda_lane(); at < size; at += AT_ONCE * LK_WARP) {
        float v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            v[k] = at + k * LK_WARP < size ? x[begin + at + k * LK_WARP] : 0.0f;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            sum = fma((double)v[k], (double)v[k], sum);
    }
    sum = lk__cuda_warp_sum(sum);
    if (lk__cuda_lane() == 0)
        sums[block] = sum;
}

void lk__cuda_sum_squares(lk_device *dev, size_t count, const float *x, double *sums)
{
    size_t blocks = (count + LK_NORM_BLOCK - 1) / LK_NORM_BLOCK;
    cudaStream_t stream = lk__cuda_stream(dev);
    if (count > 0)
        lk__cuda_follow({(unsigned)((blocks + WARPS - 1) / WARPS), WARPS * LK_WARP, 0, stream}, block_sums, count, x,
                        sums);
    lk__cuda_launched(dev, "sum_squares");
}

/* One block: all threads take part in each level of the tree. Pairs of neighbours are added, then pairs of these sums,
 * and so on. Roots and quotients of doubles are rounded correctly, as on the CPU. */
static __global__ void fold(size_t count, double *squares, double limit, lk_norm *norm)
{
    lk__cuda_await();
    for (size_t apart = 1; apart < count; apart *= 2) {
        for (size_t i = 2 * apart * threadIdx.x; i + apart < count; i += 2 * apart * FOLDERS)
            squares[i] += squares[i + apart];
        __syncthreads();
    }
    if (threadIdx.x > 0)
        return;
    double square = count ? squares[0] : 0, quotient = limit / (sqrt(square) + 1e-6);
    norm->square = square;
    norm->factor = limit == 0 || quotient >= 1 ? 1.0f : (float)quotient;
}

void lk__cuda_fold_squares(lk_device *dev, size_t count, double *squares, double limit, lk_norm *norm)
{
    lk__cuda_follow({1, FOLDERS, 0, lk__cuda_stream(dev)}, fold, count, squares, limit, norm);
    lk__cuda_launched(dev, "fold_squares");
}

template <int V>
static __device__ void scale_at(float factor, float *x)
{
    float v[V];
    lk__cuda_load(x, v);
#pragma unroll
    for (int i = 0; i < V; i++)
        v[i] *= factor;
    lk__cuda_store(x, v);
}

template <int V>
static __global__ void scale_all(const lk_flag *flag, size_t count, const float *by, float *x)
{
    lk__cuda_await();
    size_t i = lk__cuda_thread() * V;
    float factor = *by;
    if (factor == 1.0f || (flag && flag->bad))
        return;
    if (i + V <= count)
        scale_at<V>(factor, x + i);
    else
        for (; i < count; i++)
            scale_at<1>(factor, x + i);
}

void lk__cuda_scale(lk_device *dev, const lk_flag *flag, size_t count, const float *factor, float *x)
{
    cudaStream_t stream = lk__cuda_stream(dev);
    if (count == 0)
        return;
    if (lk__cuda_aligned(x))
        lk__cuda_follow({lk__cuda_blocks((count + 3) / 4), LK_THREADS, 0, stream}, scale_all<4>, flag, count, factor,
                        x);
    else
        lk__cuda_follow({lk__cuda_blocks(count), LK_THREADS, 0, stream}, scale_all<1>, flag, count, factor, x);
    lk__cuda_launched(dev, "scale");
}
