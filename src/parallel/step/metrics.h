/* metrics.h - the metrics of a batch, from the losses and label ranks of its samples. */
#ifndef LK_PARALLEL_STEP_METRICS_H
#define LK_PARALLEL_STEP_METRICS_H

#include "parallel/step/engine_impl.h"

/* Fills engine->leaves from host_losses, host_label_ranks and host_errors of this rank's samples, and returns the
 * metrics of these samples; zeros if this rank computes no losses. */
lk_metrics lk__metrics_leaves(lk_engine *engine, const lk_engine_part *part);
/* Collective: the metrics of all `total` samples. */
lk_status lk__metrics_total(lk_engine *engine, const lk_engine_part *part, lk_metrics *out) LK_CHECKED;

#endif
