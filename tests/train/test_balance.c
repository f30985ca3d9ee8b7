/* test_balance.c - the cut of shards by given times. Times are exact, so every decision is. */
#include <math.h>

#include "check.h"
#include "train/balance.h"

enum { MOST = 5 };

static double slowest_of(int replicas, const double *cost, const int *counts)
{
    double most = 0;
    for (int r = 0; r < replicas; r++)
        most = cost[r] * counts[r] > most ? cost[r] * counts[r] : most;
    return most;
}

/* The best time of all ways to give `left` shards to replicas from `r` on, at least one to each. */
static double try_all(int replicas, const double *cost, int r, int left, int *counts)
{
    double best = INFINITY;
    if (r == replicas - 1) {
        counts[r] = left;
        return slowest_of(replicas, cost, counts);
    }
    for (counts[r] = 1; counts[r] <= left - (replicas - 1 - r); counts[r]++) {
        int mine = counts[r];
        double time = try_all(replicas, cost, r + 1, left - mine, counts);
        best = time < best ? time : best;
        counts[r] = mine;
    }
    return best;
}

/* No other cut is faster. */
static void cuts_are_best(void **state)
{
    static const double costs[][MOST] = {{1, 1, 1, 1, 1},      {1, 2, 1, 1, 1}, {3, 1, 2, 5, 4},
                                         {1, 100, 1, 1, 1000}, {7, 6, 5, 4, 3}, {0, 1, 1, 2, 3}};
    for (size_t i = 0; i < COUNT_OF(costs); i++) {
        for (int replicas = 1; replicas <= MOST; replicas++) {
            for (int shards = replicas; shards <= 16; shards++) {
                int bounds[MOST + 1], counts[MOST];
                double time = lk__balance_cut(shards, replicas, costs[i], bounds);
                assert_true(time == try_all(replicas, costs[i], 0, shards, counts));
                assert_true(bounds[0] == 0 && bounds[replicas] == shards);
                for (int r = 0; r < replicas; r++)
                    assert_true(bounds[r + 1] > bounds[r]);
            }
        }
    }
}

/* A window in which replica r needs cost[r] for a shard and all wait for the slowest; `more` is the rest of the step.
 */
static bool window(lk_balance *b, const double *cost, double more, const int *now, int *next)
{
    lk_balance_times times[MOST];
    double step = 0;
    for (int r = 0; r < b->replicas; r++) {
        times[r].own = cost[r] * (now[r + 1] - now[r]);
        step = times[r].own > step ? times[r].own : step;
    }
    for (int r = 0; r < b->replicas; r++)
        times[r].whole = step + more;
    return lk__balance_decide(b, times, now, next);
}

static void slow_replicas_get_less(void **state)
{
    static const double half[] = {1, 2}, fine[] = {1, 1};
    int even[] = {0, 8, 16}, next[3] = {0};
    lk_balance b;
    assert_ok(lk__balance_init(&b, 16, 2));
    assert_false(window(&b, half, 0, even, next));
    assert_true(window(&b, half, 0, even, next)); /* twice in a row */
    assert_int_equal(next[1], 11);
    int cut[] = {0, 11, 16};
    for (int i = 0; i < 5; i++)
        assert_false(window(&b, half, 0, cut, next));
    assert_false(window(&b, fine, 0, cut, next));
    assert_true(window(&b, fine, 0, cut, next)); /* and back, when the rank is as fast as the others again */
    assert_int_equal(next[1], 8);
    lk__balance_fini(&b);
}

static void four_replicas(void **state)
{
    static const double cost[] = {1, 1, 2, 1};
    int even[] = {0, 4, 8, 12, 16}, next[5] = {0};
    lk_balance b;
    assert_ok(lk__balance_init(&b, 16, 4));
    assert_false(window(&b, cost, 0, even, next));
    assert_true(window(&b, cost, 0, even, next));
    assert_int_equal(next[3] - next[2], 2);
    assert_true(slowest_of(4, cost, (int[]){next[1], next[2] - next[1], 2, 16 - next[3]}) == 5);
    lk__balance_fini(&b);
}

/* Noise: up to a fifth between two windows or two ranks, or a single disturbed window. */
static void equal_replicas_stay(void **state)
{
    static const double noise[][2] = {{1, 1.2}, {1.2, 1}, {1, 1.2}, {1, 1.2}, {1, 1}, {1, 3}, {1.2, 1}, {3, 1}, {1, 1}};
    int even[] = {0, 8, 16}, next[3];
    lk_balance b;
    assert_ok(lk__balance_init(&b, 16, 2));
    for (size_t i = 0; i < COUNT_OF(noise); i++)
        assert_false(window(&b, noise[i], 0, even, next));
    assert_false(window(&b, (double[]){1, 3}, 0, even, next));
    assert_false(window(&b, (double[]){3, 1}, 0, even, next)); /* on average they are equal */
    lk__balance_fini(&b);
}

/* Where most of a step is waiting for the network, moves would gain nothing and cost messages. */
static void waiting_counts(void **state)
{
    static const double half[] = {1, 2};
    int even[] = {0, 8, 16}, next[3];
    lk_balance b;
    assert_ok(lk__balance_init(&b, 16, 2));
    for (int i = 0; i < 4; i++)
        assert_false(window(&b, half, 40, even, next));
    assert_false(window(&b, half, 20, even, next));
    assert_true(window(&b, half, 20, even, next));
    assert_false(window(&b, (double[]){0, 0}, 0, even, next)); /* a clock that does not move */
    lk__balance_fini(&b);
}

int main(void)
{
    return RUN_TESTS(NULL, NULL, TEST(cuts_are_best), TEST(slow_replicas_get_less), TEST(four_replicas),
                     TEST(equal_replicas_stay), TEST(waiting_counts));
}
