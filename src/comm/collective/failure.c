/* failure.c - how a group breaks: the reason is kept, the other ranks are told, and
 * every call under way ends with it. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "comm/collective/group_impl.h"

/* Seconds that a rank waits for peers that read its memory. */
#define RELEASE_SECONDS 0.5

/* Threads read each other's memory. What has come is let go, so that its owner
 * need not wait for this rank; and what was lent is waited for, since a peer may
 * be reading it right now. A peer that comes to the call later sees first that
 * the group is broken (collective.c). */
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

/* Parts share the job, so what broke one has broken all above it, and below
 * those: lk__group_check. */
lk_status lk__group_break(lk_group *group, lk_status status)
{
    if (group->broken != LK_OK)
        return lk__group_broken(group);
    group->broken = status;
    group->reason = strdup(lk_error_detail());
    /* The others keep the first reason; one that came from them is not news. */
    lk__control_abort(group->control, status, group->reason ? group->reason : "a rank gave up");
    lk__group_fail_requests(group);
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
