/* device_channel.h - a rank's end of a channel (tensor/channel.h) between the devices of a group's ranks: choosing its
 * kind, opening it, waiting for it and giving it up.
 *
 * "Collective" means that all ranks of the group make the call, in the same order. When a rank is lost or the group's
 * timeout has passed, waiting fails. After a failure only explain, leave, close and give_up may be called. One thread
 * at a time. */
#ifndef LK_COMM_COLLECTIVE_DEVICE_CHANNEL_H
#define LK_COMM_COLLECTIVE_DEVICE_CHANNEL_H

#include <lockstep/group.h>

#include "tensor/device.h"

enum { LK_DEVICE_CHANNEL_TEXT = 1024, LK_DEVICE_CHANNEL_OBSTACLE = LK_DEVICE_CHANNEL_TEXT + 2 * LK_CHANNEL_DEVICE_ID };

/* The choice of a channel. */
typedef struct lk_device_channel_choice {
    const char *name;               /* the only channel to try; NULL: any */
    bool own_order;                 /* only channels that sum in an order of their own */
    bool tried;                     /* output: there was a channel to try */
    const lk_channel_type *channel; /* output: the first channel that can join the devices of all ranks, or NULL */
    /* Output: why no channel can, with the ranks of the job; "" if one can. */
    char obstacle[LK_DEVICE_CHANNEL_OBSTACLE];
} lk_device_channel_choice;

/* Collective. All ranks have the same kind of device and get the same choice. group NULL: one rank alone,
 * which needs no channel; only `tried` is set. */
lk_status lk__device_channel_choose(lk_group *group, lk_device *dev, lk_device_channel_choice *choice) LK_CHECKED;

typedef struct lk_device_channel {
    lk_group *group; /* borrowed, as the device */
    lk_device *dev;
    const lk_channel_type *type;
    lk_channel *end; /* NULL: not open */
    int rank, size;
    bool given_up;
    double waits_at; /* lk__clock() time when the current wait began; 0: none */
} lk_device_channel;

/* Returns an end that is not open. */
lk_device_channel lk__device_channel_of(lk_group *group, lk_device *dev, const lk_channel_type *type);
/* Collective. `marks` and `most` as in lk_channel_opts. */
lk_status lk__device_channel_open(lk_device_channel *channel, int marks, size_t most) LK_CHECKED;
/* Collective. Opens and closes a channel, to find failures that appear only then. All ranks take part until the end,
 * also if one fails. */
lk_status lk__device_channel_probe(lk_group *group, lk_device *dev, const lk_channel_type *type) LK_CHECKED;
/* Collective as long as the job has not failed, before the group is destroyed: afterwards no rank uses memory of
 * another. If the job has failed, ends what the channel waits for. All channels leave before one is closed. */
void lk__device_channel_leave(lk_device_channel *channel);
void lk__device_channel_close(lk_device_channel *channel);
/* The device's work ends even if other ranks do nothing more. */
void lk__device_channel_give_up(lk_device_channel *channel);

/* Waits until the channel has done its last operation. */
lk_status lk__device_channel_finish(lk_device_channel *channel) LK_CHECKED;
/* Later work of the device waits for the mark. */
lk_status lk__device_channel_lead(lk_device_channel *channel, int mark) LK_CHECKED;
/* Blocks until all work before the mark is done. */
lk_status lk__device_channel_await(lk_device_channel *channel, int mark) LK_CHECKED;
/* Called repeatedly while the host waits for work of the device. */
lk_status lk__device_channel_watch(lk_device_channel *channel) LK_CHECKED;
/* Takes the status of calls above, and returns the status that the caller is to return: LK_OK for LK_OK. After a
 * failure it gives the channel up. A channel may notice a lost rank before the job does: after a failure other than
 * PEER the function blocks until the job has failed too, for 2 seconds at most. If the job fails in that time, it
 * returns the job's failure, otherwise `status` with its detail. */
lk_status lk__device_channel_explain(lk_device_channel *channel, lk_status status) LK_CHECKED;

#endif
