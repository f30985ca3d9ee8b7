/* server.h - the thread of rank 0 that every rank of a job is connected to.
 *
 * It lets in who proves the token, keeps the roster, and tells all what changes.
 * It never waits for anybody: strangers are bounded in number and time, and what
 * a slow rank has not read yet waits in memory. */
#ifndef LK_COMM_SERVER_H
#define LK_COMM_SERVER_H

#include "comm/auth.h"
#include "comm/control.h"

typedef struct lk_server lk_server;

typedef struct lk_server_opts {
    int size;
    int listener;    /* non-blocking */
    int own;         /* stream to rank 0, which needs no proof; its HELLO is already on the way */
    lk_token token;  /* to be proved by all others */
    double patience; /* seconds that it lives on for the others after rank 0 left */
} lk_server_opts;

/* What both ends of a control connection say in their handshake. */
void lk__server_greeting(uint8_t greeting[LK_GREETING_BYTES]);

/* Starts the thread, which owns both descriptors from then on. */
lk_status lk__server_start(const lk_server_opts *opts, lk_server **out) LK_CHECKED;
/* Waits for the thread's end, which comes after rank 0 has left: when all others
 * are gone or the patience has ended, or a moment later if the job is broken. */
void lk__server_join(lk_server *server);

#endif
