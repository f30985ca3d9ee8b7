/* channel.h - memory moved between the devices of several ranks, out of the host's way.
 *
 * An optional part of a device type. A channel joins one device of each rank. What it
 * is given runs in the order of the calls, beside the device's own work; all ranks
 * make matching calls in the same order. Calls enqueue. Where one has to wait for
 * other ranks (join, move, settle) it calls `wait` again and again, or `meet`, and when
 * that fails, gives the channel up and returns that failure. After a failure nothing
 * but give_up and close is possible. */
#ifndef LK_TENSOR_CHANNEL_H
#define LK_TENSOR_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct lk_device lk_device;
typedef struct lk_channel lk_channel;

enum { LK_CHANNEL_KEY = 128, LK_CHANNEL_PLACE = 128 };

/* Elements to a peer, or from it. */
typedef struct lk_channel_move {
    int peer;
    bool send;
    float *at;
    size_t count; /* not 0 */
} lk_channel_move;

typedef struct lk_channel_opts {
    int rank, size;
    int marks;   /* places in its work that the device can wait for */
    size_t most; /* elements for one peer in a move, from this rank */
    /* What the user does while the channel waits, and what returns when all ranks have
     * called it. */
    lk_status (*wait)(void *arg);
    lk_status (*meet)(void *arg);
    void *arg;
} lk_channel_opts;

typedef struct lk_channel_type {
    const char *name;
    /* Where the device is. Ranks can have a channel where all of them give the same
     * text, if it is for ranks on one device, and else where no two do. */
    lk_status (*place)(lk_device *dev, char place[LK_CHANNEL_PLACE]);
    bool one_device;
    /* UNSUPPORTED, with what is missing, where there can be no channel. */
    lk_status (*load)(lk_device *dev);
    /* After load: this rank's part of it, and a key for the others. */
    lk_status (*open)(lk_device *dev, const lk_channel_opts *opts, void *key, lk_channel **out);
    /* keys: (size, LK_CHANNEL_KEY), those of all ranks. */
    lk_status (*join)(lk_channel *channel, const void *keys);
    /* Work under way is done, and this rank uses no memory of others any more; their
     * memory may be gone after all ranks have left. Nothing but close comes after it.
     * Optional: close does it. */
    void (*leave)(lk_channel *channel);
    /* NULL is ignored. Work under way ends or is given up. */
    void (*close)(lk_channel *channel);
    /* What follows on the channel waits for all that the device was given so far. */
    lk_status (*follow)(lk_channel *channel);
    /* All at once; each send meets a recv of its count, in order per pair of ranks.
     * count may be 0. */
    lk_status (*move)(lk_channel *channel, const lk_channel_move *moves, int count);
    /* out = a + b, with the bits of the kernels' reduce; out may be a or b. */
    lk_status (*add)(lk_channel *channel, size_t count, const float *a, const float *b, float *out);
    /* x = the sum over all ranks, in an order of the channel's own. Optional. */
    lk_status (*sum)(lk_channel *channel, size_t count, float *x);
    /* A place after all that the channel was given so far. */
    lk_status (*mark)(lk_channel *channel, int mark);
    /* What follows on the device waits for the mark. */
    lk_status (*lead)(lk_channel *channel, int mark);
    /* Until all before the mark is done; at once where it was never set. */
    lk_status (*settle)(lk_channel *channel, int mark);
    /* All but settle may be called while the device records, and are done again with
     * each play. Marks of a recording are for what it records alone: settle takes them
     * to be done. Recordings must be forgotten before the channel is closed. */
    bool records;
    /* With records: once in a while as long as the host waits for what was recorded;
     * calls wait, and fails as settle does. */
    lk_status (*watch)(lk_channel *channel);
    /* With records: work under way will end, whatever becomes of other ranks. */
    void (*give_up)(lk_channel *channel);
} lk_channel_type;

#endif
