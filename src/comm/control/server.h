/* server.h - the thread of rank 0 to which every rank of a job is connected.
 *
 * It admits ranks that the acceptor has authenticated, keeps the roster, and sends changes to all ranks. It
 * never blocks on a rank: messages that a slow rank has not read wait in memory. */
#ifndef LK_COMM_CONTROL_SERVER_H
#define LK_COMM_CONTROL_SERVER_H

#include "comm/control/wire.h"
#include "net/acceptor.h"

typedef struct lk_server lk_server;

/* Bytes of the HELLO that every rank sends first. */
enum { LK_SERVER_HELLO = LK_WIRE_HEAD + LK_WIRE_MEMBER };

typedef struct lk_server_opts {
    int size;
    lk_acceptor *acceptor; /* for all ranks except rank 0; made with LK_SERVER_HELLO */
    int own;               /* socket to rank 0, which needs no authentication and has sent its HELLO */
    double timeout;        /* seconds within which a vanished host is noticed */
    const char *exits;     /* of the meeting, which must outlive the server; "": none */
    int threads;           /* ranks of each process */
} lk_server_opts;

/* Starts the thread, which then owns acceptor and socket. */
lk_status lk__server_start(const lk_server_opts *opts, lk_server **out) LK_CHECKED;
/* Blocks until the thread ends and frees the server. The thread ends after rank 0 has left: when all others
 * have left or died, or a second later if the job has failed. Gives a notice through control every five
 * seconds. */
void lk__server_join(lk_server *server, const lk_control *control);

#endif
