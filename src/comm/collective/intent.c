/* intent.c - checks a call, finds its program and starts its request. Buffers of devices are exchanged as copies. */
#include "comm/collective/intent.h"

#include "base/clock.h"
#include "base/fault.h"
#include "comm/collective/device_copies.h"
#include "comm/collective/progress.h"
#include "comm/collective/reduction.h"
#include "tensor/device.h"

static const char *const kind_names[] = {
#define LK_CALL_NAME(name, text) text,
    LK_CALL_KIND_LIST(LK_CALL_NAME)
#undef LK_CALL_NAME
};

#define PIECE_BYTES ((size_t)4 << 20)
enum { SMALL_BYTES = 16 * 1024 };

static bool is_type(lk_dtype dtype)
{
    return (unsigned)dtype < LK_DTYPE_COUNT;
}

const char *lk__intent_kind(lk_call_kind kind)
{
    return kind_names[kind];
}

static const char *name_of(const lk_intent *intent)
{
    return intent->kind != LK_CALL_KIND_MESSAGE ? kind_names[intent->kind] : intent->sending ? "send" : "recv";
}

/* Checks the caller's buffers. Input and output may overlap if the call is in place: if this rank's own part
 * has the same address in both. An alltoall is never in place, because its other parts would overlap. */
static lk_status check_memory(const lk_intent *intent)
{
    const lk_argument_memory *memory = intent->memory;
    const char *what = name_of(intent);
    bool in_place = intent->own_from == intent->own_to && intent->kind != LK_CALL_KIND_ALLTOALL;
    LK_TRY(lk__argument_memory(&memory[0], what));
    LK_TRY(lk__argument_memory(&memory[1], what));
    bool whole = intent->kind == LK_CALL_KIND_REDUCE_SCATTER;
    if (in_place || whole || memory[0].count == 0 || memory[1].count == 0)
        return LK_OK;
    return lk__argument_apart(&memory[0], &memory[1], lk_dtype_size(intent->data.dtype), what);
}

static lk_status check_intent(const lk_group *group, const lk_intent *intent)
{
    const char *what = name_of(intent);
    int root = intent->root;
    if (!is_type(intent->data.dtype))
        return lk__fail(LK_STATUS_USAGE, "%s: no type of elements has the number %d", what, (int)intent->data.dtype);
    if (!lk__reduction_known(intent->op))
        return lk__fail(LK_STATUS_USAGE, "%s: no reduction has the number %d", what, (int)intent->op);
    if (intent->rooted && (root < 0 || root >= group->size))
        return lk__fail(LK_STATUS_USAGE, "%s: rank %d is not in a group of %d", what, root, group->size);
    if (intent->kind == LK_CALL_KIND_MESSAGE && root == group->rank)
        return lk__fail(LK_STATUS_USAGE, "a message from rank %d to itself needs no group", root);
    if (intent->data.count > SIZE_MAX / 16)
        return lk__fail(LK_STATUS_USAGE, "%s: %zu elements are more than memory holds", what, intent->data.count);
    return check_memory(intent);
}

/* count: the elements of a piece. */
static lk_status find_program(lk_group *group, const lk_intent *intent, size_t count, lk_program **out)
{
    lk_program_key key = {
        .kind = intent->kind,
        .element = lk_dtype_size(intent->data.dtype),
        .count = count,
        .root = intent->root,
        .detail = intent->own ? intent->own : intent->detail,
    };
    if (intent->kind == LK_CALL_KIND_MESSAGE)
        key.detail = intent->sending ? LK_MESSAGE_SEND : LK_MESSAGE_RECV;
    lk_program_input input = {.topology = &group->topology,
                              .rank = group->rank,
                              .bounds = intent->bounds,
                              .spans = intent->spans,
                              .recv_spans = intent->recv_spans};
    return lk__program_find(&group->programs, &key, &input, out);
}

static lk_call describe(lk_group *group, const lk_intent *intent)
{
    lk_call call = {
        .group = group->id,
        .kind = (uint8_t)intent->kind,
        .dtype = (uint8_t)intent->data.dtype,
        .op = (uint8_t)intent->op,
        .root = intent->root,
        .count = intent->data.count,
        .detail = intent->detail,
    };
    if (intent->kind == LK_CALL_KIND_MESSAGE) {
        uint32_t *counts = intent->sending ? group->sent_count : group->recv_count;
        call.number = counts[intent->root]++;
        call.root = intent->sending ? intent->root : group->rank; /* the receiver, at both ranks */
    } else {
        call.number = group->calls++;
    }
    if (intent->kind == LK_CALL_KIND_ALLTOALL)
        call.count = 0; /* every rank has its own counts */
    return call;
}

