/* device_sums.c - runs programs on a channel between devices, and waits for other ranks. */
#include "comm/collective/device_sums.h"

#include <assert.h>
#include <sched.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/tree.h"
#include "comm/collective/program.h"

/* Seconds to wait for the job to learn why a channel failed. */
static const double REASON_AFTER = 2;

/* Marks of the channel that follow those of the sums. */
enum { GATHERED, SHARED, MARKS };

/* Programs that are cached in addition to those of the sums. */
enum { GATHERS = 256 };

struct lk_device_sums {
    lk_device_sums_opts opts;
    const lk_channel_type *type;
    lk_channel *channel;
    bool given_up;       /* the channel was given up */
    int rank, size, own; /* own: partial sums of this rank */
    int *host;           /* (size) zeros: all ranks count as one host */
    lk_program_cache programs;
    lk_span *spans;         /* (size) of the current gather */
    size_t segment;         /* most elements of a sum that one rank folds */
    float *inbox;           /* device: (partial sums of peers, segment) */
    lk_channel_move *moves; /* room for the moves of one phase */
    int move_count;
    int last;        /* the last sum that was enqueued */
    double waits_at; /* lk__clock() time when the current wait began; 0: none */
};

/* Yields the core once. Fails when a rank is lost or the timeout has passed. */
static lk_status keep_waiting(lk_device_sums *sums)
{
    lk_group *group = sums->opts.group;
    char text[256];
    double now = lk__clock(), timeout = lk_group_timeout(group);
    LK_TRY(lk_group_poll(group));
    if (sums->waits_at == 0)
        sums->waits_at = now;
    if (now - sums->waits_at < timeout) {
        sched_yield();
        return LK_OK;
    }
    snprintf(text, sizeof text, "rank %d waited %.0f s for sums over %s: that is its timeout", sums->rank, timeout,
             sums->type->name);
    lk_group_abort(group, text);
    return lk__fail(LK_STATUS_PEER, "%s", text);
}

/* Waits until the channel has done its last operation. */
static lk_status finish(lk_device_sums *sums)
{
    bool done = !sums->type->poll;
    while (!done) {
        LK_TRY(sums->type->poll(sums->channel, &done));
        if (!done)
            LK_TRY(keep_waiting(sums));
    }
    return LK_OK;
}

/* Ends a call. After a failure it gives the channel up, and waits for the job to learn the reason: a channel
 * may notice a lost peer earlier than the job. */
static lk_status explain(lk_device_sums *sums, lk_status status)
{
    char text[LK_DEVICE_SUMS_TEXT];
    sums->waits_at = 0;
    if (status == LK_OK)
        return LK_OK;
    snprintf(text, sizeof text, "%s", lk_error_detail());
    lk__device_sums_give_up(sums);
    for (double began = lk__clock(); status != LK_STATUS_PEER && lk__clock() - began < REASON_AFTER; sched_yield())
        LK_TRY(lk_group_poll(sums->opts.group));
    return lk__fail(status, "%s", text);
}

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

/* Opens this rank's part of the channel and writes its key. */
static lk_status open_channel(lk_device_sums *sums, unsigned char *key)
{
    const lk_device_sums_opts *opts = &sums->opts;
    size_t most = (size_t)sums->own * lk__size_max(sums->segment, opts->widest);
    lk_channel_opts channel = {.rank = sums->rank,
                               .size = sums->size,
                               .marks = opts->sums + MARKS,
                               .most = lk__size_max(lk__size_max(most, sums->segment), opts->samples)};
    return sums->type->open(opts->dev, &channel, key, &sums->channel);
}

/* Also called by a rank without channel: the others wait for its key. */
static lk_status join_channel(lk_device_sums *sums, unsigned char *key)
{
    unsigned char *keys;
    LK_TRY(LK_ALLOC((size_t)sums->size * LK_CHANNEL_KEY, "ranks", &keys));
    lk_status status = lk_allgather(sums->opts.group, (lk_buffer){key, LK_CHANNEL_KEY, LK_DTYPE_U8}, NULL, keys, NULL);
    if (status == LK_OK && sums->channel)
        status = sums->type->join(sums->channel, keys);
    lk__mem_free(keys);
    return status == LK_OK && sums->channel ? finish(sums) : status;
}

static lk_device_sums blank(const lk_device_sums_opts *opts)
{
    return (lk_device_sums){.opts = *opts,
                            .type = opts->channel,
                            .rank = lk_group_rank(opts->group),
                            .size = lk_group_size(opts->group),
                            .programs = {.room = (size_t)opts->sums + GATHERS}};
}

lk_status lk__device_sums_create(const lk_device_sums_opts *opts, lk_device_sums **out)
{
    unsigned char key[LK_CHANNEL_KEY] = {0};
    lk_device_sums *sums;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "sums between devices", &sums));
    *sums = blank(opts);
    LK_TRY_GOTO(alloc_parts(sums), destroy_sums);
    LK_TRY_GOTO(open_channel(sums, key), destroy_sums);
    LK_TRY_GOTO(explain(sums, join_channel(sums, key)), destroy_sums);
    *out = sums;
    return LK_OK;

destroy_sums:
    lk__device_sums_destroy(sums);
    return status;
}

