/* workspace.c - scratch memory that grows to the size of the largest call. */
#include <assert.h>
#include <stdio.h>

#include "base/mem.h"
#include "tensor/cuda/runtime/memory.h"

/* Each block is at least 1.5 times as large as the one before: 40 blocks reach terabytes, and all blocks
 * together have at most three times the bytes of the last. */
enum { FIRST_BYTES = 4 << 20, STEP_BYTES = 2 << 20, MAX_BLOCKS = 40 };

struct lk_cuda_workspace {
    int count;
    size_t bytes; /* of the last block */
    void *blocks[MAX_BLOCKS];
};

lk_status lk__cuda_workspace_create(lk_cuda_workspace **out)
{
    return LK_ALLOC(1, "scratch memory", out);
}

void lk__cuda_workspace_destroy(lk_device *dev, lk_cuda_workspace *workspace)
{
    if (!workspace)
        return;
    for (int i = 0; i < workspace->count; i++)
        lk__cuda_free(dev, workspace->blocks[i]);
    lk__mem_free(workspace);
}

/* Adds advice to the failure: scratch grows during steps, when the engine can no longer advise what would need
 * less memory. */
static lk_status advise(lk_status status)
{
    char detail[512];
    snprintf(detail, sizeof detail, "%s", lk_error_detail());
    return lk__fail(status, "%s; less is needed with a smaller `batch`, `micro_batch` or `precision` bf16", detail);
}

static lk_status grow(lk_device *dev, lk_cuda_workspace *workspace, size_t bytes)
{
    size_t least = workspace->count ? workspace->bytes / 2 * 3 : FIRST_BYTES;
    size_t size = lk__size_round_up(lk__size_max(bytes, least), STEP_BYTES);
    assert(workspace->count < MAX_BLOCKS);
    lk_status status = lk__cuda_alloc_raw(dev, size, "scratch", &workspace->blocks[workspace->count]);
    if (status != LK_OK)
        return advise(status);
    workspace->count++;
    workspace->bytes = size;
    return LK_OK;
}

static void *take(lk_device *dev, lk_cuda_workspace *workspace, size_t bytes)
{
    bool enough = workspace->count > 0 && bytes <= workspace->bytes;
    if (!enough && !lk__cuda_keep_status(dev, grow(dev, workspace, bytes)))
        return NULL;
    return workspace->blocks[workspace->count - 1];
}

void *lk__cuda_scratch(lk_device *dev, size_t bytes)
{
    return take(dev, ((lk_cuda_device *)dev)->workspace, bytes);
}

void *lk__cuda_side_scratch(lk_device *dev, size_t bytes)
{
    return take(dev, ((lk_cuda_device *)dev)->side_workspace, bytes);
}
