/* device_sums.c - runs programs on a channel between devices, in the order of a step's
 * streams, and waits for other ranks. */
#include "comm/collective/device_sums.h"

#include <assert.h>
#include <sched.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/tree.h"
#include "comm/collective/program.h"

/* Seconds for the job to learn why a channel failed. */
static const double REASON_AFTER = 2;

/* Marks after those of the sums. */
enum { GATHERED, SHARED, MARKS };

/* Programs that are kept beside those of the sums. */
enum { GATHERS = 256 };

struct lk_device_sums {
    lk_device_sums_opts opts;
    const lk_channel_type *type;
    lk_channel *channel;
    bool lost;           /* given up */
    int rank, size, own; /* vectors of this rank */
    int *host;           /* (size) zeros: the topology of one host */
    lk_program_cache programs;
    lk_span *spans;         /* (size) of what is gathered */
    size_t segment;         /* elements of a sum that a rank folds at most */
    float *inbox;           /* device: (partial sums of peers, segment) */
    lk_channel_move *moves; /* (those of one exchange at most) */
    int move_count;
    int last;        /* sum that was enqueued */
    double waits_at; /* when the wait at hand began; 0: none */
};

/* Waits a little for other ranks; fails when one is lost or the timeout has passed. */
static lk_status keep_waiting(lk_device_sums *direct)
{
    lk_group *group = direct->opts.group;
    char text[256];
    double now = lk__clock(), timeout = lk_group_timeout(group);
    LK_TRY(lk_group_poll(group));
    if (direct->waits_at == 0)
        direct->waits_at = now;
    if (now - direct->waits_at < timeout) {
        sched_yield();
        return LK_OK;
    }
    snprintf(text, sizeof text, "rank %d waited %.0f s for sums over %s: that is its timeout", direct->rank, timeout,
             direct->type->name);
    lk_group_abort(group, text);
    return lk__fail(LK_STATUS_PEER, "%s", text);
}

/* Until the channel has done what it was told last. */
static lk_status finish(lk_device_sums *direct)
{
    bool done = !direct->type->poll;
    while (!done) {
        LK_TRY(direct->type->poll(direct->channel, &done));
        if (!done)
            LK_TRY(keep_waiting(direct));
    }
    return LK_OK;
}

/* The end of each call. A channel may find that a peer is gone before the job does,
 * which knows why. */
static lk_status explain(lk_device_sums *direct, lk_status status)
{
    char text[LK_DIRECT_TEXT];
    direct->waits_at = 0;
    if (status == LK_OK)
        return LK_OK;
    snprintf(text, sizeof text, "%s", lk_error_detail());
    lk__device_sums_give_up(direct);
    for (double began = lk__clock(); status != LK_STATUS_PEER && lk__clock() - began < REASON_AFTER; sched_yield())
        LK_TRY(lk_group_poll(direct->opts.group));
    return lk__fail(status, "%s", text);
}

/* The program of a gather, or without spans that of a sum. */
static lk_status find(lk_device_sums *direct, size_t count, const lk_span *spans, lk_program **out)
{
    lk_schedule_topology topology = {.size = direct->size, .hosts = 1, .host = direct->host};
    lk_program_key key = {.kind = spans ? LK_CALL_ALLGATHER : LK_CALL_ALLREDUCE,
                          .element = sizeof(float),
                          .count = count,
                          .root = -1,
                          .detail = spans ? lk__hash(spans, (size_t)direct->size * sizeof *spans, 0) : 0};
    lk_program_input input = {
        .topology = &topology, .rank = direct->rank, .bounds = direct->opts.bounds, .spans = spans, .segments = true};
    return lk__program_find(&direct->programs, &key, &input, out);
}

static int roots_of(const lk_device_sums *direct, int rank)
{
    const int *bounds = direct->opts.bounds;
    return lk__tree_roots(bounds[direct->size], bounds[rank], bounds[rank + 1], NULL);
}

