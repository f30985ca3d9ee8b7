/* device_sums.c - who sends which partial sums to whom, and in what order they are added. */
#include "parallel/step/device_sums.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/tree.h"
#include "comm/collective/schedule.h"
#include "parallel/engine/agree.h"

/* Seconds for the job to learn why a channel failed. */
static const double REASON_AFTER = 2;

/* Marks after those of the sums. */
enum { GATHERED, SHARED, MARKS };

struct lk_device_sums {
    lk_device_sums_opts opts;
    const lk_channel_type *type;
    lk_channel *channel;
    int rank, size;
    int *first_root;        /* (size + 1) of each rank, among those of all */
    float *inbox;           /* device, (roots of other ranks, segment) */
    size_t segment;         /* elements that a rank owns at most */
    lk_channel_move *moves; /* (those of one exchange at most) */
    int move_count;
    float **stack;   /* (roots of all) while they are folded */
    int last;        /* sum that was enqueued */
    double waits_at; /* when the wait at hand began; 0: none */
};

/* What a rank says of its device. */
typedef struct card {
    char place[LK_CHANNEL_PLACE];
    char reason[LK_AGREED_TEXT]; /* why it can have no channel; "": it can */
} card;

/* Why these two ranks can have no channel, if so. */
static void compare_places(const lk_channel_type *type, const card *cards, int r, int s, char *text, size_t bytes)
{
    bool same = strcmp(cards[r].place, cards[s].place) == 0;
    if (same && !type->one_device)
        snprintf(text, bytes, "ranks %d and %d have one device (%s)", s, r, cards[r].place);
    if (!same && type->one_device)
        snprintf(text, bytes, "ranks %d and %d have two devices (%s; %s)", s, r, cards[s].place, cards[r].place);
}

/* The first reason that a rank has, and else what is wrong with their places. */
static void find_obstacle(const lk_channel_type *type, const card *cards, int ranks, char *text, size_t bytes)
{
    for (int r = 0; r < ranks && !text[0]; r++) {
        if (cards[r].reason[0])
            snprintf(text, bytes, "rank %d: %s", r, cards[r].reason);
    }
    for (int r = 1; r < ranks && !text[0]; r++) {
        for (int s = 0; s < r && !text[0]; s++)
            compare_places(type, cards, r, s, text, bytes);
    }
}

/* Together: what is in the way of a channel, "" for nothing, by what each rank says. */
static lk_status exchange_cards(lk_group *group, const lk_channel_type *type, lk_status found, card *mine, char *text,
                                size_t bytes)
{
    card *all;
    if (found != LK_OK)
        snprintf(mine->reason, sizeof mine->reason, "%s", lk_error_detail());
    LK_TRY(LK_ALLOC((size_t)lk_group_size(group), "ranks", &all));
    lk_status status = lk_allgather(group, (lk_buffer){mine, sizeof *mine, LK_DTYPE_U8}, NULL, all, NULL);
    text[0] = 0;
    if (status == LK_OK)
        find_obstacle(type, all, lk_group_size(group), text, bytes);
    lk__mem_free(all);
    return status;
}

