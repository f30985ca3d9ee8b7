/* channel.h - work between the devices of several ranks, enqueued on a stream.
 *
 * A channel is an optional part of a device type and joins one device of each rank. Its work runs in the order
 * of the calls, on a stream beside the device's own. Calls that concern several ranks are made by all of them in the
 * same order. A channel knows no group and never waits for another rank: comm/collective/device_channel.c exchanges the
 * keys, waits, and calls give_up when a rank is lost or the timeout has passed. After a failure only give_up, leave and
 * close may be called. */
#ifndef LK_TENSOR_CHANNEL_H
#define LK_TENSOR_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/tensor.h"

typedef struct lk_channel lk_channel;

enum { LK_CHANNEL_KEY = 128, LK_CHANNEL_DEVICE_ID = 128 };

/* One vector sent to a peer or received from it. */
typedef struct lk_channel_move {
    int peer;
    bool send;
    float *at;
    size_t count; /* not 0 */
} lk_channel_move;

typedef struct lk_channel_opts {
    int rank, size;
    int marks;   /* events in the channel's stream that the device can wait for */
    size_t most; /* the most elements that this rank sends to one peer in one move */
} lk_channel_opts;

/* Moves of a sender that may be ahead of a receiver's take. */
enum { LK_CHANNEL_OUTBOXES = 2 };

typedef struct lk_channel_type {
    const char *name;  /* the word of options: "ipc" */
    const char *title; /* the name in messages: "CUDA IPC"; NULL: name */
    /* Writes a text that identifies the device. one_device: the channel joins ranks whose texts are all equal.
     * Otherwise it joins ranks whose texts all differ. */
    lk_status (*device_id)(lk_device *dev, char id[LK_CHANNEL_DEVICE_ID]);
    bool one_device;
    /* UNSUPPORTED, with what is missing, if this machine cannot have such a channel. */
    lk_status (*load)(lk_device *dev);
    /* Called after load. Creates this rank's end of the channel and a key of LK_CHANNEL_KEY bytes for the other
     * ranks. */
    lk_status (*open)(lk_device *dev, const lk_channel_opts *opts, void *key, lk_channel **out);
    /* keys: (size, LK_CHANNEL_KEY), the keys of all ranks. */
    lk_status (*join)(lk_channel *channel, const void *keys);
    /* Sets *done to whether the last join, move, sum or lead is complete; fails if the channel has failed. These
     * four slots may return before they are complete, so the caller polls after each of them until *done is
     * true. Optional: without poll the four slots are complete when they return. */
    lk_status (*poll)(lk_channel *channel, bool *done);
    /* Completes the work under way; afterwards this rank uses no memory of other ranks. A rank may free its
     * memory when all ranks have left. Only close may follow. Optional: without it close does
     * this. */
    void (*leave)(lk_channel *channel);
    /* NULL is ignored. Completes or abandons the work under way. */
    void (*close)(lk_channel *channel);
    /* Later work of the channel waits for all work that the device was given so far. */
    lk_status (*follow)(lk_channel *channel);
    /* Performs all moves together. Each send has a matching receive of the same count at its peer; between two
     * ranks they match in order. count may be 0. */
    lk_status (*move)(lk_channel *channel, const lk_channel_move *moves, int count);
    /* The second half of a move: receives what the list says, after the ranks that send it have called move. All ranks
     * call it once for each move; one that only receives need not call move. A rank may be LK_CHANNEL_OUTBOXES moves
     * ahead of the takes of its receivers, and no more. Optional: without it move does everything. */
    lk_status (*take)(lk_channel *channel, const lk_channel_move *moves, int count);
    /* out = a + b, the same bits as the kernel `reduce`; out may be a or b. */
    lk_status (*add)(lk_channel *channel, size_t count, const float *a, const float *b, float *out);
    /* x = the sum over all ranks, in an order that the channel chooses. Optional. */
    lk_status (*sum)(lk_channel *channel, size_t count, float *x);
    /* Records event `mark` after all work that the channel was given so far. */
    lk_status (*mark)(lk_channel *channel, int mark);
    /* Later work of the device waits for the mark. */
    lk_status (*lead)(lk_channel *channel, int mark);
    /* Says whether all work before the mark is complete; true if the mark was never recorded. */
    lk_status (*reached)(lk_channel *channel, int mark, bool *done);
    /* All slots but `reached` may be called while the device records; every play repeats them. Marks made in a
     * recording order the recorded work only: `reached` reports them as complete. Recordings must be forgotten
     * before the channel is closed. */
    bool records;
    /* Makes the work under way end, even if other ranks never answer. */
    void (*give_up)(lk_channel *channel);
} lk_channel_type;

#endif
