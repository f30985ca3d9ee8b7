/* joined.h - a channel between the far devices of one process, with messages in a list.
 *
 * The channel keeps the work it gets and does it only when the device or the host waits for a mark:
 * a result that is used too early has wrong bits. */
#ifndef LK_TESTS_JOINED_H
#define LK_TESTS_JOINED_H

#include "far.h"
#include "processes.h"
#include "tape.h"

#include "base/mem.h"

enum { JOINED_MOVES = 256, JOINED_WORK = 4096, JOINED_CHANNELS = 8 };

typedef enum joined_kind { JOINED_MOVE, JOINED_ADD, JOINED_FREE, JOINED_MARK } joined_kind;

typedef struct joined_work {
    joined_kind kind;
    lk_channel_move *moves; /* owned */
    int count, mark;
    size_t elements;
    const float *a, *b;
    float *out;
} joined_work;

struct lk_channel {
    lk_channel *next; /* in joined_all */
    lk_device *dev;
    lk_channel_opts opts;
    unsigned id;
    int first, after; /* the work [first,after) is not done */
    int until;        /* the work [first,until) must be done now */
    bool posted;      /* the sends of the first work are done */
    int received;     /* moves of the first work whose receives are done */
    bool given_up;    /* only leave and close may follow */
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
static lk_channel *joined_all;
static unsigned joined_keys;
static atomic_int *joined_opened;    /* channels; in memory that processes share */
static atomic_int joined_places;     /* number of different devices; 0: each rank has its own */
static _Thread_local char joined_at; /* a letter: the device of this rank; 0: by joined_places */
static atomic_int joined_mute;       /* the rank that sends nothing, plus 1 */
static atomic_bool joined_missing;   /* the library of the channel */
static atomic_int joined_refuses;    /* the rank that cannot open a channel, plus 1 */
static atomic_int joined_given_up;   /* channels */

static inline lk_status joined_place(lk_device *dev, char place[LK_CHANNEL_DEVICE_ID])
{
    static atomic_int next;
    int number = next++;
    if (joined_at) {
        snprintf(place, LK_CHANNEL_DEVICE_ID, "far %c", joined_at);
        return LK_OK;
    }
    snprintf(place, LK_CHANNEL_DEVICE_ID, "far %d", joined_places ? number % joined_places : number);
    return LK_OK;
}

static inline lk_status joined_load(lk_device *dev)
{
    return joined_missing ? lk__fail(LK_STATUS_UNSUPPORTED, "no library for it") : LK_OK;
}

static inline lk_status joined_open(lk_device *dev, const lk_channel_opts *opts, void *key, lk_channel **out)
{
    lk_channel *channel;
    if (joined_refuses == opts->rank + 1)
        return lk__fail(LK_STATUS_UNSUPPORTED, "no memory to lend");
    LK_TRY(LK_ALLOC(1, "a channel", &channel));
    channel->dev = dev;
    channel->opts = *opts;
    pthread_mutex_lock(&joined_lock);
    joined_keys++;
    memcpy(key, &joined_keys, sizeof joined_keys);
    channel->next = joined_all;
    joined_all = channel;
    pthread_mutex_unlock(&joined_lock);
    *out = channel;
    return LK_OK;
}

static inline lk_status joined_join(lk_channel *channel, const void *keys)
{
    memcpy(&channel->id, keys, sizeof channel->id);
    ++*joined_opened;
    return LK_OK;
}

static inline void joined_forget(const lk_channel *channel, const joined_work *work)
{
    lk__mem_free(work->moves);
    if (work->kind == JOINED_FREE)
        channel->dev->type->free(channel->dev, work->out);
}

static inline void joined_remove(const lk_channel *channel)
{
    pthread_mutex_lock(&joined_lock);
    lk_channel **at = &joined_all;
    while (*at && *at != channel)
        at = &(*at)->next;
    if (*at)
        *at = channel->next;
    pthread_mutex_unlock(&joined_lock);
}

static inline void joined_close(lk_channel *channel)
{
    if (channel)
        joined_remove(channel);
    far_require(!channel || tape_kept == 0, "a channel closed before its recordings are forgotten");
    for (int i = channel ? channel->first : 0; channel && i < channel->after; i++)
        joined_forget(channel, &channel->work[i]);
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

/* Removes and returns the oldest message from the peer, or NULL. */
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

/* Returns false if the message of a receive has not arrived. */
static inline bool joined_receive(const lk_channel *channel, const lk_channel_move *move)
{
    joined_message *message = joined_take(channel, move->peer);
    if (!message)
        return false;
    far_require(message->count == move->count, "a message of another length");
    far_require(far_has(move->at, move->count * sizeof(float)), "a message to the wrong memory");
    memcpy(move->at, message->data, move->count * sizeof(float));
    free(message);
    return true;
}

/* Does the sends of the first work, then its receives; returns whether all are done. */
static inline bool joined_exchange(lk_channel *channel, const joined_work *work)
{
    for (int i = 0; i < work->count && !channel->posted && joined_mute != channel->opts.rank + 1; i++) {
        if (work->moves[i].send)
            joined_post(channel, &work->moves[i]);
    }
    channel->posted = true;
    for (int *i = &channel->received; *i < work->count; ++*i) {
        if (!work->moves[*i].send && !joined_receive(channel, &work->moves[*i]))
            return false;
    }
    channel->posted = false;
    channel->received = 0;
    return true;
}

/* Does the work [first,until) as far as messages have arrived; returns whether it is done. */
static inline bool joined_advance(lk_channel *channel, int until)
{
    while (channel->first < until) {
        joined_work *work = &channel->work[channel->first];
        if (work->kind == JOINED_MOVE && !joined_exchange(channel, work))
            return false;
        if (work->kind == JOINED_ADD)
            channel->dev->kernels->reduce(channel->dev, LK_DTYPE_F32, LK_REDUCTION_SUM, work->elements, work->a,
                                          work->b, work->out);
        joined_forget(channel, work);
        channel->first++;
    }
    if (channel->first == channel->after)
        channel->first = channel->after = channel->until = 0;
    return true;
}

static inline void joined_require_use(const lk_channel *channel)
{
    far_require(!channel->given_up, "a channel is used after it was given up");
}

/* While a device waits for one channel, its other channels go on. */
static inline lk_status joined_poll(lk_channel *channel, bool *done)
{
    joined_require_use(channel);
    *done = joined_advance(channel, channel->until);
    if (*done)
        return LK_OK;
    pthread_mutex_lock(&joined_lock);
    lk_channel *others[JOINED_CHANNELS];
    int count = 0;
    for (lk_channel *other = joined_all; other; other = other->next) {
        if (other != channel && other->dev == channel->dev && !other->given_up && count < JOINED_CHANNELS)
            others[count++] = other;
    }
    pthread_mutex_unlock(&joined_lock);
    for (int i = 0; i < count; i++)
        (void)joined_advance(others[i], others[i]->after);
    return LK_OK;
}

static inline lk_status joined_keep(lk_channel *channel, joined_work work)
{
    joined_require_use(channel);
    far_require(channel->after < JOINED_WORK, "too much work for a channel");
    channel->work[channel->after++] = work;
    return LK_OK;
}

static inline lk_status joined_follow(lk_channel *channel)
{
    joined_require_use(channel);
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

static inline lk_status joined_half(lk_channel *channel, const lk_channel_move *moves, int count, bool sends)
{
    lk_channel_move half[JOINED_MOVES];
    int kept = 0;
    far_require(count <= JOINED_MOVES, "an exchange of too many moves");
    for (int i = 0; i < count; i++) {
        if (moves[i].send == sends)
            half[kept++] = moves[i];
    }
    return joined_move(channel, half, kept);
}

static inline lk_status joined_near_move(lk_channel *channel, const lk_channel_move *moves, int count)
{
    return joined_half(channel, moves, count, true);
}

static inline lk_status joined_near_take(lk_channel *channel, const lk_channel_move *moves, int count)
{
    return joined_half(channel, moves, count, false);
}

static inline lk_status joined_add(lk_channel *channel, size_t count, const float *a, const float *b, float *out)
{
    return joined_keep(channel, (joined_work){.kind = JOINED_ADD, .elements = count, .a = a, .b = b, .out = out});
}

/* Sums from rank to rank, beginning with the last one: not in the order of the tree. */
static inline lk_status joined_sum(lk_channel *channel, size_t count, float *x)
{
    int rank = channel->opts.rank, size = channel->opts.size, sends = rank > 0 ? 1 : size - 1;
    lk_channel_move moves[JOINED_MOVES];
    float *other;
    LK_TRY(channel->dev->type->alloc(channel->dev, count * sizeof(float), "a sum", (void **)&other));
    for (int i = 0; i < sends; i++)
        moves[i] = (lk_channel_move){rank > 0 ? rank - 1 : i + 1, true, x, count};
    if (rank < size - 1) {
        LK_TRY(joined_move(channel, &(lk_channel_move){rank + 1, false, other, count}, 1));
        LK_TRY(joined_add(channel, count, other, x, x));
    }
    LK_TRY(joined_move(channel, moves, sends));
    if (rank > 0)
        LK_TRY(joined_move(channel, &(lk_channel_move){0, false, x, count}, 1));
    return joined_keep(channel, (joined_work){.kind = JOINED_FREE, .out = other});
}

static inline lk_status joined_mark(lk_channel *channel, int mark)
{
    far_require(mark >= 0 && mark < channel->opts.marks, "a mark that there is not");
    return joined_keep(channel, (joined_work){.kind = JOINED_MARK, .mark = mark});
}

/* All work up to the mark must be done now. */
static inline lk_status joined_lead(lk_channel *channel, int mark)
{
    joined_require_use(channel);
    int i = channel->first;
    while (i < channel->after && (channel->work[i].kind != JOINED_MARK || channel->work[i].mark != mark))
        i++;
    if (i < channel->after && i >= channel->until)
        channel->until = i + 1;
    return LK_OK;
}

static inline lk_status joined_reached(lk_channel *channel, int mark, bool *done)
{
    far_require(!tape_plays, "waiting for a channel in a recording");
    LK_TRY(joined_lead(channel, mark));
    return joined_poll(channel, done);
}

static inline void joined_give_up(lk_channel *channel)
{
    channel->given_up = true;
    joined_given_up++;
}

static const lk_channel_type joined_type = {
    .name = "joined",
    .device_id = joined_place,
    .load = joined_load,
    .open = joined_open,
    .join = joined_join,
    .poll = joined_poll,
    .close = joined_close,
    .follow = joined_follow,
    .move = joined_move,
    .add = joined_add,
    .sum = joined_sum,
    .mark = joined_mark,
    .lead = joined_lead,
    .reached = joined_reached,
    .records = true,
    .give_up = joined_give_up,
};

/* The channel for ranks on one device: it has no sum of its own, and moves have two halves: `move`
 * does the sends, `take` the receives. */
static lk_channel_type joined_near;
static const lk_channel_type *const joined_channels[] = {&joined_type, &joined_near, NULL};

/* Adds device "far" with both channels to the table of devices. */
static inline lk_status joined_add_device(void)
{
    joined_opened = process_share(sizeof *joined_opened);
    LK_TRY(far_add());
    joined_near = joined_type;
    joined_near.name = "near";
    joined_near.one_device = true;
    joined_near.sum = NULL;
    joined_near.move = joined_near_move;
    joined_near.take = joined_near_take;
    joined_near.records = false;
    far_type.channels = joined_channels;
    return LK_OK;
}

#endif
