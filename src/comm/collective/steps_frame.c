/* steps_frame.c - what a frame must be that arrives for a request: the same call, the phase, and elements that fit. */
#include "comm/collective/group_impl.h"

lk_call lk__steps_call_between(const lk_request *request, lk_span span)
{
    lk_call call = request->call;
    if (call.kind == LK_CALL_KIND_ALLTOALL)
        call.detail = span.count;
    return call;
}

/* Returns this rank's call with the group and number of the peer's call, or else its current call. */
static const lk_call *counterpart(const lk_request *request, const lk_call *theirs)
{
    const lk_group *group = request->group;
    size_t begin = group->history_count > LK_HISTORY ? group->history_count - LK_HISTORY : 0;
    for (size_t i = begin; i < group->history_count && theirs->kind != LK_CALL_KIND_MESSAGE; i++) {
        const lk_call *own = &group->history[i % LK_HISTORY].call;
        if (own->kind != LK_CALL_KIND_MESSAGE && own->group == theirs->group && own->number == theirs->number)
            return own;
    }
    return &request->call;
}

static lk_status disagree(const lk_request *request, int peer, const lk_frame *frame)
{
    char ours[LK_CALL_TEXT], theirs[LK_CALL_TEXT];
    const lk_group *group = request->group;
    return lk__fail(LK_STATUS_MISMATCH, "the ranks disagree: rank %d called %s, rank %d called %s",
                    lk__group_job_rank(group, group->rank), lk__call_text(counterpart(request, &frame->call), ours),
                    lk__group_job_rank(group, peer), lk__call_text(&frame->call, theirs));
}

lk_status lk__steps_wrong_size(const lk_request *request, int peer, const char *what, size_t theirs, size_t ours)
{
    const lk_group *group = request->group;
    char text[LK_CALL_TEXT];
    return lk__fail(LK_STATUS_MISMATCH, "the ranks disagree: in %s rank %d sends %s %zu elements, rank %d takes %zu",
                    lk__call_text(&request->call, text), lk__group_job_rank(group, peer), what, theirs,
                    lk__group_job_rank(group, group->rank), ours);
}

lk_status lk__steps_next_frame(const lk_request *request, const lk_schedule_move *move, size_t limit,
                               const lk_frame **out)
{
    lk_transport *transport = request->group->transport;
    const lk_frame *frame = transport->type->arrived(transport, move->peer);
    *out = frame;
    if (!frame)
        return LK_OK;
    lk_call ours = lk__steps_call_between(request, move->span), theirs = frame->call;
    if (ours.kind == LK_CALL_KIND_ALLTOALL && theirs.detail != ours.detail) {
        theirs.detail = ours.detail;
        if (lk__call_same(&theirs, &ours))
            return lk__steps_wrong_size(request, move->peer, "it", (size_t)frame->call.detail, move->span.count);
    }
    if (!lk__call_same(&theirs, &ours) || frame->part != (uint32_t)request->phase)
        return disagree(request, move->peer, frame);
    size_t count = (size_t)frame->bytes / request->program->key.element;
    if (frame->bytes % request->program->key.element != 0 || count > limit)
        return lk__steps_wrong_size(request, move->peer, "a frame of", count, limit);
    return LK_OK;
}
