/* steps.c - advances one request, phase by phase, over a transport: sends while there is room, receives what
 * has arrived, folds what is complete. Nothing here blocks. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "comm/collective/group_impl.h"
#include "tensor/device.h"

/* Most bytes of a frame. Peers that read a frame in place see no other frame meanwhile. */
#define MAX_FRAME ((size_t)4 << 20)

static const lk_schedule_phase *phase_of(const lk_request *request)
{
    return &request->program->schedule.phases[request->phase];
}

static const lk_program_phase *details_of(const lk_request *request)
{
    return &request->program->phases[request->phase];
}

static size_t element_of(const lk_request *request)
{
    return request->program->key.element;
}

static bool holds(const lk_request_window *window, lk_span span)
{
    return span.first >= window->first && span.count <= window->count &&
           span.first - window->first <= window->count - span.count;
}

/* Converts a span of the current piece to a span of the whole vector. */
static lk_span in_vector(const lk_request *request, lk_span span)
{
    return (lk_span){request->base + span.first, span.count};
}

static char *window_at(const lk_request_window *window, size_t first, size_t element)
{
    return window->at + (first - window->first) * element;
}

/* Returns the address of a span that this rank sends in a COPY phase. */
static const char *source(const lk_request *request, lk_span span)
{
    const lk_request_window *windows[] = {&request->mine, &request->result, &request->out};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        if (holds(windows[i], span))
            return window_at(windows[i], span.first, element_of(request));
    return NULL;
}

static void copy(const lk_request *request, void *to, const void *from, size_t bytes)
{
    lk_device *device = request->group->device;
    if (bytes > 0 && to != from)
        device->kernels->copy_bytes(device, bytes, from, to);
}

static lk_status keep_ticket(lk_request *request, uint64_t ticket, const lk_multicast *multicast)
{
    lk_transport *transport = request->group->transport;
    if (transport->type->sent(transport, ticket))
        return LK_OK;
    if (request->ticket_count == request->ticket_room) {
        size_t room = request->ticket_room ? 2 * request->ticket_room : 16;
        lk_request_sending *more = realloc(request->tickets, room * sizeof *more);
        if (!more)
            return lk__fail_memory(room * sizeof *more, "sends under way");
        request->tickets = more;
        request->ticket_room = room;
    }
    request->tickets[request->ticket_count++] = (lk_request_sending){ticket, multicast};
    return LK_OK;
}

bool lk__steps_sent(lk_request *request)
{
    lk_transport *transport = request->group->transport;
    size_t left = 0;
    for (size_t i = 0; i < request->ticket_count; i++)
        if (!transport->type->sent(transport, request->tickets[i].ticket))
            request->tickets[left++] = request->tickets[i];
    request->ticket_count = left;
    return left == 0;
}

static lk_status send_frame(lk_request *request, const lk_multicast *multicast, const char *data, size_t count,
                            bool *sent)
{
    lk_transport *transport = request->group->transport;
    lk_frame frame = {.call = lk__steps_call_between(request, multicast->span),
                      .part = (uint32_t)request->phase,
                      .bytes = count * element_of(request)};
    uint64_t ticket = 0;
    LK_TRY(transport->type->send(transport, multicast->peers, multicast->count, &frame, data, &ticket));
    *sent = ticket != 0;
    return *sent ? keep_ticket(request, ticket, multicast) : LK_OK;
}

static size_t frame_limit(const lk_request *request, const char *data, size_t count)
{
    lk_transport *transport = request->group->transport;
    size_t element = element_of(request);
    size_t bytes = transport->type->max_frame(transport, data, count * element);
    bytes = lk__size_min(bytes, MAX_FRAME);
    return lk__size_min(count, lk__size_max(bytes / element, 1));
}

/* Returns where partial sum number `partial` of a block of hosts is kept, at element first. */
static char *stored_vector(const lk_request *request, int partial, size_t first)
{
    lk_span store = request->program->store;
    return request->group->sums + (store.count * (size_t)partial + (first - store.first)) * element_of(request);
}

/* Returns partial sum number `partial` of this rank, at element first. */
static const char *own_vector(const lk_request *request, int partial, size_t first)
{
    if (phase_of(request)->level == LK_SCHEDULE_LEVEL_RANK)
        return request->partials[partial] + (request->base + first) * element_of(request);
    return stored_vector(request, partial, first);
}

