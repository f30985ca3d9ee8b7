/* device_sums.h - sums and gathers of vectors in the memory of devices.
 *
 * A channel (tensor/channel.h) joins the devices of a group's ranks. It runs the same programs (program.h) as
 * the group. The group's executor polls frames in host memory (steps.c); here copies and additions are
 * enqueued on a stream of the device. Both follow the same schedule and fold plan, so a sum has the bits of
 * lk_allreduce_shards. Programs on devices have one level, also between hosts.
 *
 * "Collective" means that all ranks make the call, in the same order. When a rank is lost or the group's
 * timeout has passed, the channel is given up and the call fails. After a failure only leave, destroy and
 * give_up may be called. One thread at a time. */
#ifndef LK_COMM_COLLECTIVE_DEVICE_SUMS_H
#define LK_COMM_COLLECTIVE_DEVICE_SUMS_H

#include "comm/collective/device_channel.h"
#include "comm/collective/program.h"

typedef struct lk_device_sums lk_device_sums;

typedef struct lk_device_sums_opts {
    lk_group *group;   /* all pointers are borrowed */
    const int *bounds; /* (ranks + 1) bounds of the shards of each rank */
    lk_device *dev;
    const lk_channel_type *channel;
    bool own_order; /* the channel sums in its own order, not over the tree */
    int sums;       /* sums in a step */
    size_t most;    /* most elements of a sum */
    size_t widest;  /* most elements of a partial sum that is gathered */
    size_t samples; /* most samples of one rank in lk__device_sums_share */
} lk_device_sums_opts;

/* Collective. */
lk_status lk__device_sums_create(const lk_device_sums_opts *opts, lk_device_sums **out) LK_CHECKED;
/* Collective as long as the job has not failed, before the group is destroyed: afterwards no rank uses memory
 * of another. NULL is ignored, also by destroy. */
void lk__device_sums_leave(lk_device_sums *sums);
void lk__device_sums_destroy(lk_device_sums *sums);

/* Collective. Enqueues sum `index` of a step, after the work that the device has so far. The slots of
 * `partials` are this rank's partial sums in the order of its shards. The result is written to slot 0; with a
 * sum over the tree the other slots do not change. */
lk_status lk__device_sums_sum(lk_device_sums *sums, int index, size_t count, lk_partials partials) LK_CHECKED;
/* Work enqueued on the device from now on waits for that sum. */
lk_status lk__device_sums_lead(lk_device_sums *sums, int index) LK_CHECKED;
/* Blocks until everything enqueued here is done, or a peer is lost. Called before the host waits for the
 * device. */
lk_status lk__device_sums_wait(lk_device_sums *sums) LK_CHECKED;

/* Collective. Gathers the partial sums of all ranks, of `width` elements each, in the order of their shards.
 * Work enqueued on the device from now on waits for them. */
lk_status lk__device_sums_gather(lk_device_sums *sums, const float *mine, size_t width, float *all) LK_CHECKED;
/* Like wait, for the last gather only. */
lk_status lk__device_sums_wait_gather(lk_device_sums *sums) LK_CHECKED;

/* The rest is for channels that record. While the device records, wait and wait_gather may not be called. */

/* Collective. Gives all ranks one number for each of `total` samples. This rank has written the numbers of
 * its shards' samples to `all`. */
lk_status lk__device_sums_share(lk_device_sums *sums, size_t total, float *all) LK_CHECKED;
/* Work enqueued on the device from now on waits for the last share. */
lk_status lk__device_sums_lead_share(lk_device_sums *sums) LK_CHECKED;
/* Called repeatedly while the host waits, since `since` on lk__clock(), for recorded work. Fails when a peer
 * is lost or the timeout has passed. */
lk_status lk__device_sums_watch(lk_device_sums *sums, double since) LK_CHECKED;
/* Gives the channel up, so that the device's work ends even if other ranks do nothing more. */
void lk__device_sums_give_up(lk_device_sums *sums);

/* Enqueues a program. `vectors` as `partials` of lk__device_sums_sum. */
lk_status lk__device_sums_run(lk_device_sums *sums, const lk_program *program, lk_partials vectors) LK_CHECKED;

#endif
