/* device_sums.h - sums and gathers of vectors in the memory of devices.
 *
 * The devices of a group's ranks are joined by a channel (tensor/channel.h). It runs the
 * programs (program.h) that the group runs too: steps.c moves frames of the host's memory
 * and polls; here moves and additions are enqueued on a stream of the device. Both follow
 * one schedule and one fold plan, so a sum has the bits of lk_allreduce_shards. The
 * programs have one level, whatever hosts the ranks are on.
 *
 * Calls marked "together" are made by all ranks, in the same order. When a rank is lost
 * or the group's timeout has passed, the channel is given up and the call fails; after a
 * failure only leave, destroy and give_up are possible. One thread at a time. */
#ifndef LK_COMM_COLLECTIVE_DEVICE_SUMS_H
#define LK_COMM_COLLECTIVE_DEVICE_SUMS_H

#include "comm/collective/program.h"
#include "tensor/device.h"

typedef struct lk_device_sums lk_device_sums;

enum { LK_DIRECT_TEXT = 1024 };

/* Which channel the ranks use. */
typedef struct lk_device_sums_choice {
    const char *name;               /* the only one to be tried; NULL: any */
    bool own_order;                 /* only those that sum in an order of their own */
    bool tried;                     /* set: there was one to be tried */
    const lk_channel_type *channel; /* set: the first that can join the devices of all ranks, or NULL */
    char obstacle[LK_DIRECT_TEXT + 2 * LK_CHANNEL_DEVICE_ID]; /* set: why the last one that was tried cannot */
} lk_device_sums_choice;

/* Together, all with one kind of device; all ranks get the same choice. group NULL: a
 * rank alone, which needs no channel: only `tried` is set. */
lk_status lk__device_sums_choose(lk_group *group, lk_device *dev, lk_device_sums_choice *choice) LK_CHECKED;

typedef struct lk_device_sums_opts {
    lk_group *group;   /* borrowed, as all here */
    const int *bounds; /* (ranks + 1) shards of each */
    lk_device *dev;
    const lk_channel_type *channel;
    bool own_order; /* the channel adds up in an order of its own, not over the tree */
    int sums;       /* of a step */
    size_t most;    /* elements of a sum */
    size_t widest;  /* elements of a partial sum that is gathered */
    size_t samples; /* of one rank that are shared, at most */
} lk_device_sums_opts;

/* Together. */
lk_status lk__device_sums_create(const lk_device_sums_opts *opts, lk_device_sums **out) LK_CHECKED;
/* Together: opens and closes a channel, for what only shows then. The others take part
 * where one fails. */
lk_status lk__device_sums_rehearse(const lk_device_sums_opts *opts) LK_CHECKED;
/* Before the group is destroyed: together, as far as the job is whole, so that no rank
 * frees memory that another uses. NULL is ignored, as below. */
void lk__device_sums_leave(lk_device_sums *direct);
void lk__device_sums_destroy(lk_device_sums *direct);

/* Together: enqueues sum `index` of a step. This rank's partial sums, after the device's
 * work so far, are the slots of `sums` in the order of its shards; the result goes to
 * slot 0. Over the tree, the other slots keep what they had. */
lk_status lk__device_sums_sum(lk_device_sums *direct, int index, size_t count, lk_partials sums) LK_CHECKED;
/* The device's further work finds the result of that sum. */
lk_status lk__device_sums_lead(lk_device_sums *direct, int index) LK_CHECKED;
/* Blocks until all that was enqueued is done, or a peer is lost: before the host waits
 * for the device's further work. */
lk_status lk__device_sums_settle(lk_device_sums *direct) LK_CHECKED;

/* Together: this rank's partial sums of `width` elements each, and those of all ranks
 * in the order of their shards, for the device's further work. */
lk_status lk__device_sums_gather(lk_device_sums *direct, const float *mine, size_t width, float *all) LK_CHECKED;
/* As settle, for what is gathered alone. */
lk_status lk__device_sums_settle_gather(lk_device_sums *direct) LK_CHECKED;

/* The rest is for channels that record; while the device does, settle and settle_gather
 * may not be called. */

/* Together: a number of each of `total` samples, of which this rank has those of its
 * shards in their places, to all ranks. */
lk_status lk__device_sums_share(lk_device_sums *direct, size_t total, float *all) LK_CHECKED;
/* The device's further work finds them. */
lk_status lk__device_sums_lead_share(lk_device_sums *direct) LK_CHECKED;
/* Once in a while when the host waits, since a time of lk__clock, for what was recorded:
 * fails when a peer is lost or the time is up. */
lk_status lk__device_sums_watch(lk_device_sums *direct, double since) LK_CHECKED;
/* The device's work will end, whatever becomes of other ranks. */
void lk__device_sums_give_up(lk_device_sums *direct);

/* Enqueues a program, as sum and gather do with theirs; vectors as in sum. */
lk_status lk__device_sums_run(lk_device_sums *direct, const lk_program *program, lk_partials vectors) LK_CHECKED;

#endif
