/* program.h - what one rank does in a call, worked out once and kept.
 *
 * A program is the rank's schedule with all that follows from it and from the
 * shards that the ranks hold. It knows no data and no transport; calls with the
 * same numbers share it. */
#ifndef LK_COMM_COLLECTIVE_PROGRAM_H
#define LK_COMM_COLLECTIVE_PROGRAM_H

#include "comm/call.h"
#include "comm/collective/fold.h"
#include "comm/collective/schedule.h"

/* The detail of a message's key; its root is the peer. */
enum { LK_MESSAGE_RECV = 1, LK_MESSAGE_SEND = 2 };

/* Calls with equal keys have equal programs. */
typedef struct lk_program_key {
    lk_call_kind kind;
    size_t element; /* bytes */
    size_t count;
    int root;
    uint64_t detail; /* hash of bounds or counts, of this rank */
} lk_program_key;

/* What a program is made from; what a kind does not need is NULL. */
typedef struct lk_program_input {
    const lk_schedule_topology *topology;
    int rank;
    const int *bounds;         /* of sums: (size + 1); NULL for one shard a rank */
    const lk_span *spans;      /* (size) of reduce_scatter, allgather, gather, scatter; the input's of alltoall */
    const lk_span *recv_spans; /* (size) the output's of alltoall */
    bool segments;             /* allreduce cuts small vectors in segments, too: fewer bytes, one more phase */
} lk_program_input;

/* Sends of one span, the same to several peers. */
typedef struct lk_multicast {
    lk_span span;
    int count;
    int *peers; /* (count) */
} lk_multicast;

/* What a phase needs beside the schedule. */
typedef struct lk_program_phase {
    int multicast_count;
    lk_multicast *multicasts;
    /* Of FOLD: the vectors at hand are this rank's own, then those of each recv
     * in order; the plan makes `out` vectors of them. */
    int own, out;
    bool sends_kept;    /* peers get, among others, what this rank keeps: it must not change under their hands */
    int *recv_partials; /* (recv_count) vectors from each peer */
    int *recv_first;    /* (recv_count) place of the first of them among the inputs */
    int inputs;         /* all */
    lk_fold_plan *plan;
} lk_program_phase;

typedef struct lk_program {
    lk_program_key key;
    int users; /* calls that run it, and the cache */
    int shards;
    lk_schedule schedule;
    lk_program_phase phases[LK_MAX_PHASES];
    int max_multicasts, max_recvs, max_inputs;
    size_t fold_frame;   /* elements of the largest frame to be folded, the same at all ranks */
    size_t host_vectors; /* elements of the sums over the host, all vectors together */
} lk_program;

lk_status lk__program_create(const lk_program_key *key, const lk_program_input *input, lk_program **out) LK_CHECKED;
/* Frees with the last user. */
void lk__program_release(lk_program *program);

/* The programs that were used last. All zero is an empty cache. */
typedef struct lk_program_cache {
    size_t room;       /* programs that it keeps; 0: 32 */
    lk_program **rows; /* (room) NULL: none */
    size_t next;       /* to be replaced */
} lk_program_cache;

/* The program of that key, made where the cache does not have it. The caller is one of its users. */
lk_status lk__program_find(lk_program_cache *cache, const lk_program_key *key, const lk_program_input *input,
                           lk_program **out) LK_CHECKED;
void lk__program_cache_fini(lk_program_cache *cache);

#endif