/* Sends the next chunk of all partial sums of a span. */
static lk_status send_partials(lk_request *request, const lk_multicast *multicast, lk_request_outflow *flow,
                               bool *moved)
{
    const lk_program_phase *details = details_of(request);
    size_t first = multicast->span.first + flow->given;
    size_t count = lk__size_min(multicast->span.count - flow->given, request->program->fold_frame);
    for (int partial = 0; partial < details->own; partial++)
        count = frame_limit(request, own_vector(request, partial, first), count);
    while (flow->partial < details->own) {
        bool sent = false;
        LK_TRY(send_frame(request, multicast, own_vector(request, flow->partial, first), count, &sent));
        if (!sent)
            return LK_OK;
        *moved = true;
        flow->partial++;
    }
    flow->partial = 0;
    flow->given += count;
    flow->done = flow->given == multicast->span.count || details->own == 0;
    return LK_OK;
}

static lk_status send_span(lk_request *request, const lk_multicast *multicast, lk_request_outflow *flow, bool *moved)
{
    lk_span rest = {multicast->span.first + flow->given, multicast->span.count - flow->given};
    const char *data = rest.count ? source(request, in_vector(request, rest)) : NULL;
    size_t count = rest.count ? frame_limit(request, data, rest.count) : 0;
    bool sent = false;
    LK_TRY(send_frame(request, multicast, data, count, &sent));
    if (!sent)
        return LK_OK;
    *moved = true;
    flow->given += count;
    flow->done = flow->given == multicast->span.count;
    return LK_OK;
}

/* Whether a peer of the multicast is marked as busy. Marks all its peers if `mark`. */
static bool claim_peers(lk_group *group, const lk_multicast *multicast, bool mark)
{
    bool busy = false;
    for (int i = 0; i < multicast->count; i++) {
        busy |= group->busy[multicast->peers[i]];
        group->busy[multicast->peers[i]] |= mark;
    }
    return busy;
}

/* Sends chunks of all multicasts in turn until none advances. A multicast waits while an earlier one to the
 * same peer is unfinished. */
static lk_status send_phase(lk_request *request, bool *done, bool *moved)
{
    lk_group *group = request->group;
    const lk_program_phase *details = details_of(request);
    bool fold = phase_of(request)->kind == LK_SCHEDULE_PHASE_KIND_FOLD;
    bool again = details->multicast_count > 0;
    *done = true;
    while (again) {
        again = false;
        *done = true;
        memset(group->busy, 0, (size_t)group->size);
        for (int c = 0; c < details->multicast_count; c++) {
            lk_request_outflow *flow = &request->outflow[c];
            const lk_multicast *multicast = &details->multicasts[c];
            if (flow->done)
                continue;
            bool one = false;
            if (!claim_peers(group, multicast, false))
                LK_TRY(fold ? send_partials(request, multicast, flow, &one)
                            : send_span(request, multicast, flow, &one));
            claim_peers(group, multicast, !flow->done);
            *done &= flow->done;
            again |= one && !flow->done;
            *moved |= one;
        }
    }
    return LK_OK;
}

/* Tells the transport where the next frame of a peer goes. */
static void expect(const lk_request *request, int peer, void *into, size_t count)
{
    lk_transport *transport = request->group->transport;
    if (transport->type->expect && count > 0)
        transport->type->expect(transport, peer, into, count * element_of(request));
}

static lk_status receive_span(lk_request *request, int index, bool *moved)
{
    lk_transport *transport = request->group->transport;
    const lk_schedule_move *move = &phase_of(request)->recvs[index];
    lk_request_inflow *flow = &request->inflow[index];
    while (!flow->done) {
        const lk_frame *frame = NULL;
        size_t rest = move->span.count - flow->taken;
        size_t first = request->base + move->span.first + flow->taken;
        char *to = rest > 0 ? window_at(&request->out, first, element_of(request)) : NULL;
        expect(request, move->peer, to, rest);
        LK_TRY(lk__steps_next_frame(request, move, rest, &frame));
        if (!frame)
            return LK_OK;
        size_t bytes = frame->bytes;
        if (bytes > 0) {
            const void *at = NULL;
            LK_TRY(transport->type->payload(transport, move->peer, to, &at));
            if (!at)
                return LK_OK;
            copy(request, to, at, bytes);
        }
        transport->type->release(transport, move->peer);
        flow->taken += bytes / element_of(request);
        flow->done = flow->taken == move->span.count;
        *moved = true;
    }
    return LK_OK;
}

