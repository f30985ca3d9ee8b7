/* tcp.h - the state of the tcp transport, shared by tcp_open.c, which connects, tcp.c, which moves frames,
 * and auto.c. */
#ifndef LK_COMM_TRANSPORT_TCP_H
#define LK_COMM_TRANSPORT_TCP_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/transport/frame.h"
#include "comm/transport/transport.h"

enum {
    LK_TCP_QUEUE = 64,         /* frames that may wait for the socket of one peer */
    LK_TCP_TICKETS = 1024,     /* sends that may be under way to all peers */
    LK_TCP_BUFFER = 32 * 1024, /* bytes read ahead from a peer */
    LK_TCP_OFFER_BYTES = 131   /* bytes that a rank sends to the others before they connect */
};

/* Which payloads have a checksum, in addition to small ones ($LOCKSTEP_CHECKSUM). */
typedef enum lk_tcp_checksum {
    LK_TCP_CHECKSUM_HOSTS, /* payloads to another host: the default */
    LK_TCP_CHECKSUM_ALL,
    LK_TCP_CHECKSUM_SMALL /* small payloads only */
} lk_tcp_checksum;

/* Reads the variable; USAGE for an unknown word. */
lk_status lk__tcp_checksum(lk_tcp_checksum *out) LK_CHECKED;

/* A frame that is being sent to one peer. */
typedef struct lk_tcp_entry {
    uint8_t header[LK_FRAME_BYTES];
    const uint8_t *data; /* the caller's */
    size_t bytes;        /* of data */
    size_t done;         /* bytes of header and data that are sent */
    uint64_t ticket;
} lk_tcp_entry;

/* A connection. buffer[head, tail) is received and not yet used. It begins with a header, or, if has_frame,
 * with the first part of the payload until that is copied to `into`. The rest of such a payload is read
 * directly into `into`. */
typedef struct lk_tcp_peer {
    int fd;              /* -1: no connection to this rank */
    lk_tcp_entry *queue; /* (LK_TCP_QUEUE) ring */
    size_t first, pending;
    uint8_t *buffer; /* (LK_TCP_BUFFER) aligned */
    size_t head, tail;
    lk_frame frame;
    uint64_t sum; /* checksum of its payload; 0: none, or verified */
    bool has_frame;
    uint8_t *into;
    size_t got;   /* bytes in `into` */
    bool awaited; /* a frame was requested and has not arrived */
    bool asked;   /* it was requested since the last progress */
    /* How the connection ended. Reading may still work after writing has failed. */
    bool read_ended, write_ended;
    bool garbage;        /* the peer sent something that is not a frame */
    const char *damaged; /* the part with a wrong checksum; NULL: none */
    int error;           /* errno; 0: the peer closed the connection */
} lk_tcp_peer;

typedef struct lk_tcp {
    lk_transport base;
    int rank, size;
    lk_member *members;            /* (size) */
    lk_tcp_peer *peers;            /* (size) */
    struct pollfd *polls;          /* (size) for wait */
    uint64_t next;                 /* ticket */
    uint16_t left[LK_TCP_TICKETS]; /* peers that a ticket's data are not sent to yet, at ticket % LK_TCP_TICKETS */
    lk_tcp_checksum checksum;      /* of frames that this rank sends */
    bool sums_large;               /* some of this rank's large payloads have a checksum */
    bool crowded;                  /* more ranks than cores on this host */
    uint8_t *offers;               /* (size, LK_TCP_OFFER_BYTES) used while connecting */
} lk_tcp;

/* Opens the transport without connections to the ranks r with skip[r]. skip may be NULL; two ranks must agree
 * about each other. */
lk_status lk__tcp_open(const lk_boot *boot, const bool *skip, lk_transport **out) LK_CHECKED;
/* Collective. Connects to all peers and sets their fd. Fails at all ranks or at none. */
lk_status lk__tcp_connect(lk_tcp *tcp, const lk_boot *boot, const bool *skip) LK_CHECKED;

/* Seconds to spin before sleeping. */
double lk__tcp_spin(const lk_tcp *tcp);
/* Tries to move bytes; returns whether something happened. */
bool lk__tcp_move(lk_tcp *tcp);
/* Whether a send to these peers would get a ticket. */
bool lk__tcp_has_room(const lk_tcp *tcp, const int *peers, int count);
/* Writes the sockets and events to wait for; fds has room for size. Returns their count. *now: a failure is
 * known already, so do not sleep. */
int lk__tcp_wanted(const lk_tcp *tcp, struct pollfd *fds, bool *now);

/* Collective. LK_OK if mine is LK_OK at all members; otherwise it fails at all. The detail of this rank's own
 * failure is kept; the other ranks' detail names what it failed at. */
lk_status lk__tcp_boot_agree(const lk_boot *boot, lk_status mine, const char *what) LK_CHECKED;

#endif