static lk_status alloc_parts(lk_device_sums *direct)
{
    const lk_device_sums_opts *opts = &direct->opts;
    size_t size = (size_t)direct->size, roots = 0;
    for (int r = 0; r < direct->size; r++)
        roots += (size_t)roots_of(direct, r);
    direct->own = roots_of(direct, direct->rank);
    LK_TRY(LK_ALLOC(size, "sums between devices", &direct->host));
    LK_TRY(LK_ALLOC(size, "sums between devices", &direct->spans));
    LK_TRY(LK_ALLOC(roots + size * ((size_t)direct->own + 2), "sums between devices", &direct->moves));
    direct->segment = lk__schedule_segment_most(opts->most, direct->size);
    size_t others = roots - (size_t)direct->own;
    if (opts->own_order || others == 0)
        return LK_OK;
    return opts->dev->type->alloc(opts->dev, others * direct->segment * sizeof(float), "other ranks' gradients",
                                  (void **)&direct->inbox);
}

/* This rank's part of the channel, and its key. */
static lk_status open_channel(lk_device_sums *direct, unsigned char *key)
{
    const lk_device_sums_opts *opts = &direct->opts;
    size_t most = (size_t)direct->own * lk__size_max(direct->segment, opts->widest);
    lk_channel_opts channel = {.rank = direct->rank,
                               .size = direct->size,
                               .marks = opts->sums + MARKS,
                               .most = lk__size_max(lk__size_max(most, direct->segment), opts->samples)};
    return direct->type->open(opts->dev, &channel, key, &direct->channel);
}

/* Also at a rank that has no channel: the others wait for its key. */
static lk_status join_channel(lk_device_sums *direct, unsigned char *key)
{
    unsigned char *keys;
    LK_TRY(LK_ALLOC((size_t)direct->size * LK_CHANNEL_KEY, "ranks", &keys));
    lk_status status =
        lk_allgather(direct->opts.group, (lk_buffer){key, LK_CHANNEL_KEY, LK_DTYPE_U8}, NULL, keys, NULL);
    if (status == LK_OK && direct->channel)
        status = direct->type->join(direct->channel, keys);
    lk__mem_free(keys);
    return status == LK_OK && direct->channel ? finish(direct) : status;
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
    lk_device_sums *direct;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "sums between devices", &direct));
    *direct = blank(opts);
    LK_TRY_GOTO(alloc_parts(direct), destroy_direct);
    LK_TRY_GOTO(open_channel(direct, key), destroy_direct);
    LK_TRY_GOTO(explain(direct, join_channel(direct, key)), destroy_direct);
    *out = direct;
    return LK_OK;

destroy_direct:
    lk__device_sums_destroy(direct);
    return status;
}

