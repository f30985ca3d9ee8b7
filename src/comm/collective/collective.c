/* collective.c - the public collective calls. Each describes what the ranks must agree on, where the data
 * are, and which program moves them. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/mem.h"
#include "comm/collective/argument.h"
#include "comm/collective/group_impl.h"
#include "comm/collective/progress.h"
#include "comm/collective/reduction.h"
#include "tensor/device.h"

/* The description of a call before it is a request. */
typedef struct call_intent {
    lk_call_kind kind;
    lk_buffer data; /* count is that of the whole vector */
    lk_reduction op;
    bool rooted;
    int root; /* -1: none; of a message: the peer */
    bool sending;
    const int *bounds;
    const lk_span *spans, *recv_spans;
    uint64_t detail; /* equal at all ranks */
    uint64_t own;    /* of this rank only */
    lk_request_window mine, out;
    const void *const *partials;
    const void *own_from; /* own_count elements that this rank sends to itself */
    void *own_to;
    size_t own_count;
    lk_argument_memory memory[2]; /* buffers of the caller */
} call_intent;

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

/* Returns the address of an element; `at` for a type that is refused later. */
static void *at_element(void *at, size_t first, lk_dtype dtype)
{
    return at && first && is_type(dtype) ? (char *)at + first * lk_dtype_size(dtype) : at;
}

static const char *name_of(const call_intent *intent)
{
    return intent->kind != LK_CALL_KIND_MESSAGE ? kind_names[intent->kind] : intent->sending ? "send" : "recv";
}

/* Checks the caller's buffers. Input and output may overlap if the call is in place: if this rank's own part
 * has the same address in both. An alltoall is never in place, because its other parts would overlap. */
static lk_status check_memory(const call_intent *intent)
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

static lk_status check_intent(const lk_group *group, const call_intent *intent)
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
static lk_status find_program(lk_group *group, const call_intent *intent, size_t count, lk_program **out)
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

static lk_call describe(lk_group *group, const call_intent *intent)
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

static void take_partials(lk_request *request, const call_intent *intent)
{
    const lk_group *group = request->group;
    int own = 1;
    if (intent->bounds)
        own = lk_shard_roots(intent->bounds[group->size], intent->bounds[group->rank], intent->bounds[group->rank + 1],
                             NULL);
    for (int i = 0; i < own; i++)
        request->partials[i] = intent->partials[i];
    request->out_overlaps = lies_across(request, own);
}

/* Copies the part that this rank sends to itself. */
static void copy_own(lk_group *group, const call_intent *intent)
{
    size_t bytes = intent->own_count * lk_dtype_size(intent->data.dtype);
    if (bytes > 0 && intent->own_to != intent->own_from)
        group->device->kernels->copy_bytes(group->device, bytes, intent->own_from, intent->own_to);
}

/* Large allreduces inside one host are done in pieces, so that a result is still in the shared cache when the
 * other ranks read it. Returns the elements of a piece; equal at all ranks. */
static size_t piece_of(const lk_group *group, const call_intent *intent)
{
    size_t piece = PIECE_BYTES / lk_dtype_size(intent->data.dtype);
    bool whole = intent->kind != LK_CALL_KIND_ALLREDUCE || group->topology.hosts > 1 || group->size == 1;
    return whole || intent->data.count < piece + piece / 2 ? intent->data.count : piece;
}

/* Makes the request with its first program, or adds the program of the last piece. */
static lk_status add_program(lk_group *group, const call_intent *intent, size_t count, lk_request **request)
{
    lk_program *program = NULL;
    LK_TRY(find_program(group, intent, count, &program));
    lk_status status = *request ? lk__request_add_last(*request, program) : lk__request_create(group, program, request);
    if (status != LK_OK)
        lk__program_release(program);
    return status;
}

/* A failure here aborts the job, unless an argument is wrong: the other ranks may be in this call already. */
static lk_status make_request(lk_group *group, const call_intent *intent, lk_request **out)
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

