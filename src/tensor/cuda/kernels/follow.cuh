/* follow.cuh - launches of kernels that start while the kernel before them in the stream ends ("programmatic dependent
 * launch"), on GPUs of compute capability 9.0 and later. For nvcc only.
 *
 * Blocks of a kernel that follows are started when all blocks of the kernel before have started and there is room.
 * Every thread of it calls lk__cuda_await once, before it reads or writes global memory and before it returns. The call
 * returns when the kernel before has ended and its writes are visible. That kernel has either waited in the same way or
 * was launched plainly, so everything before it had ended, too: the order is that of plain launches. Kernels launched
 * plainly, copies, events, and streams that wait for events wait for the end of a kernel that follows.
 *
 * Recorded steps keep this: the dependence becomes a programmatic edge of the graph. A kernel with several
 * predecessors, as after a wait for another stream, waits for all of them. */
#ifndef LK_TENSOR_CUDA_KERNELS_FOLLOW_CUH
#define LK_TENSOR_CUDA_KERNELS_FOLLOW_CUH

#include <cuda_runtime.h>

/* Waits for the kernel before, then lets the next one start. A kernel may call it however it was launched. */
static __device__ __forceinline__ void lk__cuda_await()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* lk__cuda_await for kernels that run long and whose blocks fill a multiprocessor: the next one starts when all blocks
 * have ended. Blocks that wait for it would keep those of the other stream out. */
static __device__ __forceinline__ void lk__cuda_await_alone()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The arguments of <<<>>>, in its order, and when it starts. */
typedef struct lk_cuda_launch {
    dim3 grid, block;
    size_t shared; /* bytes */
    cudaStream_t stream;
    /* Launched plainly: it starts when the kernel before has ended, and kernels of the side stream that wait for the
     * same kernel get multiprocessors first. */
    bool late = false;
} lk_cuda_launch;

/* LK_FOLLOW_DRIVER: the first driver that records such launches. */
enum { LK_FOLLOW_DEVICES = 64, LK_FOLLOW_PTX = 90, LK_FOLLOW_DRIVER = 12030 };

/* Whether a kernel as it is loaded on the current device waits in lk__cuda_await: a GPU for which it was not compiled
 * runs the PTX for older ones. */
static inline bool lk__cuda_awaits(const void *kernel)
{
    cudaFuncAttributes attributes;
    int driver = 0;
    return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= LK_FOLLOW_PTX &&
           cudaDriverGetVersion(&driver) == cudaSuccess && driver >= LK_FOLLOW_DRIVER;
}

/* lk__cuda_awaits, asked once for each file and device: kernels of a file are compiled for the same GPUs. */
static inline bool lk__cuda_follows(const void *kernel)
{
    static signed char answers[LK_FOLLOW_DEVICES]; /* 0: not known, 1: yes, -1: no */
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess || device >= LK_FOLLOW_DEVICES)
        return false;
    signed char answer = __atomic_load_n(&answers[device], __ATOMIC_RELAXED);
    if (answer == 0) {
        answer = lk__cuda_awaits(kernel) ? 1 : -1;
        __atomic_store_n(&answers[device], answer, __ATOMIC_RELAXED);
    }
    return answer > 0;
}

/* As kernel<<<grid, block, shared, stream>>>(args...) for a kernel that calls lk__cuda_await; it starts early where it
 * can. Errors are found by lk__cuda_launched. */
template <class... Parameters, class... Arguments>
static void lk__cuda_follow(const lk_cuda_launch &launch, void (*kernel)(Parameters...), const Arguments &...args)
{
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t config = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = launch.grid;
    config.blockDim = launch.block;
    config.dynamicSmemBytes = launch.shared;
    config.stream = launch.stream;
    config.attrs = &early;
    config.numAttrs = !launch.late && lk__cuda_follows((const void *)kernel) ? 1 : 0;
    (void)cudaLaunchKernelEx(&config, kernel, args...);
}

#endif
