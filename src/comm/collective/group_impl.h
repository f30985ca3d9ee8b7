/* group_impl.h - a group and its calls under way, as the files of comm see them. */
#ifndef LK_COMM_COLLECTIVE_GROUP_IMPL_H
#define LK_COMM_COLLECTIVE_GROUP_IMPL_H

#include <lockstep/group.h>

#include "comm/collective/program.h"
#include "comm/control/control.h"
#include "comm/transport/transport.h"

/* Elements [first, first+count) of a call's vector, in memory at `at`. */
typedef struct lk_request_window {
    char *at;
    size_t first, count;
} lk_request_window;

/* A call of this rank, for the history. */
typedef struct lk_call_record {
    lk_call call;
    int peer;          /* of a message, else -1 */
    double begin, end; /* on lk__clock; end is 0 while it is under way */
    bool failed;
} lk_call_record;

/* What has come in for one recv of a phase. */
typedef struct lk_request_inflow {
    size_t taken; /* elements placed or folded */
    /* Of FOLD: vectors of the chunk at hand that are there, elements in it, and
     * how many of those are folded. */
    int have;
    size_t chunk, used;
    bool done;
} lk_request_inflow;

/* What has gone out of one multicast of a phase. */
typedef struct lk_request_outflow {
    size_t given; /* elements */
    int partial;  /* of FOLD: vectors of the chunk that are out */
    bool done;
} lk_request_outflow;

typedef struct lk_request_sending {
    uint64_t ticket;
    const lk_multicast *multicast; /* to whom */
} lk_request_sending;

struct lk_request {
    lk_group *group;
    lk_request *next;
    lk_request *made_next;
    lk_call call;
    lk_reduction op;
    bool out_overlaps;                  /* out lies across what peers read: results wait until they have */
    int peer;                           /* of a message, else -1 */
    lk_program *program;                /* of the piece under way */
    lk_program *last;                   /* of the last piece, where that is shorter; else NULL */
    size_t base;                        /* elements of the vector before the piece */
    size_t total;                       /* elements of a vector in pieces; 0: one piece */
    lk_request_window mine;             /* what this rank brings to PLACE phases, where that is not in out */
    lk_request_window out;              /* where results go */
    const char *partials[LK_MAX_ROOTS]; /* this rank's partial sums, whole vectors */
    size_t record;                      /* its place in the history */

    bool done;
    lk_status status;
    int phase;
    bool entered;                /* the phase has begun */
    size_t folded;               /* elements of the phase's keep */
    lk_request_window result;    /* of a fold to the end, where out does not have its place */
    lk_request_inflow *inflow;   /* (program->max_recvs) */
    lk_request_outflow *outflow; /* (program->max_multicasts) */
    const void **inputs;         /* (2 * program->max_inputs) of a fold: as they came, and where it is */
    lk_request_sending *tickets; /* sends whose data still belong to the transport */
    size_t ticket_count, ticket_room;
    int recv_room, multicast_room, input_room;
};

struct lk_group {
    lk_group *parent; /* NULL: the whole job */
    lk_group *whole;  /* the group without parent, itself for that */
    lk_group *family; /* of the whole: all groups of the job here, linked by sibling */
    lk_group *sibling;
    lk_control *control;                /* of the job; owned by the group without parent */
    const lk_transport_type *opened_as; /* what was asked for; auto may have become shm or tcp */
    lk_transport *transport;
    lk_device *device; /* folds */
    int rank, size;
    int local_rank, local_size;
    lk_member *members; /* (size) */
    int *parent_ranks;  /* (size) of a part */
    int *host;          /* (size) */
    lk_schedule_topology topology;
    lk_boot boot;
    uint32_t id;
    uint32_t parts; /* splits so far */

    uint32_t calls;       /* collectives so far */
    uint32_t *sent_count; /* (size) messages to each rank so far */
    uint32_t *recv_count; /* (size) */
    lk_request *first;    /* under way, in the order of the calls */
    lk_request **tail;    /* where the next one goes */
    lk_request *spare;    /* finished ones, to be used again */
    lk_request *made;     /* all there are, linked by made_next */
    uint8_t *absent;      /* (ranks of the job) scratch of executor.c */
    unsigned char *busy;  /* (size) scratch of executor.c */
    lk_program_cache programs;
    char *scratch; /* frames to be folded */
    size_t scratch_bytes;
    char *sums; /* sums over the host, and results on their way to other ranks */
    size_t sums_bytes;

    lk_call_record history[LK_HISTORY];
    size_t history_count; /* calls ever */

    unsigned forks;   /* lk__forks() where it was made */
    lk_status broken; /* LK_OK while the group is whole */
    char *reason;     /* detail of broken */

    /* While a call makes no progress. */
    double idle_since; /* 0: something moved */
    double checked, noticed;
    int reports;
    double left_seen; /* since when a rank that is awaited is known to have left; 0: none */
    void **blocks;    /* of lk_group_alloc where the transport has no memory of its own */
    size_t block_count;
};

/* Breaks the group here with the thread's error detail, and for the others if
 * the reason is ours; returns status. */
lk_status lk__group_break(lk_group *group, lk_status status);
/* LK_OK while the group and the job that it is part of are whole, as far as
 * this rank knows. */
lk_status lk__group_check(lk_group *group) LK_CHECKED;
/* Ends every request of the group with the group's failure. */
void lk__group_fail_requests(lk_group *group);
/* What messages call a rank of the group: its number in the job. */
static inline int lk__group_job_rank(const lk_group *group, int rank)
{
    for (; group->parent; group = group->parent)
        rank = group->parent_ranks[rank];
    return rank;
}
/* The reason again, for a group that is broken. */
lk_status lk__group_broken(const lk_group *group) LK_CHECKED;

/* steps.c: runs the request as far as it goes; marks it done at its end. */
lk_status lk__steps_run(lk_request *request, bool *moved) LK_CHECKED;
/* Whether all that was sent so far has left this rank's memory. */
bool lk__steps_sent(lk_request *request);
/* Whether recv `index` of the request's phase still lacks frames. */
bool lk__steps_await(const lk_request *request, int index);
/* Marks in group->busy, beside those that are marked, the ranks that have not taken all
 * that this rank gives them. */
void lk__steps_mark_receivers(const lk_request *request);

/* executor.c: takes over the request, which is done when it says so. */
void lk__executor_start(lk_request *request);
/* Moves all requests of a group on; fails when it is broken. Sets *moved if one
 * did. */
lk_status lk__executor_move(lk_group *group, bool *moved) LK_CHECKED;
/* The same for all groups of the job, and looks for failures of this one. */
lk_status lk__executor_poll(lk_group *group) LK_CHECKED;
/* Moves the calls of all groups of the job but `except` on; whether some are still
 * under way. Sets *moved if one did. */
bool lk__executor_move_others(lk_group *whole, const lk_group *except, bool *moved);
/* Until the request is done. */
lk_status lk__executor_wait(lk_request *request) LK_CHECKED;

/* request.c: an empty request with room for the program, which it takes over. */
lk_status lk__request_create(lk_group *group, lk_program *program, lk_request **out) LK_CHECKED;
/* Room for another program, which it takes over as that of the last piece. */
lk_status lk__request_add_last(lk_request *request, lk_program *last) LK_CHECKED;
/* Marks the request as done, and notes the end of its call in the history. */
void lk__request_finish(lk_request *request);
/* Back to the group's spare ones. */
void lk__request_retire(lk_request *request);
void lk__request_free(lk_request *request);

#endif
