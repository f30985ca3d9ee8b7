/* control.h - the thread that holds a job together, beside its data.
 *
 * Every rank keeps one connection to the server, a thread of rank 0 (for thread
 * ranks: a table in memory). Over it ranks meet, exchange addresses, learn at
 * once that a rank died, left or gave up, and report what they are doing when
 * they have waited for a while, so that the server can tell who disagrees with
 * whom although no frame moves. */
#ifndef LK_COMM_CONTROL_CONTROL_H
#define LK_COMM_CONTROL_CONTROL_H

#include <lockstep/group.h>

#include "base/status.h"
#include "comm/call.h"
#include "comm/transport/transport.h"
#include "net/auth.h"

typedef struct lk_control lk_control;

/* Meets all ranks as opts say (rendezvous.h). While it waits it gives a notice
 * every five seconds naming the ranks that are missing and the time left, and it
 * ends at the timeout with that list (PEER). */
lk_status lk__control_join(const lk_group_opts *opts, lk_control **out) LK_CHECKED;
/* count connected controls for threads; destroy each by itself. */
lk_status lk__control_threads(int count, const lk_group_opts *opts, lk_control **out) LK_CHECKED;
/* Leaves in good order: says goodbye first, and waits a moment for it to be
 * sent. Rank 0's server lives on until all ranks have left or died, and rank 0
 * waits for that, with notices. */
void lk__control_destroy(lk_control *control);

int lk__control_rank(const lk_control *control);
int lk__control_size(const lk_control *control);
const lk_member *lk__control_members(const lk_control *control); /* (size) */
const lk_token *lk__control_token(const lk_control *control);
double lk__control_timeout(const lk_control *control);
/* Gives text to the user's notice function, if there is one. */
void lk__control_notice(const lk_control *control, const char *text);

/* What an exchange does while it waits: idle moves what else is under way, and
 * says whether something is. */
void lk__control_set_idle(lk_control *control, bool (*idle)(void *arg), void *arg);

/* Every rank gives the same number of bytes, at most LK_EXCHANGE_BYTES; all
 * gets them in rank order. Blocks. */
enum { LK_EXCHANGE_BYTES = 256 };
lk_status lk__control_exchange(lk_control *control, const void *mine, size_t bytes, void *all) LK_CHECKED;

/* LK_OK while the job is whole; then, for good, PEER (a rank died, left while
 * others are there and needed it, or aborted) or MISMATCH (calls disagree), with
 * the detail set anew on each call. Never blocks; cheap enough to be called a
 * thousand times a second. */
lk_status lk__control_check(lk_control *control) LK_CHECKED;
/* This rank's latest calls (at most LK_HISTORY), the last of them the one that is
 * waited for: sent when it has waited for some time. The server compares them
 * with all other reports; calls of one group and number must be the same
 * (messages are left out). A report without calls says that the wait is over. */
enum { LK_HISTORY = 64 };
void lk__control_report(lk_control *control, const lk_call *calls, int count);
/* Which ranks had not reported the last call of this rank's report when that
 * reached the server: absent[r] is 1 for them, else 0. They are behind, stopped or
 * elsewhere, or have just not waited for long enough to report. Rank 0 alone, where
 * its server has not answered a report for a second. */
void lk__control_absent(const lk_control *control, uint8_t *absent);
/* Whether something that this rank has said has not come to the server's host: then
 * check will tell that rank 0 cannot be reached, or it will come. */
bool lk__control_unacknowledged(const lk_control *control);
/* Gives up for all: everybody's check fails with this status and text, which
 * should name this rank. */
void lk__control_abort(lk_control *control, lk_status status, const char *text);
/* Whether rank has left in good order. Its frames that are on the way still
 * arrive; a call that needs more of it will fail. */
bool lk__control_left(const lk_control *control, int rank);

#endif
