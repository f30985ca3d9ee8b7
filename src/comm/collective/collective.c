/* collective.c - the public collective calls. Each describes what the ranks must agree on, where the data
 * are, and which program moves them. */
#include "base/hash.h"
#include "base/mem.h"
#include "comm/collective/argument.h"
#include "comm/collective/group_impl.h"
#include "comm/collective/intent.h"
#include "comm/collective/reduction.h"

/* Returns the address of an element; `at` for a type that is refused later. */
static void *at_element(void *at, size_t first, lk_dtype dtype)
{
    return at && first && (unsigned)dtype < LK_DTYPE_COUNT ? (char *)at + first * lk_dtype_size(dtype) : at;
}

static lk_status start_sum(lk_group *group, lk_intent *intent, const lk_shard_sums *sums, lk_request **request)
{
    if (lk__reduction_known(intent->op))
        intent->detail ^= lk__reduction_identity(intent->op);
    if (sums) {
        LK_TRY(lk__argument_sums(group, sums, intent->data.count, lk__intent_kind(intent->kind)));
        size_t bytes = ((size_t)group->size + 1) * sizeof *sums->bounds;
        intent->bounds = sums->bounds;
        intent->partials = sums->roots;
        intent->detail = lk__hash(sums->bounds, bytes, intent->detail + 1);
    }
    return lk__intent_start(group, intent, request);
}

static lk_status allreduce(lk_group *group, const lk_shard_sums *sums, lk_buffer data, lk_reduction op,
                           lk_request **request)
{
    const void *own[] = {data.at};
    lk_intent intent = {.kind = LK_CALL_KIND_ALLREDUCE,
                        .data = data,
                        .op = op,
                        .root = -1,
                        .out = {data.at, 0, data.count},
                        .partials = own,
                        .memory = {{sums ? "out.at" : "data.at", data.at, data.count}},
                        .from = data.device,
                        .to = data.device};
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
    lk_intent intent = {
        .kind = LK_CALL_KIND_REDUCE, .data = data, .op = op, .rooted = true, .root = root, .partials = own};
    intent.from = intent.to = data.device;
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

static lk_status reduce_scatter(lk_group *group, const lk_shard_sums *sums, lk_intent *intent, lk_span *spans,
                                void *out, lk_request **request)
{
    lk_span own = spans[group->rank];
    intent->spans = spans;
    intent->detail = hash_spans(group, spans, LK_CALL_KIND_REDUCE_SCATTER);
    intent->out = (lk_request_window){out, own.first, own.count};
    intent->from = intent->to = intent->data.device;
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
    lk_intent intent = {.kind = LK_CALL_KIND_REDUCE_SCATTER, .data = in, .op = op, .root = -1, .partials = own};
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
    lk_intent intent = {.kind = LK_CALL_KIND_REDUCE_SCATTER,
                        .data = {out.at, total, out.dtype, out.device},
                        .op = op,
                        .root = -1,
                        .partials = sums->roots};
    return reduce_scatter(group, sums, &intent, spans, out.at, request);
}

lk_status lk_broadcast(lk_group *group, lk_buffer data, int root, lk_request **request)
{
    LK_TRY(lk__argument_group(group, "broadcast"));
    lk_intent intent = {.kind = LK_CALL_KIND_BROADCAST,
                        .data = data,
                        .rooted = true,
                        .root = root,
                        .out = {data.at, 0, data.count},
                        .memory = {{"data.at", data.at, data.count}},
                        .to = data.device};
    return lk__intent_start(group, &intent, request);
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
    lk_intent intent = {
        .kind = cut->kind,
        .data = {NULL, total, cut->mine.dtype, NULL},
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
        .from = cut->mine.device,
        .to = cut->mine.device,
    };
    lk_status status = own.count == cut->mine.count ? lk__intent_start(group, &intent, request)
                                                    : wrong_count(lk__intent_kind(cut->kind), "mine.count",
                                                                  cut->mine.count, group->rank, own.count);
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
    lk_intent intent = {.kind = LK_CALL_KIND_ALLTOALL,
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
                        .memory = {{"in.at", in.at, in.count}, {"out.at", out.at, out.count}},
                        .from = in.device,
                        .to = out.device};
    if (given != in.count || taken != out.count || in.dtype != out.dtype ||
        gives[group->rank].count != takes[group->rank].count)
        status = lk__fail(
            LK_STATUS_USAGE,
            "alltoall: the counts add up to %zu and %zu of %zu and %zu elements, and rank %d gives itself "
            "%zu and takes %zu",
            given, taken, in.count, out.count, group->rank, gives[group->rank].count, takes[group->rank].count);
    if (status == LK_OK)
        status = lk__intent_start(group, &intent, request);
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
    lk_intent intent = {.kind = LK_CALL_KIND_BARRIER, .data = {.dtype = LK_DTYPE_U8}, .root = -1, .spans = spans};
    lk_status status = lk__intent_start(group, &intent, request);
    lk__mem_free(spans);
    return status;
}

lk_status lk_send(lk_group *group, lk_buffer data, int to, lk_request **request)
{
    LK_TRY(lk__argument_group(group, "send"));
    lk_intent intent = {.kind = LK_CALL_KIND_MESSAGE,
                        .data = data,
                        .rooted = true,
                        .root = to,
                        .sending = true,
                        .mine = {data.at, 0, data.count},
                        .memory = {{"data.at", data.at, data.count}},
                        .from = data.device};
    return lk__intent_start(group, &intent, request);
}

lk_status lk_recv(lk_group *group, lk_buffer data, int from, lk_request **request)
{
    LK_TRY(lk__argument_group(group, "recv"));
    lk_intent intent = {.kind = LK_CALL_KIND_MESSAGE,
                        .data = data,
                        .rooted = true,
                        .root = from,
                        .out = {data.at, 0, data.count},
                        .memory = {{"data.at", data.at, data.count}},
                        .to = data.device};
    return lk__intent_start(group, &intent, request);
}