/* A small call gets its time when it first waits: reading the clock before its frames have left would make it longer.
 */
static void remember(lk_group *group, lk_request *request, size_t bytes)
{
    request->record = group->history_count++;
    group->history[request->record % LK_HISTORY] =
        (lk_call_record){.call = request->call, .peer = request->peer, .begin = bytes > SMALL_BYTES ? lk__clock() : 0};
}

/* Whether writing results early would change what peers still read: out overlaps a partial sum of this rank
 * at another offset than its own. */
static bool lies_across(const lk_request *request, int roots)
{
    size_t element = request->program->key.element;
    uintptr_t out = (uintptr_t)request->out.at;
    uintptr_t out_bytes = request->out.count * element, bytes = request->call.count * element;
    for (int i = 0; i < roots; i++) {
        uintptr_t root = (uintptr_t)request->partials[i];
        bool overlap = out < root + bytes && root < out + out_bytes;
        if (overlap && out != root + request->out.first * element)
            return true;
    }
    return false;
}

/* The number of this rank's partial sums. */
static int count_partials(const lk_group *group, const lk_intent *intent)
{
    const int *bounds = intent->bounds;
    if (!intent->partials)
        return 0;
    return bounds ? lk_shard_roots(bounds[group->size], bounds[group->rank], bounds[group->rank + 1], NULL) : 1;
}

static void take_partials(lk_request *request, const lk_intent *intent)
{
    int own = count_partials(request->group, intent);
    for (int i = 0; i < own; i++)
        request->partials[i] = intent->partials[i];
    request->out_overlaps = lies_across(request, own);
}

/* Copies the part that this rank sends to itself. */
static void copy_own(lk_group *group, const lk_intent *intent)
{
    size_t bytes = intent->own_count * lk_dtype_size(intent->data.dtype);
    if (bytes > 0 && intent->own_to != intent->own_from)
        group->device->kernels->copy_bytes(group->device, bytes, intent->own_from, intent->own_to);
}

/* Large allreduces inside one host are done in pieces, so that a result is still in the shared cache when the
 * other ranks read it. Returns the elements of a piece; equal at all ranks. */
static size_t piece_of(const lk_group *group, const lk_intent *intent)
{
    size_t piece = PIECE_BYTES / lk_dtype_size(intent->data.dtype);
    bool whole = intent->kind != LK_CALL_KIND_ALLREDUCE || group->topology.hosts > 1 || group->size == 1;
    return whole || intent->data.count < piece + piece / 2 ? intent->data.count : piece;
}

/* Makes the request with its first program, or adds the program of the last piece. */
static lk_status add_program(lk_group *group, const lk_intent *intent, size_t count, lk_request **request)
{
    lk_program *program = NULL;
    LK_TRY(find_program(group, intent, count, &program));
    lk_status status = *request ? lk__request_add_last(*request, program) : lk__request_create(group, program, request);
    if (status != LK_OK)
        lk__program_release(program);
    return status;
}

/* A failure here aborts the job, unless an argument is wrong: the other ranks may be in this call already. */
static lk_status make_request(lk_group *group, const lk_intent *intent, lk_request **out)
{
    lk_request *request = NULL;
    size_t count = intent->data.count, piece = piece_of(group, intent);
    lk_status status = add_program(group, intent, piece, &request);
    if (status == LK_OK && piece < count) {
        request->total = count;
        if (count % piece != 0)
            status = add_program(group, intent, count % piece, &request);
    }
    if (status != LK_OK) {
        if (request)
            lk__request_retire(request);
        return lk__group_break(group, status);
    }
    *out = request;
    return LK_OK;
}

/* The group has not failed, and the arguments are right. */
static lk_status check(lk_group *group, const lk_intent *intent)
{
    LK_TRY(lk__group_check(group));
    /* A thread rank that failed may have freed memory that its frames refer to. */
    if (group->transport->type == &lk__transport_inproc) {
        lk_status verdict = lk__control_check(group->control);
        if (verdict != LK_OK)
            return lk__group_break(group, verdict);
    }
    return check_intent(group, intent);
}

