/* buckets.h - ranges of the flat gradient array, summed over the ranks while the
 * backward pass still runs.
 *
 * A bucket's sums are fetched to where the group reaches them, summed there, and
 * the result is stored on the device when it is awaited (staging.h); or they are
 * summed on the devices (comm/device_sums.h). */
#ifndef LK_PARALLEL_STEP_BUCKETS_H
#define LK_PARALLEL_STEP_BUCKETS_H

#include <lockstep/group.h>

#include "comm/collective/device_sums.h"
#include "nn/params.h"

typedef struct lk_bucket {
    size_t begin, end; /* elements */
    lk_request *request;
} lk_bucket;

typedef struct lk_buckets {
    lk_group *group;   /* borrowed; NULL: this rank's sums are the whole */
    const int *bounds; /* borrowed, (ranks + 1) shards of each */
    lk_params *params; /* borrowed; the gradients of bucket i are its range of each slot */
    float *copy;       /* borrowed, (roots, params->count) of the gradients for the group; NULL: it reaches those */
    lk_device_sums *direct; /* borrowed; NULL: the group sums */
    int roots;              /* slots that hold this rank's partial sums */
    bool check;             /* looks for values that are not finite, but in recorded steps */
    float limit;            /* where all ranks' sums are within it, their total is finite */
    lk_bucket *list;
    int count;
    /* The step at hand. */
    bool recorded;
    int started;
    bool large; /* this rank has sums above the limit */
    size_t bad; /* the first element of them that is not finite; params->count: none */
} lk_buckets;

typedef struct lk_buckets_opts {
    lk_group *group;
    const int *bounds;
    lk_params *params;
    float *copy;
    int roots;
    size_t bytes;
    bool check;
} lk_buckets_opts;

/* Buckets end where a tensor does; one that is larger than a bucket is cut. */
lk_status lk__buckets_create(const lk_buckets_opts *opts, lk_buckets **out) LK_CHECKED;
void lk__buckets_destroy(lk_buckets *buckets);

/* Before a step. In one that is recorded, sums are only enqueued, which takes a channel
 * that records: the host looks at none, and settle does nothing. */
void lk__buckets_reset(lk_buckets *buckets, bool recorded);
/* The first `done` elements are final at this rank: gives those buckets that end
 * there to the group. */
lk_status lk__buckets_start(lk_buckets *buckets, size_t done) LK_CHECKED;
/* Moves those under way on; does not block. */
lk_status lk__buckets_poll(lk_buckets *buckets) LK_CHECKED;
/* Until the device's further work finds the sum over all ranks in slot 0. */
lk_status lk__buckets_wait(lk_buckets *buckets, int index) LK_CHECKED;
/* After those, before the host waits for such work: until the sums are done, or a
 * peer is lost. */
lk_status lk__buckets_settle(lk_buckets *buckets) LK_CHECKED;
/* Both, for all that were started. */
lk_status lk__buckets_wait_all(lk_buckets *buckets) LK_CHECKED;

/* The first element in [begin,end) whose magnitude is above limit (FLT_MAX: that is not
 * finite), or end; of a flat array as long as the parameters, on their device. */
lk_status lk__buckets_first_above(const lk_params *params, const float *array, size_t begin, size_t end, float limit,
                                  size_t *out) LK_CHECKED;

#endif
