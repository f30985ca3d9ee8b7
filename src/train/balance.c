/* balance.c - the cut of the shards that the slowest replica finishes first, and when it is worth a move. */
#include "train/balance.h"

#include "base/mem.h"

/* The part of a step that a move must save. Ranks of equal speed stay below it: of 16 shards, one that moves between
 * two ranks saves a tenth only where one rank needs a quarter more time for a shard than the other. */
#define LEAST_GAIN 0.1

lk_status lk__balance_init(lk_balance *balance, int shards, int replicas)
{
    *balance = (lk_balance){.shards = shards, .replicas = replicas};
    LK_TRY(LK_ALLOC((size_t)replicas, "the replicas' times", &balance->cost));
    return LK_ALLOC((size_t)replicas, "the replicas' times", &balance->before);
}

void lk__balance_fini(lk_balance *balance)
{
    lk__mem_free(balance->before);
    lk__mem_free(balance->cost);
    *balance = (lk_balance){0};
}

static double slowest(int replicas, const double *cost, const int *bounds)
{
    double most = 0;
    for (int r = 0; r < replicas; r++) {
        double time = cost[r] * (bounds[r + 1] - bounds[r]);
        most = time > most ? time : most;
    }
    return most;
}

/* Gives the shards out one by one, each to the replica that would then be the first to finish. bounds[r + 1] is the
 * number of replica r's shards until all are given out. */
double lk__balance_cut(int shards, int replicas, const double *cost, int *bounds)
{
    bounds[0] = 0;
    for (int r = 0; r < replicas; r++)
        bounds[r + 1] = 1;
    for (int left = shards - replicas; left > 0; left--) {
        int best = 0;
        for (int r = 1; r < replicas; r++)
            best = cost[r] * (bounds[r + 1] + 1) < cost[best] * (bounds[best + 1] + 1) ? r : best;
        bounds[best + 1]++;
    }
    for (int r = 0; r < replicas; r++)
        bounds[r + 1] += bounds[r];
    return slowest(replicas, cost, bounds);
}

static bool gains(const lk_balance *b, const double *cost, double step, const int *now, int *next)
{
    double best = lk__balance_cut(b->shards, b->replicas, cost, next);
    return slowest(b->replicas, cost, now) - best >= LEAST_GAIN * step;
}

bool lk__balance_decide(lk_balance *b, const lk_balance_times *times, const int *now, int *next)
{
    double step = 0, *last = b->cost;
    b->cost = b->before;
    b->before = last;
    for (int r = 0; r < b->replicas; r++) {
        b->cost[r] = times[r].own / (now[r + 1] - now[r]);
        step = times[r].whole > step ? times[r].whole : step;
    }
    bool again = b->wanted;
    b->wanted = step > 0 && gains(b, b->cost, step, now, next);
    if (!again || !b->wanted)
        return false;
    for (int r = 0; r < b->replicas; r++)
        b->cost[r] = (b->cost[r] + b->before[r]) / 2;
    b->wanted = false;
    return gains(b, b->cost, step, now, next);
}
