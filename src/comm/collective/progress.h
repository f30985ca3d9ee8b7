/* progress.h - the turn of a job's groups, and the thread that advances requests while the caller computes.
 *
 * All groups of a job at one rank share one state, which one thread at a time may use. Without a progress
 * thread that is the caller's thread, and a turn costs nothing. With one, every public call takes the turn for
 * as long as it lasts, and the progress thread takes it in between, for one pass over the requests. */
#ifndef LK_COMM_COLLECTIVE_PROGRESS_H
#define LK_COMM_COLLECTIVE_PROGRESS_H

#include "comm/collective/group_impl.h"

/* Whether a job gets a progress thread: asked for by the options, or by $LOCKSTEP_PROGRESS_THREAD, which is 0
 * or 1. */
lk_status lk__progress_wanted(const lk_group_opts *opts, bool *out) LK_CHECKED;

/* Starts the thread. whole is the group of the whole job. */
lk_status lk__progress_create(lk_group *whole, lk_progress **out) LK_CHECKED;
/* Ends the thread, after the pass that it is in. The caller must not have the turn. Ignores NULL. */
void lk__progress_destroy(lk_progress *progress);

/* Takes and gives the turn of the group's job. A thread that has the turn may take it again. A process that was
 * forked later has no progress thread, so there both do nothing. */
void lk__progress_take(const lk_group *group);
void lk__progress_give(const lk_group *group);
/* Tells the thread that a request is under way. The caller has the turn. */
void lk__progress_wake(const lk_group *group);

#endif
