/* replicas.h - giving all replicas of a model the same state, and comparing them.
 *
 * Replicas have the same bits after every step. The comparison finds bits that faulty memory or the
 * user's program has changed in one of them. */
#ifndef LK_PARALLEL_LAYOUT_REPLICAS_H
#define LK_PARALLEL_LAYOUT_REPLICAS_H

#include <lockstep/group.h>

#include "nn/params.h"
#include "optim/optim.h"

/* Collective: broadcasts rank 0's parameters, buffers and batch counters to all ranks of group. */
lk_status lk__replicas_start(lk_group *group, lk_params *params) LK_CHECKED;
/* Collective: broadcasts rank 0's values of a flat array with the parameters' offsets. */
lk_status lk__replicas_start_array(lk_group *group, const lk_params *params, float *array) LK_CHECKED;
/* Collective: broadcasts rank 0's optimiser state to all ranks of group. */
lk_status lk__replicas_start_optim(lk_group *group, const lk_params *params, lk_optim *optim) LK_CHECKED;

/* Collective: compares parameters, buffers, batch counters and optimiser state of the ranks of group,
 * which are replicas; rank r of group is rank r * stages + stage of the job. A difference is MISMATCH at
 * every rank, with the same detail: the step, the first few tensors, and the ranks that differ from the
 * most frequent state, or all ranks if no state is the most frequent. */
lk_status lk__replicas_compare(lk_group *group, const lk_params *params, const lk_optim *optim, uint64_t step,
                               int stage, int stages) LK_CHECKED;

#endif
