/* staging.h - staging buffers: host memory through which a group accesses a device's memory.
 *
 * If the host cannot access the device's memory, data that a group moves have a staging buffer. Otherwise
 * the buffer is NULL, and the group works on the device's memory directly. Callers use the same functions
 * in both cases. */
#ifndef LK_PARALLEL_STEP_STAGING_H
#define LK_PARALLEL_STEP_STAGING_H

#include "tensor/device.h"

/* Allocates a staging buffer; *out is NULL if none is needed. Freed with lk__mem_free. */
lk_status lk__staging_alloc(const lk_device *dev, size_t bytes, const char *what, void **out) LK_CHECKED;

/* The memory that the group uses: the staging buffer `copy`, or the device's memory if copy is NULL. In the
 * functions below, `at` is this result. */
static inline void *lk__staging_at(void *copy, void *memory)
{
    return copy ? copy : memory;
}

/* Before a group reads: blocks until the work enqueued so far is done, and copies src to `at`. */
lk_status lk__staging_fetch(lk_device *dev, const void *src, size_t bytes, void *at) LK_CHECKED;
/* Before a group writes to `at`: blocks until kernels that may still use dst are done, if `at` is dst. */
lk_status lk__staging_clear(lk_device *dev, const void *dst, const void *at) LK_CHECKED;
/* After a group has written to `at`, before the device reads: copies `at` to dst. Afterwards `at` may be used
 * again. */
lk_status lk__staging_store(lk_device *dev, const void *at, size_t bytes, void *dst) LK_CHECKED;

#endif
