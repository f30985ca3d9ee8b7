/* tcp.h - the tcp transport from inside: its state, shared by the file that
 * connects and the one that moves frames, and what auto needs beyond the vtable. */
#ifndef LK_COMM_TRANSPORT_TCP_H
#define LK_COMM_TRANSPORT_TCP_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/transport/frame.h"
#include "comm/transport/transport.h"

enum {
    LK_TCP_QUEUE = 64,         /* frames that may wait for one peer's socket */
    LK_TCP_TICKETS = 1024,     /* sends that may be under way in all */
    LK_TCP_BUFFER = 32 * 1024, /* bytes read ahead from a peer */
    LK_TCP_OFFER_BYTES = 131   /* what a rank tells the others before they connect */
};

/* Which payloads have a checksum, besides small ones; $LOCKSTEP_CHECKSUM. */
typedef enum lk_tcp_checksum {
    LK_CHECKSUM_HOSTS, /* those to another host: the default */
    LK_CHECKSUM_ALL,
    LK_CHECKSUM_SMALL /* no others */
} lk_tcp_checksum;

/* What the variable says; USAGE for another word. */
lk_status lk__tcp_checksum(lk_tcp_checksum *out) LK_CHECKED;

/* A frame on its way to one peer. */
typedef struct lk_tcp_entry {
    uint8_t header[LK_FRAME_BYTES];
    const uint8_t *data; /* the caller's */
    size_t bytes;        /* of data */
    size_t done;         /* of header and data, in that order */
    uint64_t ticket;
} lk_tcp_entry;

/* Receiving: buffer[head, tail) was read and not yet taken. It begins with a
 * header, or, while has_frame is set, with what was read of the payload, until
 * that is moved to `into`; the rest of the payload is then read to its place. */
typedef struct lk_tcp_peer {
    int fd;              /* -1: no connection to this rank */
    lk_tcp_entry *queue; /* (LK_TCP_QUEUE) ring */
    size_t first, pending;
    uint8_t *buffer; /* (LK_TCP_BUFFER) aligned */
    size_t head, tail;
    lk_frame frame;
    uint64_t sum; /* checksum of its payload, 0: none, or found right */
    bool has_frame;
    uint8_t *into;
    size_t got;   /* bytes in `into` */
    bool awaited; /* a frame was asked for and has not come */
    bool asked;   /* so since the last progress */
    /* How the connection ended. Reading may go on after writing failed. */
    bool read_ended, write_ended;
    bool garbage;        /* it sent what is not a frame */
    const char *damaged; /* what changed on the way; NULL: nothing */
    int error;           /* errno, 0 when it was closed */
} lk_tcp_peer;

typedef struct lk_tcp {
    lk_transport base;
    int rank, size;
    lk_member *members;            /* (size) */
    lk_tcp_peer *peers;            /* (size) */
    struct pollfd *polls;          /* (size) for wait */
    uint64_t next;                 /* ticket */
    uint16_t left[LK_TCP_TICKETS]; /* peers that a ticket still waits for, at ticket % LK_TCP_TICKETS */
    lk_tcp_checksum checksum;      /* of frames that this rank sends */
    bool sums_large;               /* some of its large payloads have one */
    bool crowded;                  /* more ranks on this host than cores */
    uint8_t *offers;               /* (size, LK_TCP_OFFER_BYTES) used while connecting */
} lk_tcp;

/* The transport's open, without connections to the ranks r with skip[r]; skip
 * may be NULL. It must be symmetric. */
lk_status lk__tcp_open(const lk_boot *boot, const bool *skip, lk_transport **out) LK_CHECKED;
/* Connects to all peers; fails at all ranks or at none. Sets their fd. */
lk_status lk__tcp_connect(lk_tcp *tcp, const lk_boot *boot, const bool *skip) LK_CHECKED;

/* How long to spin before sleeping. */
double lk__tcp_spin(const lk_tcp *tcp);
/* Tries to move bytes; whether something happened. */
bool lk__tcp_move(lk_tcp *tcp);
/* Whether a send to these peers would get a ticket. */
bool lk__tcp_has_room(const lk_tcp *tcp, const int *peers, int count);
/* The sockets that something is awaited from, and the events; fds has room for
 * size. *now tells that a failure is known already and sleep would be in vain. */
int lk__tcp_wanted(const lk_tcp *tcp, struct pollfd *fds, bool *now);

/* LK_OK where all members said so, else a failure at every one. mine is this
 * rank's status, whose detail is kept; what it failed at is told to the others. */
lk_status lk__tcp_boot_agree(const lk_boot *boot, lk_status mine, const char *what) LK_CHECKED;

#endif
