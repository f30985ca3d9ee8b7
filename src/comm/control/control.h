/* control.h - a rank's connection to the server of its job.
 *
 * The server is a thread of rank 0; for thread ranks it is a table in memory. Through it ranks join, exchange
 * addresses, learn at once that a rank died, left or aborted, and report their calls when they have waited
 * for some time. From the reports the server finds ranks that disagree, even if no frame moves. */
#ifndef LK_COMM_CONTROL_CONTROL_H
#define LK_COMM_CONTROL_CONTROL_H

#include <lockstep/group.h>

#include "base/status.h"
#include "comm/call.h"
#include "comm/transport/transport.h"
#include "net/auth.h"

typedef struct lk_control lk_control;

/* Joins the job with the rendezvous of opts (rendezvous.h), or over world unless that is NULL. Blocks until all ranks
 * have joined. A notice every five seconds names the missing ranks and the time left; at the timeout it fails with that
 * list (PEER). */
lk_status lk__control_join(const lk_group_opts *opts, const lk_mpi_world *world, lk_control **out) LK_CHECKED;
/* Makes `count` connected controls for threads. Each is destroyed separately. */
lk_status lk__control_threads(int count, const lk_group_opts *opts, lk_control **out) LK_CHECKED;
/* Leaves the job: sends a goodbye and waits up to a second until the server has received it. At rank 0 it
 * blocks, with notices, until all ranks have left or died, because the server runs there. */
void lk__control_destroy(lk_control *control);

int lk__control_rank(const lk_control *control);
int lk__control_size(const lk_control *control);
const lk_member *lk__control_members(const lk_control *control); /* (size) */
const lk_token *lk__control_token(const lk_control *control);
double lk__control_timeout(const lk_control *control);
/* Calls the user's notice function, if there is one. */
void lk__control_notice(const lk_control *control, const char *text);

/* Sets a function that an exchange calls while it waits. It advances other work and returns whether some is
 * under way. */
void lk__control_set_idle(lk_control *control, bool (*idle)(void *arg), void *arg);

/* Every rank gives the same number of bytes, at most LK_EXCHANGE_BYTES, and gets those of all ranks in rank
 * order. Blocks. */
enum { LK_EXCHANGE_BYTES = 256 };
lk_status lk__control_exchange(lk_control *control, const void *mine, size_t bytes, void *all) LK_CHECKED;

/* LK_OK until the job fails; from then on always PEER (a rank died, left while others needed it, or aborted)
 * or MISMATCH (calls disagree), with the detail set again by each call. Never blocks, and is cheap enough for
 * a thousand calls a second. */
lk_status lk__control_check(lk_control *control) LK_CHECKED;
/* Sends a report to the server: this rank's latest calls, at most LK_HISTORY of them. The last one is the
 * call in which the rank waits. A rank reports after it has waited for some time. The server compares the
 * reports of all ranks: calls with equal group and number must be the same, except sends and receives, which
 * are not compared. A report without calls says that the wait is over. */
enum { LK_HISTORY = 64 };
void lk__control_report(lk_control *control, const lk_call *calls, int count);
/* absent[r] is 1 for the ranks that had not reported the last call of this rank's report when the server
 * received it, else 0. Such a rank is late, stopped or in another call, or has not waited long enough to
 * report. If the server has not answered a report for a second, only rank 0 is absent. */
void lk__control_absent(const lk_control *control, uint8_t *absent);
/* Whether the server's host has not acknowledged everything that this rank has sent. Either it will soon, or
 * check will say that rank 0 cannot be reached. */
bool lk__control_unacknowledged(const lk_control *control);
/* Aborts the job: check fails at every rank with this status and text, which should name this rank. */
void lk__control_abort(lk_control *control, lk_status status, const char *text);
/* Whether a rank has left with a goodbye. Frames that it has sent still arrive; a call that needs more of
 * them will fail. */
bool lk__control_left(const lk_control *control, int rank);

#endif
