/* request.c - creates, finishes and reuses requests. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/collective/group_impl.h"

/* Grows the request's arrays to what the program needs. */
static lk_status make_room(lk_request *request, const lk_program *program)
{
    if (program->max_recvs > request->recv_room) {
        lk__mem_free(request->inflow);
        request->inflow = NULL;
        request->recv_room = 0;
        LK_TRY(LK_ALLOC((size_t)program->max_recvs, "a call's receives", &request->inflow));
        request->recv_room = program->max_recvs;
    }
    if (program->max_multicasts > request->multicast_room) {
        lk__mem_free(request->outflow);
        request->outflow = NULL;
        request->multicast_room = 0;
        LK_TRY(LK_ALLOC((size_t)program->max_multicasts, "a call's sends", &request->outflow));
        request->multicast_room = program->max_multicasts;
    }
    if (program->max_inputs > request->input_room) {
        lk__mem_free((void *)request->inputs);
        request->inputs = NULL;
        request->input_room = 0;
        /* Two halves: as received, and advanced to the elements to be folded. */
        LK_TRY(lk__mem_alloc(2 * (size_t)program->max_inputs, sizeof *request->inputs, "a call's partial sums",
                             (void **)&request->inputs));
        request->input_room = program->max_inputs;
    }
    return LK_OK;
}

/* Clears everything except the memory that the request owns. */
static void reset(lk_request *request, lk_group *group, lk_program *program)
{
    *request = (lk_request){
        .group = group,
        .program = program,
        .peer = -1,
        .made_next = request->made_next,
        .inflow = request->inflow,
        .outflow = request->outflow,
        .inputs = request->inputs,
        .recv_room = request->recv_room,
        .multicast_room = request->multicast_room,
        .input_room = request->input_room,
        .tickets = request->tickets,
        .ticket_room = request->ticket_room,
    };
}

lk_status lk__request_create(lk_group *group, lk_program *program, lk_request **out)
{
    lk_request *request = group->spare;
    if (request) {
        group->spare = request->next;
    } else {
        LK_TRY(LK_ALLOC(1, "a request", &request));
        request->made_next = group->made;
        group->made = request;
    }
    lk_status status = make_room(request, program);
    if (status != LK_OK) {
        request->next = group->spare;
        group->spare = request;
        return status;
    }
    reset(request, group, program);
    *out = request;
    return LK_OK;
}

lk_status lk__request_add_last(lk_request *request, lk_program *last)
{
    LK_TRY(make_room(request, last));
    request->last = last;
    return LK_OK;
}

void lk__request_retire(lk_request *request)
{
    lk_group *group = request->group;
    lk__program_release(request->program);
    lk__program_release(request->last);
    request->program = request->last = NULL;
    request->next = group->spare;
    group->spare = request;
}

void lk__request_free(lk_request *request)
{
    if (!request)
        return;
    lk__program_release(request->program);
    lk__program_release(request->last);
    lk__mem_free(request->inflow);
    lk__mem_free(request->outflow);
    lk__mem_free((void *)request->inputs);
    free(request->tickets);
    lk__mem_free(request);
}

/* NULL: there were too many calls since. */
static lk_call_record *record_of(const lk_request *request)
{
    lk_group *group = request->group;
    bool there = group->history_count - request->record <= LK_HISTORY;
    return there ? &group->history[request->record % LK_HISTORY] : NULL;
}

void lk__request_waits(const lk_request *request)
{
    lk_call_record *record = record_of(request);
    if (record && record->begin == 0 && !request->done)
        record->begin = lk__clock();
}

void lk__request_finish(lk_request *request)
{
    lk_call_record *record = record_of(request);
    request->done = true;
    if (!record)
        return;
    record->end = lk__clock();
    if (record->begin == 0)
        record->begin = record->end;
    record->failed = request->status != LK_OK;
}
