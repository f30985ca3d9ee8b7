/* auth.h - the job's token, and proving it on a connection.
 *
 * Both ends send a magic, a nonce and a greeting, then a keyed hash over all of
 * that from both ends: each learns that the other has the token, and that nonce
 * and greeting are its own. Nothing else is read before that. The token never
 * travels. The end that connected speaks first and proves first, so a stranger
 * gets no proof to guess at, and without the magic no answer at all. A handshake
 * is a state machine that never blocks, so a slow or silent client holds up
 * nobody. */
#ifndef LK_NET_AUTH_H
#define LK_NET_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { LK_TOKEN_BYTES = 32, LK_GREETING_BYTES = 64 };

typedef struct lk_token {
    uint8_t key[LK_TOKEN_BYTES];
} lk_token;

/* A new secret, as text of 64 hexadecimal digits. */
enum { LK_TOKEN_TEXT = 65 };
lk_status lk__token_make(char text[LK_TOKEN_TEXT]) LK_CHECKED;
/* Any text of at least one character becomes a token. */
lk_status lk__token_from_text(const char *text, lk_token *out) LK_CHECKED;
/* The user's token: given (may be NULL), $LOCKSTEP_TOKEN, or the file
 * $LOCKSTEP_TOKEN_FILE, which nobody else may read or write (0600); newlines at
 * its end do not count. Empty variables count as unset. *found is false, and out
 * untouched, when there is none. */
lk_status lk__token_find(const char *given, lk_token *out, bool *found) LK_CHECKED;

/* The magic is seven bytes and a version, which grows whenever the bytes that
 * ranks exchange change their meaning. */
enum { LK_WIRE_VERSION = 2, LK_MAGIC_BYTES = 8, LK_NONCE_BYTES = 32, LK_PROOF_BYTES = 32 };
enum {
    LK_HELLO_BYTES = LK_MAGIC_BYTES + LK_NONCE_BYTES + LK_GREETING_BYTES,
    LK_HANDSHAKE_BYTES = LK_HELLO_BYTES + LK_PROOF_BYTES
};

typedef enum lk_handshake_state { LK_HANDSHAKE_PENDING, LK_HANDSHAKE_DONE, LK_HANDSHAKE_FAILED } lk_handshake_state;

/* Fits into a connection's own struct; nothing to free. */
typedef struct lk_handshake {
    lk_token token;                   /* wiped at the end */
    uint8_t sent[LK_HANDSHAKE_BYTES]; /* hello (magic, nonce, greeting), proof */
    uint8_t got[LK_HANDSHAKE_BYTES];
    size_t sent_bytes, got_bytes;
    bool server;
    bool proof_ready; /* the proof in sent is made */
    bool proved;      /* the peer's proof is right */
    lk_handshake_state state;
    lk_status status; /* why it FAILED: PEER closed, IO, FORMAT for a foreign
                       * protocol, MISMATCH for another version or token */
} lk_handshake;

/* server: the end that accepted. greeting tells the peer who this is; it can be
 * read by anybody on the way. */
void lk__handshake_init(lk_handshake *shake, const lk_token *token, bool server,
                        const uint8_t greeting[LK_GREETING_BYTES]);
/* Goes on as far as the non-blocking socket allows, and reads no byte beyond the
 * handshake. FAILED: the peer closed, spoke something else or has another token
 * (the error detail tells which); close the socket then. */
lk_handshake_state lk__handshake_step(lk_handshake *shake, int fd);
/* What to wait for while PENDING: POLLIN, POLLOUT or both. */
short lk__handshake_events(const lk_handshake *shake);
/* The peer's greeting, once DONE. */
const uint8_t *lk__handshake_greeting(const lk_handshake *shake);
/* Steps until DONE, FAILED (its status is returned) or the deadline on
 * lk__clock() (PEER). */
lk_status lk__handshake_run(lk_handshake *shake, int fd, double deadline) LK_CHECKED;

#endif
