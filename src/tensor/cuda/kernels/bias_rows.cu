/* bias_rows.cu - a bias for each channel, for layers whose products do not add it, and its gradient: a chain in each
 * thread over every ROWS-th pixel of a shard, then a chain over ROWS threads. */
#include "tensor/cuda/kernels/vec.cuh"

enum { COLUMNS = 32, ROWS = 32, SHARDS = 64 /* of a launch */ };

template <class T>
static __global__ void add(size_t count, size_t c, size_t pitch, const float *b, T *y)
{
    size_t i = lk__cuda_thread();
    if (i < count && i % pitch < c)
        y[i] = (T)((float)y[i] + b[i % pitch]);
}

extern "C" void lk__cuda_bias_add(lk_device *dev, const float *b, lk_tensor *y)
{
    size_t count = lk__cuda_elements(y);
    if (count == 0)
        return;
    cudaStream_t stream = lk__cuda_stream(dev);
    lk__cuda_by_dtype(y->dtype, [&](auto kind) {
        using T = typename decltype(kind)::T;
        add<<<lk__cuda_blocks(count), LK_THREADS, 0, stream>>>(count, y->shape.c, lk__tensor_pitch(y), b, (T *)y->data);
    });
    lk__cuda_launched(dev, "bias_add");
}

/* Pixels of some shards, counted over all samples. */
struct shard_pixels {
    uint32_t begin[SHARDS + 1];
};

/* A block computes COLUMNS channels of one shard. */
template <class T>
static __global__ void sums(unsigned c, unsigned pitch, shard_pixels shards, const T *dy, float *leaves)
{
    __shared__ float chains[ROWS][COLUMNS];
    unsigned column = threadIdx.x, row = threadIdx.y, channel = blockIdx.x * COLUMNS + column;
    float sum = 0;
    for (uint32_t p = shards.begin[blockIdx.y] + row; channel < c && p < shards.begin[blockIdx.y + 1]; p += ROWS)
        sum += (float)dy[(size_t)p * pitch + channel];
    chains[row][column] = sum;
    __syncthreads();
    if (row > 0 || channel >= c)
        return;
    for (int i = 1; i < ROWS; i++)
        sum += chains[i][column];
    leaves[(size_t)blockIdx.y * c + channel] = sum;
}

extern "C" void lk__cuda_bias_sums(lk_device *dev, const lk_tensor *dy, const lk_shards *shards, float *leaves)
{
    size_t pixels = dy->shape.h * dy->shape.w;
    unsigned c = (unsigned)dy->shape.c, pitch = (unsigned)lk__tensor_pitch(dy);
    cudaStream_t stream = lk__cuda_stream(dev);
    for (int first = 0; first < shards->count; first += SHARDS) {
        int count = shards->count - first < SHARDS ? shards->count - first : (int)SHARDS;
        shard_pixels part = {};
        for (int i = 0; i <= count; i++)
            part.begin[i] = (uint32_t)(shards->begin[first + i] * pixels);
        dim3 grid((c + COLUMNS - 1) / COLUMNS, (unsigned)count), block(COLUMNS, ROWS);
        lk__cuda_by_dtype(dy->dtype, [&](auto kind) {
            using T = typename decltype(kind)::T;
            sums<<<grid, block, 0, stream>>>(c, pitch, part, (const T *)dy->data, leaves + (size_t)first * c);
        });
    }
    lk__cuda_launched(dev, "bias_sums");
}
