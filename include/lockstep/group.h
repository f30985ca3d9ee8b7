/* group.h - groups of ranks: joining, collective calls, leaving.
 *
 * A group is a fixed number of ranks: threads of one process, processes of one host, or processes
 * of several hosts. Every rank makes the same collective calls in the same order. If a rank makes
 * a different call, dies, leaves or exceeds the timeout, every rank gets an error that names this
 * rank, in the current call or in the next one. After such an error the job is broken: all calls
 * of all its groups return this error again.
 *
 * Sums follow a fixed tree over the shards, so their bits do not depend on the number of ranks,
 * on the transport or on the hosts: see lk_shard_sums.
 *
 * Threads: only one thread at a time may use a group, the groups split from it (lk_group_split)
 * and their requests; the calls do not detect a second thread. While the thread waits in one of
 * these groups, the requests of all of them make progress. Groups of different jobs, and the ranks
 * of lk_group_create_threads, are independent and may be used by different threads.
 * Any thread may call lk_group_rank, lk_group_size, lk_group_local_rank, lk_group_local_size,
 * lk_group_host, lk_group_is_local, lk_group_timeout and lk_group_transport at any time: their
 * results never change. lk_shard_roots and lk_even_count are pure functions.
 *
 * Processes: a group works only in the process that joined it. In a process that was forked later
 * (lk_spawn), its calls return USAGE, and lk_group_abort, lk_group_destroy and lk_group_free do
 * nothing.
 *
 * Errors: invalid arguments are USAGE, and a device that is not there is UNSUPPORTED; the group can still be used. The
 * other ranks may already wait in this call, so the rank must make the call with valid arguments, or abort the job. The
 * pointer to data of 0 elements may be NULL. Every call that moves data or waits for other ranks, also later for its
 * request, returns:
 *   PEER         a rank died, left, aborted the job or exceeded the timeout
 *   MISMATCH     the ranks made different calls, or gave different sizes, types, reductions or roots
 *   IO           this host failed: shared memory, a socket or a device; or data arrived with a wrong checksum
 *   MEMORY       there is not enough memory for the call
 *   UNSUPPORTED  the shards on this many ranks make more partial sums than there is room for
 * After one of these the group is broken, at all ranks.
 *
 * All functions that take a group and return a status are collective, except lk_send, lk_recv, lk_sendrecv and
 * lk_group_poll. */
#ifndef LOCKSTEP_GROUP_H
#define LOCKSTEP_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/state.h>
#include <lockstep/status.h>

LK_API_BEGIN

typedef struct lk_group lk_group;

/* Receives a notice: a sentence for the user during a wait ("rank 2 of 4 has not joined, 35 s
 * left"), without a newline. The waiting thread calls it. */
typedef void (*lk_notice_fn)(void *arg, const char *text);

/* Zero and NULL mean the default. */
typedef struct lk_group_opts {
    const char *init_method; /* "env://" (default), "tcp://HOST:PORT", "file://PATH" */
    /* For tcp:// and file://. env:// uses the environment instead: the variables of torchrun and `lockstep run`
     * (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), of MPI launchers, of Slurm's srun or of PBS. */
    int rank, world_size;
    /* Threads of each process that are ranks; default 1. Above 1, every such thread joins with its own
     * `thread` (from 0); rank and world_size, also those of the environment, then count processes, and the
     * thread becomes rank `rank * threads + thread` of the group. */
    int threads, thread;
    const char *backend; /* "auto", "shm", "tcp", "mpi"; default: $LOCKSTEP_BACKEND, else "auto" */
    double timeout;      /* seconds that a rank waits for another one; default 300 */
    /* The key of the job, the same at all ranks; default: $LOCKSTEP_TOKEN, else the content of
     * $LOCKSTEP_TOKEN_FILE, else a key derived from the user's own secret (docs/running.md, "Who may join"). */
    const char *token;
    lk_notice_fn notice; /* default: no notices */
    void *notice_arg;
    /* A thread of the library makes progress on requests under way while the caller computes; it uses a part of
     * a core. Without it they make progress only inside calls. Default: $LOCKSTEP_PROGRESS_THREAD (0 or 1), else
     * false. */
    bool progress_thread;
    uint64_t reserved[8]; /* zero */
} lk_group_opts;

