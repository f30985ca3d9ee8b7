/* links.h - links (comm/collective/device_link.h) between the devices of neighbouring stages.
 *
 * Each pair of neighbours has two of them, one for activations and one for their gradients, if a channel can join the
 * two devices; otherwise messages go through host memory (staging.h). */
#ifndef LK_PARALLEL_STEP_LINKS_H
#define LK_PARALLEL_STEP_LINKS_H

#include "comm/collective/device_link.h"
#include "parallel/layout/grid.h"

/* What a stage exchanges with a neighbour; out and in are NULL if there is no link. */
typedef struct lk_links_side {
    lk_group *groups[2]; /* of the two ranks: for activations, for gradients */
    lk_device_link *out, *in;
} lk_links_side;

typedef struct lk_links {
    lk_links_side previous, next;
} lk_links;

typedef struct lk_links_opts {
    const lk_grid *grid;
    lk_device *dev;
    size_t previous, next; /* bytes of the largest message exchanged with that stage */
    int lanes;
} lk_links_opts;

/* Collective in the pipeline group. `links` is zero before; the caller calls leave and fini also if init fails. */
lk_status lk__links_init(lk_links *links, const lk_links_opts *opts) LK_CHECKED;
/* Ends the groups of the links, before the pipeline group is destroyed: they are parts of it. Only fini may follow. */
void lk__links_leave(lk_links *links);
void lk__links_fini(lk_links *links);
/* Blocks until the lane's messages have left. */
lk_status lk__links_clear(const lk_links *links, int lane) LK_CHECKED;

#endif
