/* acceptor.h - a listener and the connections that it has accepted but not authenticated yet.
 *
 * A connection is admitted when it has proved the token, sent the right greeting and a first message of known
 * length. The content of that message is not known here. Nothing blocks: unauthenticated connections are
 * limited in number and time, so slow, silent or foreign ones delay nobody. Used by one thread at a time. */
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
    const char *greeting; /* both ends send it; it distinguishes kinds of connections */
    size_t hello_bytes;   /* bytes of the first message */
} lk_acceptor_opts;

/* The acceptor owns the listener from then on. */
lk_status lk__acceptor_create(const lk_acceptor_opts *opts, lk_acceptor **out) LK_CHECKED;
void lk__acceptor_destroy(lk_acceptor *acceptor);

/* Writes the events to wait for before the next lk__acceptor_next; returns their count. */
enum { LK_ACCEPTOR_POLLS = 1 + 64 };
size_t lk__acceptor_polls(const lk_acceptor *acceptor, struct pollfd polls[LK_ACCEPTOR_POLLS]);
/* Whether lk__acceptor_next must be called after at most LK_ACCEPTOR_TICK milliseconds, also without an
 * event. */
enum { LK_ACCEPTOR_TICK = 100 };
bool lk__acceptor_timed(const lk_acceptor *acceptor);
/* Returns the next admitted connection, which the caller owns from then on; hello gets its hello_bytes. -1:
 * none now. */
int lk__acceptor_next(lk_acceptor *acceptor, uint8_t *hello);

/* Writes why the last connection was refused that speaks Lockstep's protocol with another token or version.
 * Returns true at most once in LK_NOTICE_SECONDS, so that nobody can flood a log from outside. */
bool lk__acceptor_refused(lk_acceptor *acceptor, char *text, size_t bytes);

/* Makes a greeting from a text that is shorter than LK_GREETING_BYTES. */
void lk__acceptor_greeting(const char *text, uint8_t greeting[LK_GREETING_BYTES]);

#endif
