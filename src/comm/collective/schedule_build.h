/* schedule_build.h - what the files that make schedules share: a schedule in
 * the making, and where its ranks are. */
#ifndef LK_COMM_COLLECTIVE_SCHEDULE_BUILD_H
#define LK_COMM_COLLECTIVE_SCHEDULE_BUILD_H

#include "comm/collective/schedule.h"

/* The first failure stays in status, and what is added after it is lost. */
typedef struct lk_builder {
    const lk_schedule_topology *topology;
    int rank;
    int *local;               /* (size) place of each rank among its host's, in rank order */
    int *local_size;          /* (hosts) */
    int rails;                /* ranks of the smallest host */
    bool flat;                /* one host, or one rank a host */
    lk_schedule_phase *phase; /* the last one */
    lk_schedule schedule;
    lk_status status;
} lk_builder;

/* lk__builder_hosts fills in what is about hosts, for those that need it; check
 * status after it. */
void lk__builder_init(lk_builder *build, const lk_schedule_topology *topology, int rank);
void lk__builder_hosts(lk_builder *build);
/* Frees what out does not get: all of it after a failure. */
lk_status lk__builder_finish(lk_builder *build, lk_schedule *out) LK_CHECKED;

void lk__builder_copy(lk_builder *build);
void lk__builder_fold(lk_builder *build, int level, int level_out, lk_span keep);
/* Moves of the last phase; an empty span is left out, unless `empty`. */
void lk__builder_send(lk_builder *build, int peer, lk_span span, bool empty);
void lk__builder_recv(lk_builder *build, int peer, lk_span span, bool empty);

/* The two folds of a sum in two levels; returns what this rank then has of the
 * sum over all. */
lk_span lk__builder_folds(lk_builder *build, size_t count);
/* What a rank has after them. */
lk_span lk__builder_part(const lk_builder *build, size_t count, int rank);
/* The phases of allgather; ranks of host `without` (-1 for none) get nothing. */
void lk__builder_allgather(lk_builder *build, const lk_span *spans, bool empty, int without);

/* Peer i from 1 to size - 1, beginning after this rank. */
static inline int lk__builder_peer(const lk_builder *build, int i)
{
    return (build->rank + i) % build->topology->size;
}

static inline bool lk__builder_same_host(const lk_builder *build, int a, int b)
{
    return build->topology->host[a] == build->topology->host[b];
}

/* Segment i of a span. */
static inline lk_span lk__span_sub(lk_span span, int parts, int i)
{
    lk_span inner = lk__span_segment(span.count, parts, i);
    return (lk_span){span.first + inner.first, inner.count};
}

#endif
