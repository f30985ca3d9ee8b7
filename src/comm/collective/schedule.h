/* schedule.h - which rank sends which range to which rank. Pure functions of numbers; no transport.
 *
 * A call is a list of phases. In a phase a rank sends spans of its vector to peers and receives spans from
 * peers. A received span is either copied to its offset in the output, or folded with this rank's own partial
 * sums over the tree of shards. The spans for one peer have the same order at both ranks; a FOLD phase has at
 * most one span for each peer. A rank may start a phase as soon as its own part of the previous phase is
 * done.
 *
 * Sums between hosts have two levels. Ranks first fold inside their host. Then rank j of every host folds
 * with the ranks j of the other hosts, so that each link between hosts carries one sum of a host. With one
 * host, or with one rank on each host, one level is empty. Then every rank owns a segment of the vector,
 * receives the partial sums of that segment from all ranks, folds them and sends the result to all ranks.
 *
 * Between many hosts that costs two messages for each pair of hosts. Vector halving (schedule_halving.c)
 * follows the tree from its leaves to its root instead, with one or two messages for each level of the tree. */
#ifndef LK_COMM_COLLECTIVE_SCHEDULE_H
#define LK_COMM_COLLECTIVE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>

#include <lockstep/group.h>

#include "base/status.h"

/* The hosts of the ranks. host[r] is the number of rank r's host; hosts are numbered from 0 in the order of
 * their first rank. */
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

/* Which shards the partial sums of a rank cover at a point of a schedule. */
typedef enum lk_schedule_level {
    LK_SCHEDULE_LEVEL_RANK, /* those of the rank */
    LK_SCHEDULE_LEVEL_HOST, /* those of the rank's host */
    LK_SCHEDULE_LEVEL_ALL,
    LK_SCHEDULE_LEVEL_BLOCK /* LK_SCHEDULE_LEVEL_BLOCK + h: those of the rank's block of 2^h hosts; blocks begin at
                               multiples of 2^h */
} lk_schedule_level;

typedef enum lk_schedule_phase_kind {
    LK_SCHEDULE_PHASE_KIND_COPY, /* received spans are copied to the output */
    LK_SCHEDULE_PHASE_KIND_FOLD  /* received partial sums are folded with this rank's own */
} lk_schedule_phase_kind;

/* One rank's part in a phase. Moves with an empty span are left out, except in a schedule for a barrier.
 * Moves are in the order of their peers, beginning after this rank and wrapping around, so that not all ranks
 * send to rank 0 first. */
typedef struct lk_schedule_phase {
    lk_schedule_phase_kind kind;
    int level;     /* of FOLD: lk_schedule_level of the inputs */
    int level_out; /* of FOLD: lk_schedule_level of the outputs */
    lk_span keep;  /* of FOLD: the span that this rank folds */
    int send_count, recv_count;
    lk_schedule_move *sends; /* (send_count) */
    lk_schedule_move *recvs; /* (recv_count) */
} lk_schedule_phase;

/* Vector halving between 2^12 hosts of several ranks: a fold and a copy for each level, and those in the host. */
enum { LK_MAX_PHASES = 2 * 12 + 2 };

typedef struct lk_schedule {
    int senders; /* ranks that send to one rank in a FOLD phase are at most this many, at all ranks */
    int phase_count;
    lk_schedule_phase phases[LK_MAX_PHASES];
} lk_schedule;

void lk__schedule_fini(lk_schedule *schedule);

/* Returns segment i of `count` elements that are divided evenly into `parts`. If every part has at least 32
 * elements, segments begin at multiples of 32, and the last segment has the remainder. */
lk_span lk__span_segment(size_t count, int parts, int i);
/* Returns an upper bound for the elements of any segment of a vector of at most `count` elements; a multiple
 * of 32. */
size_t lk__schedule_segment_most(size_t count, int parts);

/* Allreduce in one phase: every rank sends its whole vector to all ranks and folds all of them. For small
 * vectors. */
lk_status lk__schedule_exchange(const lk_schedule_topology *topology, int rank, size_t count,
                                lk_schedule *out) LK_CHECKED;
/* Allreduce in two levels: fold in the host, fold between hosts, allgather between hosts, allgather in the
 * host. */
lk_status lk__schedule_allreduce(const lk_schedule_topology *topology, int rank, size_t count,
                                 lk_schedule *out) LK_CHECKED;
/* Allreduce in two levels, with vector halving between hosts: fold in the host; for each level of the tree
 * over hosts a fold; the same way back with copies; allgather in the host. There are at least two
 * hosts, and they are even (lk__schedule_hosts_even). */
lk_status lk__schedule_halving(const lk_schedule_topology *topology, int rank, size_t count,
                               lk_schedule *out) LK_CHECKED;
/* Whether every block of 2^h hosts that begins at a multiple of 2^h covers one subtree: each host has the
 * same power of two of shards, in the order of the hosts, except that the last host may have fewer. */
bool lk__schedule_hosts_even(const lk_schedule_topology *topology, const int *bounds);
/* Rank r ends with spans[r] of the sum. The spans follow each other in rank order; an empty span is legal.
 * One phase if one level is empty; otherwise the two folds of allreduce, then a copy to the ranks that want
 * the parts. */
lk_status lk__schedule_reduce_scatter(const lk_schedule_topology *topology, int rank, const lk_span *spans,
                                      lk_schedule *out) LK_CHECKED;
/* Every rank ends with all spans. Each span is sent once to each other host, to one rank there, which
 * forwards it inside its host. `empty` keeps moves of empty spans (for a barrier), one for each peer and
 * phase. */
lk_status lk__schedule_allgather(const lk_schedule_topology *topology, int rank, const lk_span *spans, bool empty,
                                 lk_schedule *out) LK_CHECKED;
/* The sum at root. If `large`, a reduce-scatter and then a gather; otherwise all ranks send their vectors to
 * root. */
lk_status lk__schedule_reduce(const lk_schedule_topology *topology, int rank, size_t count, int root, bool large,
                              lk_schedule *out) LK_CHECKED;
/* Root's vector to all ranks. If `large` and there are several hosts, root sends segments to the ranks of the
 * other hosts, which allgather them, and the whole vector to the ranks of its own host. Otherwise an
 * allgather with one span. Nothing is sent to root. */
lk_status lk__schedule_broadcast(const lk_schedule_topology *topology, int rank, size_t count, int root, bool large,
                                 lk_schedule *out) LK_CHECKED;
/* One COPY phase, directly from rank to rank. spans: (size) of root's vector. */
lk_status lk__schedule_gather(const lk_schedule_topology *topology, int rank, const lk_span *spans, int root,
                              lk_schedule *out) LK_CHECKED;
lk_status lk__schedule_scatter(const lk_schedule_topology *topology, int rank, const lk_span *spans, int root,
                               lk_schedule *out) LK_CHECKED;
/* The sends are spans of the input, the receives are spans of the output. Empty spans are kept, because
 * sender and receiver compare the counts of each pair. */
lk_status lk__schedule_alltoall(const lk_schedule_topology *topology, int rank, const lk_span *send,
                                const lk_span *recv, lk_schedule *out) LK_CHECKED;

/* A subtree of the tree over bounds[size] shards. */
typedef struct lk_schedule_subtree {
    int first, last; /* shards */
} lk_schedule_subtree;
/* Writes the subtrees whose sums `rank` holds at a level: the maximal subtrees inside the shards that the level
 * covers. Returns the count, or -1 if it is larger than `room`. */
int lk__schedule_subtrees(const lk_schedule_topology *topology, const int *bounds, int level, int rank,
                          lk_schedule_subtree *out, int room);

#endif