static lk_status begin(lk_group *group, const lk_intent *intent, lk_request **out)
{
    lk_request *request = NULL;
    LK_TRY(make_request(group, intent, &request));
    request->call = describe(group, intent);
    request->op = intent->op;
    request->peer = intent->kind == LK_CALL_KIND_MESSAGE ? intent->root : -1;
    request->mine = intent->mine;
    request->out = intent->out;
    if (intent->partials)
        take_partials(request, intent);
    copy_own(group, intent);
    remember(group, request, intent->data.count * lk_dtype_size(intent->data.dtype));
    lk__executor_start(request);
    bool moved = false;
    lk_status status = out ? lk__executor_move(group, &moved) : lk__executor_wait(request);
    if (status != LK_OK || !out) {
        lk__request_retire(request);
        return status;
    }
    lk__request_waits(request);
    *out = request;
    lk__progress_wake(group);
    return LK_OK;
}

/* An intent on copies of device buffers in host memory. */
typedef struct staged_intent {
    lk_intent intent;
    const void *partials[LK_MAX_ROOTS];
    lk_device *from, *to;
    lk_device_copies_block *copies;
} staged_intent;

/* Replaces a window of device memory by its copy. *own, unless NULL, points into the window. */
static lk_status stage_window(lk_group *group, staged_intent *b, lk_device_copies_part part, lk_request_window *window,
                              const void **own)
{
    size_t element = lk_dtype_size(b->intent.data.dtype);
    char *host = NULL;
    part.at = window->at;
    part.bytes = window->count * element;
    if (!part.dev || part.bytes == 0)
        return LK_OK;
    LK_TRY(lk__device_copies_add(&group->device_copies, &part, &b->copies, &host));
    if (*own)
        *own = host + ((const char *)*own - window->at);
    window->at = host;
    return LK_OK;
}

/* The input of a broadcast is in the window of its result. */
static lk_status stage_data(lk_group *group, staged_intent *b)
{
    lk_intent *it = &b->intent;
    int own = b->from ? count_partials(group, it) : 0;
    const void *to = it->own_to;
    bool source = it->kind == LK_CALL_KIND_BROADCAST && it->root == group->rank;
    for (int i = 0; i < own; i++) {
        lk_request_window whole = {(char *)(uintptr_t)it->partials[i], 0, it->data.count};
        const void *none = NULL;
        LK_TRY(stage_window(group, b, (lk_device_copies_part){.dev = b->from, .in = true}, &whole, &none));
        b->partials[i] = whole.at;
    }
    if (own > 0)
        it->partials = b->partials;
    LK_TRY(stage_window(group, b, (lk_device_copies_part){.dev = b->from, .in = true}, &it->mine, &it->own_from));
    LK_TRY(stage_window(group, b, (lk_device_copies_part){.dev = b->to, .in = source, .back = true}, &it->out, &to));
    it->own_to = (void *)(uintptr_t)to;
    return LK_OK;
}

/* A device that is not there is an error of this rank alone, as other arguments are. A copy that fails is a failure of
 * the group, because the other ranks may be in this call already. */
static lk_status begin_staged(lk_group *group, const lk_intent *intent, lk_request **out)
{
    staged_intent b = {.intent = *intent};
    LK_TRY(lk__device_copies_open(&group->device_copies, intent->from, &b.from));
    LK_TRY(lk__device_copies_open(&group->device_copies, intent->to, &b.to));
    lk_status status = stage_data(group, &b);
    if (status == LK_OK)
        status = begin(group, &b.intent, out);
    if (status == LK_OK && out) {
        (*out)->copies = b.copies;
        return LK_OK;
    }
    status = lk__device_copies_end(b.copies, status);
    return status == LK_OK ? LK_OK : lk__group_break(group, status);
}

static lk_status begin_in_turn(lk_group *group, const lk_intent *intent, lk_request **out)
{
    lk__progress_take(group);
    lk_status status = check(group, intent);
    if (status == LK_OK)
        status = (intent->from || intent->to ? begin_staged : begin)(group, intent, out);
    lk__progress_give(group);
    return status;
}

/* Every call starts here: a site for faults on request. The calling thread gets the group's rank as its fault
 * site. */
lk_status lk__intent_start(lk_group *group, const lk_intent *intent, lk_request **out)
{
    if (!lk__fault_is_on())
        return begin_in_turn(group, intent, out);
    const char *name = kind_names[intent->kind];
    lk_fault_site site = lk__fault_site();
    int rank = lk__group_job_rank(group, group->rank);
    if (site.rank != rank) {
        site.rank = rank;
        lk__fault_set_site(site);
    }
    const char *before = lk__fault_enter(name);
    lk__fault_point(name);
    lk_status status = begin_in_turn(group, intent, out);
    lk__fault_leave(before);
    return status;
}
