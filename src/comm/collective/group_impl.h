/* group_impl.h - a group and its requests, as the files of comm/collective see them. */
#ifndef LK_COMM_COLLECTIVE_GROUP_IMPL_H
#define LK_COMM_COLLECTIVE_GROUP_IMPL_H

#include <lockstep/group.h>

#include "base/trace.h"
#include "comm/collective/device_copies.h"
#include "comm/collective/program.h"
#include "comm/control/control.h"
#include "comm/transport/transport.h"

typedef struct lk_progress lk_progress; /* progress.h */

/* Elements [first, first+count) of a call's vector, in memory at `at`. */
typedef struct lk_request_window {
    char *at;
    size_t first, count;
} lk_request_window;

/* An entry of the group's history. */
typedef struct lk_call_record {
    lk_call call;
    int peer;          /* of a message, else -1 */
    double begin, end; /* lk__clock() times; begin is 0 until it is read, end while the call is under way */
    bool failed;
} lk_call_record;

/* Progress of one receive of a phase. */
typedef struct lk_request_inflow {
    size_t taken; /* elements copied or folded */
    /* Of FOLD: vectors of the current chunk that have arrived, elements of the chunk, and elements of it that
     * are folded. */
    int have;
    size_t chunk, used;
    bool released; /* of FOLD: the transport no longer holds the last vector of the chunk */
    int side;      /* of FOLD: half of the scratch that the current chunk uses */
    bool done;
} lk_request_inflow;

/* Progress of one multicast of a phase. */
typedef struct lk_request_outflow {
    size_t given; /* elements */
    int partial;  /* of FOLD: vectors of the current chunk that are sent */
    bool done;
} lk_request_outflow;

typedef struct lk_request_sending {
    uint64_t ticket;
    const lk_multicast *multicast; /* the receivers */
} lk_request_sending;

struct lk_request {
    lk_group *group;
    lk_request *next;
    lk_request *made_next;
    lk_call call;
    lk_reduction op;
    bool out_overlaps;      /* out overlaps memory that peers read: results are written after the peers have read it */
    int peer;               /* of a message, else -1 */
    lk_program *program;    /* of the current piece */
    lk_program *last;       /* of the last piece if that is shorter; else NULL */
    size_t base;            /* elements of the vector before the current piece */
    size_t total;           /* elements of a vector that is summed in pieces; 0: one piece */
    lk_request_window mine; /* this rank's input of COPY phases, if it is not in out */
    lk_request_window out;  /* where results go */
    const char *partials[LK_MAX_ROOTS]; /* this rank's partial sums; whole vectors */
    size_t record;                      /* number of its record in the history */

    /* For traces: when the call began and ended, 0 without a trace, and the label of its flight. */
    double trace_begin, trace_end;
    lk_trace_label trace_label;
    size_t trace_bytes;

    bool done;
    lk_status status;
    lk_device_copies_block *copies; /* of device buffers; NULL: none */
    int phase;
    bool entered;                /* whether the phase has begun */
    bool given;                  /* whether all sends of the phase are done */
    size_t folded;               /* elements of the phase's keep that are folded */
    lk_request_window result;    /* result of the last fold, if it cannot be written to out */
    lk_request_inflow *inflow;   /* (program->max_recvs) */
    lk_request_outflow *outflow; /* (program->max_multicasts) */
    const void **inputs;         /* (2 * program->max_inputs) of a fold: as received, and at the elements to fold */
    lk_request_sending *tickets; /* sends whose data the transport still uses */
    size_t ticket_count, ticket_room;
    int recv_room, multicast_room, input_room;
};

struct lk_group {
    lk_group *parent; /* NULL: this group is the whole job */
    lk_group *whole;  /* the group of the whole job; may be this group */
    lk_group *family; /* of the whole job: all groups of this rank, linked by sibling */
    lk_group *sibling;
    lk_progress *progress;              /* of the whole job: its progress thread; NULL: none */
    lk_control *control;                /* of the job; owned by the group of the whole job */
    lk_mpi_world *world;                /* of the whole job, if it was made over a communicator of the program */
    const lk_transport_type *opened_as; /* the transport that was requested; auto may have opened shm or tcp */
    lk_transport *transport;
    lk_device *device; /* computes the folds, in host memory */
    int rank, size;
    int local_rank, local_size;
    lk_member *members; /* (size) */
    int *parent_ranks;  /* (size) of a part: ranks in the parent */
    int *host;          /* (size) */
    lk_schedule_topology topology;
    lk_boot boot;
    uint32_t id;
    uint32_t parts; /* number of splits */

    uint32_t calls;       /* number of collective calls */
    uint32_t *sent_count; /* (size) number of messages to each rank */
    uint32_t *recv_count; /* (size) */
    lk_request *first;    /* requests under way, in the order of the calls */
    lk_request **tail;    /* where the next request is linked */
    lk_request *spare;    /* finished requests, for reuse */
    lk_request *made;     /* all requests, linked by made_next */
    uint8_t *absent;      /* (ranks of the job) scratch of executor.c */
    unsigned char *busy;  /* (2 * size) scratch of executor.c and steps.c: ranks, then pairs */
    lk_program_cache programs;
    char *scratch; /* received frames that wait to be folded */
    size_t scratch_bytes;
    char *sums; /* sums of the host, and results that cannot be written to out yet */
    size_t sums_bytes;

