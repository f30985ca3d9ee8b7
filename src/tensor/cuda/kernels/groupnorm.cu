/* groupnorm.cu - group normalisation and layer normalisation.
 *
 * A team of threads, a warp or a block, has one set. A sum over the set is a chain in each thread, a butterfly in each
 * warp, and a chain over the warps; which threads a team has depends on the size of a set only. The sums for weights
 * and biases are a chain in each thread over every ROWS-th pixel of a shard, then a chain over ROWS threads. */
#include <type_traits>

#include "tensor/cuda/kernels/vec.cuh"

enum {
    WARPS = LK_THREADS / LK_WARP,
    SMALL = 2048, /* elements of a set that a warp computes */
    COLUMNS = 32,
    ROWS = 32,
    SHARDS = 64 /* of a launch */
};

struct sets {
    size_t count;
    unsigned groups, rows, width, c, pitch; /* a set has `rows` pixels of `width` channels; pixels are pitch apart */
    float eps;
    const float *gamma, *beta; // (c)
};

static sets sets_of(const lk_groupnorm_desc *desc, const lk_tensor *x)
{
    return {.count = lk__groupnorm_desc_sets(desc, x->shape),
            .groups = (unsigned)desc->groups,
            .rows = desc->by_pixel ? 1u : (unsigned)(x->shape.h * x->shape.w),
            .width = (unsigned)(x->shape.c / desc->groups),
            .c = (unsigned)x->shape.c,
            .pitch = (unsigned)lk__tensor_pitch(x),
            .eps = desc->eps,
            .gamma = desc->gamma,
            .beta = desc->beta};
}

/* The set of this thread's team of TEAM threads, its first element and its first channel. */
struct place {
    size_t set, first;
    unsigned channel, thread;
};

template <int TEAM>
static __device__ place place_of(const sets &s)
{
    size_t set = (size_t)blockIdx.x * (LK_THREADS / TEAM) + threadIdx.x / TEAM;
    unsigned channel = (unsigned)(set % s.groups) * s.width;
    return {set, set / s.groups * s.rows * s.pitch + channel, channel, threadIdx.x % TEAM};
}

/* The sum over a team; all its threads get it. With a block as the team, all threads of the block call it. */
template <int TEAM>
static __device__ float team_sum(float v)
{
    v = lk__cuda_warp_sum(v);
    if constexpr (TEAM > LK_WARP) {
        __shared__ float warps[WARPS];
        __syncthreads();
        if (lk__cuda_lane() == 0)
            warps[threadIdx.x / LK_WARP] = v;
        __syncthreads();
        v = warps[0];
        for (int i = 1; i < WARPS; i++)
            v += warps[i];
    }
    return v;
}

/* Calls f(index in the tensor, channel) for each of the thread's elements of the set. */
template <int TEAM, class F>
static __device__ void each_element(const sets &s, const place &at, F f)
{
    unsigned count = s.rows * s.width;
    for (unsigned e = at.thread; e < count; e += TEAM) {
        unsigned row = e / s.width, column = e - row * s.width;
        f(at.first + (size_t)row * s.pitch + column, at.channel + column);
    }
}

/* The last group of each pixel sets its pads to 0. */
template <int TEAM, class T>
static __device__ void clear_pads(const sets &s, const place &at, T *y)
{
    unsigned pads = s.pitch - s.c;
    if (at.channel + s.width < s.c)
        return;
    for (unsigned e = at.thread; e < s.rows * pads; e += TEAM)
        y[at.first + s.width + (size_t)(e / pads) * s.pitch + e % pads] = (T)0.0f;
}

template <int TEAM, class T>
static __global__ void forward(sets s, const T *x, float *moments, T *y)
{
    place at = place_of<TEAM>(s);
    if (at.set >= s.count)
        return;
    float sum = 0, squares = 0, count = (float)(s.rows * s.width);
    each_element<TEAM>(s, at, [&](size_t i, unsigned) { sum += (float)x[i]; });
    float mean = team_sum<TEAM>(sum) / count;
    each_element<TEAM>(s, at, [&](size_t i, unsigned) {
        float d = (float)x[i] - mean;
        squares = __fmaf_rn(d, d, squares);
    });
    float scale = 1.0f / sqrtf(team_sum<TEAM>(squares) / count + s.eps);
    each_element<TEAM>(s, at, [&](size_t i, unsigned channel) {
        y[i] = (T)__fmaf_rn(((float)x[i] - mean) * scale, s.gamma[channel], s.beta[channel]);
    });
    clear_pads<TEAM>(s, at, y);
    if (at.thread == 0) {
        moments[2 * at.set] = mean;
        moments[2 * at.set + 1] = scale;
    }
}