/* No rank closes its channel before all have left. */
lk_status lk__device_sums_rehearse(const lk_device_sums_opts *opts)
{
    lk_device_sums trial = blank(opts);
    unsigned char key[LK_CHANNEL_KEY] = {0};
    char text[LK_DIRECT_TEXT];
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

void lk__device_sums_leave(lk_device_sums *direct)
{
    char detail[LK_DIRECT_TEXT];
    int64_t left = 1;
    if (!direct || !direct->type->leave)
        return;
    snprintf(detail, sizeof detail, "%s", lk_error_detail());
    direct->type->leave(direct->channel);
    /* Not a barrier: it must not meet one of a sum that others are still in. Where it
     * fails, the job has failed before, for the reason that stays. */
    if (lk_allreduce(direct->opts.group, (lk_buffer){&left, 1, LK_DTYPE_I64}, LK_REDUCTION_MAX, NULL) != LK_OK)
        (void)lk__fail(LK_STATUS_PEER, "%s", detail);
}

void lk__device_sums_destroy(lk_device_sums *direct)
{
    if (!direct)
        return;
    direct->type->close(direct->channel);
    direct->opts.dev->type->free(direct->opts.dev, direct->inbox);
    lk__program_cache_fini(&direct->programs);
    lk__mem_free(direct->moves);
    lk__mem_free(direct->spans);
    lk__mem_free(direct->host);
    lk__mem_free(direct);
}

void lk__device_sums_give_up(lk_device_sums *direct)
{
    if (direct->channel && !direct->lost)
        direct->type->give_up(direct->channel);
    direct->lost = true;
}

/* Where a vector of a fold is, over the span that this rank folds. The only vector of all
 * needs no fold, and comes to the place of the result. */
static float *input_at(const lk_device_sums *direct, const lk_schedule_phase *phase, const lk_program_stage *stage,
                       lk_partials vectors, int i)
{
    if (i < stage->own)
        return lk__partials_slot(vectors, i) + phase->keep.first;
    if (stage->inputs == 1)
        return vectors.slot0 + phase->keep.first;
    return direct->inbox + (size_t)(i - stage->own) * direct->segment;
}

static void add_move(lk_device_sums *direct, const lk_schedule_move *move, bool send, float *at)
{
    direct->moves[direct->move_count++] = (lk_channel_move){move->peer, send, at, move->span.count};
}

/* Each send and recv of a fold is one of every vector; else there is one vector. */
static void list_moves(lk_device_sums *direct, const lk_schedule_phase *phase, const lk_program_stage *stage,
                       lk_partials vectors)
{
    bool folds = phase->kind == LK_PHASE_FOLD;
    direct->move_count = 0;
    for (int i = 0; i < phase->send_count; i++) {
        const lk_schedule_move *move = &phase->sends[i];
        for (int root = 0; root < (folds ? stage->own : 1); root++)
            add_move(direct, move, true, lk__partials_slot(vectors, root) + move->span.first);
    }
    for (int i = 0; i < phase->recv_count; i++) {
        const lk_schedule_move *move = &phase->recvs[i];
        if (!folds)
            add_move(direct, move, false, vectors.slot0 + move->span.first);
        for (int root = 0; folds && root < stage->recv_roots[i]; root++)
            add_move(direct, move, false, input_at(direct, phase, stage, vectors, stage->recv_first[i] + root));
    }
}

/* One exchange a phase, also at ranks that have no part in it: the calls of all ranks
 * must match. */
static lk_status exchange(lk_device_sums *direct)
{
    const lk_channel_type *type = direct->type;
    LK_TRY(type->move(direct->channel, direct->moves, direct->move_count));
    LK_TRY(finish(direct));
    if (!type->take)
        return LK_OK;
    LK_TRY(lk_barrier(direct->opts.group, NULL));
    return type->take(direct->channel, direct->moves, direct->move_count);
}

/* A vector while it is folded. */
typedef struct entry {
    float *at;
    bool own; /* it must keep its values */
} entry;

/* Two vectors of this rank are never merged, for it holds the roots of maximal subtrees:
 * one of the two is in the inbox, and so the sum can be. */
static lk_status fold(lk_device_sums *direct, const lk_schedule_phase *phase, const lk_program_stage *stage,
                      lk_partials vectors)
{
    entry stack[LK_TREE_MAX_DEPTH];
    int height = 0, count;
    const int *steps = lk__fold_plan_steps(stage->plan, 0, &count);
    for (int i = 0; i < count; i++) {
        if (steps[i] != LK_FOLD_MERGE) {
            stack[height++] = (entry){input_at(direct, phase, stage, vectors, steps[i]), steps[i] < stage->own};
            continue;
        }
        entry left = stack[height - 2], right = stack[height - 1];
        bool last = i == count - 1;
        assert(last || !left.own || !right.own);
        float *to = last ? vectors.slot0 + phase->keep.first : left.own ? right.at : left.at;
        LK_TRY(direct->type->add(direct->channel, phase->keep.count, left.at, right.at, to));
        height--;
        stack[height - 1] = (entry){.at = to};
    }
    return LK_OK;
}

lk_status lk__device_sums_run(lk_device_sums *direct, const lk_program *program, lk_partials vectors)
{
    for (int p = 0; p < program->schedule.phase_count; p++) {
        const lk_schedule_phase *phase = &program->schedule.phases[p];
        const lk_program_stage *stage = &program->stages[p];
        assert(phase->level == 0 && phase->level_out != 1);
        list_moves(direct, phase, stage, vectors);
        LK_TRY(exchange(direct));
        if (phase->kind == LK_PHASE_FOLD && phase->keep.count > 0)
            LK_TRY(fold(direct, phase, stage, vectors));
    }
    return LK_OK;
}

static lk_status sum_in_own_order(lk_device_sums *direct, size_t count, lk_partials sums)
{
    for (int root = direct->own - 1; root > 0; root--) {
        float *left = lk__partials_slot(sums, root - 1);
        LK_TRY(direct->type->add(direct->channel, count, left, lk__partials_slot(sums, root), left));
    }
    LK_TRY(direct->type->sum(direct->channel, count, sums.slot0));
    return finish(direct);
}

/* A gather of direct->spans, or without `gathers` a sum; and the mark behind it. */
static lk_status enqueue(lk_device_sums *direct, bool gathers, size_t count, lk_partials vectors, int mark)
{
    lk_program *program;
    LK_TRY(direct->type->follow(direct->channel));
    if (direct->opts.own_order && !gathers) {
        LK_TRY(sum_in_own_order(direct, count, vectors));
    } else {
        LK_TRY(find(direct, count, gathers ? direct->spans : NULL, &program));
        lk_status status = lk__device_sums_run(direct, program, vectors);
        lk__program_release(program);
        LK_TRY(status);
    }
    return direct->type->mark(direct->channel, mark);
}

lk_status lk__device_sums_sum(lk_device_sums *direct, int index, size_t count, lk_partials sums)
{
    direct->last = index;
    return explain(direct, enqueue(direct, false, count, sums, index));
}

lk_status lk__device_sums_lead(lk_device_sums *direct, int index)
{
    lk_status status = direct->type->lead(direct->channel, index);
    return explain(direct, status == LK_OK ? finish(direct) : status);
}

static lk_status watch(lk_device_sums *direct)
{
    LK_TRY(keep_waiting(direct));
    return finish(direct);
}

static lk_status await(lk_device_sums *direct, int mark)
{
    bool done = false;
    LK_TRY(direct->type->reached(direct->channel, mark, &done));
    while (!done) {
        LK_TRY(watch(direct));
        LK_TRY(direct->type->reached(direct->channel, mark, &done));
    }
    return LK_OK;
}

lk_status lk__device_sums_settle(lk_device_sums *direct)
{
    LK_TRY(explain(direct, await(direct, direct->last)));
    LK_TRY(explain(direct, await(direct, direct->opts.sums + SHARED)));
    return lk__device_sums_settle_gather(direct);
}

lk_status lk__device_sums_gather(lk_device_sums *direct, const float *mine, size_t width, float *all)
{
    lk_device *dev = direct->opts.dev;
    int mark = direct->opts.sums + GATHERED;
    size_t total = 0;
    for (int r = 0; r < direct->size; r++) {
        direct->spans[r] = (lk_span){total, (size_t)roots_of(direct, r) * width};
        total += direct->spans[r].count;
    }
    lk_span own = direct->spans[direct->rank];
    if (mine != all + own.first)
        dev->kernels->copy_bytes(dev, own.count * sizeof *mine, mine, all + own.first);
    LK_TRY(explain(direct, enqueue(direct, true, total, (lk_partials){.slot0 = all}, mark)));
    return lk__device_sums_lead(direct, mark);
}

lk_status lk__device_sums_settle_gather(lk_device_sums *direct)
{
    return explain(direct, await(direct, direct->opts.sums + GATHERED));
}

lk_status lk__device_sums_share(lk_device_sums *direct, size_t total, float *all)
{
    const int *bounds = direct->opts.bounds;
    for (int r = 0; r < direct->size; r++) {
        size_t first = lk__shard_begin(total, bounds[direct->size], bounds[r]);
        direct->spans[r] = (lk_span){first, lk__shard_begin(total, bounds[direct->size], bounds[r + 1]) - first};
    }
    return explain(direct, enqueue(direct, true, total, (lk_partials){.slot0 = all}, direct->opts.sums + SHARED));
}

lk_status lk__device_sums_lead_share(lk_device_sums *direct)
{
    return lk__device_sums_lead(direct, direct->opts.sums + SHARED);
}

lk_status lk__device_sums_watch(lk_device_sums *direct, double since)
{
    direct->waits_at = since;
    return explain(direct, watch(direct));
}
