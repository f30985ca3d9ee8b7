/* transport.h - what moves frames between the ranks of one group.
 *
 * A transport is a set of ordered pairs: frames from one rank to another arrive
 * whole, once, in the order in which they were sent, or the transport fails. It
 * does not know what a collective is.
 *
 * It need not have threads: progress is made by polling alone. Payloads are in the
 * host's memory; those in the memory of devices take another way (device_sums.h).
 * Headers are small and may take another way than payloads: a library that must be
 * told of a receive beforehand learns its size and place from `payload`.
 *
 * No slot but open, close, alloc, free and wait may block. */
#ifndef LK_COMM_TRANSPORT_TRANSPORT_H
#define LK_COMM_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/call.h"
#include "net/auth.h"
#include "net/host.h"

/* How the members of a group that is being made talk to each other. */
typedef struct lk_boot {
    int rank, size;
    const lk_member *members; /* (size) */
    uint32_t group;
    lk_token token;
    double timeout; /* seconds for all of open */
    /* Every member gives `bytes` bytes and gets all of them in rank order.
     * Fails at every member when one has failed or died. */
    lk_status (*exchange)(void *arg, const void *mine, size_t bytes, void *all);
    /* LK_OK while the job is whole; open calls it while it waits. */
    lk_status (*check)(void *arg);
    void *arg;
} lk_boot;

typedef struct lk_frame {
    lk_call call;
    uint32_t part;  /* phase of the call that it belongs to */
    uint64_t bytes; /* of the payload */
} lk_frame;

typedef struct lk_transport lk_transport;

typedef struct lk_transport_type {
    const char *name;
    const char *summary;
    /* Every member of the group calls it; when it fails for one, it fails for
     * all, within the timeout. */
    lk_status (*open)(const lk_boot *boot, lk_transport **out);
    /* Frees at once, whatever the others do. */
    void (*close)(lk_transport *transport);

    /* Optional: memory that peers read in place. Collective, as open. Without
     * it, plain memory is given. */
    lk_status (*alloc)(lk_transport *transport, size_t bytes, void **out);
    void (*free)(lk_transport *transport, void *block);

    /* Most bytes at `data` that one frame may carry; SIZE_MAX where there is no
     * limit (for memory that is read in place, too). */
    size_t (*max_frame)(const lk_transport *transport, const void *data, size_t bytes);
    /* Sends one frame to each of `count` distinct peers, none of them this rank.
     * frame is copied; data must not change until `sent` says so. *ticket is 0
     * when there was no room, and nothing was sent: try again after progress. */
    lk_status (*send)(lk_transport *transport, const int *peers, int count, const lk_frame *frame, const void *data,
                      uint64_t *ticket);
    /* Whether the data of that send may change: they were taken by all its
     * peers, or copied. */
    bool (*sent)(const lk_transport *transport, uint64_t ticket);
    /* Whether peer has taken every frame that was sent to it, or the kernel has. */
    bool (*taken)(const lk_transport *transport, int peer);

    /* The oldest frame from peer that was not released, or NULL. */
    const lk_frame *(*arrived)(lk_transport *transport, int peer);
    /* Its payload: *at is set to where it is, in place if it can be read there,
     * else in `into` (room for frame->bytes), once it is all there; until then
     * to NULL, and the next call must name the same `into`. A frame without
     * bytes has no payload. */
    lk_status (*payload)(lk_transport *transport, int peer, void *into, const void **at);
    /* Lets go of the oldest frame from peer, whose payload was taken. */
    void (*release)(lk_transport *transport, int peer);

    /* Moves bytes. PEER, naming the rank, when a peer cannot be reached any
     * more and its frames were all taken. */
    lk_status (*progress)(lk_transport *transport);
    /* Sleeps until something may have changed since the last progress, at most
     * for `seconds`; it may return early. Spins a little first. */
    void (*wait)(lk_transport *transport, double seconds);
} lk_transport_type;

/* Every implementation starts with this. */
struct lk_transport {
    const lk_transport_type *type;
};

/* Rows of the table, NULL after the last. */
const lk_transport_type *lk__transport_list(size_t index);
/* An unknown name lists the known ones. inproc has no name here: it is for
 * lk_group_create_threads alone. */
lk_status lk__transport_find(const char *name, const lk_transport_type **out) LK_CHECKED;

extern const lk_transport_type lk__transport_inproc; /* threads of one process */
extern const lk_transport_type lk__transport_shm;    /* processes of one host */
extern const lk_transport_type lk__transport_tcp;    /* any processes */
extern const lk_transport_type lk__transport_auto;   /* shm inside a host, tcp between */

#endif