static lk_status receive_spans(lk_request *request, bool *done, bool *moved)
{
    const lk_schedule_phase *phase = phase_of(request);
    int blocked = -1;
    *done = true;
    for (int i = 0; i < phase->recv_count; i++) {
        lk_request_inflow *flow = &request->inflow[i];
        int peer = phase->recvs[i].peer;
        if (!flow->done && peer != blocked)
            LK_TRY(receive_span(request, i, moved));
        if (!flow->done)
            blocked = peer;
        *done &= flow->done;
    }
    return LK_OK;
}

/* Two chunks of each input have room: the next one arrives while the current one is folded. */
static char *scratch_of(const lk_request *request, int input, int side)
{
    size_t at = (size_t)(side * request->program->max_inputs + input) * request->program->fold_frame;
    return request->group->scratch + at * element_of(request);
}

/* Receives the chunk of each of a peer's vectors. All but the last are copied out of the transport, so that
 * the next frame can be seen. The last stays there until it is folded, unless the transport has put it into
 * the scratch. */
static lk_status receive_chunk(lk_request *request, int index, bool *moved)
{
    lk_transport *transport = request->group->transport;
    const lk_program_phase *details = details_of(request);
    lk_request_inflow *flow = &request->inflow[index];
    const lk_schedule_move *move = &phase_of(request)->recvs[index];
    int peer = move->peer;
    while (flow->have < details->recv_partials[index]) {
        const lk_frame *frame = NULL;
        int input = details->recv_first[index] + flow->have;
        size_t limit = lk__size_min(phase_of(request)->keep.count - flow->taken, request->program->fold_frame);
        char *into = scratch_of(request, input, flow->side);
        expect(request, peer, into, limit);
        LK_TRY(lk__steps_next_frame(request, move, limit, &frame));
        if (!frame)
            return LK_OK;
        /* Chunks of a peer's vectors have equal sizes and follow each other. */
        size_t bytes = (size_t)frame->bytes, count = bytes / element_of(request);
        if (count == 0 || (flow->have > 0 && count != flow->chunk))
            return lk__steps_wrong_size(request, peer, "a frame of", count, flow->have > 0 ? flow->chunk : limit);
        const void *at = NULL;
        LK_TRY(transport->type->payload(transport, peer, into, &at));
        if (!at)
            return LK_OK;
        *moved = true;
        flow->chunk = count;
        flow->have++;
        if (flow->have < details->recv_partials[index]) {
            copy(request, into, at, bytes);
            at = into;
        }
        flow->released = at == into;
        if (flow->released)
            transport->type->release(transport, peer);
        request->inputs[input] = at;
    }
    return LK_OK;
}

/* Lets the transport receive a peer's next chunk, if its frame has come, while the current one is folded. */
static lk_status receive_ahead(lk_request *request, int index)
{
    lk_transport *transport = request->group->transport;
    const lk_request_inflow *flow = &request->inflow[index];
    const lk_schedule_move *move = &phase_of(request)->recvs[index];
    size_t rest = phase_of(request)->keep.count - flow->taken - (flow->chunk - flow->used);
    size_t limit = lk__size_min(rest, request->program->fold_frame);
    char *into = scratch_of(request, details_of(request)->recv_first[index], 1 - flow->side);
    const lk_frame *frame = NULL;
    const void *at = NULL;
    if (!flow->released || rest == 0)
        return LK_OK;
    expect(request, move->peer, into, limit);
    LK_TRY(lk__steps_next_frame(request, move, limit, &frame));
    if (!frame)
        return LK_OK;
    return transport->type->payload(transport, move->peer, into, &at);
}

/* Releasing a frame may have made the next one visible after some progress. */
static lk_status receive_all_ahead(lk_request *request)
{
    lk_transport *transport = request->group->transport;
    bool released = false;
    for (int i = 0; i < phase_of(request)->recv_count; i++)
        released |= request->inflow[i].released;
    if (released)
        LK_TRY(transport->type->progress(transport));
    for (int i = 0; i < phase_of(request)->recv_count; i++)
        LK_TRY(receive_ahead(request, i));
    return LK_OK;
}

/* *out is the number of elements that have arrived from all peers and can be folded. */
static lk_status ready_elements(lk_request *request, size_t *out, bool *moved)
{
    const lk_schedule_phase *phase = phase_of(request);
    const lk_program_phase *details = details_of(request);
    size_t ready = phase->keep.count - request->folded;
    for (int i = 0; i < phase->recv_count; i++) {
        lk_request_inflow *flow = &request->inflow[i];
        if (details->recv_partials[i] == 0)
            continue;
        if (flow->have < details->recv_partials[i])
            LK_TRY(receive_chunk(request, i, moved));
        bool whole = flow->have == details->recv_partials[i];
        ready = whole ? lk__size_min(ready, flow->chunk - flow->used) : 0;
    }
    *out = ready;
    return LK_OK;
}

