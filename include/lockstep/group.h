/* group.h - ranks that work together: joining, collectives, leaving.
 *
 * A group is a fixed number of ranks: threads of one process, processes of one
 * host, or processes of several. Every rank makes the same collective calls in
 * the same order. A call that disagrees with a peer's, a peer that died, left
 * or stayed away past the timeout is an error that names it, at every rank, in
 * this call or in the next one; after it the job is broken, and all calls of its
 * groups return that error again.
 *
 * Sums run over the canonical tree of shards, so their bits do not depend on
 * the number of ranks, on the transport or on the hosts: see lk_shard_sums.
 *
 * Threads: a group, all parts of it (lk_group_split) and their requests belong to one
 * thread at a time; no call notices a second thread. While that thread waits in one of
 * them, calls under way in the others move on. Groups of different jobs, and the ranks
 * that lk_group_create_threads gives out, are independent: each may be in a thread of its own.
 * lk_group_rank, lk_group_size, lk_group_local_rank, lk_group_local_size, lk_group_host,
 * lk_group_is_local, lk_group_timeout and lk_group_transport read what never changes and
 * may be called by any thread; lk_shard_roots and lk_even_count are pure functions.
 *
 * Processes: a group works in the process that joined. In one that was forked later
 * (lk_spawn) its calls are USAGE, and lk_group_abort, lk_group_destroy and lk_group_free do nothing.
 *
 * A call with impossible arguments is USAGE and leaves the group whole, but the
 * other ranks may be waiting in that call already: put it right, or abort. Data
 * of no elements need no memory: their pointer may be NULL. */
#ifndef LOCKSTEP_GROUP_H
#define LOCKSTEP_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/state.h>
#include <lockstep/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_group lk_group;

/* A sentence for the user while something is awaited ("rank 2 of 4 has not
 * joined, 35 s left"); without newline. Called by the thread that waits. */
typedef void (*lk_notice_fn)(void *arg, const char *text);

/* Zero and NULL mean the default. */
typedef struct lk_group_opts {
    const char *init_method; /* "env://" (default), "tcp://HOST:PORT", "file://PATH" */
    int rank;                /* of tcp:// and file://; env:// has RANK and WORLD_SIZE */
    int world_size;
    int threads; /* ranks in each process, one a thread; default 1. rank, world_size, RANK and WORLD_SIZE then */
    int thread;  /* count processes, and the thread that joins with `thread` is rank * threads + thread */
    const char *backend; /* "auto", "shm", "tcp"; default $LOCKSTEP_BACKEND, or auto */
    double timeout;      /* seconds that a peer is waited for; default 300 */
    const char *token;   /* the job's secret; default $LOCKSTEP_TOKEN, or the file $LOCKSTEP_TOKEN_FILE */
    lk_notice_fn notice; /* default: silent */
    void *notice_arg;
} lk_group_opts;

/* Meets the other ranks and connects to them; opts may be NULL. Blocks until
 * all are there or the timeout has passed. USAGE while this process is that rank
 * of that job already. */
lk_status lk_group_join(const lk_group_opts *opts, lk_group **out) LK_CHECKED;
/* A group of count ranks inside this process: out[r] is for the thread that is
 * rank r. Of opts, the timeout and the notice count. */
lk_status lk_group_create_threads(int count, const lk_group_opts *opts, lk_group **out) LK_CHECKED;
/* Tells the others that this rank is done, and frees, its requests included. A
 * peer that still waits for this rank gets an error that says so. Afterwards a
 * process may join again, at the same place too. Rank 0, which
 * serves the others, comes back from it when they have all left or died; every
 * five seconds a notice says that it waits. */
void lk_group_destroy(lk_group *group);

/* Ranks of one colour become a group of their own, in the order of key, then of
 * rank; every rank of the parent calls it. colour < 0: *out is NULL. A part is
 * of no use after its parent, but may be destroyed then. */
lk_status lk_group_split(lk_group *parent, int colour, int key, lk_group **out) LK_CHECKED;

int lk_group_rank(const lk_group *group);
int lk_group_size(const lk_group *group);
/* Among the ranks on this rank's host, in rank order. */
int lk_group_local_rank(const lk_group *group);
int lk_group_local_size(const lk_group *group);
/* Name of the host that a rank runs on, and whether that is this rank's host;
 * two hosts may have one name. "" and false where there is no such rank. */
const char *lk_group_host(const lk_group *group, int rank);
bool lk_group_is_local(const lk_group *group, int rank);
/* Seconds that a peer is waited for. */
double lk_group_timeout(const lk_group *group);
/* "inproc", "shm", "tcp" or "auto". */
const char *lk_group_transport(const lk_group *group);

/* Memory that the ranks of this host can read in place, so that collectives on
 * it move fewer bytes. Zeroed; every rank calls it, with sizes of its own. */
lk_status lk_group_alloc(lk_group *group, size_t bytes, void **out) LK_CHECKED;
/* Every rank calls it; what is left is freed with the group. */
void lk_group_free(lk_group *group, void *block);

/* Breaks the job at every rank, with all its groups: their calls fail with this
 * reason. */
void lk_group_abort(lk_group *group, const char *reason);
/* Moves pending requests on and looks for failures. Does not block, but for a
 * moment when a peer was lost, to learn why. */
lk_status lk_group_poll(lk_group *group) LK_CHECKED;
/* The last 64 calls, oldest first, a line each; returns the bytes that the
 * whole text needs with its end, as snprintf does. */