/* Whether a launcher has started this process as a rank, so that lk_group_join(NULL, &group) is the way to the others.
 * A program that also runs alone asks first:
 *   lk_status status = lk_group_launched() ? lk_group_join(NULL, &group) : LK_OK;
 * True if RANK is set, as by `lockstep run`, torchrun and lk_spawn, also with one rank; and for one of several tasks of
 * Open MPI's or MPICH's mpirun, srun, PBS's pbsdsh, Flux or jsrun. False in a process without a launcher, for the only
 * task of such a launcher, and in the script of a batch job. Also true if the variables contradict each other or are
 * incomplete: lk_group_join then returns USAGE and says what is wrong.
 *
 * Reads the environment and, under PBS, the file that PBS_NODEFILE names, at each call; keeps nothing, never fails and
 * does not wait for other ranks. Any thread may call it, while no thread changes the environment. */
bool lk_group_launched(void);
/* Joins the job and connects to the other ranks; opts may be NULL (all defaults). Blocks until all
 * ranks have joined or the timeout has passed. The caller owns *out.
 *
 * USAGE: options or variables of the environment are missing or impossible, or this process has already joined this job
 * as this rank and has not left. PEER: a rank has not joined, rank 0 cannot be reached or has another key, within the
 * timeout; or a rank has exited before it joined (`lockstep run` on one node and lk_spawn report this at once).
 * MISMATCH: two processes have the same rank, or ranks have different world sizes, backends or versions. NOT_FOUND: the
 * file of the key, the address or the plug-in for MPI does not exist. FORMAT: the file of the key or of file:// is
 * damaged, or what answers is not Lockstep. IO: rank 0 cannot listen at its port, or shared memory cannot be created.
 * UNSUPPORTED: MPI grants too low a thread level.
 *
 * With backend "mpi", or "auto" on several hosts under an MPI launcher, the first call starts MPI, unless the
 * program has; call it before other threads do work, because some MPI libraries replace functions of the C library
 * while they start. MPI ends when the process exits: by MPI_Abort after a failure of a group or with another exit
 * status than 0. */
lk_status lk_group_join(const lk_group_opts *opts, lk_group **out) LK_CHECKED;
/* Makes a group of the processes of an MPI communicator: comm is the address of the program's MPI_Comm (Open MPI or
 * MPICH), rank r of it becomes rank r of the group. Collective: blocks until all its processes have called it or the
 * timeout has passed. Of opts, which may be NULL, only backend, timeout, notice and progress_thread may be set; address
 * and key travel over MPI.
 *
 * The communicator is duplicated, so the program's own messages and the group's never mix. MPI stays the program's:
 * destroy the group at all ranks before MPI_Finalize. With backend "auto", ranks of one host share memory, and ranks of
 * several hosts use MPI if it grants MPI_THREAD_SERIALIZED (with progress_thread MPI_THREAD_MULTIPLE), else TCP; "mpi"
 * requires that level. If MPI grants less than MPI_THREAD_MULTIPLE, the program must not call MPI in another thread
 * while a call of the group runs.
 *
 * USAGE if MPI is not initialised or already finalised, for MPI_COMM_NULL and inter-communicators, for other options,
 * and in another thread than that of MPI_Init if MPI grants less than MPI_THREAD_SERIALIZED. NOT_FOUND if the plug-in
 * for the program's MPI is not installed (the detail names the package). UNSUPPORTED for another MPI library, and for
 * "mpi" without the thread level. PEER, MISMATCH and IO as lk_group_join. The caller owns *out. */
lk_status lk_group_from_mpi(const void *comm, const lk_group_opts *opts, lk_group **out) LK_CHECKED;
/* Creates a group of `count` ranks that are threads of this process: out (count) gets one handle for
 * each rank, and the thread that is rank r uses out[r]. Only timeout, notice and progress_thread of opts are
 * used; opts may be NULL. Does not block. The caller owns the groups, and destroys each. USAGE if count is not in 1 to
 * 4096. MEMORY also if a thread cannot be started. */
