/* mem.c - aligned host memory. */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

lk_status lk__alloc(size_t count, size_t size, const char *what, void **out)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - LK_ALIGN)
        return lk__fail(LK_STATUS_MEMORY, "%s would need %zu times %zu bytes, more than can be addressed", what, count,
                        size);
    bytes = lk__round_up(bytes ? bytes : 1, LK_ALIGN);
    void *block = aligned_alloc(LK_ALIGN, bytes);
    if (!block)
        return lk__fail_memory(bytes, what);
    memset(block, 0, bytes);
    *out = block;
    return LK_OK;
}

void lk__free(void *block)
{
    free(block);
}
