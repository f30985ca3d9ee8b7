/* staging.h - copies in the host's memory, for groups cannot reach every device's.
 *
 * What a group moves has a copy where the device's memory is out of the host's
 * reach; elsewhere the copy is NULL, and the group works on the device's memory
 * itself. Callers need not know which of the two it is. */
#ifndef LK_PARALLEL_STEP_STAGING_H
#define LK_PARALLEL_STEP_STAGING_H

#include "tensor/device.h"

/* A copy of so many bytes, or NULL where none is needed; free it with lk__mem_free. */
lk_status lk__staging_alloc(const lk_device *dev, size_t bytes, const char *what, void **out) LK_CHECKED;

/* Where a group finds what is in the device's memory at `place`. */
static inline void *lk__staging_at(void *copy, void *place)
{
    return copy ? copy : place;
}

/* Before a group reads: what all work so far leaves in the device's memory at src
 * is then at lk__staging_at, which `at` is. */
lk_status lk__staging_fetch(lk_device *dev, const void *src, size_t bytes, void *at) LK_CHECKED;
/* Before a group writes: work so far on the device's memory at dst does not mind. */
lk_status lk__staging_clear(lk_device *dev, const void *dst, const void *at) LK_CHECKED;
/* After a group has written, before the device reads. `at` may then be used again. */
lk_status lk__staging_store(lk_device *dev, const void *at, size_t bytes, void *dst) LK_CHECKED;

#endif