/* The barrier ensures that no rank closes its channel before all have left. */
lk_status lk__device_sums_probe(const lk_device_sums_opts *opts)
{
    lk_device_sums trial = blank(opts);
    unsigned char key[LK_CHANNEL_KEY] = {0};
    char text[LK_DEVICE_SUMS_TEXT];
    lk_status status = open_channel(&trial, key);
    snprintf(text, sizeof text, "%s", lk_error_detail());
    lk_status joined = join_channel(&trial, key);
    if (status == LK_OK && joined != LK_OK) {
        snprintf(text, sizeof text, "%s", lk_error_detail());
        status = joined;
    }
    if (trial.channel && trial.type->leave)
        trial.type->leave(trial.channel);
    lk_status left = lk_barrier(opts->group, NULL);
    trial.type->close(trial.channel);
    return status == LK_OK ? left : lk__fail(status, "%s", text);
}

void lk__device_sums_leave(lk_device_sums *sums)
{
    char detail[LK_DEVICE_SUMS_TEXT];
    int64_t left = 1;
    if (!sums || !sums->type->leave)
        return;
    snprintf(detail, sizeof detail, "%s", lk_error_detail());
    sums->type->leave(sums->channel);
    /* Not a barrier, because other ranks may still be in the barrier of a sum. If it fails, the job has
     * failed earlier, and that reason stays. */
    if (lk_allreduce(sums->opts.group, (lk_buffer){&left, 1, LK_DTYPE_I64}, LK_REDUCTION_MAX, NULL) != LK_OK)
        (void)lk__fail(LK_STATUS_PEER, "%s", detail);
}

void lk__device_sums_destroy(lk_device_sums *sums)
{
    if (!sums)
        return;
    sums->type->close(sums->channel);
    sums->opts.dev->type->free(sums->opts.dev, sums->inbox);
    lk__program_cache_fini(&sums->programs);
    lk__mem_free(sums->moves);
    lk__mem_free(sums->spans);
    lk__mem_free(sums->host);
    lk__mem_free(sums);
}

void lk__device_sums_give_up(lk_device_sums *sums)
{
    if (sums->channel && !sums->given_up)
        sums->type->give_up(sums->channel);
    sums->given_up = true;
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
    const lk_channel_type *type = sums->type;
    LK_TRY(type->move(sums->channel, sums->moves, sums->move_count));
    LK_TRY(finish(sums));
    if (!type->take)
        return LK_OK;
    LK_TRY(lk_barrier(sums->opts.group, NULL));
    return type->take(sums->channel, sums->moves, sums->move_count);
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
        LK_TRY(sums->type->add(sums->channel, phase->keep.count, left.at, right.at, to));
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
        LK_TRY(sums->type->add(sums->channel, count, left, lk__partials_slot(partials, partial), left));
    }
    LK_TRY(sums->type->sum(sums->channel, count, partials.slot0));
    return finish(sums);
}

/* Enqueues a gather of sums->spans if `gathers`, otherwise a sum, and then sets the mark. */
static lk_status enqueue(lk_device_sums *sums, bool gathers, size_t count, lk_partials vectors, int mark)
{
    lk_program *program;
    LK_TRY(sums->type->follow(sums->channel));
    if (sums->opts.own_order && !gathers) {
        LK_TRY(sum_in_own_order(sums, count, vectors));
    } else {
        LK_TRY(find(sums, count, gathers ? sums->spans : NULL, &program));
        lk_status status = lk__device_sums_run(sums, program, vectors);
        lk__program_release(program);
        LK_TRY(status);
    }
    return sums->type->mark(sums->channel, mark);
}

lk_status lk__device_sums_sum(lk_device_sums *sums, int index, size_t count, lk_partials partials)
{
    sums->last = index;
    return explain(sums, enqueue(sums, false, count, partials, index));
}

lk_status lk__device_sums_lead(lk_device_sums *sums, int index)
{
    lk_status status = sums->type->lead(sums->channel, index);
    return explain(sums, status == LK_OK ? finish(sums) : status);
}

static lk_status watch(lk_device_sums *sums)
{
    LK_TRY(keep_waiting(sums));
    return finish(sums);
}

static lk_status await(lk_device_sums *sums, int mark)
{
    bool done = false;
    LK_TRY(sums->type->reached(sums->channel, mark, &done));
    while (!done) {
        LK_TRY(watch(sums));
        LK_TRY(sums->type->reached(sums->channel, mark, &done));
    }
    return LK_OK;
}

lk_status lk__device_sums_wait(lk_device_sums *sums)
{
    LK_TRY(explain(sums, await(sums, sums->last)));
    LK_TRY(explain(sums, await(sums, sums->opts.sums + SHARED)));
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
    LK_TRY(explain(sums, enqueue(sums, true, total, (lk_partials){.slot0 = all}, mark)));
    return lk__device_sums_lead(sums, mark);
}

lk_status lk__device_sums_wait_gather(lk_device_sums *sums)
{
    return explain(sums, await(sums, sums->opts.sums + GATHERED));
}

lk_status lk__device_sums_share(lk_device_sums *sums, size_t total, float *all)
{
    const int *bounds = sums->opts.bounds;
    for (int r = 0; r < sums->size; r++) {
        size_t first = lk__shard_begin(total, bounds[sums->size], bounds[r]);
        sums->spans[r] = (lk_span){first, lk__shard_begin(total, bounds[sums->size], bounds[r + 1]) - first};
    }
    return explain(sums, enqueue(sums, true, total, (lk_partials){.slot0 = all}, sums->opts.sums + SHARED));
}

lk_status lk__device_sums_lead_share(lk_device_sums *sums)
{
    return lk__device_sums_lead(sums, sums->opts.sums + SHARED);
}

lk_status lk__device_sums_watch(lk_device_sums *sums, double since)
{
    sums->waits_at = since;
    return explain(sums, watch(sums));
}
