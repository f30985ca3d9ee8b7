/* staging.c - copies between device memory and staging buffers. */
#include "parallel/step/staging.h"

#include "base/mem.h"

lk_status lk__staging_alloc(const lk_device *dev, size_t bytes, const char *what, void **out)
{
    if (!dev->type->host_memory)
        return lk__mem_alloc(1, bytes, what, out);
    *out = NULL;
    return LK_OK;
}

lk_status lk__staging_fetch(lk_device *dev, const void *src, size_t bytes, void *at)
{
    return at == src ? dev->type->sync(dev) : dev->type->download(dev, src, bytes, at);
}

lk_status lk__staging_clear(lk_device *dev, const void *dst, const void *at)
{
    return at == dst ? dev->type->sync(dev) : LK_OK;
}

lk_status lk__staging_store(lk_device *dev, const void *at, size_t bytes, void *dst)
{
    return at == dst ? LK_OK : dev->type->upload(dev, at, bytes, dst);
}