/* Whether the result of a phase needs a buffer of its own: out does not contain its span, or peers may still
 * read the memory there. */
static bool needs_result_buffer(const lk_request *request, int phase)
{
    const lk_schedule_phase *p = &request->program->schedule.phases[phase];
    return p->kind == LK_SCHEDULE_PHASE_KIND_FOLD && p->level_out == LK_SCHEDULE_LEVEL_ALL &&
           (!holds(&request->out, in_vector(request, p->keep)) || request->program->phases[phase].sends_kept ||
            request->out_overlaps);
}

/* Returns where the fold writes output `partial`, at element first. */
static void *fold_target(const lk_request *request, int partial, size_t first)
{
    const lk_schedule_phase *phase = phase_of(request);
    if (phase->level_out != LK_SCHEDULE_LEVEL_ALL)
        return stored_vector(request, partial, first);
    const lk_request_window *window = needs_result_buffer(request, request->phase) ? &request->result : &request->out;
    return window_at(window, request->base + first, element_of(request));
}

static void fold_elements(lk_request *request, size_t count)
{
    const lk_schedule_phase *phase = phase_of(request);
    const lk_program_phase *details = details_of(request);
    size_t element = element_of(request);
    size_t first = phase->keep.first + request->folded;
    const void *inputs[64];
    void *outputs[4 * LK_MAX_ROOTS];
    const void **in = details->inputs <= 64 ? inputs : request->inputs + details->inputs;
    for (int partial = 0; partial < details->own; partial++)
        in[partial] = own_vector(request, partial, first);
    for (int i = 0; i < phase->recv_count; i++)
        for (int partial = 0; partial < details->recv_partials[i]; partial++) {
            int at = details->recv_first[i] + partial;
            in[at] = (const char *)request->inputs[at] + request->inflow[i].used * element;
        }
    for (int partial = 0; partial < details->out; partial++)
        outputs[partial] = fold_target(request, partial, first);
    lk__fold_run(details->plan, &(lk_fold){
                                    .device = request->group->device,
                                    .dtype = (lk_dtype)request->call.dtype,
                                    .op = request->op,
                                    .last = phase->level_out == LK_SCHEDULE_LEVEL_ALL,
                                    .divisor = request->program->shards,
                                    .count = count,
                                    .inputs = in,
                                    .outputs = outputs,
                                });
}

static lk_status receive_and_fold(lk_request *request, bool *done, bool *moved)
{
    lk_transport *transport = request->group->transport;
    const lk_schedule_phase *phase = phase_of(request);
    const lk_program_phase *details = details_of(request);
    while (request->folded < phase->keep.count) {
        size_t count = 0;
        LK_TRY(ready_elements(request, &count, moved));
        if (count == 0)
            break;
        LK_TRY(receive_all_ahead(request));
        fold_elements(request, count);
        request->folded += count;
        *moved = true;
        for (int i = 0; i < phase->recv_count; i++) {
            lk_request_inflow *flow = &request->inflow[i];
            if (details->recv_partials[i] == 0)
                continue;
            flow->used += count;
            flow->taken += count;
            if (flow->used < flow->chunk)
                continue;
            if (!flow->released)
                transport->type->release(transport, phase->recvs[i].peer);
            flow->side = 1 - flow->side;
            flow->have = 0;
            flow->used = 0;
        }
    }
    *done = request->folded == phase->keep.count;
    return LK_OK;
}

static lk_status grow(lk_device *device, char **block, size_t *bytes, size_t wanted, const char *what)
{
    if (wanted <= *bytes)
        return LK_OK;
    void *more = NULL;
    LK_TRY(device->type->alloc(device, wanted, what, &more));
    device->type->free(device, *block);
    *block = more;
    *bytes = wanted;
    return LK_OK;
}

/* Grows the group's buffers for this request. They are shared, since one collective runs at a time. */
static lk_status reserve(lk_request *request)
{
    lk_group *group = request->group;
    const lk_program *program = request->program;
    size_t element = program->key.element;
    size_t frames = 2 * (size_t)program->max_inputs * program->fold_frame;
    size_t sums = program->stored;
    for (int p = 0; p < program->schedule.phase_count; p++)
        if (needs_result_buffer(request, p))
            sums += program->schedule.phases[p].keep.count;
    if (program->max_inputs > 0 && group->size > 1)
        LK_TRY(grow(group->device, &group->scratch, &group->scratch_bytes, frames * element, "partial sums of peers"));
    return grow(group->device, &group->sums, &group->sums_bytes, sums * element, "sums on their way");
}

