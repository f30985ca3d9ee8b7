/* mpi_state.h - the state of the MPI transport, shared by mpi_open.c, which connects, and mpi.c, which moves frames. */
#ifndef LK_COMM_TRANSPORT_MPI_STATE_H
#define LK_COMM_TRANSPORT_MPI_STATE_H

#include "comm/mpi/adopt.h"
#include "comm/mpi/mpi.h"
#include "comm/transport/frame.h"
#include "comm/transport/guess.h"
#include "comm/transport/transport.h"

enum {
    LK_MPI_TICKETS = 1024, /* sends that may be under way */
    LK_MPI_NO_SLOT = LK_MPI_TICKETS
};

/* The first bytes of a frame, as they are in memory: all ranks run one build on one kind of machine, which
 * `magic` shows. Its size keeps the payload aligned. */
typedef struct lk_mpi_header {
    uint64_t magic;
    uint64_t sum; /* checksum of the frame and of the payload; 0: none */
    lk_frame frame;
} lk_mpi_header;
_Static_assert(sizeof(lk_mpi_header) == LK_FRAME_BYTES, "a header keeps its payload aligned");

typedef enum lk_mpi_inbox {
    LK_MPI_INBOX_IDLE,
    LK_MPI_INBOX_ASKED,  /* a receive of the next frame is posted */
    LK_MPI_INBOX_FRAME,  /* the frame is known */
    LK_MPI_INBOX_READING /* a receive of its payload is posted */
} lk_mpi_inbox;

typedef struct lk_mpi_peer {
    int rank;             /* MPI's */
    int tag_to, tag_from; /* of messages to the peer, and from it */
    int sending;          /* messages to the peer that are under way */
    lk_mpi_inbox state;
    lk_frame frame;        /* the oldest that was not released */
    uint64_t sum;          /* its checksum, until that was compared; 0: none */
    const void *at;        /* its payload; NULL: not complete */
    lk_mpi_header *buffer; /* (LK_MPI_SMALL bytes) */
    void *into;            /* where the payload of the next large frame goes; NULL: unknown */
    size_t room;           /* bytes there */
    void *posted;          /* where MPI receives the next frame */
    void *spare;           /* (spare_bytes) for a large payload whose place is unknown */
    size_t spare_bytes;
    const lk_frame *next; /* the predicted frame, in `from`, whose payload may come without a header; NULL: none */
    lk_frame_guess to, from;
} lk_mpi_peer;

/* A frame that is being sent. */
typedef struct lk_mpi_slot {
    uint64_t ticket;
    int left;             /* messages under way */
    int next;             /* free slot */
    lk_mpi_header *stage; /* (LK_MPI_SMALL bytes) the header and a small payload */
} lk_mpi_slot;

/* What a request belongs to. */
typedef struct lk_mpi_live {
    int peer;
    int slot; /* LK_MPI_NO_SLOT: a receive */
} lk_mpi_live;

typedef struct lk_mpi_transport {
    lk_transport base;
    const lk_mpi *mpi;
    lk_mpi_world *world; /* of a group over the program's communicator; else NULL */
    lk_mpi_comm comm;
    int rank, size;
    lk_member *members; /* (size) */
    lk_mpi_peer *peers; /* (size) */
    lk_mpi_slot slots[LK_MPI_TICKETS];
    int free_slot;
    uint64_t sends;
    lk_mpi_request *requests; /* (room) all that is under way */
    lk_mpi_live *lives;       /* (room) */
    lk_mpi_done *done;        /* (room) */
    int count, room;
    lk_status status; /* MEMORY: there was none for a receive */
    int error;        /* MPI's code of a failed call; 0: none */
    int garbage;      /* the rank that sent something else than a frame; -1: none */
    bool crowded;     /* more ranks than cores on this host */
    bool sums;        /* payloads have checksums */
    double still_since, last_wait;
    double timeout; /* seconds */
    lk_mpi_set set; /* the processes of the group, for sums of MPI; 0: no sum was made */
    int sum_tag;    /* the same at all ranks */
    bool shares;    /* a process has several ranks */
} lk_mpi_transport;

/* Makes room for so many more requests. */
lk_status lk__mpi_transport_room(lk_mpi_transport *t, int more) LK_CHECKED;
/* The slots open and close of the transport. */
lk_status lk__mpi_transport_open(const lk_boot *boot, lk_transport **out) LK_CHECKED;
void lk__mpi_transport_close(lk_transport *transport);

#endif
