/* channel.h - memory moved between the devices of several ranks, out of the host's way.
 *
 * An optional part of a device type. A channel joins one device of each rank. What it
 * is given runs in the order of the calls, beside the device's own work; all ranks
 * make matching calls in the same order. Calls enqueue. Where one has to wait for
 * other ranks (open, the first move to a peer, settle) it calls `wait` again and
 * again, and when that fails, gives the channel up and returns that failure. After a
 * failure nothing but close is possible. */
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
    const void *key; /* (LK_CHANNEL_KEY) the same at all ranks */
    int rank, size;
    int marks; /* places in its work that the device can wait for */
    lk_status (*wait)(void *arg);
    void *arg;
} lk_channel_opts;

typedef struct lk_channel_type {
    const char *name;
    /* Where the device is: ranks can have a channel where no two give the same text. */
    lk_status (*place)(lk_device *dev, char place[LK_CHANNEL_PLACE]);
    /* UNSUPPORTED, with what is missing, where there can be no channel. */
    lk_status (*load)(lk_device *dev);
    /* After load: the key of a channel, at one rank, which gives it to the others. */
    lk_status (*key)(lk_device *dev, void *key);
    /* After load. */
    lk_status (*open)(lk_device *dev, const lk_channel_opts *opts, lk_channel **out);
    /* NULL is ignored. Work under way ends or is given up. */
    void (*close)(lk_channel *channel);
    /* What follows on the channel waits for all that the device was given so far. */
    lk_status (*follow)(lk_channel *channel);
    /* All at once; each send meets a recv of its count, in order per pair of ranks. */
    lk_status (*move)(lk_channel *channel, const lk_channel_move *moves, int count);
    /* out = a + b, with the bits of the kernels' reduce; out may be a or b. */
    lk_status (*add)(lk_channel *channel, size_t count, const float *a, const float *b, float *out);
    /* x = the sum over all ranks, in an order of the channel's own. */
    lk_status (*sum)(lk_channel *channel, size_t count, float *x);
    /* A place after all that the channel was given so far. */
    lk_status (*mark)(lk_channel *channel, int mark);
    /* What follows on the device waits for the mark. */
    lk_status (*lead)(lk_channel *channel, int mark);
    /* Until all before the mark is done; at once where it was never set. */
    lk_status (*settle)(lk_channel *channel, int mark);
} lk_channel_type;

#endif
