/* wait.c - lk_request_wait and lk_request_test. */
#include "comm/collective/argument.h"
#include "comm/collective/group_impl.h"
#include "comm/collective/progress.h"

lk_status lk_request_wait(lk_request *request)
{
    LK_TRY(lk__argument_set(request, "request", "lk_request_wait"));
    lk_group *group = request->group;
    LK_TRY(lk__argument_group(group, "lk_request_wait"));
    lk__progress_take(group);
    lk_status status = lk__executor_wait(request);
    lk__request_retire(request);
    lk__progress_give(group);
    return status;
}

static lk_status test(lk_request *request, bool *done)
{
    lk_status status = request->done ? request->status : lk__executor_poll(request->group);
    *done = status != LK_OK || request->done;
    if (!*done)
        return LK_OK;
    status = request->status == LK_OK ? LK_OK : lk__group_broken(request->group);
    lk__request_retire(request);
    return status;
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