lk_status lk_group_create_threads(int count, const lk_group_opts *opts, lk_group **out) LK_CHECKED;
/* Leaves the group and frees it, with its requests. A rank that still waits for this rank gets an
 * error. Afterwards the process may join again, also as the same rank. Rank 0 runs the server of the
 * job: its call blocks until all other ranks have left or died, with a notice every five seconds. */
void lk_group_destroy(lk_group *group);

/* Splits a group: the ranks that give the same colour form a new group, ordered by key, then by
 * rank. Collective: blocks until all ranks of the parent have called it. With colour < 0 the rank
 * is in no new group and *out is NULL. After the parent is destroyed, a new group can only be
 * destroyed. The caller owns *out. */
lk_status lk_group_split(lk_group *parent, int colour, int key, lk_group **out) LK_CHECKED;

/* The rank of the caller in the group, from 0, and the number of ranks of the group. */
int lk_group_rank(const lk_group *group);
int lk_group_size(const lk_group *group);
/* The caller's index among the group's ranks on its host, in rank order, and the number of these ranks. */
int lk_group_local_rank(const lk_group *group);
int lk_group_local_size(const lk_group *group);
/* The name of the host of `rank`, and whether `rank` is on the caller's host: two hosts may have the
 * same name. "" and false if there is no such rank. The name is borrowed from the group. */
const char *lk_group_host(const lk_group *group, int rank);
bool lk_group_is_local(const lk_group *group, int rank);
/* Seconds that a rank waits for another one. */
double lk_group_timeout(const lk_group *group);
/* The name of the transport: "inproc", "shm", "tcp", "mpi" or "auto". Borrowed from the group. */
const char *lk_group_transport(const lk_group *group);

/* Allocates zeroed memory that the other ranks of the host can read directly, so that collective
 * calls on it copy less. Collective: may block until all ranks have called it. The sizes (bytes) of the
 * ranks may differ. The group owns the memory and frees it when the group is destroyed. */
lk_status lk_group_alloc(lk_group *group, size_t bytes, void **out) LK_CHECKED;
/* Frees memory of lk_group_alloc before the group is destroyed; ignores NULL. Every rank must call
 * it for its block. Does not block. */
void lk_group_free(lk_group *group, void *block);

/* Aborts the job for all ranks: all calls of all its groups fail with this reason. Does not block. */
void lk_group_abort(lk_group *group, const char *reason);
/* Makes progress on the requests under way and checks for failures. Does not block, except that it
 * waits for the reason if the connection to a peer was lost: for 2 seconds, or up to the timeout while
 * rank 0 does not answer. Returns the failure of the group, if it has failed. */
lk_status lk_group_poll(lk_group *group) LK_CHECKED;
/* Writes the last 64 calls of the group to text, oldest first, each on a line of its own. Writes at most
 * `bytes` bytes, including the final '\0', and returns the bytes that the complete text needs. */
size_t lk_group_history(const lk_group *group, char *text, size_t bytes);

/* The data of a call, owned by the caller. Fields that are left out are 0 and NULL.
 *
 * Device memory: "cuda:N" as numbered by CUDA. Every call takes it, and gives the bits of host memory. Other pointers
 * of a call (out, in, roots) are on the device of its buffer; the buffers of lk_alltoall and lk_sendrecv may be on
 * different ones. Work that writes the buffer must be complete before the call: the library copies it to pinned host
 * memory with a stream of its own. Results are in the buffer when the call, lk_request_wait or lk_request_test says
 * that it is done. UNSUPPORTED if the build or the machine has no such device. */
typedef struct lk_buffer {
    void *at;     /* host memory, or memory of `device` */
    size_t count; /* elements */
    lk_dtype dtype;
    const char *device; /* NULL: host memory; "cuda:N": memory of that GPU */
} lk_buffer;

