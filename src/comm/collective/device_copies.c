/* device_copies.c - the pool of copies in host memory. */
#include "comm/collective/device_copies.h"

#include <string.h>

#include "base/mem.h"

struct lk_device_copies_device {
    lk_device_copies_device *next;
    lk_device *dev;
    char name[64];
};

struct lk_device_copies_block {
    lk_device_copies_block *next; /* of the pool */
    lk_device_copies_block *more; /* of the same call */
    bool busy;
    char *host;
    size_t room; /* bytes */
    lk_device_copies_part part;
};

static lk_status open_new(lk_device_copies *pool, const char *name, lk_device **out)
{
    lk_device_copies_device *row = NULL;
    if (!lk__device_find(name) && strncmp(name, "cuda", 4) == 0)
        return lk__fail(LK_STATUS_UNSUPPORTED,
                        "a buffer has `device` %s, but this build is without CUDA: build Lockstep with CUDA, or give "
                        "host memory",
                        name);
    if (strlen(name) >= sizeof row->name)
        return lk__fail(LK_STATUS_USAGE, "a buffer has `device` '%.64s...', which is no device", name);
    LK_TRY(LK_ALLOC(1, "a device of a group", &row));
    lk_status status = lk__device_open(name, &(lk_device_opts){.threads = 1}, &row->dev);
    if (status != LK_OK) {
        lk__mem_free(row);
        return status;
    }
    memcpy(row->name, name, strlen(name) + 1);
    row->next = pool->devices;
    pool->devices = row;
    *out = row->dev;
    return LK_OK;
}

lk_status lk__device_copies_open(lk_device_copies *pool, const char *name, lk_device **out)
{
    const lk_device_type *type = name ? lk__device_find(name) : NULL;
    *out = NULL;
    if (!name || (type && type->host_memory))
        return LK_OK;
    for (lk_device_copies_device *row = pool->devices; row; row = row->next)
        if (strcmp(row->name, name) == 0) {
            *out = row->dev;
            return LK_OK;
        }
    return open_new(pool, name, out);
}

static lk_status alloc_host(lk_device *dev, size_t bytes, char **out)
{
    void *block = NULL;
    if (dev->type->alloc_host)
        LK_TRY(dev->type->alloc_host(dev, bytes, "copies of device buffers", &block));
    else
        LK_TRY(lk__mem_alloc(bytes, 1, "copies of device buffers", &block));
    *out = block;
    return LK_OK;
}

static void free_host(lk_device_copies_block *block)
{
    lk_device *dev = block->part.dev;
    if (block->host && dev->type->alloc_host)
        dev->type->free_host(dev, block->host);
    else
        lk__mem_free(block->host);
    block->host = NULL;
    block->room = 0;
}

/* The smallest free block that is large enough; else the largest free one, which is then enlarged; NULL: none is
 * free. */
static lk_device_copies_block *find_free(const lk_device_copies *pool, const lk_device *dev, size_t bytes)
{
    lk_device_copies_block *best = NULL;
    for (lk_device_copies_block *b = pool->blocks; b; b = b->next) {
        if (b->busy || b->part.dev != dev)
            continue;
        bool fits = b->room >= bytes, better = !best;
        if (best && best->room >= bytes)
            better = fits && b->room < best->room;
        else if (best)
            better = b->room > best->room;
        best = better ? b : best;
    }
    return best;
}

static lk_status take_block(lk_device_copies *pool, lk_device *dev, size_t bytes, lk_device_copies_block **out)
{
    lk_device_copies_block *block = find_free(pool, dev, bytes);
    if (!block) {
        LK_TRY(LK_ALLOC(1, "a copy of a device buffer", &block));
        block->part.dev = dev;
        block->next = pool->blocks;
        pool->blocks = block;
    }
    if (block->room < bytes) {
        free_host(block);
        LK_TRY(alloc_host(dev, bytes, &block->host));
        block->room = bytes;
    }
    block->busy = true;
    *out = block;
    return LK_OK;
}

static lk_device_copies_block *find_copy(lk_device_copies_block *copies, const lk_device_copies_part *part)
{
    while (copies &&
           (copies->part.dev != part->dev || copies->part.at != part->at || copies->part.bytes != part->bytes))
        copies = copies->more;
    return copies;
}

lk_status lk__device_copies_add(lk_device_copies *pool, const lk_device_copies_part *part,
                                lk_device_copies_block **copies, char **host)
{
    lk_device_copies_block *block = find_copy(*copies, part);
    bool known = block && block->part.in;
    bool back = block && block->part.back;
    if (!block) {
        LK_TRY(take_block(pool, part->dev, part->bytes, &block));
        block->more = *copies;
        *copies = block;
    }
    block->part = *part;
    block->part.in = known || part->in;
    block->part.back = back || part->back;
    if (part->in && !known)
        LK_TRY(part->dev->type->download(part->dev, part->at, part->bytes, block->host));
    *host = block->host;
    return LK_OK;
}

static lk_status copy_back(const lk_device_copies_block *block)
{
    const lk_device_copies_part *part = &block->part;
    if (!part->back)
        return LK_OK;
    LK_TRY(part->dev->type->upload(part->dev, block->host, part->bytes, part->at));
    return part->dev->type->sync(part->dev);
}

lk_status lk__device_copies_end(lk_device_copies_block *copies, lk_status status)
{
    bool failed = status != LK_OK;
    for (lk_device_copies_block *block = copies, *more; block; block = more) {
        more = block->more;
        if (status == LK_OK)
            status = copy_back(block);
        block->more = NULL;
        block->busy = failed;
    }
    return status;
}

lk_status lk__device_copies_copy(lk_device_copies *pool, const lk_device_copies_part *from,
                                 const lk_device_copies_part *to)
{
    lk_device_copies_block *copies = NULL;
    char *host = from->at;
    lk_status status = LK_OK;
    if (from->dev)
        status = lk__device_copies_add(pool, from, &copies, &host);
    if (status == LK_OK && to->dev)
        status = to->dev->type->upload(to->dev, host, to->bytes, to->at);
    if (status == LK_OK && to->dev)
        status = to->dev->type->sync(to->dev);
    if (status == LK_OK && !to->dev)
        memmove(to->at, host, to->bytes);
    return lk__device_copies_end(copies, status);
}

void lk__device_copies_fini(lk_device_copies *pool)
{
    while (pool->blocks) {
        lk_device_copies_block *block = pool->blocks;
        pool->blocks = block->next;
        free_host(block);
        lk__mem_free(block);
    }
    while (pool->devices) {
        lk_device_copies_device *row = pool->devices;
        pool->devices = row->next;
        lk__device_close(row->dev);
        lk__mem_free(row);
    }
}