    lk_call_record history[LK_HISTORY];
    size_t history_count; /* number of calls, also of those no longer in the history */

    unsigned forks;   /* lk__forks() when the group was made */
    lk_status broken; /* LK_OK, or the failure of the group */
    char *reason;     /* error detail of that failure */

    /* While a call makes no progress. */
    double idle_since; /* lk__clock() time since which nothing has moved; 0: something moved */
    double checked, noticed;
    int reports;
    double left_seen; /* when a rank that this rank waits for was first seen to have left; 0: none */
    lk_device_copies device_copies;
    void **blocks; /* from lk_group_alloc, if the transport has no memory of its own */
    size_t block_count;
};

/* Marks the group as failed with the thread's error detail, and aborts the job unless it has failed already.
 * Returns the group's failure. */
lk_status lk__group_break(lk_group *group, lk_status status);
/* LK_OK while neither the group nor its job has failed, as far as this rank knows. */
lk_status lk__group_check(lk_group *group) LK_CHECKED;
/* Ends every request of the group with the group's failure. */
void lk__group_fail_requests(lk_group *group);
/* Returns the rank's number in the job, which messages use. */
static inline int lk__group_job_rank(const lk_group *group, int rank)
{
    for (; group->parent; group = group->parent)
        rank = group->parent_ranks[rank];
    return rank;
}
/* Sets the error detail to the reason of a failed group, and returns its status. */
lk_status lk__group_broken(const lk_group *group) LK_CHECKED;

/* Joins a job. world: the communicator of the program that the group is made over, which the function takes over, also
 * when it fails; NULL: opts name the rendezvous. */
lk_status lk__group_join(const lk_group_opts *opts, lk_mpi_world *world, lk_group **out) LK_CHECKED;

/* steps.c. Runs the request as far as possible without waiting. At its end the request is marked done. */
lk_status lk__steps_run(lk_request *request, bool *moved) LK_CHECKED;
/* Whether the transport no longer uses this rank's memory for this request. */
bool lk__steps_sent(lk_request *request);
/* Whether receive `index` of the current phase still needs frames. */
bool lk__steps_await(const lk_request *request, int index);
/* Marks in group->busy, in addition, the ranks that have not received everything from this rank. */
void lk__steps_mark_receivers(const lk_request *request);

/* steps_frame.c. Returns the call as frames between this rank and a peer carry it. In an alltoall, each pair agrees
 * on a count of its own. */
lk_call lk__steps_call_between(const lk_request *request, lk_span span);
/* *out is the frame that has arrived for a move of this phase, or NULL. Fails if the frame belongs to another
 * call or has more than `limit` elements. */
lk_status lk__steps_next_frame(const lk_request *request, const lk_schedule_move *move, size_t limit,
                               const lk_frame **out) LK_CHECKED;
/* Fails with MISMATCH: rank `peer` sends `what` of that many elements, and this rank takes another number. */
lk_status lk__steps_wrong_size(const lk_request *request, int peer, const char *what, size_t theirs,
                               size_t ours) LK_CHECKED;

/* executor.c. Adds the request to the requests under way. The group owns it until it is done. */
void lk__executor_start(lk_request *request);
/* Advances all requests of a group; fails if the group has failed. Sets *moved if one advanced. Does not
 * block. */
lk_status lk__executor_move(lk_group *group, bool *moved) LK_CHECKED;
/* Advances all groups of the job, and checks for failures and the timeout. Does not block. */
lk_status lk__executor_poll(lk_group *group) LK_CHECKED;
/* Advances the requests of all groups of the job except `except`. Returns whether some are still under way.
 * Sets *moved if one advanced. */
bool lk__executor_move_others(lk_group *whole, const lk_group *except, bool *moved);
/* Blocks until the request is done or the group has failed. */
lk_status lk__executor_wait(lk_request *request) LK_CHECKED;
/* Blocks until one of requests (count) is done, and sets *index to it. NULL entries are skipped; one is not NULL. All
 * are of one job. Returns the status of that request. */
lk_status lk__executor_wait_any(lk_request *const *requests, size_t count, size_t *index) LK_CHECKED;

/* request.c. Makes a request with room for the program, which it takes over. */
lk_status lk__request_create(lk_group *group, lk_program *program, lk_request **out) LK_CHECKED;
/* Gives the request the program of its last piece, which it takes over. */
lk_status lk__request_add_last(lk_request *request, lk_program *last) LK_CHECKED;
/* Records when the call began, if that is not known yet and it is not done. */
void lk__request_waits(const lk_request *request);
/* Marks the request as done and records the end of its call in the history. */
void lk__request_finish(lk_request *request);
/* Returns the request to the group's spare requests. */
void lk__request_retire(lk_request *request);
void lk__request_free(lk_request *request);

#endif
