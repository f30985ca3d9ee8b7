/* buckets.h - buckets: ranges of the flat gradient array, summed over the ranks during the backward pass.
 *
 * Either the group sums a bucket in host memory: its partial sums are fetched to a staging buffer when they
 * are final, and the result is stored on the device when it is waited for (staging.h). Or the devices sum
 * it (comm/collective/device_sums.h). The group sums over the tree or, on request, in an order of its engine's own
 * (comm/collective/own_sums.h). */
#ifndef LK_PARALLEL_STEP_BUCKETS_H
#define LK_PARALLEL_STEP_BUCKETS_H

#include <lockstep/group.h>

#include "comm/collective/device_sums.h"
#include "nn/params.h"

typedef struct lk_bucket {
    size_t begin, end; /* elements */
    bool frozen;       /* all of them are zero: nothing is summed */
    lk_request *request;
    uint64_t ticket; /* of a sum in the group's own order; 0: none */
    double started;  /* for traces: when a sum began that is no request; 0: none */
} lk_bucket;

typedef struct lk_buckets {
    lk_group *group;   /* borrowed; NULL: one replica, nothing to sum */
    const int *bounds; /* borrowed, (ranks + 1) rank r has shards [bounds[r], bounds[r+1]) */
    lk_params *params; /* borrowed; a bucket is the same range of each slot of gradients */
    float *copy;       /* borrowed staging buffer (roots, params->count); NULL: the group reads the gradients */
    lk_device_sums *device_sums; /* borrowed; NULL: the group sums */
    int roots;                   /* slots with this rank's partial sums */
    bool own_order;              /* the group sums in an order of its own */
    bool check;                  /* check this rank's partial sums for non-finite values, except in recorded steps */
    float limit;                 /* if no partial sum of any rank is above it, the total is finite */
    lk_bucket *list;
    int count;
    /* The current step. */
    bool recorded;
    int started;
    bool large; /* this rank has partial sums above the limit */
    size_t bad; /* the first element with a non-finite partial sum; params->count: none */
} lk_buckets;

typedef struct lk_buckets_opts {
    lk_group *group;
    const int *bounds;
    lk_params *params;
    float *copy;
    int roots;
    size_t bytes;
    bool check;
    bool own_order;
} lk_buckets_opts;

/* A bucket ends at the end of a tensor; a tensor larger than a bucket is cut. */
lk_status lk__buckets_create(const lk_buckets_opts *opts, lk_buckets **out) LK_CHECKED;
void lk__buckets_destroy(lk_buckets *buckets);

/* Prepares the buckets for a step. In a recorded step, sums are only enqueued (the channel must be able to
 * record): the host checks no values, and lk__buckets_finish does nothing. */
void lk__buckets_reset(lk_buckets *buckets, bool recorded);
/* The first `done` elements are final at this rank: starts the sums of the buckets that end there. */
lk_status lk__buckets_start(lk_buckets *buckets, size_t done) LK_CHECKED;
/* Makes progress on the sums under way; does not block. */
lk_status lk__buckets_poll(lk_buckets *buckets) LK_CHECKED;
/* Orders later work of the device after the sum of this bucket, which is then in slot 0. Blocks only if
 * the group sums. */
lk_status lk__buckets_wait(lk_buckets *buckets, int index) LK_CHECKED;
/* After lk__buckets_wait, before the host waits for the device: blocks until the devices have finished all
 * sums, or a peer is lost. */
lk_status lk__buckets_finish(lk_buckets *buckets) LK_CHECKED;
/* Both, for all buckets that were started. */
lk_status lk__buckets_wait_all(lk_buckets *buckets) LK_CHECKED;

/* Finds the first element in [begin,end) whose magnitude is above limit (FLT_MAX: the first non-finite one),
 * or end. array is device memory, as long as the parameters. Blocks. */
lk_status lk__buckets_first_above(const lk_params *params, const float *array, size_t begin, size_t end, float limit,
                                  size_t *out) LK_CHECKED;

#endif