typedef enum lk_reduction {
    LK_REDUCTION_SUM,
    LK_REDUCTION_MEAN, /* the sum divided by the number of shards; integer sums wrap, quotients round to zero */
    LK_REDUCTION_MIN,  /* for floating-point values, MIN and MAX are NaN where any rank has NaN */
    LK_REDUCTION_MAX,
    LK_REDUCTION_PRODUCT, /* integer products wrap */
    LK_REDUCTION_COUNT,
    LK_REDUCTION_LIMIT = LK_REDUCTION_COUNT + 32 /* above all reductions of lk_reduction_register */
} lk_reduction;

/* Combines two vectors of `count` elements of the call's type: out[i] from left[i] and right[i]. left is of lower
 * shards than right. out may be left or right. Vectors are given in blocks of any size, so the function must treat
 * each element alone. The order of the tree is fixed, so it need not be associative or commutative. The thread that
 * makes or awaits the call runs it, or the progress thread; it must not call the library. */
typedef void (*lk_reduction_fn)(void *arg, lk_dtype dtype, const void *left, const void *right, void *out,
                                size_t count);
/* Registers a reduction of the program's own for all groups, until this process ends: *out is its number. name is
 * copied; combine and arg must stay valid. All ranks must register the same reductions, by name, in the same order: a
 * call whose reductions have different names is a disagreement of the ranks. Any thread may call it. USAGE if the name
 * is empty or has been registered before, or if there are too many reductions (LK_REDUCTION_LIMIT). */
lk_status lk_reduction_register(const char *name, lk_reduction_fn combine, void *arg, lk_reduction *out) LK_CHECKED;

/* Partial sums over shards; size is the number of ranks. There are bounds[size] shards, and rank r has the
 * shards [bounds[r], bounds[r+1]). The tree: a range of one shard is a leaf; a range of n shards is the sum of its
 * first m shards and of the others, where m is the largest power of two below n. Each rank gives one vector for each
 * largest subtree of the tree inside its range (see lk_shard_roots). All ranks give the same bounds. The caller owns
 * all memory. */
typedef struct lk_shard_sums {
    const int *bounds;        /* (size + 1), in ascending order; bounds[0] is 0, and equal bounds are an empty range */
    const void *const *roots; /* this rank's vectors, in the order of the shards */
} lk_shard_sums;

enum { LK_MAX_ROOTS = 26 };
/* Returns the number of largest subtrees of the tree over [0,shards) that cover [first,last); this number
 * is at most LK_MAX_ROOTS. Writes the first shard of each subtree to begin (LK_MAX_ROOTS); begin may be NULL.
 * Returns -1 if the range is invalid. */
int lk_shard_roots(int shards, int first, int last, int *begin);

/* A call under way, owned by its group. If the argument `request` is NULL, the call blocks until it is done at this
 * rank. Otherwise the call does not block and sets *request; the caller must not touch the data until lk_request_wait
 * has returned or lk_request_test has set *done. Counts and bounds are copied. */
typedef struct lk_request lk_request;
/* Blocks until the call is done, frees the request and returns the status of the call. */
lk_status lk_request_wait(lk_request *request) LK_CHECKED;
/* Sets *done to whether the call is done. Does not block. If the call is done or has failed, frees the
 * request and returns the status of the call. */
lk_status lk_request_test(lk_request *request, bool *done) LK_CHECKED;
/* Waits for all of requests (count), which may be NULL, frees them and sets them to NULL. Returns the first failure. */
lk_status lk_request_wait_all(lk_request **requests, size_t count) LK_CHECKED;
/* Blocks until one of requests (count) is done: sets *index to its index, frees it, sets it to NULL and returns its
 * status. NULL entries are skipped; if all are NULL, *index is count. The requests are of one job. */
lk_status lk_request_wait_any(lk_request **requests, size_t count, size_t *index) LK_CHECKED;

/* Buffers of a call must not overlap unless a comment allows it. */