static lk_status enter_phase(lk_request *request)
{
    const lk_schedule_phase *phase = phase_of(request);
    const lk_program *program = request->program;
    if (request->phase == 0)
        LK_TRY(reserve(request));
    if (program->max_recvs > 0)
        memset(request->inflow, 0, (size_t)program->max_recvs * sizeof *request->inflow);
    if (program->max_multicasts > 0)
        memset(request->outflow, 0, (size_t)program->max_multicasts * sizeof *request->outflow);
    request->folded = 0;
    request->given = false;
    if (needs_result_buffer(request, request->phase)) {
        char *at = request->group->sums + program->stored * program->key.element;
        request->result = (lk_request_window){at, request->base + phase->keep.first, phase->keep.count};
    }
    request->entered = true;
    return LK_OK;
}

/* Copies the result of a fold from its buffer to out, as far as out wants it. */
static void keep_own_part(lk_request *request)
{
    const lk_request_window *from = &request->result;
    const lk_request_window *to = &request->out;
    size_t first = lk__size_max(from->first, to->first);
    size_t last = lk__size_min(from->first + from->count, to->first + to->count);
    size_t element = element_of(request);
    if (from->at && first < last)
        copy(request, window_at(to, first, element), window_at(from, first, element), (last - first) * element);
}

/* Runs the phase as far as possible. Sets *done at its end. */
static lk_status run_phase(lk_request *request, bool *done, bool *moved)
{
    bool taken = false;
    if (!request->entered)
        LK_TRY(enter_phase(request));
    if (!request->given)
        LK_TRY(send_phase(request, &request->given, moved));
    if (phase_of(request)->kind == LK_SCHEDULE_PHASE_KIND_FOLD)
        LK_TRY(receive_and_fold(request, &taken, moved));
    else
        LK_TRY(receive_spans(request, &taken, moved));
    if (taken && !request->given)
        LK_TRY(send_phase(request, &request->given, moved));
    if (!taken || !request->given ||
        ((details_of(request)->sends_kept || request->out_overlaps) && !lk__steps_sent(request)))
        return LK_OK;
    if (phase_of(request)->kind == LK_SCHEDULE_PHASE_KIND_FOLD)
        keep_own_part(request);
    request->entered = false;
    *done = *moved = true;
    return LK_OK;
}

/* Starts the next piece, if there is one. */
static bool next_piece(lk_request *request)
{
    size_t piece = request->program->key.count;
    if (request->base + piece >= request->total)
        return false;
    request->base += piece;
    request->phase = 0;
    if (request->last && request->total - request->base < piece) {
        lk_program *whole = request->program;
        request->program = request->last;
        request->last = whole;
    }
    return true;
}

lk_status lk__steps_run(lk_request *request, bool *moved)
{
    do {
        while (request->phase < request->program->schedule.phase_count) {
            bool done = false;
            LK_TRY(run_phase(request, &done, moved));
            if (!done)
                return LK_OK;
            request->phase++;
        }
    } while (next_piece(request));
    request->done = lk__steps_sent(request);
    *moved |= request->done;
    return LK_OK;
}

/* Marks the peers that have not received everything. A ticket is shared by all peers of a multicast, of which
 * some may be done. */
static void mark_late(lk_group *group, const lk_multicast *multicast)
{
    for (int i = 0; i < multicast->count; i++)
        group->busy[multicast->peers[i]] |= !group->transport->type->taken(group->transport, multicast->peers[i]);
}

void lk__steps_mark_receivers(const lk_request *request)
{
    lk_group *group = request->group;
    for (size_t i = 0; i < request->ticket_count; i++)
        mark_late(group, request->tickets[i].multicast);
    for (int c = 0; request->entered && c < details_of(request)->multicast_count; c++)
        claim_peers(group, &details_of(request)->multicasts[c], !request->outflow[c].done);
}

bool lk__steps_await(const lk_request *request, int index)
{
    const lk_schedule_phase *phase = phase_of(request);
    const lk_request_inflow *flow = &request->inflow[index];
    if (phase->kind == LK_SCHEDULE_PHASE_KIND_COPY)
        return !flow->done;
    int partials = details_of(request)->recv_partials[index];
    return request->folded < phase->keep.count && flow->have < partials;
}
