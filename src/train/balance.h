/* balance.h - how many shards each replica trains, by the time that replicas need for theirs. Pure arithmetic: every
 * rank decides the same by the same numbers. */
#ifndef LK_TRAIN_BALANCE_H
#define LK_TRAIN_BALANCE_H

#include <stdbool.h>

#include "base/status.h"

/* The steps after which the ranks exchange their times. */
enum { LK_BALANCE_WINDOW = 8 };

/* The times of a rank in a window, in seconds: medians of its steps. */
typedef struct lk_balance_times {
    double own;   /* without waits for other ranks */
    double whole; /* from the end of a step to the end of the next */
} lk_balance_times;

typedef struct lk_balance {
    int shards, replicas;
    bool wanted;    /* the last window asked for a move */
    double *cost;   /* (replicas) seconds of a shard in this window */
    double *before; /* (replicas) in the last window */
} lk_balance;

lk_status lk__balance_init(lk_balance *balance, int shards, int replicas) LK_CHECKED;
void lk__balance_fini(lk_balance *balance);

/* Finds the bounds, (replicas + 1), with which the slowest replica needs the least time, and returns this time. cost is
 * (replicas): the seconds of a shard at each. Each replica gets at least one shard. */
double lk__balance_cut(int shards, int replicas, const double *cost, int *bounds);

/* Takes the times of a window, (replicas), in which the replicas had the shards `now`, (replicas + 1). Returns whether
 * to move shards, and writes the bounds to next, (replicas + 1). Shards move if another cut would have saved at least
 * a tenth of the step in two windows in a row. */
bool lk__balance_decide(lk_balance *balance, const lk_balance_times *times, const int *now, int *next);

#endif
