/* channel.h - work between the devices of several ranks, enqueued on a stream.
 *
 * An optional part of a device type. A channel joins one device of each rank. Its work
 * runs in the order of the calls, beside the device's own work; all ranks make matching
 * calls in the same order. A channel knows no group and waits for no other rank:
 * comm/device_sums.c exchanges the keys, waits, and gives a channel up when a rank is lost or
 * the timeout has passed. After a failure only give_up, leave and close may be called. */
#ifndef LK_TENSOR_CHANNEL_H
#define LK_TENSOR_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/tensor.h"

typedef struct lk_channel lk_channel;

enum { LK_CHANNEL_KEY = 128, LK_CHANNEL_DEVICE_ID = 128 };

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
} lk_channel_opts;

typedef struct lk_channel_type {
    const char *name;
    /* Where the device is. Ranks can have a channel where all of them give the same
     * text, if it is for ranks on one device, and else where no two do. */
    lk_status (*device_id)(lk_device *dev, char id[LK_CHANNEL_DEVICE_ID]);
    bool one_device;
    /* UNSUPPORTED, with what is missing, where there can be no channel. */
    lk_status (*load)(lk_device *dev);
    /* After load: this rank's part of it, and a key for the others. */
    lk_status (*open)(lk_device *dev, const lk_channel_opts *opts, void *key, lk_channel **out);
    /* keys: (size, LK_CHANNEL_KEY), those of all ranks. */
    lk_status (*join)(lk_channel *channel, const void *keys);
    /* Whether join, move, sum and lead, which may return before, have done what they
     * do; fails where the channel has failed. Called again and again after each of
     * them, until it says so. Optional: they have when they return. */
    lk_status (*poll)(lk_channel *channel, bool *done);
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
    /* The second half of a move, with the same list: called when all ranks have called
     * move. Optional: move does all of it. */
    lk_status (*take)(lk_channel *channel, const lk_channel_move *moves, int count);
    /* out = a + b, with the bits of the kernels' reduce; out may be a or b. */
    lk_status (*add)(lk_channel *channel, size_t count, const float *a, const float *b, float *out);
    /* x = the sum over all ranks, in an order of the channel's own. Optional. */
    lk_status (*sum)(lk_channel *channel, size_t count, float *x);
    /* A place after all that the channel was given so far. */
    lk_status (*mark)(lk_channel *channel, int mark);
    /* What follows on the device waits for the mark. */
    lk_status (*lead)(lk_channel *channel, int mark);
    /* Whether all before the mark is done; true where the mark was never set. */
    lk_status (*reached)(lk_channel *channel, int mark, bool *done);
    /* All but reached may be called while the device records, and are done again with
     * each play. Marks of a recording are for what it records alone: reached takes them
     * to be done. Recordings must be forgotten before the channel is closed. */
    bool records;
    /* Work under way will end, whatever becomes of other ranks. */
    void (*give_up)(lk_channel *channel);
} lk_channel_type;

#endif