static lk_status begin(lk_group *group, const call_intent *intent, lk_request **out)
{
    lk_request *request = NULL;
    LK_TRY(lk__group_check(group));
    /* A thread rank that failed may have freed memory that its frames refer to. */
    if (group->transport->type == &lk__transport_inproc) {
        lk_status verdict = lk__control_check(group->control);
        if (verdict != LK_OK)
            return lk__group_break(group, verdict);
    }
    LK_TRY(check_intent(group, intent));
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

static lk_status begin_in_turn(lk_group *group, const call_intent *intent, lk_request **out)
{
    lk__progress_take(group);
    lk_status status = begin(group, intent, out);
    lk__progress_give(group);
    return status;
}

/* Every call starts here: a site for faults on request. The calling thread gets the group's rank as its fault
 * site. */
static lk_status start(lk_group *group, const call_intent *intent, lk_request **out)
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

static lk_status start_sum(lk_group *group, call_intent *intent, const lk_shard_sums *sums, lk_request **request)
{
    if (lk__reduction_known(intent->op))
        intent->detail ^= lk__reduction_identity(intent->op);
    if (sums) {
        LK_TRY(lk__argument_sums(group, sums, intent->data.count, kind_names[intent->kind]));
        size_t bytes = ((size_t)group->size + 1) * sizeof *sums->bounds;
        intent->bounds = sums->bounds;
        intent->partials = sums->roots;
        intent->detail = lk__hash(sums->bounds, bytes, intent->detail + 1);
    }
    return start(group, intent, request);
}

static lk_status allreduce(lk_group *group, const lk_shard_sums *sums, lk_buffer data, lk_reduction op,
                           lk_request **request)
{
    const void *own[] = {data.at};
    call_intent intent = {.kind = LK_CALL_KIND_ALLREDUCE,
                          .data = data,
                          .op = op,
                          .root = -1,
                          .out = {data.at, 0, data.count},
                          .partials = own,
                          .memory = {{sums ? "out.at" : "data.at", data.at, data.count}}};
    return start_sum(group, &intent, sums, request);
}

lk_status lk_allreduce(lk_group *group, lk_buffer data, lk_reduction op, lk_request **request)
{
    LK_TRY(lk__argument_group(group, "allreduce"));
    return allreduce(group, NULL, data, op, request);
}

lk_status lk_allreduce_shards(lk_group *group, const lk_shard_sums *sums, lk_buffer out, lk_reduction op,
                              lk_request **request)
{
    LK_TRY(lk__argument_group(group, "allreduce"));
    LK_TRY(lk__argument_set(sums, "sums", "allreduce"));
    return allreduce(group, sums, out, op, request);
}

static lk_status reduce(lk_group *group, const lk_shard_sums *sums, lk_buffer data, lk_reduction op, int root,
                        lk_request **request)
{
    const void *own[] = {data.at};
    bool here = group->rank == root;
    call_intent intent = {
        .kind = LK_CALL_KIND_REDUCE, .data = data, .op = op, .rooted = true, .root = root, .partials = own};
    intent.memory[0] = (lk_argument_memory){sums ? "out.at" : "data.at", data.at, here || !sums ? data.count : 0};
    if (here)
        intent.out = (lk_request_window){data.at, 0, data.count};
    return start_sum(group, &intent, sums, request);
}

lk_status lk_reduce(lk_group *group, lk_buffer data, lk_reduction op, int root, lk_request **request)
{
    LK_TRY(lk__argument_group(group, "reduce"));
    return reduce(group, NULL, data, op, root, request);
}

lk_status lk_reduce_shards(lk_group *group, const lk_shard_sums *sums, lk_buffer out, lk_reduction op, int root,
                           lk_request **request)
{
    LK_TRY(lk__argument_group(group, "reduce"));
    LK_TRY(lk__argument_set(sums, "sums", "reduce"));
    return reduce(group, sums, out, op, root, request);
}

size_t lk_even_count(size_t count, int ranks, int rank)
{
    return ranks > 0 && rank >= 0 && rank < ranks ? lk__span_segment(count, ranks, rank).count : 0;
}

/* Makes the spans of all ranks, one after the other, from counts, or with `each` elements if counts is NULL.
 * *total is the sum of the counts. */
static lk_status make_spans(const lk_group *group, const size_t *counts, size_t each, lk_span **out, size_t *total)
{
    lk_span *spans = NULL;
    size_t first = 0;
    LK_TRY(LK_ALLOC((size_t)group->size, "counts of the ranks", &spans));
    for (int r = 0; r < group->size; r++) {
        size_t count = counts ? counts[r] : each;
        if (count > SIZE_MAX / 16 - first) {
            lk__mem_free(spans);
            return lk__fail(LK_STATUS_USAGE, "the counts of all ranks are more than memory holds");
        }
        spans[r] = (lk_span){first, count};
        first += count;
    }
    *out = spans;
    *total = first;
    return LK_OK;
}

static uint64_t hash_spans(const lk_group *group, const lk_span *spans, uint64_t seed)
{
    return lk__hash(spans, (size_t)group->size * sizeof *spans, seed) | 1;
}

static lk_status wrong_count(const char *what, const char *name, size_t count, int rank, size_t wanted)
{
    return lk__fail(LK_STATUS_USAGE, "%s: %s is %zu, but the counts give %zu for rank %d", what, name, count, wanted,
                    rank);
}

static lk_status reduce_scatter(lk_group *group, const lk_shard_sums *sums, call_intent *intent, lk_span *spans,
                                void *out, lk_request **request)
{
    lk_span own = spans[group->rank];
    intent->spans = spans;
    intent->detail = hash_spans(group, spans, LK_CALL_KIND_REDUCE_SCATTER);
    intent->out = (lk_request_window){out, own.first, own.count};
    intent->memory[1] = (lk_argument_memory){sums ? "out.at" : "out", out, own.count};
    lk_status status = start_sum(group, intent, sums, request);
    lk__mem_free(spans);
    return status;
}

lk_status lk_reduce_scatter(lk_group *group, lk_buffer in, const size_t *counts, void *out, lk_reduction op,
                            lk_request **request)
{
    lk_span *spans = NULL;
    size_t total = 0;
    const void *own[] = {in.at};
    LK_TRY(lk__argument_group(group, "reduce_scatter"));
    LK_TRY(make_spans(group, counts, 0, &spans, &total));
    for (int r = 0; r < group->size && !counts; r++)
        spans[r] = lk__span_segment(in.count, group->size, r);
    if (counts && total != in.count) {
        lk__mem_free(spans);
        return lk__fail(LK_STATUS_USAGE, "reduce_scatter: the counts add up to %zu, the vector has %zu elements", total,
                        in.count);
    }
    call_intent intent = {.kind = LK_CALL_KIND_REDUCE_SCATTER, .data = in, .op = op, .root = -1, .partials = own};
    intent.memory[0] = (lk_argument_memory){"in.at", in.at, in.count};
    return reduce_scatter(group, NULL, &intent, spans, out, request);
}

lk_status lk_reduce_scatter_shards(lk_group *group, const lk_shard_sums *sums, const size_t *counts, lk_buffer out,
                                   lk_reduction op, lk_request **request)
{
    lk_span *spans = NULL;
    size_t total = 0;
    LK_TRY(lk__argument_group(group, "reduce_scatter"));
    LK_TRY(lk__argument_set(sums, "sums", "reduce_scatter"));
    LK_TRY(lk__argument_set(counts, "counts", "reduce_scatter"));
    LK_TRY(make_spans(group, counts, 0, &spans, &total));
    if (out.count != counts[group->rank]) {
        lk__mem_free(spans);
        return wrong_count("reduce_scatter", "out.count", out.count, group->rank, counts[group->rank]);
    }
    call_intent intent = {.kind = LK_CALL_KIND_REDUCE_SCATTER,
                          .data = {out.at, total, out.dtype},
                          .op = op,
                          .root = -1,
                          .partials = sums->roots};
    return reduce_scatter(group, sums, &intent, spans, out.at, request);
}

lk_status lk_broadcast(lk_group *group, lk_buffer data, int root, lk_request **request)
{
    LK_TRY(lk__argument_group(group, "broadcast"));
    call_intent intent = {.kind = LK_CALL_KIND_BROADCAST,
                          .data = data,
                          .rooted = true,
                          .root = root,
                          .out = {data.at, 0, data.count},
                          .memory = {{"data.at", data.at, data.count}}};
    return start(group, &intent, request);
}

/* Arguments of gather, allgather and scatter: a vector at one or all ranks, divided into spans. */
typedef struct vector_cut {
    lk_call_kind kind;
    lk_buffer mine;
    const size_t *counts;
    void *whole; /* NULL if this rank has none */
    int root;
} vector_cut;

static lk_status start_cut(lk_group *group, const vector_cut *cut, lk_request **request)
{
    lk_span *spans = NULL;
    size_t total = 0;
    LK_TRY(make_spans(group, cut->counts, cut->mine.count, &spans, &total));
    lk_span own = spans[group->rank];
    lk_request_window mine = {cut->mine.at, own.first, own.count};
    lk_request_window whole = {cut->whole, 0, cut->whole ? total : 0};
    void *own_slot = at_element(cut->whole, own.first, cut->mine.dtype);
    bool holds = cut->kind == LK_CALL_KIND_ALLGATHER || cut->root == group->rank;
    /* In a scatter, the whole vector is the input of root. */
    bool out = cut->kind == LK_CALL_KIND_SCATTER;
    call_intent intent = {
        .kind = cut->kind,
        .data = {NULL, total, cut->mine.dtype},
        .rooted = cut->kind != LK_CALL_KIND_ALLGATHER,
        .root = cut->root,
        .spans = spans,
        .detail = cut->counts ? hash_spans(group, spans, cut->kind) : 0,
        .mine = out ? whole : mine,
        .out = out ? mine : whole,
        .own_from = out ? own_slot : cut->mine.at,
        .own_to = out ? cut->mine.at : own_slot,
        .own_count = own_slot ? own.count : 0,
        .memory = {{"mine.at", cut->mine.at, own.count}, {out ? "in" : "out", cut->whole, holds ? total : 0}},
    };
    lk_status status = own.count == cut->mine.count
                           ? start(group, &intent, request)
                           : wrong_count(kind_names[cut->kind], "mine.count", cut->mine.count, group->rank, own.count);
    lk__mem_free(spans);
    return status;
}

lk_status lk_allgather(lk_group *group, lk_buffer mine, const size_t *counts, void *out, lk_request **request)
{
    LK_TRY(lk__argument_group(group, "allgather"));
    vector_cut cut = {LK_CALL_KIND_ALLGATHER, mine, counts, out, -1};
    return start_cut(group, &cut, request);
}

lk_status lk_gather(lk_group *group, lk_buffer mine, const size_t *counts, void *out, int root, lk_request **request)
{
    LK_TRY(lk__argument_group(group, "gather"));
    vector_cut cut = {LK_CALL_KIND_GATHER, mine, counts, group->rank == root ? out : NULL, root};
    return start_cut(group, &cut, request);
}

lk_status lk_scatter(lk_group *group, const void *in, const size_t *counts, lk_buffer mine, int root,
                     lk_request **request)
{
    LK_TRY(lk__argument_group(group, "scatter"));
    void *whole = group->rank == root ? (void *)(uintptr_t)in : NULL;
    vector_cut cut = {LK_CALL_KIND_SCATTER, mine, counts, whole, root};
    return start_cut(group, &cut, request);
}

lk_status lk_alltoall(lk_group *group, lk_buffer in, const size_t *send, lk_buffer out, const size_t *recv,
                      lk_request **request)
{
    lk_span *gives = NULL, *takes = NULL;
    size_t given = 0, taken = 0;
    lk_status status;
    LK_TRY(lk__argument_group(group, "alltoall"));
    size_t size = (size_t)group->size;
    if ((!send && in.count % size != 0) || (!recv && out.count % size != 0))
        return lk__fail(LK_STATUS_USAGE, "alltoall without counts: %zu and %zu elements do not divide by %d ranks",
                        in.count, out.count, group->size);
    LK_TRY(make_spans(group, send, in.count / size, &gives, &given));
    LK_TRY_GOTO(make_spans(group, recv, out.count / size, &takes, &taken), free_gives);
    call_intent intent = {.kind = LK_CALL_KIND_ALLTOALL,
                          .data = in,
                          .root = -1,
                          .spans = gives,
                          .recv_spans = takes,
                          .own = hash_spans(group, takes, hash_spans(group, gives, LK_CALL_KIND_ALLTOALL)),
                          .mine = {in.at, 0, in.count},
                          .out = {out.at, 0, out.count},
                          .own_from = at_element(in.at, gives[group->rank].first, in.dtype),
                          .own_to = at_element(out.at, takes[group->rank].first, out.dtype),
                          .own_count = gives[group->rank].count,
                          .memory = {{"in.at", in.at, in.count}, {"out.at", out.at, out.count}}};
    if (given != in.count || taken != out.count || in.dtype != out.dtype ||
        gives[group->rank].count != takes[group->rank].count)
        status = lk__fail(
            LK_STATUS_USAGE,
            "alltoall: the counts add up to %zu and %zu of %zu and %zu elements, and rank %d gives itself "
            "%zu and takes %zu",
            given, taken, in.count, out.count, group->rank, gives[group->rank].count, takes[group->rank].count);
    if (status == LK_OK)
        status = start(group, &intent, request);
    lk__mem_free(takes);
free_gives:
    lk__mem_free(gives);
    return status;
}

lk_status lk_barrier(lk_group *group, lk_request **request)
{
    lk_span *spans = NULL;
    size_t total = 0;
    LK_TRY(lk__argument_group(group, "barrier"));
    LK_TRY(make_spans(group, NULL, 0, &spans, &total));
    call_intent intent = {.kind = LK_CALL_KIND_BARRIER, .data = {NULL, 0, LK_DTYPE_U8}, .root = -1, .spans = spans};
    lk_status status = start(group, &intent, request);
    lk__mem_free(spans);
    return status;
}

lk_status lk_send(lk_group *group, lk_buffer data, int to, lk_request **request)
{
    LK_TRY(lk__argument_group(group, "send"));
    call_intent intent = {.kind = LK_CALL_KIND_MESSAGE,
                          .data = data,
                          .rooted = true,
                          .root = to,
                          .sending = true,
                          .mine = {data.at, 0, data.count},
                          .memory = {{"data.at", data.at, data.count}}};
    return start(group, &intent, request);
}

lk_status lk_recv(lk_group *group, lk_buffer data, int from, lk_request **request)
{
    LK_TRY(lk__argument_group(group, "recv"));
    call_intent intent = {.kind = LK_CALL_KIND_MESSAGE,
                          .data = data,
                          .rooted = true,
                          .root = from,
                          .out = {data.at, 0, data.count},
                          .memory = {{"data.at", data.at, data.count}}};
    return start(group, &intent, request);
}
