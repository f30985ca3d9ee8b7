/* door.h - a listener, and the strangers who have come to it.
 *
 * Who gets in has proved the token, greeted as one of ours and sent a first
 * message of known length; what that says is not known here. Nothing waits:
 * strangers are bounded in number and time, and slow, silent or foreign ones
 * hold up nobody. Used by one thread at a time. */
#ifndef LK_COMM_DOOR_H
#define LK_COMM_DOOR_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/auth.h"

typedef struct lk_door lk_door;

typedef struct lk_door_opts {
    int listener; /* non-blocking */
    lk_token token;
    const char *greeting; /* both ends say it; it tells one kind of caller from another */
    size_t hello_bytes;   /* of the first message */
} lk_door_opts;

/* The door owns the listener from then on. */
lk_status lk__door_create(const lk_door_opts *opts, lk_door **out) LK_CHECKED;
void lk__door_destroy(lk_door *door);

/* What to wait for before the next call of lk__door_next; returns how many. */
enum { LK_DOOR_POLLS = 1 + 64 };
size_t lk__door_polls(const lk_door *door, struct pollfd polls[LK_DOOR_POLLS]);
/* Whether to call it by LK_DOOR_TICK milliseconds from now, come what may. */
enum { LK_DOOR_TICK = 100 };
bool lk__door_timed(const lk_door *door);
/* The connection of the next one who got in, the caller's from then on; hello
 * has its hello_bytes. -1: nobody now. */
int lk__door_next(lk_door *door, uint8_t *hello);

/* Why a caller was refused that speaks our protocol, but has another token or
 * version: the last one since the previous true. At most every LK_NOTICE_SECONDS
 * it is true, so that nobody can flood a log from outside. */
bool lk__door_refused(lk_door *door, char *text, size_t bytes);

/* The bytes of a greeting's text, which is shorter than them. */
void lk__door_greeting(const char *text, uint8_t greeting[LK_GREETING_BYTES]);

#endif
