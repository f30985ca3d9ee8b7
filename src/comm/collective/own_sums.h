/* own_sums.h - sums by the engine below a group (MPI_Iallreduce), in an order of the engine's own.
 *
 * The bits of such a sum depend on the number of ranks and on the engine: it is outside the law. One thread at a
 * time, as for the group's other calls. */
#ifndef LK_COMM_COLLECTIVE_OWN_SUMS_H
#define LK_COMM_COLLECTIVE_OWN_SUMS_H

#include <lockstep/group.h>

#include "base/status.h"

/* Whether the group's transport has an engine that sums. The same at all ranks. */
bool lk__group_has_own_sums(const lk_group *group);
/* Collective. Starts the sum of `count` floats over all ranks, in place: values must stay until it is done. The
 * first call may block until all ranks have made it. */
lk_status lk__group_own_sum(lk_group *group, float *values, size_t count, uint64_t *ticket) LK_CHECKED;
/* Blocks until that sum is done, the group has failed, or the group's timeout has passed. */
lk_status lk__group_own_wait(lk_group *group, uint64_t ticket) LK_CHECKED;

#endif
