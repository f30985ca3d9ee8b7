/* device_sums.c - runs programs on a channel between devices. */
#include "comm/collective/device_sums.h"

#include <assert.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/tree.h"

/* Marks of the channel that follow those of the sums. */
enum { GATHERED, SHARED, MARKS };

/* Programs that are cached in addition to those of the sums. */
enum { GATHERS = 256 };

struct lk_device_sums {
    lk_device_sums_opts opts;
    lk_device_channel channel;
    int rank, size, own; /* own: partial sums of this rank */
    int *host;           /* (size) zeros: all ranks count as one host */
    lk_program_cache programs;
    lk_span *spans;         /* (size) of the current gather */
    size_t segment;         /* most elements of a sum that one rank folds */
    float *inbox;           /* device: (partial sums of peers, segment) */
    lk_channel_move *moves; /* room for the moves of one phase */
    int move_count;
    int last; /* the last sum that was enqueued */
};

/* Finds the program of a gather, or of a sum if spans is NULL. */
static lk_status find(lk_device_sums *sums, size_t count, const lk_span *spans, lk_program **out)
{
    lk_schedule_topology topology = {.size = sums->size, .hosts = 1, .host = sums->host};
    lk_program_key key = {.kind = spans ? LK_CALL_KIND_ALLGATHER : LK_CALL_KIND_ALLREDUCE,
                          .element = sizeof(float),
                          .count = count,
                          .root = -1,
                          .detail = spans ? lk__hash(spans, (size_t)sums->size * sizeof *spans, 0) : 0};
    lk_program_input input = {
        .topology = &topology, .rank = sums->rank, .bounds = sums->opts.bounds, .spans = spans, .segments = true};
    return lk__program_find(&sums->programs, &key, &input, out);
}

static int partial_count(const lk_device_sums *sums, int rank)
{
    const int *bounds = sums->opts.bounds;
    return lk__tree_roots(bounds[sums->size], bounds[rank], bounds[rank + 1], NULL);
}

static lk_status alloc_parts(lk_device_sums *sums)
{
    const lk_device_sums_opts *opts = &sums->opts;
    size_t size = (size_t)sums->size, roots = 0;
    for (int r = 0; r < sums->size; r++)
        roots += (size_t)partial_count(sums, r);
    sums->own = partial_count(sums, sums->rank);
    LK_TRY(LK_ALLOC(size, "sums between devices", &sums->host));
    LK_TRY(LK_ALLOC(size, "sums between devices", &sums->spans));
    LK_TRY(LK_ALLOC(roots + size * ((size_t)sums->own + 2), "sums between devices", &sums->moves));
    sums->segment = lk__schedule_segment_most(opts->most, sums->size);
    size_t others = roots - (size_t)sums->own;
    if (opts->own_order || others == 0)
        return LK_OK;
    return opts->dev->type->alloc(opts->dev, others * sums->segment * sizeof(float), "other ranks' gradients",
                                  (void **)&sums->inbox);
}

/* The most elements that this rank sends to one peer in one move. */
static size_t most_of_a_move(const lk_device_sums *sums)
{
    size_t most = (size_t)sums->own * lk__size_max(sums->segment, sums->opts.widest);
    return lk__size_max(lk__size_max(most, sums->segment), sums->opts.samples);
}

lk_status lk__device_sums_create(const lk_device_sums_opts *opts, lk_device_sums **out)
{
    lk_device_sums *sums;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "sums between devices", &sums));
    *sums = (lk_device_sums){.opts = *opts,
                             .channel = lk__device_channel_of(opts->group, opts->dev, opts->channel),
                             .programs = {.room = (size_t)opts->sums + GATHERS}};
    sums->rank = sums->channel.rank;
    sums->size = sums->channel.size;
    LK_TRY_GOTO(alloc_parts(sums), destroy_sums);
    LK_TRY_GOTO(lk__device_channel_open(&sums->channel, opts->sums + MARKS, most_of_a_move(sums)), destroy_sums);
    *out = sums;
    return LK_OK;

destroy_sums:
    lk__device_sums_destroy(sums);
    return status;
}

void lk__device_sums_leave(lk_device_sums *sums)
{
    if (sums)
        lk__device_channel_leave(&sums->channel);
}

void lk__device_sums_destroy(lk_device_sums *sums)
{
    if (!sums)
        return;
    lk__device_channel_close(&sums->channel);
    sums->opts.dev->type->free(sums->opts.dev, sums->inbox);
    lk__program_cache_fini(&sums->programs);
    lk__mem_free(sums->moves);
    lk__mem_free(sums->spans);
    lk__mem_free(sums->host);
    lk__mem_free(sums);
}

