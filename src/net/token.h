/* token.h - the key of a job: given by the user or a launcher, or derived from the user's own secret. */
#ifndef LK_NET_TOKEN_H
#define LK_NET_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "net/secret.h"

enum { LK_TOKEN_BYTES = 32 };

/* Where a token comes from. A message about a peer with another token depends on it. */
typedef enum lk_token_origin {
    LK_TOKEN_ORIGIN_GIVEN,  /* given by the user or a launcher, or drawn for this job */
    LK_TOKEN_ORIGIN_SECRET, /* derived from the user's secret (net/secret.h) */
    LK_TOKEN_ORIGIN_OPEN    /* derived from a text that anybody can guess */
} lk_token_origin;

typedef struct lk_token {
    uint8_t key[LK_TOKEN_BYTES];
    lk_token_origin origin;
} lk_token;

/* Makes a new random token, as a text of 64 hexadecimal digits. */
enum { LK_TOKEN_TEXT = LK_SECRET_TEXT };
lk_status lk__token_make(char text[LK_TOKEN_TEXT]) LK_CHECKED;
/* Makes a token from any text of at least one character. */
lk_status lk__token_from_text(const char *text, lk_token *out) LK_CHECKED;
/* Finds the token that the user gave: given (may be NULL), $LOCKSTEP_TOKEN, or the file $LOCKSTEP_TOKEN_FILE,
 * which nobody else may read or write (0600); newlines at its end are ignored. Empty variables count as unset.
 * If there is none, *found is false and out does not change. */
lk_status lk__token_find(const char *given, lk_token *out, bool *found) LK_CHECKED;
/* Finds where the token of a job comes from for which the user gave none: SECRET, or OPEN if $LOCKSTEP_INSECURE is 1.
 * USAGE if that variable is neither 0 nor 1. */
lk_status lk__token_origin_of_jobs(lk_token_origin *out) LK_CHECKED;
/* Makes the token of a job for which the user gave none, from the user's secret and `job`, a text that
 * distinguishes the user's jobs, or (OPEN) from `job` alone. */
lk_status lk__token_for_job(const char *job, lk_token *out) LK_CHECKED;

/* Writes "has another ...": in which way the peer of the connection fd may differ, and what to do about it.
 * server: this end accepted the connection. The text is for this end only: it is never sent to the peer. */
enum { LK_TOKEN_ADVICE = 448 };
void lk__token_advice(const lk_token *token, int fd, bool server, char text[LK_TOKEN_ADVICE]);

#endif
