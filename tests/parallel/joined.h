/* joined.h - a channel between far devices of one process: messages in a list.
 *
 * It does nothing before it must: what it is given is kept, and done when the device
 * waits for a mark or the host settles. So what is used too early has wrong bits. */
#ifndef LK_TESTS_JOINED_H
#define LK_TESTS_JOINED_H

#include "far.h"
#include "tape.h"

#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"

enum { JOINED_MOVES = 256, JOINED_WORK = 4096 };

typedef enum joined_kind { JOINED_MOVE, JOINED_ADD, JOINED_SUM, JOINED_MARK } joined_kind;

typedef struct joined_work {
    joined_kind kind;
    lk_channel_move *moves; /* owned */
    int count, mark;
    size_t elements;
    const float *a, *b;
    float *out;
} joined_work;

struct lk_channel {
    lk_device *dev;
    lk_channel_opts opts;
    unsigned id;
    int first, after; /* of work that is not done */
    joined_work work[JOINED_WORK];
};

typedef struct joined_message {
    struct joined_message *next;
    unsigned id;
    int from, to;
    size_t count;
    float data[];
} joined_message;

static pthread_mutex_t joined_lock = PTHREAD_MUTEX_INITIALIZER;
static joined_message *joined_list;
static unsigned joined_keys;
static atomic_int *joined_opened; /* in memory that processes share */
static atomic_int joined_places;  /* devices that places are told apart by; 0: all are different */
static atomic_int joined_mute;    /* a rank that sends nothing, plus 1 */
static atomic_bool joined_missing;
static atomic_int joined_given_up; /* channels */

static inline lk_status joined_place(lk_device *dev, char place[LK_CHANNEL_PLACE])
{
    static atomic_int next;
    (void)dev;
    int number = next++;
    snprintf(place, LK_CHANNEL_PLACE, "far %d", joined_places ? number % joined_places : number);
    return LK_OK;
}

static inline lk_status joined_load(lk_device *dev)
{
    (void)dev;
    return joined_missing ? lk__fail(LK_STATUS_UNSUPPORTED, "no library for it") : LK_OK;
}

static inline lk_status joined_open(lk_device *dev, const lk_channel_opts *opts, void *key, lk_channel **out)
{
    lk_channel *channel;
    LK_TRY(LK_ALLOC(1, "a channel", &channel));
    channel->dev = dev;
    channel->opts = *opts;
    pthread_mutex_lock(&joined_lock);
    joined_keys++;
    memcpy(key, &joined_keys, sizeof joined_keys);
    pthread_mutex_unlock(&joined_lock);
    *out = channel;
    return LK_OK;
}

static inline lk_status joined_join(lk_channel *channel, const void *keys)
{
    memcpy(&channel->id, keys, sizeof channel->id);
    ++*joined_opened;
    return channel->opts.meet(channel->opts.arg);
}

static inline void joined_close(lk_channel *channel)
{
    far_require(!channel || tape_kept == 0, "a channel closed before its recordings are forgotten");
    for (int i = channel ? channel->first : 0; channel && i < channel->after; i++)
        lk__mem_free(channel->work[i].moves);
    lk__mem_free(channel);
}

static inline void joined_post(const lk_channel *channel, const lk_channel_move *move)
{
    joined_message *message = malloc(sizeof *message + move->count * sizeof(float));
    far_require(message != NULL, "no memory for a message");
    *message = (joined_message){.id = channel->id, .from = channel->opts.rank, .to = move->peer, .count = move->count};
    memcpy(message->data, move->at, move->count * sizeof(float));
    pthread_mutex_lock(&joined_lock);
    joined_message **at = &joined_list;
    while (*at)
        at = &(*at)->next;
    *at = message;
    pthread_mutex_unlock(&joined_lock);
}

/* The oldest message from the peer, or NULL. */
static inline joined_message *joined_take(const lk_channel *channel, int peer)
{
    pthread_mutex_lock(&joined_lock);
    joined_message **at = &joined_list, *found;
    while (*at && ((*at)->id != channel->id || (*at)->from != peer || (*at)->to != channel->opts.rank))
        at = &(*at)->next;
    found = *at;
    if (found)
        *at = found->next;
    pthread_mutex_unlock(&joined_lock);
    return found;
}

static inline lk_status joined_receive(const lk_channel *channel, const lk_channel_move *move)
{
    joined_message *message;
    while (!(message = joined_take(channel, move->peer)))
        LK_TRY(channel->opts.wait(channel->opts.arg));
    far_require(message->count == move->count, "a message of another length");
    far_require(far_has(move->at, move->count * sizeof(float)), "a message to the wrong memory");
    memcpy(move->at, message->data, move->count * sizeof(float));
    free(message);
    return LK_OK;
}

static inline lk_status joined_exchange(const lk_channel *channel, const lk_channel_move *moves, int count)
{
    for (int i = 0; i < count && joined_mute != channel->opts.rank + 1; i++) {
        if (moves[i].send)
            joined_post(channel, &moves[i]);
    }
    for (int i = 0; i < count; i++) {
        if (!moves[i].send)
            LK_TRY(joined_receive(channel, &moves[i]));
    }
    return LK_OK;
}

