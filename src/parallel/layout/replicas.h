/* replicas.h - replicas of a model: starting alike, and proof that they still
 * are.
 *
 * Replicas hold the same bits after every step. A bit that memory flipped, or a
 * program that changed one of them, would else go unnoticed and spoil all. */
#ifndef LK_PARALLEL_LAYOUT_REPLICAS_H
#define LK_PARALLEL_LAYOUT_REPLICAS_H

#include <lockstep/group.h>

#include "nn/params.h"
#include "optim/optim.h"

/* Together: gives all ranks of group rank 0's parameters, buffers and batch
 * counters. */
lk_status lk__replicas_start(lk_group *group, lk_params *params) LK_CHECKED;
/* Together: gives all ranks of group rank 0's optimiser state. */
lk_status lk__replicas_start_optim(lk_group *group, const lk_params *params, lk_optim *optim) LK_CHECKED;

/* Together: compares parameters, buffers, batch counters and optimiser state
 * among the ranks of group, which are replicas; rank r of it is rank
 * r * stages + stage of the job. A difference is MISMATCH at every rank, with
 * the same words: the step, the first few tensors, and the ranks that do not
 * agree with most of the others, or all where no state is the most frequent. */
lk_status lk__replicas_compare(lk_group *group, const lk_params *params, const lk_optim *optim, uint64_t step,
                               int stage, int stages) LK_CHECKED;

#endif
