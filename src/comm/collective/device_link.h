/* device_link.h - messages from the device of one rank to the device of another.
 *
 * A link has one direction. Its messages arrive in the order in which they are sent, and go from device memory to
 * device memory over a channel. The device's own stream waits only for messages that the host knows to be complete:
 * when a rank is lost or the group's timeout has passed, a call fails, and no work stays on the device.
 *
 * "Collective" means that both ranks make the call. After a failure only leave and destroy may be called. One thread at
 * a time. */
#ifndef LK_COMM_COLLECTIVE_DEVICE_LINK_H
#define LK_COMM_COLLECTIVE_DEVICE_LINK_H

#include "comm/collective/device_channel.h"

typedef struct lk_device_link lk_device_link;

typedef struct lk_device_link_opts {
    lk_group *group; /* of two ranks, rank 0 sends; all pointers are borrowed */
    lk_device *dev;
    const lk_channel_type *channel;
    size_t most; /* bytes of the largest message */
    int lanes;   /* of the sender: memory of its own for each message under way */
} lk_device_link_opts;

/* Collective. The devices are connected when it returns. */
lk_status lk__device_link_create(const lk_device_link_opts *opts, lk_device_link **out) LK_CHECKED;
/* As lk__device_channel_leave. NULL is ignored, also by destroy. The group may be destroyed before the link. */
void lk__device_link_leave(lk_device_link *link);
void lk__device_link_destroy(lk_device_link *link);

/* Sends `bytes` bytes of device memory, after the work that the device has so far. They must not change before
 * lk__device_link_clear of the lane. Up to 3 bytes behind them are read, too. */
lk_status lk__device_link_send(lk_device_link *link, int lane, const void *at, size_t bytes) LK_CHECKED;
/* Blocks until the lane's last message has left. */
lk_status lk__device_link_clear(lk_device_link *link, int lane) LK_CHECKED;
/* Receives a message of `bytes` bytes, rounded up to whole floats. Blocks until it has been sent; work enqueued on the
 * device from now on waits for its arrival. */
lk_status lk__device_link_receive(lk_device_link *link, void *at, size_t bytes) LK_CHECKED;

#endif
