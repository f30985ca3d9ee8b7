/* roster.h - the state of a job as its server knows it: which ranks are present, left or were lost, their
 * parts of the exchange, their reported calls.
 *
 * Pure state: no sockets, no clock, no lock. The first failure becomes the verdict, which never changes. */
#ifndef LK_COMM_CONTROL_ROSTER_H
#define LK_COMM_CONTROL_ROSTER_H

#include "comm/control/control.h"

typedef struct lk_roster lk_roster;

lk_status lk__roster_create(int size, lk_roster **out) LK_CHECKED;
void lk__roster_destroy(lk_roster *roster);

/* A process joins as `rank` of a job of `size`. A process that does not fit is refused (MISMATCH or USAGE)
 * with a detail that names it and what it conflicts with. While ranks are missing, that is also the verdict
 * for all, since one of the processes was started wrongly and the job would never be complete. A second rank
 * 0 is refused without a verdict. */
lk_status lk__roster_join(lk_roster *roster, int rank, int size, const lk_member *member) LK_CHECKED;
bool lk__roster_complete(const lk_roster *roster);
const lk_member *lk__roster_members(const lk_roster *roster); /* (size) */
void lk__roster_set_address(lk_roster *roster, int rank, const char *address);

/* The rank left with a goodbye. This fails the job only if ranks have not joined yet, or if an exchange waits
 * for this rank. */
void lk__roster_leave(lk_roster *roster, int rank);
/* The rank was lost without a goodbye; how: "died". This fails the job unless no other rank is present. */
void lk__roster_lose(lk_roster *roster, int rank, const char *how);
void lk__roster_abort(lk_roster *roster, lk_status status, const char *text);
/* Replaces rank's report and compares it with all others. No calls: the rank no longer waits. */
void lk__roster_report(lk_roster *roster, int rank, const lk_call *calls, int count);

/* absent[r] is 1 for ranks that have not reported the last call of rank's report. A rank that reports another
 * call waits itself, so it is left out if some absent rank has no report at all. */
void lk__roster_absent(const lk_roster *roster, int rank, uint8_t *absent);

/* Adds rank's part of exchange `number` (from 0). Returns true when it was the last part. Then
 * lk__roster_parts has all parts until the exchange after the next begins. */
bool lk__roster_give(lk_roster *roster, int rank, uint32_t number, const void *data, size_t bytes);
const uint8_t *lk__roster_parts(const lk_roster *roster, uint32_t number); /* (size, bytes) */
/* awaited[r] is 1 for ranks that have not joined, or have not given their part of the current exchange; else
 * 0. Returns their count. */
int lk__roster_awaited(const lk_roster *roster, uint8_t *awaited);

/* LK_OK, or the failure of the job; *text is its reason. */
lk_status lk__roster_verdict(const lk_roster *roster, const char **text);

typedef enum lk_roster_presence {
    LK_ROSTER_PRESENCE_MISSING,
    LK_ROSTER_PRESENCE_HERE,
    LK_ROSTER_PRESENCE_LEFT,
    LK_ROSTER_PRESENCE_LOST
} lk_roster_presence;
lk_roster_presence lk__roster_presence(const lk_roster *roster, int rank);
int lk__roster_here(const lk_roster *roster);

#endif
