/* workspace.c - memory of the device that a plan uses while it runs. */
#include "tensor/cuda/kernels/plans.h"

lk_status lk__cuda_workspace(const lk_cuda_io *io, size_t bytes, void **out)
{
    char *memory = bytes ? io->scratch(io->dev, io->reserved + bytes) : NULL;
    if (bytes && !memory)
        return lk__fail_memory(bytes, "the workspace of a layer on the GPU");
    *out = memory ? memory + io->reserved : NULL;
    return LK_OK;
}