template <int TEAM, class T>
static __global__ void grad_input(sets s, const T *x, const T *dy, const float *moments, T *dx)
{
    place at = place_of<TEAM>(s);
    if (at.set >= s.count)
        return;
    float mean = moments[2 * at.set], scale = moments[2 * at.set + 1], count = (float)(s.rows * s.width);
    float sum = 0, product = 0;
    each_element<TEAM>(s, at, [&](size_t i, unsigned channel) {
        float g = s.gamma[channel] * (float)dy[i];
        sum += g;
        product = __fmaf_rn(g, ((float)x[i] - mean) * scale, product);
    });
    sum = team_sum<TEAM>(sum) / count;
    product = team_sum<TEAM>(product) / count;
    each_element<TEAM>(s, at, [&](size_t i, unsigned channel) {
        float xhat = ((float)x[i] - mean) * scale;
        dx[i] = (T)(scale * __fmaf_rn(-xhat, product, __fmaf_rn(s.gamma[channel], (float)dy[i], -sum)));
    });
    clear_pads<TEAM>(s, at, dx);
}

/* Calls f(TEAM as a constant, blocks, kind). */
template <class F>
static void by_team(const sets &s, const lk_tensor *x, F f)
{
    lk__cuda_by_dtype(x->dtype, [&](auto kind) {
        if (s.rows * s.width <= SMALL)
            f(std::integral_constant<int, LK_WARP>(), (unsigned)((s.count + WARPS - 1) / WARPS), kind);
        else
            f(std::integral_constant<int, LK_THREADS>(), (unsigned)s.count, kind);
    });
}

extern "C" void lk__cuda_groupnorm_forward(lk_device *dev, const lk_groupnorm_desc *desc, const lk_tensor *x,
                                           float *moments, lk_tensor *y)
{
    sets s = sets_of(desc, x);
    if (s.count == 0)
        return;
    cudaStream_t stream = lk__cuda_stream(dev);
    by_team(s, x, [&](auto team, unsigned blocks, auto kind) {
        using T = typename decltype(kind)::T;
        forward<decltype(team)::value><<<blocks, LK_THREADS, 0, stream>>>(s, (const T *)x->data, moments, (T *)y->data);
    });
    lk__cuda_launched(dev, "groupnorm_forward");
}

extern "C" void lk__cuda_groupnorm_grad_input(lk_device *dev, const lk_groupnorm_desc *desc, const lk_tensor *x,
                                              const lk_tensor *dy, const float *moments, lk_tensor *dx)
{
    sets s = sets_of(desc, x);
    if (s.count == 0)
        return;
    cudaStream_t stream = lk__cuda_stream(dev);
    by_team(s, x, [&](auto team, unsigned blocks, auto kind) {
        using T = typename decltype(kind)::T;
        grad_input<decltype(team)::value>
            <<<blocks, LK_THREADS, 0, stream>>>(s, (const T *)x->data, (const T *)dy->data, moments, (T *)dx->data);
    });
    lk__cuda_launched(dev, "groupnorm_grad_input");
}

/* Pixels of some shards, counted over all samples. */
struct shard_pixels {
    uint32_t begin[SHARDS + 1];
};

/* A block computes COLUMNS channels of one shard. */
template <class T>
static __global__ void grad_weight(sets s, shard_pixels shards, const T *x, const T *dy, const float *moments,
                                   float *leaves)
{
    __shared__ float chains[2][ROWS][COLUMNS];
    unsigned column = threadIdx.x, row = threadIdx.y, channel = blockIdx.x * COLUMNS + column;
    float product = 0, sum = 0;
    for (uint32_t p = shards.begin[blockIdx.y] + row; channel < s.c && p < shards.begin[blockIdx.y + 1]; p += ROWS) {
        const float *moment = moments + 2 * ((size_t)(p / s.rows) * s.groups + channel / s.width);
        float d = (float)dy[(size_t)p * s.pitch + channel];
        product = __fmaf_rn(d, ((float)x[(size_t)p * s.pitch + channel] - moment[0]) * moment[1], product);
        sum += d;
    }
    chains[0][row][column] = product;
    chains[1][row][column] = sum;
    __syncthreads();
    if (row > 1 || channel >= s.c)
        return;
    float total = 0;
    for (int i = 0; i < ROWS; i++)
        total += chains[row][i][column];
    leaves[((size_t)blockIdx.y * 2 + row) * s.c + channel] = total;
}

extern "C" void lk__cuda_groupnorm_grad_weight(lk_device *dev, const lk_groupnorm_desc *desc, const lk_tensor *x,
                                               const lk_tensor *dy, const float *moments, const lk_shards *shards,
                                               float *leaves)
{
    sets s = sets_of(desc, x);
    size_t pixels = x->shape.h * x->shape.w;
    cudaStream_t stream = lk__cuda_stream(dev);
    for (int first = 0; first < shards->count; first += SHARDS) {
        int count = shards->count - first < SHARDS ? shards->count - first : (int)SHARDS;
        shard_pixels part = {};
        for (int i = 0; i <= count; i++)
            part.begin[i] = (uint32_t)(shards->begin[first + i] * pixels);
        dim3 grid((s.c + COLUMNS - 1) / COLUMNS, (unsigned)count), block(COLUMNS, ROWS);
        lk__cuda_by_dtype(x->dtype, [&](auto kind) {
            using T = typename decltype(kind)::T;
            grad_weight<<<grid, block, 0, stream>>>(s, part, (const T *)x->data, (const T *)dy->data, moments,
                                                    leaves + (size_t)first * 2 * s.c);
        });
    }
    lk__cuda_launched(dev, "groupnorm_grad_weight");
}