/* From rank to rank in a ring, beginning with the last one: not the tree's order. */
static inline lk_status joined_add_up(lk_channel *channel, size_t count, float *x)
{
    int rank = channel->opts.rank, size = channel->opts.size;
    float *other;
    lk_status status = LK_OK;
    LK_TRY(channel->dev->type->alloc(channel->dev, count * sizeof(float), "a sum", (void **)&other));
    if (rank < size - 1) {
        status = joined_receive(channel, &(lk_channel_move){rank + 1, false, other, count});
        channel->dev->kernels->reduce(channel->dev, LK_DTYPE_F32, LK_REDUCTION_SUM, count, other, x, x);
    }
    if (rank > 0)
        joined_post(channel, &(lk_channel_move){rank - 1, true, x, count});
    for (int r = 1; rank == 0 && r < size; r++)
        joined_post(channel, &(lk_channel_move){r, true, x, count});
    if (rank > 0 && status == LK_OK)
        status = joined_receive(channel, &(lk_channel_move){0, false, x, count});
    channel->dev->type->free(channel->dev, other);
    return status;
}

static inline lk_status joined_do(lk_channel *channel, const joined_work *work)
{
    if (work->kind == JOINED_MOVE)
        return joined_exchange(channel, work->moves, work->count);
    if (work->kind == JOINED_ADD)
        channel->dev->kernels->reduce(channel->dev, LK_DTYPE_F32, LK_REDUCTION_SUM, work->elements, work->a, work->b,
                                      work->out);
    return work->kind == JOINED_SUM ? joined_add_up(channel, work->elements, work->out) : LK_OK;
}

/* Up to the mark, where it is not yet reached. */
static inline lk_status joined_run(lk_channel *channel, int mark)
{
    bool there = false;
    for (int i = channel->first; i < channel->after; i++)
        there = there || (channel->work[i].kind == JOINED_MARK && channel->work[i].mark == mark);
    while (there && channel->first < channel->after) {
        joined_work *work = &channel->work[channel->first++];
        lk_status status = joined_do(channel, work);
        lk__mem_free(work->moves);
        LK_TRY(status);
        if (work->kind == JOINED_MARK && work->mark == mark)
            break;
    }
    if (channel->first == channel->after)
        channel->first = channel->after = 0;
    return LK_OK;
}

static inline lk_status joined_keep(lk_channel *channel, joined_work work)
{
    far_require(channel->after < JOINED_WORK, "too much work for a channel");
    channel->work[channel->after++] = work;
    return LK_OK;
}

static inline lk_status joined_follow(lk_channel *channel)
{
    return lk__device_cpu.sync(channel->dev);
}

static inline lk_status joined_move(lk_channel *channel, const lk_channel_move *moves, int count)
{
    joined_work work = {.kind = JOINED_MOVE, .count = count};
    far_require(count <= JOINED_MOVES, "an exchange of too many moves");
    for (int i = 0; i < count; i++)
        far_require(far_has(moves[i].at, moves[i].count * sizeof(float)), "a move of the wrong memory");
    LK_TRY(LK_ALLOC((size_t)count + 1, "moves", &work.moves));
    memcpy(work.moves, moves, (size_t)count * sizeof *moves);
    return joined_keep(channel, work);
}

static inline lk_status joined_add(lk_channel *channel, size_t count, const float *a, const float *b, float *out)
{
    return joined_keep(channel, (joined_work){.kind = JOINED_ADD, .elements = count, .a = a, .b = b, .out = out});
}

static inline lk_status joined_sum(lk_channel *channel, size_t count, float *x)
{
    return joined_keep(channel, (joined_work){.kind = JOINED_SUM, .elements = count, .out = x});
}

static inline lk_status joined_mark(lk_channel *channel, int mark)
{
    far_require(mark >= 0 && mark < channel->opts.marks, "a mark that there is not");
    return joined_keep(channel, (joined_work){.kind = JOINED_MARK, .mark = mark});
}

static inline lk_status joined_lead(lk_channel *channel, int mark)
{
    return joined_run(channel, mark);
}

static inline lk_status joined_settle(lk_channel *channel, int mark)
{
    far_require(!tape_plays, "waiting for a channel in a recording");
    return joined_run(channel, mark);
}

static inline lk_status joined_watch(lk_channel *channel)
{
    return channel->opts.wait(channel->opts.arg);
}

static inline void joined_give_up(lk_channel *channel)
{
    (void)channel;
    joined_given_up++;
}

static const lk_channel_type joined_type = {
    .name = "joined",
    .place = joined_place,
    .load = joined_load,
    .open = joined_open,
    .join = joined_join,
    .close = joined_close,
    .follow = joined_follow,
    .move = joined_move,
    .add = joined_add,
    .sum = joined_sum,
    .mark = joined_mark,
    .lead = joined_lead,
    .settle = joined_settle,
    .records = true,
    .watch = joined_watch,
    .give_up = joined_give_up,
};

/* The same for ranks on one device, without an order of its own. */
static lk_channel_type joined_near;
static const lk_channel_type *const joined_channels[] = {&joined_type, &joined_near, NULL};

/* Adds device "far" to the table, joined. */
static inline lk_status joined_add_device(void)
{
    void *shared = mmap(NULL, sizeof *joined_opened, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    far_require(shared != MAP_FAILED, "no memory for a number");
    joined_opened = shared;
    LK_TRY(far_add());
    joined_near = joined_type;
    joined_near.name = "near";
    joined_near.one_device = true;
    joined_near.sum = NULL;
    joined_near.records = false;
    far_type.channels = joined_channels;
    return LK_OK;
}

#endif
