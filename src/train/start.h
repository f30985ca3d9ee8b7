/* start.h - what is told of a rank before its first step. */
#ifndef LK_TRAIN_START_H
#define LK_TRAIN_START_H

#include "train/parts.h"

/* Where the rank stands; layout and share are left to the engine. */
lk_train_place lk__train_place(const lk_train_rank *rank);
/* The next number of shards that gives each replica one whole subtree; 0 when
 * shards is such a number, or there is one replica. */
int lk__train_better_shards(int shards, int replicas);
/* The layers at which the stages of spec begin, after the first; freed by
 * lk__mem_free, NULL without spec. */
lk_status lk__train_cuts(const lk_graph *graph, const char *spec, char (**out)[LK_LAYER_TEXT]) LK_CHECKED;

#endif
