// post.cu - a step's results to memory of the host, which looks at it meanwhile.
#include "tensor/cuda/cuda.h"

enum { THREADS = 256 };

/* One block: the number must come after all else. */
static __global__ void post_results(lk_post post)
{
    uint32_t step = *post.step;
    lk_results *results = (lk_results *)(post.ring + (size_t)(step % post.slots) * post.stride);
    float *loss = (float *)(results + 1);
    int32_t *place = (int32_t *)(loss + post.n);
    for (size_t i = threadIdx.x; i < post.n; i += THREADS) {
        loss[i] = post.loss[i];
        place[i] = post.place[i];
    }
    if (threadIdx.x == 0)
        results->flag = *post.flag;
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0)
        *(volatile uint32_t *)&results->number = step + 1;
}

void lk__cuda_post(lk_device *dev, const lk_post *post)
{
    post_results<<<1, THREADS, 0, lk__cuda_stream(dev)>>>(*post);
    lk__cuda_launched(dev, "results of a step");
}
