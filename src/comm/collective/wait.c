/* wait.c - the public calls that wait for requests. */
#include "comm/collective/argument.h"
#include "comm/collective/group_impl.h"
#include "comm/collective/progress.h"

/* The caller learns that the request is done: results of device buffers are copied back. */
static lk_status end(lk_request *request, lk_status status)
{
    lk_group *group = request->group;
    if (request->copies) {
        lk_status copied = lk__device_copies_end(request->copies, status);
        status = copied == status ? status : lk__group_break(group, copied);
    }
    lk__request_retire(request);
    return status;
}

lk_status lk_request_wait(lk_request *request)
{
    LK_TRY(lk__argument_set(request, "request", "lk_request_wait"));
    lk_group *group = request->group;
    LK_TRY(lk__argument_group(group, "lk_request_wait"));
    lk__progress_take(group);
    lk_status status = end(request, lk__executor_wait(request));
    lk__progress_give(group);
    return status;
}

static lk_status test(lk_request *request, bool *done)
{
    lk_status status = request->done ? request->status : lk__executor_poll(request->group);
    *done = status != LK_OK || request->done;
    if (!*done)
        return LK_OK;
    return end(request, request->status == LK_OK ? LK_OK : lk__group_broken(request->group));
}

lk_status lk_request_test(lk_request *request, bool *done)
{
    LK_TRY(lk__argument_set(request, "request", "lk_request_test"));
    LK_TRY(lk__argument_set(done, "done", "lk_request_test"));
    lk_group *group = request->group;
    LK_TRY(lk__argument_group(group, "lk_request_test"));
    lk__progress_take(group);
    lk_status status = test(request, done);
    lk__progress_give(group);
    return status;
}

lk_status lk_request_wait_all(lk_request **requests, size_t count)
{
    lk_status first = LK_OK;
    LK_TRY(lk__argument_set(requests, "requests", "lk_request_wait_all"));
    for (size_t i = 0; i < count; i++) {
        if (!requests[i])
            continue;
        lk_status status = lk_request_wait(requests[i]);
        requests[i] = NULL;
        first = first == LK_OK ? status : first;
    }
    return first;
}

/* *first is the index of the first request that is not NULL; count if there is none. */
static lk_status check_any(lk_request *const *requests, size_t count, size_t *first)
{
    const lk_group *whole = NULL;
    *first = count;
    for (size_t i = 0; i < count; i++) {
        if (!requests[i])
            continue;
        LK_TRY(lk__argument_group(requests[i]->group, "lk_request_wait_any"));
        if (whole && requests[i]->group->whole != whole)
            return lk__fail(LK_STATUS_USAGE, "lk_request_wait_any: request %zu is of another job than those before it",
                            i);
        whole = requests[i]->group->whole;
        *first = *first < i ? *first : i;
    }
    return LK_OK;
}

lk_status lk_request_wait_any(lk_request **requests, size_t count, size_t *index)
{
    size_t first;
    LK_TRY(lk__argument_set(requests, "requests", "lk_request_wait_any"));
    LK_TRY(lk__argument_set(index, "index", "lk_request_wait_any"));
    LK_TRY(check_any(requests, count, &first));
    *index = count;
    if (first == count)
        return LK_OK;
    lk_group *group = requests[first]->group;
    lk__progress_take(group);
    lk_status status = lk__executor_wait_any(requests, count, index);
    status = end(requests[*index], status);
    requests[*index] = NULL;
    lk__progress_give(group);
    return status;
}