size_t lk_group_history(const lk_group *group, char *text, size_t bytes);

/* What a call works on. */
typedef struct lk_buffer {
    void *at;       /* memory of the host */
    size_t count;   /* elements */
    lk_dtype dtype; /* all but f16 */
} lk_buffer;

typedef enum lk_reduction {
    LK_REDUCTION_SUM,
    LK_REDUCTION_MEAN, /* the sum divided by the number of shards; sums of integers wrap, quotients round to zero */
    LK_REDUCTION_MIN,  /* of floating-point values, here and below: NaN where a rank has one */
    LK_REDUCTION_MAX,
    LK_REDUCTION_COUNT
} lk_reduction;

/* Partial sums over shards. Rank r holds shards [bounds[r], bounds[r+1]) of
 * bounds[size], one vector for each maximal subtree of the canonical tree
 * inside its range (lk_shard_roots). All ranks give the same bounds. */
typedef struct lk_shard_sums {
    const int *bounds;        /* (size + 1) from 0, not falling */
    const void *const *roots; /* vectors of this rank, left to right */
} lk_shard_sums;

enum { LK_MAX_ROOTS = 26 };
/* How many maximal subtrees of the tree over [0,shards) cover [first,last), and
 * the first shard of each in begin (room for LK_MAX_ROOTS; may be NULL). -1 when
 * there is no such range. */
int lk_shard_roots(int shards, int first, int last, int *begin);

/* A call under way. Where a function takes `lk_request **request`, NULL makes
 * it block until the call is done here; else it returns at once, and the data
 * belong to the call until lk_request_wait or lk_request_test says that it is done. Counts and
 * bounds are copied. */
typedef struct lk_request lk_request;
/* Ends and frees the request, with the call's status. */
lk_status lk_request_wait(lk_request *request) LK_CHECKED;
/* Sets *done; a request that is done, or failed, is ended and freed. */
lk_status lk_request_test(lk_request *request, bool *done) LK_CHECKED;

/* Buffers of a call must not overlap where a comment does not say so. */

/* Sum in place; each rank is one shard. */
lk_status lk_allreduce(lk_group *group, lk_buffer data, lk_reduction op, lk_request **request) LK_CHECKED;
/* The result lands in data.at of root only; others' data stay as they are. */
lk_status lk_reduce(lk_group *group, lk_buffer data, lk_reduction op, int root, lk_request **request) LK_CHECKED;
/* `in` is the whole vector; rank r gets counts[r] elements of the result at
 * out, which may lie in `in`. counts (size) add up to in.count; NULL: as even as
 * can be, lk_even_count(in.count, size, r) for rank r. */
lk_status lk_reduce_scatter(lk_group *group, lk_buffer in, const size_t *counts, void *out, lk_reduction op,
                            lk_request **request) LK_CHECKED;
/* The count of a rank when count elements are shared evenly among ranks. */
size_t lk_even_count(size_t count, int ranks, int rank);

/* The same over shards; out.at may be one of the roots. */
lk_status lk_allreduce_shards(lk_group *group, const lk_shard_sums *sums, lk_buffer out, lk_reduction op,
                              lk_request **request) LK_CHECKED;
lk_status lk_reduce_shards(lk_group *group, const lk_shard_sums *sums, lk_buffer out, lk_reduction op, int root,
                           lk_request **request) LK_CHECKED;
/* counts (size) must be given; out.count is counts[rank]. */
lk_status lk_reduce_scatter_shards(lk_group *group, const lk_shard_sums *sums, const size_t *counts, lk_buffer out,
                                   lk_reduction op, lk_request **request) LK_CHECKED;

lk_status lk_broadcast(lk_group *group, lk_buffer data, int root, lk_request **request) LK_CHECKED;
/* Rank r gives mine.count = counts[r] elements; out gets all, in rank order.
 * counts NULL: all give the same number. mine.at may lie in its place in out. */
lk_status lk_allgather(lk_group *group, lk_buffer mine, const size_t *counts, void *out,
                       lk_request **request) LK_CHECKED;
/* As allgather, at root only; elsewhere out is not looked at. */
lk_status lk_gather(lk_group *group, lk_buffer mine, const size_t *counts, void *out, int root,
                    lk_request **request) LK_CHECKED;
/* The reverse: root's `in` is cut into counts[r] elements, mine.count of them
 * for this rank; elsewhere in is not looked at. */
lk_status lk_scatter(lk_group *group, const void *in, const size_t *counts, lk_buffer mine, int root,
                     lk_request **request) LK_CHECKED;
/* Rank r gets send[r] elements of in.at, and recv[r] from rank r land in
 * out.at, both in rank order. NULL counts: in.count / size for each. */
lk_status lk_alltoall(lk_group *group, lk_buffer in, const size_t *send, lk_buffer out, const size_t *recv,
                      lk_request **request) LK_CHECKED;
/* Returns when every rank has called it. */
lk_status lk_barrier(lk_group *group, lk_request **request) LK_CHECKED;

/* From one rank to another. Between two ranks of a group, messages and
 * collectives are matched in the order of the calls on both sides. */
lk_status lk_send(lk_group *group, lk_buffer data, int to, lk_request **request) LK_CHECKED;
lk_status lk_recv(lk_group *group, lk_buffer data, int from, lk_request **request) LK_CHECKED;

#ifdef __cplusplus
}
#endif
#endif
