/* program.h - what one rank does in a call, computed once and kept.
 *
 * A program is the rank's schedule with the multicasts and fold plans that follow from it and from the shards
 * of the ranks. It has no data and no transport. Calls with equal keys share a program. */
#ifndef LK_COMM_COLLECTIVE_PROGRAM_H
#define LK_COMM_COLLECTIVE_PROGRAM_H

#include "comm/call.h"
#include "comm/collective/fold.h"
#include "comm/collective/schedule.h"

/* The detail of a message's key. The root of its key is the peer. */
enum { LK_MESSAGE_RECV = 1, LK_MESSAGE_SEND = 2 };

/* Equal keys give equal programs. */
typedef struct lk_program_key {
    lk_call_kind kind;
    size_t element; /* bytes */
    size_t count;
    int root;
    uint64_t detail; /* hash of this rank's bounds or counts */
} lk_program_key;

/* What a program is made from. Fields that a kind does not use are NULL. */
typedef struct lk_program_input {
    const lk_schedule_topology *topology;
    int rank;
    const int *bounds;    /* of sums: (size + 1) bounds of the shards of each rank; NULL: one shard for each rank */
    const lk_span *spans; /* (size) of reduce_scatter, allgather, gather and scatter; of alltoall: of the input */
    const lk_span *recv_spans; /* (size) of alltoall: of the output */
    bool segments;             /* allreduce always divides the vector into one segment for each rank */
} lk_program_input;

/* One span sent to several peers. */
typedef struct lk_multicast {
    lk_span span;
    int count;
    int *peers; /* (count) */
} lk_multicast;

/* What a phase needs in addition to the schedule. */
typedef struct lk_program_phase {
    int multicast_count;
    lk_multicast *multicasts;
    /* Of FOLD: the inputs are this rank's own vectors, then those of each receive in order. The plan makes
     * `out` vectors of them. */
    int own, out;
    bool sends_kept;    /* a send overlaps `keep`: this rank must not overwrite `keep` before the peers have read it */
    int *recv_partials; /* (recv_count) number of vectors from each peer */
    int *recv_first;    /* (recv_count) index of the peer's first vector among the inputs */
    int inputs;         /* number of all inputs */
    lk_fold_plan *plan;
} lk_program_phase;

typedef struct lk_program {
    lk_program_key key;
    int users; /* calls that use it, and the cache */
    int shards;
    lk_schedule schedule;
    lk_program_phase phases[LK_MAX_PHASES];
    int max_multicasts, max_recvs, max_inputs;
    size_t fold_frame; /* most elements of a frame that is folded; equal at all ranks */
    /* Partial sums that are neither inputs nor results are kept in one buffer: `stored` elements, for each vector
     * those of the span `store`. */
    lk_span store;
    size_t stored;
} lk_program;

lk_status lk__program_create(const lk_program_key *key, const lk_program_input *input, lk_program **out) LK_CHECKED;
/* Drops one user; frees the program with the last one. */
void lk__program_release(lk_program *program);

/* The programs that were made last. A zeroed struct is an empty cache. */
typedef struct lk_program_cache {
    size_t room;       /* programs that are kept; 0: 32 */
    lk_program **rows; /* (room) or NULL */
    size_t next;       /* row that is replaced next */
} lk_program_cache;

/* Finds the program in the cache, or makes it. The caller becomes a user and must release it. */
lk_status lk__program_find(lk_program_cache *cache, const lk_program_key *key, const lk_program_input *input,
                           lk_program **out) LK_CHECKED;
void lk__program_cache_fini(lk_program_cache *cache);

#endif