void lk__device_sums_give_up(lk_device_sums *sums)
{
    lk__device_channel_give_up(&sums->channel);
}

/* Returns the address of input i of a fold, over the span that this rank folds. A single input needs no fold,
 * and is received at the address of the result. */
static float *input_at(const lk_device_sums *sums, const lk_schedule_phase *phase, const lk_program_phase *details,
                       lk_partials vectors, int i)
{
    if (i < details->own)
        return lk__partials_slot(vectors, i) + phase->keep.first;
    if (details->inputs == 1)
        return vectors.slot0 + phase->keep.first;
    return sums->inbox + (size_t)(i - details->own) * sums->segment;
}

static void add_move(lk_device_sums *sums, const lk_schedule_move *move, bool send, float *at)
{
    sums->moves[sums->move_count++] = (lk_channel_move){move->peer, send, at, move->span.count};
}

/* In a FOLD phase, each send or receive is one move for each partial sum. */
static void list_moves(lk_device_sums *sums, const lk_schedule_phase *phase, const lk_program_phase *details,
                       lk_partials vectors)
{
    bool folds = phase->kind == LK_SCHEDULE_PHASE_KIND_FOLD;
    sums->move_count = 0;
    for (int i = 0; i < phase->send_count; i++) {
        const lk_schedule_move *move = &phase->sends[i];
        for (int partial = 0; partial < (folds ? details->own : 1); partial++)
            add_move(sums, move, true, lk__partials_slot(vectors, partial) + move->span.first);
    }
    for (int i = 0; i < phase->recv_count; i++) {
        const lk_schedule_move *move = &phase->recvs[i];
        if (!folds)
            add_move(sums, move, false, vectors.slot0 + move->span.first);
        for (int partial = 0; folds && partial < details->recv_partials[i]; partial++)
            add_move(sums, move, false, input_at(sums, phase, details, vectors, details->recv_first[i] + partial));
    }
}

/* Moves the data of a phase. Ranks without moves call it too, because the calls of all ranks must match. */
static lk_status exchange(lk_device_sums *sums)
{
    const lk_channel_type *type = sums->channel.type;
    LK_TRY(type->move(sums->channel.end, sums->moves, sums->move_count));
    LK_TRY(lk__device_channel_finish(&sums->channel));
    if (!type->take)
        return LK_OK;
    LK_TRY(lk_barrier(sums->opts.group, NULL));
    return type->take(sums->channel.end, sums->moves, sums->move_count);
}

/* An entry of the stack of a fold. */
typedef struct entry {
    float *at;
    bool own; /* a partial sum of this rank, which must not change */
} entry;

/* Partial sums of this rank are never merged with each other, because they belong to maximal subtrees. So one
 * of the two inputs of a merge is in the inbox, and the sum can be written there. */
static lk_status fold(lk_device_sums *sums, const lk_schedule_phase *phase, const lk_program_phase *details,
                      lk_partials vectors)
{
    entry stack[LK_TREE_MAX_DEPTH];
    int height = 0, count;
    const int *steps = lk__fold_plan_steps(details->plan, 0, &count);
    for (int i = 0; i < count; i++) {
        if (steps[i] != LK_FOLD_MERGE) {
            stack[height++] = (entry){input_at(sums, phase, details, vectors, steps[i]), steps[i] < details->own};
            continue;
        }
        entry left = stack[height - 2], right = stack[height - 1];
        bool last = i == count - 1;
        assert(last || !left.own || !right.own);
        float *to = last ? vectors.slot0 + phase->keep.first : left.own ? right.at : left.at;
        LK_TRY(sums->channel.type->add(sums->channel.end, phase->keep.count, left.at, right.at, to));
        height--;
        stack[height - 1] = (entry){.at = to};
    }
    return LK_OK;
}

lk_status lk__device_sums_run(lk_device_sums *sums, const lk_program *program, lk_partials vectors)
{
    for (int p = 0; p < program->schedule.phase_count; p++) {
        const lk_schedule_phase *phase = &program->schedule.phases[p];
        const lk_program_phase *details = &program->phases[p];
        assert(phase->kind == LK_SCHEDULE_PHASE_KIND_COPY ||
               (phase->level == LK_SCHEDULE_LEVEL_RANK && phase->level_out == LK_SCHEDULE_LEVEL_ALL));
        list_moves(sums, phase, details, vectors);
        LK_TRY(exchange(sums));
        if (phase->kind == LK_SCHEDULE_PHASE_KIND_FOLD && phase->keep.count > 0)
            LK_TRY(fold(sums, phase, details, vectors));
    }
    return LK_OK;
}

