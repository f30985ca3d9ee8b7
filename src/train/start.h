/* start.h - information about a rank for the start event. */
#ifndef LK_TRAIN_START_H
#define LK_TRAIN_START_H

#include "train/parts.h"

/* The rank, without layout and share, which come from the engine. */
lk_train_rank_info lk__train_rank_info(const lk_train_rank *rank);
/* The next number of shards with which each replica has one whole subtree; 0 if `shards` is such a number or
 * there is one replica. */
int lk__train_better_shards(int shards, int replicas);
/* The first layers of stages 1, 2 ... of spec; freed with lk__mem_free. *out is NULL if spec is NULL. */
lk_status lk__train_cuts(const lk_graph *graph, const char *spec, char (**out)[LK_LAYER_TEXT]) LK_CHECKED;

#endif
