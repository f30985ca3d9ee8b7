/* server.h - the thread of rank 0 that every rank of a job is connected to.
 *
 * It lets in who comes through the acceptor, keeps the roster, and tells all what
 * changes. It never waits for anybody: what a slow rank has not read yet waits in
 * memory. */
#ifndef LK_COMM_CONTROL_SERVER_H
#define LK_COMM_CONTROL_SERVER_H

#include "comm/control/wire.h"
#include "net/acceptor.h"

typedef struct lk_server lk_server;

/* Ranks begin with a HELLO of that many bytes. */
enum { LK_SERVER_HELLO = LK_WIRE_HEAD + LK_WIRE_MEMBER };

typedef struct lk_server_opts {
    int size;
    lk_acceptor *acceptor; /* for all but rank 0, with LK_SERVER_HELLO */
    int own;               /* stream to rank 0, which needs no proof; its HELLO is already on the way */
    double timeout;        /* seconds; a host that vanished is noticed within it */
} lk_server_opts;

/* Starts the thread, which owns acceptor and stream from then on. */
lk_status lk__server_start(const lk_server_opts *opts, lk_server **out) LK_CHECKED;
/* Waits for the thread's end, which comes after rank 0 has left: when all others
 * are gone, or a moment later if the job is broken. Tells the user of control
 * every five seconds that it waits. */
void lk__server_join(lk_server *server, const lk_control *control);

#endif
