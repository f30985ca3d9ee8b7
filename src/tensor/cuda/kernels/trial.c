/* trial.c - trials of algorithms in the memory of the device. */
#include "tensor/cuda/kernels/trial.h"

#include "tensor/cuda/runtime/memory.h"

static lk_status trial_alloc(const lk_cuda_io *io, size_t bytes, void **out)
{
    return lk__cuda_alloc_raw(io->dev, bytes, "a trial of a layer", out);
}

static void trial_free(const lk_cuda_io *io, void *block)
{
    lk__cuda_free(io->dev, block);
}

static void trial_fill(const lk_cuda_io *io, lk_dtype type, size_t count, unsigned seed, void *out)
{
    lk__cuda_trial_fill(io->stream, type, count, seed, out);
    lk__cuda_launched(io->dev, "random numbers for a trial");
}

static lk_status trial_reset(const lk_cuda_io *io, unsigned *different)
{
    return lk__cuda_status(io->dev, cudaMemsetAsync(different, 0, sizeof *different, io->stream), "a trial");
}

static void trial_compare(const lk_cuda_io *io, const void *a, const void *b, size_t bytes, unsigned *different)
{
    lk__cuda_trial_compare(io->stream, a, b, bytes, different);
    lk__cuda_launched(io->dev, "the comparison of a trial");
}

static lk_status trial_fetch(const lk_cuda_io *io, const unsigned *different, unsigned *out)
{
    unsigned count = 0;
    cudaError_t error = cudaMemcpyAsync(&count, different, sizeof count, cudaMemcpyDeviceToHost, io->stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(io->stream);
    LK_TRY(lk__cuda_status(io->dev, error, "a trial"));
    *out = count;
    return LK_OK;
}

const lk_cuda_trial_type lk__cuda_trial = {
    .alloc = trial_alloc,
    .free = trial_free,
    .fill = trial_fill,
    .reset = trial_reset,
    .compare = trial_compare,
    .fetch = trial_fetch,
};