/* What a channel does while it waits for other ranks. */
static lk_status keep_waiting(void *arg)
{
    lk_device_sums *direct = arg;
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

static lk_status meet(void *arg)
{
    return lk_barrier(((lk_device_sums *)arg)->opts.group, NULL);
}

static lk_channel_opts channel_opts(lk_device_sums *direct, int marks, size_t most)
{
    return (lk_channel_opts){.rank = direct->rank,
                             .size = direct->size,
                             .marks = marks,
                             .most = most,
                             .wait = keep_waiting,
                             .meet = meet,
                             .arg = direct};
}

/* A channel that moves little, opened and closed: whether ranks on one device can map
 * each other's memory shows when they do. */
static lk_status rehearse(lk_group *group, lk_device *dev, const lk_channel_type *type, card *mine, char *text,
                          size_t bytes)
{
    lk_device_sums trial = {
        .opts = {.group = group}, .type = type, .rank = lk_group_rank(group), .size = lk_group_size(group)};
    lk_channel_opts opts = channel_opts(&trial, 1, 1);
    unsigned char key[LK_CHANNEL_KEY] = {0}, *keys;
    LK_TRY(LK_ALLOC((size_t)trial.size * LK_CHANNEL_KEY, "ranks", &keys));
    lk_status found = type->open(dev, &opts, key, &trial.channel);
    lk_status status = lk_allgather(group, (lk_buffer){key, sizeof key, LK_DTYPE_U8}, NULL, keys, NULL);
    if (status == LK_OK && found == LK_OK)
        found = type->join(trial.channel, keys);
    if (trial.channel && type->leave)
        type->leave(trial.channel);
    if (status == LK_OK)
        status = exchange_cards(group, type, found, mine, text, bytes);
    type->close(trial.channel);
    lk__mem_free(keys);
    return status;
}

static lk_status try_channel(lk_group *group, lk_device *dev, const lk_channel_type *type, char *text, size_t bytes)
{
    card mine = {0};
    LK_TRY(exchange_cards(group, type, type->place(dev, mine.place), &mine, text, bytes));
    /* A library is not loaded in vain. */
    if (!text[0])
        LK_TRY(exchange_cards(group, type, type->load(dev), &mine, text, bytes));
    return !text[0] && type->one_device ? rehearse(group, dev, type, &mine, text, bytes) : LK_OK;
}

/* Whether the options leave this channel to be tried. */
static bool is_meant(const lk_channel_type *type, const lk_engine_opts *opts, const char *name)
{
    return (!name || strcmp(type->name, name) == 0) && (opts->reduce == LK_REDUCE_ORDER_TREE || type->sum);
}

lk_status lk__device_sums_choose(lk_group *group, lk_device *dev, const lk_engine_opts *opts,
                                 const lk_channel_type **out)
{
    const char *name =
        opts->gradient_backend && strcmp(opts->gradient_backend, "auto") != 0 ? opts->gradient_backend : NULL;
    bool host = name && strcmp(name, "host") == 0, insists = name || opts->reduce == LK_REDUCE_ORDER_BACKEND;
    char obstacle[2 * LK_CHANNEL_PLACE + LK_AGREED_TEXT] = "";
    int tried = 0;
    *out = NULL;
    for (int i = 0; !host && dev->type->channels && dev->type->channels[i] && !*out; i++) {
        const lk_channel_type *type = dev->type->channels[i];
        if (!is_meant(type, opts, name))
            continue;
        tried++;
        if (group)
            LK_TRY(try_channel(group, dev, type, obstacle, sizeof obstacle));
        *out = group && !obstacle[0] ? type : NULL;
    }
    if (*out || host || !insists || (tried && !group))
        return LK_OK;
    if (!tried)
        snprintf(obstacle, sizeof obstacle, "this build has nothing for that between devices of kind %s; leave it out",
                 dev->type->name);
    return lk__fail(LK_STATUS_USAGE, "%s%s: gradients cannot be summed between the devices: %s",
                    name ? "--backend " : "--reduce engine", name ? name : "", obstacle);
}

/* A channel may find that a peer is gone before the job does, which knows why. */
static lk_status explain(lk_device_sums *direct, lk_status status)
{
    char text[LK_AGREED_TEXT];
    direct->waits_at = 0;
    if (status == LK_OK || status == LK_STATUS_PEER)
        return status;
    snprintf(text, sizeof text, "%s", lk_error_detail());
    for (double began = lk__clock(); lk__clock() - began < REASON_AFTER; sched_yield())
        LK_TRY(lk_group_poll(direct->opts.group));
    return lk__fail(status, "%s", text);
}

static int roots_of(const lk_device_sums *direct, int rank)
{
    return direct->first_root[rank + 1] - direct->first_root[rank];
}

static lk_status alloc_parts(lk_device_sums *direct)
{
    const lk_device_sums_opts *opts = &direct->opts;
    size_t size = (size_t)direct->size, roots = (size_t)opts->waves->all_roots;
    LK_TRY(LK_ALLOC(size + 1, "sums between devices", &direct->first_root));
    for (int r = 0; r < direct->size; r++)
        direct->first_root[r + 1] = direct->first_root[r] + lk__tree_roots(opts->bounds[direct->size], opts->bounds[r],
                                                                           opts->bounds[r + 1], NULL);
    /* Segments begin at multiples of 32 elements, and the last one takes the rest. */
    direct->segment = lk__size_round_up(opts->most / size, 32) + 64;
    size_t own = (size_t)roots_of(direct, direct->rank);
    LK_TRY(LK_ALLOC(roots + size * (own + 1), "sums between devices", &direct->moves));
    LK_TRY(LK_ALLOC(roots, "sums between devices", &direct->stack));
    if (opts->reduce == LK_REDUCE_ORDER_BACKEND || roots == own)
        return LK_OK;
    return opts->dev->type->alloc(opts->dev, (roots - own) * direct->segment * sizeof(float), "other ranks' gradients",
                                  (void **)&direct->inbox);
}

static lk_status join_channel(lk_device_sums *direct, const unsigned char *key)
{
    unsigned char *keys;
    LK_TRY(LK_ALLOC((size_t)direct->size * LK_CHANNEL_KEY, "ranks", &keys));
    lk_buffer mine = {(void *)(uintptr_t)key, LK_CHANNEL_KEY, LK_DTYPE_U8};
    lk_status status = lk_allgather(direct->opts.group, mine, NULL, keys, NULL);
    if (status == LK_OK)
        status = explain(direct, direct->type->join(direct->channel, keys));
    lk__mem_free(keys);
    return status;
}

static lk_status open_channel(lk_device_sums *direct)
{
    const lk_device_sums_opts *opts = &direct->opts;
    unsigned char key[LK_CHANNEL_KEY] = {0};
    size_t roots = (size_t)roots_of(direct, direct->rank);
    size_t most = roots * lk__size_max(direct->segment, opts->widest);
    if (direct->type->records)
        most = lk__size_max(most, opts->waves->capacity);
    lk_channel_opts channel = channel_opts(direct, opts->sums + MARKS, most);
    LK_TRY(direct->type->open(opts->dev, &channel, key, &direct->channel));
    return join_channel(direct, key);
}

lk_status lk__device_sums_create(const lk_device_sums_opts *opts, lk_device_sums **out)
{
    lk_device_sums *direct;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "sums between devices", &direct));
    *direct = (lk_device_sums){
        .opts = *opts, .type = opts->channel, .rank = lk_group_rank(opts->group), .size = lk_group_size(opts->group)};
    LK_TRY_GOTO(alloc_parts(direct), destroy_direct);
    LK_TRY_GOTO(open_channel(direct), destroy_direct);
    *out = direct;
    return LK_OK;

