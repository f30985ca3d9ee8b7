/* trial.h - memory and kernels with which algorithms are tried (pinned.h). They are a table, so that a test can try
 * algorithms of its own in host memory, without a GPU. */
#ifndef LK_TENSOR_CUDA_KERNELS_TRIAL_H
#define LK_TENSOR_CUDA_KERNELS_TRIAL_H

#include "tensor/cuda/kernels/plans.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Work is enqueued on io->stream; faults of kernels are kept with io->dev. */
typedef struct lk_cuda_trial_type {
    /* Returns MEMORY if the device has none left. */
    lk_status (*alloc)(const lk_cuda_io *io, size_t bytes, void **out);
    /* NULL is allowed. */
    void (*free)(const lk_cuda_io *io, void *block);
    /* Writes `count` numbers in [-1,1) that depend on seed and index only. */
    void (*fill)(const lk_cuda_io *io, lk_dtype type, size_t count, unsigned seed, void *out);
    /* Sets *different, in the memory of alloc, to 0. */
    lk_status (*reset)(const lk_cuda_io *io, unsigned *different);
    /* Adds the number of 16-bit words in which a and b differ to *different. `bytes` is even. */
    void (*compare)(const lk_cuda_io *io, const void *a, const void *b, size_t bytes, unsigned *different);
    /* Blocks until all work on the stream is complete; *out is a copy of *different. */
    lk_status (*fetch)(const lk_cuda_io *io, const unsigned *different, unsigned *out);
    /* Calls `run`, which enqueues work, a few times; *seconds is the shortest time of that work. */
    lk_status (*time)(const lk_cuda_io *io, lk_status (*run)(void *arg), void *arg, double *seconds);
} lk_cuda_trial_type;

/* The table of the device. */
extern const lk_cuda_trial_type lk__cuda_trial;

/* Kernels of `fill`, `compare` and `time`, in trial_kernels.cu. The last one does nothing for some microseconds. */
void lk__cuda_trial_fill(cudaStream_t stream, lk_dtype type, size_t count, unsigned seed, void *out);
void lk__cuda_trial_compare(cudaStream_t stream, const void *a, const void *b, size_t bytes, unsigned *different);
void lk__cuda_trial_hold(cudaStream_t stream, int microseconds);

#ifdef __cplusplus
}
#endif
#endif
