/* transport.h - moves frames between the ranks of one group.
 *
 * For each ordered pair of ranks, frames arrive complete, once, and in the order in which they were sent, or
 * the transport fails. A transport knows nothing about collectives.
 *
 * It needs no threads: polling alone makes progress. Payloads are in host memory; payloads in the memory of
 * devices use a channel (device_sums.h). Headers may be transferred separately from payloads: a library that
 * must know size and address before it receives gets them from `payload`.
 *
 * Only the slots open, close, alloc, free and wait may block. */
#ifndef LK_COMM_TRANSPORT_TRANSPORT_H
#define LK_COMM_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/call.h"
#include "comm/mpi/adopt.h"
#include "net/auth.h"
#include "net/host.h"

/* How the members of a group that is being created reach each other. */
typedef struct lk_boot {
    int rank, size;
    const lk_member *members; /* (size) */
    uint32_t group;
    lk_token token;
    double timeout;      /* seconds for all of open */
    bool progress;       /* a thread of the library will use the transport, too */
    lk_mpi_world *world; /* of a group over a communicator of the program; else NULL */
    /* Every member gives `bytes` bytes and gets those of all in rank order. Fails at every member when one
     * has failed or died. Blocks. */
    lk_status (*exchange)(void *arg, const void *mine, size_t bytes, void *all);
    /* LK_OK until the job fails. open calls it while it waits. */
    lk_status (*check)(void *arg);
    void *arg;
} lk_boot;

typedef struct lk_frame {
    lk_call call;
    uint32_t part;  /* phase of the call that the frame belongs to */
    uint64_t bytes; /* of the payload */
} lk_frame;

typedef struct lk_transport lk_transport;

typedef struct lk_transport_type {
    const char *name;
    const char *summary;
    /* Collective. When it fails at one rank, it fails at all, within the timeout. */
    lk_status (*open)(const lk_boot *boot, lk_transport **out);
    /* Frees without waiting for other ranks. */
    void (*close)(lk_transport *transport);

    /* Optional: memory that peers read in place. Collective, as open. Without these slots the group uses
     * plain memory. */
    lk_status (*alloc)(lk_transport *transport, size_t bytes, void **out);
    void (*free)(lk_transport *transport, void *block);
    /* Optional: bytes that the ranks of this host together can still get by alloc; without it there is no limit but the
     * host's memory. */
    size_t (*room)(const lk_transport *transport);

    /* Most bytes at `data` that one frame may carry; SIZE_MAX: no limit, also for memory that is read in
     * place. */
    size_t (*max_frame)(const lk_transport *transport, const void *data, size_t bytes);
    /* Sends one frame to each of `count` different peers, not to this rank. frame is copied. data must not
     * change until `sent` returns true. *ticket 0: there was no room and nothing was sent; try again after
     * progress. */
    lk_status (*send)(lk_transport *transport, const int *peers, int count, const lk_frame *frame, const void *data,
                      uint64_t *ticket);
    /* Whether the data of that send may change: all its peers have received them, or they were copied. */
    bool (*sent)(const lk_transport *transport, uint64_t ticket);
    /* Whether the peer, or the kernel, has received every frame that was sent to the peer. */
    bool (*taken)(const lk_transport *transport, int peer);

    /* Optional: the caller awaits a frame from peer, and its payload, of at most `room` bytes, will go to `into`. May
     * be called again before each `arrived`. A transport may then receive the payload before it knows the frame. Until
     * that frame is released, it may write anything to these bytes, which the payload then replaces. */
    void (*expect)(lk_transport *transport, int peer, void *into, size_t room);
    /* The oldest frame from peer that was not released, or NULL. Borrowed until release. */
    const lk_frame *(*arrived)(lk_transport *transport, int peer);
    /* The payload of that frame. *at is its address when it is complete: in place if possible, otherwise
     * `into` (room for frame->bytes). Until then *at is NULL, and the next call must give the same `into`. A
     * frame without bytes has no payload. */
    lk_status (*payload)(lk_transport *transport, int peer, void *into, const void **at);
    /* Releases the oldest frame from peer, after its payload was used. */
    void (*release)(lk_transport *transport, int peer);

    /* Moves bytes. PEER, with the rank in the detail, when a peer cannot be reached any more and all its
     * frames were received. */
    lk_status (*progress)(lk_transport *transport);
    /* Sleeps until something may have changed since the last progress, at most `seconds`. It may return
     * early. Spins for a short time first. */
    void (*wait)(lk_transport *transport, double seconds);
    /* Optional: an engine that sums in an order of its own. Collective: starts the sum of `count` floats over all
     * ranks, in place. The first call may block. The values must stay until `sent` returns true. */
    lk_status (*sum)(lk_transport *transport, float *values, size_t count, uint64_t *ticket);
    /* Optional: the group has failed, and only close follows. Does not block. */
    void (*failed)(lk_transport *transport);
} lk_transport_type;

/* Every implementation begins with this struct. */
struct lk_transport {
    const lk_transport_type *type;
};

/* Rows of the table of transports; NULL after the last. */
const lk_transport_type *lk__transport_list(size_t index);
/* An unknown name is USAGE with the list of names. inproc has no name here: only lk_group_create_threads uses
 * it. */
lk_status lk__transport_find(const char *name, const lk_transport_type **out) LK_CHECKED;

extern const lk_transport_type lk__transport_inproc; /* threads of one process */
extern const lk_transport_type lk__transport_shm;    /* processes of one host */
extern const lk_transport_type lk__transport_tcp;    /* any processes */
extern const lk_transport_type lk__transport_mpi;    /* processes of an MPI job */
extern const lk_transport_type lk__transport_auto;   /* shm on one host; else mpi, or shm and tcp */

#endif
