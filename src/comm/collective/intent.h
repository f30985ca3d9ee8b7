/* intent.h - a collective call before it is a request: what the ranks must agree on, where the data are, and what the
 * program needs that moves them. */
#ifndef LK_COMM_COLLECTIVE_INTENT_H
#define LK_COMM_COLLECTIVE_INTENT_H

#include "comm/collective/argument.h"
#include "comm/collective/group_impl.h"

/* The description of a call before it is a request. Pointers are borrowed. */
typedef struct lk_intent {
    lk_call_kind kind;
    lk_buffer data; /* count is that of the whole vector */
    lk_reduction op;
    bool rooted;
    int root; /* -1: none; of a message: the peer */
    bool sending;
    const int *bounds;
    const lk_span *spans, *recv_spans;
    uint64_t detail; /* equal at all ranks */
    uint64_t own;    /* of this rank only */
    lk_request_window mine, out;
    const void *const *partials;
    const void *own_from; /* own_count elements that this rank sends to itself */
    void *own_to;
    size_t own_count;
    lk_argument_memory memory[2]; /* buffers of the caller */
    const char *from;             /* device of mine, partials and own_from; NULL: host memory */
    const char *to;               /* device of out and own_to */
} lk_intent;

/* The name of a kind in texts: "allreduce". */
const char *lk__intent_kind(lk_call_kind kind);
/* Checks the intent and starts its request; blocks until it is done if out is NULL. Every public call ends here. */
lk_status lk__intent_start(lk_group *group, const lk_intent *intent, lk_request **out) LK_CHECKED;

#endif
