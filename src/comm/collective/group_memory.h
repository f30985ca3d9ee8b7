/* group_memory.h - memory that ranks share: what they tell each other about it, and how much there is. */
#ifndef LK_COMM_COLLECTIVE_GROUP_MEMORY_H
#define LK_COMM_COLLECTIVE_GROUP_MEMORY_H

#include <stddef.h>

#include <lockstep/group.h>

#include "base/status.h"

/* Collective: every rank gives `bytes` bytes, at most 256, and gets those of all ranks, (size, bytes) in rank order. It
 * uses the control, so it counts as no call of the group. Blocks. */
lk_status lk__group_exchange(lk_group *group, const void *mine, size_t bytes, void *all) LK_CHECKED;

/* Bytes that the ranks of this host together can still get by lk_group_alloc, apart from the limits of the host's
 * memory itself; SIZE_MAX: no other limit. Does not communicate. */
size_t lk__group_room(const lk_group *group);

#endif
