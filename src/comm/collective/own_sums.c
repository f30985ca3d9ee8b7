/* own_sums.c - sums by the engine below a group: the transport starts them and moves them on. */
#include "comm/collective/own_sums.h"

#include "base/clock.h"
#include "comm/collective/group_impl.h"
#include "comm/collective/progress.h"

#define CHECK_EVERY 0.02 /* seconds of one wait between checks of the control */

bool lk__group_has_own_sums(const lk_group *group)
{
    return group->transport->type->sum != NULL;
}

static lk_status start(lk_group *group, float *values, size_t count, uint64_t *ticket)
{
    LK_TRY(lk__group_check(group));
    lk_status status = group->transport->type->sum(group->transport, values, count, ticket);
    return status == LK_OK ? LK_OK : lk__group_break(group, status);
}

lk_status lk__group_own_sum(lk_group *group, float *values, size_t count, uint64_t *ticket)
{
    lk__progress_take(group);
    lk_status status = start(group, values, count, ticket);
    lk__progress_give(group);
    return status;
}

static lk_status wait_for(lk_group *group, uint64_t ticket)
{
    const lk_transport_type *type = group->transport->type;
    double begin = lk__clock();
    while (!type->sent(group->transport, ticket)) {
        LK_TRY(lk__executor_poll(group));
        if (type->sent(group->transport, ticket))
            break;
        if (lk__clock() - begin > group->boot.timeout)
            return lk__group_break(group,
                                   lk__fail(LK_STATUS_PEER,
                                            "rank %d waited %.0f s for a sum of %s: that is its timeout; is a "
                                            "rank stopped (Ctrl-Z, SIGSTOP, a debugger)?",
                                            lk__group_job_rank(group, group->rank), lk__clock() - begin, type->name));
        type->wait(group->transport, CHECK_EVERY);
    }
    return LK_OK;
}

lk_status lk__group_own_wait(lk_group *group, uint64_t ticket)
{
    double began = lk__trace_begin();
    lk__progress_take(group);
    lk_status status = wait_for(group, ticket);
    lk__trace_end(LK_TRACE_KIND_WAIT, "sum of MPI", -1, began);
    lk__progress_give(group);
    return status;
}
