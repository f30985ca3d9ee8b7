/* metrics.h - losses and hits of a batch. */
#ifndef LK_PARALLEL_STEP_METRICS_H
#define LK_PARALLEL_STEP_METRICS_H

#include "parallel/step/engine_impl.h"

/* Fills leaves from loss and place, which are of this rank's samples in a batch of `total`;
 * returns the metrics of those. Zeros where this rank computes no losses. */
lk_metrics lk__metrics_leaves(lk_engine *engine, size_t total);
/* Together: the metrics of all `total` samples. */
lk_status lk__metrics_total(lk_engine *engine, size_t total, lk_metrics *out) LK_CHECKED;

#endif