static lk_status sum_in_own_order(lk_device_sums *sums, size_t count, lk_partials partials)
{
    for (int partial = sums->own - 1; partial > 0; partial--) {
        float *left = lk__partials_slot(partials, partial - 1);
        LK_TRY(sums->channel.type->add(sums->channel.end, count, left, lk__partials_slot(partials, partial), left));
    }
    LK_TRY(sums->channel.type->sum(sums->channel.end, count, partials.slot0));
    return lk__device_channel_finish(&sums->channel);
}

/* Enqueues a gather of sums->spans if `gathers`, otherwise a sum, and then sets the mark. */
static lk_status enqueue(lk_device_sums *sums, bool gathers, size_t count, lk_partials vectors, int mark)
{
    lk_program *program;
    LK_TRY(sums->channel.type->follow(sums->channel.end));
    if (sums->opts.own_order && !gathers) {
        LK_TRY(sum_in_own_order(sums, count, vectors));
    } else {
        LK_TRY(find(sums, count, gathers ? sums->spans : NULL, &program));
        lk_status status = lk__device_sums_run(sums, program, vectors);
        lk__program_release(program);
        LK_TRY(status);
    }
    return sums->channel.type->mark(sums->channel.end, mark);
}

lk_status lk__device_sums_sum(lk_device_sums *sums, int index, size_t count, lk_partials partials)
{
    sums->last = index;
    return lk__device_channel_explain(&sums->channel, enqueue(sums, false, count, partials, index));
}

lk_status lk__device_sums_lead(lk_device_sums *sums, int index)
{
    return lk__device_channel_explain(&sums->channel, lk__device_channel_lead(&sums->channel, index));
}

lk_status lk__device_sums_wait(lk_device_sums *sums)
{
    LK_TRY(lk__device_channel_explain(&sums->channel, lk__device_channel_await(&sums->channel, sums->last)));
    LK_TRY(
        lk__device_channel_explain(&sums->channel, lk__device_channel_await(&sums->channel, sums->opts.sums + SHARED)));
    return lk__device_sums_wait_gather(sums);
}

lk_status lk__device_sums_gather(lk_device_sums *sums, const float *mine, size_t width, float *all)
{
    lk_device *dev = sums->opts.dev;
    int mark = sums->opts.sums + GATHERED;
    size_t total = 0;
    for (int r = 0; r < sums->size; r++) {
        sums->spans[r] = (lk_span){total, (size_t)partial_count(sums, r) * width};
        total += sums->spans[r].count;
    }
    lk_span own = sums->spans[sums->rank];
    if (mine != all + own.first)
        dev->kernels->copy_bytes(dev, own.count * sizeof *mine, mine, all + own.first);
    LK_TRY(lk__device_channel_explain(&sums->channel, enqueue(sums, true, total, (lk_partials){.slot0 = all}, mark)));
    return lk__device_sums_lead(sums, mark);
}

lk_status lk__device_sums_wait_gather(lk_device_sums *sums)
{
    return lk__device_channel_explain(&sums->channel,
                                      lk__device_channel_await(&sums->channel, sums->opts.sums + GATHERED));
}

lk_status lk__device_sums_share(lk_device_sums *sums, size_t total, float *all)
{
    const int *bounds = sums->opts.bounds;
    for (int r = 0; r < sums->size; r++) {
        size_t first = lk__shard_begin(total, bounds[sums->size], bounds[r]);
        sums->spans[r] = (lk_span){first, lk__shard_begin(total, bounds[sums->size], bounds[r + 1]) - first};
    }
    return lk__device_channel_explain(
        &sums->channel, enqueue(sums, true, total, (lk_partials){.slot0 = all}, sums->opts.sums + SHARED));
}

lk_status lk__device_sums_lead_share(lk_device_sums *sums)
{
    return lk__device_sums_lead(sums, sums->opts.sums + SHARED);
}

lk_status lk__device_sums_watch(lk_device_sums *sums, double since)
{
    sums->channel.waits_at = since;
    return lk__device_channel_explain(&sums->channel, lk__device_channel_watch(&sums->channel));
}
