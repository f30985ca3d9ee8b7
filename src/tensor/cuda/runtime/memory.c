/* memory.c - the memory of a CUDA device. Uploads go through a ring of pinned memory, so the host does not wait
 * for work enqueued before. */
#include "tensor/cuda/runtime/memory.h"

#include <assert.h>
#include <string.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/text.h"
#include "tensor/cuda/runtime/query.h"

enum { PIECE_BYTES = 512 << 10, PIECES = 32, RING_BYTES = PIECE_BYTES * PIECES };

static_assert(4 * (LK_CUDA_PROMPT_UPLOAD / PIECE_BYTES) <= PIECES, "four of them have room");

struct lk_cuda_staging {
    char *memory;               /* (PIECES, PIECE_BYTES), pinned */
    cudaEvent_t copied[PIECES]; /* after it the piece may be overwritten */
    int next;
};

static lk_status fail_memory(const lk_cuda_device *cuda, size_t bytes, const char *what)
{
    char title[LK_CUDA_TITLE], memory[LK_CUDA_FREE], asked[LK_TEXT_AMOUNT];
    (void)cudaGetLastError();
    return lk__fail(LK_STATUS_MEMORY, "%s: no memory for %s: %s are asked for, and %s",
                    lk__cuda_title(cuda->index, title), what, lk__text_amount(bytes, asked),
                    lk__cuda_free_text(memory));
}

lk_status lk__cuda_alloc_raw(lk_device *dev, size_t bytes, const char *what, void **out)
{
    void *block = NULL;
    LK_TRY(lk__cuda_use(dev));
    cudaError_t error = lk__fault_alloc() ? cudaErrorMemoryAllocation : cudaMalloc(&block, lk__size_max(bytes, 1));
    if (error == cudaErrorMemoryAllocation)
        return fail_memory((lk_cuda_device *)dev, bytes, what);
    LK_TRY(lk__cuda_status(dev, error, what));
    *out = block;
    return LK_OK;
}

lk_status lk__cuda_alloc(lk_device *dev, size_t bytes, const char *what, void **out)
{
    cudaStream_t stream = ((lk_cuda_device *)dev)->stream;
    void *block = NULL;
    LK_TRY(lk__cuda_alloc_raw(dev, bytes, what, &block));
    cudaError_t error = cudaMemsetAsync(block, 0, lk__size_max(bytes, 1), stream);
    /* Waits, because other ranks, which do not know this stream, may read the memory next. */
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    if (error != cudaSuccess) {
        (void)cudaFree(block);
        return lk__cuda_status(dev, error, what);
    }
    *out = block;
    return LK_OK;
}

void lk__cuda_free(lk_device *dev, void *block)
{
    if (block && lk__cuda_keep_status(dev, lk__cuda_use(dev)))
        (void)lk__cuda_keep(dev, cudaFree(block), "giving memory back");
}

size_t lk__cuda_room(lk_device *dev)
{
    size_t available = 0, total = 0;
    if (lk__cuda_use(dev) != LK_OK || cudaMemGetInfo(&available, &total) != cudaSuccess)
        return 0;
    return available;
}

lk_status lk__cuda_staging_create(lk_device *dev, lk_cuda_staging **out)
{
    lk_cuda_staging *staging;
    LK_TRY(LK_ALLOC(1, "uploads", &staging));
    cudaError_t error = cudaHostAlloc((void **)&staging->memory, RING_BYTES, cudaHostAllocDefault);
    for (int i = 0; i < PIECES && error == cudaSuccess; i++)
        error = cudaEventCreateWithFlags(&staging->copied[i], cudaEventDisableTiming);
    if (error != cudaSuccess) {
        lk__cuda_staging_destroy(staging);
        return lk__cuda_status(dev, error, "pinned memory for uploads");
    }
    *out = staging;
    return LK_OK;
}

void lk__cuda_staging_destroy(lk_cuda_staging *staging)
{
    if (!staging)
        return;
    for (int i = 0; i < PIECES && staging->copied[i]; i++)
        (void)cudaEventDestroy(staging->copied[i]);
    if (staging->memory)
        (void)cudaFreeHost(staging->memory);
    lk__mem_free(staging);
}

static cudaError_t upload_piece(lk_cuda_staging *staging, const void *host, size_t bytes, void *dst,
                                cudaStream_t stream)
{
    int piece = staging->next;
    char *pinned = staging->memory + (size_t)piece * PIECE_BYTES;
    /* An event that was never recorded counts as complete. */
    cudaError_t error = cudaEventSynchronize(staging->copied[piece]);
    if (error != cudaSuccess)
        return error;
    memcpy(pinned, host, bytes);
    error = cudaMemcpyAsync(dst, pinned, bytes, cudaMemcpyHostToDevice, stream);
    if (error == cudaSuccess)
        error = cudaEventRecord(staging->copied[piece], stream);
    staging->next = (piece + 1) % PIECES;
    return error;
}

static cudaError_t upload_waiting(const void *host, size_t bytes, void *dst, cudaStream_t stream)
{
    cudaError_t error = cudaMemcpyAsync(dst, host, bytes, cudaMemcpyHostToDevice, stream);
    return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}

lk_status lk__cuda_upload(lk_device *dev, const void *host, size_t bytes, void *dst)
{
    lk_cuda_staging *staging = ((lk_cuda_device *)dev)->staging;
    cudaError_t error = cudaSuccess;
    LK_TRY(lk__cuda_use(dev));
    cudaStream_t stream = lk__cuda_stream(dev);
    if (bytes > RING_BYTES)
        return lk__cuda_status(dev, upload_waiting(host, bytes, dst, stream), "an upload");
    for (size_t at = 0; at < bytes && error == cudaSuccess; at += PIECE_BYTES)
        error = upload_piece(staging, (const char *)host + at, lk__size_min(bytes - at, PIECE_BYTES), (char *)dst + at,
                             stream);
    return lk__cuda_status(dev, error, "an upload");
}

lk_status lk__cuda_download(lk_device *dev, const void *src, size_t bytes, void *host)
{
    LK_TRY(lk__cuda_use(dev));
    cudaStream_t stream = lk__cuda_stream(dev);
    if (bytes > 0)
        (void)lk__cuda_keep(dev, cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost, stream), "a download");
    return lk__cuda_sync(dev);
}
