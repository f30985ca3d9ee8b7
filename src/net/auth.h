/* auth.h - how both ends of a connection prove that they have the job's token.
 *
 * Each end sends a magic, a nonce and a greeting, then a keyed hash over the bytes of both ends. So each end
 * learns that the other has the token and that the nonces and greetings were not changed. Nothing else is
 * read before. The token itself is never sent. The connecting end sends first and proves first: a peer
 * without the token gets no proof that it could use for guessing, and without the magic no answer at all. A
 * handshake is a state machine that never blocks. */
#ifndef LK_NET_AUTH_H
#define LK_NET_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "net/token.h"

enum { LK_GREETING_BYTES = 64 };

/* The magic is seven bytes and a version, which grows whenever the bytes that ranks exchange change their
 * meaning. */
enum { LK_WIRE_VERSION = 3, LK_MAGIC_BYTES = 8, LK_NONCE_BYTES = 32, LK_PROOF_BYTES = 32 };
enum {
    LK_HELLO_BYTES = LK_MAGIC_BYTES + LK_NONCE_BYTES + LK_GREETING_BYTES,
    LK_HANDSHAKE_BYTES = LK_HELLO_BYTES + LK_PROOF_BYTES
};

typedef enum lk_handshake_state {
    LK_HANDSHAKE_STATE_PENDING,
    LK_HANDSHAKE_STATE_DONE,
    LK_HANDSHAKE_STATE_FAILED
} lk_handshake_state;

/* State of a handshake; there is nothing to free. */
typedef struct lk_handshake {
    lk_token token;                   /* erased at the end */
    uint8_t sent[LK_HANDSHAKE_BYTES]; /* hello (magic, nonce, greeting), proof */
    uint8_t got[LK_HANDSHAKE_BYTES];
    size_t sent_bytes, got_bytes;
    bool server;
    bool proof_ready; /* `sent` has this end's proof */
    bool proved;      /* the peer's proof is right */
    lk_handshake_state state;
    lk_status
        status; /* why it FAILED: PEER closed, IO, FORMAT for another protocol, MISMATCH for another version or token */
} lk_handshake;

/* server: this end accepted the connection. greeting says to the peer who this end is; it is not encrypted. */
void lk__handshake_init(lk_handshake *shake, const lk_token *token, bool server,
                        const uint8_t greeting[LK_GREETING_BYTES]);
/* Advances as far as the non-blocking socket allows, and reads no byte after the handshake. FAILED: the peer
 * closed, uses another protocol or has another token, as the error detail says; the caller closes the socket. */
lk_handshake_state lk__handshake_step(lk_handshake *shake, int fd);
/* The events to wait for while PENDING: POLLIN, POLLOUT or both. */
short lk__handshake_events(const lk_handshake *shake);
/* The peer's greeting, after DONE. */
const uint8_t *lk__handshake_greeting(const lk_handshake *shake);
/* Blocks until DONE, FAILED (its status is returned) or the deadline on lk__clock() (PEER). */
lk_status lk__handshake_run(lk_handshake *shake, int fd, double deadline) LK_CHECKED;

#endif