destroy_direct:
    lk__device_sums_destroy(direct);
    return status;
}

void lk__device_sums_leave(lk_device_sums *direct)
{
    char detail[LK_AGREED_TEXT];
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
    lk__mem_free(direct->stack);
    lk__mem_free(direct->moves);
    lk__mem_free(direct->first_root);
    lk__mem_free(direct);
}

static void add_move(lk_device_sums *direct, int peer, bool send, float *at, size_t count)
{
    if (count > 0 && peer != direct->rank)
        direct->moves[direct->move_count++] = (lk_channel_move){peer, send, at, count};
}

static lk_status exchange(lk_device_sums *direct)
{
    int count = direct->move_count;
    direct->move_count = 0;
    return direct->type->move(direct->channel, direct->moves, count);
}

/* Where a root of the own segment is, once it is here. The only one of all needs no
 * folding, and comes to the place of the result. */
static float *root_at(const lk_device_sums *direct, lk_partials sums, lk_span mine, int root)
{
    int first = direct->first_root[direct->rank], after = direct->first_root[direct->rank + 1];
    if (root >= first && root < after)
        return lk__partials_slot(sums, root - first) + mine.first;
    if (direct->opts.waves->all_roots == 1)
        return sums.slot0 + mine.first;
    return direct->inbox + (size_t)(root < first ? root : root - (after - first)) * direct->segment;
}

