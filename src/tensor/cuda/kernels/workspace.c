/* workspace.c - memory of the device that a plan uses while it runs. */
#include "tensor/cuda/kernels/plans.h"

lk_status lk__cuda_workspace(const lk_cuda_io *io, size_t bytes, void **out)
{
    void *memory = bytes ? io->scratch(io->dev, bytes) : NULL;
    if (bytes && !memory)
        return lk__fail_memory(bytes, "the workspace of a layer on the GPU");
    *out = memory;
    return LK_OK;
}
