/* links.h - links (comm/collective/device_link.h) between the devices of neighbouring stages.
 *
 * Each pair of neighbours has two of them, one for activations and one for their gradients, if a channel can join the
 * two devices; otherwise messages go through host memory (staging.h). */
#ifndef LK_PARALLEL_STEP_LINKS_H
#define LK_PARALLEL_STEP_LINKS_H

#include "comm/collective/device_link.h"
#include "parallel/layout/grid.h"

/* The groups, channel and links that a stage shares with one neighbour; channel, out and in are NULL without a link. */
typedef struct lk_links_side {
    lk_group *groups[2]; /* of the two ranks: for activations, for gradients */
    const lk_channel_type *channel;
    lk_device_link *out, *in;
} lk_links_side;

enum { LK_LINKS_NAMES = 64 };

typedef struct lk_links {
    lk_links_side previous, next;
    /* The next two fields describe the links of all ranks; they are equal at every rank. */
    char names[LK_LINKS_NAMES]; /* the channels of all links: "nccl", "nccl and ipc"; "" if a pair has none */
    char obstacle[LK_DEVICE_CHANNEL_OBSTACLE]; /* why the first pair without a link has none; "": all have one */
} lk_links;

typedef struct lk_links_opts {
    size_t previous, next; /* bytes of the largest message exchanged with that stage */
    int lanes;
} lk_links_opts;

/* Collective in grid->world. Chooses the channel of each pair; name: the only channel to try, or NULL. `links` is zero
 * before; the caller calls leave and fini also after a failure. */
lk_status lk__links_choose(lk_links *links, const lk_grid *grid, lk_device *dev, const char *name) LK_CHECKED;
/* Collective in the pipeline group, after lk__links_choose. Opens the links. */
lk_status lk__links_open(lk_links *links, const lk_grid *grid, lk_device *dev, const lk_links_opts *opts) LK_CHECKED;
/* Ends the groups of the links, before the pipeline group is destroyed: they are parts of it. Only fini may follow. */
void lk__links_leave(lk_links *links);
void lk__links_fini(lk_links *links);
/* Blocks until the lane's messages have left. */
lk_status lk__links_clear(const lk_links *links, int lane) LK_CHECKED;

#endif
