/* trace_clock.c - aligns the clocks of hosts by round trips to rank 0. */
#include "train/trace.h"

enum { ROUNDS = 16 };

static lk_buffer as_buffer(double *time)
{
    return (lk_buffer){time, 1, LK_DTYPE_F64};
}

/* Rank 0: answers the round trips of a rank. */
static lk_status answer(lk_group *group, int rank, const lk_train_trace_clock *clock)
{
    for (int i = 0; i < ROUNDS; i++) {
        double time = 0;
        LK_TRY(lk_recv(group, as_buffer(&time), rank, NULL));
        time = clock->now(clock->arg);
        LK_TRY(lk_send(group, as_buffer(&time), rank, NULL));
    }
    return LK_OK;
}

/* The answer was made between both ends of the round trip; the shortest one leaves the least doubt. */
static lk_status ask(lk_group *group, const lk_train_trace_clock *clock, double *offset)
{
    double shortest = 0, best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        double begin = clock->now(clock->arg), time = begin;
        LK_TRY(lk_send(group, as_buffer(&time), 0, NULL));
        LK_TRY(lk_recv(group, as_buffer(&time), 0, NULL));
        double end = clock->now(clock->arg);
        if (i > 0 && end - begin >= shortest)
            continue;
        shortest = end - begin;
        best = time - (begin + end) / 2;
    }
    *offset = best;
    return LK_OK;
}

static bool same_clock(lk_group *group, int rank, const lk_train_trace_clock *clock)
{
    return clock->shared && lk_group_is_local(group, rank);
}

lk_status lk__train_trace_align(lk_group *group, const lk_train_trace_clock *clock, double *offset)
{
    int rank = group ? lk_group_rank(group) : 0;
    double found = 0;
    for (int r = 1; rank == 0 && group && r < lk_group_size(group); r++)
        if (!same_clock(group, r, clock))
            LK_TRY(answer(group, r, clock));
    if (rank > 0 && !same_clock(group, 0, clock))
        LK_TRY(ask(group, clock, &found));
    *offset = found;
    return LK_OK;
}
