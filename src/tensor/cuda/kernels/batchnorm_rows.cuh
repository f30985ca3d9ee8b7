/* batchnorm_rows.cuh - what the passes of batch normalisation over pixels share: how blocks divide the pixels of
 * groups, and the values of a block's channels in shared memory, one row for each kind of value. For nvcc only. */
#ifndef LK_TENSOR_CUDA_KERNELS_BATCHNORM_ROWS_CUH
#define LK_TENSOR_CUDA_KERNELS_BATCHNORM_ROWS_CUH

#include "tensor/cuda/kernels/batchnorm.cuh"

/* Calls f with runs of pixels that belong to one group each, and the group of the first run. A sample has `pixels`
 * pixels. */
template <class F>
static void lk__bn_by_groups(size_t samples, size_t pixels, const lk_shards *shards, const lk_moments *moments, F f)
{
    if (moments->groups == 1) {
        lk_bn_runs r = {};
        r.count = 1;
        r.begin[1] = (uint32_t)(samples * pixels);
        f(r, 0);
        return;
    }
    for (int first = 0; first < shards->count; first += LK_BN_RUNS)
        f(lk__bn_runs(shards, first, pixels), first);
}

/* Blocks of `span` pixels. */
static inline dim3 lk__bn_pass_grid(const lk_bn_tiling &t, const lk_bn_runs &r, uint32_t span)
{
    uint32_t most = 0;
    for (int i = 0; i < r.count; i++)
        most = r.begin[i + 1] - r.begin[i] > most ? r.begin[i + 1] - r.begin[i] : most;
    return lk__bn_grid(t, (most + span - 1) / span, r.count);
}

/* The first pixel of a block. The block has no pixels if this is not below the run's end. */
static inline __device__ uint32_t lk__bn_pass_begin(const lk_bn_tiling &t, const lk_bn_runs &r, uint32_t span)
{
    return r.begin[lk__bn_run_index(t)] + lk__bn_block(t) * span;
}

/* Rows of the forward pass. */
enum { LK_BN_Y_MEAN, LK_BN_Y_SCALE, LK_BN_Y_GAMMA, LK_BN_Y_BETA, LK_BN_Y_ROWS };

template <int V>
static __device__ void lk__bn_fill_y(const lk_bn_tiling &t, const lk_bn_sources &from, float *rows)
{
    int width = t.columns * V;
    size_t group = from.shared ? 0 : lk__bn_run_index(t);
    lk__bn_for_channels<V>(t, [&](int i, int channel) {
        bool used = channel < t.c;
        size_t at = group * t.c + channel;
        rows[LK_BN_Y_MEAN * width + i] = used ? from.mean[at] : 0.0f;
        rows[LK_BN_Y_SCALE * width + i] = used ? from.scale[at] : 0.0f;
        rows[LK_BN_Y_GAMMA * width + i] = used ? from.gamma[channel] : 0.0f;
        rows[LK_BN_Y_BETA * width + i] = used ? from.beta[channel] : 0.0f;
    });
}

/* Rows of the gradient: dx = factor * (dy - shift + xhat * slope); gamma and beta are for the gradient of a ReLU. */
enum {
    LK_BN_DX_MEAN,
    LK_BN_DX_SCALE,
    LK_BN_DX_FACTOR,
    LK_BN_DX_SHIFT,
    LK_BN_DX_SLOPE,
    LK_BN_DX_GAMMA,
    LK_BN_DX_BETA,
    LK_BN_DX_ROWS
};

template <int V>
static __device__ void lk__bn_fill_dx(const lk_bn_tiling &t, const lk_bn_sources &from, const lk_bn_counts &counts,
                                      float *rows)
{
    int width = t.columns * V;
    size_t group = from.shared ? 0 : lk__bn_run_index(t);
    float count = counts.of[group];
    lk__bn_for_channels<V>(t, [&](int i, int channel) {
        bool used = channel < t.c;
        size_t at = group * t.c + channel;
        const float *sums = from.sums + group * 2 * t.c + channel;
        float mean = used ? from.mean[at] : 0.0f, scale = used ? from.scale[at] : 0.0f;
        float gamma = used ? from.gamma[channel] : 0.0f;
        float sum = used ? sums[0] : 0.0f, product = used ? sums[t.c] : 0.0f;
        rows[LK_BN_DX_MEAN * width + i] = mean;
        rows[LK_BN_DX_SCALE * width + i] = scale;
        rows[LK_BN_DX_FACTOR * width + i] = gamma * scale;
        rows[LK_BN_DX_SHIFT * width + i] = sum / count;
        rows[LK_BN_DX_SLOPE * width + i] = 0.0f - product / count;
        rows[LK_BN_DX_GAMMA * width + i] = gamma;
        rows[LK_BN_DX_BETA * width + i] = used ? from.beta[channel] : 0.0f;
    });
}

#endif
