/* schedule_build.h - what the files that make schedules share: a schedule in
 * the making, and where its ranks are. */
#ifndef LK_COMM_SCHEDULE_BUILD_H
#define LK_COMM_SCHEDULE_BUILD_H

#include "comm/schedule.h"

/* The first failure stays in status, and what is added after it is lost. */
typedef struct lk_build {
    const lk_topology *topology;
    int rank;
    int *local;      /* (size) place of each rank among its host's, in rank order */
    int *local_size; /* (hosts) */
    int channels;    /* ranks of the smallest host */
    bool flat;       /* one host, or one rank a host */
    lk_phase *phase; /* the last one */
    lk_schedule schedule;
    lk_status status;
} lk_build;

/* lk__build_hosts fills in what is about hosts, for those that need it; check
 * status after it. */
void lk__build_init(lk_build *build, const lk_topology *topology, int rank);
void lk__build_hosts(lk_build *build);
/* Frees what out does not get: all of it after a failure. */
lk_status lk__build_finish(lk_build *build, lk_schedule *out) LK_CHECKED;

void lk__build_place(lk_build *build);
void lk__build_fold(lk_build *build, int level, int level_out, lk_span keep);
/* Moves of the last phase; an empty span is left out, unless `empty`. */
void lk__build_send(lk_build *build, int peer, lk_span span, bool empty);
void lk__build_recv(lk_build *build, int peer, lk_span span, bool empty);

/* The two folds of a sum in two levels; returns what this rank then has of the
 * sum over all. */
lk_span lk__build_folds(lk_build *build, size_t count);
/* What a rank has after them. */
lk_span lk__build_part(const lk_build *build, size_t count, int rank);
/* The phases of allgather; ranks of host `without` (-1 for none) get nothing. */
void lk__build_allgather(lk_build *build, const lk_span *spans, bool empty, int without);

/* Peer i from 1 to size - 1, beginning after this rank. */
static inline int lk__build_peer(const lk_build *build, int i)
{
    return (build->rank + i) % build->topology->size;
}

static inline bool lk__build_same_host(const lk_build *build, int a, int b)
{
    return build->topology->host[a] == build->topology->host[b];
}

/* Segment i of a span. */
static inline lk_span lk__subspan(lk_span span, int parts, int i)
{
    lk_span inner = lk__segment(span.count, parts, i);
    return (lk_span){span.first + inner.first, inner.count};
}

#endif
