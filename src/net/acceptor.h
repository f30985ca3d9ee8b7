/* acceptor.h - a listener, and the strangers who have come to it.
 *
 * Who gets in has proved the token, greeted as one of ours and sent a first
 * message of known length; what that says is not known here. Nothing waits:
 * strangers are bounded in number and time, and slow, silent or foreign ones
 * hold up nobody. Used by one thread at a time. */
#ifndef LK_NET_ACCEPTOR_H
#define LK_NET_ACCEPTOR_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "net/auth.h"

typedef struct lk_acceptor lk_acceptor;

typedef struct lk_acceptor_opts {
    int listener; /* non-blocking */
    lk_token token;
    const char *greeting; /* both ends say it; it tells one kind of caller from another */
    size_t hello_bytes;   /* of the first message */
} lk_acceptor_opts;

/* The acceptor owns the listener from then on. */
lk_status lk__acceptor_create(const lk_acceptor_opts *opts, lk_acceptor **out) LK_CHECKED;
void lk__acceptor_destroy(lk_acceptor *acceptor);

/* What to wait for before the next call of lk__acceptor_next; returns how many. */
enum { LK_ACCEPTOR_POLLS = 1 + 64 };
size_t lk__acceptor_polls(const lk_acceptor *acceptor, struct pollfd polls[LK_ACCEPTOR_POLLS]);
/* Whether to call it by LK_ACCEPTOR_TICK milliseconds from now, come what may. */
enum { LK_ACCEPTOR_TICK = 100 };
bool lk__acceptor_timed(const lk_acceptor *acceptor);
/* The connection of the next one who got in, the caller's from then on; hello
 * has its hello_bytes. -1: nobody now. */
int lk__acceptor_next(lk_acceptor *acceptor, uint8_t *hello);

/* Why a caller was refused that speaks our protocol, but has another token or
 * version: the last one since the previous true. At most every LK_NOTICE_SECONDS
 * it is true, so that nobody can flood a log from outside. */
bool lk__acceptor_refused(lk_acceptor *acceptor, char *text, size_t bytes);

/* The bytes of a greeting's text, which is shorter than them. */
void lk__acceptor_greeting(const char *text, uint8_t greeting[LK_GREETING_BYTES]);

#endif
