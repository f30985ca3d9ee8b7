/* schedule.h - who sends what to whom: pure functions of numbers, no transport.
 *
 * A call is a list of phases. In a phase a rank sends spans of its vector to
 * peers and takes spans from peers; what it takes is either put in place or
 * folded with what it holds itself, over the canonical tree. Spans for one peer
 * are listed in the same order on both sides; a fold has at most one. A phase
 * may start as soon as the rank's own part of the one before is done.
 *
 * Sums between hosts take two levels: ranks fold inside their host first, then
 * rank j of every host folds with the ranks j of the other hosts, so that only
 * one host's sum crosses a link. With one host, or with one rank a host, a level
 * is empty, and what remains is one exchange: every rank owns a segment, gets
 * everybody's part of it, folds, and hands out the result. */
#ifndef LK_COMM_COLLECTIVE_SCHEDULE_H
#define LK_COMM_COLLECTIVE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>

#include <lockstep/group.h>

#include "base/status.h"

/* Where the ranks are. host[r] counts hosts from 0 in order of their first rank. */
typedef struct lk_schedule_topology {
    int size;
    int hosts;
    const int *host; /* (size) */
} lk_schedule_topology;

/* Elements [first, first+count) of a call's vector. */
typedef struct lk_span {
    size_t first, count;
} lk_span;

typedef struct lk_schedule_move {
    int peer;
    lk_span span;
} lk_schedule_move;

typedef enum lk_schedule_phase_kind {
    LK_PHASE_COPY, /* what arrives goes to its place in the output */
    LK_PHASE_FOLD  /* what arrives is folded with this rank's own */
} lk_schedule_phase_kind;

/* One rank's part in a phase. Moves with an empty span are left out, unless the
 * schedule is made for a barrier. Moves are in order of their peers, beginning
 * after this rank and wrapping around, so that not all talk to rank 0 first. */
typedef struct lk_schedule_phase {
    lk_schedule_phase_kind kind;
    int level;     /* of FOLD: whose shards the sums cover so far: 0 each rank its own, 1 each its host's */
    int level_out; /* after it: 1 its host's, 2 all */
    lk_span keep;  /* of FOLD: the span that this rank folds */
    int send_count, recv_count;
    lk_schedule_move *sends; /* (send_count) */
    lk_schedule_move *recvs; /* (recv_count) */
} lk_schedule_phase;

enum { LK_MAX_PHASES = 6 };

typedef struct lk_schedule {
    int phase_count;
    lk_schedule_phase phases[LK_MAX_PHASES];
} lk_schedule;

void lk__schedule_fini(lk_schedule *schedule);

/* As even as can be: segment i of count elements cut in parts. Where there are
 * 32 elements a part, segments begin at multiples of 32, and the last one takes
 * the rest. */
lk_span lk__span_segment(size_t count, int parts, int i);
/* Elements that a segment of at most so many has at most, a multiple of 32. */
size_t lk__schedule_segment_most(size_t count, int parts);

/* Every rank sends all to all and folds all: one hop, for small vectors. */
lk_status lk__schedule_exchange(const lk_schedule_topology *topology, int rank, size_t count,
                                lk_schedule *out) LK_CHECKED;
/* Sum to all in two levels: fold in the host, fold between hosts, place between
 * hosts, place in the host. */
lk_status lk__schedule_allreduce(const lk_schedule_topology *topology, int rank, size_t count,
                                 lk_schedule *out) LK_CHECKED;
/* Rank r ends with spans[r] of the sum; spans lie side by side in rank order
 * (an empty one is legal). One exchange where one level is empty; else the
 * levels of allreduce, then a move to the right places. */
lk_status lk__schedule_reduce_scatter(const lk_schedule_topology *topology, int rank, const lk_span *spans,
                                      lk_schedule *out) LK_CHECKED;
/* Every rank ends with all spans; between hosts each span crosses once to each
 * other host, to one of its ranks, which hands it on. `empty` keeps moves with
 * nothing in them (barrier), one a peer and phase. */
lk_status lk__schedule_allgather(const lk_schedule_topology *topology, int rank, const lk_span *spans, bool empty,
                                 lk_schedule *out) LK_CHECKED;
/* Sum at root: for small vectors all send to root; for large ones a
 * reduce-scatter, then a gather. `large` chooses. */
lk_status lk__schedule_reduce(const lk_schedule_topology *topology, int rank, size_t count, int root, bool large,
                              lk_schedule *out) LK_CHECKED;
/* root's vector to all: for small ones (and inside a host) an allgather with one
 * span; for large ones root hands out segments to the ranks of other hosts, and
 * those gather; its own host gets all from root. Nothing is sent to root. */
lk_status lk__schedule_broadcast(const lk_schedule_topology *topology, int rank, size_t count, int root, bool large,
                                 lk_schedule *out) LK_CHECKED;
/* One phase of PLACE, straight from rank to rank. spans: (size) of root's
 * vector. */
lk_status lk__schedule_gather(const lk_schedule_topology *topology, int rank, const lk_span *spans, int root,
                              lk_schedule *out) LK_CHECKED;
lk_status lk__schedule_scatter(const lk_schedule_topology *topology, int rank, const lk_span *spans, int root,
                               lk_schedule *out) LK_CHECKED;
/* sends of the phase are spans of the input, recvs spans of the output; empty ones
 * are kept, since the counts of each pair are checked when they meet. */
lk_status lk__schedule_alltoall(const lk_schedule_topology *topology, int rank, const lk_span *send,
                                const lk_span *recv, lk_schedule *out) LK_CHECKED;

/* Which subtrees the ranks hold at a level: the maximal subtrees of the tree over
 * bounds[size] shards inside rank's own range (level 0), inside the union of the
 * ranges of its host's ranks (level 1), or the whole tree (level 2). */
typedef struct lk_schedule_subtree {
    int first, last; /* shards */
} lk_schedule_subtree;
/* Returns how many there are; out has room for `room`. -1 when that is too
 * little. */
int lk__schedule_subtrees(const lk_schedule_topology *topology, const int *bounds, int level, int rank,
                          lk_schedule_subtree *out, int room);

#endif
