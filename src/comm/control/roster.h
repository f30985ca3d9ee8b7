/* roster.h - the state of a job as its server knows it: who is there, who left
 * or was lost, who gave what to an exchange, who reported which calls.
 *
 * Pure state: no sockets, no clock, no lock. The first thing that goes wrong
 * becomes the verdict, which stays. */
#ifndef LK_COMM_CONTROL_ROSTER_H
#define LK_COMM_CONTROL_ROSTER_H

#include "comm/control/control.h"

typedef struct lk_roster lk_roster;

lk_status lk__roster_create(int size, lk_roster **out) LK_CHECKED;
void lk__roster_destroy(lk_roster *roster);

/* A process comes as rank of a job of `size`. One that does not fit is refused
 * (MISMATCH or USAGE), with a detail that names it and what it collides with;
 * while ranks are still missing that is the verdict for all, too: one of the
 * two was started wrongly, and the job would wait in vain. A second rank 0 is
 * refused alone. */
lk_status lk__roster_join(lk_roster *roster, int rank, int size, const lk_member *member) LK_CHECKED;
bool lk__roster_complete(const lk_roster *roster);
const lk_member *lk__roster_members(const lk_roster *roster); /* (size) */
void lk__roster_set_address(lk_roster *roster, int rank, const char *address);

/* In good order. It breaks the job only while ranks are missing, or when an
 * exchange still waits for this rank. */
void lk__roster_leave(lk_roster *roster, int rank);
/* Without goodbye; how: "died". Breaks the job unless nobody else is left. */
void lk__roster_lose(lk_roster *roster, int rank, const char *how);
void lk__roster_abort(lk_roster *roster, lk_status status, const char *text);
/* Replaces rank's report and compares it with all others. No calls: rank no longer waits. */
void lk__roster_report(lk_roster *roster, int rank, const lk_call *calls, int count);

/* Which ranks have not reported the last call of rank's report: absent[r] is 1 for
 * them. A rank that reports another call waits itself, so it is left out where some
 * rank has no report at all. */
void lk__roster_absent(const lk_roster *roster, int rank, uint8_t *absent);

/* Rank's part of exchange `number` (from 0). True when it was the last one:
 * then all parts are at lk__roster_parts(roster, number) until the exchange
 * after the next begins. */
bool lk__roster_give(lk_roster *roster, int rank, uint32_t number, const void *data, size_t bytes);
const uint8_t *lk__roster_parts(const lk_roster *roster, uint32_t number); /* (size, bytes) */
/* Who is awaited: ranks that have not joined, or have not given to the exchange
 * under way. awaited[r] is 1 for them, else 0; returns how many. */
int lk__roster_awaited(const lk_roster *roster, uint8_t *awaited);

/* LK_OK, or what broke the job and its text. */
lk_status lk__roster_verdict(const lk_roster *roster, const char **text);

typedef enum lk_roster_presence {
    LK_PRESENCE_MISSING,
    LK_PRESENCE_HERE,
    LK_PRESENCE_LEFT,
    LK_PRESENCE_LOST
} lk_roster_presence;
lk_roster_presence lk__roster_presence(const lk_roster *roster, int rank);
int lk__roster_here(const lk_roster *roster);

#endif
