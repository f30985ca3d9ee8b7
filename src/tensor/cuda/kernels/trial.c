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

/* While the GPU is held, the host enqueues all runs, so that the time is that of the GPU. */
static lk_status time_once(const lk_cuda_io *io, lk_status (*run)(void *arg), void *arg, cudaEvent_t begin,
                           cudaEvent_t end, double *seconds)
{
    enum { RUNS = 4, HOLD_US = 100 };
    float ms = 0;
    lk__cuda_trial_hold(io->stream, HOLD_US);
    lk__cuda_launched(io->dev, "the time of a trial");
    cudaError_t error = cudaEventRecord(begin, io->stream);
    for (int i = 0; i < RUNS; i++)
        LK_TRY(run(arg));
    if (error == cudaSuccess)
        error = cudaEventRecord(end, io->stream);
    if (error == cudaSuccess)
        error = cudaEventSynchronize(end);
    if (error == cudaSuccess)
        error = cudaEventElapsedTime(&ms, begin, end);
    *seconds = ms * 1e-3 / RUNS;
    return lk__cuda_status(io->dev, error, "the time of a trial");
}

static lk_status trial_time(const lk_cuda_io *io, lk_status (*run)(void *arg), void *arg, double *seconds)
{
    enum { ROUNDS = 2 };
    cudaEvent_t begin = NULL, end = NULL;
    lk_status status = lk__cuda_status(io->dev, cudaEventCreate(&begin), "an event");
    if (status == LK_OK)
        status = lk__cuda_status(io->dev, cudaEventCreate(&end), "an event");
    for (int i = 0; i < ROUNDS && status == LK_OK; i++) {
        double taken = 0;
        status = time_once(io, run, arg, begin, end, &taken);
        if (i == 0 || taken < *seconds)
            *seconds = taken;
    }
    if (begin)
        (void)cudaEventDestroy(begin);
    if (end)
        (void)cudaEventDestroy(end);
    return status;
}

const lk_cuda_trial_type lk__cuda_trial = {
    .alloc = trial_alloc,
    .free = trial_free,
    .fill = trial_fill,
    .reset = trial_reset,
    .compare = trial_compare,
    .fetch = trial_fetch,
    .time = trial_time,
};
