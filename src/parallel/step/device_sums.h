/* device_sums.h - sums between devices, out of the host's way.
 *
 * Every rank owns a segment of a bucket; all send their partial sums of it to the
 * owner, which folds them in the tree's order and hands the result out. The bits are
 * those of lk_allreduce_shards. All of it is enqueued on a channel of the devices
 * (tensor/channel.h), beside the backward pass.
 *
 * Under LK_REDUCE_ORDER_BACKEND the channel adds up in an order of its own. */
#ifndef LK_PARALLEL_STEP_DEVICE_SUMS_H
#define LK_PARALLEL_STEP_DEVICE_SUMS_H

#include <lockstep/engine.h>

#include "parallel/step/waves.h"
#include "tensor/device.h"

typedef struct lk_device_sums lk_device_sums;

typedef struct lk_device_sums_opts {
    lk_group *group;       /* borrowed, as all here */
    const int *bounds;     /* (ranks + 1) shards of each */
    const lk_waves *waves; /* of this rank */
    lk_device *dev;
    const lk_channel_type *channel;
    lk_reduce_order reduce;
    size_t most;   /* elements of a sum */
    size_t widest; /* elements of a partial sum that is gathered */
    int sums;      /* of a step */
} lk_device_sums_opts;

/* Together, all with one kind of device: the first channel that can join the devices
 * of all ranks, or NULL. USAGE with the reason, the same at all ranks, if one is asked
 * for and cannot. group NULL: a rank alone, which needs none. */
lk_status lk__device_sums_choose(lk_group *group, lk_device *dev, const lk_engine_opts *opts,
                                 const lk_channel_type **out) LK_CHECKED;

/* Together. */
lk_status lk__device_sums_create(const lk_device_sums_opts *opts, lk_device_sums **out) LK_CHECKED;
/* Before the group is destroyed: together, as far as the job is whole, so that no rank
 * gives memory back that another uses. NULL is ignored, as below. */
void lk__device_sums_leave(lk_device_sums *direct);
void lk__device_sums_destroy(lk_device_sums *direct);

/* Together: enqueues sum `index` of a step, of vectors whose partial sums, after the
 * device's work so far, are at slot0, slot0 + stride and so on; the result goes to slot0. */
lk_status lk__device_sums_sum(lk_device_sums *direct, int index, size_t count, lk_partials sums) LK_CHECKED;
/* The device's further work finds the result of that sum. */
lk_status lk__device_sums_lead(lk_device_sums *direct, int index) LK_CHECKED;
/* Until all sums, and what is gathered or shared, are done, or a peer is lost: before the host waits for the
 * device's further work. */
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

#endif
