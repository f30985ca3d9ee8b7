/* trial_kernels.cu - random numbers, and the comparison of results to the bit, for trials of algorithms. */
#include "tensor/cuda/kernels/trial.h"
#include "tensor/cuda/kernels/vec.cuh"

static __device__ float random_at(size_t i, unsigned seed)
{
    unsigned h = ((unsigned)i + 0x9e3779b9u * seed) * 2654435761u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    h *= 3266489917u;
    h ^= h >> 16;
    return (float)(int)(h >> 8) * (1.0f / (1 << 23)) - 1.0f;
}

template <class T>
static __global__ void fill(size_t count, unsigned seed, T *out)
{
    size_t i = lk__cuda_thread();
    if (i >= count)
        return;
    float v[1] = {random_at(i, seed)};
    lk__cuda_store(out + i, v);
}

void lk__cuda_trial_fill(cudaStream_t stream, lk_dtype type, size_t count, unsigned seed, void *out)
{
    if (type == LK_DTYPE_BF16)
        fill<<<lk__cuda_blocks(count), LK_THREADS, 0, stream>>>(count, seed, (lk_bf16 *)out);
    else
        fill<<<lk__cuda_blocks(count), LK_THREADS, 0, stream>>>(count, seed, (float *)out);
}

static __global__ void count_different(size_t count, const unsigned short *a, const unsigned short *b, unsigned *out)
{
    size_t i = lk__cuda_thread();
    if (i < count && a[i] != b[i])
        atomicAdd(out, 1u);
}

void lk__cuda_trial_compare(cudaStream_t stream, const void *a, const void *b, size_t bytes, unsigned *different)
{
    size_t words = bytes / sizeof(unsigned short);
    count_different<<<lk__cuda_blocks(words), LK_THREADS, 0, stream>>>(words, (const unsigned short *)a,
                                                                       (const unsigned short *)b, different);
}

static __global__ void hold(unsigned long long ns)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < ns);
}

void lk__cuda_trial_hold(cudaStream_t stream, int microseconds)
{
    hold<<<1, 1, 0, stream>>>((unsigned long long)microseconds * 1000);
}
