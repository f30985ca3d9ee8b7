/* post.cu - reads a step's data from the host's ring, and writes the results of the step to a second ring, which
 * the host reads while kernels run. */
#include "tensor/cuda/kernels/follow.cuh"
#include "tensor/cuda/runtime/cuda.h"

enum { THREADS = 256, FETCH_THREADS = 1024 };

/* One block, because the number must be written after everything else. */
static __global__ void post_results(lk_post post)
{
    lk__cuda_await();
    uint32_t turn = *post.turn;
    lk_results *results = (lk_results *)(post.ring + (size_t)(turn % post.slots) * post.stride);
    float *loss = (float *)(results + 1);
    int32_t *label_rank = (int32_t *)(loss + post.n);
    for (size_t i = threadIdx.x; i < post.n; i += THREADS) {
        loss[i] = post.loss[i];
        label_rank[i] = post.label_rank[i];
    }
    for (size_t i = threadIdx.x; post.error && i < 2 * post.n; i += THREADS)
        loss[2 * post.n + i] = post.error[i];
    if (threadIdx.x == 0) {
        results->flag = *post.flag;
        results->square = post.norm ? post.norm->square : 0;
    }
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0)
        *(volatile uint32_t *)&results->number = turn + 1;
}

void lk__cuda_post(lk_device *dev, const lk_post *post)
{
    lk__cuda_follow({1, THREADS, 0, lk__cuda_stream(dev)}, post_results, *post);
    lk__cuda_launched(dev, "results of a step");
}

/* One block, because the turn may advance only after all threads have read it. */
static __global__ void fetch_words(lk_fetch_desc fetch, uint32_t *dst)
{
    lk__cuda_await();
    uint32_t turn = *fetch.turn;
    const uint32_t *src = (const uint32_t *)(fetch.ring + (size_t)(turn % fetch.slots) * fetch.stride);
    for (size_t i = threadIdx.x; i < fetch.bytes / sizeof *src; i += FETCH_THREADS)
        dst[i] = __ldcv(src + i);
    __syncthreads();
    if (threadIdx.x == 0)
        *fetch.turn = turn + 1;
}

void lk__cuda_fetch(lk_device *dev, const lk_fetch_desc *fetch, void *dst)
{
    lk__cuda_follow({1, FETCH_THREADS, 0, lk__cuda_stream(dev)}, fetch_words, *fetch, (uint32_t *)dst);
    lk__cuda_launched(dev, "what a step needs");
}
