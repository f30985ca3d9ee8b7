/* failure.c - how a group fails: it keeps the reason, aborts the job, and ends every request under way with
 * that reason. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "comm/collective/group_impl.h"

/* Seconds that a rank waits for peers that read its memory. */
#define RELEASE_SECONDS 0.5

/* Thread ranks read each other's memory. Releases all received frames, so that their senders need not wait
 * for this rank, and waits until peers have finished reading this rank's memory. A peer that starts the call
 * later sees first that the job has failed (collective.c). */
static void release_memory(lk_group *group)
{
    const lk_transport_type *type = group->transport->type;
    struct timespec pause = {.tv_nsec = 100000};
    double end = lk__clock() + RELEASE_SECONDS;
    for (int r = 0; r < group->size; r++)
        while (r != group->rank && type->arrived(group->transport, r))
            type->release(group->transport, r);
    for (lk_request *request = group->first; request; request = request->next)
        while (!lk__steps_sent(request) && lk__clock() < end)
            nanosleep(&pause, NULL);
}

void lk__group_fail_requests(lk_group *group)
{
    if (group->transport && group->transport->type == &lk__transport_inproc)
        release_memory(group);
    for (lk_request *request = group->first; request; request = request->next) {
        if (request->done)
            continue;
        request->status = group->broken;
        lk__request_finish(request);
    }
    group->first = NULL;
    group->tail = &group->first;
}

lk_status lk__group_broken(const lk_group *group)
{
    return lk__fail(group->broken, "%s", group->reason ? group->reason : "the group is broken");
}

/* All groups of a job share its failure: a failed part fails its parents here, and the others see it in
 * lk__group_check. */
lk_status lk__group_break(lk_group *group, lk_status status)
{
    if (group->broken != LK_OK)
        return lk__group_broken(group);
    group->broken = status;
    group->reason = strdup(lk_error_detail());
    /* The job keeps the first reason. If the reason came from another rank, this abort has no effect. */
    lk__control_abort(group->control, status, group->reason ? group->reason : "a rank gave up");
    lk__group_fail_requests(group);
    if (group->transport && group->transport->type->failed)
        group->transport->type->failed(group->transport);
    if (group->parent)
        (void)lk__group_break(group->parent, lk__group_broken(group));
    return lk__group_broken(group);
}

lk_status lk__group_check(lk_group *group)
{
    const lk_group *whole = group->whole;
    if (group->broken != LK_OK)
        return lk__group_broken(group);
    return whole->broken == LK_OK ? LK_OK : lk__group_break(group, lk__group_broken(whole));
}