/* Peers are met in the order that begins after this rank, so that not all talk to one. */
static int peer_at(const lk_device_sums *direct, int i)
{
    return (direct->rank + i) % direct->size;
}

static lk_status collect(lk_device_sums *direct, size_t count, lk_partials sums)
{
    lk_span mine = lk__span_segment(count, direct->size, direct->rank);
    for (int i = 1; i < direct->size; i++) {
        int to = peer_at(direct, i), from = peer_at(direct, direct->size - i);
        lk_span its = lk__span_segment(count, direct->size, to);
        for (int root = 0; root < roots_of(direct, direct->rank); root++)
            add_move(direct, to, true, lk__partials_slot(sums, root) + its.first, its.count);
        for (int root = direct->first_root[from]; root < direct->first_root[from + 1]; root++)
            add_move(direct, from, false, root_at(direct, sums, mine, root), mine.count);
    }
    return exchange(direct);
}

static bool in_inbox(const lk_device_sums *direct, const float *at)
{
    size_t roots = (size_t)(direct->opts.waves->all_roots - roots_of(direct, direct->rank));
    return direct->inbox && at >= direct->inbox && at < direct->inbox + roots * direct->segment;
}

/* Two partial sums of this rank are never merged, for it holds the roots of maximal
 * subtrees: one of the two is in the inbox, and so the sum can be. */
static lk_status fold(lk_device_sums *direct, size_t count, lk_partials sums)
{
    const lk_waves *waves = direct->opts.waves;
    lk_span mine = lk__span_segment(count, direct->size, direct->rank);
    int height = 0;
    for (int root = 0; mine.count > 0 && root < waves->all_roots; root++) {
        direct->stack[height++] = root_at(direct, sums, mine, root);
        for (int m = 0; m < waves->root_merges[root]; m++, height--) {
            float *left = direct->stack[height - 2], *right = direct->stack[height - 1];
            bool last = root == waves->all_roots - 1 && m == waves->root_merges[root] - 1;
            float *to = last ? sums.slot0 + mine.first : in_inbox(direct, left) ? left : right;
            LK_TRY(direct->type->add(direct->channel, mine.count, left, right, to));
            direct->stack[height - 2] = to;
        }
    }
    return LK_OK;
}

static lk_status hand_out(lk_device_sums *direct, size_t count, float *slot0)
{
    lk_span mine = lk__span_segment(count, direct->size, direct->rank);
    for (int i = 1; i < direct->size; i++) {
        int from = peer_at(direct, direct->size - i);
        lk_span its = lk__span_segment(count, direct->size, from);
        add_move(direct, peer_at(direct, i), true, slot0 + mine.first, mine.count);
        add_move(direct, from, false, slot0 + its.first, its.count);
    }
    return exchange(direct);
}

static lk_status sum_by_tree(lk_device_sums *direct, size_t count, lk_partials sums)
{
    LK_TRY(collect(direct, count, sums));
    LK_TRY(fold(direct, count, sums));
    return hand_out(direct, count, sums.slot0);
}

static lk_status sum_by_engine(lk_device_sums *direct, size_t count, lk_partials sums)
{
    for (int root = roots_of(direct, direct->rank) - 1; root > 0; root--) {
        float *left = lk__partials_slot(sums, root - 1);
        LK_TRY(direct->type->add(direct->channel, count, left, lk__partials_slot(sums, root), left));
    }
    return direct->type->sum(direct->channel, count, sums.slot0);
}