/* Combines the data of all ranks in place; each rank is one shard. */
lk_status lk_allreduce(lk_group *group, lk_buffer data, lk_reduction op, lk_request **request) LK_CHECKED;
/* As lk_allreduce, but only root gets the result; the data of the other ranks stay unchanged. */
lk_status lk_reduce(lk_group *group, lk_buffer data, lk_reduction op, int root, lk_request **request) LK_CHECKED;
/* Combines the vectors `in` of all ranks; rank r gets the counts[r] elements of the result that
 * follow those of rank r-1. out may point into `in`. The sum of counts (size) is in.count. If counts is
 * NULL, rank r gets lk_even_count(in.count, size, r) elements. */
lk_status lk_reduce_scatter(lk_group *group, lk_buffer in, const size_t *counts, void *out, lk_reduction op,
                            lk_request **request) LK_CHECKED;
/* The number of elements of `rank` if `count` elements are divided among `ranks` ranks as evenly as
 * possible. */
size_t lk_even_count(size_t count, int ranks, int rank);

/* lk_allreduce, lk_reduce and lk_reduce_scatter for partial sums over shards: the input is `sums`, the
 * result is written to out. out.at may be one of this rank's roots. */
lk_status lk_allreduce_shards(lk_group *group, const lk_shard_sums *sums, lk_buffer out, lk_reduction op,
                              lk_request **request) LK_CHECKED;
lk_status lk_reduce_shards(lk_group *group, const lk_shard_sums *sums, lk_buffer out, lk_reduction op, int root,
                           lk_request **request) LK_CHECKED;
/* counts (size) must not be NULL; out.count is counts[rank]. */
lk_status lk_reduce_scatter_shards(lk_group *group, const lk_shard_sums *sums, const size_t *counts, lk_buffer out,
                                   lk_reduction op, lk_request **request) LK_CHECKED;

/* Copies root's data to all ranks. */
lk_status lk_broadcast(lk_group *group, lk_buffer data, int root, lk_request **request) LK_CHECKED;
/* Gathers the vectors of all ranks: out gets their elements in rank order. Rank r gives counts[r] elements,
 * so mine.count is counts[rank]. counts NULL: all ranks give the same number. mine.at may be this rank's own
 * range of out. */
lk_status lk_allgather(lk_group *group, lk_buffer mine, const size_t *counts, void *out,
                       lk_request **request) LK_CHECKED;
/* As lk_allgather, but only root gets the result; at other ranks `out` is ignored. */
lk_status lk_gather(lk_group *group, lk_buffer mine, const size_t *counts, void *out, int root,
                    lk_request **request) LK_CHECKED;
/* The reverse of lk_gather: rank r gets counts[r] elements of root's `in`, into mine. mine.count is
 * counts[rank]; at other ranks than root `in` is ignored. */
lk_status lk_scatter(lk_group *group, const void *in, const size_t *counts, lk_buffer mine, int root,
                     lk_request **request) LK_CHECKED;
/* Sends send[r] elements of `in` to each rank r and receives recv[r] elements of rank r into `out`,
 * both in rank order. NULL counts: in.count / size elements for each rank. */
lk_status lk_alltoall(lk_group *group, lk_buffer in, const size_t *send, lk_buffer out, const size_t *recv,
                      lk_request **request) LK_CHECKED;
/* The call is done when every rank has made it. */
lk_status lk_barrier(lk_group *group, lk_request **request) LK_CHECKED;

/* Sends data to one rank; receives data from one rank. Between two ranks of a group, these calls and
 * the collective calls are matched in the order in which both ranks make them. */
lk_status lk_send(lk_group *group, lk_buffer data, int to, lk_request **request) LK_CHECKED;
lk_status lk_recv(lk_group *group, lk_buffer data, int from, lk_request **request) LK_CHECKED;
/* Sends `out` to rank `to` while it receives `in` from rank `from`, so that ranks in a ring do not wait for each other
 * in turn. Blocks until both are done. Both may be the caller's own rank; in and out must then have the same size. */
lk_status lk_sendrecv(lk_group *group, lk_buffer out, int to, lk_buffer in, int from) LK_CHECKED;

LK_API_END
#endif
