/* device_copies.h - calls whose buffers are in the memory of a device: the ranks exchange copies in host memory
 * instead.
 *
 * A copy is a staging buffer: a block of the group's pool, in pinned memory where the device has it, so calls of the
 * same size allocate nothing. Inputs are copied when the call is made; results are copied back when the caller learns
 * that it is done. */
#ifndef LK_COMM_COLLECTIVE_DEVICE_COPIES_H
#define LK_COMM_COLLECTIVE_DEVICE_COPIES_H

#include "base/status.h"
#include "tensor/device.h"

typedef struct lk_device_copies_block lk_device_copies_block;
typedef struct lk_device_copies_device lk_device_copies_device;

/* The devices and blocks of a group; zero: none. */
typedef struct lk_device_copies {
    lk_device_copies_device *devices;
    lk_device_copies_block *blocks;
} lk_device_copies;

/* A part of a call's data. */
typedef struct lk_device_copies_part {
    lk_device *dev;
    void *at; /* memory of the device */
    size_t bytes;
    bool in;   /* the call reads it */
    bool back; /* the call writes it */
} lk_device_copies_part;

/* *out is the device of that name, opened at the first call; NULL if the host can use its memory, and for the name
 * NULL. The group owns it. USAGE for an unknown name, UNSUPPORTED if there is no such device. */
lk_status lk__device_copies_open(lk_device_copies *pool, const char *name, lk_device **out) LK_CHECKED;
/* Adds the copy of a part to the copies of a call: *host is where it is. Two equal parts have one copy. Blocks until
 * the device's memory is read. */
lk_status lk__device_copies_add(lk_device_copies *pool, const lk_device_copies_part *part,
                                lk_device_copies_block **copies, char **host) LK_CHECKED;
/* The call has ended with this status: copies results back if it is LK_OK, and returns the status, or that of the
 * copies. After a failure of the call, peers may still read the blocks: they are not used again. */
lk_status lk__device_copies_end(lk_device_copies_block *copies, lk_status status) LK_CHECKED;
/* Copies `bytes` bytes between two buffers, each on a device or, if that is NULL, in host memory. */
lk_status lk__device_copies_copy(lk_device_copies *pool, const lk_device_copies_part *from,
                                 const lk_device_copies_part *to) LK_CHECKED;
void lk__device_copies_fini(lk_device_copies *pool);

#endif