static lk_status enqueue(lk_device_sums *direct, int index, size_t count, lk_partials sums)
{
    LK_TRY(direct->type->follow(direct->channel));
    if (direct->opts.reduce == LK_REDUCE_ORDER_BACKEND)
        LK_TRY(sum_by_engine(direct, count, sums));
    else
        LK_TRY(sum_by_tree(direct, count, sums));
    direct->last = index;
    return direct->type->mark(direct->channel, index);
}

lk_status lk__device_sums_sum(lk_device_sums *direct, int index, size_t count, lk_partials sums)
{
    return explain(direct, enqueue(direct, index, count, sums));
}

lk_status lk__device_sums_lead(lk_device_sums *direct, int index)
{
    return explain(direct, direct->type->lead(direct->channel, index));
}

lk_status lk__device_sums_settle(lk_device_sums *direct)
{
    LK_TRY(explain(direct, direct->type->settle(direct->channel, direct->last)));
    LK_TRY(explain(direct, direct->type->settle(direct->channel, direct->opts.sums + SHARED)));
    return lk__device_sums_settle_gather(direct);
}

static lk_status enqueue_gather(lk_device_sums *direct, size_t width, float *all)
{
    size_t own = (size_t)roots_of(direct, direct->rank) * width;
    float *mine = all + (size_t)direct->first_root[direct->rank] * width;
    LK_TRY(direct->type->follow(direct->channel));
    for (int i = 1; i < direct->size; i++) {
        int from = peer_at(direct, direct->size - i);
        add_move(direct, peer_at(direct, i), true, mine, own);
        add_move(direct, from, false, all + (size_t)direct->first_root[from] * width,
                 (size_t)roots_of(direct, from) * width);
    }
    LK_TRY(exchange(direct));
    LK_TRY(direct->type->mark(direct->channel, direct->opts.sums + GATHERED));
    return direct->type->lead(direct->channel, direct->opts.sums + GATHERED);
}

lk_status lk__device_sums_gather(lk_device_sums *direct, const float *mine, size_t width, float *all)
{
    lk_device *dev = direct->opts.dev;
    float *place = all + (size_t)direct->first_root[direct->rank] * width;
    if (mine != place)
        dev->kernels->copy_bytes(dev, (size_t)roots_of(direct, direct->rank) * width * sizeof *mine, mine, place);
    return explain(direct, enqueue_gather(direct, width, all));
}

lk_status lk__device_sums_settle_gather(lk_device_sums *direct)
{
    return explain(direct, direct->type->settle(direct->channel, direct->opts.sums + GATHERED));
}

/* The samples of a rank in a batch. */
static lk_span samples_of(const lk_device_sums *direct, size_t total, int rank)
{
    const int *bounds = direct->opts.bounds;
    size_t first = lk__shard_begin(total, bounds[direct->size], bounds[rank]);
    return (lk_span){first, lk__shard_begin(total, bounds[direct->size], bounds[rank + 1]) - first};
}

static lk_status enqueue_share(lk_device_sums *direct, size_t total, float *all)
{
    lk_span mine = samples_of(direct, total, direct->rank);
    LK_TRY(direct->type->follow(direct->channel));
    for (int i = 1; i < direct->size; i++) {
        int from = peer_at(direct, direct->size - i);
        lk_span its = samples_of(direct, total, from);
        add_move(direct, peer_at(direct, i), true, all + mine.first, mine.count);
        add_move(direct, from, false, all + its.first, its.count);
    }
    LK_TRY(exchange(direct));
    return direct->type->mark(direct->channel, direct->opts.sums + SHARED);
}

lk_status lk__device_sums_share(lk_device_sums *direct, size_t total, float *all)
{
    return explain(direct, enqueue_share(direct, total, all));
}

lk_status lk__device_sums_lead_share(lk_device_sums *direct)
{
    return lk__device_sums_lead(direct, direct->opts.sums + SHARED);
}

lk_status lk__device_sums_watch(lk_device_sums *direct, double since)
{
    direct->waits_at = since;
    return explain(direct, direct->type->watch(direct->channel));
}

void lk__device_sums_give_up(lk_device_sums *direct)
{
    direct->type->give_up(direct->channel);
}
